"""Phases, counters, conditions and Events of a DIJob with tasks.

Pending, Starting (all pods exist), Running (all pods are ready), and from there Restarting after a failure or
Rescheduling after anything else that changed the pods, then Starting again. Messages are those of DI-orchestrator,
followed by what happened to which pod.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from trainmaster.core.condition import SUSPENDED, Condition, Conditions, find, finished, is_true, put_standard
from trainmaster.core.plan import Event, normal, warning
from trainmaster.kinds.ditask import labels, rank
from trainmaster.kinds.ditask.reason import PREFIX
from trainmaster.kinds.ditask.role import declared_tasks, scaled_task
from trainmaster.kinds.ditask.types import DITaskJob, DITaskStatus, RequestedReplicas
from trainmaster.kinds.status import recorded, replaced, standard_conditions
from trainmaster.lifecycle import reason, waiting
from trainmaster.lifecycle.decide import Report, Verdict
from trainmaster.lifecycle.facts import Facts, joined
from trainmaster.lifecycle.model import Place
from trainmaster.lifecycle.restart import FailedPod

PENDING, STARTING, RUNNING = "Pending", "Starting", "Running"
RESTARTING, RESCHEDULING = "Restarting", "Rescheduling"
SUCCEEDED, FAILED = "Succeeded", "Failed"
ENDED = frozenset({SUCCEEDED, FAILED})
PHASES = {
    PENDING: "The ranks are stored, and pods are being created; or the job is suspended.",
    STARTING: "All pods exist.",
    RUNNING: "All pods are ready, or have succeeded.",
    RESTARTING: "A pod failed, and pods restart.",
    RESCHEDULING: "Pods are created or deleted for another reason than a failure.",
    SUCCEEDED: "All pods have succeeded.",
    FAILED: "A failure exceeded ``backoffLimit``, or the deadline is over.",
}

_SAYS = {
    PENDING: "job created.",
    STARTING: "job is starting since all replicas are created.",
    RUNNING: "job is running since all replicas are ready.",
    RESTARTING: "job is restarting since conditions changed.",
    RESCHEDULING: "job is rescheduling since replicas or allocation changed.",
    FAILED: "job is failed since some replicas are failed.",
    SUCCEEDED: "job is succeeded since all the replicas are succeeded.",
}
"""The messages of Events."""
HAVE_SUCCEEDED = "job succeeded since all the replicas are succeeded."


def failed_message(verdict: Verdict) -> str:
    limit = " and exceed backoff limit:" if verdict.is_spent else ""
    return f"job failed since {len(verdict.final)} pods failed.{limit} {_described(verdict.final)}"


def written(job: DITaskJob, report: Report, now: datetime) -> DITaskStatus:
    old = job.status
    phase, message = _next_phase(old, report)
    entered = _entered(job, report, phase, message, now)
    return msgspec.structs.replace(
        recorded(entered, report.memory),
        observed_generation=job.metadata.generation,
        attempts=report.memory.restarts,
        restarts=(old.restarts or 0) + (report.decision is not None and report.decision.is_charged),
        reschedules=(old.reschedules or 0) + _is_rescheduled(old, report, phase),
        ranks={} if report.step == "suspend" else _ranks(old, report),
        requested_replicas=_requested(job),
        clean=report.clean,
        conditions=standard_conditions(entered.conditions, report, now),
        **_counters(job, report, is_over=phase in ENDED),
    )


def events(job: DITaskJob, report: Report, new: DITaskStatus) -> tuple[Event, ...]:
    match report.step:
        case "suspend" | "resume":
            return (normal(_reason(_SUSPENSION[report.step]), _suspension(report)),)
        case "restart":
            return _restarted(report.failed)
        case "end":
            return (_end(report),)
    is_new = find(job.status.conditions, PENDING) is None
    make = warning if new.phase == RESCHEDULING else normal
    entered = (make(_reason(new.phase), _SAYS[new.phase]),) if is_new or new.phase != job.status.phase else ()
    return (*entered, *replaced(report), *waiting.events(job.status.conditions, report.waiting))


def _end(report: Report) -> Event:
    """A job that took too long has failed without failed pods."""
    phase, message = report.result.phase, report.result.message
    if report.result.is_success:
        return normal(_reason(phase), _SAYS[phase])
    return warning(_reason(phase), f"{_SAYS[phase]} {message}" if report.facts.failed else message)


def _restarted(failed: Sequence[FailedPod]) -> tuple[Event, ...]:
    """Failures and faults that are not charged are two Events."""
    found = []
    for phase, is_free in ((RESTARTING, False), (RESCHEDULING, True)):
        if those := [each for each in failed if each.fault.is_free is is_free]:
            found.append(warning(_reason(phase), f"{_SAYS[phase]} {_described(those)}"))
    return tuple(found)


# --- phases ---


def is_complete(facts: Facts) -> bool:
    """Every replica has a pod that stays, and there is no other pod."""
    has_others = bool(facts.outdated) or any(not pod.deleting for pod in facts.surplus)
    return not facts.missing and not has_others and not any(pod.deleting for pod in facts.pods.values())


def _next_phase(old: DITaskStatus, report: Report) -> tuple[str, str]:
    """The phase, and the message of its condition."""
    match report.step:
        case "end":
            return report.result.phase, report.result.message
        case "restart":
            charged = [failed for failed in report.failed if not failed.fault.is_free]
            if charged:
                return RESTARTING, f"job is restarting since {len(charged)} pods failed. {_described(charged)}"
            return RESCHEDULING, f"{_SAYS[RESCHEDULING]} {_described(report.failed)}"
        case "replace":
            return RESCHEDULING, f"{_SAYS[RESCHEDULING]} {_described(report.facts.stranded)}".rstrip()
    phase = PENDING if report.step in ("suspend", "resume") else _going_on(old, report)
    found = find(old.conditions, phase)
    is_same = phase == old.phase and found is not None and found.status == "True"
    return phase, found.message if is_same and found else _SAYS[phase]


def _going_on(old: DITaskStatus, report: Report) -> str:
    """Every job is Pending first, however fast its pods start."""
    if find(old.conditions, PENDING) is None:
        return PENDING
    if not is_complete(report.facts):
        return RESCHEDULING if old.phase in (STARTING, RUNNING) else old.phase
    if old.phase not in (STARTING, RUNNING):
        return STARTING
    return RUNNING if old.phase == RUNNING or _are_all_ready(report) else STARTING


def _are_all_ready(report: Report) -> bool:
    """All pods of a job that is complete are ready, or have succeeded."""
    facts = report.facts
    done = {(task, index) for task, indices in facts.succeeded.items() for index in indices}
    return all(place in done or _is_ready(report, place) for place in facts.pods)


def _is_ready(report: Report, place: Place) -> bool:
    return report.model.roles[place[0]].training.is_ready(report.facts.pods[place])


def _is_rescheduled(old: DITaskStatus, report: Report, phase: str) -> bool:
    if report.step == "proceed":
        return phase == RESCHEDULING != old.phase
    return report.step == "replace" or any(failed.fault.is_free for failed in report.failed)


def _entered(job: DITaskJob, report: Report, phase: str, message: str, now: datetime) -> DITaskStatus:
    old = job.status
    conditions = finished(_put(old.conditions, phase, message, now), phase, ENDED, message, now)
    start_time = old.start_time or now
    if report.step in ("suspend", "resume"):
        is_suspended = report.step == "suspend"
        why = _SUSPENSION[report.step]
        conditions = put_standard(conditions, SUSPENDED, is_suspended, why, _suspension(report), now)
    # Time in which nothing may run is not charged to the deadline.
    starts: dict[str, datetime | None] = {"suspend": None, "resume": now}
    return msgspec.structs.replace(
        old,
        phase=phase,
        conditions=conditions,
        start_time=starts.get(report.step, start_time),
        completion_timestamp=now if phase in ENDED else None,
    )


_SUSPENSION = {"suspend": reason.SUSPENDED, "resume": reason.RESUMED}


def _suspension(report: Report) -> str:
    return report.model.run.suspend if report.step == "suspend" else f"DIJob {report.model.name} is resumed"


def _put(conditions: Conditions, phase: str, message: str, now: datetime) -> Conditions:
    """The newest phase is the last condition, and the only one of a phase that is True."""
    old = find(conditions, phase)
    if old and (old.status, old.message) == ("True", message):
        return conditions
    since = old.last_transition_time if old and old.status == "True" else now
    entry = Condition(phase, "True", _reason(phase), message, last_update_time=now, last_transition_time=since)
    others = [msgspec.structs.replace(c, status="False") if c.type in PHASES else c for c in conditions]
    return (*(c for c in others if c.type != phase), entry)


def _reason(phase: str) -> str:
    return f"{PREFIX}{phase}"


def _described(failed: Sequence[FailedPod]) -> str:
    return joined([each.fault.message for each in failed])


def running_since(status: DITaskStatus) -> datetime | None:
    found = find(status.conditions, RUNNING)
    return found.last_transition_time if found and is_true(status.conditions, RUNNING) else None


# --- counters ---


def _counters(job: DITaskJob, report: Report, *, is_over: bool) -> dict[str, object]:
    facts, scaled = report.facts, scaled_task(job.spec)
    pods = {place: pod for place, pod in facts.pods.items() if not pod.deleting}
    return {
        "replicas": len(report.model.slots),
        "ready_replicas": 0 if is_over else sum(_is_ready(report, place) for place in pods),
        "task_status": {} if is_over else _task_status(facts),
        "allocation": job.status.allocation if is_over else _allocation(job.status.ranks, report),
        "scaled_replicas": sum(task == scaled for task, _ in pods),
        "selector": _selector(job.metadata.name, scaled) if scaled else "",
    }


def _task_status(facts: Facts) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for pod in facts.observed.all_pods:
        if (task := pod.labels.get(labels.TASK_NAME)) and pod.phase:
            of_task = found.setdefault(task, {})
            of_task[pod.phase] = of_task.get(pod.phase, 0) + 1
    return found


def _allocation(ranks: Mapping[str, int], report: Report) -> tuple[str, ...]:
    """The node of each replica, by rank."""
    nodes = {
        ranks[slot.place]: pod.node
        for slot in report.model.slots
        if slot.place in ranks and (pod := report.facts.pods.get((slot.role, slot.index))) and pod.node
    }
    return tuple(nodes.get(number, "") for number in range(max(nodes, default=-1) + 1))


def _selector(job: str, task: str) -> str:
    """As autoscalers want it."""
    chosen = {**labels.job_labels(job), labels.TASK_NAME: task}
    return ",".join(f"{label}={value}" for label, value in chosen.items())


def _ranks(old: DITaskStatus, report: Report) -> dict[str, int]:
    """Pods of a task that was removed keep their ranks until they are deleted."""
    present = {pod.labels.get(labels.TASK_NAME, "") for pod in report.facts.observed.all_pods}
    roles = present | report.model.roles.keys()
    return rank.ranks_of(old.ranks, report.model.slots, roles, report.facts.missing)


def _requested(job: DITaskJob) -> dict[str, RequestedReplicas]:
    """Requests that a later edit of the spec has replaced are dropped."""
    declared = {name: count for name, _, count in declared_tasks(job.spec)}
    asked = job.status.requested_replicas.items()
    return {task: request for task, request in asked if request.spec_replicas == declared.get(task)}
