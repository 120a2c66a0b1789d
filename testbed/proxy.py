"""A recording proxy in front of an API server that does what networks and servers do on bad days.

    with FaultProxy(plane) as proxy, OperatorProcess(plane, server=proxy.url):
        proxy.inject(cut_after, method="POST", namespace="a", resource="pods")
        ...
        assert [call.name for call in proxy.writes("a")] == ["job-coordinator"]

Plain HTTP in front; behind it TLS, with the Authorization header of the caller. It runs in a thread of its own, so
that a test which waits for something does not stop it.

A fault is a function of the `Exchange`: it says what becomes of one request. Those for any request are `cut_before`,
`cut_after`, `hang` and `answer(code)`; those for a watch are `watch_cut`, `watch_lag`, `watch_gone` and
`watch_silence`. Everything that no rule is about is passed on as it is, and watches flow line by line.
"""

import asyncio
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import aiohttp
from aiohttp import web
from yarl import URL

from testbed.answer import Object

if TYPE_CHECKING:
    from testbed.plane import ControlPlane

_ASKED = ("Authorization", "Content-Type", "Accept", "User-Agent")
_ANSWERED = ("Content-Type", "Retry-After", "Warning")
_REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}

# Seconds that closed TLS connections get to be gone; aiohttp cannot be asked when they are.
_GOODBYE = 0.25

# What became of a call that got no answer from the server; else the outcome is the code that the caller got.
CUT = "cut"
GAVE_UP = "gave up"
OPEN = "open"


@dataclass
class Call:
    """One request. Times are of time.monotonic, which all processes of a machine share."""

    method: str
    path: str
    query: Mapping[str, str]
    user: str
    body: bytes
    resource: str
    """The plural, as in the path."""
    namespace: str
    name: str
    """From the path, or of the object that is to be created."""
    subresource: str
    at: float
    forwarded: float | None = None
    """When it was sent on to the server; None when a fault kept it back."""
    code: int = 0
    """What the server answered, even if the caller never heard of it; 0 when it did not."""
    answered: bytes = b""
    """The server's answer; kept for writes."""
    outcome: str = OPEN
    ended: float | None = None
    fault: "Rule | None" = None

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("true", "1")

    @property
    def is_write(self) -> bool:
        return self.method not in ("GET", "HEAD")

    @property
    def is_done(self) -> bool:
        """The server did what it was asked to do."""
        return 200 <= self.code < 300

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.name, self.subresource) if part)
        held = "" if self.forwarded else ", not forwarded"
        return f"{self.method} {self.resource} {where} -> {self.code or '-'}, {self.outcome}{held}"


class Exchange:
    """One request on its way, for a fault to decide about. A fault that returns lets the rest go as usual."""

    def __init__(self, proxy: "FaultProxy", request: web.BaseRequest, call: Call) -> None:
        self.call = call
        self._proxy = proxy
        self._request = request
        self._response: aiohttp.ClientResponse | None = None

    async def forward(self) -> None:
        """Send it to the server and take in what it answers; of a watch only the head."""
        if self._response is not None:
            return
        await self._proxy.thawed()
        self.call.forwarded = time.monotonic()
        try:
            self._response = await self._proxy.send(self._request, self.call)
            self.call.code = self._response.status
            if not self.is_stream:
                answered = await self._response.read()
                self.call.answered = answered if self.call.is_write else b""
        except (aiohttp.ClientError, OSError):
            await self.cut()

    async def answer(self, code: int, body: bytes, headers: Mapping[str, str]) -> web.StreamResponse:
        """Give the caller a whole answer."""
        await self._proxy.thawed()
        self._end(str(code))
        return web.Response(status=code, body=body, headers=dict(headers))

    def abort(self) -> None:
        """Reset the connection, whatever is going on; the handler is cancelled with it."""
        self._end(CUT)
        if self._request.transport is not None:
            self._request.transport.abort()

    async def cut(self) -> None:
        """Reset the connection, as the last deed of a handler: does not return."""
        self.abort()
        await hang(self)

    async def relay(self) -> web.StreamResponse:
        """The usual way: the server's answer to the caller."""
        await self.forward()
        response = self._response
        assert response is not None
        headers = {name: response.headers[name] for name in _ANSWERED if name in response.headers}
        if not self.is_stream:
            return await self.answer(response.status, await response.read(), headers)
        return await self.stream(self.lines())

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of a watch as the server sends them; a server that breaks off cuts the caller off, too."""
        await self.forward()
        assert self._response is not None
        rest = b""
        try:
            async for chunk in self._response.content.iter_any():
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield line + b"\n"
        except (aiohttp.ClientError, OSError):
            await self.cut()

    async def stream(self, lines: AsyncIterator[bytes]) -> web.StreamResponse:
        """Answer a watch with these lines."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(self._request)
        try:
            async for line in lines:
                await self._proxy.thawed()
                await response.write(line)
            await response.write_eof()
        except ConnectionError:  # the caller went away, and we heard of it by writing
            self._end(GAVE_UP)
        self._end("200")
        return response

    @property
    def is_stream(self) -> bool:
        return self.call.is_watch and self._response is not None and self._response.status == 200

    def close(self) -> None:
        """Nobody waits any more, or all is said."""
        self._end(GAVE_UP)
        if self._response is None:
            return
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()  # not closed: saying goodbye in TLS takes as long as the server likes
        self._response.close()

    def _end(self, outcome: str) -> None:
        if self.call.ended is None:
            self.call.outcome = outcome
            self.call.ended = time.monotonic()


