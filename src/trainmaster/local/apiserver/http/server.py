"""The local API server: HTTPS on loopback, one store, and the controllers that a small cluster needs."""

import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from trainmaster.core.errors import BadConfig
from trainmaster.http_server import serve_http
from trainmaster.local.apiserver.controllers.expire import EventExpiry
from trainmaster.local.apiserver.controllers.garbage import GarbageCollector
from trainmaster.local.apiserver.controllers.job import JobController
from trainmaster.local.apiserver.controllers.namespace import ContentDeleter, create_initial
from trainmaster.local.apiserver.controllers.schedule import Scheduler
from trainmaster.local.apiserver.http.router import LARGEST_BODY, Api
from trainmaster.local.apiserver.http.status import Refusal
from trainmaster.local.apiserver.objects.admission import Admission
from trainmaster.local.apiserver.objects.catalog import DEFINITION, Catalog
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.objects.write import WriteOptions, create, patch
from trainmaster.local.apiserver.store.store import Store, StoreFailed
from trainmaster.local.apiserver.store.watch import WatchNotifier

HOST = "127.0.0.1"
CONNECTIONS = 1024
KEEP_ALIVE = 100.0
"""Seconds. Clients close their idle connections after 90 s; a write on a connection that is being closed is lost."""
# Seconds that a request may still take when the server closes; watches end at once.
_LAST_REQUESTS = 2.0


class ApiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``certificate`` is also the CA of clients and of the node's log endpoint."""

    database: str
    token: str
    certificate: Path
    key: Path
    port: int = 0
    definitions: Sequence[dict[str, Any]] = ()
    node_token: str = ""
    admission: Admission = Admission()


class ApiServer(msgspec.Struct, frozen=True):
    """A running server."""

    port: int

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"


@asynccontextmanager
async def serve_api(options: ApiOptions) -> AsyncIterator[ApiServer]:
    """Serves until the block ends, and leaves nothing running. Raises BadConfig if it cannot start."""
    if not options.token:
        raise BadConfig("the API needs a token: without one every user of this machine could use it")
    server_tls, client_tls = _tls(options)
    async with AsyncExitStack() as stack:
        store = Store.open(options.database)
        stack.callback(store.close)
        state = State(store, Catalog(store), admission=options.admission)
        _fill(state, options)
        for controller in (GarbageCollector(state), ContentDeleter(state), Scheduler(state), JobController(state)):
            await stack.enter_async_context(controller.worker.running())
        await stack.enter_async_context(EventExpiry(state).running())
        connector = aiohttp.TCPConnector(ssl=client_tls)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        notifier = WatchNotifier(store)
        api = Api(state, notifier, token=options.token, node_token=options.node_token, session=session)
        port = await _listen(stack, api, notifier, server_tls, options.port)
        yield ApiServer(port)


def _tls(options: ApiOptions) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    try:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(options.certificate, options.key)
        client = ssl.create_default_context(cafile=str(options.certificate))
    except (OSError, ssl.SSLError) as error:
        raise BadConfig(f"the certificate {options.certificate} and its key cannot be used: {error}") from error
    return server, client


def _fill(state: State, options: ApiOptions) -> None:
    try:
        create_initial(state)
        for definition in options.definitions:
            _define(state, definition)
    except StoreFailed as error:
        raise BadConfig(f"{options.database}: {error}") from error


def _define(state: State, definition: dict[str, Any]) -> None:
    """Creates or updates a definition."""
    served = state.catalog.of_resource(str(DEFINITION))
    assert served is not None  # noqa: S101 – built in
    name = definition["metadata"]["name"]
    target = Target(served, "", name)
    quiet = WriteOptions(validation="Ignore")

    def update(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "spec": definition["spec"]}

    try:
        if state.store.get(target.place) is None:
            create(state, Target(served), definition, quiet)
        else:
            patch(state, target, update, quiet)
    except Refusal as refusal:
        raise BadConfig(f"the CustomResourceDefinition {name} cannot be served: {refusal}") from refusal


async def _listen(stack: AsyncExitStack, api: Api, notifier: WatchNotifier, tls: ssl.SSLContext, port: int) -> int:
    app = web.Application(client_max_size=LARGEST_BODY)
    app.router.add_route("*", "/{path:.*}", api.handle)
    # aiohttp logs a traceback for every line that is not HTTP; the client gets a 400 in any case.
    quiet = logging.getLogger("trainmaster.local.http")
    quiet.setLevel(logging.CRITICAL)
    serving = serve_http(
        app,
        f"{HOST}:{port}",
        connections=CONNECTIONS,
        tls=tls,
        hint="choose another port",
        keep_alive=KEEP_ALIVE,
        shutdown_timeout=_LAST_REQUESTS,
        handler_cancellation=True,
        logger=quiet,
    )
    listening = await stack.enter_async_context(serving)
    stack.callback(notifier.close)  # runs before the server ends, which would wait for open watches
    return listening
