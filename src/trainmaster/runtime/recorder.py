"""Events on jobs: what happened, for ``kubectl describe``.

Recording never fails a pass and never makes it wait: events go into a bounded queue (``event_queue``), and some senders
send them at a bounded rate. An event that the API server could not take is sent again. The same event again raises the
count of the first instead of a new one.
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import structlog

from trainmaster.core.errors import (
    AlreadyExists,
    NotFound,
    ServerError,
    Terminating,
    TooManyRequests,
    Trainmaster,
    Unreachable,
)
from trainmaster.core.ids import EVENT, Key, Resource
from trainmaster.core.plan import Event
from trainmaster.core.view import JobView
from trainmaster.runtime import metrics
from trainmaster.runtime.backoff import EVENTS, Backoff
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.event_queue import EventQueue, Note

SENDERS = 6
REMEMBERED = 4096
MESSAGE_LIMIT = 1024
INTERVAL = 0.02
"""Seconds between two events of one sender: a burst of jobs must not compete with its own pods for the API server."""
BUSY_POLL = 0.1
CLOCK_STEP = 0.001
"""Seconds added to each wait: a timer may fire slightly early, and the event is not due then."""
PATIENCE = 10.0
"""Seconds from its recording that an event lets waiting jobs go first."""
RETRIED_FOR = 600.0
"""Seconds from its recording in which an event is sent again after a failure that may pass."""
REPORT_PERIOD = 60.0
"""Seconds between two lines of the log about events that did not fit into the queue."""

_PASSING = (Unreachable, TooManyRequests, ServerError)

log = structlog.get_logger(__name__)


class _Sent(msgspec.Struct):
    name: str
    count: int


class Recorder:
    """``is_busy`` says whether jobs wait to be worked on: events then wait too, for a bounded time."""

    def __init__(
        self, cluster: Cluster, now: Callable[[], datetime], is_busy: Callable[[], bool] = lambda: False
    ) -> None:
        self._cluster = cluster
        self._now = now
        self._is_busy = is_busy
        self._is_flushing = False
        self._queue = EventQueue()
        self._changed = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._backoff = Backoff(*EVENTS)
        self._dropped = 0
        self._reported_at = float("-inf")
        self._sent: OrderedDict[tuple[str, Event], _Sent] = OrderedDict()
        self._numbers = itertools.count()

    def record(self, resource: Resource, job: JobView, component: str, event: Event) -> None:
        event = Event(event.type, event.reason, _cut(event.message))
        now = _loop_time()
        at = self._now()
        # Like client-go: readable by the job's name, unique by the time; many may share a microsecond.
        name = f"{job.key.name[:200]}.{int(at.timestamp() * 1e6):x}{next(self._numbers) & 0xFFF:03x}"
        if self._queue.add(Note(resource, job.key, job.uid, component, event, name, at, now), now) is not None:
            metrics.EVENTS_DROPPED.labels("queue full").inc()
            self._dropped += 1
        if self._dropped and now >= self._reported_at + REPORT_PERIOD:
            log.warning("events dropped: there were too many", events=self._dropped)
            self._dropped, self._reported_at = 0, now
        self._emptied.clear()
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(self._send_all())

    async def flush(self, timeout: float) -> None:
        """Wait until everything recorded so far is sent; ``run`` does the sending."""
        self._is_flushing = True
        self._changed.set()
        try:
            async with asyncio.timeout(timeout):
                await self._emptied.wait()
        except TimeoutError:
            metrics.EVENTS_DROPPED.labels("shut down").inc(len(self._queue))

    async def _send_all(self) -> None:
        while True:
            note = self._queue.take(_loop_time(), hurry=self._is_flushing)
            if note is None:
                await self._wait()
                continue
            await self._calm(note)
            is_sent = await self._send(note)
            await asyncio.sleep(INTERVAL)
            now = _loop_time()
            if is_sent:
                self._queue.done(note, now)
            else:
                self._queue.retry(note, now + self._backoff.delay(note.tries + 1), now)
                self._changed.set()  # for the other senders, which wait for the time that was the next

    async def _wait(self) -> None:
        """Until something is recorded, or the next event that was put off is due."""
        if self._queue.is_empty:
            self._emptied.set()
        self._changed.clear()
        with suppress(TimeoutError):
            next_at = self._queue.next_at()
            async with asyncio.timeout_at(None if next_at is None else next_at + CLOCK_STEP):
                await self._changed.wait()

    async def _calm(self, note: Note) -> None:
        until = note.since + PATIENCE
        while not self._is_flushing and self._is_busy() and _loop_time() < until:  # noqa: ASYNC110 queues have no event
            await asyncio.sleep(BUSY_POLL)

    async def _send(self, note: Note) -> bool:
        """False if it is to be sent again."""
        try:
            if not ((sent := self._sent.get(_identity(note))) and await self._repeat(note, sent)):
                await self._first(note)
        except _PASSING as error:
            if _loop_time() < note.since + RETRIED_FOR:
                return False
            self._give_up(note, error)
        except Terminating:
            log.debug("event not recorded: its namespace is being deleted", job=str(note.job))
        except Trainmaster as error:
            self._give_up(note, error)
        except Exception:
            # Whatever it is, the jobs go on without this event.
            metrics.EVENTS_DROPPED.labels("defect").inc()
            log.exception("event not recorded by a defect in trainmaster", job=str(note.job), reason=note.event.reason)
        return True

    def _give_up(self, note: Note, error: Trainmaster) -> None:
        metrics.EVENTS_DROPPED.labels("refused").inc()
        log.warning("event not recorded", job=str(note.job), reason=note.event.reason, because=str(error))

    async def _first(self, note: Note) -> None:
        try:
            await self._cluster.create(EVENT, note.job.namespace, msgspec.json.encode(_body(note)))
        except AlreadyExists:
            if not note.tries:
                raise
            # The API server had taken it; only its answer was lost.
        self._sent[_identity(note)] = _Sent(note.name, 1)
        if len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)

    async def _repeat(self, note: Note, sent: _Sent) -> bool:
        patch = msgspec.json.encode({"count": sent.count + 1, "lastTimestamp": _seconds(note.at)})
        try:
            await self._cluster.patch(EVENT, Key(note.job.namespace, sent.name), patch)
        except NotFound:  # events live for an hour
            del self._sent[_identity(note)]
            return False
        sent.count += 1
        return True


def _identity(note: Note) -> tuple[str, Event]:
    return note.uid, note.event


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _body(note: Note) -> dict[str, object]:
    at = _seconds(note.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": note.name, "namespace": note.job.namespace},
        "involvedObject": {
            "apiVersion": note.resource.api_version,
            "kind": note.resource.kind,
            "namespace": note.job.namespace,
            "name": note.job.name,
            "uid": note.uid,
        },
        "type": note.event.type,
        "reason": note.event.reason,
        "message": note.event.message,
        "source": {"component": note.component},
        "reportingComponent": note.component,
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
    }


def _seconds(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cut(message: str) -> str:
    """The API server refuses events of more than 1024 bytes of message."""
    raw = message.encode(errors="replace")
    return raw.decode() if len(raw) <= MESSAGE_LIMIT else raw[: MESSAGE_LIMIT - 4].decode(errors="ignore") + " …"
