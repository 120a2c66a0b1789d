"""trainmaster.kube.tls, over real TLS."""

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.kube.build import Clock, a_config
from tests.kube.certificate import Authority, encrypted
from tests.kube.conftest import Connect, Run
from tests.kube.serve import POD_JSON, ApiServer, Refusing
from trainmaster.core.errors import BadConfig, Invalid, Unreachable
from trainmaster.core.ids import POD, Key
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Material, Tls
from trainmaster.kube.tls import ssl_context

KEY = Key("ml", "a")
TlsServer = Callable[..., Awaitable[ApiServer]]


def trust(authority: Authority, *, server_name: str = "") -> Tls:
    return Tls(ca=Material("certificate-authority", data=authority.pem), server_name=server_name)


async def test_server_of_the_given_ca_is_trusted(tls_server: TlsServer, connect: Connect, authority: Authority) -> None:
    server = await tls_server()
    cluster = await connect(a_config(server.url, tls=trust(authority)))

    assert await cluster.get(POD, KEY) == POD_JSON


async def test_server_of_another_ca_is_not(tls_server: TlsServer, connect: Connect, stranger: Authority) -> None:
    server = await tls_server()
    cluster = await connect(a_config(server.url, tls=trust(stranger)))

    with pytest.raises(
        Unreachable, match=r"get pods ml/a: the server's certificate is not trusted: .*certificate-auth"
    ):
        await cluster.get(POD, KEY)


async def test_insecure_accepts_any_certificate(tls_server: TlsServer, connect: Connect) -> None:
    server = await tls_server(names=("elsewhere.test",))
    cluster = await connect(a_config(server.url, tls=Tls(insecure=True)))

    assert await cluster.get(POD, KEY) == POD_JSON


async def test_a_connection_ends_at_once_when_the_server_refuses_in_the_middle_of_a_body(
    run: Run[Any], connect: Connect, authority: Authority, tmp_path: Path
) -> None:
    server = await run(Refusing(authority.serving(tmp_path, names=("127.0.0.1",))))
    cluster = await connect(a_config(server.url, tls=trust(authority)))

    with pytest.raises(Invalid, match="413"):
        await cluster.create(POD, "ml", b'{"metadata":{"name":"a"},"x":"' + b"x" * 20_000_000 + b'"}')

    assert server.callers() == []


async def test_certificate_must_be_for_the_servers_address(
    tls_server: TlsServer, connect: Connect, authority: Authority
) -> None:
    server = await tls_server(names=("elsewhere.test",))
    cluster = await connect(a_config(server.url, tls=trust(authority)))

    with pytest.raises(Unreachable, match="not trusted"):
        await cluster.get(POD, KEY)


async def test_tls_server_name_replaces_the_address(
    tls_server: TlsServer, connect: Connect, authority: Authority
) -> None:
    server = await tls_server(names=("elsewhere.test",))
    cluster = await connect(a_config(server.url, tls=trust(authority, server_name="elsewhere.test")))

    assert await cluster.get(POD, KEY) == POD_JSON


async def test_client_certificate_is_shown(tls_server: TlsServer, connect: Connect, authority: Authority) -> None:
    server = await tls_server(clients=authority)
    certificate, key = authority.issue("me")
    cluster = await connect(
        a_config(
            server.url,
            tls=trust(authority),
            certificate=Material("client-certificate", data=certificate),
            key=Material("client-key", data=key),
        )
    )

    assert await cluster.get(POD, KEY) == POD_JSON


async def test_server_that_wants_a_certificate_gets_none_and_refuses(
    tls_server: TlsServer, connect: Connect, authority: Authority
) -> None:
    server = await tls_server(clients=authority)
    cluster = await connect(a_config(server.url, tls=trust(authority)))

    with pytest.raises(Unreachable, match="get pods ml/a"):
        await cluster.get(POD, KEY)


