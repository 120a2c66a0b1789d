"""Phases, counters and the condition history of an AITrainingJob."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from trainmaster.core.condition import (
    CONTAINER_CREATE_FAILED,
    SUSPENDED,
    Condition,
    Conditions,
    finished,
    is_true,
    put_standard,
)
from trainmaster.core.plan import Event, normal, warning
from trainmaster.core.view import PodView
from trainmaster.kinds.aitrainingjob.elastic import enough, scaled_role, selector, size_of
from trainmaster.kinds.aitrainingjob.reason import PREFIX
from trainmaster.kinds.aitrainingjob.types import AITrainingJob, AITrainingJobStatus, Ending, ReplicaStatus
from trainmaster.kinds.status import recorded, replaced, standard_conditions
from trainmaster.lifecycle import reason, waiting
from trainmaster.lifecycle.cleanup import is_gone
from trainmaster.lifecycle.completion import SUCCEED
from trainmaster.lifecycle.decide import Report
from trainmaster.lifecycle.facts import Facts, joined

PENDING = "Pending"
CREATING = "Creating"
RUNNING = "Running"
RESTARTING = "Restarting"
TERMINATING = "Terminating"
ENDED = frozenset({"Succeed", "Failed", "Timeout", "Preempted", "NodeFail"})
PHASES = {
    PENDING: "Not all pods have a node. The message has the reason of the scheduler.",
    CREATING: "All pods have nodes, and containers are being created.",
    RUNNING: "All pods have started; of an elastic role enough of them.",
    TERMINATING: "Pods are being deleted: for a restart, for the end or for a suspension. The message says which.",
    RESTARTING: "The old pods are gone, and the new ones do not all run yet.",
    "Succeed": "The job has succeeded, by its end policies.",
    "Failed": "The job has failed, by its end policies.",
    "Timeout": "A time limit was reached.",
    "NodeFail": "A node was lost and the pods on it do not restart, or the annotation NodeFail was set.",
    "Preempted": "The annotation Preempted was set.",
}

WAITING = "all pods are waiting for scheduling"


# --- what a pass decided, in the words of the status ---


def written(job: AITrainingJob, report: Report, now: datetime) -> AITrainingJobStatus:
    old, memory, step = job.status, report.memory, report.step
    counters = count(job, report.facts)
    phase, message = _stated(job, report, counters)
    entered = enter(old, phase, message, now)
    new = msgspec.structs.replace(
        recorded(entered, memory, "done", "ports", "creation_errors", "node_problems", "wait", "pod_group", "failure"),
        observed_generation=job.metadata.generation,
        replica_statuses=_stopped(old.replica_statuses) if step == "end" and old.ending else counters,
        restart_replica_name=_restarting(old, report),
        ending=Ending(report.result.phase, report.result.message, report.clean) if step == "ending" else None,
        conditions=_conditions(entered.conditions, report, now),
    )
    if report.decision or step == "replace":
        counts = {role: r.count for role, r in memory.restarts.items()}
        new = msgspec.structs.replace(recorded(new, memory, "restarts", "history"), restart_count=counts)
    if step == "ending":
        return msgspec.structs.replace(new, done={})
    if step == "suspend":  # time in which nothing may run is not held against the job
        return msgspec.structs.replace(new, first_running_time=None, start_running_time=None)
    return _proceeded(job, new, report, now) if step == "proceed" else new


def _stopped(counters: Mapping[str, ReplicaStatus]) -> dict[str, ReplicaStatus]:
    """The counters of a job whose pods that had not ended are deleted."""
    return {role: ReplicaStatus(succeeded=c.succeeded, failed=c.failed) for role, c in counters.items()}


def _proceeded(job: AITrainingJob, new: AITrainingJobStatus, report: Report, now: datetime) -> AITrainingJobStatus:
    role = scaled_role(job)
    has_run = any(c.active or c.succeeded or c.failed for c in new.replica_statuses.values())
    return msgspec.structs.replace(
        new,
        membership=report.extra.record,
        elastic_replicas=size_of(job, role, report.facts.observed) if role else 0,
        selector=selector(job, role) if role else "",
        first_running_time=first_running(job, has_run, now),
    )


def _clean(report: Report) -> str:
    return report.clean or report.model.run.clean


def _cleaned(report: Report) -> str:
    """What the clean-up has done with the pods."""
    match _clean(report):
        case "None":
            return "kept pods"
        case "Running" if any(not pod.deleting for pod in report.facts.observed.all_pods):
            return "kept pods that have ended"
    return "deleted pods"


def _stated(job: AITrainingJob, report: Report, counters: Mapping[str, ReplicaStatus]) -> tuple[str, str]:
    """The phase that the job is in now, and the sentence that belongs to it."""
    old, result = job.status, report.result
    match report.step:
        case "suspend":
            why = report.model.run.suspend
            is_running = any(not pod.is_ended and not is_gone(pod) for pod in report.facts.observed.all_pods)
            return (TERMINATING, f"{why}; deleting pods") if is_running else (PENDING, why)
        case "restart":
            return TERMINATING, report.decision.message if report.decision else ""
        case "restarted":
            return RESTARTING, _restarted_message(job)
        case "shrink" | "replace":
            return old.phase or PENDING, message_of(old) or WAITING
        case "ending":
            which = " that run" if _clean(report) == "Running" else ""
            return TERMINATING, f"{result.message}; deleting pods{which}"
        case "end":
            return result.phase, f"{result.message}; {_cleaned(report)}"
    return _going_on(job, report, counters)


def _going_on(job: AITrainingJob, report: Report, counters: Mapping[str, ReplicaStatus]) -> tuple[str, str]:
    old = job.status
    if old.restart_replica_name:
        return old.phase, message_of(old)
    if not old.phase:
        return PENDING, WAITING  # every job is Pending first, however fast its pods start
    phase, message = phase_of(job, counters, report.facts)
    return phase, report.facts.waiting.message or message if phase == CREATING else message


def _restarted_message(job: AITrainingJob) -> str:
    role, history = job.status.restart_replica_name, job.status.restart_history
    spec = job.spec.replica_specs.get(role)
    scope = history[-1].scope if history else spec.restart_scope if spec else "All"
    return restarting_message(scope, role)


def _restarting(old: AITrainingJobStatus, report: Report) -> str:
    match report.step:
        case "restart":
            return report.decision.role if report.decision else ""
        case "proceed" | "shrink" | "replace":
            return old.restart_replica_name
    return ""


def _conditions(conditions: Conditions, report: Report, now: datetime) -> Conditions:
    conditions = standard_conditions(conditions, report, now)
    if report.step == "suspend":
        return put_standard(conditions, SUSPENDED, True, reason.STOPPED, report.model.run.suspend, now)
    if report.step == "proceed" and is_true(conditions, SUSPENDED):
        return put_standard(conditions, SUSPENDED, False, reason.RESUMED, "", now)
    return conditions


def events(job: AITrainingJob, report: Report, new: AITrainingJobStatus) -> tuple[Event, ...]:
    message = message_of(new)
    match report.step:
        case "restart":
            return (warning(reason_of(TERMINATING), message),)
        case "restarted":
            return (normal(reason_of(RESTARTING), message),)
        case "shrink":
            lost = report.failed
            messages = joined([f.fault.message for f in lost])
            return (warning(reason.SHRUNK, f"the job goes on without {len(lost)} of its pods: {messages}"),)
        case "replace":
            return replaced(report)
        case "suspend":
            return (normal(reason.SUSPENDED, report.model.run.suspend),)
        case "ending" | "end":
            return (_phase_event(new.phase, message),)
    return (*_started(job, new, message), *_failing(job, report))


def _started(job: AITrainingJob, new: AITrainingJobStatus, message: str) -> tuple[Event, ...]:
    if is_true(job.status.conditions, SUSPENDED):
        return (normal(reason.RESUMED, "the job goes on"),)
    if new.phase == RUNNING != job.status.phase:
        return (_phase_event(RUNNING, message),)
    return ()


def _failing(job: AITrainingJob, report: Report) -> tuple[Event, ...]:
    """Sent when a replica is seen to fail for the first time: how often it is tried is for the Events of its pod."""
    found, others = report.facts.waiting, waiting.events(job.status.conditions, report.facts.waiting)
    is_new = not found.errors.keys() <= job.status.creation_errors.keys()
    failing = (warning(CONTAINER_CREATE_FAILED, found.message),) if is_new and found.message else ()
    return (*failing, *(event for event in others if event.reason != CONTAINER_CREATE_FAILED))


def _phase_event(phase: str, message: str) -> Event:
    make = normal if phase in (RUNNING, TERMINATING, SUCCEED) else warning
    return make(reason_of(phase), message)


# --- phases and counters ---


def first_running(job: AITrainingJob, has_run: bool, now: datetime) -> datetime | None:
    """Written only where a deadline needs it: most jobs are spared the change of status."""
    if job.status.first_running_time or job.spec.time_limit is None:
        return job.status.first_running_time
    return now if has_run else None


def reason_of(phase: str) -> str:
    return f"{PREFIX}{phase}"


def count(job: AITrainingJob, facts: Facts) -> dict[str, ReplicaStatus]:
    """The counters of every role, by the pods that fill its places."""
    counted = {}
    for name, spec in sorted(job.spec.replica_specs.items()):
        pods = facts.observed.role(name.lower())
        is_again = job.status.restart_count.get(name, 0) > 0
        done = facts.succeeded.get(name, ())
        columns = [
            _column(pods[i], facts.state((name, i)), is_again)
            for i in range(spec.replicas)
            if i in pods and i not in done
        ]
        counted[name] = ReplicaStatus(
            pending=columns.count("pending"),
            scheduled=columns.count("scheduled"),
            active=columns.count("active"),
            succeeded=columns.count("succeeded") + sum(index < spec.replicas for index in done),
            restarting=columns.count("restarting"),
            failed=columns.count("failed"),
        )
    return counted


def _column(pod: PodView, state: str, is_again: bool) -> str:
    match state or pod.phase:
        case "Running":
            return "active"
        case "Succeeded":
            return "succeeded"
        case "Failed" | "Unknown":
            return "failed"
    if is_again:
        return "restarting"
    return "scheduled" if pod.node else "pending"


def phase_of(job: AITrainingJob, counters: Mapping[str, ReplicaStatus], facts: Facts) -> tuple[str, str]:
    """The phase of a job that goes on, and the sentence that belongs to it.

    A pod that ended counts as having run: a short role that finishes first does not take the job back.
    """
    specs = job.spec.replica_specs
    needed = {name: enough(spec, is_running=job.status.phase == RUNNING) for name, spec in specs.items()}
    started = {name: c.active + c.succeeded + c.failed for name, c in counters.items()}
    if all(started[name] >= needed[name] for name in specs):
        return RUNNING, _running_message(job, started)
    if job.status.phase == RESTARTING:
        return RESTARTING, message_of(job.status)  # until all run: a restarting job never becomes Pending again
    if role := next((name for name, c in counters.items() if c.restarting), ""):
        return RESTARTING, restarting_message("Replica", role)
    if all(started[name] + counters[name].scheduled >= needed[name] for name in specs):
        return CREATING, "creating containers"
    if facts.waiting.queued:
        return PENDING, facts.waiting.queued
    unschedulable = facts.waiting.unschedulable
    return PENDING, f"{WAITING}: {unschedulable}" if unschedulable else WAITING


def _running_message(job: AITrainingJob, started: Mapping[str, int]) -> str:
    short = [
        f"{started[name]} of {spec.replicas} {name.lower()} pods"
        for name, spec in sorted(job.spec.replica_specs.items())
        if started[name] < spec.replicas
    ]
    return f"running with {', '.join(short)}" if short else "all pods are running"


def restarting_message(scope: str, role: str) -> str:
    match scope:
        case "All":
            return "All pods are restarting now"
        case "Replica":
            return f"{role.lower()} pods are restarting now"
    return "pod is restarting now"


def message_of(status: AITrainingJobStatus) -> str:
    """The message with which the job entered its phase."""
    last = _last(status)
    return last.message if last else ""


def entered_at(status: AITrainingJobStatus) -> datetime | None:
    """When the job entered its phase."""
    last = _last(status)
    return last.last_transition_time if last and last.type == status.phase else None


def calm_since(status: AITrainingJobStatus) -> datetime | None:
    """Since when the whole job has run without a fault. An elastic job loses pods while it runs."""
    since = entered_at(status) if status.phase == RUNNING else None
    return max(since, status.restart_history[-1].time) if since and status.restart_history else since


def _last(status: AITrainingJobStatus) -> Condition | None:
    return next((c for c in reversed(status.conditions) if c.type in PHASES), None)


def enter(status: AITrainingJobStatus, phase: str, message: str, now: datetime) -> AITrainingJobStatus:
    """The status in ``phase``, with its place in the history."""
    conditions = _recorded(status.conditions, phase, message, now)
    return msgspec.structs.replace(
        status,
        phase=phase,
        conditions=finished(conditions, phase, ENDED, message, now),
        start_time=status.start_time or now,
        start_running_time=status.start_running_time or (now if phase == RUNNING else None),
        end_time=status.end_time or (now if phase in ENDED else None),
    )


def _recorded(conditions: Conditions, phase: str, message: str, now: datetime) -> Conditions:
    """The conditions with ``phase`` as the last one, each type once: ``kubectl wait`` looks at the first of its type,
    and the ancestors' clients at the last of all. Entering the same phase again replaces the message."""
    standard = tuple(c for c in conditions if c.type not in PHASES)
    newest = {c.type: c for c in conditions if c.type in PHASES}
    history = tuple(c for c in conditions if newest.get(c.type) is c)
    last = (history[-1].type, history[-1].status, history[-1].reason) if history else None
    if last == (phase, "True", reason_of(phase)):
        return (*standard, *history[:-1], msgspec.structs.replace(history[-1], message=message))
    if history:
        history = (*history[:-1], msgspec.structs.replace(history[-1], status="False"))
    entry = Condition(phase, "True", reason_of(phase), message, last_probe_time=now, last_transition_time=now)
    return (*standard, *(c for c in history if c.type != phase), entry)
