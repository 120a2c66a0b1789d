"""trainmaster.kube.auth: which credential goes out, and when it is renewed."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.kube.build import Clock, a_config, a_script
from tests.kube.certificate import Authority
from tests.kube.conftest import Connect, Serve
from tests.kube.serve import POD_JSON, Answer, ApiServer, Handler, status
from trainmaster.core.errors import BadConfig, Unauthorized, Unreachable
from trainmaster.core.ids import POD, Key
from trainmaster.kube.auth import Auth
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Material, Plugin, Tls

KEY = Key("ml", "a")
V1 = "client.authentication.k8s.io/v1"


def shown(server: ApiServer) -> list[str]:
    return [seen.headers.get("Authorization", "") for seen in server.seen]


def token_file(path: Path) -> Material:
    return Material("token", path=path)


def only(token: str) -> Handler:
    """A server that accepts one token."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        good = request.headers.get("Authorization") == f"Bearer {token}"
        return await (Answer() if good else status(401, "Unauthorized", "Unauthorized"))(request)

    return respond


# --- what is sent ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({}, "", id="anonymous"),
        pytest.param({"token": Material("t", data=b"abc")}, "Bearer abc", id="token"),
        pytest.param({"basic": "me:pä:ss"}, "Basic bWU6cMOkOnNz", id="password"),
    ],
)
async def test_authorization_is_sent(user: dict[str, Any], expected: str, serve: Serve, connect: Connect) -> None:
    server = await serve()
    cluster = await connect(a_config(server.url, **user))

    await cluster.get(POD, KEY)

    assert shown(server) == [expected]


