"""Which pods of an ended job are removed: the clean-up policies All, Running and None. And how: a pod whose node does
not let go of it is taken off the books in the end."""

from collections.abc import Callable, Container, Iterable
from datetime import datetime, timedelta
from typing import Literal

from trainmaster.core.ids import POD
from trainmaster.core.plan import Delete, deletions, soonest
from trainmaster.core.view import PodView

CleanPodPolicy = Literal["All", "Running", "None"]

PATIENCE = 60
"""Seconds beyond its grace period in which a pod may still go by itself."""


def has_stopped(pod: PodView) -> bool:
    """It has ended, or a container has or will not come up: it holds evidence that somebody wants to read."""
    return pod.is_ended or any(c.exit_code is not None or c.waiting == "CrashLoopBackOff" for c in pod.containers)


def pods_to_clean(
    pods: Iterable[PodView], policy: CleanPodPolicy, is_kept: Callable[[PodView], bool] = has_stopped
) -> tuple[PodView, ...]:
    """Every pod that has to go, those included that are on their way already. ``is_kept`` is asked under Running."""
    match policy:
        case "All":
            return tuple(pods)
        case "Running":
            return tuple(pod for pod in pods if not is_kept(pod))
        case "None":
            return ()


def removal(pods: Iterable[PodView], why: str, now: datetime, lost: Container[str] = frozenset()) -> tuple[Delete, ...]:
    """Deletes of these pods, those included that were told to go and did not: what a pod was asked nicely is not asked
    again, and nobody is forced twice. On a ``lost`` node nobody is there to be asked nicely."""
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
    """Seconds until a pod that is to go is forced to; None when there is nothing to wait for."""
    if pod.leaves is None or pod.is_forced:
        return None
    return (pod.leaves + timedelta(seconds=PATIENCE) - now).total_seconds()


def patience(pods: Iterable[PodView], now: datetime) -> float | None:
    """Seconds until one of these pods, which are to go, is forced to; None when there is nothing to wait for."""
    return soonest(*(left for pod in pods if (left := patience_left(pod, now)) is not None and left > 0))
