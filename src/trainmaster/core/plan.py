"""What a kind decided: data, to be applied by ``runtime.executor`` and shown by anybody.

Every action says ``why`` in the words of a user; the log, the Event and the explanation of a job all
show that one string.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trainmaster.core.ids import Key, Resource
from trainmaster.core.view import ChildView, PodView, ServiceView

MAX_ACTIONS = 500
"""Actions in one pass: a giant job takes several passes and cannot starve the others."""
MAX_BYTES = 4 * 1024 * 1024
"""Bodies that one pass creates, as JSON: pods with a large environment are created a few at a time. A body in memory
may need six times as much."""
MAX_REPLICAS = 10_000
"""Replicas of a job, all roles together. A plan looks at every replica, also at those that it does not create."""

Body = dict[str, Any]


class Create(msgspec.Struct, frozen=True):
    resource: Resource
    body: Body
    why: str

    @property
    def key(self) -> Key:
        meta = self.body["metadata"]
        return Key(meta["namespace"], meta["name"])


class Delete(msgspec.Struct, frozen=True):
    resource: Resource
    key: Key
    uid: str
    why: str
    grace: int | None = None
    """Seconds; None leaves it to the object, 0 does not wait for its node."""


class Patch(msgspec.Struct, frozen=True):
    """A JSON merge patch of something that the job owns, refused when it is not of this version any more."""

    resource: Resource
    key: Key
    uid: str
    version: int
    body: Body
    why: str


class Batch(msgspec.Struct, frozen=True):
    """The creates of one pass. ``retry_after`` is set when more may be left for the next pass."""

    creates: tuple[Create, ...] = ()
    retry_after: float | None = None


def batch_of(creates: Iterable[Create]) -> Batch:
    """Takes creates until there are MAX_ACTIONS of them or their bodies have MAX_BYTES. The rest is never built if
    ``creates`` builds one body at a time."""
    found: list[Create] = []
    size = 0
    for create in creates:
        found.append(create)
        size += len(msgspec.json.encode(create.body))
        if len(found) == MAX_ACTIONS or size >= MAX_BYTES:
            return Batch(tuple(found), retry_after=0.0)
    return Batch(tuple(found))


def replicas_error(total: int, fields: str = "replicas") -> str:
    """What is wrong with so many replicas in a job; empty when nothing is."""
    if total <= MAX_REPLICAS:
        return ""
    return f"the replicas of all roles add up to {total}, and a job may have {MAX_REPLICAS}; lower {fields}"


def deletions(
    resource: Resource, views: Iterable[PodView] | Iterable[ServiceView] | Iterable[ChildView], why: str
) -> tuple[Delete, ...]:
    """Deletes of exactly these incarnations; what is on its way out already is left alone."""
    return tuple(Delete(resource, view.key, view.uid, why) for view in views if not view.deleting)


class Event(msgspec.Struct, frozen=True):
    type: str
    reason: str
    message: str


def normal(reason: str, message: str) -> Event:
    return Event("Normal", reason, message)


def warning(reason: str, message: str) -> Event:
    return Event("Warning", reason, message)


def soonest(*seconds: float | None) -> float | None:
    """The earliest of several times to look again; None is never."""
    return min((s for s in seconds if s is not None), default=None)


LAZY = 5.0
"""Seconds that a status may wait for company that differs in counters alone."""
BRIEF = 0.2
"""The same of one that tells of a success: others mostly follow at once, and its pod may be cleared away."""


class Plan(msgspec.Struct, frozen=True):
    """The next step for one job. An empty Plan means that the job has settled.

    ``status`` is the whole new status, None when it stays as it is. With ``status_first`` the pass only
    stores it: a verdict is on record before anything irreversible follows from it. ``lazy`` are the seconds
    that the status may wait, to be stored together with more. ``ports`` are those that this status takes and
    nobody had before.
    """

    deletes: tuple[Delete, ...] = ()
    creates: tuple[Create, ...] = ()
    patches: tuple[Patch, ...] = ()
    status: Mapping[str, Any] | None = None
    status_first: bool = False
    lazy: float = 0.0
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None
    ports: tuple[int, ...] = ()

    @property
    def is_quiet(self) -> bool:
        return not self.deletes and not self.creates and not self.patches and self.status is None

    def bounded(self, limit: int = MAX_ACTIONS) -> "Plan":
        """At most ``limit`` actions, deletes first. What is cut is planned again in the next pass, which follows at
        once."""
        if len(self.deletes) + len(self.creates) + len(self.patches) <= limit:
            return self
        deletes = self.deletes[:limit]
        creates = self.creates[: limit - len(deletes)]
        patches = self.patches[: limit - len(deletes) - len(creates)]
        return msgspec.structs.replace(self, deletes=deletes, creates=creates, patches=patches, requeue_after=0.0)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Body:
    """The JSON merge patch (RFC 7386) that turns ``old`` into ``new``; empty when they are equal."""
    patch: Body = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
