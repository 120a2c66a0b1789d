"""``/healthz``, ``/readyz`` and ``/metrics``: what a kubelet and a Prometheus ask for."""

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from trainmaster.http_server import serve_http

OFF = "0"
CONNECTIONS = 64
"""Of each port: a kubelet and some Prometheus servers need a handful."""
TEXTS_PER_SECOND = 3


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok")


class MetricsText:
    """The text of ``/metrics``. Generating it takes milliseconds of the loop and grows with the namespaces: after some
    times in a second the last text is the answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, registry: CollectorRegistry = REGISTRY) -> None:
        self._clock = clock
        self._registry = registry
        self._since = -math.inf
        self._generated = 0
        self._text = b""

    def __call__(self) -> bytes:
        now = self._clock()
        if now >= self._since + 1.0:
            self._since, self._generated = now, 0
        if self._generated < TEXTS_PER_SECOND:
            self._text = generate_latest(self._registry)
            self._generated += 1
        return self._text

    async def answer(self, _: web.Request) -> web.Response:
        return web.Response(body=self(), headers={"Content-Type": CONTENT_TYPE_LATEST})


@asynccontextmanager
async def serve_health(
    address: str, is_ready: Callable[[], bool], reason: Callable[[], str] = lambda: "the stores are not complete yet"
) -> AsyncIterator[None]:
    """``reason`` says what keeps the process from being ready."""

    async def ready(_: web.Request) -> web.Response:
        if is_ready():
            return web.Response(text="ok")
        return web.Response(status=503, text=f"not ready: {reason()}")

    async with _serving(address, [web.get("/healthz", _alive), web.get("/readyz", ready)]):
        yield


@asynccontextmanager
async def serve_metrics(address: str) -> AsyncIterator[None]:
    async with _serving(address, [web.get("/metrics", MetricsText().answer)]):
        yield


@asynccontextmanager
async def _serving(address: str, routes: list[web.RouteDef]) -> AsyncIterator[None]:
    """Serve while the block runs. The address is ``host:port``, ``:port``, or ``0`` for not at all."""
    if address == OFF:
        yield
        return
    app = web.Application()
    app.add_routes(routes)
    async with serve_http(app, address, connections=CONNECTIONS, hint="choose another address, or 0"):
        yield
