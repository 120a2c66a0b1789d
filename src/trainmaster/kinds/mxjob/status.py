"""Phases, counters and conditions of an MXJob, as clients of the training-operator read them.

A condition stands for a phase; the last of the list is the phase of the job. ``Running`` and ``Restarting`` take each
other's place, and an end makes both untrue.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from trainmaster.api.mxjob import MXJob, MXJobStatus, ReplicaSpec, ReplicaStatus
from trainmaster.core.condition import FINISHED, SUSPENDED, Condition, Conditions, find, is_true, put_standard
from trainmaster.core.observed import Observed
from trainmaster.core.view import PodView
from trainmaster.kinds.mxjob import labels
from trainmaster.kinds.mxjob.role import roles_of

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
ENDED = frozenset({SUCCEEDED, FAILED})
PHASES = frozenset({CREATED, RUNNING, RESTARTING, SUSPENDED}) | ENDED

_GOING_ON = (RUNNING, RESTARTING)

Places = dict[str, tuple[int, ...]]
"""Indices by role."""


def reason_of(phase: str) -> str:
    return f"MXJob{phase}"


def is_current(job: MXJob, role: str, index: int, pod: PodView) -> bool:
    """False for a pod of an older attempt than its place has reached: it is to go."""
    restarts = job.status.restarts.get(role)
    return restarts is None or attempt_of(pod) >= restarts.attempt_of(index)


def attempt_of(pod: PodView) -> int:
    """The attempt that a pod was created for. A label that was edited into no number says the first."""
    text = pod.labels.get(labels.RESTART_COUNT, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0


def pods_of(job: MXJob, observed: Observed) -> dict[str, dict[int, PodView]]:
    """The pods of the present attempt by role and index."""
    return {
        role: {
            index: pod
            for index, pod in observed.role(role.lower()).items()
            if index < replica.replicas and is_current(job, role, index, pod)
        }
        for role, replica in roles_of(job.spec).items()
    }


def count(job: MXJob, pods: Mapping[str, Mapping[int, PodView]]) -> dict[str, ReplicaStatus]:
    """A pod that is told to go while it runs has failed; one that waits for its node does not count."""
    found = done(job, pods)
    counted = {}
    for role, of_role in pods.items():
        columns = [_column(pod) for pod in of_role.values()]
        counted[role] = ReplicaStatus(columns.count("active"), len(found.get(role, ())), columns.count("failed"))
    return counted


def done(job: MXJob, pods: Mapping[str, Mapping[int, PodView]]) -> Places:
    """The places whose pod has succeeded. A pod that has ended holds no node back, and may be gone by now."""
    return _places(job, job.status.done, pods, lambda pod: pod.phase == "Succeeded")


def ran(job: MXJob, pods: Mapping[str, Mapping[int, PodView]]) -> Places:
    """The places whose pod was seen running: from then on it is missed."""
    return _places(job, job.status.ran, pods, lambda pod: _column(pod) in ("active", "succeeded"))


def pairs(places: Places) -> frozenset[tuple[str, int]]:
    return frozenset((role, index) for role, indices in places.items() for index in indices)


def without(places: Places, gone: Iterable[tuple[str, int]]) -> Places:
    """The places but for those that are ``gone``."""
    away = frozenset(gone)
    left = {role: tuple(i for i in indices if (role, i) not in away) for role, indices in places.items()}
    return {role: indices for role, indices in left.items() if indices}


def _places(
    job: MXJob, before: Places, pods: Mapping[str, Mapping[int, PodView]], is_one: Callable[[PodView], bool]
) -> Places:
    """Those of earlier passes that the spec still asks for, and those that are seen now."""
    found = {}
    for role, replica in roles_of(job.spec).items():
        known = (index for index in before.get(role, ()) if index < replica.replicas)
        now = (index for index, pod in pods[role].items() if is_one(pod))
        if indices := tuple(sorted({*known, *now})):
            found[role] = indices
    return found


def _column(pod: PodView) -> str:
    match pod.phase:
        case "Running":
            return "failed" if pod.deleting else "active"
        case "Succeeded":
            return "succeeded"
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
