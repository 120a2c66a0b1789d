"""di-server's HTTP routes, as its existing clients know them."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler as NextHandler
from aiohttp.typedefs import Middleware

from trainmaster import body
from trainmaster.body import BodyBudget
from trainmaster.core.errors import NotSynced
from trainmaster.core.ids import Key
from trainmaster.diserver import answer, metrics
from trainmaster.diserver.acknowledgement import SentAnswer
from trainmaster.diserver.caller import Caller, Callers, Origin
from trainmaster.diserver.handlers import Done, Handlers
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.diserver.request import BODY_LIMIT, R, decoded, generation_id, job_id, parameters, profilings_of
from trainmaster.diserver.task_handlers import TaskHandlers
from trainmaster.diserver.types import FailedRequest, Replicas, ReplicasRequest, ScaleRequest
from trainmaster.diserver.writer import DeclarationWriter
from trainmaster.monitoring import MetricsText
from trainmaster.settings import ServerLimits

REPLICAS = "/v1alpha1/replicas"
FAILED = "/v1alpha1/replicas/failed"
JOB_IDS = ("/v2alpha1/job/{id}", "/v2alpha1/job/{namespace}/{name}", "/v2alpha1/{generation_id}")
"""The last is that of DI-orchestrator's page, the others are those of its code."""
METHODS = frozenset({"GET", "POST", "DELETE"})

REQUEST_TIMEOUT = 6.0
"""Upper limit for every request, also if the API server does not answer."""
MAX_IN_FLIGHT = 1000
BODY_PATIENCE = 1.0
"""Seconds that a request waits while the bodies of others use up the budget."""

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request, Caller], Awaitable[Done]]
Identify = Callable[[web.Request], Awaitable[str | None]]
"""The uid of the pod that a request comes from, None if its address has to tell; raises ``Refused``."""

_POD = web.RequestKey("pod", str)


class _Route(NamedTuple):
    paths: tuple[str, ...]
    """Metrics name the first."""
    handlers: dict[str, Handler]
    """By method."""
    nothing: Replicas | None = None
    """The data of a change that failed."""


class _Answer(NamedTuple):
    status: int
    done: Done
    because: str = ""
    headers: dict[str, str] | None = None
    is_limit: bool = False
    """One of too many requests of its caller."""


