"""trainmaster.kube.client: what is sent, what comes back, and what is retried."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.kube.build import a_config
from tests.kube.conftest import Connect, Run, Serve
from tests.kube.serve import POD_JSON, Answer, RawServer, hang, hang_up, status
from trainmaster.core.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    NotLeading,
    ServerError,
    TooLarge,
    TooManyRequests,
    Unreachable,
)
from trainmaster.core.ids import EVENT, LEASE, POD, Key, Resource
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.transport import CONNECTIONS
from trainmaster.runtime.cluster import Cluster, Written

KEY = Key("ml", "a")
DIJOB = Resource("diengine.opendilab.org", "v2alpha1", "dijobs", "DIJob")
PODS = "/api/v1/namespaces/ml/pods"
DIJOBS = "/apis/diengine.opendilab.org/v2alpha1/namespaces/ml/dijobs"
JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

Action = Callable[[KubeCluster], Awaitable[object]]

WRITES: list[Any] = [
    pytest.param(lambda c: c.create(POD, "ml", POD_JSON), id="create"),
    pytest.param(lambda c: c.replace(POD, KEY, POD_JSON), id="replace"),
    pytest.param(lambda c: c.patch(POD, KEY, b"{}"), id="patch"),
    pytest.param(lambda c: c.delete(POD, KEY, uid="u-1"), id="delete"),
]
READS: list[Any] = [
    pytest.param(lambda c: c.get(POD, KEY), id="get"),
    pytest.param(lambda c: c.list(POD), id="list"),
]


def test_client_implements_the_runtimes_cluster() -> None:
    _: type[Cluster] = KubeCluster  # mypy compares the signatures


# --- on the wire -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "method", "path", "content_type", "body"),
    [
        pytest.param(lambda c: c.get(POD, KEY), "GET", f"{PODS}/a", None, b"", id="get"),
        pytest.param(lambda c: c.list(POD), "GET", "/api/v1/pods", None, b"", id="list everywhere"),
        pytest.param(
            lambda c: c.list(DIJOB, namespace="ml", selector="a=b,c", limit=500, cursor="x/y"),
            "GET",
            f"{DIJOBS}?labelSelector=a%3Db%2Cc&limit=500&continue=x%2Fy",
            None,
            b"",
            id="list a page",
        ),
        pytest.param(
            lambda c: c.create(POD, "ml", POD_JSON),
            "POST",
            f"{PODS}?fieldManager=trainmaster",
            JSON,
            POD_JSON,
            id="create",
        ),
        pytest.param(
            lambda c: c.replace(DIJOB, KEY, POD_JSON),
            "PUT",
            f"{DIJOBS}/a?fieldManager=trainmaster",
            JSON,
            POD_JSON,
            id="replace",
        ),
        pytest.param(
            lambda c: c.patch(POD, KEY, b'{"a":1}'),
            "PATCH",
            f"{PODS}/a?fieldManager=trainmaster",
            "application/merge-patch+json",
            b'{"a":1}',
            id="patch",
        ),
        pytest.param(
            lambda c: c.patch(DIJOB, KEY, b'{"a":1}', subresource="status"),
            "PATCH",
            f"{DIJOBS}/a/status?fieldManager=trainmaster",
            "application/merge-patch+json",
            b'{"a":1}',
            id="patch the status",
        ),
        pytest.param(
            lambda c: c.patch(DIJOB, KEY, b'{"a":1}', subresource="status", strict=True),
            "PATCH",
            f"{DIJOBS}/a/status?fieldManager=trainmaster&fieldValidation=Strict",
            "application/merge-patch+json",
            b'{"a":1}',
            id="patch the status strictly",
        ),
        pytest.param(
            lambda c: c.ask(POD, KEY, "token", b"{}"), "POST", f"{PODS}/a/token", JSON, b"{}", id="ask about an object"
        ),
        pytest.param(
            lambda c: c.get(POD, Key("ml", "a b/c%")), "GET", f"{PODS}/a%20b%2Fc%25", None, b"", id="encoded name"
        ),
    ],
)
async def test_request_is_as_kubernetes_documents_it(
    action: Action, method: str, path: str, content_type: str | None, body: bytes, serve: Serve, connect: Connect
) -> None:
    server = await serve()

    await action(await connect(a_config(server.url)))

    [seen] = server.seen
    assert (seen.method, seen.path, seen.headers.get("Content-Type"), seen.body) == (method, path, content_type, body)
    accept = METADATA if "fieldManager" in path else JSON  # of what is written only the metadata is read
    assert (seen.headers["Accept"], seen.headers["Accept-Encoding"]) == (accept, "identity")
    assert seen.headers["User-Agent"].startswith("trainmaster/")


@pytest.mark.parametrize(
    ("grace", "expected"),
    [
        pytest.param(None, {}, id="the object's own grace period"),
        pytest.param(0, {"gracePeriodSeconds": 0}, id="at once"),
        pytest.param(30, {"gracePeriodSeconds": 30}, id="given"),
    ],
)
async def test_delete_names_the_incarnation(
    grace: int | None, expected: dict[str, int], serve: Serve, connect: Connect
) -> None:
    server = await serve()
    cluster = await connect(a_config(server.url))

    await cluster.delete(POD, KEY, uid="u-1", grace=grace)

    [seen] = server.seen
    assert (seen.method, seen.path, seen.headers["Content-Type"]) == ("DELETE", f"{PODS}/a", JSON)
    assert seen.headers["Accept"] == METADATA
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u-1"},
        "propagationPolicy": "Background",
    }
    assert msgspec.json.decode(seen.body) == options | expected


async def test_reads_give_the_bytes_as_the_server_wrote_them(serve: Serve, connect: Connect) -> None:
    body = b'{"items": [ ],\n "metadata":{}}'
    server = await serve(Answer(200, body))
    cluster = await connect(a_config(server.url))

    assert await cluster.list(POD) == body


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(serve: Serve, connect: Connect) -> None:
    server = await serve(Answer(body=b"x" * 1000), Answer(body=b"x" * 1001), Answer(body=b"[]"))
    cluster = await connect(a_config(server.url))
    assert len(await cluster.list(POD, max_bytes=1000)) == 1000
    with pytest.raises(TooLarge, match="more than 1000 bytes"):
        await cluster.list(POD, max_bytes=1000)
    assert await cluster.list(POD, max_bytes=1000) == b"[]"  # it was asked once, and another connection is used


async def test_the_version_of_a_resource_is_that_of_a_list_of_one_object(serve: Serve, connect: Connect) -> None:
    server = await serve(Answer(body=b'{"metadata":{"resourceVersion":"71"},"items":[{"metadata":{"name":"a"}}]}'))
    cluster = await connect(a_config(server.url))
    assert await cluster.version(DIJOB, namespace="ml", fields="metadata.name=a") == 71

    (seen,) = server.seen
    assert seen.path == f"{DIJOBS}?fieldSelector=metadata.name%3Da&limit=1"
    assert seen.headers["Accept"].startswith("application/json;as=PartialObjectMetadataList;")


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"metadata":{}}'])
async def test_an_answer_without_a_version_is_an_error_of_the_server(
    body: bytes, serve: Serve, connect: Connect
) -> None:
    server = await serve(Answer(body=body))
    cluster = await connect(a_config(server.url))
    with pytest.raises(ServerError, match="is this an API server"):
        await cluster.version(POD)


@pytest.mark.parametrize("action", WRITES)
async def test_writes_give_incarnation_and_version(action: Action, serve: Serve, connect: Connect) -> None:
    server = await serve(Answer(201))

    assert await action(await connect(a_config(server.url))) == Written("u-1", 7)


async def test_writes_give_the_warnings_of_the_server(serve: Serve, connect: Connect) -> None:
    server = await serve(Answer(201, headers={"Warning": '299 - "spec.a: is \\"odd\\""'}))
    cluster = await connect(a_config(server.url))

    assert await cluster.create(POD, "ml", b"{}") == Written("u-1", 7, ('spec.a: is "odd"',))


async def test_the_date_of_every_answer_is_passed_on(serve: Serve, connect: Connect) -> None:
    date = "Tue, 17 Nov 2026 16:13:24 GMT"
    server = await serve(Answer(200, headers={"Date": date}), status(404, "NotFound", Date=date))
    dates: list[str] = []
    cluster = await connect(a_config(server.url), on_date=dates.append)

    await cluster.get(POD, KEY)
    with pytest.raises(NotFound):
        await cluster.get(POD, KEY)

    assert dates == [date, date]


async def test_delete_that_answers_a_status_has_no_version(serve: Serve, connect: Connect) -> None:
    server = await serve(Answer(200, b'{"kind":"Status","metadata":{},"status":"Success","details":{"uid":"u-1"}}'))
    cluster = await connect(a_config(server.url))

    assert await cluster.delete(POD, KEY, uid="u-1") == Written("", 0)


async def test_connection_is_used_again(run: Run[Any], connect: Connect) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    server = await run(RawServer(talk))
    cluster = await connect(a_config(server.url))

    for _ in range(3):
        await cluster.get(POD, KEY)

    assert server.connections == 1


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "answer", "error", "message"),
    [
        pytest.param(
            lambda c: c.get(POD, KEY),
            status(404, "NotFound", 'pods "a" not found'),
            NotFound,
            'get pods ml/a: pods "a" not found (404 NotFound)',
            id="get",
        ),
        pytest.param(
            lambda c: c.create(POD, "ml", POD_JSON),
            status(409, "AlreadyExists", 'pods "a" already exists'),
            AlreadyExists,
            'create pods ml/a: pods "a" already exists (409 AlreadyExists)',
            id="create knows the name in its body",
        ),
        pytest.param(
            lambda c: c.delete(DIJOB, KEY, uid="u"),
            status(409, "Conflict", "UID in precondition: u, UID in object meta: v"),
            Conflict,
            "delete dijobs.diengine.opendilab.org ml/a: UID in precondition: u, UID in object meta: v (409 Conflict)",
            id="delete",
        ),
        pytest.param(
            lambda c: c.list(POD),
            Answer(502, b"<html>Bad Gateway</html>"),
            ServerError,
            "list pods: <html>Bad Gateway</html> (502)",
            id="list everywhere",
        ),
        pytest.param(
            lambda c: c.list(POD, namespace="ml"),
            Answer(302, b"", {"Location": "https://login.test/"}),
            ApiError,
            "list pods ml: no explanation (302)",
            id="redirects are not followed",
        ),
    ],
)
async def test_refusal_contains_request_and_answer(
    action: Action, answer: Answer, error: type[ApiError], message: str, serve: Serve, connect: Connect
) -> None:
    server = await serve(answer)

    with pytest.raises(error) as caught:
        await action(await connect(a_config(server.url)))

    assert str(caught.value) == message
    assert len(server.seen) == 1


# --- waiting and trying again ------------------------------------------------------------------


@pytest.mark.parametrize("action", [*READS, *WRITES])
@pytest.mark.parametrize("code", [429, 503])
async def test_busy_server_is_asked_again_after_its_wait(
    action: Action, code: int, serve: Serve, connect: Connect
) -> None:
    server = await serve(status(code, Retry_After="1"), status(code, Retry_After="1"), Answer())

    await action(await connect(a_config(server.url), retry_after_cap=0.001))

    assert len(server.seen) == 3
    assert server.seen[0][:2] == server.seen[2][:2]
    assert server.seen[0].body == server.seen[2].body


async def test_wait_is_the_servers_retry_after_up_to_the_cap(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("trainmaster.kube.client.asyncio.sleep", note)
    server = await serve(status(429, Retry_After="2"), status(429, Retry_After="3600"), Answer())
    cluster = await connect(a_config(server.url))

    await cluster.get(POD, KEY)

    assert waits == [2.0, 10.0]


async def test_busy_server_is_given_up_after_three_tries(serve: Serve, connect: Connect) -> None:
    server = await serve(status(429, "TooManyRequests", "slow down", Retry_After="7"))
    cluster = await connect(a_config(server.url), retry_after_cap=0.0)

    with pytest.raises(TooManyRequests, match="get pods ml/a: slow down") as caught:
        await cluster.get(POD, KEY)

    assert caught.value.retry_after == 7.0
    assert len(server.seen) == 3


async def test_wait_that_does_not_fit_into_the_timeout_is_left_to_the_caller(serve: Serve, connect: Connect) -> None:
    server = await serve(status(429, Retry_After="8"))
    cluster = await connect(a_config(server.url), timeout=5.0)

    with pytest.raises(TooManyRequests):
        await cluster.get(POD, KEY)

    assert len(server.seen) == 1


async def test_503_without_a_wait_is_final(serve: Serve, connect: Connect) -> None:
    server = await serve(status(503, "ServiceUnavailable"))
    cluster = await connect(a_config(server.url))

    with pytest.raises(ServerError):
        await cluster.get(POD, KEY)

    assert len(server.seen) == 1


async def test_retries_never_multiply_the_load_of_a_busy_server(serve: Serve, connect: Connect) -> None:
    server = await serve(status(429, Retry_After="0"))
    cluster = await connect(a_config(server.url))

    for _ in range(100):
        with pytest.raises(TooManyRequests):
            await cluster.create(POD, "ml", POD_JSON)

    assert len(server.seen) == 100 + 20


async def test_successes_earn_new_retries(serve: Serve, connect: Connect) -> None:
    busy = status(429, Retry_After="0")
    server = await serve(busy)
    cluster = await connect(a_config(server.url))
    for _ in range(20):
        with pytest.raises(TooManyRequests):
            await cluster.get(POD, KEY)
    server.answers = [Answer()]
    for _ in range(11):
        await cluster.get(POD, KEY)
    server.seen.clear()
    server.answers = [busy, Answer()]

    await cluster.get(POD, KEY)

    assert len(server.seen) == 2


# --- no answer ---------------------------------------------------------------------------------


async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read a request and close."""
    await reader.readuntil(b"\r\n\r\n")


