"""Which pods of an ended job are deleted: the clean-up policies All, Running and None. A pod that does not terminate
in time is force-deleted."""

from collections.abc import Callable, Container, Iterable
from datetime import datetime
from typing import Literal

from trainmaster.core.ids import POD
from trainmaster.core.plan import Delete, deletions, soonest
from trainmaster.core.view import PodView
from trainmaster.lifecycle.deadline import seconds_until

CleanPodPolicy = Literal["All", "Running", "None"]

PATIENCE = 60
"""Seconds after its grace period before a terminating pod is force-deleted."""


def has_stopped(pod: PodView) -> bool:
    """True when the pod or a container has ended, or a container is in CrashLoopBackOff: its logs may be needed."""
    return pod.is_ended or any(c.exit_code is not None or c.waiting == "CrashLoopBackOff" for c in pod.containers)


def is_gone(pod: PodView) -> bool:
    """True for a pod that was deleted by force, or whose kubelet has confirmed its end: if the object is still there, a
    finalizer keeps it, and nothing runs."""
    return pod.deleting and pod.is_forced


def pods_to_clean(
    pods: Iterable[PodView], policy: CleanPodPolicy, is_kept: Callable[[PodView], bool] = has_stopped
) -> tuple[PodView, ...]:
    """All pods to delete, including those already terminating. ``is_kept`` is used by the policy Running."""
    match policy:
        case "All":
            return tuple(pods)
        case "Running":
            return tuple(pod for pod in pods if not is_kept(pod))
        case "None":
            return ()


def removal(pods: Iterable[PodView], why: str, now: datetime, lost: Container[str] = frozenset()) -> tuple[Delete, ...]:
    """Deletes these pods. Pods that are already terminating are not deleted again. ``PATIENCE`` seconds after their
    grace period they are force-deleted, once. Pods on ``lost`` nodes are force-deleted at once."""
    found = tuple(pods)
    gone = [pod for pod in found if pod.node in lost and not pod.is_forced]
    rest = [pod for pod in found if pod.node not in lost]
    stuck = [pod for pod in rest if (left := patience_left(pod, now)) is not None and left <= 0]
    late = f"{why}, and it has not gone within {PATIENCE} seconds beyond its grace period"
    return (
        *(Delete(POD, pod.key, pod.uid, f"{why}, and its node {pod.node} is lost", grace=0) for pod in gone),
        *deletions(POD, rest, why),
        *(Delete(POD, pod.key, pod.uid, late, grace=0) for pod in stuck),
    )


def patience_left(pod: PodView, now: datetime) -> float | None:
    """Seconds until a terminating pod is force-deleted; None when there is nothing to wait for."""
    if pod.leaves is None or pod.is_forced:
        return None
    return seconds_until(pod.leaves, PATIENCE, now)


def patience(pods: Iterable[PodView], now: datetime) -> float | None:
    """Seconds until the first of these pods is force-deleted; None when there is nothing to wait for."""
    return soonest(*(left for pod in pods if (left := patience_left(pod, now)) is not None and left > 0))
