"""The book of nodes: what is known of those that pods are on, and whose pods these are.

Nodes are a help, not a need. Where they cannot be read, now or ever, nothing is known of them and nothing is decided.
The watch of nodes may lag behind that of pods: when a pod was bound to a node after what the store shows, nothing bad
is known of it either. It may be new, or back again. The watch of pods may lag behind that of nodes: then it is not
certain that a pod still ran when its node was lost (``uncertain``).
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from trainmaster.core.ids import Key
from trainmaster.core.observed import Observed
from trainmaster.core.view import NodeView, PodView
from trainmaster.runtime.store import Store

OUTAGE_SHARE = 0.55
OUTAGE_NODES = 3
"""So many nodes, and at least this share of all, are not ready in an outage, as kube-controller-manager has it."""
SETTLING_SECONDS = 60.0
"""After an outage of the API server. Kubernetes' own programs open a watch again after up to a minute: 30 s back-off,
doubled by jitter. Until then kube-controller-manager does not see the Leases that kubelets renew, and reports nodes as
not ready that are well."""
POLL = 10.0
"""Seconds until a job is looked at again of whose nodes something is not known now."""

Listener = Callable[[PodView], None]


class NodeIndex:
    def __init__(self, nodes: Store[NodeView], pods: Store[PodView]) -> None:
        self._nodes = nodes
        self._pods = pods
        self._bound: dict[str, dict[Key, int]] = {}
        """By node: its pods, and the version in which each was first seen to be there."""
        self._not_ready: set[str] = set()
        self._changed: dict[str, int] = {}
        """By node: the version of its last change that is no heartbeat."""
        self._with_devices: dict[str, set[Key]] = {}
        """By node: its pods that have devices."""
        self._listeners: list[Listener] = []
        self._settled_at = -math.inf
        nodes.on_recovery(self._settle)
        pods.listen(self._pod_changed)
        nodes.listen(self._node_changed)

    def listen(self, listener: Listener) -> None:
        """Called for every pod on a node of which something changed that may matter."""
        self._listeners.append(listener)

    def of(self, pods: Iterable[PodView]) -> Mapping[str, NodeView] | None:
        """The nodes of these pods, as far as they are known; None when they cannot be read."""
        if not self._can_read:
            return None
        bound: dict[str, int] = {}
        for pod in pods:
            if pod.node:
                version = self._bound.get(pod.node, {}).get(pod.key, pod.resource_version)
                bound[pod.node] = max(version, bound.get(pod.node, 0))
        views = {name: self._nodes.get(Key("", name)) or NodeView(Key("", name), is_gone=True) for name in bound}
        return {n: view for n, view in views.items() if bound[n] <= self._nodes.seen or _looks_well(view)}

    def uncertain(self, pods: Iterable[PodView]) -> tuple[tuple[PodView, int], ...]:
        """Pods that may have ended before their node was lost or lost devices: its last change is newer than all that
        the store of pods shows. With each, the version of that change, or one that is not older."""
        if not self._can_read:
            return ()
        suspects = ((pod, self._changed.get(pod.node, self._nodes.seen)) for pod in pods if self._may_fail(pod))
        return tuple((pod, version) for pod, version in suspects if version > self._pods.seen)

    def _may_fail(self, pod: PodView) -> bool:
        """Whether its node may be a fault of a pod."""
        if not pod.node or pod.is_ended:
            return False
        node = self._nodes.get(Key("", pod.node))
        return bool(pod.devices) or node is None or not _looks_well(node)

    def neighbours(self, pods: Collection[PodView]) -> tuple[PodView, ...]:
        """Other pods with devices on the nodes where these have some."""
        own = {pod.key for pod in pods}
        nodes = {pod.node for pod in pods if pod.devices and pod.node}
        keys = sorted(key for node in nodes for key in self._with_devices.get(node, ()) if key not in own)
        return tuple(pod for key in keys if (pod := self._pods.get(key)))

    def outage(self) -> str:
        """Why nodes that are not ready are not lost yet: most nodes are not ready, or the API server was away. Empty
        otherwise. Kubernetes evicts no pods then, either: it is more likely that the control plane does not see the
        nodes than that they are all lost."""
        if not self._can_read:
            return ""
        away, total = len(self._not_ready), len(self._nodes.keys())
        if away >= OUTAGE_NODES and away >= OUTAGE_SHARE * total:
            return f"{away} of {total} nodes are not ready: pods on them are left alone until most nodes are back"
        if self._is_settling:
            return (
                "the API server was not available: pods on nodes that are not ready are left alone for"
                f" {SETTLING_SECONDS:.0f} seconds, until it is known which nodes are lost"
            )
        return ""

    def poll(self, observed: Observed) -> float | None:
        """Seconds until it is worth while to look again; None when all is known that will ever be."""
        if observed.nodes is None:
            return POLL if self._nodes.is_synced and not self._nodes.is_current else None
        is_known = all(not pod.node or pod.node in observed.nodes for pod in observed.all_pods)
        is_well = not self._is_settling or all(map(_looks_well, observed.nodes.values()))
        return None if is_known and is_well else POLL

    def _settle(self) -> None:
        self._settled_at = asyncio.get_running_loop().time() + SETTLING_SECONDS

    @property
    def _is_settling(self) -> bool:
        return self._settled_at > -math.inf and asyncio.get_running_loop().time() < self._settled_at

    @property
    def _can_read(self) -> bool:
        """False also without any node: pods run on nodes, so an empty list means that they are hidden from us."""
        return self._nodes.is_synced and self._nodes.is_current and bool(self._nodes.keys())

    def _pod_changed(self, before: PodView | None, after: PodView | None) -> None:
        if before and after and (before.node, before.uid) == (after.node, after.uid):
            if after.node and after.resource_version < before.resource_version:  # etcd was restored from a backup
                self._bound.setdefault(after.node, {})[after.key] = after.resource_version
            return
        if before and (others := self._bound.get(before.node)):
            others.pop(before.key, None)
            if not others:
                del self._bound[before.node]
        if before and (holders := self._with_devices.get(before.node)):
            holders.discard(before.key)
            if not holders:
                del self._with_devices[before.node]
        if after and after.node:
            self._bound.setdefault(after.node, {})[after.key] = after.resource_version
            if after.devices:
                self._with_devices.setdefault(after.node, set()).add(after.key)

    def _node_changed(self, before: NodeView | None, after: NodeView | None) -> None:
        if before:
            self._not_ready.discard(before.name)
        if after and after.ready in ("False", "Unknown"):
            self._not_ready.add(after.name)
        if before and after and msgspec.structs.replace(before, resource_version=after.resource_version) == after:
            return  # a heartbeat: every node has one every few seconds
        view = after or before
        if after:
            self._changed[after.name] = after.resource_version
        elif before:
            self._changed.pop(before.name, None)
        for key in tuple(self._bound.get(view.name, ())) if view else ():
            if pod := self._pods.get(key):
                for listener in self._listeners:
                    listener(pod)


def _looks_well(view: NodeView) -> bool:
    return view.ready == "True" and not view.taints and not view.conditions
