"""Why batch Jobs get no pods.

The Job controller says in an Event of the Job, and nowhere else, that the API server refused its pod. Events are not
watched: a cluster has many, and few are of use. They are read for a Job that has had no pod for some time, at most one
Job in a pass and one read in a while for each of our jobs.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from trainmaster.core.errors import ApiError, TooLarge, Unreachable, without_subject
from trainmaster.core.ids import EVENT, POD
from trainmaster.core.plan import Create
from trainmaster.core.view import ChildView, JobView
from trainmaster.kinds.base import Failure
from trainmaster.lifecycle.facts import EVENTS_PERIOD
from trainmaster.runtime.cluster import Cluster

FAILED_CREATE = "FailedCreate"
"""The reason of such an Event."""
RECENT = timedelta(minutes=10)
"""An Event that is older says nothing about now. The Job controller tries again at least once in a minute, and one
Event in five minutes gets through if there are many."""
MOST_EVENTS = 50
MOST_BYTES = 256 * 1024
"""Of one answer. Whoever may create Events in a namespace decides how large they are."""
LONGEST = 1024
"""Characters that are kept of a message."""
_PREFIXES = ("(combined from similar events): ", "Error creating: ")


class _Event(msgspec.Struct, rename="camel"):
    message: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    first_timestamp: datetime | None = None

    @property
    def time(self) -> datetime | None:
        return self.last_timestamp or self.event_time or self.first_timestamp


class _Page(msgspec.Struct):
    items: list[_Event] = []


class PodRefusals:
    def __init__(self, cluster: Cluster, now: Callable[[], datetime]) -> None:
        self._cluster, self._now = cluster, now
        self._read_at: dict[str, datetime] = {}
        """By the uid of our job."""

    async def of(self, job: JobView, podless: Sequence[ChildView]) -> list[Failure]:
        """The refusal of the first one's pod, as if we had tried to create it; empty if none is known, or if Events
        were read not long ago."""
        now, last = self._now(), self._read_at.get(job.uid)
        if not podless or (last and now - last < timedelta(seconds=EVENTS_PERIOD)):
            return []
        self._read_at[job.uid] = now
        child = podless[0]
        try:
            events = await self._events(child)
        except (ApiError, Unreachable, TooLarge, msgspec.MsgspecError):
            return []  # without the right to read Events, too: an operator works without it
        recent = [(event.time, event.message) for event in events if event.time and now - event.time < RECENT]
        metadata = {"namespace": child.key.namespace, "name": child.key.name, "labels": {}}
        return [Failure(Create(POD, {"metadata": metadata}, ""), _refusal(max(recent)[1]))] if recent else []

    def forget(self, uid: str) -> None:
        self._read_at.pop(uid, None)

    async def _events(self, child: ChildView) -> list[_Event]:
        body = await self._cluster.list(
            EVENT,
            namespace=child.key.namespace,
            fields=f"involvedObject.uid={child.uid},reason={FAILED_CREATE}",
            limit=MOST_EVENTS,
            max_bytes=MOST_BYTES,
        )
        return msgspec.json.decode(body, type=_Page).items


def _refusal(message: str) -> str:
    for prefix in _PREFIXES:
        message = message.removeprefix(prefix)
    return without_subject(message)[:LONGEST]
