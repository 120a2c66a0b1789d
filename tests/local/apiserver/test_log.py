"""pods/log: the node's log is streamed to the client, with kube-apiserver's error messages."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from testbed.certificate import Authority, Pair
from trainmaster.local.apiserver.http.status import Refusal
from trainmaster.local.apiserver.kubectl.log import pod_log

Object = dict[str, Any]

TOKEN = "node-token"


class Node:
    """A log endpoint: answers by what a test put in, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.status = 200
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.port = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        response = web.StreamResponse(status=self.status)
        await response.prepare(request)
        while (line := await self.lines.get()) is not None:
            await response.write(line)
        return response

    def says(self, *lines: bytes) -> None:
        for line in (*lines, None):
            self.lines.put_nowait(line)

    @property
    def body(self) -> Object:
        return {
            "status": {
                "addresses": [{"type": "Hostname", "address": "x"}, {"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            }
        }


async def serve(handler: Any, tls: ssl.SSLContext | None, runners: list[web.AppRunner]) -> int:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    runners.append(runner)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    return int(runner.addresses[0][1])


@pytest.fixture
async def runners() -> AsyncIterator[list[web.AppRunner]]:
    found: list[web.AppRunner] = []
    yield found
    for runner in reversed(found):
        await runner.cleanup()


@pytest.fixture
async def node(pair: Pair, runners: list[web.AppRunner]) -> Node:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate, pair.key)
    node = Node()
    node.port = await serve(node.handle, tls, runners)
    return node


class Api:
    """Serves the logs of one pod."""

    def __init__(self, pod: Object, node: Object | None, session: aiohttp.ClientSession) -> None:
        self._pod, self._node, self._session = pod, node, session
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await pod_log(request, self._pod, self._node, self._session, TOKEN)
        except Refusal as refusal:
            return web.json_response(refusal.body, status=refusal.code)

    async def get(self, query: str = "") -> tuple[int, Any]:
        async with self._session.get(f"{self.url}/log?{query}") as response:
            if response.status == 200:
                return response.status, await response.text()
            body = await response.json()
            return response.status, body["message"]


@pytest.fixture
async def session(authority: Authority) -> AsyncIterator[aiohttp.ClientSession]:
    tls = ssl.create_default_context(cafile=str(authority.ca_file))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        yield session


def a_pod(*containers: str, status: Object | None = None, **spec: Any) -> Object:
    names = containers or ("c",)
    return {
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"containers": [{"name": name} for name in names], "nodeName": "here", **spec},
        "status": status or {},
    }


@pytest.fixture
def serving(session: aiohttp.ClientSession, runners: list[web.AppRunner]) -> Any:
    async def start(pod: Object, node: Object | None) -> Api:
        api = Api(pod, node, session)
        api.url = f"http://127.0.0.1:{await serve(api.handle, None, runners)}"
        return api

    return start


async def test_a_log_is_streamed_from_the_node(node: Node, serving: Any) -> None:
    api = await serving(a_pod(), node.body)
    node.says(b"one\n", b"two\n")

    assert await api.get() == (200, "one\ntwo\n")
    assert node.asked[0].path == "/containerLogs/ns/p/c"
    assert node.asked[0].headers["Authorization"] == f"Bearer {TOKEN}"


async def test_options_reach_the_node(node: Node, serving: Any) -> None:
    status = {"containerStatuses": [{"name": "c", "state": {}, "lastState": {"terminated": {"exitCode": 1}}}]}
    api = await serving(a_pod(status=status), node.body)
    node.says()

    await api.get("follow=true&previous=1&timestamps=false&tailLines=5&limitBytes=9&sinceSeconds=3&container=c&odd=1")

    wanted = {"follow": "true", "previous": "true", "tailLines": "5", "limitBytes": "9", "sinceSeconds": "3"}
    assert dict(node.asked[0].query) == wanted


async def test_a_followed_log_arrives_line_by_line(node: Node, serving: Any, session: aiohttp.ClientSession) -> None:
    api = await serving(a_pod(), node.body)

    async with session.get(f"{api.url}/log?follow=true") as response:
        node.lines.put_nowait(b"one\n")
        assert await response.content.readline() == b"one\n"
        node.lines.put_nowait(b"two\n")
        assert await response.content.readline() == b"two\n"
        node.lines.put_nowait(None)
        assert await response.content.read() == b""


async def test_a_node_that_dies_ends_the_log(node: Node, serving: Any, session: aiohttp.ClientSession) -> None:
    api = await serving(a_pod(), node.body)

    async with session.get(f"{api.url}/log?follow=true") as response:
        node.lines.put_nowait(b"one\n")
        assert await response.content.readline() == b"one\n"
        transport = node.asked[0].transport
        assert transport is not None
        transport.abort()

        assert await response.content.read() == b""


@pytest.mark.parametrize(
    ("pod", "query", "says"),
    [
        pytest.param(
            a_pod("a", "b"), "", "a container name must be specified for pod p, choose one of: [a b]", id="which"
        ),
        pytest.param(
            a_pod("a", "b", initContainers=[{"name": "i"}]),
            "",
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]",
            id="which-or-init",
        ),
        pytest.param(a_pod(), "container=x", "container x is not valid for pod p", id="no-such-container"),
        pytest.param(a_pod(nodeName=""), "", "pod p does not have a host assigned", id="no-node"),
        pytest.param(
            a_pod(status={"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}]}),
            "",
            'container "c" in pod "p" is waiting to start: ContainerCreating',
            id="waiting",
        ),
        pytest.param(
            a_pod(
                status={
                    "containerStatuses": [
                        {"name": "c", "state": {"waiting": {"reason": "CreateError", "message": "no command"}}}
                    ]
                }
            ),
            "",
            'container "c" in pod "p" is waiting to start: no command',
            id="waiting-with-a-message",
        ),
        pytest.param(
            a_pod(status={"containerStatuses": [{"name": "c", "state": {"running": {}}, "lastState": {}}]}),
            "previous=true",
            'previous terminated container "c" in pod "p" not found',
            id="no-previous",
        ),
        pytest.param(a_pod(), "tailLines=x", 'strconv.ParseInt: parsing "x": invalid syntax', id="no-number"),
        pytest.param(
            a_pod(), "sinceTime=x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": it is not a time', id="no-time"
        ),
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused(
    pod: Object, query: str, says: str, node: Node, serving: Any
) -> None:
    api = await serving(pod, node.body)

    assert await api.get(query) == (400, says)
    assert node.asked == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=1&sinceTime=2026-11-15T12:00:00Z",
            "sinceTime: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
    ],
)
async def test_bad_numbers_are_refused(query: str, says: str, node: Node, serving: Any) -> None:
    api = await serving(a_pod(), node.body)

    code, message = await api.get(query)

    assert code == 422
    assert says in message


async def test_a_container_between_two_attempts_has_the_log_of_the_last(node: Node, serving: Any) -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {"containerStatuses": [{"name": "c", "state": waiting, "lastState": {"terminated": {"exitCode": 1}}}]}
    api = await serving(a_pod(status=status), node.body)
    node.says(b"why\n")

    assert await api.get() == (200, "why\n")


@pytest.mark.parametrize(
    ("status", "text", "code", "says"),
    [
        (404, b"no such log", 404, "no such log"),
        (400, b'{"message": "wait a moment"}', 400, "wait a moment"),
        (503, b"", 500, "the node gave no reason"),
    ],
)
async def test_a_refusal_of_the_node_is_passed_on(
    status: int, text: bytes, code: int, says: str, node: Node, serving: Any
) -> None:
    node.status = status
    node.says(text)
    api = await serving(a_pod(), node.body)

    assert await api.get() == (code, says)


@pytest.mark.parametrize(
    "body", [None, {}, {"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}}]
)
async def test_a_node_without_an_address_is_named(body: Object | None, serving: Any) -> None:
    api = await serving(a_pod(), body)

    code, message = await api.get()

    assert code == 500
    assert "no address or port known for node here" in message


async def test_a_node_that_does_not_answer_is_named(node: Node, serving: Any, runners: list[web.AppRunner]) -> None:
    await runners[0].cleanup()
    api = await serving(a_pod(), node.body)

    code, message = await api.get()

    assert code == 500
    assert f"https://127.0.0.1:{node.port}/containerLogs/ns/p/c" in message
    assert "is the node running?" in message
    assert TOKEN not in message