async def cut_within(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close in the middle of the answer."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"kind"')
    await writer.drain()


async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"220 mail.test ESMTP\r\n\r\n")


@pytest.mark.parametrize("action", WRITES)
@pytest.mark.parametrize("talk", [cut, cut_within])
async def test_write_without_an_answer_is_never_sent_again(
    action: Action, talk: Any, run: Run[Any], connect: Connect
) -> None:
    server = await run(RawServer(talk))

    with pytest.raises(Unreachable, match="pods ml/a: the connection was c"):
        await action(await connect(a_config(server.url)))

    assert server.connections == 1


@pytest.mark.parametrize("action", READS)
@pytest.mark.parametrize("talk", [cut, cut_within])
async def test_read_without_an_answer_is_tried_three_times(
    action: Action, talk: Any, run: Run[Any], connect: Connect
) -> None:
    server = await run(RawServer(talk))

    with pytest.raises(Unreachable, match="the connection was c"):
        await action(await connect(a_config(server.url)))

    assert server.connections == 3


async def test_read_succeeds_when_a_later_try_is_answered(run: Run[Any], connect: Connect) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if server.connections == 3:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    server = await run(RawServer(talk))
    cluster = await connect(a_config(server.url))

    assert await cluster.get(POD, KEY) == b"{}"


