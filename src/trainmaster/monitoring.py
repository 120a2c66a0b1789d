"""``/healthz``, ``/readyz`` and ``/metrics``: what a kubelet and a Prometheus ask for."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from trainmaster.core.errors import BadConfig

OFF = "0"
_KEEP_ALIVE = 15.0
"""Seconds. Kubelets and Prometheus ask more often; idle connections of others must not pile up."""


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
    host, port = split_address(address)
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(
        app, access_log=None, handle_signals=False, shutdown_timeout=2.0, keepalive_timeout=_KEEP_ALIVE
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise BadConfig(f"cannot listen on {address}: {error.strerror}; choose another address, or 0") from error
        yield
    finally:
        await runner.cleanup()


def split_address(address: str) -> tuple[str | None, int]:
    """Host and port; no host means every interface."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise BadConfig(f"bad address {address!r}: use host:port, :port, or {OFF} to switch it off")
    return host.strip("[]") or None, int(port)