async def test_impersonation_is_sent(serve: Serve, connect: Connect) -> None:
    groups: list[str] = []

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        groups.extend(request.headers.getall("Impersonate-Group"))
        return await Answer()(request)

    server = await serve(note)
    headers = (("Impersonate-User", "ci"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
    cluster = await connect(a_config(server.url, token="t", impersonate=headers))

    await cluster.get(POD, KEY)

    assert server.seen[0].headers["Impersonate-User"] == "ci"
    assert groups == ["dev", "ops"]


@pytest.mark.parametrize("token", ["two\nlines", "ümlaut"])
async def test_token_that_no_header_can_carry_is_refused_without_quoting_it(token: str) -> None:
    with pytest.raises(BadConfig, match=r"^token: the token has characters") as caught:
        async with KubeCluster(a_config("http://api.test", token=token)):
            pass

    assert token not in str(caught.value)


# --- token files -------------------------------------------------------------------------------


async def test_token_file_is_read_again_after_a_minute(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "token"
    path.write_text("one\n")
    server = await serve()
    cluster = await connect(a_config(server.url, token=token_file(path)), now=clock)

    await cluster.get(POD, KEY)
    path.write_text("two\n")
    clock.now += 59
    await cluster.get(POD, KEY)
    clock.now += 1
    await cluster.get(POD, KEY)

    assert shown(server) == ["Bearer one", "Bearer one", "Bearer two"]


async def test_token_file_is_read_again_at_once_after_a_401(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    server = await serve(only("two"))
    cluster = await connect(a_config(server.url, token=token_file(path)), now=Clock())
    path.write_text("two")

    assert await cluster.create(POD, "ml", POD_JSON) is not None
    assert shown(server) == ["Bearer one", "Bearer two"]


async def test_rejected_token_that_did_not_change_is_not_tried_again(
    serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    server = await serve(only("two"))
    cluster = await connect(a_config(server.url, token=token_file(path)), now=Clock())

    with pytest.raises(Unauthorized, match=r"get pods ml/a: Unauthorized \(401 Unauthorized\)"):
        await cluster.get(POD, KEY)

    assert shown(server) == ["Bearer one"]


async def test_second_401_is_final(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    server = await serve(only("three"))
    cluster = await connect(a_config(server.url, token=token_file(path)), now=Clock())
    path.write_text("two")

    with pytest.raises(Unauthorized):
        await cluster.get(POD, KEY)

    assert shown(server) == ["Bearer one", "Bearer two"]


async def test_token_file_that_vanishes_leaves_the_last_token_in_use(
    serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    clock = Clock()
    path = tmp_path / "token"
    path.write_text("one")
    server = await serve()
    cluster = await connect(a_config(server.url, token=token_file(path)), now=clock)

    path.unlink()
    clock.now += 60
    await cluster.get(POD, KEY)

    assert shown(server) == ["Bearer one"]


async def test_token_file_that_is_missing_after_a_401_is_the_error(
    serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    server = await serve(only("two"))
    cluster = await connect(a_config(server.url, token=token_file(path)), now=Clock())
    path.unlink()

    with pytest.raises(BadConfig, match=f"cannot read {path}"):
        await cluster.get(POD, KEY)


async def test_static_token_is_sent_once_and_its_401_is_final(serve: Serve, connect: Connect) -> None:
    server = await serve(only("two"))
    cluster = await connect(a_config(server.url, token="one"))

    with pytest.raises(Unauthorized):
        await cluster.delete(POD, KEY, uid="u")

    assert shown(server) == ["Bearer one"]


# --- exec plug-ins -----------------------------------------------------------------------------


def counting(tmp_path: Path, expiry: str = "") -> Plugin:
    """A plug-in that gives token-1, token-2, … and leaves a mark for each run."""
    script = a_script(
        tmp_path / "login",
        f"""
        import json, os
        runs = {str(tmp_path / "runs")!r}
        with open(runs, "a") as file:
            file.write("x")
        status = dict(token="token-%d" % os.path.getsize(runs))
        if {expiry!r}:
            status["expirationTimestamp"] = {expiry!r}
        print(json.dumps(dict(kind="ExecCredential", apiVersion="{V1}", status=status)))
        """,
    )
    return Plugin(api_version=V1, command=str(script))


async def test_plugin_runs_once_for_many_requests(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    clock = Clock()
    server = await serve()
    cluster = await connect(a_config(server.url, plugin=counting(tmp_path)), now=clock)

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(cluster.get(POD, KEY))
    clock.now += 10 * 365 * 86400
    await cluster.get(POD, KEY)

    assert shown(server) == ["Bearer token-1"] * 6


async def test_plugin_runs_again_when_its_credential_expires(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    expiry = datetime(2026, 11, 15, 12, tzinfo=UTC)
    clock = Clock(expiry.timestamp() - 600)
    server = await serve()
    cluster = await connect(a_config(server.url, plugin=counting(tmp_path, expiry.isoformat())), now=clock)

    await cluster.get(POD, KEY)
    clock.now += 599
    await cluster.get(POD, KEY)
    clock.now += 1
    await cluster.get(POD, KEY)

    assert shown(server) == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


async def test_credential_that_is_born_expired_does_not_run_the_plugin_for_every_request(
    serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    clock = Clock(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp())
    server = await serve()
    cluster = await connect(a_config(server.url, plugin=counting(tmp_path, "2020-01-01T00:00:00Z")), now=clock)

    await cluster.get(POD, KEY)
    await cluster.get(POD, KEY)

    assert shown(server) == ["Bearer token-1"] * 2


async def test_plugin_runs_again_once_after_several_401s(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    clock = Clock()
    server = await serve(only("token-2"))
    cluster = await connect(a_config(server.url, plugin=counting(tmp_path)), now=clock)
    clock.now += 60

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(cluster.get(POD, KEY))

    assert (tmp_path / "runs").read_text() == "xx"


async def test_credential_that_is_rejected_at_once_is_not_obtained_again(
    serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    server = await serve(only("never"))
    cluster = await connect(a_config(server.url, plugin=counting(tmp_path)), now=Clock())

    for _ in range(3):
        with pytest.raises(Unauthorized):
            await cluster.get(POD, KEY)

    assert (tmp_path / "runs").read_text() == "x"


async def test_token_wins_over_the_plugin(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    server = await serve()
    cluster = await connect(a_config(server.url, token="static", plugin=counting(tmp_path)))

    await cluster.get(POD, KEY)

    assert shown(server) == ["Bearer static"]


async def test_plugin_may_give_a_client_certificate(
    serve: Serve, connect: Connect, tmp_path: Path, authority: Authority
) -> None:
    certificate, key = authority.issue("me")
    script = a_script(
        tmp_path / "login",
        f"""
        import json
        status = dict(clientCertificateData={certificate.decode()!r}, clientKeyData={key.decode()!r})
        print(json.dumps(dict(kind="ExecCredential", apiVersion="{V1}", status=status)))
        """,
    )
    server = await serve(context=authority.serving(tmp_path, names=("127.0.0.1",), clients=authority))
    tls = Tls(ca=Material("ca", data=authority.pem))
    cluster = await connect(a_config(server.url, tls=tls, plugin=Plugin(api_version=V1, command=str(script))))

    assert await cluster.get(POD, KEY) == POD_JSON


async def test_missing_plugin_is_noticed_before_the_first_request() -> None:
    config = a_config("https://api.test", plugin=Plugin(api_version=V1, command="/nowhere/login", hint="get it"))

    with pytest.raises(BadConfig, match=r"/nowhere/login cannot be run: .*; get it"):
        async with KubeCluster(config):
            pass


async def test_all_callers_that_wait_for_a_plugin_share_its_failure(tmp_path: Path) -> None:
    script = a_script(tmp_path / "login", f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); raise SystemExit(1)")
    auth = Auth(a_config("http://api.test", plugin=Plugin(api_version=V1, command=str(script))))

    outcomes = await asyncio.gather(*(auth.fresh() for _ in range(5)), return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Unreachable] * 5
    assert (tmp_path / "runs").read_text() == "x"


async def test_caller_that_gives_up_does_not_take_the_plugin_from_the_others(tmp_path: Path) -> None:
    auth = Auth(a_config("http://api.test", plugin=counting(tmp_path)))
    impatient = asyncio.create_task(auth.fresh())
    patient = asyncio.create_task(auth.fresh())
    await asyncio.sleep(0)

    impatient.cancel()
    await patient

    assert auth.generation == 1


async def test_closing_ends_a_plugin_that_runs(tmp_path: Path) -> None:
    script = a_script(tmp_path / "login", "import time; time.sleep(60)")
    auth = Auth(a_config("http://api.test", plugin=Plugin(api_version=V1, command=str(script))))
    waiting = asyncio.create_task(auth.fresh())
    await asyncio.sleep(0)

    await auth.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting


def slow_after_the_first(folder: Path) -> Plugin:
    """Answers at once the first time, and never again."""
    script = a_script(
        folder / "login",
        f"""
        import json, os, time
        if os.path.exists({str(folder / "ran")!r}):
            time.sleep(600)
        open({str(folder / "ran")!r}, "w")
        status = dict(token="one", expirationTimestamp="1970-01-12T14:00:00Z")
        print(json.dumps(dict(kind="ExecCredential", apiVersion="{V1}", status=status)))
        """,
    )
    return Plugin(api_version=V1, command=str(script))


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [pytest.param(3600.0, Answer(), id="expired"), pytest.param(6.0, status(401, "Unauthorized"), id="rejected")],
)
async def test_a_credential_is_waited_for_within_the_timeout_of_the_call(
    serve: Serve, connect: Connect, tmp_path: Path, seconds: float, answer: Answer
) -> None:
    clock = Clock()
    server = await serve(answer)
    cluster = await connect(a_config(server.url, plugin=slow_after_the_first(tmp_path)), now=clock, timeout=0.2)
    clock.now += seconds

    async with asyncio.timeout(30):
        with pytest.raises(Unreachable, match=r"get pods ml/a: there was no new credential within 0\.2 s"):
            await cluster.get(POD, KEY)