Fault = Callable[[Exchange], Awaitable[web.StreamResponse | None]]


async def cut_before(exchange: Exchange) -> None:
    """The connection breaks before the server gets the request."""
    await exchange.cut()


async def cut_after(exchange: Exchange) -> None:
    """The server did it; its answer is lost."""
    await exchange.forward()
    await exchange.cut()


async def hang(_: Exchange) -> None:
    """No answer, until the caller gives up."""
    await asyncio.Event().wait()


def answer(code: int, *, reason: str = "", retry_after: int | None = None) -> Fault:
    """The server refuses with a Status, and has not looked at the request."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        headers = {"Content-Type": "application/json"}
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
        return await exchange.answer(code, json.dumps(status_body(code, reason)).encode(), headers)

    return fault


def watch_cut(*, after: float) -> Fault:
    """A watch breaks after some seconds."""

    async def fault(exchange: Exchange) -> None:
        asyncio.get_running_loop().call_later(after, exchange.abort)

    return fault


def watch_lag(seconds: float) -> Fault:
    """A watch tells everything, in order, and late."""

    async def fault(exchange: Exchange) -> web.StreamResponse:
        late: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()

        async def read() -> None:
            async for line in exchange.lines():
                late.put_nowait((time.monotonic() + seconds, line))
            late.put_nowait(None)

        async def told() -> AsyncIterator[bytes]:
            while (entry := await late.get()) is not None:
                due, line = entry
                await asyncio.sleep(due - time.monotonic())
                yield line

        await exchange.forward()
        reading = asyncio.ensure_future(read())
        try:
            return await exchange.stream(told())
        finally:
            reading.cancel()

    return fault


async def watch_gone(exchange: Exchange) -> web.StreamResponse:
    """A watch begins with 200 and its first line says 410: how API servers tell that a version is too old."""

    async def lines() -> AsyncIterator[bytes]:
        yield json.dumps({"type": "ERROR", "object": status_body(410)}).encode() + b"\n"

    return await exchange.stream(lines())


async def watch_silence(exchange: Exchange) -> web.StreamResponse:
    """A watch begins and then says nothing: the other end is gone and nobody told us."""

    async def lines() -> AsyncIterator[bytes]:
        await hang(exchange)
        yield b""  # never; makes this a generator

    return await exchange.stream(lines())


def status_body(code: int, reason: str = "") -> Object:
    """What an API server says when it refuses."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"injected by the test bed: {code}",
        "reason": reason or _REASONS.get(code, ""),
        "code": code,
    }


@dataclass(eq=False)
class Rule:
    """Which calls a fault is for: from the `first` call that matches on, `count` of them, None for all."""

    fault: Fault
    method: str | None = None
    namespace: str | None = None
    resource: str | None = None
    name: str | None = None
    subresource: str | None = None
    watch: bool = False
    first: int = 1
    count: int | None = 1
    matched: int = 0
    hit: list[Call] = field(default_factory=list)
    """The calls that it was applied to."""

    def __str__(self) -> str:
        words = (self.method, self.namespace, self.resource, self.name, self.subresource)
        return f"{' '.join(word or '*' for word in words)} from {self.first} on"

    def takes(self, call: Call) -> bool:
        """Whether this call is one for the fault; counts the calls that match."""
        if call.is_watch != self.watch or not self._matches(call):
            return False
        self.matched += 1
        return self.matched >= self.first and (self.count is None or self.matched < self.first + self.count)

    def _matches(self, call: Call) -> bool:
        asked = (self.method, self.namespace, self.resource, self.name, self.subresource)
        found = (call.method, call.namespace, call.resource, call.name, call.subresource)
        return all(a is None or a == f for a, f in zip(asked, found, strict=True))


