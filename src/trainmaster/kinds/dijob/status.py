"""Phases, counters and conditions of a job."""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime

import msgspec

from trainmaster.core.condition import FINISHED, Condition, Conditions, find, put_standard
from trainmaster.core.view import PodView
from trainmaster.kinds.dijob.profile import Profile
from trainmaster.kinds.dijob.types import DIJobStatus, RoleStatus
from trainmaster.lifecycle.fault import is_node_reason

CREATED = "Created"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
ENDED = frozenset({SUCCEEDED, FAILED})

ROLES = {
    "coordinator": "Coordinator",
    "aggregator": "Aggregator",
    "collector": "Collector",
    "learner": "Learner",
    "ddp-learner": "DDPLearner",
}
"""As ``replicaStatus`` spells them."""
_ALWAYS = ("Coordinator", "Aggregator", "Collector", "Learner")
"""Those that clients have always found there."""


def reason_of(phase: str, profile: Profile) -> str:
    return f"{profile.word}{phase}"


def counted(pods: Iterable[tuple[str, PodView]], profile: Profile) -> dict[str, RoleStatus]:
    """Pods by how they are, by role; one on its way out counts as nothing."""
    numbers: dict[str, dict[str, int]] = {role: {} for role in _ALWAYS}
    for role, pod in pods:
        of_role = numbers.setdefault(ROLES[role], {})
        if state := pod_state(pod, profile.container(role)):
            column = "active" if state == RUNNING else state.lower()
            of_role[column] = of_role.get(column, 0) + 1
    return {role: RoleStatus(**of_role) for role, of_role in numbers.items()}


def folded(counters: Mapping[str, RoleStatus]) -> dict[str, RoleStatus]:
    """At the end of a job that succeeded, who still worked for it has succeeded, too."""
    return {
        role: RoleStatus(succeeded=each.succeeded + each.active, failed=each.failed) for role, each in counters.items()
    }


def is_displaced(pod: PodView) -> bool:
    """The node refused or ended the pod: nothing that its program did."""
    return pod.phase == "Failed" and is_node_reason(pod.reason)


def is_on_lost_node(pod: PodView, lost_nodes: Container[str]) -> bool:
    """The pod has not ended, and nothing more will be heard of it."""
    return pod.node in lost_nodes and not pod.is_ended


def pod_state(pod: PodView | None, container: str) -> str:
    """Running, Succeeded, Failed or empty: the main container decides, whatever side-cars still do."""
    if pod is None or pod.deleting:
        return ""
    main = pod.container(container)
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


def failure_of(pod: PodView, container: str) -> str:
    """Why a pod failed, as far as it says."""
    main = pod.container(container)
    if main is not None and main.exit_code:
        return f"container {main.name} on node {pod.node} exited with code {main.exit_code} ({main.reason})"
    return ", ".join(part for part in (pod.reason, pod.message) if part)


def enter(status: DIJobStatus, phase: str, message: str, now: datetime, profile: Profile) -> DIJobStatus:
    conditions = _put(status.conditions, phase, reason_of(phase, profile), message, now)
    if phase in ENDED:
        conditions = tuple(_ended(c, now) if c.type == RUNNING else c for c in conditions)
        conditions = put_standard(conditions, FINISHED, True, phase, message, now)
    return msgspec.structs.replace(
        status,
        phase=phase,
        conditions=conditions,
        start_time=status.start_time or now,
        completion_time=now if phase in ENDED else None,
    )


def _put(conditions: Conditions, phase: str, reason: str, message: str, now: datetime) -> Conditions:
    """One entry a phase; the newest stands last, an entry that says the same stays untouched."""
    old = find(conditions, phase)
    if old and (old.status, old.reason) == ("True", reason):
        return conditions
    since = old.last_transition_time if old and old.status == "True" else now
    entry = Condition(phase, "True", reason, message, last_update_time=now, last_transition_time=since)
    return (*(c for c in conditions if c.type != phase), entry)


def _ended(running: Condition, now: datetime) -> Condition:
    if running.status == "False":
        return running
    return msgspec.structs.replace(running, status="False", last_update_time=now, last_transition_time=now)
