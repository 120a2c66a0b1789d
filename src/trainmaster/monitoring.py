"""``/healthz``, ``/readyz`` and ``/metrics``: what a kubelet and a Prometheus ask for."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from trainmaster.http_server import serve_http

OFF = "0"
CONNECTIONS = 64
"""Of each port: a kubelet and some Prometheus servers need a handful."""


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _measured(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


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
    async with _serving(address, [web.get("/metrics", _measured)]):
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
