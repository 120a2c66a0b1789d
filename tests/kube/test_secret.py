"""No secret is in an error, its causes, a repr or rich's pretty print, whatever goes wrong."""

import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rich.pretty import pretty_repr

from tests.kube.build import a_config, a_kubeconfig, a_script, write_yaml
from tests.kube.conftest import Connect, Run, Serve
from tests.kube.serve import Proxy, RawServer, hang, status
from trainmaster.core.errors import Trainmaster
from trainmaster.core.ids import POD, Key
from trainmaster.kube.auth import Credential
from trainmaster.kube.config import Config, Material, Plugin, Tls
from trainmaster.kube.kubeconfig import load_config

SECRET = "s3cr3t-t0k3n"


def everything_said(error: BaseException) -> str:
    chain = "".join(traceback.format_exception(error))
    causes = []
    current: BaseException | None = error
    while current is not None:
        causes.append(repr(current))
        current = current.__cause__
    return chain + "".join(causes)


async def failing(call: Awaitable[object]) -> str:
    with pytest.raises(Trainmaster) as caught:
        await call
    return everything_said(caught.value)


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(status=400, text=f"bad request with {request.headers['Authorization']}")


@pytest.mark.parametrize(
    ("answer", "timeout", "expected"),
    [
        pytest.param(status(401, "Unauthorized", "Unauthorized"), 30.0, "(401 Unauthorized)", id="rejected"),
        pytest.param(status(403, "Forbidden", f"token {SECRET} may not"), 30.0, "token *** may not", id="Status"),
        pytest.param(echo, 30.0, "Bearer ***", id="page with our headers"),
        pytest.param(hang, 0.05, "no answer", id="no answer"),
    ],
)
async def test_server_trouble_shows_no_token(
    answer: Any, timeout: float, expected: str, serve: Serve, connect: Connect
) -> None:
    server = await serve(answer)
    cluster = await connect(a_config(server.url, token=SECRET), timeout=timeout)

    said = await failing(cluster.get(POD, Key("ml", "a")))

    assert expected in said
    assert SECRET not in said


async def babble(reader: Any, writer: Any) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"220 mail.test ESMTP\r\n\r\n")


async def parrot(reader: Any, writer: Any) -> None:
    writer.write(await reader.readuntil(b"\r\n\r\n"))


async def parrot_headers(reader: Any, writer: Any) -> None:
    _, headers = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)
    writer.write(b"HTTP/1.1 200 OK\r\n:" + headers)


async def cut(reader: Any, writer: Any) -> None:
    await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("talk", [babble, parrot, parrot_headers, cut])
async def test_connection_trouble_shows_no_token(talk: Any, run: Run[Any], connect: Connect) -> None:
    server = await run(RawServer(talk))
    cluster = await connect(a_config(server.url, token=SECRET))

    assert SECRET not in await failing(cluster.get(POD, Key("ml", "a")))


@pytest.mark.parametrize("is_up", [True, False])
async def test_proxy_trouble_shows_no_password(is_up: bool, run: Run[Any], connect: Connect) -> None:
    proxy = await run(Proxy(0, refuse=True))
    if not is_up:
        await proxy.stop()
    config = a_config("https://api.test", token=SECRET, proxy=f"http://me:{SECRET}@127.0.0.1:{proxy.port}")
    cluster = await connect(config)

    said = await failing(cluster.get(POD, Key("ml", "a")))
    assert SECRET not in said
    assert "bWU6" not in said  # the beginning of its Proxy-Authorization


async def test_plugin_trouble_shows_no_output(connect: Connect, tmp_path: Path) -> None:
    script = a_script(tmp_path / "login", f"print('{SECRET}')")
    plugin = Plugin(api_version="client.authentication.k8s.io/v1", command=str(script), args=(SECRET,))

    assert SECRET not in await failing(connect(a_config("https://api.test", plugin=plugin)))


def a_loaded_config(tmp_path: Path) -> Config:
    user = {"username": "me", "password": SECRET}
    content = a_kubeconfig(cluster={"proxy-url": f"http://me:{SECRET}@proxy:1"}, user=user)
    return load_config(kubeconfig=str(write_yaml(tmp_path / "config", content)))


DATA: list[Any] = [
    pytest.param(a_loaded_config, id="config"),
    pytest.param(lambda _: Material("token", data=SECRET.encode()), id="material"),
    pytest.param(lambda _: Tls(ca=Material("ca", data=SECRET.encode())), id="tls"),
    pytest.param(lambda _: Plugin(api_version="v1", command="x", args=(SECRET,), env=(("A", SECRET),)), id="plug-in"),
    pytest.param(lambda _: Credential(authorization=f"Bearer {SECRET}", key=SECRET.encode()), id="credential"),
]


@pytest.mark.parametrize("make", DATA)
def test_data_that_holds_secrets_does_not_print_them(make: Callable[[Path], object], tmp_path: Path) -> None:
    data = make(tmp_path)

    assert SECRET not in repr(data) + str(data) + pretty_repr(data) + f"{[data]}"


def test_config_prints_server_and_source(tmp_path: Path) -> None:
    assert repr(a_loaded_config(tmp_path)) == (
        f"<Config https://api.test:6443 from {tmp_path / 'config'}, context dev>"
    )