async def test_reads_stop_trying_again_when_the_budget_is_spent(run: Run[Any], connect: Connect) -> None:
    server = await run(RawServer(cut))
    cluster = await connect(a_config(server.url))

    for _ in range(50):
        with pytest.raises(Unreachable):
            await cluster.get(POD, KEY)

    assert server.connections == 50 + 20


@pytest.mark.parametrize("action", [*READS, *WRITES])
async def test_hanging_server_is_noticed_within_the_timeout(action: Action, serve: Serve, connect: Connect) -> None:
    server = await serve(hang)
    cluster = await connect(a_config(server.url), timeout=0.05)

    with pytest.raises(Unreachable, match=r"pods.*: no answer within 0\.05 s"):
        await action(cluster)

    assert len(server.seen) <= 1  # a busy machine may not even have sent it


async def test_answer_that_never_ends_is_noticed_within_the_timeout(run: Run[Any], connect: Connect) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.005)

    server = await run(RawServer(drip))
    cluster = await connect(a_config(server.url), timeout=0.05)

    with pytest.raises(Unreachable, match="no answer within"):
        await cluster.list(POD)


async def test_closed_port_is_unreachable(run: Run[Any], connect: Connect) -> None:
    server = RawServer(cut)
    await server.start()
    await server.stop()
    cluster = await connect(a_config(server.url))

    with pytest.raises(Unreachable, match=rf"get pods ml/a: cannot connect to 127.0.0.1:{server.port}: "):
        await cluster.get(POD, KEY)


