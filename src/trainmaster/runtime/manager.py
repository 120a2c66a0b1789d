"""Starts everything in order and ends it in order.

Reflectors first; ready when all stores are complete, but for what the API server does not have; workers only while
leading. SIGTERM (``stop``) closes the queues, lets every pass in hand end, sends the events that are left and gives
the lease back.
"""

import asyncio
import gc
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

from trainmaster.runtime.controller import RESERVED, Controller
from trainmaster.runtime.elector import Elector
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.reflector import Reflector

DRAIN_SECONDS = 20.0
FLUSH_SECONDS = 3.0

GC_THRESHOLDS = (20_000, 20, 50)
"""Views and requests come by the thousand and hold no cycles: look for cycles rarely."""

log = structlog.get_logger(__name__)


class Manager:
    def __init__(
        self,
        reflectors: Sequence[Reflector[Any]],
        controllers: Sequence[Controller],
        recorder: Recorder,
        elector: Elector | None,
    ) -> None:
        self._reflectors = reflectors
        self._controllers = controllers
        self._recorder = recorder
        self._elector = elector

    @property
    def is_ready(self) -> bool:
        """True once every store has seen a complete list of what there is; a standby is ready too."""
        return all(reflector.settled.is_set() for reflector in self._reflectors)

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop`` is set, or an error ends it. Losing the lease is such an error."""
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(reflector.run()) for reflector in self._reflectors]
            background.append(group.create_task(self._recorder.run()))
            await self._operate(stop)
            for task in background:
                task.cancel()

    async def _operate(self, stop: asyncio.Event) -> None:
        if not await _unless(stop, self._synced()):
            return
        log.info("ready", kinds=[controller.name for controller in self._controllers])
        if self._elector is None:
            await self._lead(stop)
            return
        try:
            if await _unless(stop, self._elector.acquire()):
                await self._lead(stop)
        finally:
            if self._elector.is_leading or stop.is_set():  # a lost lease need not be released
                await self._elector.release()

    async def _synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.settled.wait()
        # Thousands of views will live long: keep the collector from walking them again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    async def _lead(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            holding = group.create_task(self._elector.hold()) if self._elector else None
            workers = [
                group.create_task(controller.work(only_urgent=number >= controller.workers))
                for controller in self._controllers
                for number in range(controller.workers + RESERVED)
            ]
            await stop.wait()
            log.info("stopping: finishing the passes in hand")
            for controller in self._controllers:
                controller.queue.close()
            _, unfinished = await asyncio.wait(workers, timeout=DRAIN_SECONDS)
            for task in unfinished:
                task.cancel()
            await self._recorder.flush(FLUSH_SECONDS)
            if holding:
                holding.cancel()


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
