"""MXJob: a parameter server's roles, or those of a tuner, which run together and end by one of them."""

from datetime import datetime

from trainmaster.core.ids import Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Event, Plan
from trainmaster.core.view import PodView
from trainmaster.kinds.adoption import Predecessor
from trainmaster.kinds.base import Kind
from trainmaster.kinds.mxjob import labels, status, validate
from trainmaster.kinds.mxjob.body import Builder, declared_ports, gang_of, shared_ports
from trainmaster.kinds.mxjob.policy import RETRYABLE, clean_policy_of, policy_of, rules_of
from trainmaster.kinds.mxjob.role import ROLES, deciding, roles_of, slots_of
from trainmaster.kinds.mxjob.status import ENDED, FAILED, SUCCEEDED, left_behind
from trainmaster.kinds.mxjob.types import RESOURCE, MXJob, MXJobStatus
from trainmaster.lifecycle import decide, gang, restart
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import RUNNING as GOES_ON
from trainmaster.lifecycle.completion import Result
from trainmaster.lifecycle.deadline import Limit
from trainmaster.lifecycle.decide import Cause, Report, Verdict
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.model import JobModel, Memory, Role, RunPolicy


class MXJobKind(Kind[MXJob]):
    resource = RESOURCE
    slots = labels.SLOTS
    component = labels.CONTROLLER
    job_type = MXJob
    status_type = MXJobStatus
    initial_phase = status.CREATED
    ended = ENDED
    looks_at_nodes = True
    predecessor = Predecessor(labels=f"{labels.OPERATOR_NAME}={labels.CONTROLLER}")

    @property
    def framework(self) -> str:
        return "mxnet"

    @property
    def children(self) -> tuple[Resource, ...]:
        scheduler = self.settings.gang_scheduler
        return (gang.group_resource(scheduler),) if scheduler else ()

    def errors(self, job: MXJob) -> list[str]:
        return [] if left_behind(job.status) else validate.errors(job)

    def has_ended(self, status: MXJobStatus) -> bool:
        return status.phase in ENDED or bool(left_behind(status))

    def decide(self, job: MXJob, observed: Observed, now: datetime) -> Plan:
        return decide.decide(self, job, observed, now)

    def read(self, job: MXJob, observed: Observed) -> JobModel:
        stored, scheduler = job.status, self.settings.gang_scheduler
        rules, ended = rules_of(job), left_behind(stored)
        # The spec of a job that has its result decides nothing any more, and may be wrong by now.
        is_over = bool(ended) or stored.phase in ENDED
        return JobModel(
            name=job.metadata.name,
            roles={
                name: Role(name, r.replicas, rules[name], misses_deleted_pods=True)
                for name, r in roles_of(job.spec).items()
            },
            known_roles=ROLES,
            slots=tuple(slots_of(job)),
            run=_run_policy(job, is_over=is_over),
            memory=Memory(
                restarts=stored.restarts,
                history=stored.restart_history,
                done=stored.done,
                ran=stored.ran,
                ports=stored.ports,
                node_problems=stored.node_troubles,
            ),
            attempt_label=labels.RESTART_COUNT,
            takes_part=_takes_part,
            has_ended=stored.phase in ENDED,
            ended_elsewhere=Result(ended) if ended else None,
            is_new=not stored.phase,
            is_suspended=status.is_suspended(stored),
            running_since=status.entered_at(stored, status.RUNNING),
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
            return Result(FAILED, status.failure(model.name, verdict))
        decides = deciding(job.spec)
        if len(facts.succeeded.get(decides, ())) == model.roles[decides].replicas:
            return Result(SUCCEEDED, f"MXJob {model.name} is successfully completed.")
        return GOES_ON

    def status(self, job: MXJob, report: Report, now: datetime) -> MXJobStatus:
        return status.written(job, report, now)

    def delay(self, job: MXJob, new: MXJobStatus) -> float:
        return status.delay(job, new)

    def events(self, job: MXJob, report: Report, new: MXJobStatus) -> tuple[Event, ...]:
        return status.events(job, report, new, self.settings.gang_scheduler)

    def clean_up(self, job: MXJob, cause: Cause, result: Result) -> CleanPodPolicy | None:
        """A job that is stopped leaves nothing running, whatever its policy."""
        is_stopped = cause in ("deadline", "limit") and clean_policy_of(job.spec) == "None"
        return "Running" if is_stopped else None

    def builder(self, job: MXJob, model: JobModel, facts: Facts) -> Builder:
        return Builder(job, self.owner(job), model.gang, shared_network=self.settings.shared_network)


def _run_policy(job: MXJob, *, is_over: bool) -> RunPolicy:
    policy, stored, name = policy_of(job.spec), job.status, job.metadata.name
    seconds, ttl = policy.active_deadline_seconds, policy.ttl_seconds_after_finished
    deadline = f"MXJob {name} has failed because it was active longer than specified deadline"
    return RunPolicy(
        clean=stored.clean or clean_policy_of(job.spec),
        suspend=f"MXJob {name} is suspended." if policy.suspend else "",
        limits=(Limit(stored.start_time, seconds, deadline),) if seconds is not None and stored.start_time else (),
        ttl=Limit(stored.completion_time, ttl, "") if ttl is not None and stored.completion_time else None,
        exit_codes=frozenset() if is_over else restart.exit_codes(job.spec.restarting_exit_code or RETRYABLE),
        restart_limit=policy.backoff_limit,
        is_kept=_has_ended,
        keeps_services=True,
    )


def _has_ended(pod: PodView) -> bool:
    """A container that trains is stopped, also where one beside it has ended."""
    return pod.is_ended


def _takes_part(pod: PodView, container: str) -> bool:
    return container == labels.CONTAINER
