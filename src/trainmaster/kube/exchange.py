"""One request and its whole answer, over the connections of the session.

aiohttp's connector has all that is hard: sockets, TLS, tunnels through proxies, keep-alive and the parser of HTTP.
What a session, a request and a response do around it takes twice its time, for every call anew; and an operator sends
thousands of calls that are all alike. Watches are few and long: they go through the session.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import aiohttp
from aiohttp import ClientRequest
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from trainmaster.core.errors import BadConfig
from trainmaster.kube.address import is_gated
from trainmaster.kube.auth import Auth
from trainmaster.kube.call import JSON, METADATA, Call
from trainmaster.kube.config import Config
from trainmaster.kube.transport import UNLIMITED, abort, closed_early, proxy_of


class Answer(NamedTuple):
    status: int
    retry_after: str
    warnings: Sequence[str]
    """Values of ``Warning`` headers."""
    body: bytes


class _Route(NamedTuple):
    """What every call has in common as long as the credential stays the same."""

    request: ClientRequest
    """Never sent: it tells the connector where to, with which TLS, and through which proxy."""
    heads: dict[tuple[str, str], bytes]
    """The headers by the body's content type and the form of the answer."""


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
        """The answer, whatever it says. Who gives up waiting for it drops the connection."""
        route = self._current()
        if self._session.connector is None:
            raise aiohttp.ClientConnectionError("this client is closed")
        connection = await self._session.connector.connect(route.request, traces=[], timeout=UNLIMITED)
        transport = connection.transport
        try:
            if self._gate is not None and call.method != "GET" and is_gated(call.url.raw_path):
                self._gate()  # only now: waiting for a connection may outlive a lease
            answer = await self._converse(connection, self._bytes_of(call, route))
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
            abort(transport)  # a server that refused in the middle of a body says no farewell
        connection.release()
        return answer

    async def _converse(self, connection: Connection, request: bytes) -> Answer:
        protocol = connection.protocol
        if protocol is None or protocol.transport is None:
            raise aiohttp.ServerDisconnectedError
        protocol.set_response_params(read_until_eof=True)
        protocol.transport.write(request)
        while True:
            message, payload = await protocol.read()
            if message.code >= 200:  # else there is more to come
                headers = message.headers
                warnings = headers.getall("Warning", ())
                return Answer(message.code, headers.get("Retry-After", ""), warnings, await payload.read())

    def _bytes_of(self, call: Call, route: _Route) -> bytes:
        # A proxy that does not tunnel reads the request itself: it has to find there whom it is for.
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
            for accept in (JSON, METADATA)
        }
        return _Route(request, heads)


def _head(headers: Sequence[tuple[str, str]], who: str) -> bytes:
    """Header lines up to the empty one; ``who`` gave us what they hold."""
    for name, value in headers:
        if any(character in f"{name}{value}" for character in "\r\n\0"):
            raise BadConfig(
                f"{who}: the header {name} would hold a line break; mend the token or name that it is made of"
            )
    return "".join([*(f"{name}: {value}\r\n" for name, value in headers), "\r\n"]).encode()
