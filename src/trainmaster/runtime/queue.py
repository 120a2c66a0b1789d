"""The key queue: which job to look at next. It holds keys, never events or objects.

A key waits at most once; adding it again takes the earlier time and the higher priority. A key that is
being worked on and is added meanwhile comes back when it is done. A key that failed is not worked on
again before ``backoff.base`` has passed, however many events ask for it: no job can spin. Some workers take urgent
keys alone: what people wait to see does not wait for jobs whose requests the API server holds up.

Keys of the same priority come by namespaces in turn. Keys of one namespace occupy at most ``share`` workers at a time,
so that a worker is free for another namespace; workers for urgent keys do not count.
"""

import asyncio
import heapq
import itertools
from collections import Counter, deque
from typing import NamedTuple, Protocol

from trainmaster.core.ids import Key
from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.turns import Turns

URGENT = 2
"""A pod changed its phase: people wait to see that on the job."""
SOON = 1
"""The job changed. That is mostly our own status, and the next phase may wait behind it."""
NORMAL = 0
STARTUP = -1
"""Work found at start: ten thousand old jobs must not keep a new one waiting."""
_PRIORITIES = (URGENT, SOON, NORMAL, STARTUP)


class QueueClosed(Exception):
    """No more keys will come."""


class QueueObserver(Protocol):
    def added(self) -> None: ...
    def taken(self, waited: float) -> None: ...
    def retried(self) -> None: ...


class _Entry(NamedTuple):
    due: float
    priority: int
    since: float


class KeyQueue:
    def __init__(self, backoff: Backoff, observer: QueueObserver, *, share: int) -> None:
        """``share`` is the number of keys of one namespace that ordinary workers may have at the same time."""
        self._backoff = backoff
        self._observer = observer
        self._share = share
        self._order = itertools.count()
        self._entries: dict[Key, _Entry] = {}
        self._ready: dict[int, Turns[Key]] = {priority: Turns() for priority in _PRIORITIES}
        self._delayed: list[tuple[float, int, Key, _Entry]] = []
        self._working: set[Key] = set()
        self._counted: set[Key] = set()
        """Keys that ordinary workers have."""
        self._of_namespace: Counter[str] = Counter()
        """How many of these each namespace has."""
        self._full: set[str] = set()
        """Namespaces that have their share of the workers."""
        self._again: dict[Key, _Entry] = {}
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._reserved: deque[asyncio.Future[None]] = deque()
        """Waiters of the workers that take urgent keys only."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Keys that could be worked on now."""
        return sum(map(len, self._ready.values()))

    @property
    def is_busy(self) -> bool:
        """Keys wait for a worker."""
        return any(self._ready.values()) and not self._is_closed

    def add(self, key: Key, *, after: float = 0.0, priority: int = NORMAL) -> None:
        now = self._now()
        due = max(now + after, self._not_before.get(key, 0.0))
        entry = _Entry(due, priority, now)
        waiting = self._again if key in self._working else self._entries
        if old := waiting.get(key):
            entry = _Entry(min(due, old.due), max(priority, old.priority), old.since)
            if entry == old:
                return
            self._ready[old.priority].discard(key.namespace, key)
        self._observer.added()
        waiting[key] = entry
        if waiting is self._entries:
            self._schedule(key, entry)

    async def get(self, *, only_urgent: bool = False) -> Key:
        """The most urgent key, or with ``only_urgent`` one that is. It is being worked on until ``done``."""
        waiters = self._reserved if only_urgent else self._waiters
        while not self._is_closed:
            key = self._pop(only_urgent=only_urgent)
            self._wake_next()
            if key is not None:
                return key
            waiter = asyncio.get_running_loop().create_future()
            waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done():
                    self._wake_next()
                raise
        raise QueueClosed

    def done(self, key: Key) -> None:
        self._working.discard(key)
        if key in self._counted:
            self._uncount(key)
        if entry := self._again.pop(key, None):
            due = max(entry.due, self._not_before.get(key, 0.0))
            entry = entry._replace(due=due)
            self._entries[key] = entry
            self._schedule(key, entry)

    def retry(self, key: Key) -> float:
        """Try again later, later each time; returns in how many seconds."""
        self._failures[key] = failures = self._failures.get(key, 0) + 1
        self._not_before[key] = self._now() + self._backoff.base
        delay = self._backoff.delay(failures)
        self._observer.retried()
        self.add(key, after=delay)
        return delay

    def retry_all(self) -> None:
        """Try all that failed now: what they failed for may be over. Their next failure still counts as one more."""
        for key in self._failures:
            self.add(key, priority=STARTUP)

    def failures(self, key: Key) -> int:
        return self._failures.get(key, 0)

    def forget(self, key: Key) -> None:
        """It went well: the next failure starts from the beginning."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def close(self) -> None:
        self._is_closed = True
        if self._timer:
            self._timer.cancel()
        while _wake(self._waiters) or _wake(self._reserved):
            pass

    def _schedule(self, key: Key, entry: _Entry) -> None:
        if entry.due <= self._now():
            self._make_ready(key, entry)
        else:
            heapq.heappush(self._delayed, (entry.due, next(self._order), key, entry))
            self._tidy()
            self._arm()

    def _tidy(self) -> None:
        """A job with a far deadline leaves an outdated place behind in each pass: keep them in proportion."""
        if len(self._delayed) > 2 * len(self._entries) + 64:
            self._delayed = [place for place in self._delayed if self._entries.get(place[2]) is place[3]]
            heapq.heapify(self._delayed)

    def _pop(self, *, only_urgent: bool) -> Key | None:
        for priority in (URGENT,) if only_urgent else _PRIORITIES:
            key = self._ready[priority].take(() if only_urgent else self._full)
            if key is not None:
                entry = self._entries.pop(key)
                self._working.add(key)
                if not only_urgent:
                    self._count(key)
                self._observer.taken(self._now() - max(entry.since, entry.due))
                return key
        return None

    def _count(self, key: Key) -> None:
        self._counted.add(key)
        self._of_namespace[key.namespace] += 1
        if self._of_namespace[key.namespace] >= self._share:
            self._full.add(key.namespace)

    def _uncount(self, key: Key) -> None:
        self._counted.discard(key)
        self._of_namespace[key.namespace] -= 1
        if not self._of_namespace[key.namespace]:
            del self._of_namespace[key.namespace]
        if key.namespace in self._full:
            self._full.discard(key.namespace)
            self._wake_next()

    def _wake_next(self) -> None:
        """A woken worker may take another key than the one that it was woken for, or none: then that key is left."""
        if any(turns.has_turn(self._full) for turns in self._ready.values()):
            _wake(self._waiters)
        if self._ready[URGENT]:
            _wake(self._reserved)

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._delayed and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_at(self._delayed[0][0], self._fire)

    def _fire(self) -> None:
        # A timer may fire a hair early: what it was armed for is due, whatever the clock says.
        now = max(self._now(), self._delayed[0][0])
        while self._delayed and self._delayed[0][0] <= now:
            _, _, key, entry = heapq.heappop(self._delayed)
            if self._entries.get(key) is entry:
                self._make_ready(key, entry)
        self._arm()

    def _make_ready(self, key: Key, entry: _Entry) -> None:
        self._ready[entry.priority].add(key.namespace, key)
        # One waiter a key, since waking all of them would cost workers × keys; reserved workers first.
        if entry.priority == URGENT and _wake(self._reserved):
            return
        if key.namespace not in self._full:
            _wake(self._waiters)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _wake(waiters: deque[asyncio.Future[None]]) -> bool:
    """Wake the one that waits longest, if there is one."""
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return True
    return False
