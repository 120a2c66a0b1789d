"""The aiohttp session: connections, TCP keep-alive, and messages for aiohttp's exceptions. ``client`` decides about
retries."""

import asyncio
import socket
from importlib.metadata import version
from typing import NamedTuple

import aiohttp
from aiohappyeyeballs import AddrInfoType
from aiohttp import ClientRequest, ClientResponse
from aiohttp.connector import Connection
from yarl import URL

from trainmaster.kube.call import JSON
from trainmaster.kube.config import Config
from trainmaster.kube.proxy import split_credentials

# HTTP/1.1 has one request per connection at a time, and about twenty connections are for watches. More connections
# would not make an API server faster, and opening one costs both sides some milliseconds: a burst opens all of them.
CONNECTIONS = 72
# API servers close idle connections after 90 s. Ours are closed earlier, since a write on a connection that is being
# closed has an unknown outcome.
_IDLE_CONNECTION = 30.0

_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_EXCERPT = 256

UNLIMITED = aiohttp.ClientTimeout()
"""The caller sets the time limit."""


class Proxy(NamedTuple):
    url: URL | None
    headers: dict[str, str] | None
    """Headers for the proxy only."""


def proxy_of(config: Config) -> Proxy:
    url, authorization = split_credentials(config.proxy)
    return Proxy(url, {"Proxy-Authorization": authorization} if authorization else None)


def open_session(config: Config, connections: int = CONNECTIONS) -> aiohttp.ClientSession:
    """Credentials are not among the session's default headers: aiohttp would send those to the proxy, too."""
    headers = {
        "Accept": JSON,
        "Accept-Encoding": "identity",
        "User-Agent": f"trainmaster/{version('trainmaster')}",
    }
    proxy = proxy_of(config)
    if proxy.headers and config.server.startswith("http:"):
        headers |= proxy.headers  # without a tunnel the proxy reads the headers of the request
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections, keepalive_timeout=_IDLE_CONNECTION, socket_factory=_open_socket
        ),
        headers=headers,
        timeout=UNLIMITED,
        cookie_jar=aiohttp.DummyCookieJar(),
        request_class=_ApiRequest,
        middlewares=(_send_once,),
        proxy=proxy.url,
    )


def explain(error: BaseException, timeout: float) -> str:
    """Why there is no answer. aiohttp's text of response errors is not used: it contains the request headers."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "") or "verification failed"
            return f"the server's certificate is not trusted: {why}; check its certificate-authority"
        case aiohttp.ClientConnectorError():
            proxy = "proxy " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
            return f"cannot connect to {proxy}{error.host}:{error.port}: {error.strerror or error.os_error}"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered {error.status} {error.message}"
        case aiohttp.ClientResponseError():
            return f"the answer is not HTTP: {error.message[:_EXCERPT]!r}"
        case aiohttp.ClientPayloadError():
            return "the connection was cut in the middle of the answer"
        case TimeoutError():
            return f"no answer within {timeout:g} s"
        case _:
            return f"{error}" or type(error).__name__


def safe_cause(error: Exception) -> Exception | None:
    """The exception to chain as the cause; None if it contains our headers."""
    return None if isinstance(error, aiohttp.ClientResponseError) else error


async def read_body(response: ClientResponse) -> bytes:
    """The whole body. If the caller is cancelled, the connection is dropped."""
    transport = _transport_of(response)
    try:
        return await response.read()
    except BaseException:
        # After the end of the answer another request may use the connection.
        if not response.content.is_eof():
            abort(transport)
        raise


def drop(response: ClientResponse) -> None:
    """Drops the connection of an answer that is not read completely."""
    abort(_transport_of(response))
    response.close()


def abort(transport: asyncio.Transport | None) -> None:
    """Closes a connection at once. A normal close over TLS would send close_notify and wait up to 30 s for the
    server, which may not answer."""
    if transport is not None:
        transport.abort()


def closed_early(error: aiohttp.ClientConnectionError) -> aiohttp.ClientConnectionError:
    """The error for a connection that broke before the answer."""
    why = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
    return aiohttp.ClientConnectionError(f"the connection was closed before an answer{why}")


def _transport_of(response: ClientResponse) -> asyncio.Transport | None:
    connection = response.connection
    return connection.transport if connection is not None else None


def _open_socket(info: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = info
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        # Not every system supports all of them.
        if (option := getattr(socket, name, None)) is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened


class _ApiRequest(ClientRequest):
    """Keeps the connection that it was sent over."""

    transport: asyncio.Transport | None = None

    async def send(self, conn: Connection) -> ClientResponse:
        self.transport = conn.transport
        return await super().send(conn)


async def _send_once(request: ClientRequest, handler: aiohttp.ClientHandlerType) -> ClientResponse:
    """Prevents aiohttp's own retry of GET, PUT and DELETE after a broken connection: ``client`` decides about retries,
    within the budget. aiohttp does not retry after other exceptions."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise closed_early(error) from error
    except BaseException:
        if isinstance(request, _ApiRequest):
            abort(request.transport)
        raise
