"""The loop. Read this file first: everything that trainmaster does to a job goes through ``reconcile``.

    store → key queue → barrier → observe → plan → executor → status → events → requeue

One controller drives the jobs of one resource. It knows no kind: ``kind.plan`` returns what to do as data. Where
several kinds share the resource, the shape of the spec says of which kind a job is.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import structlog

from trainmaster.core.errors import Trainmaster
from trainmaster.core.ids import Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Plan, normal, soonest
from trainmaster.core.view import ChildView, JobView, PodView, ServiceView
from trainmaster.kinds.base import Related
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.lifecycle import reason
from trainmaster.runtime import metrics
from trainmaster.runtime.adopter import Adopter
from trainmaster.runtime.backoff import RECONCILE, Backoff
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.executor import TERMINATING_SECONDS, Applied, Executor
from trainmaster.runtime.host_ports import HostPorts
from trainmaster.runtime.job_events import JobEvents
from trainmaster.runtime.job_summary import summary_of
from trainmaster.runtime.node_index import NodeIndex
from trainmaster.runtime.observer import Observer
from trainmaster.runtime.other_operators import OtherOperators
from trainmaster.runtime.pod_refusals import PodRefusals
from trainmaster.runtime.queue import NORMAL, SOON, STARTUP, URGENT, KeyQueue, QueueClosed
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.status_writer import StatusWriter, Write
from trainmaster.runtime.store import Store

BARRIER_POLL = 0.25
"""Seconds until a job whose writes are not in the store yet is reconciled again, if no event comes first."""
PASSING_ERRORS = 2
"""Passes in a row that may fail with a transient error before status and Events report it."""

RESERVED = 8
"""Additional workers, which reconcile urgent keys only."""
KEPT_FREE = 4
"""One worker in so many is free of jobs of any one namespace, for jobs of the others."""

MANY_PODS = 100
PAUSE_OF_A_POD = 0.0002
"""Seconds between an event of a child and the next pass, for each pod of a job with many pods: about ten times as long
as a plan takes. Their events come by the hundred, and other jobs share the event loop."""
LONGEST_PAUSE = 0.5

LEFT_EVENT_PERIOD = timedelta(minutes=30)
"""Between two Events of a job that is left to another operator. Kubernetes keeps Events for an hour."""

log = structlog.get_logger(__name__)


class Controller:
    def __init__(
        self,
        kinds: ResourceKinds,
        *,
        jobs: Store[JobView],
        pods: Store[PodView],
        services: Store[ServiceView],
        barrier: Barrier,
        executor: Executor,
        recorder: Recorder,
        ports: HostPorts,
        now: Callable[[], datetime],
        workers: int,
        related: Mapping[Related, Store[JobView]] | None = None,
        children: Mapping[Resource, Store[ChildView]] | None = None,
        nodes: NodeIndex | None = None,
        adopter: Adopter | None = None,
        others: OtherOperators | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = kinds.name
        self.workers = workers
        self.queue = KeyQueue(
            backoff or Backoff(*RECONCILE),
            metrics.QueueMetrics(self.name),
            share=workers - workers // KEPT_FREE,
        )
        self._kinds = kinds
        self._jobs = jobs
        self.observer = Observer(
            kinds,
            pods=pods,
            services=services,
            ports=ports,
            related=related,
            children=children,
            nodes=nodes,
            adopter=adopter,
        )
        self._barrier = barrier
        self._executor = executor
        self._refusals = PodRefusals(executor.cluster, now)
        self._events = JobEvents(kinds, recorder)
        self._ports = ports
        self._others = others
        self._now = now
        self._is_working = False
        self._statuses = StatusWriter(kinds, executor, self.queue, self._stored, jobs.doubt, now)
        self._pauses: dict[Key, float] = {}
        """Seconds before the next pass, of jobs with many pods."""
        self._left: dict[Key, datetime] = {}
        """When the last Event said of a job that it is left to another operator."""
        self._metrics = metrics.ControllerMetrics(self.name, workers + RESERVED, self.queue)
        self._job_metrics = metrics.JobMetrics(self.name, kinds.framework, kinds.phases, now)
        jobs.listen(self._job_changed)
        jobs.on_recovery(self.queue.retry_all)
        self.observer.listen(self._child_changed, self._related_changed)
        if others:
            others.on_end(self._operator_ended)

    async def work(self, *, only_urgent: bool = False) -> None:
        """One worker: reconciles jobs until the queue is closed. A pass that has begun is always finished."""
        self._start()
        while True:
            try:
                key = await self.queue.get(only_urgent=only_urgent)
            except QueueClosed:
                return
            with self._metrics.pass_of(key) as measured:
                try:
                    measured.result = await self.reconcile(key)
                except Trainmaster as error:
                    measured.result = "error"
                    delay = self.queue.retry(key)
                    log.warning(
                        "pass failed", job=str(key), kind=self.name, because=str(error), retry_in=round(delay, 1)
                    )
                except Exception:
                    # A defect that one job triggers must not stop the others.
                    measured.result = "error"
                    self.queue.retry(key)
                    log.exception("pass failed by a defect in trainmaster", job=str(key), kind=self.name)
                finally:
                    self.queue.done(key)

    def _start(self) -> None:
        """Enqueues all jobs, once. Before the first worker starts nothing is enqueued: a standby does not need it."""
        if not self._is_working:
            self._is_working = True
            if not self._jobs.is_synced:
                return  # the API server does not have this resource yet
            for key in self._jobs.keys():  # noqa: SIM118 a store is no dict
                self.queue.add(key, priority=STARTUP)
                if (job := self._jobs.get(key)) is not None:
                    self._show(job)

    async def reconcile(self, key: Key) -> str:
        """One pass: observe, plan, apply. Returns its result as the metrics name it."""
        job = self._jobs.get(key)
        if job is None:
            self.queue.forget(key)
            return "success"
        if seconds := await self._seconds_to_wait(job):
            self.queue.add(key, after=seconds)
            return "requeue_after"
        self._statuses.confirm(job)
        try:
            with self._metrics.planning(key):
                observed, plan = self._plan(job)
        except Trainmaster:
            raise
        except Exception as error:
            with suppress(Trainmaster):  # the next pass tries again
                await self._report_defect(job, error)
            raise
        self._throttle(job, observed)
        if plan.counts_failure and await self._executor.is_terminating(key.namespace):
            return self._look_again(key)
        try:
            applied = await self._apply(job, plan, observed)
        finally:
            current = self._jobs.get(key)
            if current is None or current.uid != job.uid:
                self._forget(job)  # deleted during the pass
        return self._ended(key, plan, applied)

    def _ended(self, key: Key, plan: Plan, applied: Applied) -> str:
        """When the next pass comes."""
        if applied.is_terminating:
            return self._look_again(key)
        if applied.failures:
            self.queue.retry(key)
            if plan.requeue_after:  # a deadline may be over before the next try
                self.queue.add(key, after=plan.requeue_after)
            return "requeue"
        self.queue.forget(key)
        if plan.requeue_after is not None:
            self.queue.add(key, after=plan.requeue_after)
            return "requeue_after"
        return "success"

    def _look_again(self, key: Key) -> str:
        """At a job whose namespace is being deleted. It is deleted, too, unless the answer was out of date."""
        self.queue.forget(key)
        self.queue.add(key, after=TERMINATING_SECONDS)
        return "requeue_after"

    async def _seconds_to_wait(self, job: JobView) -> float:
        """Seconds until the job is reconciled again; 0 if it can be planned now. It cannot while another operator
        reconciles its namespace, and while our last writes are not in the stores."""
        if self._others and (left := await self._others.seconds_left(job.key.namespace)):
            self._record_left(job, self._others.message(job.key.namespace))
            return left
        self._record_taken_back(job)
        is_behind = not self._barrier.is_open(job.uid) or self._statuses.is_behind(job)
        if is_behind or not await self._is_certain(job):
            metrics.BARRIER_WAITS.labels(self.name).inc()
            return BARRIER_POLL
        return 0.0

    def _record_left(self, job: JobView, message: str) -> None:
        """By an Event: the status belongs to the other operator."""
        now = self._now()
        if job.key not in self._left or now - self._left[job.key] >= LEFT_EVENT_PERIOD:
            self._left[job.key] = now
            self._events.record(job, normal(reason.LEFT_TO_OPERATOR, message))

    def _record_taken_back(self, job: JobView) -> None:
        if self._left.pop(job.key, None):
            message = "the operator of the namespace has ended: the job is reconciled by that of the cluster"
            self._events.record(job, normal(reason.TAKEN_BACK, message))

    async def _is_certain(self, job: JobView) -> bool:
        """A pod that ended before its node was lost has no fault, and the watch of pods may be behind that of nodes.
        Such pods are read from the API server."""
        uncertain = self.observer.uncertain(job)
        if not uncertain:
            return True
        are_current = await self._executor.are_current(pod for pod, _ in uncertain)
        return are_current and self.observer.uncertain(job) == uncertain

    async def _report_defect(self, job: JobView, error: Exception) -> None:
        """The status says why nothing happens: users do not see our log."""
        metrics.UNREADABLE.labels(str(self._kinds.resource)).inc()
        kind = self._kinds.of(job.raw)
        plan = kind.unplannable(job, error, self._now())
        await self._statuses.write(job, plan, Applied(), Observed.of((), (), kind.slots))

    def _throttle(self, job: JobView, observed: Observed) -> None:
        """A job with a thousand pods is not planned again for each of their events."""
        pods = sum(map(len, observed.pods.values()))
        if pods > MANY_PODS:
            self._pauses[job.key] = min(pods * PAUSE_OF_A_POD, LONGEST_PAUSE)
        else:
            self._pauses.pop(job.key, None)

    def _plan(self, job: JobView) -> tuple[Observed, Plan]:
        """Observes and plans. Repeats it while the plan assigns ports that other programs have. Children of another
        operator are adopted first: the plan has to see them."""
        if plan := self.observer.adoption(job, self._now()):
            return self.observer.observe(job), plan
        foreign: frozenset[int] = frozenset()
        while True:
            observed = self.observer.observe(job, foreign)
            plan = self._kinds.of(job.raw).plan(job, observed, self._now())
            found = self._ports.foreign(plan.ports) - foreign
            if not found:
                self._ports.draw(job, plan.ports)
                look = soonest(plan.requeue_after, self.observer.node_poll(observed))
                return observed, msgspec.structs.replace(plan, requeue_after=look)
            foreign |= found

    async def _apply(self, job: JobView, plan: Plan, observed: Observed) -> Applied:
        applied = Applied()
        if not plan.status_first:
            with self._statuses.creating(plan):
                applied = await self._executor.act(job, plan)
        if applied.is_terminating:
            return applied  # nobody reads its status and Events any more
        self._events.record_actions(job, applied)
        self._raise_passing(job, applied)
        failures = [*applied.failures, *await self._refusals.of(job, plan.podless)]
        self._events.record_failures(job, failures)
        if failures:
            plan = self._kinds.of(job.raw).conclude(job, plan, failures, self._now())
        await self._statuses.write(job, plan, applied, observed)
        return applied

    def _raise_passing(self, job: JobView, applied: Applied) -> None:
        """Most errors are transient, so the pass is repeated. One that persists is reported in the status: a webhook
        that is down makes the API server answer 500, and one that refuses may answer any code."""
        passing = next((f.cause for f in applied.failures if f.cause), None)
        if passing and self.queue.failures(job.key) < PASSING_ERRORS:
            raise passing

    def _stored(self, write: Write) -> None:
        after = summary_of(write.plan.status or {})
        self._job_metrics.stored(write.job.key.namespace, summary_of(write.old), after)
        for event in write.plan.events:
            self._events.record(write.job, event)

    def _show(self, job: JobView) -> None:
        kind = self._kinds.of(job.raw)
        if not kind.is_foreign(job):
            self._job_metrics.shows(job.key, kind.phase_of(job), kind.conditions_of(job))

    def _job_changed(self, before: JobView | None, after: JobView | None) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._forget(before)
            self._job_metrics.is_gone(before.key)
        if after is not None:
            if before is None or before.uid != after.uid:
                self._executor.expect(after.key.namespace)
            self._enqueue(after.key, NORMAL if before is None else SOON)
            if self._is_working:
                self._show(after)

    def _child_changed(self, key: Key, has_new_phase: bool) -> None:
        self._enqueue(key, URGENT if has_new_phase else NORMAL, after=self._pauses.get(key, 0.0))

    def _related_changed(self) -> None:
        """Every job of the resource may depend on it."""
        if self._is_working and self._jobs.is_synced:
            for key in self._jobs.keys():  # noqa: SIM118 a store is no dict
                self.queue.add(key)

    def _operator_ended(self, namespace: str) -> None:
        """Another process reconciled the jobs of this namespace."""
        if not self._is_working or not self._jobs.is_synced:
            return
        for key in self._jobs.keys():  # noqa: SIM118 a store is no dict
            if key.namespace == namespace:
                self._enqueue(key)

    def _forget(self, job: JobView) -> None:
        self._barrier.forget(job.uid)
        self._refusals.forget(job.uid)
        self._statuses.forget(job.key)
        self._pauses.pop(job.key, None)
        self._left.pop(job.key, None)
        self.queue.forget(job.key)

    def _enqueue(self, key: Key, priority: int = NORMAL, *, after: float = 0.0) -> None:
        if self._is_working:
            self.queue.add(key, after=after, priority=priority)
