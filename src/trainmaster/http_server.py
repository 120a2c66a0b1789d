"""Starts every HTTP server of trainmaster, with limits that hold before a request is read.

The number of open connections is limited, and half of them may be without a request. A new connection then closes one
of these: the oldest from the address that has most of them. So a kubelet is answered while another machine holds or
opens as many connections as it can. At the limit new connections are closed at once, and so are those of an address
that has too many of them. A connection that is idle, or sends its headers slowly, ends after the keep-alive time. Of a
body that no handler reads only a little is received.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import structlog
from aiohttp import web
from aiohttp.log import server_logger
from aiohttp.web_protocol import RequestHandler

from trainmaster.core.errors import BadConfig

KEEP_ALIVE = 15.0
"""Seconds. A server whose clients send writes on connections that they keep must wait longer than these clients do:
a write on a connection that is being closed has an unknown outcome."""
HANDSHAKE_TIMEOUT = 5.0
BACKLOG = 128
RECEIVE_BUFFER = 32 * 1024
"""Bytes of a connection in the kernel, which doubles them. Without a limit there are megabytes, and 256 KiB of them are
read at once, whether a handler asks for them or not."""
LINGERING = 2.0
"""Seconds in which the rest of a body is received and dropped after it was answered: a client that is still sending
would not see the answer otherwise."""
DESCRIPTOR_PAUSE = 1.0
"""Seconds without new connections after the process has run out of file descriptors."""

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve_http(
    app: web.Application,
    address: str,
    *,
    connections: int,
    per_address: int | None = None,
    tls: ssl.SSLContext | None = None,
    hint: str = "choose another address",
    keep_alive: float = KEEP_ALIVE,
    shutdown_timeout: float = 2.0,
    handler_cancellation: bool = False,
    logger: logging.Logger = server_logger,
    listeners: Sequence[socket.socket] = (),
) -> AsyncIterator[int]:
    """Serves while the block runs; yields the port. ``address`` is ``host:port``, or ``:port`` for every interface;
    ``listeners`` are further sockets, of ``open_listener``, which are closed at the end.
    At most ``connections`` are open, including those that are in their TLS handshake, ``per_address`` of one client.
    ``hint`` says what to do when the address is taken."""
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=shutdown_timeout,
        keepalive_timeout=keep_alive,
        handler_cancellation=handler_cancellation,
        logger=logger,
        lingering_time=LINGERING,
    )
    in_hand = _InHand()
    app.middlewares.insert(0, in_hand.count)
    await runner.setup()
    assert runner.server is not None  # noqa: S101 set up above
    acceptor = _Acceptor(runner.server, in_hand, _Limits(connections, per_address or connections), tls)
    try:
        own = await _listen(address, hint)
        async with _accepting(acceptor, [*own, *listeners]):
            yield int(own[0].getsockname()[1])
    finally:
        # Over TLS a normal close waits up to 30 seconds for the client.
        left = [each.transport for each in runner.server.connections if tls and each.transport]
        await runner.cleanup()
        for transport in left:
            transport.abort()
        await asyncio.sleep(0)  # a transport closes its socket in the next round of the loop


def split_address(address: str) -> tuple[str | None, int]:
    """Host and port; no host means every interface."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise BadConfig(f"bad address {address!r}: use host:port, :port, or 0 to switch it off")
    return host.strip("[]") or None, int(port)


@asynccontextmanager
async def _accepting(acceptor: "_Acceptor", listeners: Sequence[socket.socket]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(acceptor.run(listener)) for listener in listeners]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await acceptor.close()
        for listener in listeners:
            listener.close()


async def _listen(address: str, hint: str) -> list[socket.socket]:
    """One socket for each address of the host."""
    host, port = split_address(address)
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, where in await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            if (listener := open_listener(family, where)) is not None:
                listeners.append(listener)
    except OSError as error:
        for listener in listeners:
            listener.close()
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise BadConfig(f"cannot listen on {address}: {why}; {hint}") from error
    return listeners


