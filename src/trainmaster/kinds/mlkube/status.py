"""Phases, states, counters and conditions of an MxJob."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from trainmaster.core.condition import FINISHED, SUSPENDED, Conditions, find, is_true, put_standard
from trainmaster.core.ids import JOB
from trainmaster.core.plan import Event, normal, warning
from trainmaster.core.slot import place_of
from trainmaster.kinds.mlkube import reason
from trainmaster.kinds.mlkube.body import next_runtime_id, runtime_id
from trainmaster.kinds.mlkube.replica import PHASE_RUNNING, RECOVERING, is_group_restarting
from trainmaster.kinds.mlkube.types import MxJob, MxJobStatus, ReplicaStatus
from trainmaster.kinds.status import recorded, standard_conditions
from trainmaster.lifecycle import waiting
from trainmaster.lifecycle.decide import Report
from trainmaster.lifecycle.facts import joined
from trainmaster.lifecycle.model import Place
from trainmaster.lifecycle.reason import RESUMED

CREATING = "Creating"
CLEAN_UP = "CleanUp"
DONE = "Done"

UNKNOWN = "Unknown"
STARTING = "Starting"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

ENDED = frozenset({DONE, FAILED})
"""mxnet-operator set the phase ``Failed`` for a job whose spec it could not read. It is never set, and never left."""
PHASES = {
    CREATING: "Not all replicas have run yet.",
    PHASE_RUNNING: "All replicas have run.",
    SUSPENDED: "``suspend`` is set.",
    CLEAN_UP: "The result is stored, and replicas that still run are being stopped.",
    DONE: "The job has ended. ``status.state`` says how.",
    FAILED: "Stored by the mxnet-operator for a job that it could not read.",
}

STARTED = (RUNNING, SUCCEEDED)
_STATES = {"Running": RUNNING, "Succeeded": SUCCEEDED, "Failed": FAILED}

READY = "Ready"
"""True while all replicas run, or have succeeded."""


def ready_since(status: MxJobStatus) -> datetime | None:
    ready = find(status.conditions, READY)
    return ready.last_transition_time if ready and ready.status == "True" else None


# --- what a pass decided, in the words of the status ---


def written(job: MxJob, report: Report, now: datetime) -> MxJobStatus:
    states = states_of(report)
    new = msgspec.structs.replace(
        recorded(job.status, report.memory),
        phase=job.status.phase or CREATING,
        state=job.status.state or UNKNOWN,
        observed_generation=job.metadata.generation,
        runtime_id=runtime_id(job),
        start_time=job.status.start_time or now,
        replica_statuses=_counted(states),
    )
    match report.step:
        case "restart":
            return _restarted(job, new, report, now)
        case "suspend":
            return _suspended(job, new, report, now)
        case "resume":
            return _resumed(job, new, report, now)
        case "ending" | "end":
            return _ended(job, new, report, now)
    return _proceeding(job, new, report, now, is_ready=all(state in STARTED for state in states.values()))


def events(job: MxJob, report: Report, new: MxJobStatus) -> tuple[Event, ...]:
    old, result = job.status, report.result
    match report.step:
        case "restart":
            return (warning(RECOVERING, report.decision.message),) if report.decision else ()
        case "suspend":
            return (normal(f"{reason.PREFIX}Suspended", report.model.run.suspend),)
        case "resume":
            return (normal(f"{reason.PREFIX}Resumed", _resuming(job)),)
        case "ending" | "end":
            make = normal if result.is_success else warning
            return (make(f"{reason.PREFIX}{result.phase}", result.message),) if old.phase != CLEAN_UP else ()
    return (*_progress(old, new, report), *waiting.events(old.conditions, report.facts.waiting))


def _progress(old: MxJobStatus, new: MxJobStatus, report: Report) -> list[Event]:
    found = []
    if not old.runtime_id:
        found.append(normal(f"{reason.PREFIX}Creating", f"Replica names use runtime id {new.runtime_id}."))
    if new.phase == PHASE_RUNNING != old.phase:
        found.append(normal(f"{reason.PREFIX}Running", "all replicas are running"))
    if is_true(new.conditions, RECOVERING) and not is_true(old.conditions, RECOVERING):
        found += [warning(RECOVERING, message) for message in _messages(report.facts.recovering)[:3]]
    return found


# --- steps ---


def _proceeding(job: MxJob, status: MxJobStatus, report: Report, now: datetime, *, is_ready: bool) -> MxJobStatus:
    """A job that has run is Running until it ends. mxnet-operator had the same phase, and stored no runtime id."""
    has_run = job.status.phase == PHASE_RUNNING and bool(job.status.runtime_id)
    runs = has_run or is_ready
    conditions = standard_conditions(_progressed(status.conditions, report, now, is_ready=is_ready), report, now)
    return msgspec.structs.replace(
        status,
        phase=PHASE_RUNNING if runs else CREATING,
        state=RUNNING if runs else UNKNOWN,
        reason="",
        conditions=conditions,
    )


def _progressed(conditions: Conditions, report: Report, now: datetime, *, is_ready: bool) -> Conditions:
    """Whether all replicas run, and which of them recover; after a restart of all, until all of them run."""
    if is_ready:
        conditions = put_standard(
            conditions, READY, True, reason.ALL_REPLICAS_RUNNING, "all replicas run or have ended", now
        )
    else:
        conditions = put_standard(conditions, READY, False, reason.REPLICAS_STARTING, _starting(report), now)
    if not is_ready and is_group_restarting(conditions):
        return conditions
    if recovering := report.facts.recovering:
        message = joined(_messages(recovering))
        return put_standard(conditions, RECOVERING, True, reason.REPLICA_RESTARTING, message, now)
    return _recovered(conditions, reason.RECOVERED, now)


def _starting(report: Report) -> str:
    replicas = report.model.replicas or {}
    waits = {(s.role, s.index): replicas[s.name].message for s in report.model.slots if s.name in replicas}
    messages = _messages(waits | dict(report.facts.recovering))
    return joined(messages) or waiting.message(report.facts.waiting) or "replicas are starting"


def _restarted(job: MxJob, status: MxJobStatus, report: Report, now: datetime) -> MxJobStatus:
    """The count and the next names are stored before the first Job is stopped."""
    message = report.decision.message if report.decision else ""
    why = reason.GROUP_RESTARTING
    conditions = put_standard(status.conditions, READY, False, why, "replicas are started again", now)
    conditions = put_standard(conditions, RECOVERING, True, why, message, now)
    return msgspec.structs.replace(status, runtime_id=next_runtime_id(job), done={}, conditions=conditions)


def _suspended(job: MxJob, status: MxJobStatus, report: Report, now: datetime) -> MxJobStatus:
    message, is_news = report.model.run.suspend, not report.model.is_suspended
    has_begun = bool(job.status.runtime_id) or _has_jobs(report)
    conditions = _stopped(standard_conditions(status.conditions, report, now), SUSPENDED, message, now)
    return msgspec.structs.replace(
        status,
        phase=SUSPENDED,
        state=UNKNOWN,
        reason="",
        # So that none of its suspended Jobs fills a slot when it is resumed.
        runtime_id=next_runtime_id(job) if has_begun and is_news else status.runtime_id,
        start_time=job.status.start_time,
        replica_statuses=_counted(dict.fromkeys(states_of(report), UNKNOWN)),
        conditions=put_standard(conditions, SUSPENDED, True, SUSPENDED, message, now),
    )


def _resumed(job: MxJob, status: MxJobStatus, report: Report, now: datetime) -> MxJobStatus:
    """The time in which nothing may run does not count for the deadline."""
    return msgspec.structs.replace(
        status,
        phase=CREATING,
        state=UNKNOWN,
        runtime_id=next_runtime_id(job) if _has_jobs(report) else status.runtime_id,
        start_time=now,
        conditions=put_standard(status.conditions, SUSPENDED, False, RESUMED, _resuming(job), now),
    )


def _has_jobs(report: Report) -> bool:
    return bool(report.facts.observed.children.get(JOB))


def _ended(job: MxJob, status: MxJobStatus, report: Report, now: datetime) -> MxJobStatus:
    """The result is stored in the phase CleanUp before the first Job is stopped for it."""
    result, phase = report.result, DONE if report.step == "end" else CLEAN_UP
    conditions = _stopped(status.conditions, result.phase, "the job has ended", now)
    if phase == DONE:
        conditions = put_standard(conditions, FINISHED, True, result.phase, result.message, now)
    return msgspec.structs.replace(
        status,
        phase=phase,
        state=result.phase,
        reason=result.message if result.is_failure else "",
        replica_statuses=_counted_at_end(job, report),
        done={},
        conditions=standard_conditions(conditions, report, now),
        completion_time=status.completion_time or now,
    )


def _stopped(conditions: Conditions, why: str, message: str, now: datetime) -> Conditions:
    return _recovered(put_standard(conditions, READY, False, why, message, now), why, now)


def _recovered(conditions: Conditions, why: str, now: datetime) -> Conditions:
    is_recovering = is_true(conditions, RECOVERING)
    return put_standard(conditions, RECOVERING, False, why, "", now) if is_recovering else conditions


# --- counters ---


def states_of(report: Report) -> dict[Place, str]:
    facts = report.facts
    done = {(role, index) for role, indices in facts.succeeded.items() for index in indices}
    places = [(slot.role, slot.index) for slot in report.model.slots]
    return {place: SUCCEEDED if place in done else _STATES.get(facts.state(place), STARTING) for place in places}


def _counted_at_end(job: MxJob, report: Report) -> tuple[ReplicaStatus, ...]:
    """Replicas that still run when the job has succeeded have done their part."""
    if report.step == "end" and report.result.is_success:
        return _counted(dict.fromkeys(states_of(report), SUCCEEDED))
    return job.status.replica_statuses if job.status.phase == CLEAN_UP else _counted(states_of(report))


def _counted(states: Mapping[Place, str]) -> tuple[ReplicaStatus, ...]:
    by_role: dict[str, list[str]] = {}
    for (role, _), state in states.items():
        by_role.setdefault(role, []).append(state)
    return tuple(
        ReplicaStatus(role, _together(found), {state: found.count(state) for state in sorted(set(found))})
        for role, found in by_role.items()
    )


def _together(states: Sequence[str]) -> str:
    """The state of all replicas of one type: the first of these that one of them is in."""
    return next((state for state in (FAILED, RUNNING, STARTING, UNKNOWN) if state in states), SUCCEEDED)


# --- messages ---


def _messages(by_place: Mapping[Place, str]) -> list[str]:
    return [f"{place_of(*place)}: {message}" for place, message in by_place.items() if message]


def _resuming(job: MxJob) -> str:
    return f"job {job.metadata.name} is resumed"