async def test_rotated_client_certificate_is_shown_within_a_minute_on_a_new_connection(
    tls_server: TlsServer, connect: Connect, authority: Authority, tmp_path: Path
) -> None:
    names = []

    async def who(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        names.append(dict(pair[0] for pair in subject)["commonName"])
        return web.Response(body=POD_JSON)

    def rotate(name: str) -> None:
        certificate, key = authority.issue(name)
        (tmp_path / "tls.crt").write_bytes(certificate)
        (tmp_path / "tls.key").write_bytes(key)

    clock = Clock()
    rotate("old")
    server = await tls_server(who, clients=authority)
    config = a_config(
        server.url,
        tls=trust(authority),
        certificate=Material("client-certificate", path=tmp_path / "tls.crt"),
        key=Material("client-key", path=tmp_path / "tls.key"),
    )
    cluster = await connect(config, now=clock)

    await cluster.get(POD, KEY)
    rotate("new")
    await cluster.get(POD, KEY)
    clock.now += 60
    await cluster.get(POD, KEY)

    assert names == ["old", "old", "new"]


async def test_half_rotated_pair_keeps_the_old_one_in_use(
    tls_server: TlsServer, connect: Connect, authority: Authority, tmp_path: Path
) -> None:
    clock = Clock()
    certificate, key = authority.issue("old")
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(key)
    server = await tls_server(clients=authority)
    config = a_config(
        server.url,
        tls=trust(authority),
        certificate=Material("client-certificate", path=tmp_path / "tls.crt"),
        key=Material("client-key", path=tmp_path / "tls.key"),
    )
    cluster = await connect(config, now=clock)

    (tmp_path / "tls.crt").write_bytes(authority.issue("new")[0])
    clock.now += 60

    assert await cluster.get(POD, KEY) == POD_JSON


async def test_rotated_ca_is_trusted_within_a_minute(
    tls_server: TlsServer, connect: Connect, authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    clock = Clock()
    path = tmp_path / "ca.crt"
    path.write_bytes(stranger.pem)
    server = await tls_server()
    cluster = await connect(a_config(server.url, tls=Tls(ca=Material("ca", path=path))), now=clock)
    with pytest.raises(Unreachable):
        await cluster.get(POD, KEY)

    path.write_bytes(authority.pem)
    clock.now += 60

    assert await cluster.get(POD, KEY) == POD_JSON


async def test_unusable_client_certificate_is_noticed_before_the_first_request(
    authority: Authority, stranger: Authority
) -> None:
    config = a_config(
        "https://api.test",
        certificate=Material("client-certificate", data=authority.issue("me")[0]),
        key=Material("client-key", data=stranger.issue("me")[1]),
    )

    with pytest.raises(BadConfig, match=r"client certificate of test: .*one unencrypted PEM pair"):
        async with KubeCluster(config):
            pass


@pytest.mark.parametrize(
    ("ca", "match"),
    [
        pytest.param(b"not a certificate", "^the CA: holds no PEM certificate", id="no PEM"),
        pytest.param(b"\xff\xfe", "^the CA: holds no PEM certificate", id="no text"),
    ],
)
def test_ca_that_holds_no_certificate_is_refused(ca: bytes, match: str) -> None:
    with pytest.raises(BadConfig, match=match):
        ssl_context(Tls(ca=Material("the CA")), ca=ca, certificate=b"", key=b"", source="u")


def test_ca_file_may_hold_comments(authority: Authority) -> None:
    ca = "# Zürich\n".encode() + authority.pem

    context = ssl_context(Tls(ca=Material("the CA")), ca=ca, certificate=b"", key=b"", source="u")

    assert len(context.get_ca_certs()) == 1


def test_encrypted_key_is_refused_without_a_prompt_for_its_password(authority: Authority) -> None:
    certificate, key = authority.issue("me")

    with pytest.raises(BadConfig, match="client certificate of u: "):
        ssl_context(Tls(), ca=b"", certificate=certificate, key=encrypted(key), source="u")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="before the answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", id="within the answer"),
    ],
)
async def test_connection_of_a_silent_server_is_closed_without_waiting(
    answer: bytes, connect: Connect, authority: Authority, tmp_path: Path
) -> None:
    context = authority.serving(tmp_path, names=("127.0.0.1",))

    def serve_once(listener: socket.socket) -> bool:
        """Answers, then stays silent; returns whether the client closed the connection."""
        accepted, _ = listener.accept()
        with accepted:
            try:
                with context.wrap_socket(accepted, server_side=True) as tls:
                    tls.recv(65536)
                    tls.sendall(answer)
                    assert tls.recv(65536) == b""  # the client's close_notify, which gets no answer
                    return bool(select.select([tls.fileno()], [], [], 10.0)[0])
            except OSError:
                return True

    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster = await connect(
            a_config(f"https://127.0.0.1:{listener.getsockname()[1]}", tls=trust(authority)), timeout=0.2
        )
        server = asyncio.create_task(asyncio.to_thread(serve_once, listener))
        with pytest.raises(Unreachable):
            await cluster.get(POD, KEY)

        assert await server
