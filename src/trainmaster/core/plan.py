"""The decision of a kind as data: ``runtime.executor`` applies it, other callers print it.

Every action has a ``why``, which the log and the Event show.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trainmaster.core.ids import Key, Resource
from trainmaster.core.view import ChildView, PodView, ServiceView

MAX_ACTIONS = 500
"""Actions in one pass: a large job takes several passes, so that it cannot starve the others."""
MAX_BYTES = 4 * 1024 * 1024
"""Bytes of JSON that one pass creates: pods with a large environment are created a few at a time. A body in memory
may need six times as much."""
MAX_REPLICAS = 10_000
"""Replicas of a job, all roles together. A plan visits every replica, also those that it does not create."""

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
    """Seconds; None uses the grace period of the object, 0 force-deletes it."""


class Patch(msgspec.Struct, frozen=True):
    """A JSON merge patch of an object that the job owns. The API server refuses it if the object has changed."""

    resource: Resource
    key: Key
    uid: str
    version: int
    body: Body
    why: str


class Batch(msgspec.Struct, frozen=True):
    """The creates of one pass. ``retry_after`` is set if the next pass may have more of them."""

    creates: tuple[Create, ...] = ()
    retry_after: float | None = None


def batch_of(creates: Iterable[Create]) -> Batch:
    """Takes creates up to MAX_ACTIONS or MAX_BYTES. If ``creates`` is a generator, the other bodies are never built."""
    batch: list[Create] = []
    size = 0
    for create in creates:
        batch.append(create)
        size += len(msgspec.json.encode(create.body))
        if len(batch) == MAX_ACTIONS or size >= MAX_BYTES:
            return Batch(tuple(batch), retry_after=0.0)
    return Batch(tuple(batch))


def replicas_error(total: int, fields: str = "replicas") -> str:
    """The error if a job has too many replicas; empty otherwise."""
    if total <= MAX_REPLICAS:
        return ""
    return f"the replicas of all roles add up to {total}, and a job may have {MAX_REPLICAS}; lower {fields}"


def deletions(
    resource: Resource, views: Iterable[PodView] | Iterable[ServiceView] | Iterable[ChildView], why: str
) -> tuple[Delete, ...]:
    """Deletes of these objects, by uid. Objects that are already being deleted are skipped."""
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
    """The earliest of several requeue times; None means never."""
    return min((s for s in seconds if s is not None), default=None)


LAZY = 5.0
"""Seconds that a status write may be delayed if only counters differ, so that several changes share one write."""
BRIEF = 0.2
"""Delay before storing a status that only adds succeeded replicas, so that simultaneous successes share one write. It
is short because the succeeded pods may be deleted."""


class Plan(msgspec.Struct, frozen=True):
    """The next step for one job. An empty Plan means that the job has settled.

    ``status`` is the whole new status, None if it does not change. With ``status_first`` the pass only stores the
    status: a verdict is stored before any irreversible action. ``lazy`` are the seconds that the status write may be
    delayed. ``ports`` are the ports that this status allocates. With ``counts_failure`` the status counts failed pods,
    those included that were deleted: nothing is stored if they were deleted with their namespace. ``podless`` are
    children that create pods by themselves and have had none for some time: their Events may say why.
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
    counts_failure: bool = False
    podless: tuple[ChildView, ...] = ()

    @property
    def is_quiet(self) -> bool:
        return not self.deletes and not self.creates and not self.patches and self.status is None

    def bounded(self, limit: int = MAX_ACTIONS) -> "Plan":
        """At most ``limit`` actions, deletes first. The next pass follows at once and plans the others again."""
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
