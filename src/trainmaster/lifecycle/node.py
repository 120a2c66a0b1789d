"""When pods fail because of their node: its kubelet does not answer, or their devices do not work.

A node that was deleted or is tainted out-of-service is lost at once. One that is not ready has a grace period to
recover: kubelets restart, networks fail briefly. It begins at the time that the API reports; for devices, which have
none, when the problem was first seen, which the job's status stores.

Devices are listed by a plug-in. When it stops, as for an upgrade, its kubelet calls none of them allocatable, removes
them from the capacity five minutes later, and leaves containers alone. A kubelet that starts has no capacity until the
plug-in has registered itself. So devices that are not allocatable have failed only if others of the node are.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from trainmaster.core.view import NodeView, PodView
from trainmaster.lifecycle.deadline import seconds_until
from trainmaster.lifecycle.fault import Fault

NODE_FAIL = "NodeFail"
DEVICE_FAILURE = "DeviceFailure"

UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

Nodes = Mapping[str, NodeView]


class Rules(msgspec.Struct, frozen=True):
    """``grace`` is in seconds, as is ``device_grace``, of devices that a node no longer has; ``bad_conditions`` are
    types of conditions under which no training goes on."""

    grace: float
    device_grace: float
    bad_conditions: frozenset[str] = frozenset()


class NodeProblem(msgspec.Struct, frozen=True):
    """What is wrong with a node. ``is_lost``: its kubelet does not answer, so that pods there are force-deleted.
    ``since`` is None where the API does not report it."""

    reason: str
    message: str
    since: datetime | None = None
    is_lost: bool = False
    is_final: bool = False
    """There is nothing to wait for."""
    missing_device: str = ""
    """The device that the node no longer has."""

    def left(self, grace: float, seen: datetime, now: datetime) -> float:
        """Seconds until it counts; ``seen`` is when it was first seen."""
        if self.is_final:
            return 0.0
        return seconds_until(self.since or seen, grace, now)


def problems_of(node: NodeView, rules: Rules) -> Iterator[NodeProblem]:
    """All that is wrong with a node, the worst first."""
    yield from _losses(node)
    for found in node.conditions:
        if found.type in rules.bad_conditions:
            details = f": {found.message}" if found.message else ""
            yield NodeProblem(found.type, f"Node {node.name} has the condition {found.type}{details}", found.since)


def _losses(node: NodeView) -> Iterator[NodeProblem]:
    taints = dict(node.taints)
    offline = f"Node {node.name} is failed and offline"
    if node.is_gone:
        yield NodeProblem("NodeGone", f"{offline}: it was deleted", is_lost=True, is_final=True)
    if OUT_OF_SERVICE in taints:
        yield NodeProblem("NodeOutOfService", f"{offline}: it is out of service", is_lost=True, is_final=True)
    details = f": {node.message}" if node.message else ""
    if UNREACHABLE in taints:
        since = taints[UNREACHABLE] or node.ready_since
        yield NodeProblem("NodeUnreachable", f"{offline}{details or ': it is unreachable'}", since, is_lost=True)
    elif node.ready in ("False", "Unknown"):
        yield NodeProblem("NodeNotReady", f"{offline}{details or ': it is not ready'}", node.ready_since, is_lost=True)


def lost(nodes: Nodes | None, grace: float, now: datetime, *, is_outage: bool = False) -> frozenset[str]:
    """The nodes that will not recover. In an outage of most nodes, which is more likely a network failure, only those
    that were deleted or are out of service."""
    return frozenset(
        name
        for name, node in (nodes or {}).items()
        if any(t.left(grace, now, now) <= 0 and (t.is_final or not is_outage) for t in _losses(node))
    )


def fault_of(pod: PodView, trouble: NodeProblem) -> Fault:
    return Fault(
        phase=NODE_FAIL,
        message=f"pod {pod.key.name} failed: {trouble.message}",
        node=pod.node,
        is_node=True,
        reason=trouble.reason,
        pod=pod,
    )


# --- devices ---


def device_problems(pods: Iterable[PodView], others: Iterable[PodView], nodes: Nodes) -> dict[str, list[NodeProblem]]:
    """What is wrong with the devices of the pods of a job, by uid; ``others`` are pods of other jobs on these nodes.

    A pod whose kubelet says that a device of it is unhealthy is affected, and no other pod for that device. Where fewer
    devices work than pods of all jobs were given, and no kubelet says which ones do not, every pod may have one of
    them: all are affected except those that are known to be healthy.
    """
    own = [pod for pod in pods if not pod.is_ended and (pod.devices or pod.unhealthy)]
    if not own:
        return {}
    found = {pod.uid: [_unhealthy(pod)] for pod in own if pod.unhealthy}
    for (name, device), (given, known) in _given((*own, *others)).items():
        node = nodes.get(name)
        problem = _shortage(node, device, given, known) if node and not node.is_gone else None
        for pod in own if problem else ():
            if problem and pod.node == name and device in dict(pod.devices) and device not in pod.healthy:
                found.setdefault(pod.uid, []).append(problem)
    return found


def _shortage(node: NodeView, device: str, given: int, known: int) -> NodeProblem | None:
    """What the counts of a node say of devices that pods were ``given``, beyond those that are ``known`` not to work.
    None of a node with a capacity of which nothing is allocatable: most likely its plug-in has stopped."""
    working, capacity = node.devices.get(device, 0), node.capacity.get(device, 0)
    if given - known <= working:
        return None
    if 0 < working < capacity:
        counts = f"Node {node.name} has {working} {device} that work, and pods were given {given} of them"
        return NodeProblem(DEVICE_FAILURE, f"{counts}; which ones do not work is not known")
    if given - known > capacity:
        counts = f"Node {node.name} has {capacity} {device} left, and pods were given {given} of them"
        return NodeProblem(
            DEVICE_FAILURE, f"{counts}; its device plug-in no longer lists the others", missing_device=device
        )
    return None


def _unhealthy(pod: PodView) -> NodeProblem:
    devices = ", ".join(f"{number} {device}" for device, number in pod.unhealthy)
    return NodeProblem(DEVICE_FAILURE, f"of its devices on node {pod.node} {devices} is unhealthy")


def _given(pods: Iterable[PodView]) -> dict[tuple[str, str], tuple[int, int]]:
    """By node and device: how many were given to pods that have not ended, and how many of them are known not to
    work."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for pod in pods:
        known = dict(pod.unhealthy)
        for device, number in pod.devices if not pod.is_ended else ():
            given, bad = found.get((pod.node, device), (0, 0))
            found[pod.node, device] = given + number, bad + known.get(device, 0)
    return found
