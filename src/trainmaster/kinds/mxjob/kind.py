"""MXJob: a parameter server's roles, or those of a tuner, which run together and end by one of them."""

from datetime import datetime

from trainmaster.core.ids import CONFIG_MAP, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Event
from trainmaster.kinds import kubeflow_status, run_policy
from trainmaster.kinds.adoption import Predecessor
from trainmaster.kinds.kubeflow_status import ENDED, FAILED, SUCCEEDED, JobStatus, ended_elsewhere
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.kinds.mxjob import labels, status, validate
from trainmaster.kinds.mxjob.body import Builder, declared_ports, gang_of, shared_ports
from trainmaster.kinds.mxjob.policy import RETRYABLE, policy_of, rules_of
from trainmaster.kinds.mxjob.role import ROLES, deciding, roles_of, slots_of
from trainmaster.kinds.mxjob.types import RESOURCE, MXJob, ReplicaSpec
from trainmaster.kinds.status import recalled
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import GOES_ON, Result
from trainmaster.lifecycle.decide import Cause, Report, Verdict
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.model import JobModel, Role
from trainmaster.lifecycle.restart import Rules
from trainmaster.lifecycle.training import Training


class MXJobKind(LifecycleKind[MXJob]):
    resource = RESOURCE
    slots = labels.SLOTS
    component = labels.CONTROLLER
    job_type = MXJob
    status_type = JobStatus
    initial_phase = kubeflow_status.CREATED
    phases = kubeflow_status.PHASES
    ended = ENDED
    predecessor = Predecessor(labels=f"{labels.OPERATOR_NAME}={labels.CONTROLLER}")

    @property
    def framework(self) -> str:
        return "mxnet"

    @property
    def children(self) -> tuple[Resource, ...]:
        return (CONFIG_MAP, *super().children)

    def errors(self, job: MXJob) -> list[str]:
        return validate.errors(job)

    def has_ended(self, status: JobStatus) -> bool:
        return status.phase in ENDED or bool(ended_elsewhere(status))

    def read(self, job: MXJob, observed: Observed) -> JobModel:
        stored, scheduler, name = job.status, self.settings.gang_scheduler, job.metadata.name
        specs, rules, ended = roles_of(job.spec), rules_of(job), ended_elsewhere(stored)
        # The spec of a job that has its result decides nothing any more, and may be wrong by now.
        is_over = bool(ended) or stored.phase in ENDED
        codes = "" if is_over else job.spec.restarting_exit_code or RETRYABLE
        return JobModel(
            name=name,
            roles={role: _role(role, spec, rules[role]) for role, spec in specs.items()},
            known_roles=ROLES,
            slots=slots_of(job),
            run=run_policy.read(policy_of(job.spec), stored, f"MXJob {name}", exit_codes=codes),
            memory=recalled(stored),
            attempt_label=labels.RESTART_COUNT,
            has_ended=stored.phase in ENDED,
            ended_elsewhere=Result(ended) if ended else None,
            is_new=not stored.phase,
            is_suspended=kubeflow_status.is_suspended(stored),
            running_since=kubeflow_status.entered_at(stored, kubeflow_status.RUNNING),
            wanted_ports={} if is_over else shared_ports(job, shared_network=self.settings.shared_network),
            declared_ports=frozenset() if is_over else declared_ports(job),
            gang_scheduler=scheduler,
            gang=None if is_over else gang_of(job, scheduler),
            starts_anew=True,
            restarts_after_node_loss=True,
            replaces_pending_pods=True,
        )

    def result(self, job: MXJob, model: JobModel, facts: Facts, verdict: Verdict) -> Result:
        """A pod that is not started again fails the job, whatever else succeeded. Then the success of the role that
        decides is that of the job."""
        if verdict.final:
            return Result(FAILED, status.WRITER.failed(model.name, verdict))
        decides = deciding(job.spec)
        if len(facts.succeeded.get(decides, ())) == model.roles[decides].replicas:
            return Result(SUCCEEDED, status.WRITER.succeeded(model.name))
        return GOES_ON

    def status(self, job: MXJob, report: Report, now: datetime) -> JobStatus:
        return status.written(job, report, now)

    def delay(self, job: MXJob, new: JobStatus) -> float:
        return status.delay(job, new)

    def events(self, job: MXJob, report: Report, new: JobStatus) -> tuple[Event, ...]:
        return status.events(job, report, new, self.settings.gang_scheduler)

    def clean_up(self, job: MXJob, cause: Cause, result: Result) -> CleanPodPolicy | None:
        return run_policy.clean_after(policy_of(job.spec), cause)

    def builder(self, job: MXJob, model: JobModel, facts: Facts) -> Builder:
        return Builder(job, self.owner(job), model.gang, shared_network=self.settings.shared_network)


def _role(name: str, spec: ReplicaSpec, rules: Rules) -> Role:
    training = Training.of(labels.CONTAINER, spec.template)
    return Role(name, spec.replicas, rules, misses_deleted_pods=True, training=training)
