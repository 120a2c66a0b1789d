"""Phases, counters and conditions of an MXJob, as clients of the training-operator read them.

A condition stands for a phase; the last of the list is the phase of the job. ``Running`` and ``Restarting`` take each
other's place, and an end makes both untrue.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from trainmaster.core.condition import FINISHED, SUSPENDED, Condition, Conditions, find, is_true, put_standard
from trainmaster.core.plan import BRIEF, LAZY, Event, normal, warning
from trainmaster.core.view import PodView
from trainmaster.kinds.base import cleared, portless
from trainmaster.kinds.mxjob.role import leading, roles_of
from trainmaster.kinds.mxjob.types import MXJob, MXJobStatus, ReplicaSpec, ReplicaStatus
from trainmaster.kinds.mxjob.validate import overridden
from trainmaster.lifecycle import waiting
from trainmaster.lifecycle.decide import Report, Verdict
from trainmaster.lifecycle.facts import Waiting, joined
from trainmaster.lifecycle.restart import FailedPod

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
ENDED = frozenset({SUCCEEDED, FAILED})
PHASES = frozenset({CREATED, RUNNING, RESTARTING, SUSPENDED}) | ENDED

_GOING_ON = (RUNNING, RESTARTING)


def reason_of(phase: str) -> str:
    return f"MXJob{phase}"


# --- what a pass decided, in the words of the status ---


def written(job: MXJob, report: Report, now: datetime) -> MXJobStatus:
    old, message = job.status, _message(job, report)
    memory, counters = report.memory, count(report)
    match report.step:
        case "adopt":
            return _adopted(old, report.result.phase, now)
        case "suspend":
            entered = enter(created(old, _created(job), now), SUSPENDED, message, now)
            counters = {role: ReplicaStatus() for role in report.model.roles}
        case "resume":
            entered = enter(resume(old, message, now), CREATED, _created(job), now)
            counters = old.replica_statuses
        case "restart":
            entered = enter(old, RESTARTING, message, now)
        case "replace":
            entered = old if old.phase else enter(old, CREATED, message, now)
        case "end":
            entered = enter(old, report.result.phase, message, now)
        case "proceed":
            entered = enter(old, *_phase(job, counters, waiting.message(_waiting(report))), now)
    conditions = entered.conditions
    if report.step in ("proceed", "suspend", "end"):
        conditions = cleared(conditions, all_created=report.is_all_created, now=now)
        conditions = waiting.reported(conditions, _waiting(report), now)
    return msgspec.structs.replace(
        entered,
        observed_generation=job.metadata.generation,
        replica_statuses=counters,
        restarts=memory.restarts,
        restart_history=memory.history,
        ran=memory.ran,
        done=memory.done,
        ports=memory.ports,
        node_troubles=memory.node_problems,
        clean=report.clean,
        conditions=portless(conditions, report.port_error, now),
    )


def events(job: MXJob, report: Report, new: MXJobStatus, scheduler: str) -> tuple[Event, ...]:
    message = _message(job, report)
    match report.step:
        case "restart":
            return (warning(reason_of(RESTARTING), message),)
        case "suspend":
            return (normal(reason_of(SUSPENDED), message),)
        case "resume":
            return (normal(reason_of("Resumed"), message),)
        case "end":
            make = normal if report.result.phase == SUCCEEDED else warning
            return (make(reason_of(report.result.phase), message),)
        case "proceed" | "replace":
            told = waiting.events(job.status.conditions, _waiting(report))
            return (*_started(job, new, scheduler), *_replaced(report), *told)
    return ()


def delay(job: MXJob, new: MXJobStatus) -> float:
    """Counters alone may wait. That all have run may not: from then on a pod that is gone is missed."""
    old, roles = job.status, roles_of(job.spec)
    is_first = new.ran != old.ran and all(len(new.ran.get(name, ())) == r.replicas for name, r in roles.items())
    counted = msgspec.structs.replace(
        old, replica_statuses=new.replica_statuses, ran=new.ran, done=new.done, conditions=new.conditions
    )
    if old == new or new != counted or is_first:
        return 0.0
    return LAZY if new.done == old.done else BRIEF


def failure(name: str, verdict: Verdict) -> str:
    if verdict.is_spent:
        return f"MXJob {name} has failed because it has reached the specified backoff limit: {described(verdict.final)}"
    return f"MXJob {name} is failed because {described(verdict.final)}"


def described(failed: Sequence[FailedPod]) -> str:
    """``2 Worker replica(s) failed: ...``, with the messages of the first of them."""
    roles = {role: sum(f.role == role for f in failed) for role in dict.fromkeys(f.role for f in failed)}
    counted = ", ".join(f"{number} {role}" for role, number in roles.items())
    return f"{counted} replica(s) failed: {joined([f.fault.message for f in failed])}"


def _waiting(report: Report) -> Waiting:
    return report.facts.waiting if report.step == "proceed" else waiting.NOTHING


def _message(job: MXJob, report: Report) -> str:
    name = job.metadata.name
    match report.step:
        case "restart":
            return f"MXJob {name} is restarting because {described(report.failed)}"
        case "suspend":
            return report.model.run.suspend
        case "resume":
            return f"MXJob {name} is resumed."
        case "end":
            return report.result.message
    return _created(job)


def _phase(job: MXJob, counters: Mapping[str, ReplicaStatus], waits_for: str) -> tuple[str, str]:
    """A job that has run is Running until something happens; after a restart, when all replicas run again."""
    name, phase = job.metadata.name, job.status.phase
    are_back = all(is_whole(replica, counters[role]) for role, replica in roles_of(job.spec).items())
    runs = are_back if phase == RESTARTING else phase == RUNNING or counters[leading(job.spec)].active > 0
    if phase and runs:
        return RUNNING, f"MXJob {name} is running."
    if phase == RESTARTING:
        restarting = find(job.status.conditions, RESTARTING)
        return RESTARTING, restarting.message if restarting else ""
    # Every job is Created first, however fast its pods start.
    return CREATED, f"{_created(job)} {waits_for}".rstrip() if phase else _created(job)


def _created(job: MXJob) -> str:
    return f"MXJob {job.metadata.name} is created."


def _started(job: MXJob, new: MXJobStatus, scheduler: str) -> tuple[Event, ...]:
    if not job.status.phase:
        return (normal(reason_of(CREATED), _created(job)), *overridden(job, scheduler))
    if new.phase == RUNNING != job.status.phase:
        return (normal(reason_of(RUNNING), f"MXJob {job.metadata.name} is running."),)
    return ()


def _replaced(report: Report) -> tuple[Event, ...]:
    if report.step != "replace":
        return ()
    stranded = report.facts.stranded
    return tuple(warning("PodReplaced", f"{f.fault.message}; another pod takes its place") for f in stranded)


def _adopted(old: MXJobStatus, phase: str, now: datetime) -> MXJobStatus:
    """The result of another operator stands. One of them wrote no time of the end."""
    ended = old.completion_time or entered_at(old, phase) or now
    found = find(old.conditions, phase)
    finished = put_standard(old.conditions, FINISHED, True, phase, found.message if found else "", ended)
    return msgspec.structs.replace(old, phase=phase, completion_time=ended, conditions=finished)


# --- counters ---


def count(report: Report) -> dict[str, ReplicaStatus]:
    """A pod that is being deleted while it runs has failed; a pending one does not count. When the job has succeeded,
    pods that still run have done their part."""
    facts = report.facts
    columns = Counter((role, _column(pod, facts.state((role, i)))) for (role, i), pod in facts.pods.items())
    counted = {
        role: ReplicaStatus(columns[role, "active"], len(facts.succeeded.get(role, ())), columns[role, "failed"])
        for role in report.model.roles
    }
    if report.step == "end" and report.result.phase == SUCCEEDED:
        return {r: ReplicaStatus(0, c.succeeded + c.active, c.failed) for r, c in counted.items()}
    return counted


def _column(pod: PodView, state: str) -> str:
    match state:
        case "Running":
            return "failed" if pod.deleting else "active"
        case "Failed":
            return "failed"
    return ""


def is_whole(replica: ReplicaSpec, counted: ReplicaStatus) -> bool:
    """All of its pods run, or have succeeded."""
    return counted.active + counted.succeeded == replica.replicas


def left_behind(status: MXJobStatus) -> str:
    """The end that another operator wrote down, who knew conditions and no phases. A failure is never taken back."""
    if status.phase:
        return ""
    return next((phase for phase in (FAILED, SUCCEEDED) if is_true(status.conditions, phase)), "")


def is_suspended(status: MXJobStatus) -> bool:
    """Also by the account of another operator, who knew no phases."""
    return status.phase == SUSPENDED or (not status.phase and is_true(status.conditions, SUSPENDED))


def entered_at(status: MXJobStatus, phase: str) -> datetime | None:
    found = find(status.conditions, phase)
    return found.last_transition_time if found and found.status == "True" else None


def enter(status: MXJobStatus, phase: str, message: str, now: datetime) -> MXJobStatus:
    """The status in ``phase``, with its place among the conditions."""
    conditions = _put(status.conditions, phase, message, now)
    if phase in ENDED:
        conditions = put_standard(conditions, FINISHED, True, phase, message, now)
    return msgspec.structs.replace(
        status,
        phase=phase,
        conditions=conditions,
        start_time=status.start_time or (None if phase == SUSPENDED else now),
        completion_time=status.completion_time or (now if phase in ENDED else None),
    )


def created(status: MXJobStatus, message: str, now: datetime) -> MXJobStatus:
    """The status with the condition Created: Kubeflow's clients look for it, also in a job that starts suspended."""
    if find(status.conditions, CREATED):
        return status
    return msgspec.structs.replace(status, conditions=_put(status.conditions, CREATED, message, now))


