"""A work queue with one task: each queued item is handled once, however often it was added."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import structlog

from trainmaster.local.apiserver.store.store import StoreFailed

_BATCH = 50
_SLOWEST = 30.0

log = structlog.get_logger()

T = TypeVar("T", bound=Hashable)


class Worker(Generic[T]):
    """``handle`` is called with each item, in order. After an error of the disk the item is retried."""

    def __init__(self, name: str, handle: Callable[[T], None]) -> None:
        self._name = name
        self._handle = handle
        self._items: dict[T, None] = {}
        self._event = asyncio.Event()
        self._timers: dict[T, asyncio.TimerHandle] = {}

    def add(self, item: T) -> None:
        self._items[item] = None
        self._event.set()

    def add_after(self, item: T, seconds: float) -> None:
        """Adds the item after some seconds. An earlier timer of the item is replaced."""
        self.forget(item)
        self._timers[item] = asyncio.get_running_loop().call_later(seconds, self._add_due, item)

    def forget(self, item: T) -> None:
        """Cancels the timer of this item."""
        timer = self._timers.pop(item, None)
        if timer is not None:
            timer.cancel()

    def _add_due(self, item: T) -> None:
        del self._timers[item]
        self.add(item)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run(), name=f"apiserver-{self._name}")
        try:
            yield
        finally:
            for item in tuple(self._timers):
                self.forget(item)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        pause = 1.0
        while True:
            await self._event.wait()
            self._event.clear()
            while self._items:
                if self._work():
                    pause = 1.0
                    await asyncio.sleep(0)  # let requests run first
                else:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _SLOWEST)

    def _work(self) -> bool:
        """Handles some items; False if the disk refused a write."""
        for _ in range(_BATCH):
            if not self._items:
                break
            item = next(iter(self._items))
            del self._items[item]
            try:
                self._handle(item)
            except StoreFailed as error:
                self._items[item] = None
                log.warning("the disk refused a write, retrying", what=self._name, why=str(error))
                return False
            except Exception:
                # An error of one object must not stop the others.
                log.exception("an object could not be handled", what=self._name, item=str(item))
        return True
