"""MxJob: a batch Job for each replica; workers and the scheduler decide how it ends."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from trainmaster.core.condition import SUSPENDED, find, is_true
from trainmaster.core.ids import JOB, POD, SERVICE, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Event
from trainmaster.core.slot import place_of
from trainmaster.kinds.admission_hints import Custom
from trainmaster.kinds.adoption import Predecessor, Unowned
from trainmaster.kinds.base import ActionWords
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.kinds.mlkube import batch_job, labels, status, validate
from trainmaster.kinds.mlkube import types as mlkube
from trainmaster.kinds.mlkube.body import Builder, gang_of, roles_of, runtime_id, shared_ports, slots_of
from trainmaster.kinds.mlkube.replica import RECOVERING, JobReplica, replicas_of
from trainmaster.kinds.mlkube.status import CLEAN_UP, CREATING, ENDED, FAILED, PHASES, SUCCEEDED
from trainmaster.kinds.mlkube.types import MxJob, MxJobStatus
from trainmaster.kinds.status import recalled
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import GOES_ON, Result
from trainmaster.lifecycle.deadline import Limit, limit_of
from trainmaster.lifecycle.decide import Removal, Report, Verdict
from trainmaster.lifecycle.facts import Facts, joined
from trainmaster.lifecycle.model import Ending, JobModel, Role, RunPolicy
from trainmaster.lifecycle.restart import FailedPod, Rules
from trainmaster.lifecycle.training import Training

BACKOFF = 10
"""Seconds before the second restart in a row, as before the first one of a batch Job."""
LINGER = 30
"""Seconds in which the servers of a job that has succeeded, or side-cars of a failed container, may end by
themselves."""


class MxJobKind(LifecycleKind[MxJob]):
    resource = mlkube.RESOURCE
    slots = labels.SLOTS
    component = "mx-operator"
    job_type = MxJob
    status_type = MxJobStatus
    initial_phase = CREATING
    phases = PHASES
    ended = ENDED
    counters = ("replica_statuses",)  # that a replica recovers may be over before a condition that waits is stored
    action_words = ActionWords(
        success_reason="Successful{Verb}",
        failure_reason="Failed{Verb}",
        failure="Failed to {verb} {noun} {names}: {error}",
    )
    custom = Custom(declares_ports=False)
    predecessor = Predecessor(labels=f"{labels.GROUP}=", resources=(JOB, SERVICE, POD), sets_owners=False)

    @property
    def name(self) -> str:
        return f"{self.resource.kind.lower()}.{self.resource.group}"

    @property
    def children(self) -> tuple[Resource, ...]:
        return (JOB, *super().children)

    def errors(self, job: MxJob) -> list[str]:
        # Once the result is stored, the spec decides nothing any more: a bad edit must not stop the clean-up.
        return [] if job.status.phase == CLEAN_UP else validate.errors(job)

    def edit_errors(self, old: MxJob, new: MxJob) -> list[str]:
        return validate.edit_errors(old, new)

    def unowned(self, job: MxJob) -> Iterator[Unowned]:
        """The mxnet-operator set no owner: names and labels of batch Jobs and of the service have the runtime id. It
        also left everything of a job that has ended, and so do we."""
        for slot in slots_of(job) if job.status.phase not in ENDED else ():
            own = {labels.GROUP: "", labels.RUNTIME_ID: runtime_id(job), labels.JOB_TYPE: slot.role}
            yield Unowned(JOB, slot.name, own | {labels.TASK_INDEX: str(slot.index)})
            if slot.role == labels.SCHEDULER:
                yield Unowned(SERVICE, slot.name, own)

    def read(self, job: MxJob, observed: Observed) -> JobModel:
        stored, scheduler, slots = job.status, self.settings.gang_scheduler, tuple(slots_of(job))
        # The spec of a job that has its result decides nothing any more, and may be wrong by now.
        is_over = stored.phase in ENDED or stored.phase == CLEAN_UP
        replicas = {} if is_over else replicas_of(job, slots, observed)
        return JobModel(
            name=job.metadata.name,
            roles={name: _role(name, spec.replicas) for name, spec in roles_of(job).items()},
            known_roles=(),
            slots=slots,
            replicas=replicas,
            replica_resource=JOB,
            services=tuple(slot for slot in slots if slot.role == labels.SCHEDULER),
            # An id of the user's may be edited until it is stored; one that is made here would be made again.
            is_recorded=bool(stored.runtime_id) or not job.spec.runtime_id,
            run=_run_policy(job, observed, replicas),
            memory=recalled(stored),
            attempt_label="",
            has_ended=stored.phase in ENDED,
            ending=Ending(Result(stored.state, stored.reason or _succeeded(job))) if stored.phase == CLEAN_UP else None,
            ends_in_steps=True,
            is_new=not stored.phase,
            is_suspended=is_true(stored.conditions, SUSPENDED),
            starts_anew=True,
            running_since=status.ready_since(stored),
            wanted_ports={} if is_over else shared_ports(job, shared_network=self.settings.shared_network),
            gang_scheduler=scheduler,
            gang=None if is_over else gang_of(job, scheduler),
            restarts_after_node_loss=True,
        )

    def result(self, job: MxJob, model: JobModel, facts: Facts, verdict: Verdict) -> Result:
        """A failure that will happen again counts before a success, whichever came first. Servers do not matter for a
        success: they serve until they are stopped, and one that is lost then is not missed."""
        if permanent := [failed for failed in verdict.final if failed.fault.comes_again is False]:
            return Result(FAILED, _described(permanent))
        deciding = [role for name, role in model.roles.items() if name != labels.SERVER]
        if all(len(facts.succeeded.get(role.name, ())) == role.replicas for role in deciding):
            return Result(SUCCEEDED, _succeeded(job))
        if verdict.final:
            limit = f"(backoffLimit {model.run.restart_limit} is used up)"
            return Result(FAILED, f"{_described(verdict.final)} {limit}")
        return GOES_ON

    def status(self, job: MxJob, report: Report, now: datetime) -> MxJobStatus:
        return status.written(job, report, now)

    def events(self, job: MxJob, report: Report, new: MxJobStatus) -> tuple[Event, ...]:
        return status.events(job, report, new)

    def builder(self, job: MxJob, model: JobModel, facts: Facts) -> Builder:
        return Builder(job, self.owner(job), self.settings.accelerators, model.gang)

    def replica_removal(self, model: JobModel, facts: Facts, policy: CleanPodPolicy | None) -> Removal:
        found = facts.observed.children.get(JOB, {})
        if policy:
            return batch_job.cleaned(found.values(), policy)
        kept = frozenset() if model.run.suspend else {slot.name for slot in model.slots}
        return batch_job.outdated([child for name, child in found.items() if name not in kept], facts.observed)


class FirstMxJobKind(MxJobKind):
    """The same, in the group that such jobs had first."""

    resource = mlkube.FIRST_RESOURCE
    job_type = mlkube.FirstMxJob


def _role(name: str, replicas: int) -> Role:
    """A fault that reaches the lifecycle restarts all replicas, under other names; the others are up to batch Jobs."""
    rules = Rules("Always", "All", limit=None, backoff=BACKOFF, reset=None)
    return Role(name, replicas, rules, training=Training(labels.CONTAINER))


def _run_policy(job: MxJob, observed: Observed, replicas: Mapping[str, JobReplica]) -> RunPolicy:
    spec, stored = job.spec, job.status
    seconds, ended = spec.active_deadline_seconds, stored.completion_time
    late = f"the job has not ended within {seconds} seconds (activeDeadlineSeconds)"
    deadline = limit_of(stored.start_time, seconds, late)
    jobs = observed.children.get(JOB, {}).values()
    is_serving = stored.state == SUCCEEDED and not all(child.deleting or batch_job.is_over(child) for child in jobs)
    return RunPolicy(
        clean=spec.clean_pod_policy,
        suspend=f"job {job.metadata.name} is suspended" if spec.suspend else "",
        limits=(*((deadline,) if deadline else ()), *_side_car_limits(job, replicas)),
        linger=Limit(ended, LINGER, "") if ended and is_serving else None,
        ttl=limit_of(ended, spec.ttl_seconds_after_finished),
        restart_limit=batch_job.BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit,
    )


def _side_car_limits(job: MxJob, replicas: Mapping[str, JobReplica]) -> tuple[Limit, ...]:
    """Side-cars of a failed container may take as long to end as the servers of a success: whether a job fails must not
    depend on when it is looked at. The condition has the time at which the failure was first seen."""
    found = find(job.status.conditions, RECOVERING)
    if found is None or found.status != "True" or found.last_transition_time is None:
        return ()
    slots = [slot for slot in slots_of(job) if slot.name in replicas and replicas[slot.name].is_held]
    messages = [f"{slot.place}: {replicas[slot.name].message}" for slot in slots]
    return tuple(Limit(found.last_transition_time, LINGER, message) for message in messages)


def _described(failed: Sequence[FailedPod]) -> str:
    return joined([f"{place_of(f.role, f.index)}: {f.fault.message}" for f in failed])


def _succeeded(job: MxJob) -> str:
    return f"job {job.metadata.name} has succeeded"
