"""di-server's HTTP routes, as its existing clients know them."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler as NextHandler
from aiohttp.typedefs import Middleware
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from trainmaster.core.errors import NotSynced
from trainmaster.diserver import answer, metrics
from trainmaster.diserver.acknowledgement import SentAnswer
from trainmaster.diserver.caller import Origin
from trainmaster.diserver.handlers import Done, Handlers
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.diserver.request import BODY_LIMIT, decoded, parameters
from trainmaster.diserver.types import FailedRequest, ReplicasRequest
from trainmaster.diserver.writer import DeclarationWriter

REPLICAS = "/v1alpha1/replicas"
FAILED = "/v1alpha1/replicas/failed"

REQUEST_TIMEOUT = 6.0
"""Upper limit for every request, also if the API server does not answer."""
MAX_IN_FLIGHT = 1000

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request, Origin], Awaitable[Done]]
Identify = Callable[[web.Request], Awaitable[str | None]]
"""The uid of the pod that a request comes from, None if its address has to tell; raises ``Refused``."""

_POD = web.RequestKey("pod", str)


class Routes:
    """``is_ready`` says whether this server should get requests: its cache is synced and it is not stopping.
    ``identify`` is asked first, on every path."""

    def __init__(
        self,
        handlers: Handlers,
        writer: DeclarationWriter,
        is_ready: Callable[[], bool],
        identify: Identify | None = None,
    ) -> None:
        self._handlers = handlers
        self._writer = writer
        self._is_ready = is_ready
        self._identify = identify
        self._in_flight = 0
        self._replicas: dict[str, Handler] = {"GET": self._get, "POST": self._create, "DELETE": self._delete}
        self._failed: dict[str, Handler] = {"POST": self._report}
        self._measured: dict[tuple[str, str, int, bool], Any] = {}
        self._timed: dict[tuple[str, str], Any] = {}

    def application(self) -> web.Application:
        middlewares = [_identified(self._identify)] if self._identify is not None else []
        app = web.Application(client_max_size=BODY_LIMIT, middlewares=middlewares)
        app.router.add_route("*", REPLICAS, self._serve_replicas)
        app.router.add_route("*", FAILED, self._serve_failed)
        app.router.add_route("*", "/healthz", _alive)
        app.router.add_route("*", "/readyz", self._ready)
        app.router.add_get("/metrics", _metrics)
        app.router.add_route("*", "/{rest:.*}", _unknown)
        return app

    # --- the routes ---

    async def _serve_replicas(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, REPLICAS, self._replicas)

    async def _serve_failed(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, FAILED, self._failed)

    async def _get(self, request: web.Request, origin: Origin) -> Done:
        return await self._handlers.get(parameters(request.query.items()), origin)

    async def _create(self, request: web.Request, origin: Origin) -> Done:
        return await self._handlers.create(decoded(await _body(request), ReplicasRequest), origin)

    async def _delete(self, request: web.Request, origin: Origin) -> Done:
        return await self._handlers.delete(decoded(await _body(request), ReplicasRequest), origin)

    async def _report(self, request: web.Request, origin: Origin) -> Done:
        return await self._handlers.failed(decoded(await _body(request), FailedRequest), origin)

    # --- common to all routes ---

    async def _serve(self, request: web.Request, route: str, by_method: dict[str, Handler]) -> web.StreamResponse:
        started = perf_counter()
        self._in_flight += 1
        metrics.IN_FLIGHT.set(self._in_flight)
        try:
            status, done, because = await self._answer(request, by_method.get(request.method))
        finally:
            self._in_flight -= 1
            metrics.IN_FLIGHT.set(self._in_flight)
        response = web.Response(status=status, body=done.body, content_type="application/json")
        if done.stored is not None:
            # Followed until the client has acknowledged it: without the answer it sends the same request again.
            try:
                await response.prepare(request)
                await response.write_eof()
                self._writer.answered(done.stored, SentAnswer(request.transport))
            except ConnectionError:
                because = "the client has closed the connection"
        self._record(request, route, status, because, perf_counter() - started)
        return response

    async def _answer(self, request: web.Request, handler: Handler | None) -> tuple[int, Done, str]:
        nothing = None if request.method == "GET" else answer.NOTHING
        try:
            if handler is None:
                raise Refused(501, f"{request.method} not implemented")  # noqa: TRY301 one way out for all of them
            if self._in_flight > MAX_IN_FLIGHT:
                raise RetryLater("too many requests at once, try again")  # noqa: TRY301 answered as every refusal
            async with asyncio.timeout(REQUEST_TIMEOUT):
                return 200, await handler(request, _origin(request)), ""
        except Refused as refused:
            return refused.status, Done(answer.failure(refused.message, nothing)), refused.message
        except RetryLater as error:
            message = error.message
        except NotSynced as error:
            message = f"{error}, try again"
        except TimeoutError:
            message = f"no end after {REQUEST_TIMEOUT:.0f} seconds, try again: the API server may be slow"
        except Exception:
            # After an error of our own the client retries instead of exiting.
            log.exception("request failed by a defect in trainmaster", method=request.method, path=request.path)
            message = "di-server failed; its log says why"
        return 200, Done(answer.failure(message, nothing)), message

    def _record(self, request: web.Request, route: str, status: int, because: str, seconds: float) -> None:
        key = (request.method if request.method in self._replicas else "other", route, status, not because)
        if key not in self._measured:
            method, _, code, success = key
            self._measured[key] = metrics.REQUESTS.labels(method, route, str(code), str(success).lower())
            self._timed[key[:2]] = metrics.SECONDS.labels(method, route)
        self._measured[key].inc()
        self._timed[key[:2]].observe(seconds)
        log.info(
            "request",
            method=request.method,
            path=request.path_qs[:300],
            caller=request.remote,
            status=status,
            ms=round(seconds * 1000, 1),
            **({"because": because} if because else {}),
        )

    async def _ready(self, _: web.Request) -> web.Response:
        if self._is_ready():
            return web.Response(text="ok")
        return web.Response(status=503, text="not ready: starting or ending")


def _identified(identify: Identify) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: NextHandler) -> web.StreamResponse:
        try:
            pod = await identify(request)
        except Refused as refused:
            log.info("request refused", method=request.method, path=request.path[:300], because=refused.message)
            body = answer.failure(refused.message)
            return web.Response(status=refused.status, body=body, content_type="application/json")
        if pod is not None:
            request[_POD] = pod
        return await handler(request)

    return check


def _origin(request: web.Request) -> Origin:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    ip = (request.remote or "").removeprefix("::ffff:")  # an IPv4 address on a dual-stack socket
    return Origin(ip, token.strip() if scheme.lower() == "bearer" else "", request.get(_POD))


async def _body(request: web.Request) -> bytes:
    """Ignores the Content-Type: DI-engine's client sends none."""
    if (request.content_length or 0) > BODY_LIMIT:
        raise Refused(400, f"failed to decode request body: it is larger than {BODY_LIMIT} bytes")
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refused(400, f"failed to decode request body: it is larger than {BODY_LIMIT} bytes") from None


async def _alive(_: web.Request) -> web.Response:
    return web.Response()


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _unknown(_: web.Request) -> web.Response:
    return web.Response(status=404, text="404 page not found\n")
