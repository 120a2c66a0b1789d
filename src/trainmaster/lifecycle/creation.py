"""Containers that cannot be created: an image that cannot be pulled, a Secret that does not exist.

The kubelet retries, which mostly succeeds. A pod for which it fails for long is **stuck**: it is started
again, maybe on another node, as long as the replica has tried for less than a restart period; afterwards it has
failed. Times are counted from the first error that was seen, which the status of the job stores.
"""

from datetime import datetime

import msgspec

from trainmaster.core.view import ContainerView, PodView
from trainmaster.lifecycle.completion import FAILED
from trainmaster.lifecycle.deadline import seconds_until
from trainmaster.lifecycle.fault import Fault

_PULL = "check that the image exists, and that imagePullSecrets let it be pulled"

HINTS = {
    "CreateContainerConfigError": "check the ConfigMaps and Secrets that it names",
    "CreateContainerError": "check its command, its mounts and its security context",
    "ErrImageNeverPull": "load the image onto the nodes, or change imagePullPolicy",
    "ErrImagePull": _PULL,
    "ImageInspectError": "check the image and the container runtime of the node",
    "ImagePullBackOff": _PULL,
    "InvalidImageName": "correct the name of the image",
    "RegistryUnavailable": "check that the node reaches the registry",
    "RunContainerError": "check its command, its mounts and its security context",
    "SignatureValidationFailed": "check the signature of the image",
}
"""Why a container waits that cannot be created, and what to do."""


class Times(msgspec.Struct, frozen=True):
    """All in seconds. ``duration`` is for how long a pod may try; ``restart`` for how long its replica may, with one
    pod after the other. ``can_fail`` says whether a job ever ends of it."""

    duration: float
    restart: float
    can_fail: bool


def error_of(pod: PodView) -> ContainerView | None:
    """The first container that cannot be created, those that go before the others included."""
    if pod.is_ended:
        return None
    for containers in (pod.init_containers, pod.containers):
        for container in containers:
            if container.waiting in HINTS:
                return container
    return None


def describe(pod: PodView, error: ContainerView, tried: float | None = None) -> str:
    """The message for the user; ``tried`` is how many seconds creation was retried before it counted as failed."""
    retrying = f" and has been retrying for {tried:.0f} seconds" if tried is not None else ""
    image = f" of image {error.image}" if error.image else ""
    details = f" says: {error.line}" if error.line else ""
    return (
        f"pod {pod.key.name} create container failed[{error.waiting}]{retrying}: "
        f"container {error.name}{image}{details}; {HINTS[error.waiting]}"
    )


def fault_of(pod: PodView, error: ContainerView, since: datetime, times: Times, now: datetime) -> Fault | None:
    """The fault of a pod whose replica could not be created since then; None while it may still try."""
    if seconds_until(_begun(pod, since), times.duration, now) > 0:
        return None
    can_try = seconds_until(since, times.restart, now) > 0
    if not can_try and not times.can_fail:
        return None
    return Fault(
        phase=FAILED,
        message=describe(pod, error, (now - since).total_seconds()),
        node=pod.node,
        reason=error.waiting,
        line=error.line,
        comes_again=can_try,
        pod=pod,
    )


def next_look(pod: PodView, since: datetime, times: Times, now: datetime) -> float | None:
    """Seconds until this pod may be judged otherwise than now."""
    due = (seconds_until(_begun(pod, since), times.duration, now), seconds_until(since, times.restart, now))
    return min((seconds for seconds in due if seconds > 0), default=None)


def _begun(pod: PodView, since: datetime) -> datetime:
    """The pod's own first error: no later pod of the replica had one before it started."""
    return max(since, pod.started) if pod.started else since