def resume(status: MXJobStatus, message: str, now: datetime) -> MXJobStatus:
    """The status of a job that may go on; time in which nothing may run is not held against it."""
    conditions = tuple(
        _changed(c, "False", reason_of("Resumed"), message, now) if c.type == SUSPENDED else c
        for c in status.conditions
    )
    return msgspec.structs.replace(status, conditions=conditions, start_time=now)


def _put(conditions: Conditions, type_: str, message: str, now: datetime) -> Conditions:
    old = find(conditions, type_)
    if old and (old.status, old.message) == ("True", message):
        return conditions
    dropped = {type_, *(_GOING_ON if type_ in _GOING_ON else ())}
    kept = tuple(c for c in conditions if c.type not in dropped)
    if type_ in ENDED or type_ == SUSPENDED:
        kept = tuple(
            _changed(c, "False", reason_of(type_), c.message, now) if c.type in _GOING_ON and c.status == "True" else c
            for c in kept
        )
    since = old.last_transition_time if old and old.status == "True" else now
    new = Condition(type_, "True", reason_of(type_), message, last_update_time=now, last_transition_time=since)
    return (*kept, new)


def _changed(old: Condition, status: str, reason: str, message: str, now: datetime) -> Condition:
    return msgspec.structs.replace(
        old, status=status, reason=reason, message=message, last_update_time=now, last_transition_time=now
    )
