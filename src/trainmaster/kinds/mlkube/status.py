"""Phases, states, counters and conditions of an MxJob."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.core.condition import FINISHED, Conditions, find, put_standard
from trainmaster.kinds.base import cleared
from trainmaster.kinds.mlkube import labels
from trainmaster.kinds.mlkube.body import slots_of
from trainmaster.kinds.mlkube.replica import (
    CREW_RESTARTING,
    FAILED,
    READY,
    RECOVERING,
    RUNNING,
    STARTING,
    SUCCEEDED,
    UNKNOWN,
    Replica,
    is_crew_restarting,
)
from trainmaster.kinds.mlkube.types import MxJob, MxJobStatus, ReplicaStatus

CREATING = "Creating"
CLEAN_UP = "CleanUp"
DONE = "Done"
ENDED = frozenset({DONE, FAILED})
"""``Failed`` is how the ancestor called a job that it could not understand; ours is never entered, and never left."""


def counted(replicas: Sequence[Replica]) -> tuple[ReplicaStatus, ...]:
    found = []
    for role in labels.ROLES:
        states = [replica.state for replica in replicas if replica.slot.role == role]
        if states:
            counts = {state: states.count(state) for state in sorted(set(states))}
            found.append(ReplicaStatus(role, _together(states), counts))
    return tuple(found)


def done(replicas: Sequence[Replica]) -> dict[str, tuple[int, ...]]:
    """The places that have succeeded, by type."""
    found: dict[str, tuple[int, ...]] = {}
    for replica in replicas:
        if replica.state == SUCCEEDED:
            found[replica.slot.role] = (*found.get(replica.slot.role, ()), replica.slot.index)
    return found


def _together(states: Sequence[str]) -> str:
    """The state of all replicas of one type: the first of these that one of them is in."""
    return next((state for state in (FAILED, RUNNING, STARTING, UNKNOWN) if state in states), SUCCEEDED)


def folded(job: MxJob) -> tuple[ReplicaStatus, ...]:
    """At the end of a job that succeeded, whoever still worked for it has succeeded, too."""
    return counted([Replica(slot, SUCCEEDED) for slot in slots_of(job)])


def progressed(conditions: Conditions, replicas: Sequence[Replica], now: datetime) -> Conditions:
    """Whether all replicas run, and which of them come back from a fall; a crew is back when all of them are."""
    waiting = [replica for replica in replicas if not replica.has_started]
    if waiting:
        said = _said([replica for replica in waiting if replica.message])
        conditions = put_standard(conditions, READY, False, "ReplicasStarting", said or "replicas are starting", now)
    else:
        conditions = put_standard(conditions, READY, True, "AllReplicasRunning", "all replicas run or have ended", now)
    if waiting and is_crew_restarting(conditions):
        return conditions
    if fallen := [replica for replica in replicas if replica.is_recovering]:
        return put_standard(conditions, RECOVERING, True, "ReplicaRestarting", _said(fallen), now)
    return _calmed(conditions, "Recovered", now)


def fallen(conditions: Conditions, message: str, now: datetime) -> Conditions:
    """The whole crew is started again."""
    conditions = put_standard(conditions, READY, False, CREW_RESTARTING, "replicas are started again", now)
    return put_standard(conditions, RECOVERING, True, CREW_RESTARTING, message, now)


def judged(status: MxJobStatus, phase: str, state: str, message: str, now: datetime) -> MxJobStatus:
    """The status of a job whose result is known: nothing is created for it any more."""
    conditions = cleared(status.conditions, all_created=True, now=now)
    conditions = _calmed(put_standard(conditions, READY, False, state, "the job has ended", now), state, now)
    if phase in ENDED:
        conditions = put_standard(conditions, FINISHED, True, state, message, now)
    return msgspec.structs.replace(
        status,
        phase=phase,
        state=state,
        reason=message if state == FAILED else "",
        conditions=conditions,
        completion_time=status.completion_time or now,
    )


def _calmed(conditions: Conditions, reason: str, now: datetime) -> Conditions:
    recovering = find(conditions, RECOVERING)
    if recovering is None or recovering.status == "False":
        return conditions
    return put_standard(conditions, RECOVERING, False, reason, "", now)


def _said(replicas: Sequence[Replica], limit: int = 3) -> str:
    rest = len(replicas) - limit
    told = "; ".join(f"{replica.slot.place}: {replica.message}" for replica in replicas[:limit])
    return told + (f"; and {rest} more" if rest > 0 else "")
