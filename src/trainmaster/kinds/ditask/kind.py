"""DIJob of v2alpha1: tasks whose replicas run together until all of them have succeeded."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from trainmaster.core.condition import SUSPENDED, is_true
from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import CONFIG_MAP, POD, Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Event
from trainmaster.core.slot import Slot
from trainmaster.core.view import JobView
from trainmaster.kinds.adoption import Candidates, Predecessor
from trainmaster.kinds.base import ActionWords, changed_status
from trainmaster.kinds.dijob.run_policy import clean_after, clean_policy, run_policy
from trainmaster.kinds.ditask import labels, rank, status, validate
from trainmaster.kinds.ditask.adoption import adopted_ranks
from trainmaster.kinds.ditask.body import Builder
from trainmaster.kinds.ditask.role import slots_of, tasks_of
from trainmaster.kinds.ditask.status import ENDED, FAILED, PENDING, PHASES, RUNNING, STARTING, SUCCEEDED
from trainmaster.kinds.ditask.types import RESOURCE, VERSION, DITaskJob, DITaskStatus, Task
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.kinds.status import recalled
from trainmaster.lifecycle import gang
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import GOES_ON, Result
from trainmaster.lifecycle.decide import Cause, Extra, Report, Verdict
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.fault import SIGNALLED, SIGNALS, Fault
from trainmaster.lifecycle.model import JobModel, Role, RunPolicy
from trainmaster.lifecycle.restart import RestartScope, Rules
from trainmaster.lifecycle.training import Training

BACKOFF = 10
"""Seconds before the second restart in a row; twice as many before each that follows."""
TERMINATED = SIGNALLED + SIGNALS["SIGTERM"]
"""The exit code of a program that SIGTERM ended."""


class DITaskKind(LifecycleKind[DITaskJob]):
    resource = RESOURCE
    shape = frozenset({"tasks"})
    slots = labels.SLOTS
    component = labels.OPERATOR_NAME
    job_type = DITaskJob
    status_type = DITaskStatus
    initial_phase = PENDING
    phases = PHASES
    ended = ENDED
    looks_at_readiness = True
    priority_label = labels.PRIORITY
    counters = ("ready_replicas", "task_status", "allocation", "scaled_replicas", "ran", "conditions")
    predecessor = Predecessor(labels=f"{labels.OPERATOR}={labels.OPERATOR_NAME}", reads_pods=True)
    action_words = ActionWords(
        success_reason="Successful{Verb}",
        success="{noun} {names} was successfully {verb}d",
        failure_reason="Failed{Verb}",
        failure="failed to {verb} {noun} {names}: {error}",
    )

    @property
    def name(self) -> str:
        return f"{self.resource.kind.lower()}-{VERSION}"

    @property
    def children(self) -> tuple[Resource, ...]:
        return (CONFIG_MAP, *super().children)

    def errors(self, job: DITaskJob) -> list[str]:
        return validate.errors(job, self.settings.service_domain)

    def read(self, job: DITaskJob, observed: Observed) -> JobModel:
        stored, scheduler, name, tasks = job.status, self.settings.gang_scheduler, job.metadata.name, tasks_of(job)
        slots, is_over, service = slots_of(name, tasks), stored.phase in ENDED, labels.service_name(name)
        return JobModel(
            name=name,
            roles={task: _role(spec, job.spec.run_policy.restart_scope) for task, spec in tasks.items()},
            known_roles=tuple(tasks),
            slots=slots,
            services=(Slot("", 0, service, key=service),),
            is_recorded=all(slot.place in stored.ranks for slot in slots),
            run=_run_policy(job),
            memory=msgspec.structs.replace(recalled(stored), restarts=stored.attempts),
            attempt_label=labels.RESTART_COUNT,
            has_ended=is_over,
            is_new=not stored.phase,
            is_suspended=is_true(stored.conditions, SUSPENDED),
            starts_anew=True,
            running_since=status.running_since(stored),
            gang_scheduler=scheduler,
            gang=None if is_over else _gang(job, scheduler, tasks),
            is_free=_is_free(is_preemptible=job.spec.preemptible),
            restarts_after_node_loss=True,
            replaces_pending_pods=True,
        )

    def result(self, job: DITaskJob, model: JobModel, facts: Facts, verdict: Verdict) -> Result:
        """Every job is seen Pending first, however fast its pods end."""
        if model.is_new:
            return GOES_ON
        if verdict.final:
            return Result(FAILED, status.failed_message(verdict))
        if sum(map(len, facts.succeeded.values())) == len(model.slots):
            return Result(SUCCEEDED, status.HAVE_SUCCEEDED)
        return GOES_ON

    def remembered(self, view: JobView, found: Candidates, now: datetime) -> dict[str, Any] | None:
        """The ranks of pods that DI-orchestrator created are stored before these are adopted."""
        try:
            job = self.decode(view)
        except BadSpec:
            return None
        ranks = {} if job.status.ranks else adopted_ranks(job, found.get(POD, ()))
        return changed_status(job.status, msgspec.structs.replace(job.status, ranks=ranks)) if ranks else None

    def builder(self, job: DITaskJob, model: JobModel, facts: Facts) -> Builder:
        return Builder(job, self.owner(job), tasks_of(job), model, facts, self.settings)

    def other_children(self, job: DITaskJob, facts: Facts, now: datetime) -> Extra:
        """That a job is rescheduled, and which ranks are given up, is stored before pods are created or deleted."""
        is_rescheduled = job.status.phase in (STARTING, RUNNING) and not status.is_complete(facts)
        slots = slots_of(job.metadata.name, tasks_of(job)) if facts.missing else ()
        return Extra(is_new=is_rescheduled or bool(rank.given_up(job.status.ranks, slots, facts.missing)))

    def status(self, job: DITaskJob, report: Report, now: datetime) -> DITaskStatus:
        return status.written(job, report, now)

    def events(self, job: DITaskJob, report: Report, new: DITaskStatus) -> tuple[Event, ...]:
        return status.events(job, report, new)

    def clean_up(self, job: DITaskJob, cause: Cause, result: Result) -> CleanPodPolicy | None:
        return clean_after(job.spec.clean_pod_policy, cause)


def _role(task: Task, of_job: str) -> Role:
    """Pods of a task that restarts as a whole, or with the whole job, cannot go on without one that was deleted."""
    scope: RestartScope = "All" if of_job == "All" else "Replica" if task.restart_scope == "All" else "Pod"
    rules = Rules("Always", scope, limit=None, backoff=BACKOFF, reset=None)
    training = Training.of(labels.CONTAINER, task.template)
    return Role(task.name, task.replicas, rules, misses_deleted_pods=scope != "Pod", training=training)


def _run_policy(job: DITaskJob) -> RunPolicy:
    stored, limit, title = job.status, job.spec.backoff_limit, f"DIJob {job.metadata.name}"
    clean = stored.clean or clean_policy(job.spec.clean_pod_policy)
    policy = run_policy(job.spec.run_policy, title, clean, started=stored.start_time, ended=stored.completion_timestamp)
    # Pods that fail together are one restart: it is within the limit, or it is not.
    return msgspec.structs.replace(policy, restart_limit=0 if 0 <= limit <= (stored.restarts or 0) else None)


def _is_free(*, is_preemptible: bool) -> Callable[[Fault], bool]:
    """What a node does to a pod is not charged, nor SIGTERM in a preemptible job."""
    return lambda fault: fault.is_node or (is_preemptible and TERMINATED in fault.exits)


def _gang(job: DITaskJob, scheduler: str, tasks: dict[str, Task]) -> gang.Gang | None:
    key, policy = Key(job.metadata.namespace, job.metadata.name), job.spec.run_policy.scheduling_policy
    roles = {task.name: (task.template["spec"], task.replicas) for task in tasks.values()}
    return gang.gang_of(key, scheduler, roles, policy)
