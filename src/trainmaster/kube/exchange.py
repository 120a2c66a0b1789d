"""One request and its whole answer, over the connections of the aiohttp session.

aiohttp's connector provides sockets, TLS, tunnels through proxies, keep-alive and the HTTP parser. Its session, request
and response objects cost twice as much time again for every call, and an operator sends thousands of similar calls, so
they are bypassed here. Watches are few and long: they use the session.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import aiohttp
from aiohttp import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from trainmaster.core.errors import BadConfig, TooLarge
from trainmaster.kube.address import is_gated
from trainmaster.kube.auth import Auth
from trainmaster.kube.call import JSON, METADATA, METADATA_LIST, Call
from trainmaster.kube.config import Config
from trainmaster.kube.transport import UNLIMITED, abort, closed_early, proxy_of


class Answer(NamedTuple):
    status: int
    retry_after: str
    warnings: Sequence[str]
    """Values of ``Warning`` headers."""
    date: str
    """The ``Date`` header, or empty."""
    body: bytes


class _Route(NamedTuple):
    """What all calls have in common until the credential changes."""

    request: ClientRequest
    """Never sent: it carries host, TLS context and proxy to the connector."""
    heads: dict[tuple[str, str], bytes]
    """Header bytes, by the body's content type and the accepted form of the answer."""


class Exchange:
    def __init__(
        self, session: aiohttp.ClientSession, config: Config, auth: Auth, gate: Callable[[], None] | None
    ) -> None:
        self._session = session
        self._config = config
        self._auth = auth
        self._gate = gate
        self._proxy = proxy_of(config)
        self._generation = -1

    async def ask(self, call: Call) -> Answer:
        """The answer, with any status. If the caller is cancelled, the connection is dropped."""
        route = self._current()
        if self._session.connector is None:
            raise aiohttp.ClientConnectionError("this client is closed")
        connection = await self._session.connector.connect(route.request, traces=[], timeout=UNLIMITED)
        transport = connection.transport
        try:
            if self._gate is not None and call.method != "GET" and is_gated(call.url.raw_path):
                self._gate()  # only now: the lease may expire while waiting for a connection
            answer = await self._send(connection, self._bytes_of(call, route), call.max_bytes)
        except HttpProcessingError as error:
            abort(transport)
            connection.close()
            raise aiohttp.ClientResponseError(route.request.request_info, (), message=error.message) from None
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            connection.close()
            raise closed_early(error) from error
        except BaseException:
            abort(transport)
            connection.close()
            raise
        if connection.protocol is not None and connection.protocol.should_close:
            abort(transport)  # a server that refused before it read the body may not close the connection
        connection.release()
        return answer

    async def _send(self, connection: Connection, request: bytes, max_bytes: int) -> Answer:
        protocol = connection.protocol
        if protocol is None or protocol.transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(read_until_eof=True)
        protocol.transport.write(request)
        while True:
            message, payload = await protocol.read()
            if message.code >= 200:  # 1xx: the final answer follows
                headers = message.headers
                warnings = headers.getall("Warning", ())
                retry_after, date = headers.get("Retry-After", ""), headers.get("Date", "")
                return Answer(message.code, retry_after, warnings, date, await _read(payload, max_bytes))

    def _bytes_of(self, call: Call, route: _Route) -> bytes:
        # A proxy without a tunnel reads the request itself and needs the absolute URL.
        is_read_on_the_way = self._proxy.url is not None and call.url.scheme == "http"
        target = str(call.url) if is_read_on_the_way else call.url.raw_path_qs
        body = call.body or b""
        length = f"Content-Length: {len(body)}\r\n" if call.content_type else ""
        head = route.heads[call.content_type, call.accept]
        return f"{call.method} {target} HTTP/1.1\r\n{length}".encode() + head + body

    def _current(self) -> _Route:
        if self._generation != self._auth.generation:
            self._route, self._generation = self._new_route(), self._auth.generation
        return self._route

    def _new_route(self) -> _Route:
        request = ClientRequest(
            "GET",
            URL(self._config.server),
            loop=asyncio.get_running_loop(),
            ssl=self._auth.ssl,
            server_hostname=self._config.tls.server_name or None,
            proxy=self._proxy.url,
            proxy_headers=self._proxy.headers,
        )
        same = {"Host": request.headers["Host"], **self._session.headers}
        heads = {
            (kind, accept): _head([*(same | {"Accept": accept}).items(), *own.items()], self._config.source)
            for kind, own in self._auth.headers.items()
            for accept in (JSON, METADATA, METADATA_LIST)
        }
        return _Route(request, heads)


async def _read(payload: aiohttp.StreamReader, max_bytes: int) -> bytes:
    if not max_bytes:
        return await payload.read()
    chunks: list[bytes] = []
    size = 0
    while chunk := await payload.readany():
        size += len(chunk)
        if size > max_bytes:
            raise TooLarge(f"the answer has more than {max_bytes} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _head(headers: Sequence[tuple[str, str]], source: str) -> bytes:
    """Header lines including the empty one; ``source`` names their source in errors."""
    for name, value in headers:
        if any(character in f"{name}{value}" for character in "\r\n\0"):
            raise BadConfig(f"{source}: the header {name} would contain a line break; correct the token or name in it")
    return "".join([*(f"{name}: {value}\r\n" for name, value in headers), "\r\n"]).encode()
