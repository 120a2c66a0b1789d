"""When the status of a job is stored, and what follows from it.

A pass whose status differs in counters alone waits for more, and the first status of a job waits while others get
their pods: both save writes. Metrics and Events of a status follow when it is stored, once, also when the answer of
the API server got lost.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from trainmaster.core.ids import Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import LAZY, Plan, merge_patch
from trainmaster.core.view import JobView
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.executor import Applied, Executor
from trainmaster.runtime.queue import KeyQueue

CREATED_POLL = 5.0
"""Seconds until a job that created something is looked at again, should no event come first."""


class Write(NamedTuple):
    """A status to store in the place of ``old``."""

    job: JobView
    old: dict[str, Any]
    plan: Plan


class StatusWriter:
    def __init__(
        self, kinds: ResourceKinds, executor: Executor, queue: KeyQueue, on_stored: Callable[[Write], None]
    ) -> None:
        self._kinds = kinds
        self._executor = executor
        self._queue = queue
        self._on_stored = on_stored
        self._deferred_since: dict[Key, float] = {}
        self._after_creates: set[Key] = set()
        """Jobs whose last pass created something and left the status to the next one."""
        self._creating = 0
        """Passes that are creating something now."""
        self._yielded: set[Key] = set()
        """Jobs whose first status waits until no pass creates anything."""
        self._unconfirmed: dict[Key, Write] = {}
        """Statuses that are being stored, or whose answer got lost."""

    @property
    def resource(self) -> Resource:
        return self._kinds.resource

    @contextmanager
    def creating(self, plan: Plan) -> Iterator[None]:
        """While the actions of a plan are applied. When no creates are in flight any more, jobs whose first status was
        deferred are enqueued again."""
        self._creating += bool(plan.creates)
        try:
            yield
        finally:
            self._creating -= bool(plan.creates)
            if not self._creating:
                for key in self._yielded:
                    self._queue.add(key)
                self._yielded.clear()

    async def write(self, job: JobView, plan: Plan, applied: Applied, observed: Observed) -> None:
        """Stores the status of a plan, unless it may wait."""
        if applied.created and not applied.failures and job.key not in self._after_creates:
            self._after_creates.add(job.key)  # not twice in a row: a child that vanishes at once must not hide it
            # The events of these creates bring the next pass about, and its status will count them. The delay is
            # for a watch that never shows them because they were gone before it was resumed.
            self._queue.add(job.key, after=CREATED_POLL)
            return
        self._after_creates.discard(job.key)
        if plan.status is None:
            self._deferred_since.pop(job.key, None)
            return
        old = self._kinds.of(job.raw).known_status(job)
        is_waiting = (
            not (old or applied.failures or plan.status_first)  # its pods wait for that status
            and all(p.phase == "Pending" for p in observed.all_pods)
        )
        if self.is_due(job.key, plan.lazy, is_waiting=is_waiting):
            await self._store(Write(job, old, plan))

    def is_due(self, key: Key, delay: float, *, is_waiting: bool) -> bool:
        """Counters alone wait a little: the phase change that follows takes them along. The first status, which
        only says that a job waits, yields to jobs that are getting their pods."""
        now = asyncio.get_running_loop().time()
        yields = is_waiting and self._creating > 0
        due = self._deferred_since.setdefault(key, now) + (LAZY if yields else delay)
        if now < due:
            self._queue.add(key, after=due - now)
            if yields:
                self._yielded.add(key)
            return False
        del self._deferred_since[key]
        return True

    async def _store(self, write: Write) -> None:
        key = write.job.key
        # Keep an earlier unconfirmed status: if it was in fact stored, this write fails with Conflict.
        self._unconfirmed.setdefault(key, write)
        is_stored = await self._executor.store_status(self.resource, write.job, write.old, write.plan)
        if self._unconfirmed.pop(key, None) and is_stored:
            self._on_stored(write)

    def confirm(self, job: JobView) -> None:
        """If the answer to the last status got lost, and it is stored all the same, what follows from it is done as
        soon as that is seen."""
        write = self._unconfirmed.get(job.key)
        if write is None or (write.job.uid, write.job.resource_version) == (job.uid, job.resource_version):
            return
        del self._unconfirmed[job.key]
        is_same = write.job.uid == job.uid and write.plan.status is not None
        if is_same and not merge_patch(self._kinds.of(job.raw).known_status(job), write.plan.status or {}):
            self._on_stored(write)

    def forget(self, key: Key) -> None:
        self._deferred_since.pop(key, None)
        self._after_creates.discard(key)
        self._unconfirmed.pop(key, None)
