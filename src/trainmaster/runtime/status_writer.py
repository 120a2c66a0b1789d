"""When the status of a job is stored, and what follows from it.

A pass whose status differs in counters alone waits for more, and the first status of a job waits while others get
their pods: both save writes. Metrics and Events of a status follow when it is stored, once, also when the answer of
the API server got lost.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple

from trainmaster.core.definition import outdated
from trainmaster.core.errors import Conflict, Stale, UnknownField
from trainmaster.core.ids import Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import LAZY, Plan, merge_patch
from trainmaster.core.view import JobView
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime import metrics
from trainmaster.runtime.executor import Applied, Executor
from trainmaster.runtime.queue import KeyQueue

CONFLICT_SECONDS = 5.0
"""How long the newer version of a job is waited for after a conflict. It exists, so the watch shows it soon."""
CREATED_POLL = 5.0
"""Seconds until a job that created something is looked at again, should no event come first."""


class Write(NamedTuple):
    """A status to store in the place of ``old``."""

    job: JobView
    old: dict[str, Any]
    plan: Plan


class _Lost(NamedTuple):
    """A status that lost a race: the API server has a newer version of the job."""

    version: int
    until: float


class StatusWriter:
    def __init__(
        self,
        kinds: ResourceKinds,
        executor: Executor,
        queue: KeyQueue,
        on_stored: Callable[[Write], None],
        on_stale: Callable[[], None],
        now: Callable[[], datetime],
    ) -> None:
        self._kinds = kinds
        self._executor = executor
        self._queue = queue
        self._on_stored = on_stored
        self._on_stale = on_stale
        self._now = now
        self._refused = metrics.STATUS_REFUSED.labels(kinds.resource.kind)
        self._deferred_since: dict[Key, float] = {}
        self._after_creates: set[Key] = set()
        """Jobs whose last pass created something and left the status to the next one."""
        self._creating = 0
        """Passes that are creating something now."""
        self._yielded: set[Key] = set()
        """Jobs whose first status waits until no pass creates anything."""
        self._unconfirmed: dict[Key, Write] = {}
        """Statuses that are being stored, or whose answer got lost."""
        self._lost: dict[Key, _Lost] = {}
        """Jobs whose last status was not stored because of a conflict."""

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
        now = _time()
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
        """If the definition lacks fields, the job says so, and the pass fails. The plan is not applied in part: what
        it stores is what the next pass decides on."""
        try:
            await self._send(write)
        except UnknownField as error:
            self._refused.inc()
            plan = self._kinds.of(write.job.raw).unstored(write.job, error.fields, self._now())
            with suppress(UnknownField):  # a definition may lack the condition, too
                await self._send(write._replace(plan=plan))
            raise UnknownField(outdated(self.resource, error.fields), code=error.code, reason=error.reason) from error

    async def _send(self, write: Write) -> None:
        key = write.job.key
        # Keep an earlier unconfirmed status: if it was in fact stored, this write fails with Conflict.
        self._unconfirmed.setdefault(key, write)
        try:
            is_stored = await self._executor.store_status(self.resource, write.job, write.old, write.plan)
        except Conflict as error:
            if isinstance(error, Stale):
                self._on_stale()
            if key in self._lost:
                raise
            # Somebody else changed the job, such as di-server. Its event brings the next pass about.
            self._lost[key] = _Lost(write.job.resource_version, _time() + CONFLICT_SECONDS)
            self._queue.add(key, after=CONFLICT_SECONDS)
            return
        self._lost.pop(key, None)
        if self._unconfirmed.pop(key, None) and is_stored:
            self._on_stored(write)

    def is_behind(self, job: JobView) -> bool:
        """True while the store does not show the version of the job that the API server has."""
        lost = self._lost.get(job.key)
        return lost is not None and lost.version == job.resource_version and _time() < lost.until

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
        self._lost.pop(key, None)


def _time() -> float:
    return asyncio.get_running_loop().time()
