"""The local cluster: API server, node, di-server and operator in one process, wired.

They end the other way round than they start: first the operator, which must not take what the end of the others does
to pods for a failure of its jobs, then di-server and the node, then the API.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from trainmaster.core.errors import AlreadyExists, BadConfig
from trainmaster.core.ids import NAMESPACE
from trainmaster.kinds.base import Settings
from trainmaster.kinds.crd import all_crds
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Config, Material, Tls, User
from trainmaster.local.apiserver.http.server import ApiOptions, serve_api
from trainmaster.local.node.agent import NodeOptions, run_node
from trainmaster.local.state import State
from trainmaster.runtime.cluster import Cluster
from trainmaster.wiring.local_admission import local_admission
from trainmaster.wiring.manager import build_manager, chosen
from trainmaster.wiring.server_name import ServerName, server_name

HOST = "127.0.0.1"
NODE = "local"
"""Not the machine's name: that may change between two starts, and pods are bound to it."""
STOP_SECONDS = 30.0
"""How long each part may take to end."""
START_SECONDS = 30.0


class Local(msgspec.Struct, frozen=True):
    """A local cluster. It takes jobs at once; ``ready`` is set when its node takes pods."""

    url: str
    cluster: KubeCluster
    ready: asyncio.Event
    warning: str
    """What does not work, for the user; empty if everything does."""


@asynccontextmanager
async def local_cluster(
    state: State,
    *,
    workdir: Path,
    port: int = 0,
    has_server: bool = True,
    kinds: Sequence[str] = (),
    gpus: tuple[str, ...] | None = None,
    keeps_logs: bool = False,
) -> AsyncIterator[Local]:
    """``has_server`` is False where no job will ask for replicas, ``kinds`` are those that there will be jobs of (none
    for all): unused components are not waited for. ``gpus`` and ``keeps_logs`` as in ``NodeOptions``."""
    api = ApiOptions(
        database=state.database,
        token=state.token,
        certificate=state.certificate,
        key=state.key,
        port=port,
        definitions=all_crds(),
        node_token=state.token,
        admission=local_admission(all_resource_kinds(Settings(shared_network=True))),
    )
    ready = asyncio.Event()
    async with serve_api(api) as server, KubeCluster(_config(server.url, state)) as cluster:
        with server_name(state.folder) if has_server else nullcontext() as name:
            node = _node_options(state, workdir, name, gpus, keeps_logs=keeps_logs)
            async with _node(cluster, node, ready), _server(cluster, state, name) as address:
                stop = asyncio.Event()
                served = all_resource_kinds(Settings(server_url=address, shared_network=True))
                manager = build_manager(cluster, chosen(served, kinds), shared_network=True)
                async with _beside(manager.run(stop), stop):
                    yield Local(server.url, cluster, ready, name.warning if name else "")


async def prepare(local: Local, namespace: str) -> None:
    """Creates the namespace, and waits until the node is ready."""
    with suppress(AlreadyExists):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await local.cluster.create(NAMESPACE, "", msgspec.json.encode(body))
    try:
        async with asyncio.timeout(START_SECONDS):
            await local.ready.wait()
    except TimeoutError:
        raise BadConfig(f"the node was not ready within {START_SECONDS:g} s; the log says why") from None


@asynccontextmanager
async def _node(cluster: Cluster, options: NodeOptions, ready: asyncio.Event) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with _beside(run_node(cluster, options, stop, ready), stop):
        yield


@asynccontextmanager
async def _server(cluster: KubeCluster, state: State, name: ServerName | None) -> AsyncIterator[str]:
    """The address of di-server; without ``name`` no server runs."""
    address = f"{HOST}:{_server_port(state)}"
    if name is None:
        yield address
        return
    # Imported here: most runs have no job that asks for replicas.
    from trainmaster.diserver.limits import Rules
    from trainmaster.diserver.serve import ServerOptions, run_server
    from trainmaster.wiring.local_caller import LocalCallers

    stop = asyncio.Event()
    callers = LocalCallers(state, [address, f"localhost:{address.rpartition(':')[2]}", *name.hosts])
    options = ServerOptions(
        bind_address=address,
        drain=0.0,
        rules=Rules(shared_network=True),
        identify=callers.identify,
        listeners=(name.listener,) if name.listener else (),
    )
    async with _beside(run_server(cluster, callers, options, stop, now=_now), stop):
        yield address


def _server_port(state: State) -> int:
    """The port of the last run, if it is free: pods that outlived the last cluster still use it."""
    for port in (state.server_port, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            state.keep_server_port(found := int(probe.getsockname()[1]))
            return found
    raise BadConfig("this machine has no free port for di-server; close some programs and try again")


def _now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> AsyncIterator[None]:
    """``work`` goes on while the block runs. An error in it ends the block; the end of the block ends it in peace."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait((task,), timeout=STOP_SECONDS)
            task.cancel()


def _config(url: str, state: State) -> Config:
    ca = Material("certificate of the local cluster", path=state.certificate)
    token = Material("token of the local cluster", path=state.token_file)
    return Config(server=url, source=str(state.folder), tls=Tls(ca=ca), user=User(token=token))


def _node_options(
    state: State, workdir: Path, name: ServerName | None, gpus: tuple[str, ...] | None, *, keeps_logs: bool
) -> NodeOptions:
    return NodeOptions(
        name=NODE,
        folder=state.node,
        workdir=workdir,
        certificate=state.certificate,
        key=state.key,
        token=state.token,
        keeps_logs=keeps_logs,
        keeps_deleted_logs=not keeps_logs,
        is_last=not state.keeps,
        gpus=gpus,
        services=name.services if name else {},
    )
