"""Loopback servers for the tests of kube: one that answers from a script, one that is only a socket, a proxy."""

import asyncio
import gc
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

POD_JSON = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"u-1","resourceVersion":"7"}}'


class Seen(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    code: int = 200
    body: bytes = POD_JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {"Content-Type": "application/json", **self.headers}
        return web.Response(status=self.code, body=self.body, headers=headers)


class ApiServer:
    """Gives its answers in turn, the last one for ever, and remembers what it was asked."""

    def __init__(self, answers: tuple[Handler, ...], context: ssl.SSLContext | None) -> None:
        self.answers = list(answers or (Answer(),))
        self.seen: list[Seen] = []
        self._context = context
        self._runner = web.ServerRunner(web.Server(self._respond), shutdown_timeout=0.001)
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append(Seen(request.method, request.raw_path, dict(request.headers), await request.read()))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


class RawServer:
    """A raw TCP server with a handler of the test; counts its connections."""

    def __init__(self, talk: Talk, context: ssl.SSLContext | None = None) -> None:
        self._talk = talk
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._talk(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()


class Refusing(RawServer):
    """Answers 413 without reading the body and does not close the connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(self._refuse, context)

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
        await asyncio.Event().wait()

    def callers(self) -> list[asyncio.Transport]:
        """The number of open connections."""
        transports = [found for found in gc.get_objects() if isinstance(found, asyncio.Transport)]
        return [t for t in transports if not t.is_closing() and t.get_extra_info("peername")[1] == self.port]


class Proxy(RawServer):
    """An HTTP proxy: every CONNECT leads to one port of this machine; plain requests it answers itself."""

    def __init__(self, target: int, refuse: bool = False) -> None:
        super().__init__(self._serve)
        self.heads: list[str] = []
        self._target = target
        self._refuse = refuse

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self._refuse:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        elif head.startswith("CONNECT "):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await self._tunnel(reader, writer)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(POD_JSON), POD_JSON))
        await writer.drain()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer))
                group.create_task(_pump(far_reader, writer))
        finally:
            far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def status(code: int, reason: str = "", message: str = "", **headers: str) -> Answer:
    """A Kubernetes Status as an API server answers it."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return Answer(code, msgspec.json.encode(body), {name.replace("_", "-"): text for name, text in headers.items()})


async def hang(request: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return await hang(request)


def stream(*chunks: bytes, then: Callable[[], Awaitable[object]] | None = None) -> Handler:
    """A watch: the chunks one by one, then whatever ``then`` waits for, then the end."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then()
        await response.write_eof()
        return response

    return respond
