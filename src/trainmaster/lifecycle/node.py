"""When a node has failed the pods on it: nobody answers there any more, or their devices do not work.

A node that is gone, or that somebody put out of service, is lost at once. One that is not ready has a grace period to
come back: kubelets are restarted, networks stumble. Where the API tells since when something is so, that counts;
devices that are missing are counted from the moment in which they were seen to be, which the job's status remembers.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from trainmaster.core.view import NodeView, PodView
from trainmaster.lifecycle.fault import Fault

NODE_FAIL = "NodeFail"

UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"

Nodes = Mapping[str, NodeView]


class Rules(msgspec.Struct, frozen=True):
    """``grace`` is in seconds; ``bad_conditions`` are types of conditions under which no training goes on."""

    grace: float
    bad_conditions: frozenset[str] = frozenset()


class NodeProblem(msgspec.Struct, frozen=True):
    """What is wrong with a node. ``is_lost``: it runs nothing, or nobody can tell; a pod there goes without its
    kubelet. ``since`` is None where the API does not say it."""

    reason: str
    message: str
    since: datetime | None = None
    device: str = ""
    """It is about pods that were given such devices."""
    is_lost: bool = False
    is_final: bool = False
    """There is nothing to wait for."""

    def left(self, grace: float, seen: datetime, now: datetime) -> float:
        """Seconds until it counts; ``seen`` is when it was first seen."""
        if self.is_final:
            return 0.0
        return ((self.since or seen) + timedelta(seconds=grace) - now).total_seconds()


def problems_of(node: NodeView, rules: Rules, used: Mapping[str, int]) -> Iterator[NodeProblem]:
    """All that is wrong with a node, the worst first; ``used`` are its devices that the pods of a job were given."""
    yield from _losses(node)
    for found in node.conditions:
        if found.type in rules.bad_conditions:
            said = f": {found.message}" if found.message else ""
            yield NodeProblem(found.type, f"Node {node.name} has the condition {found.type}{said}", found.since)
    if node.is_gone:
        return
    for device, number in used.items():
        if (working := node.devices.get(device, 0)) < number:
            yield NodeProblem(
                "DeviceFailure",
                f"Node {node.name} has {working} {device} that work, and pods of this job were given {number} of them",
                device=device,
            )


def _losses(node: NodeView) -> Iterator[NodeProblem]:
    taints = dict(node.taints)
    offline = f"Node {node.name} is failed and offline"
    if node.is_gone:
        yield NodeProblem("NodeGone", f"{offline}: it was deleted", is_lost=True, is_final=True)
    if OUT_OF_SERVICE in taints:
        yield NodeProblem("NodeOutOfService", f"{offline}: it is out of service", is_lost=True, is_final=True)
    said = f": {node.message}" if node.message else ""
    if UNREACHABLE in taints:
        since = taints[UNREACHABLE] or node.ready_since
        yield NodeProblem("NodeUnreachable", f"{offline}{said or ': it is unreachable'}", since, is_lost=True)
    elif node.ready in ("False", "Unknown"):
        yield NodeProblem("NodeNotReady", f"{offline}{said or ': it is not ready'}", node.ready_since, is_lost=True)


def lost(nodes: Nodes | None, grace: float, now: datetime, *, is_outage: bool = False) -> frozenset[str]:
    """The nodes of which nothing is to be expected any more. In an outage of most nodes, which is more likely one of
    the network, only those that a user or the cloud gave up."""
    return frozenset(
        name
        for name, node in (nodes or {}).items()
        if any(t.left(grace, now, now) <= 0 and (t.is_final or not is_outage) for t in _losses(node))
    )


def until_lost(nodes: Nodes | None, grace: float, now: datetime) -> float | None:
    """Seconds until the next of them is."""
    left = (t.left(grace, now, now) for node in (nodes or {}).values() for t in _losses(node) if t.since)
    return min((seconds for seconds in left if seconds > 0), default=None)


def fault_of(pod: PodView, trouble: NodeProblem) -> Fault:
    return Fault(
        phase=NODE_FAIL,
        message=f"pod {pod.key.name} failed: {trouble.message}",
        node=pod.node,
        is_node=True,
        reason=trouble.reason,
    )


def devices_used(pods: Iterable[PodView]) -> dict[str, dict[str, int]]:
    """How many of each device pods that have not ended were given, by node."""
    found: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.devices and not pod.is_ended:
            of_node = found.setdefault(pod.node, {})
            for device, number in pod.devices:
                of_node[device] = of_node.get(device, 0) + number
    return found