def open_listener(family: int, where: Any) -> socket.socket | None:
    """A socket that listens at this address of the family; None if this machine does not have the family: many have no
    IPv6. Connections wait until it is served."""
    if (opened := _socket(family)) is None:
        return None
    try:
        opened.bind(where)
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def _socket(family: int) -> socket.socket | None:
    try:
        opened = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)  # accepted sockets inherit it
    if family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return opened


class _InHand:
    """Connections whose request is being handled."""

    def __init__(self) -> None:
        self._protocols: set[RequestHandler] = set()

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._protocols.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._protocols.discard(request.protocol)

    def __contains__(self, connection: RequestHandler) -> bool:
        return connection in self._protocols


class _Limits(NamedTuple):
    """Of open connections: in all, and of one address."""

    connections: int
    per_address: int


class _Acceptor:
    """Gives new connections to aiohttp, within the limits."""

    def __init__(self, server: web.Server, in_hand: _InHand, limits: _Limits, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._in_hand = in_hand
        self._limits = limits
        self._tls = tls
        self._handshakes: dict[asyncio.Task[None], str] = {}
        """With the addresses of the clients, the oldest first."""
        self._opened: dict[int, str] = {}
        """Addresses by the id of a connection: the object itself would keep the buffers of one that has ended."""

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, (address, *_) = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno not in (errno.ECONNABORTED, errno.EINTR):
                    log.warning("cannot accept connections", because=os.strerror(error.errno or 0))
                    await asyncio.sleep(DESCRIPTOR_PAUSE)
            else:
                self._accept(connection, address)
            # One connection in each round of the loop: a flood of them must not delay other work.
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Ends the handshakes. Open connections belong to aiohttp."""
        await asyncio.sleep(0)  # a task that has not begun would not close its socket
        if pending := list(self._handshakes):
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)

    def _accept(self, connection: socket.socket, address: str) -> None:
        self._forget_ended()
        self._close_one()
        if len(self._server.connections) + len(self._handshakes) >= self._limits.connections or self._has_many(address):
            connection.close()
            return
        task = asyncio.create_task(self._shake_hands(connection, address))
        self._handshakes[task] = address
        task.add_done_callback(self._handshakes.pop)

    def _forget_ended(self) -> None:
        alive = {id(each) for each in self._server.connections}
        self._opened = {each: address for each, address in self._opened.items() if each in alive}

    def _has_many(self, address: str) -> bool:
        of_address = [each for each in (*self._opened.values(), *self._handshakes.values()) if each == address]
        return len(of_address) >= self._limits.per_address

    def _close_one(self) -> None:
        idle: list[tuple[RequestHandler | asyncio.Task[None], str]] = [
            *(
                (each, self._opened[id(each)])
                for each in self._server.connections
                if id(each) in self._opened and each not in self._in_hand
            ),
            *self._handshakes.items(),
        ]
        if not idle or len(idle) < self._limits.connections // 2:
            return
        most, _ = Counter(address for _, address in idle).most_common(1)[0]
        oldest = next(each for each, address in idle if address == most)
        if isinstance(oldest, asyncio.Task):
            oldest.cancel()
        else:
            del self._opened[id(oldest)]
            oldest.force_close()

    async def _shake_hands(self, connection: socket.socket, address: str) -> None:
        timeout = HANDSHAKE_TIMEOUT if self._tls else None
        try:
            transport, opened = await asyncio.get_running_loop().connect_accepted_socket(
                self._server, connection, ssl=self._tls, ssl_handshake_timeout=timeout
            )
            self._opened[id(opened)] = address
            if self._tls is not None:
                # Otherwise 256 KiB are read ahead. Only transports of TLS have it, which typeshed does not know.
                transport.set_read_buffer_limits(RECEIVE_BUFFER)  # type: ignore[attr-defined]
        except OSError:
            connection.close()  # the client has gone, or does not speak TLS
