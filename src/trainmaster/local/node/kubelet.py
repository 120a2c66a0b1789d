"""The node's HTTPS endpoint on loopback, for clients with the token or a certificate: logs of containers, commands in
them, and what they use."""

import hmac
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import Key
from trainmaster.http_server import serve_http
from trainmaster.local.node.container import Container
from trainmaster.local.node.log import LogOptions, read_log, since_of
from trainmaster.local.node.pod import LOOPBACK
from trainmaster.local.node.remote_command import options_of, serve_session

CONNECTIONS = 256
"""One for each follower of a log, and for each command."""

FindContainer = Callable[[Key, str], Container | None]
Summarize = Callable[[], Awaitable[dict[str, Any]]]


class KubeletOptions(msgspec.Struct, frozen=True, kw_only=True):
    certificate: Path
    key: Path
    token: str
    client_ca: Path | None
    client_name: str


@asynccontextmanager
async def serve_kubelet(options: KubeletOptions, find: FindContainer, summarize: Summarize) -> AsyncIterator[int]:
    """Serves while the block runs; yields the port."""
    app = web.Application(middlewares=[_authenticated(options)])
    app.router.add_get("/healthz", _alive)
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", partial(_logs, find))
    app.router.add_get("/exec/{namespace}/{pod}/{container}", partial(_exec, find))
    app.router.add_get("/stats/summary", partial(_summary, summarize))
    async with serve_http(
        app,
        f"{LOOPBACK}:0",
        connections=CONNECTIONS,
        tls=_tls(options),
        shutdown_timeout=1.0,
        handler_cancellation=True,  # a command whose client is gone ends
    ) as port:
        yield port


def _tls(options: KubeletOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(options.certificate, options.key)
        if options.client_ca is not None:
            context.load_verify_locations(options.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError) as error:
        raise BadConfig(f"cannot use the certificates of the log endpoint: {error}") from error
    return context


def _authenticated(options: KubeletOptions) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        name = _certified_name(request)
        if name not in ("", options.client_name):
            return web.Response(status=403, text=f"Forbidden: {name} is not {options.client_name}")
        if not name and not _has_token(request, options.token):
            return web.Response(status=401, text="Unauthorized")
        return await handler(request)

    return check


def _certified_name(request: web.Request) -> str:
    """The common name in the client's certificate, which TLS has verified against the client CA; empty without one."""
    transport = request.transport
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    subject = (tls.getpeercert() or {}).get("subject", ()) if tls is not None else ()
    return next((value for part in subject for name, value in part if name == "commonName"), "")


def _has_token(request: web.Request, token: str) -> bool:
    header = request.headers.get("Authorization", "")
    return bool(token) and hmac.compare_digest(header.encode(), f"Bearer {token}".encode())


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _summary(summarize: Summarize, _: web.Request) -> web.Response:
    try:
        return web.json_response(await summarize())
    except OSError as error:
        return web.Response(status=501, text=f"this machine does not say what processes use: {error}\n")


async def _exec(find: FindContainer, request: web.Request) -> web.StreamResponse:
    key, name, container = _found(find, request)
    if container is None:
        return _missing(key, name)
    options = options_of(request.query, request.query.getall("command", []))
    if not options.command:
        return web.Response(status=400, text="no command was given\n")
    if not web.WebSocketResponse().can_prepare(request):
        return web.Response(status=400, text="commands are run for WebSockets only\n")
    try:
        session = await container.session(options)
    except OSError as error:
        return web.Response(status=500, text=f"cannot start a process: {error}\n")
    if session is None:
        return web.Response(status=400, text=f'container "{name}" in pod "{key.name}" is not running\n')
    return await serve_session(request, session)


def _found(find: FindContainer, request: web.Request) -> tuple[Key, str, Container | None]:
    key = Key(request.match_info["namespace"], request.match_info["pod"])
    name = request.match_info["container"]
    return key, name, find(key, name)


def _missing(key: Key, name: str) -> web.Response:
    return web.Response(status=404, text=f'container "{name}" of pod "{key}" is not on this node\n')


async def _logs(find: FindContainer, request: web.Request) -> web.StreamResponse:
    key, name, container = _found(find, request)
    if container is None:
        return _missing(key, name)
    try:
        options = _options(request)
    except ValueError as error:
        return web.Response(status=400, text=f"{error}\n")
    log = container.log(previous=options.previous)
    if log is None:
        word = "previous terminated " if options.previous else ""
        return web.Response(status=400, text=f'{word}container "{name}" in pod "{key.name}" not found\n')
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    try:
        async for piece in read_log(log[0], log[1], options):
            await response.write(piece)
        await response.write_eof()
    except (ConnectionError, FileNotFoundError):
        pass  # the client or the pod is gone
    return response


def _options(request: web.Request) -> LogOptions:
    query = request.query
    return LogOptions(
        follow=_flag(query.get("follow", "")),
        previous=_flag(query.get("previous", "")),
        timestamps=_flag(query.get("timestamps", "")),
        tail=_number(query.get("tailLines", "")),
        limit=_number(query.get("limitBytes", "")),
        since=since_of(query.get("sinceSeconds", ""), query.get("sinceTime", ""), time.time()),
    )


def _flag(text: str) -> bool:
    return text.lower() in ("true", "1")


def _number(text: str) -> int | None:
    return max(0, int(text)) if text else None
