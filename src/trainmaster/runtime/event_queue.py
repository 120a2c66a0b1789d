"""Events that wait to be sent: fair between namespaces and jobs, bounded, and without a clock of its own.

Events of one job keep their order, so at most one of them is being sent. Namespaces take turns, and the jobs of a
namespace take turns. Jobs with a Warning come first, but every fourth turn belongs to the others. A job that has many
events is slowed down: they wait, and when too many wait, its oldest Normal events are dropped.
"""

import heapq
from collections import OrderedDict, deque
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from trainmaster.core.ids import Key, Resource
from trainmaster.core.plan import Event
from trainmaster.runtime.turns import Turns

WARNING = "Warning"
TURNS_OF_WARNINGS = 3
"""How many jobs with Warnings come in a row while others wait."""


class EventLimits(NamedTuple):
    total: int = 8192
    """Events that may wait."""
    of_job: int = 64
    """Events of one job that may wait."""
    burst: int = 50
    """Events of one job that are sent without a pause."""
    period: float = 10.0
    """Seconds in which a job may send one more event after its burst."""
    jobs: int = 4096
    """Jobs whose bursts are remembered."""


LIMITS = EventLimits()


class Note(NamedTuple):
    """One event, and when it was recorded."""

    resource: Resource
    job: Key
    uid: str
    component: str
    event: Event
    name: str
    """Of the Event object. A retry has the same."""
    at: datetime
    since: float
    """Seconds, of the clock that the queue is asked with."""
    tries: int = 0

    @property
    def is_warning(self) -> bool:
        return self.event.type == WARNING


class _Bucket(msgspec.Struct):
    tokens: float
    since: float


class _Job(msgspec.Struct):
    """What waits of one job."""

    namespace: str
    notes: deque[Note]
    retry_at: float = float("-inf")
    state: Literal["new", "delayed", "has turn", "in hand"] = "new"

    @property
    def has_warning(self) -> bool:
        return any(note.is_warning for note in self.notes)


class EventQueue:
    def __init__(self, limits: EventLimits = LIMITS) -> None:
        self._limits = limits
        self._jobs: dict[str, _Job] = {}
        self._waiting = 0
        self._by_namespace: dict[str, OrderedDict[str, None]] = {}
        self._urgent: Turns[str] = Turns()
        self._calm: Turns[str] = Turns()
        self._delayed: list[tuple[float, str]] = []
        self._urgent_turns = 0
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        """Events that wait, without those that are being sent."""
        return self._waiting

    @property
    def is_empty(self) -> bool:
        return not self._jobs

    def add(self, note: Note, now: float) -> Note | None:
        """Returns the event that had to be dropped for it, if one had to."""
        job = self._jobs.setdefault(note.uid, _Job(note.job.namespace, deque()))
        is_full, had_notes = self._waiting >= self._limits.total, bool(job.notes)
        job.notes.append(note)
        self._count(note.uid, job, 1)
        self._schedule(note.uid, job, now)
        if len(job.notes) > self._limits.of_job or (is_full and had_notes):
            return self._drop_from(note.uid)
        if is_full:
            victim = self._first_of_longest_namespace()
            has_normal = any(not each.is_warning for each in self._jobs[victim].notes)
            return self._drop_from(victim if has_normal or note.is_warning else note.uid)
        return None

    def take(self, now: float, *, hurry: bool = False) -> Note | None:
        """The next event, if one can be sent now. ``hurry`` does not wait for jobs that are slowed down or failed."""
        self._wake(float("inf") if hurry else now)
        is_urgent = bool(self._urgent) and not (self._calm and self._urgent_turns >= TURNS_OF_WARNINGS)
        uid = (self._urgent if is_urgent else self._calm).take()
        if uid is None:
            return None
        self._urgent_turns = self._urgent_turns + 1 if is_urgent else 0
        job = self._jobs[uid]
        job.state = "in hand"
        note = job.notes.popleft()
        self._count(uid, job, -1)
        return note

    def done(self, note: Note, now: float) -> None:
        """It was sent, or given up."""
        self._spend(note.uid, now)
        self._free(note.uid, now)

    def retry(self, note: Note, at: float, now: float) -> None:
        """It is sent again, before all later ones of its job and not before ``at``."""
        job = self._jobs[note.uid]
        job.notes.appendleft(note._replace(tries=note.tries + 1))
        self._count(note.uid, job, 1)
        job.retry_at = at
        self._free(note.uid, now)

    def next_at(self) -> float | None:
        """When the next event can be sent that cannot be sent now."""
        return self._delayed[0][0] if self._delayed else None

    # --- inside ---

    def _free(self, uid: str, now: float) -> None:
        job = self._jobs[uid]
        job.state = "new"
        if job.notes:
            self._schedule(uid, job, now)
        else:
            del self._jobs[uid]

    def _schedule(self, uid: str, job: _Job, now: float) -> None:
        at = max(job.retry_at, self._allowed_at(uid, now))
        if job.state == "new" and at > now:
            job.state = "delayed"
            heapq.heappush(self._delayed, (at, uid))
        elif job.state in ("new", "has turn"):
            self._give_turn(uid, job)

    def _give_turn(self, uid: str, job: _Job) -> None:
        turns, other = (self._urgent, self._calm) if job.has_warning else (self._calm, self._urgent)
        other.discard(job.namespace, uid)
        turns.add(job.namespace, uid)
        job.state = "has turn"

    def _wake(self, until: float) -> None:
        while self._delayed and self._delayed[0][0] <= until:
            _, uid = heapq.heappop(self._delayed)
            job = self._jobs[uid]
            if job.notes:
                self._give_turn(uid, job)
            else:
                del self._jobs[uid]

    def _drop_from(self, uid: str) -> Note:
        """The oldest Normal event; the oldest of all if there are only Warnings."""
        job = self._jobs[uid]
        number = next((number for number, note in enumerate(job.notes) if not note.is_warning), 0)
        dropped = job.notes[number]
        del job.notes[number]
        self._count(uid, job, -1)
        if not job.notes and job.state == "has turn":
            self._urgent.discard(job.namespace, uid)
            self._calm.discard(job.namespace, uid)
            del self._jobs[uid]
        return dropped

    def _first_of_longest_namespace(self) -> str:
        """The job that waits for longest in the namespace with most jobs."""
        longest = max(self._by_namespace, key=lambda namespace: len(self._by_namespace[namespace]))
        return next(iter(self._by_namespace[longest]))

    def _count(self, uid: str, job: _Job, change: int) -> None:
        self._waiting += change
        jobs = self._by_namespace.setdefault(job.namespace, OrderedDict())
        if job.notes:
            jobs.setdefault(uid, None)
        else:
            jobs.pop(uid, None)
        if not jobs:
            del self._by_namespace[job.namespace]

    def _allowed_at(self, uid: str, now: float) -> float:
        bucket = self._buckets.get(uid)
        if bucket is None:
            return now
        tokens = self._tokens(bucket, now)
        return now if tokens >= 1.0 else now + (1.0 - tokens) * self._limits.period

    def _spend(self, uid: str, now: float) -> None:
        bucket = self._buckets.pop(uid, None) or _Bucket(float(self._limits.burst), now)
        self._buckets[uid] = _Bucket(max(self._tokens(bucket, now) - 1.0, 0.0), now)
        if len(self._buckets) > self._limits.jobs:
            self._buckets.popitem(last=False)

    def _tokens(self, bucket: _Bucket, now: float) -> float:
        return min(bucket.tokens + (now - bucket.since) / self._limits.period, float(self._limits.burst))