class FaultProxy:
    """One proxy; `calls` is its record, in the order of arrival."""

    def __init__(self, plane: "ControlPlane") -> None:
        self._upstream = plane.url
        self._tls = ssl.create_default_context(cafile=plane.ca_file)
        self._users = {f"Bearer {plane.token(user)}": user for user in ("admin", "operator")}
        self._rules: tuple[Rule, ...] = ()
        self._watches: set[Exchange] = set()
        self.calls: list[Call] = []

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Listen; `url` answers when this returns."""
        is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(is_listening,), name="fault-proxy", daemon=True)
        self._thread.start()
        is_listening.wait()
        return self

    def stop(self) -> None:
        """Cut every connection and end."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens; plain HTTP."""
        return f"http://127.0.0.1:{self._port}"

    # -- faults --------------------------------------------------------------------------------------------

    def inject(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        namespace: str | None = None,
        resource: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        watch: bool = False,
        first: int = 1,
        count: int | None = 1,
    ) -> Rule:
        """From now on this fault meets the calls that match; the first rule that takes a call decides."""
        rule = Rule(fault, method, namespace, resource, name, subresource, watch, first, count)
        self._rules = (*self._rules, rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """No further call meets it; watches that did go on as they are."""
        self._rules = tuple(other for other in self._rules if other is not rule)

    def cut_watches(self, resource: str | None = None) -> int:
        """Reset the connections of the watches that are open now; answers how many there were."""

        async def cut() -> int:
            cutting = [watch for watch in self._watches if resource in (None, watch.call.resource)]
            for watch in cutting:
                watch.abort()
            return len(cutting)

        return asyncio.run_coroutine_threadsafe(cut(), self._loop).result()

    def freeze(self) -> None:
        """Nothing passes any more, in neither direction, and no connection breaks."""
        asyncio.run_coroutine_threadsafe(self._set_frozen(is_frozen=True), self._loop).result()

    def thaw(self) -> None:
        """What waited passes now, unless its caller has given up."""
        asyncio.run_coroutine_threadsafe(self._set_frozen(is_frozen=False), self._loop).result()

    # -- the record ----------------------------------------------------------------------------------------

    def writes(self, namespace: str | None = None, *, user: str | None = None) -> list[Call]:
        """Creates, patches and deletes so far, without events and leases."""
        return [
            call
            for call in list(self.calls)
            if call.is_write
            and call.resource not in ("events", "leases")
            and namespace in (None, call.namespace)
            and user in (None, call.user)
        ]

    # -- for Exchange --------------------------------------------------------------------------------------

    async def thawed(self) -> None:
        """Wait while nothing passes."""
        await self._thawed.wait()

    async def send(self, request: web.BaseRequest, call: Call) -> aiohttp.ClientResponse:
        """The same request to the server."""
        headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
        headers["Accept-Encoding"] = "identity"
        url = URL(f"{self._upstream}{request.raw_path}", encoded=True)
        return await self._session.request(call.method, url, data=call.body or None, headers=headers)

    # -- inside --------------------------------------------------------------------------------------------

    def _run(self, is_listening: threading.Event) -> None:
        asyncio.run(self._serve(is_listening))

    async def _serve(self, is_listening: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped, self._thawed = asyncio.Event(), asyncio.Event()
        self._thawed.set()
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        server = web.Server(self._respond, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(), auto_decompress=False
        ) as self._session:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._port = runner.addresses[0][1]
            is_listening.set()
            await self._stopped.wait()
            await runner.cleanup()
        await asyncio.sleep(_GOODBYE)

    async def _set_frozen(self, *, is_frozen: bool) -> None:
        self._thawed.clear() if is_frozen else self._thawed.set()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        call = self._call_of(request, await request.read())
        self.calls.append(call)
        if taking := [rule for rule in self._rules if rule.takes(call)]:  # each of them counts the call
            call.fault = taking[0]
            call.fault.hit.append(call)
        exchange = Exchange(self, request, call)
        if call.is_watch:
            self._watches.add(exchange)
        try:
            response = await call.fault.fault(exchange) if call.fault else None
            return response or await exchange.relay()
        finally:
            exchange.close()
            self._watches.discard(exchange)

    def _call_of(self, request: web.BaseRequest, body: bytes) -> Call:
        resource, namespace, name, subresource = _parts(request.path)
        if request.method == "POST" and not name:
            name = json.loads(body)["metadata"].get("name", "")
        user = self._users.get(request.headers.get("Authorization", ""), "somebody")
        return Call(
            method=request.method,
            path=request.path,
            query=dict(request.query),
            user=user,
            body=body,
            resource=resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            at=time.monotonic(),
        )


def _parts(path: str) -> tuple[str, str, str, str]:
    """Resource, namespace, name and subresource of /api/v1/… or /apis/group/version/…. A namespace is in itself, as for
    RBAC."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 1 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:] or parts
    resource, name, subresource = (*parts, "", "", "")[:3]
    return resource, namespace, name, subresource
