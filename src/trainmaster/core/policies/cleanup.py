"""Which pods of an ended job are removed: the clean-up policies All, Running and None."""

from collections.abc import Iterable
from typing import Literal

from trainmaster.core.view import PodView

CleanPodPolicy = Literal["All", "Running", "None"]


def pods_to_clean(pods: Iterable[PodView], policy: CleanPodPolicy) -> tuple[PodView, ...]:
    """Every pod that has to go, those included that are on their way already."""
    match policy:
        case "All":
            return tuple(pods)
        case "Running":
            return tuple(pod for pod in pods if not pod.is_ended and not _has_stopped(pod))
        case "None":
            return ()


def _has_stopped(pod: PodView) -> bool:
    """A container has ended or will not come up: the pod holds evidence that somebody wants to read."""
    return any(c.exit_code is not None or c.waiting == "CrashLoopBackOff" for c in pod.containers)
