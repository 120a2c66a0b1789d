"""Deletes events an hour after their last write, as Kubernetes does."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from trainmaster.core.ids import EVENT
from trainmaster.local.apiserver.objects.state import State
from trainmaster.local.apiserver.store.store import Change, Place, StoreFailed

LIFETIME = 3600.0
# Events that are due within this time are deleted together.
_GATHER = 60.0


class _Due(NamedTuple):
    moment: float
    place: Place
    version: int


class EventExpiry:
    """Sleeps until the oldest event is due. The hour of events in the database begins at the start of the server."""

    def __init__(self, state: State) -> None:
        self._store = state.store
        self._clock = asyncio.get_running_loop().time
        self._due: deque[_Due] = deque()
        self._event = asyncio.Event()
        for stored in self._store.select(str(EVENT)):
            self._add(stored.place, stored.version)
        self._store.listen(self._observe)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run(), name="apiserver-expiry")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _observe(self, change: Change) -> None:
        if change.place.resource == str(EVENT) and change.after is not None:
            self._add(change.place, change.version)

    def _add(self, place: Place, version: int) -> None:
        self._due.append(_Due(self._clock() + LIFETIME, place, version))
        self._event.set()

    async def _run(self) -> None:
        while True:
            while self._due:
                await asyncio.sleep(max(0.0, self._due[0].moment - self._clock()) + _GATHER)
                self.expire()
            self._event.clear()
            await self._event.wait()

    def expire(self) -> None:
        """Deletes events that are due and were not written again."""
        now = self._clock()
        while self._due and self._due[0].moment <= now:
            due = self._due[0]
            stored = self._store.get(due.place)
            if stored is not None and stored.version == due.version:
                try:
                    self._store.remove(due.place)
                except StoreFailed:
                    return  # the disk is full: retried in a minute
            self._due.popleft()
