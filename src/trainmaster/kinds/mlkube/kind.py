"""MxJob: a batch Job for each replica; workers and the scheduler decide how it ends."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from trainmaster.core.condition import find, is_true
from trainmaster.core.ids import JOB, SERVICE, Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import (
    BRIEF,
    LAZY,
    Batch,
    Create,
    Delete,
    Event,
    Patch,
    Plan,
    batch_of,
    deletions,
    normal,
    soonest,
    warning,
)
from trainmaster.core.view import ChildView
from trainmaster.kinds.base import Kind, changed_status, cleared, named, portless
from trainmaster.kinds.mlkube import group_restart as crew
from trainmaster.kinds.mlkube import labels, validate
from trainmaster.kinds.mlkube import types as mlkube
from trainmaster.kinds.mlkube.body import Builder, next_runtime_id, runtime_id, scheduler_of, shared_ports, slots_of
from trainmaster.kinds.mlkube.replica import (
    FAILED,
    RECOVERING,
    RUNNING,
    SUCCEEDED,
    UNKNOWN,
    Replica,
    has_run,
    is_done,
    is_over,
    replicas_of,
)
from trainmaster.kinds.mlkube.status import (
    CLEAN_UP,
    CREATING,
    DONE,
    ENDED,
    counted,
    done,
    fallen,
    folded,
    judged,
    progressed,
)
from trainmaster.kinds.mlkube.types import MxJob, MxJobStatus
from trainmaster.lifecycle.deadline import Limit, overdue, seconds_left
from trainmaster.lifecycle.port import Allotment, allot, is_complete

LINGER = 30
"""Seconds in which the servers of a job that has succeeded, or side-cars of a container that died, may end by
themselves."""


class MxJobKind(Kind[MxJob]):
    resource = mlkube.RESOURCE
    slots = labels.SLOTS
    component = "mx-operator"
    job_type = MxJob
    status_type = MxJobStatus
    initial_phase = CREATING
    ended = ENDED

    @property
    def name(self) -> str:
        return f"{self.resource.kind.lower()}.{self.resource.group}"

    @property
    def children(self) -> tuple[Resource, ...]:
        return (JOB,)

    def errors(self, job: MxJob) -> list[str]:
        # Once the verdict is stored, the spec decides nothing any more: a bad edit must not stop the clean-up.
        return [] if job.status.phase == CLEAN_UP else validate.errors(job)

    def edit_errors(self, old: MxJob, new: MxJob) -> list[str]:
        return validate.edit_errors(old, new)

    def action_event(self, verb: str, resource: Resource, names: Sequence[str], error: str = "") -> Event:
        noun = resource.kind.lower()
        if error:
            return warning(f"Failed{verb.capitalize()}", f"Failed to {verb} {noun} {named(names)}: {error}")
        return normal(f"Successful{verb.capitalize()}", f"{verb.capitalize()}d {noun}: {named(names)}")

    def decide(self, job: MxJob, observed: Observed, now: datetime) -> Plan:
        if job.status.phase in ENDED:
            return self._keep(job, observed, now)
        if job.status.phase == CLEAN_UP:
            return self._clean_up(job, observed, now)
        replicas = replicas_of(job, observed)
        state, message = _result(job, replicas)
        limits = [*_deadline(job), *_patience(job, replicas)]
        if not state and (over := overdue(limits, now)):
            state, message = FAILED, over.message
        if state:
            return self._judge(job, state, message, replicas, now)
        if any(replica.fault for replica in replicas):
            return self._restart(job, replicas, now)
        plan = self._go_on(job, replicas, observed, now)
        return msgspec.structs.replace(plan, requeue_after=soonest(plan.requeue_after, seconds_left(limits, now)))

    def _go_on(self, job: MxJob, replicas: Sequence[Replica], observed: Observed, now: datetime) -> Plan:
        """Whoever is missing is created, whoever is nobody's goes."""
        old, allotted = job.status, self._allot(job, observed)
        # An id of the user's may be edited until it is on record; ours would then be another one.
        is_named = bool(old.runtime_id) or not job.spec.runtime_id
        swept, wait = crew.sweep(job, observed, now), crew.wait_of(job, now)
        may_create = is_named and allotted.is_stored and swept.is_done and wait is None
        batch = batch_of(self._missing(job, observed)) if may_create else Batch()
        runs = has_run(job) or all(replica.has_started for replica in replicas)
        conditions = cleared(old.conditions, all_created=may_create and not batch.creates, now=now)
        conditions = progressed(conditions, replicas, now)
        new = msgspec.structs.replace(
            _begun(job, now),
            phase=RUNNING if runs else CREATING,
            state=RUNNING if runs else UNKNOWN,
            reason="",
            replica_statuses=counted(replicas),
            done=done(replicas),
            ports=allotted.ports,
            conditions=portless(conditions, allotted.error, now),
        )
        return Plan(
            deletes=(*swept.deletes, *_surplus(job, observed)),
            creates=batch.creates,
            patches=swept.patches,
            status=changed_status(old, new),
            # A name that could change is on record before it is given, and so is a port before a pod is told it.
            status_first=not is_named or allotted.is_new,
            lazy=_lazy(old, new),
            events=_steps(old, new, replicas),
            requeue_after=soonest(batch.retry_after, allotted.retry_after, wait, swept.wait),
            ports=allotted.drawn,
        )

    def _restart(self, job: MxJob, replicas: Sequence[Replica], now: datetime) -> Plan:
        """Count and new names are stored before the first Job is stopped for it."""
        decision, old = crew.again(job, replicas, now), job.status
        new = msgspec.structs.replace(
            _begun(job, now),
            replica_statuses=counted(replicas),
            runtime_id=next_runtime_id(job),
            restarts=decision.restarts,
            restart_history=decision.history,
            done={},
            conditions=fallen(old.conditions, decision.message, now),
        )
        event = warning(RECOVERING, decision.message)
        return Plan(status=changed_status(old, new), status_first=True, events=(event,))

    def _allot(self, job: MxJob, observed: Observed) -> Allotment:
        wanted = shared_ports(job, shared_network=self.settings.shared_network)
        stored = job.status.ports
        if is_complete(wanted, stored):
            return Allotment(stored)
        return allot(wanted, stored, used={}, taken=observed.taken, uid=job.metadata.uid)

    def _missing(self, job: MxJob, observed: Observed) -> Iterator[Create]:
        """The scheduler's address before anybody who asks for it."""
        found = observed.children.get(JOB, {})
        empty = [slot for slot in slots_of(job) if slot.name not in found and not is_done(job, slot)]
        scheduler = scheduler_of(job)
        nameless = scheduler if scheduler and scheduler.name not in observed.services else None
        if not empty and nameless is None:
            return
        builder = Builder(job, self.owner(job), self.settings.accelerators)
        if nameless:
            yield Create(SERVICE, builder.service(nameless), "the scheduler has no address")
        for slot in empty:
            yield Create(JOB, builder.job(slot), f"{slot.place} has no Job")

    def _judge(self, job: MxJob, state: str, message: str, replicas: Sequence[Replica], now: datetime) -> Plan:
        """The verdict is stored before anything is stopped for it."""
        keeps = job.spec.clean_pod_policy == "None"
        counters = folded(job) if keeps and state == SUCCEEDED else counted(replicas)
        new = msgspec.structs.replace(
            judged(_begun(job, now), DONE if keeps else CLEAN_UP, state, message, now),
            replica_statuses=counters,
            done={},
            ports={} if keeps else job.status.ports,  # pods that are left keep theirs as long as they run
        )
        make = normal if state == SUCCEEDED else warning
        event = make(f"MxJob{state}", message)
        return Plan(status=changed_status(job.status, new), status_first=True, events=(event,))

    def _clean_up(self, job: MxJob, observed: Observed, now: datetime) -> Plan:
        """Repeated until nothing is left to do: what got lost on the way cannot hang the job."""
        left = _lingering(job, observed, now)
        if left is not None:
            return Plan(requeue_after=left)
        plan = _swept(job, observed)
        if _unfinished(job, observed):
            return plan
        old = job.status
        new = msgspec.structs.replace(
            judged(old, DONE, old.state, old.reason or f"job {job.metadata.name} has succeeded", now),
            observed_generation=job.metadata.generation,
            replica_statuses=folded(job) if old.state == SUCCEEDED else old.replica_statuses,
            ports={},
        )
        return msgspec.structs.replace(plan, status=changed_status(old, new))

    def _keep(self, job: MxJob, observed: Observed, now: datetime) -> Plan:
        """What the end left behind, until the job itself goes: with its uid, so that nobody else of its name does."""
        plan = _swept(job, observed)
        ttl, ended = job.spec.ttl_seconds_after_finished, job.status.completion_time
        if ttl is None or ended is None or not plan.is_quiet:
            return plan
        if (left := Limit(ended, ttl, "").left(now)) > 0:
            return Plan(requeue_after=left)
        meta = job.metadata
        why = f"it ended {ttl} seconds ago (ttlSecondsAfterFinished)"
        return Plan(deletes=(Delete(self.resource, Key(meta.namespace, meta.name), meta.uid, why),))


