"""Phases, counters and conditions of a DIJob."""

from datetime import datetime

import msgspec

from trainmaster.api.dijob import DIJobStatus, RoleStatus
from trainmaster.core.condition import FINISHED, Condition, Conditions, find, put_standard
from trainmaster.core.view import PodView
from trainmaster.kinds.dijob import labels

CREATED = "Created"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
ENDED = frozenset({SUCCEEDED, FAILED})

ROLES = ("Coordinator", "Aggregator", "Collector", "Learner")


def reason_of(phase: str) -> str:
    return f"DIJob{phase}"


def role_status(pod: PodView | None) -> RoleStatus:
    """The counters of a role with one pod; a pod on its way out counts as nothing."""
    match pod_state(pod):
        case "Running":
            return RoleStatus(active=1)
        case "Succeeded":
            return RoleStatus(succeeded=1)
        case "Failed":
            return RoleStatus(failed=1)
    return RoleStatus()


def pod_state(pod: PodView | None) -> str:
    """Running, Succeeded, Failed or empty: the main container decides, whatever side-cars still do."""
    if pod is None or pod.deleting:
        return ""
    main = pod.container(labels.CONTAINER)
    if pod.phase == "Failed" and not pod.reason and main is not None and main.exit_code == 0:
        return "Succeeded"  # only a side-car failed; a pod that the kubelet stopped has a reason
    if pod.is_ended:
        return pod.phase
    if pod.phase != "Running":
        return ""
    if main is None or main.exit_code is None or pod.restart_policy == "Always":
        return "Running"
    if main.exit_code == 0:
        return "Succeeded"
    return "Running" if pod.restart_policy == "OnFailure" else "Failed"


def enter(status: DIJobStatus, phase: str, message: str, now: datetime) -> DIJobStatus:
    conditions = _put(status.conditions, phase, message, now)
    if phase in ENDED:
        conditions = tuple(_ended(c, now) if c.type == RUNNING else c for c in conditions)
        conditions = put_standard(conditions, FINISHED, True, phase, message, now)
    return msgspec.structs.replace(status, phase=phase, conditions=conditions)


def _put(conditions: Conditions, phase: str, message: str, now: datetime) -> Conditions:
    """One entry a phase; the newest stands last, an entry that says the same stays untouched."""
    old = find(conditions, phase)
    if old and (old.status, old.reason) == ("True", reason_of(phase)):
        return conditions
    since = old.last_transition_time if old and old.status == "True" else now
    entry = Condition(phase, "True", reason_of(phase), message, last_update_time=now, last_transition_time=since)
    return (*(c for c in conditions if c.type != phase), entry)


def _ended(running: Condition, now: datetime) -> Condition:
    if running.status == "False":
        return running
    return msgspec.structs.replace(running, status="False", last_update_time=now, last_transition_time=now)
