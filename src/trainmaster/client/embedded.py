"""A local cluster inside of this process, as ``trainmaster up`` runs one in its own.

It runs in a task of its own: an error in it does not cancel the caller, and another task than the one that started it
may stop it.
"""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

import structlog

from trainmaster.client.leftover import GRACE, end_leftovers
from trainmaster.core.errors import Trainmaster
from trainmaster.local.state import State, open_state, temporary_state
from trainmaster.wiring.local import local_cluster, prepare
from trainmaster.wiring.loop import first_error

log = structlog.get_logger(__name__)


class EmbeddedCluster:
    """With a folder its objects are kept; without one nothing is left when it stops, and its processes end also if
    this process is killed."""

    def __init__(self, folder: Path | None, namespace: str) -> None:
        self._folder = folder
        self._namespace = namespace
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()
        self._running: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, folder: Path | None, namespace: str) -> tuple[Self, State]:
        """Returns when it takes jobs."""
        cluster = cls(folder, namespace)
        cluster._task = asyncio.create_task(cluster._run(), name="local cluster")
        try:
            await asyncio.wait((cluster._running, cluster._task), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            cluster.kill()
            await cluster.stop()
            raise
        if not cluster._running.done():
            await cluster.stop()
        return cluster, cluster._running.result()

    def kill(self) -> None:
        """Containers get no time to end."""
        self._kill.set()

    async def stop(self) -> None:
        """Ends all processes, as Ctrl-C of ``trainmaster up`` does. Raises what went wrong in it."""
        self._stop.set()
        if self._task is None:
            return
        try:
            await asyncio.wait((self._task,))
        except asyncio.CancelledError:
            self.kill()
            raise
        try:
            self._task.result()
        except* Trainmaster as group:
            raise first_error(group) from None

    async def _run(self) -> None:
        place: AbstractContextManager[State] = open_state(self._folder) if self._folder else temporary_state(keep=False)
        with place as state:
            try:
                async with local_cluster(state, workdir=Path.cwd()) as local:
                    if local.warning:
                        log.warning(local.warning)
                    await prepare(local, self._namespace)
                    state.write_kubeconfig(local.url, self._namespace)
                    self._running.set_result(state)
                    await self._stop.wait()
            finally:
                await end_leftovers(state.node, grace=GRACE, kill_now=self._kill)