class FirstMxJobKind(MxJobKind):
    """The same, in the group that such jobs had first."""

    resource = mlkube.FIRST_RESOURCE
    job_type = mlkube.FirstMxJob


def _result(job: MxJob, replicas: Sequence[Replica]) -> tuple[str, str]:
    """How the job ends, if it does. A failure counts before a success, whoever of them ended first. Servers have no
    say in a success: they serve until they are told to end, and who is lost then is not missed."""
    if failed := [replica for replica in replicas if replica.state == FAILED]:
        return FAILED, "; ".join(f"{replica.slot.place}: {replica.message}" for replica in failed[:3])
    if all(replica.state == SUCCEEDED for replica in replicas if replica.slot.role != labels.SERVER):
        return SUCCEEDED, f"job {job.metadata.name} has succeeded"
    lost = [replica for replica in replicas if replica.fault]
    if lost and not crew.has_tries_left(job):
        said = "; ".join(f"{r.slot.place}: {r.fault.message}" for r in lost[:3] if r.fault)
        return FAILED, f"{said} (backoffLimit {crew.tries_of(job)} is used up)"
    return "", ""


def _begun(job: MxJob, now: datetime) -> MxJobStatus:
    """Its status, with what is on record of every job that has begun."""
    return msgspec.structs.replace(
        job.status,
        phase=job.status.phase or CREATING,
        state=job.status.state or UNKNOWN,
        observed_generation=job.metadata.generation,
        runtime_id=runtime_id(job),
        start_time=job.status.start_time or now,
    )


