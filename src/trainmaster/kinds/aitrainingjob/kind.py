"""AITrainingJob: any number of roles, created at once; end policies decide when and how it ends."""

from datetime import datetime
from typing import Any

import msgspec

from trainmaster.core.condition import SUSPENDED, is_true
from trainmaster.core.ids import CONFIG_MAP, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Event, Plan
from trainmaster.kinds.admission_hints import Custom, Main
from trainmaster.kinds.adoption import Predecessor
from trainmaster.kinds.aitrainingjob import annotations, elastic, labels, placement, status, validate
from trainmaster.kinds.aitrainingjob.body import Builder, declared_ports, shared_ports, slots_of
from trainmaster.kinds.aitrainingjob.deadline import limits_of, wait_limits_of
from trainmaster.kinds.aitrainingjob.membership import next_step
from trainmaster.kinds.aitrainingjob.outcome import restarts_of, result_of
from trainmaster.kinds.aitrainingjob.status import ENDED, PENDING, PHASES, RUNNING
from trainmaster.kinds.aitrainingjob.types import RESOURCE, AITrainingJob, AITrainingJobStatus, ReplicaSpec
from trainmaster.kinds.base import changed_status
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.kinds.priority import class_of
from trainmaster.kinds.status import recalled
from trainmaster.lifecycle import restart
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import Result
from trainmaster.lifecycle.deadline import TIMEOUT, limit_of
from trainmaster.lifecycle.decide import Cause, Extra, Report, Verdict
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.model import Ending, JobModel, Role, RunPolicy
from trainmaster.lifecycle.restart import FailedPod, Rules
from trainmaster.lifecycle.training import Training


class AITrainingJobKind(LifecycleKind[AITrainingJob]):
    resource = RESOURCE
    slots = labels.SLOTS
    component = "TrainingJobOperator"
    job_type = AITrainingJob
    status_type = AITrainingJobStatus
    initial_phase = PENDING
    phases = PHASES
    ended = ENDED
    custom = Custom(main=Main(labels.MAIN))
    priority_label = labels.PRIORITY
    counters = ("replica_statuses", "elastic_replicas", "conditions")
    predecessor = Predecessor(labels=f"{labels.GROUP_NAME}={labels.GROUP}")

    def errors(self, job: AITrainingJob) -> list[str]:
        return validate.errors(job)

    def warnings(self, job: AITrainingJob) -> list[str]:
        return validate.warnings(job)

    def has_result(self, status: AITrainingJobStatus) -> bool:
        return bool(status.ending) or super().has_result(status)

    @property
    def children(self) -> tuple[Resource, ...]:
        return (CONFIG_MAP, *super().children)

    def decide(self, job: AITrainingJob, observed: Observed, now: datetime) -> Plan:
        return super().decide(elastic.sized(job), observed, now)

    def read(self, job: AITrainingJob, observed: Observed) -> JobModel:
        job = elastic.sized(job)
        stored, scheduler = job.status, self.settings.gang_scheduler
        specs = dict(sorted(job.spec.replica_specs.items()))
        ending = _ending(job)
        # The spec of a job that has its result decides nothing any more, and may be wrong by now.
        is_over = stored.phase in ENDED or ending is not None
        return JobModel(
            name=job.metadata.name,
            roles={name: _role(name, spec, is_running=stored.phase == RUNNING) for name, spec in specs.items()},
            known_roles=tuple(specs),
            slots=slots_of(job),
            run=_run_policy(job, is_over=is_over),
            memory=msgspec.structs.replace(recalled(stored), restarts=dict(restarts_of(job))),
            attempt_label=labels.RESTART_COUNT,
            has_ended=stored.phase in ENDED,
            ending=ending,
            ends_in_steps=True,
            requested_end=annotations.requested_end(job),
            is_new=not stored.phase,
            is_suspended=is_true(stored.conditions, SUSPENDED),
            running_since=status.calm_since(stored),
            restarting=stored.restart_replica_name,
            limits_creation=True,
            wanted_ports={} if is_over else shared_ports(job, shared_network=self.settings.shared_network),
            declared_ports=frozenset() if is_over else declared_ports(job),
            gang_scheduler=scheduler,
            gang=None if is_over else placement.gang_of(job, scheduler),
        )

    def result(self, job: AITrainingJob, model: JobModel, facts: Facts, verdict: Verdict) -> Result:
        return result_of(job, facts, verdict)

    def status(self, job: AITrainingJob, report: Report, now: datetime) -> AITrainingJobStatus:
        return status.written(job, report, now)

    def events(self, job: AITrainingJob, report: Report, new: AITrainingJobStatus) -> tuple[Event, ...]:
        return status.events(job, report, new)

    def clean_up(self, job: AITrainingJob, cause: Cause, result: Result) -> CleanPodPolicy | None:
        return annotations.clean_of(result.phase, job, is_asked=cause == "request")

    def spared(self, job: AITrainingJob, facts: Facts) -> tuple[FailedPod, ...]:
        return elastic.dispensable(job, facts)

    def other_children(self, job: AITrainingJob, facts: Facts, now: datetime) -> Extra:
        """What the pods of an elastic job read about each other."""
        if not elastic.elastic_roles(job):
            return Extra(record=job.status.membership)
        builder = Builder(job, self.owner(job), shared_network=self.settings.shared_network)
        return next_step(job, facts, builder, now)

    def noticed(self, job: AITrainingJob) -> dict[str, Any] | None:
        """An edit of a job that has ended changes nothing, but it was seen: clients that wait for the end look at that.
        What other operators ended is left as it is."""
        stored, generation = job.status, job.metadata.generation
        if not stored.observed_generation:
            return None
        return changed_status(stored, msgspec.structs.replace(stored, observed_generation=generation))

    def builder(self, job: AITrainingJob, model: JobModel, facts: Facts) -> Builder:
        return Builder(
            job,
            self.owner(job),
            shared_network=self.settings.shared_network,
            gang=model.gang,
            priority_class=class_of(job.spec.priority, job.status.conditions),
        )


def _role(name: str, spec: ReplicaSpec, *, is_running: bool) -> Role:
    rules = Rules(
        spec.restart_policy,
        spec.restart_scope,
        spec.restart_limit,
        spec.restart_backoff_seconds,
        spec.restart_reset_seconds,
    )
    return Role(
        name,
        spec.replicas,
        rules,
        ends_job=spec.fail_policy != "None",
        training=Training.of(labels.MAIN, spec.template),
        initial_replicas=elastic.enough(spec, is_running=False),
        required_replicas=elastic.enough(spec, is_running=is_running),
    )


def _ending(job: AITrainingJob) -> Ending | None:
    """The stored result, or that of another operator which was still deleting the pods."""
    if stored := job.status.ending:
        return Ending(Result(stored.phase, stored.message), stored.clean)
    if left := annotations.left_behind(job):
        return Ending(left, annotations.clean_of(left.phase, job, is_asked=False))
    return None


def _run_policy(job: AITrainingJob, *, is_over: bool) -> RunPolicy:
    return RunPolicy(
        clean=job.spec.clean,
        suspend=annotations.reason_to_stop(job),
        limits=() if is_over else limits_of(job),
        wait_limits=() if is_over else wait_limits_of(job),
        overdue_phase=TIMEOUT,
        ttl=limit_of(job.status.end_time, job.spec.ttl_seconds_after_finished),
        exit_codes=frozenset() if is_over else restart.exit_codes(job.spec.restarting_exit_code),
    )
