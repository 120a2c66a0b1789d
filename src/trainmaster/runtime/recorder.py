"""Events on jobs: what happened, for ``kubectl describe``.

Recording never fails a pass and never makes it wait: events go into a bounded queue and are sent in the
background at a bounded rate. The same event again raises the count of the first instead of a new one.
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import structlog

from trainmaster.core.errors import NotFound, Trainmaster
from trainmaster.core.ids import EVENT, Key, Resource
from trainmaster.core.plan import Event
from trainmaster.core.view import JobView
from trainmaster.runtime import metrics
from trainmaster.runtime.cluster import Cluster

QUEUE_LIMIT = 4096
REMEMBERED = 4096
MESSAGE_LIMIT = 1024
INTERVAL = 0.02
"""Seconds between two events: a burst of jobs must not compete with its own pods for the API server."""
BUSY_POLL = 0.1
PATIENCE = 10.0
"""Seconds from its recording that an event lets waiting jobs go first."""

log = structlog.get_logger(__name__)


class _Note(NamedTuple):
    resource: Resource
    job: Key
    uid: str
    component: str
    event: Event
    at: datetime
    since: float
    """The loop's time of its recording."""

    def identity(self) -> tuple[str, Event]:
        return self.uid, self.event


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
        self._queue: asyncio.Queue[_Note] = asyncio.Queue(QUEUE_LIMIT)
        self._sent: OrderedDict[tuple[str, Event], _Sent] = OrderedDict()
        self._numbers = itertools.count()

    def record(self, resource: Resource, job: JobView, component: str, event: Event) -> None:
        event = Event(event.type, event.reason, _cut(event.message))
        try:
            self._queue.put_nowait(_Note(resource, job.key, job.uid, component, event, self._now(), _loop_time()))
        except asyncio.QueueFull:
            metrics.EVENTS_DROPPED.labels("queue full").inc()

    async def run(self) -> None:
        while True:
            note = await self._queue.get()
            await self._calm(note)
            await self._send(note)
            self._queue.task_done()
            await asyncio.sleep(INTERVAL)

    async def flush(self, timeout: float) -> None:
        """Wait until everything recorded so far is sent; ``run`` does the sending."""
        self._is_flushing = True
        try:
            async with asyncio.timeout(timeout):
                await self._queue.join()
        except TimeoutError:
            metrics.EVENTS_DROPPED.labels("shut down").inc(self._queue.qsize())

    async def _calm(self, note: _Note) -> None:
        until = note.since + PATIENCE
        while not self._is_flushing and self._is_busy() and _loop_time() < until:  # noqa: ASYNC110 queues have no event
            await asyncio.sleep(BUSY_POLL)

    async def _send(self, note: _Note) -> None:
        try:
            if (sent := self._sent.get(note.identity())) and await self._repeat(note, sent):
                return
            await self._first(note)
        except Trainmaster as error:
            metrics.EVENTS_DROPPED.labels("refused").inc()
            log.warning("event not recorded", job=str(note.job), reason=note.event.reason, because=str(error))
        except Exception:
            # Whatever it is, the jobs go on without this event.
            metrics.EVENTS_DROPPED.labels("defect").inc()
            log.exception("event not recorded by a defect in trainmaster", job=str(note.job), reason=note.event.reason)

    async def _first(self, note: _Note) -> None:
        # Like client-go: readable by the job's name, unique by the time; many may share a microsecond.
        name = f"{note.job.name[:200]}.{int(note.at.timestamp() * 1e6):x}{next(self._numbers) & 0xFFF:03x}"
        await self._cluster.create(EVENT, note.job.namespace, msgspec.json.encode(_body(name, note)))
        self._sent[note.identity()] = _Sent(name, 1)
        if len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)

    async def _repeat(self, note: _Note, sent: _Sent) -> bool:
        sent.count += 1
        patch = msgspec.json.encode({"count": sent.count, "lastTimestamp": _seconds(note.at)})
        try:
            await self._cluster.patch(EVENT, Key(note.job.namespace, sent.name), patch)
        except NotFound:  # events live for an hour
            del self._sent[note.identity()]
            return False
        return True


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _body(name: str, note: _Note) -> dict[str, object]:
    at = _seconds(note.at)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": note.job.namespace},
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