def _deadline(job: MxJob) -> Iterator[Limit]:
    seconds, since = job.spec.active_deadline_seconds, job.status.start_time
    if seconds is not None and since is not None:
        yield Limit(since, seconds, f"the job has not ended within {seconds} seconds (activeDeadlineSeconds)")


def _patience(job: MxJob, replicas: Iterable[Replica]) -> Iterator[Limit]:
    """Side-cars of a container that died may take as long to end as servers of a success: a job must not fail because
    we looked in between. When the fall was first seen, its condition says."""
    told = find(job.status.conditions, RECOVERING)
    if told is not None and told.status == "True" and told.last_transition_time is not None:
        for replica in replicas:
            if replica.is_held:
                yield Limit(told.last_transition_time, LINGER, f"{replica.slot.place}: {replica.message}")


def _lazy(old: MxJobStatus, new: MxJobStatus) -> float:
    if old == new or old != msgspec.structs.replace(new, replica_statuses=old.replica_statuses, done=old.done):
        return 0.0
    return LAZY if old.done == new.done else BRIEF


def _steps(old: MxJobStatus, new: MxJobStatus, replicas: Iterable[Replica]) -> tuple[Event, ...]:
    """What is told of a job that goes on."""
    events = []
    if not old.runtime_id:
        events.append(normal("MxJobCreating", f"its replicas are called by the runtime id {new.runtime_id}"))
    if new.phase == RUNNING and old.phase != RUNNING:
        events.append(normal("MxJobRunning", "all replicas are running"))
    if is_true(new.conditions, RECOVERING) and not is_true(old.conditions, RECOVERING):
        fallen = [replica for replica in replicas if replica.is_recovering]
        events += [warning(RECOVERING, f"{replica.slot.place}: {replica.message}") for replica in fallen[:3]]
    return tuple(events)


def _surplus(job: MxJob, observed: Observed) -> tuple[Delete, ...]:
    """Services that lead to no scheduler of this attempt."""
    scheduler = scheduler_of(job)
    services = [s for name, s in observed.services.items() if scheduler is None or name != scheduler.name]
    return deletions(SERVICE, services, "the job has no such scheduler any more")


# --- the end ---


def _unfinished(job: MxJob, observed: Observed) -> list[ChildView]:
    """The batch Jobs that have to go, or to stop, before the job is done."""
    found = observed.children.get(JOB, {}).values()
    if job.spec.clean_pod_policy == "All":
        return list(found)
    return [] if job.spec.clean_pod_policy == "None" else [child for child in found if not is_over(child)]


def _lingering(job: MxJob, observed: Observed, now: datetime) -> float | None:
    """Seconds that servers still have to end by themselves; None when nothing is waited for."""
    ended, found = job.status.completion_time, observed.children.get(JOB, {}).values()
    if job.status.state != SUCCEEDED or ended is None or all(child.deleting or is_over(child) for child in found):
        return None
    left = Limit(ended, LINGER, "").left(now)
    return left if left > 0 else None


def _swept(job: MxJob, observed: Observed) -> Plan:
    """What the clean-up policy does to what is left. A Job that is stopped keeps the pods that have ended, and their
    logs; one that is deleted takes them along."""
    policy = job.spec.clean_pod_policy
    if policy == "None":
        return Plan()
    why = f"the job has ended and cleanPodPolicy is {policy}"
    left = [child for child in _unfinished(job, observed) if not child.deleting]
    services = deletions(SERVICE, observed.services.values(), why)
    if policy == "All":
        return Plan(deletes=(*deletions(JOB, left, why), *services))
    patches = tuple(Patch(JOB, c.key, c.uid, c.resource_version, crew.STOPPED, why) for c in left)
    return Plan(deletes=services, patches=patches)