class Routes:
    """``problem`` says why this server should not get requests; empty if it should. ``identify`` is asked first, on
    every path."""

    def __init__(
        self,
        handlers: Handlers,
        task_handlers: TaskHandlers,
        callers: Callers,
        writer: DeclarationWriter,
        limits: ServerLimits,
        problem: Callable[[], str],
        identify: Identify | None = None,
    ) -> None:
        self._handlers = handlers
        self._task_handlers = task_handlers
        self._callers = callers
        self._writer = writer
        self._problem = problem
        self._identify = identify
        self._bodies = BodyBudget(limits.body_bytes, patience=BODY_PATIENCE)
        self._unknown_bodies = BodyBudget(limits.unknown_body_bytes, patience=BODY_PATIENCE)
        self._in_flight = 0
        self._routes = (
            _Route(
                (REPLICAS,), {"GET": self._get, "POST": self._create, "DELETE": self._delete}, nothing=answer.NOTHING
            ),
            _Route((FAILED,), {"POST": self._report}, nothing=answer.NOTHING),
            _Route(
                tuple(f"{job}/replicas" for job in JOB_IDS),
                {"GET": self._get_tasks, "POST": self._add, "DELETE": self._remove},
            ),
            _Route(tuple(f"{job}/profilings" for job in JOB_IDS), {"POST": self._profile}),
        )
        self._measured: dict[tuple[str, str, int, bool], Any] = {}
        self._timed: dict[tuple[str, str], Any] = {}

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_identified(self._identify)] if self._identify is not None else [])
        for route in self._routes:
            for path in route.paths:
                app.router.add_route("*", path, partial(self._serve, route))
        app.router.add_route("*", "/healthz", _alive)
        app.router.add_route("*", "/readyz", self._ready)
        app.router.add_get("/metrics", MetricsText().answer)
        app.router.add_route("*", "/{rest:.*}", _unknown)
        return app

    # --- the routes ---

    async def _get(self, request: web.Request, caller: Caller) -> Done:
        return await self._handlers.get(parameters(request.query.items()), caller)

    async def _create(self, request: web.Request, caller: Caller) -> Done:
        return await self._handlers.create(await self._decoded(request, caller, ReplicasRequest), caller)

    async def _delete(self, request: web.Request, caller: Caller) -> Done:
        return await self._handlers.delete(await self._decoded(request, caller, ReplicasRequest), caller)

    async def _report(self, request: web.Request, caller: Caller) -> Done:
        return await self._handlers.failed(await self._decoded(request, caller, FailedRequest), caller)

    async def _get_tasks(self, request: web.Request, caller: Caller) -> Done:
        return await self._task_handlers.get(_job(request), caller)

    async def _add(self, request: web.Request, caller: Caller) -> Done:
        job = _job(request)
        return await self._task_handlers.add(job, await self._decoded(request, caller, ScaleRequest), caller)

    async def _remove(self, request: web.Request, caller: Caller) -> Done:
        job = _job(request)
        return await self._task_handlers.delete(job, await self._decoded(request, caller, ScaleRequest), caller)

    async def _profile(self, request: web.Request, caller: Caller) -> Done:
        job = _job(request)
        return await self._task_handlers.report(job, profilings_of(await self._body(request, caller)), caller)

    async def _decoded(self, request: web.Request, caller: Caller, type_: type[R]) -> R:
        return decoded(await self._body(request, caller), type_)

    async def _body(self, request: web.Request, caller: Caller) -> bytes:
        """Callers that are not known share a budget of their own, which cannot harm the others."""
        budget = self._bodies if caller.is_known else self._unknown_bodies
        try:
            # Whatever its Content-Type: DI-engine's client sends none.
            return await body.read(request, BODY_LIMIT, budget)
        except body.TooLarge:
            message = f"failed to decode request body: it is larger than {BODY_LIMIT} bytes"
            raise Refused(413, message) from None
        except body.NoRoom:
            raise RetryLater("too many requests at once, try again") from None
        except (web.RequestPayloadError, ConnectionError):
            raise Refused(400, "the client hung up before the end of its body") from None

    # --- common to all routes ---

    async def _serve(self, route: _Route, request: web.Request) -> web.StreamResponse:
        started = perf_counter()
        self._in_flight += 1
        metrics.IN_FLIGHT.set(self._in_flight)
        try:
            answered = await self._answer(request, route)
        finally:
            self._in_flight -= 1
            metrics.IN_FLIGHT.set(self._in_flight)
        status, done, because = answered.status, answered.done, answered.because
        response = web.Response(
            status=status, body=done.body, content_type="application/json", headers=answered.headers
        )
        if done.stored is not None:
            # Followed until the client has acknowledged it: without the answer it sends the same request again.
            try:
                await response.prepare(request)
                await response.write_eof()
                self._writer.answered(done.stored, SentAnswer(request.transport))
            except ConnectionError:
                because = "the client has closed the connection"
        seconds = perf_counter() - started
        self._measure(request, route.paths[0], status, because, seconds)
        if not answered.is_limit:  # so that a flood of requests is no flood of the log
            _log(request, status, because, seconds)
        return response

    async def _answer(self, request: web.Request, route: _Route) -> _Answer:
        handler = route.handlers.get(request.method)
        nothing = None if request.method == "GET" else route.nothing
        try:
            if handler is None:
                raise Refused(501, f"{request.method} not implemented")  # noqa: TRY301 one way out for all of them
            if self._in_flight > MAX_IN_FLIGHT:
                raise RetryLater("too many requests at once, try again")  # noqa: TRY301 answered as every refusal
            async with asyncio.timeout(REQUEST_TIMEOUT):
                caller = await self._callers.identify(_origin(request))
                return _Answer(200, await handler(request, caller))
        except Refused as refused:
            headers = {"Retry-After": str(refused.retry_after)} if refused.retry_after else None
            failure = Done(answer.failure(refused.message, nothing))
            return _Answer(refused.status, failure, refused.message, headers, is_limit=refused.status == 429)
        except RetryLater as error:
            failure = Done(answer.failure(error.message, nothing))
            return _Answer(200, failure, error.because, is_limit=error.is_limit)
        except NotSynced as error:
            message = f"{error}, try again"
        except TimeoutError:
            message = f"no end after {REQUEST_TIMEOUT:.0f} seconds, try again: the API server may be slow"
        except Exception:
            # After an error of our own the client retries instead of exiting.
            log.exception("request failed by a defect in trainmaster", method=request.method, path=request.path)
            message = "di-server failed; its log says why"
        return _Answer(200, Done(answer.failure(message, nothing)), message)

    def _measure(self, request: web.Request, route: str, status: int, because: str, seconds: float) -> None:
        key = (request.method if request.method in METHODS else "other", route, status, not because)
        if key not in self._measured:
            method, _, code, success = key
            self._measured[key] = metrics.REQUESTS.labels(method, route, str(code), str(success).lower())
            self._timed[key[:2]] = metrics.SECONDS.labels(method, route)
        self._measured[key].inc()
        self._timed[key[:2]].observe(seconds)

    async def _ready(self, _: web.Request) -> web.Response:
        if because := self._problem():
            return web.Response(status=503, text=f"not ready: {because}")
        return web.Response(text="ok")


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


def _log(request: web.Request, status: int, because: str, seconds: float) -> None:
    log.info(
        "request",
        method=request.method,
        path=request.path_qs[:300],
        caller=request.remote,
        status=status,
        ms=round(seconds * 1000, 1),
        **({"because": because} if because else {}),
    )


def _origin(request: web.Request) -> Origin:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    ip = (request.remote or "").removeprefix("::ffff:")  # an IPv4 address on a dual-stack socket
    return Origin(ip, token.strip() if scheme.lower() == "bearer" else "", request.get(_POD))


def _job(request: web.Request) -> Key:
    """The job that the path names."""
    named = request.match_info
    if text := named.get("generation_id"):
        return generation_id(text)
    return job_id(named.get("id") or "{namespace}/{name}".format_map(named))


async def _alive(_: web.Request) -> web.Response:
    return web.Response()


async def _unknown(_: web.Request) -> web.Response:
    return web.Response(status=404, text="404 page not found\n")
