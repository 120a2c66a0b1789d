"""Starts and stops di-server: ready after the initial lists, drained before it exits."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
import structlog

from trainmaster.core.errors import BadConfig
from trainmaster.diserver.access import Access
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.caller import Callers
from trainmaster.diserver.finder import Finder
from trainmaster.diserver.gpu import Nodes
from trainmaster.diserver.handlers import Handlers
from trainmaster.diserver.limits import RequestLimits, Rules
from trainmaster.diserver.profiling import ProfilingWriter
from trainmaster.diserver.routes import REQUEST_TIMEOUT, Identify, Routes
from trainmaster.diserver.task_handlers import TaskHandlers
from trainmaster.diserver.token import Reviewer, Tokens
from trainmaster.diserver.writer import DeclarationWriter
from trainmaster.http_server import serve_http
from trainmaster.kinds.crd import crds_of
from trainmaster.kinds.dijob.profile import PROFILES, Profile
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.definition_check import DefinitionCheck
from trainmaster.runtime.metrics import observe_caches
from trainmaster.runtime.recorder import Recorder
from trainmaster.settings import SERVER, ServerLimits

FLUSH_SECONDS = 2.0
KEEP_ALIVE_SECONDS = 75.0

log = structlog.get_logger(__name__)


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    bind_address: str
    namespace: str = ""
    kinds: tuple[str, ...] = ()
    """Kinds of jobs that are served; empty for all."""
    allow_unidentified: bool = False
    drain: float = SERVER.shutdown_delay
    """Seconds between "not ready" and exit, in which load balancers remove this server."""
    rules: Rules = Rules()
    limits: ServerLimits = SERVER.limits
    identify: Identify | None = None
    """Tells pods apart that share an address; None where the address tells."""
    listeners: tuple[socket.socket, ...] = ()
    """Open sockets of further addresses; the server closes them."""


async def run_server(
    cluster: Cluster,
    reviewer: Reviewer,
    options: ServerOptions,
    stop: asyncio.Event,
    *,
    now: Callable[[], datetime],
    tls: ssl.SSLContext | None = None,
    started: asyncio.Event | None = None,
) -> None:
    """Runs until ``stop`` is set. The socket listens at once; requests before the initial lists get "try again"."""
    profiles = _profiles(options.kinds)
    cache, recorder = Cache(cluster, namespace=options.namespace, profiles=profiles), Recorder(cluster, now)
    writer = DeclarationWriter(cluster, cache, now)
    finder, tokens = Finder(cache), Tokens(reviewer, options.limits.token_reviews)
    callers = Callers(cache, finder, tokens, options.limits, is_open=options.allow_unidentified)
    access = Access(cache, finder, tokens, options.limits.lookups, shared_network=options.rules.shared_network)
    limits = RequestLimits(cache, Nodes(cluster), options.rules)
    handlers = Handlers(cache, access, finder, writer, limits, recorder, now)
    profilings = ProfilingWriter(cluster, cache)
    task_handlers = TaskHandlers(cache, access, writer, profilings, limits, recorder)
    observe_caches(cache.reflectors)
    definitions = DefinitionCheck(cluster, crds_of([profile.resource for profile in profiles]))

    def problem() -> str:
        return _problem(cache, definitions, stop)

    routes = Routes(handlers, task_handlers, callers, writer, options.limits, problem, options.identify)
    async with asyncio.TaskGroup() as group:
        background = [group.create_task(reflector.run()) for reflector in cache.reflectors]
        background += [group.create_task(recorder.run()), group.create_task(definitions.run())]
        try:
            async with serve_http(
                routes.application(),
                options.bind_address,
                connections=options.limits.connections,
                per_address=options.limits.connections_per_address,
                tls=tls,
                hint="choose another --bind-address",
                keep_alive=KEEP_ALIVE_SECONDS,
                shutdown_timeout=REQUEST_TIMEOUT,
                listeners=options.listeners,
            ):
                log.info("serving", address=options.bind_address, namespace=options.namespace or "all")
                if started is not None:
                    started.set()
                await stop.wait()
                log.info("stopping: draining requests", seconds=options.drain)
                await asyncio.sleep(options.drain)
        finally:
            await writer.close(FLUSH_SECONDS)
            await profilings.close(FLUSH_SECONDS)
            await recorder.flush(FLUSH_SECONDS)
            for task in background:
                task.cancel()


def _problem(cache: Cache, definitions: DefinitionCheck, stop: asyncio.Event) -> str:
    """Why this server should not get requests; empty if it should."""
    if stop.is_set():
        return "it is stopping"
    return definitions.problem if cache.is_synced else "the initial lists are not complete yet"


def _profiles(names: Sequence[str]) -> list[Profile]:
    """The profiles of these kinds, case-insensitive."""
    known = {profile.word.lower(): profile for profile in PROFILES}
    wanted = [name.lower() for name in names] or list(known)
    if unknown := sorted(set(wanted) - set(known)):
        raise BadConfig(f"--enable-scheme {unknown[0]}: there is no such kind; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(wanted)]
