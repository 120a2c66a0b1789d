"""Starts everything in order and ends it in order.

Reflectors first; ready when all stores are complete, but for what the API server does not have. The workers of a
controller start when its Lease is held; a Lease that is lost ends the process. SIGTERM (``stop``) closes the queues,
lets every pass in hand end, sends the events that are left and gives the Leases back.
"""

import asyncio
import gc
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import structlog

from trainmaster.runtime.controller import RESERVED, Controller
from trainmaster.runtime.definition_check import DefinitionCheck
from trainmaster.runtime.elector import Elector
from trainmaster.runtime.metrics import observe_caches
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.reflector import Reflector

DRAIN_SECONDS = 20.0
FLUSH_SECONDS = 3.0

GC_THRESHOLDS = (20_000, 20, 50)
"""Views and requests come by the thousand and hold no cycles: look for cycles rarely."""

BEHIND_SECONDS = 30.0
"""A cache that is behind for longer is a reason to be not ready. Watches are opened again within some seconds."""

log = structlog.get_logger(__name__)


class Manager:
    def __init__(
        self,
        reflectors: Sequence[Reflector[Any]],
        controllers: Sequence[Controller],
        recorder: Recorder,
        electors: Mapping[str, Elector],
        definitions: DefinitionCheck | None = None,
    ) -> None:
        """``electors`` are those of the controllers, by their names; several may share one. A controller without an
        elector always works."""
        self._reflectors = reflectors
        self._controllers = controllers
        self._recorder = recorder
        self._electors = electors
        self._definitions = definitions
        observe_caches(reflectors)

    @property
    def is_ready(self) -> bool:
        return not self.problem

    @property
    def problem(self) -> str:
        """Why it is not ready; empty once every store has seen a complete list of what there is, while all of them
        are current, no definition lacks a field and none was deleted. A standby is ready, too. A leader that is not
        ready works: only jobs that need such a field wait."""
        if not all(reflector.settled.is_set() for reflector in self._reflectors):
            return "the stores are not complete yet"
        furthest = max(self._reflectors, key=lambda reflector: reflector.behind, default=None)
        if furthest and furthest.behind > BEHIND_SECONDS:
            return (
                f"the cache of {furthest.resource} has been behind for {furthest.behind:.0f} s:"
                " the API server cannot be read, see the log"
            )
        if not self._definitions:
            return ""
        return "; ".join(filter(None, (self._definitions.problem, self._definitions.gone)))

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set, or an error ends it. Losing the lease is such an error."""
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(reflector.run()) for reflector in self._reflectors]
            background.append(group.create_task(self._recorder.run()))
            if self._definitions:
                background.append(group.create_task(self._definitions.run()))
            await self._operate(stop)
            for task in background:
                task.cancel()

    async def _operate(self, stop: asyncio.Event) -> None:
        if not await _unless(stop, self._synced()):
            return
        log.info("ready", kinds=[controller.name for controller in self._controllers])
        groups: dict[Elector | None, list[Controller]] = {}
        for controller in self._controllers:
            groups.setdefault(self._electors.get(controller.name), []).append(controller)
        try:
            async with asyncio.TaskGroup() as group:
                holding: list[asyncio.Task[None]] = []
                working = [
                    group.create_task(self._lead(elector, controllers, stop, group, holding))
                    for elector, controllers in groups.items()
                ]
                await asyncio.wait(working)
                await self._recorder.flush(FLUSH_SECONDS)
                for task in holding:
                    task.cancel()
        finally:
            # A lost lease need not be released.
            held = [elector for elector in groups if elector and (elector.is_leading or stop.is_set())]
            await asyncio.gather(*(elector.release() for elector in held))

    async def _synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.settled.wait()
        # Thousands of views will live long: keep the collector from walking them again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    async def _lead(
        self,
        elector: Elector | None,
        controllers: Sequence[Controller],
        stop: asyncio.Event,
        group: asyncio.TaskGroup,
        holding: list[asyncio.Task[None]],
    ) -> None:
        """Work from the moment when the lease is held until ``stop``; the lease is held until ``holding`` ends."""
        if elector is not None:
            if not await _unless(stop, elector.acquire()):
                return
            holding.append(group.create_task(elector.hold()))
        workers = [
            group.create_task(controller.work(only_urgent=number >= controller.workers))
            for controller in controllers
            for number in range(controller.workers + RESERVED)
        ]
        await stop.wait()
        log.info("stopping: finishing the passes in hand", kinds=[controller.name for controller in controllers])
        for controller in controllers:
            controller.queue.close()
        _, unfinished = await asyncio.wait(workers, timeout=DRAIN_SECONDS)
        for task in unfinished:
            task.cancel()


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run ``work`` to its end, or give it up when ``stop`` comes first; True when it ended."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        task.cancel()
        stopped.cancel()
        await asyncio.wait((task, stopped))  # what it had begun has ended before anything is undone
