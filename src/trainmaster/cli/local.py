"""The local cluster: API server, node and operator in one process, wired.

They end the other way round than they start: first the operator, which must not take what the end of the others does
to pods for a failure of its jobs, then the node, then the API.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from trainmaster.api.crd import all_crds
from trainmaster.cli.wiring import build_manager
from trainmaster.embedded.apiserver.server import ApiOptions, serve_api
from trainmaster.embedded.node.agent import NodeOptions, run_node
from trainmaster.embedded.state import State
from trainmaster.kinds.base import Settings
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Config, Material, Tls, User

NODE = "local"
"""Not the machine's name: that may change between two starts, and pods are bound to it."""
STOP_SECONDS = 30.0
"""How long each part may take to end."""


class Local(msgspec.Struct, frozen=True):
    """A local cluster. It takes jobs at once; ``ready`` is set when its node takes pods."""

    url: str
    cluster: KubeCluster
    ready: asyncio.Event


@asynccontextmanager
async def local_cluster(state: State, *, workdir: Path, port: int = 0) -> AsyncIterator[Local]:
    api = ApiOptions(
        database=state.database,
        token=state.token,
        certificate=state.certificate,
        key=state.key,
        port=port,
        definitions=all_crds(),
        node_token=state.token,
    )
    ready, stop_node, stop_operator = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with serve_api(api) as server, KubeCluster(_config(server.url, state)) as cluster:
        node = run_node(cluster, _node_options(state, workdir), stop_node, ready)
        async with _beside(node, stop_node):
            manager = build_manager(cluster, Settings(shared_network=True))
            async with _beside(manager.run(stop_operator), stop_operator):
                yield Local(server.url, cluster, ready)


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


def _node_options(state: State, workdir: Path) -> NodeOptions:
    return NodeOptions(
        name=NODE,
        folder=state.node,
        workdir=workdir,
        certificate=state.certificate,
        key=state.key,
        token=state.token,
        keeps_logs=not state.keeps,  # of a run, which reads the files and removes the folder
    )