async def test_server_without_http_is_unreachable(run: Run[Any], connect: Connect) -> None:
    server = await run(RawServer(babble))
    cluster = await connect(a_config(server.url))

    with pytest.raises(Unreachable, match="get pods ml/a: the answer is not HTTP"):
        await cluster.get(POD, KEY)


async def test_closed_client_is_unreachable(serve: Serve) -> None:
    server = await serve()
    cluster = KubeCluster(a_config(server.url))
    await cluster.close()

    with pytest.raises(Unreachable, match="get pods ml/a: this client is closed"):
        await cluster.get(POD, KEY)


async def test_cancelled_call_leaves_the_client_usable(serve: Serve, connect: Connect) -> None:
    arrived = asyncio.Event()

    async def arrive(request: web.BaseRequest) -> web.StreamResponse:
        arrived.set()
        return await hang(request)

    server = await serve(arrive, Answer())
    cluster = await connect(a_config(server.url))
    task = asyncio.create_task(cluster.get(POD, KEY))
    await arrived.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await cluster.get(POD, KEY) == POD_JSON


# --- observer and gate -------------------------------------------------------------------------


async def test_every_request_is_observed(serve: Serve, connect: Connect) -> None:
    observed: list[tuple[str, str]] = []
    server = await serve(status(429, Retry_After="0"), Answer(201), status(404), hang_up)
    cluster = await connect(a_config(server.url), observe=lambda method, code, seconds: observed.append((method, code)))

    await cluster.create(POD, "ml", POD_JSON)
    with pytest.raises(NotFound):
        await cluster.get(POD, KEY)
    with pytest.raises(Unreachable):
        await cluster.delete(POD, KEY, uid="u")

    assert observed == [("POST", "429"), ("POST", "201"), ("GET", "404"), ("DELETE", "<error>")]


def closed_gate() -> None:
    raise NotLeading("the lease is lost")


@pytest.mark.parametrize("action", WRITES)
async def test_closed_gate_keeps_writes_from_the_server(action: Action, serve: Serve, connect: Connect) -> None:
    server = await serve()

    with pytest.raises(NotLeading):
        await action(await connect(a_config(server.url), gate=closed_gate))

    assert server.seen == []


@pytest.mark.parametrize(
    "action",
    [
        *READS,
        pytest.param(lambda c: c.create(LEASE, "ml", POD_JSON), id="create a lease"),
        pytest.param(lambda c: c.replace(LEASE, KEY, POD_JSON), id="renew a lease"),
        pytest.param(lambda c: c.create(EVENT, "ml", POD_JSON), id="record an event"),
    ],
)
async def test_closed_gate_lets_reads_leases_and_events_pass(action: Action, serve: Serve, connect: Connect) -> None:
    server = await serve()

    await action(await connect(a_config(server.url), gate=closed_gate))

    assert len(server.seen) == 1


async def test_gate_is_asked_again_for_every_try(serve: Serve, connect: Connect) -> None:
    server = await serve(status(429, Retry_After="0"), Answer())
    asked: list[int] = []

    def gate() -> None:
        asked.append(len(server.seen))
        if server.seen:
            closed_gate()

    cluster = await connect(a_config(server.url), gate=gate)

    with pytest.raises(NotLeading):
        await cluster.create(POD, "ml", POD_JSON)

    assert asked == [0, 1]


async def test_write_checks_the_gate_after_it_got_a_connection(serve: Serve, connect: Connect) -> None:
    is_leading = True
    release = asyncio.Event()
    full = asyncio.Event()

    async def hold(request: web.BaseRequest) -> web.StreamResponse:
        if len(server.seen) == CONNECTIONS:
            full.set()
        await release.wait()
        return await Answer()(request)

    def gate() -> None:
        if not is_leading:
            closed_gate()

    server = await serve(hold)
    cluster = await connect(a_config(server.url), gate=gate)
    async with asyncio.TaskGroup() as group:
        for _ in range(CONNECTIONS):
            group.create_task(cluster.get(POD, KEY))
        await full.wait()
        write = group.create_task(_outcome(cluster.create(POD, "ml", POD_JSON)))
        await asyncio.sleep(0)
        is_leading = False
        release.set()

    assert isinstance(write.result(), NotLeading)
    assert {seen.method for seen in server.seen} == {"GET"}


async def _outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except NotLeading as error:
        return error


async def test_no_more_calls_are_under_way_than_there_are_connections(serve: Serve, connect: Connect) -> None:
    answered = asyncio.Event()

    async def wait(request: web.BaseRequest) -> web.StreamResponse:
        if len(server.seen) == 2:
            full.set()
        await answered.wait()
        return await Answer()(request)

    full = asyncio.Event()
    server = await serve(wait)
    cluster = await connect(a_config(server.url), connections=2)

    asking = [asyncio.create_task(cluster.get(POD, KEY)) for _ in range(5)]
    await full.wait()
    assert len(server.seen) == 2
    answered.set()
    await asyncio.gather(*asking)
    assert len(server.seen) == 5
