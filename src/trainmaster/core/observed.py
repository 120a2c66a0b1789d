"""Everything that one job owns, grouped once. Policies read the groups and never filter lists again."""

from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from trainmaster.core.ids import Resource
from trainmaster.core.view import ChildView, NodeView, PodView, ServiceView


class SlotLabels(msgspec.Struct, frozen=True):
    """The labels by which a kind's pod says which replica it fills. Without ``index`` a role has one slot. Pods that
    an older operator created say it by one of ``older``. With ``ends_with_index`` the label ``index`` has a name, and
    the index is what follows its last dash."""

    role: str
    index: str = ""
    older: "tuple[SlotLabels, ...]" = ()
    ends_with_index: bool = False

    def slot_of(self, labels: Mapping[str, str]) -> "tuple[str, int] | None":
        if self.role not in labels and self.older:
            return next((slot for older in self.older if (slot := older.slot_of(labels))), None)
        role = labels.get(self.role, "")
        index = labels.get(self.index, "") if self.index else "0"
        index = index.rpartition("-")[2] if self.ends_with_index else index
        # str.isdecimal accepts other scripts' digits, which int() takes too: ask for ASCII.
        if not role or not (index.isascii() and index.isdecimal()) or len(index) > 9:
            return None
        return role, int(index)


class Observed(msgspec.Struct, frozen=True, dict=True):
    """``pods[role][index]`` is the pod in that slot. ``strays`` are owned pods whose labels fit no slot
    or whose slot is taken by another pod. ``children`` are what else the job owns, by resource and name; their pods
    are the job's, too. ``taken`` are the ports of other jobs where pods share a network, and ``namespace_ports`` is how
    many ports jobs of the same namespace have. ``related`` is the object, not the job's own, that its kind wants to be
    planned with, as it stands on the wire; None when there is none. ``nodes`` are those that its pods are on, by name,
    as far as anything is known of them; None when nodes cannot be read, which decides nothing. ``outage`` says why
    nodes that are not ready are not lost yet. ``neighbours`` are pods of other jobs on these nodes that have
    devices."""

    pods: dict[str, dict[int, PodView]]
    strays: tuple[PodView, ...]
    services: dict[str, ServiceView]
    taken: frozenset[int] = frozenset()
    related: bytes | None = None
    children: Mapping[Resource, Mapping[str, ChildView]] = {}
    nodes: Mapping[str, NodeView] | None = None
    outage: str = ""
    neighbours: tuple[PodView, ...] = ()
    namespace_ports: int = 0

    @classmethod
    def of(
        cls,
        pods: Iterable[PodView],
        services: Iterable[ServiceView],
        slots: SlotLabels,
        taken: frozenset[int] = frozenset(),
        related: bytes | None = None,
        children: Mapping[Resource, Mapping[str, ChildView]] | None = None,
        nodes: Mapping[str, NodeView] | None = None,
        outage: str = "",
        neighbours: tuple[PodView, ...] = (),
        namespace_ports: int = 0,
    ) -> "Observed":
        by_role: dict[str, dict[int, PodView]] = {}
        strays: list[PodView] = []
        for pod in sorted(pods, key=lambda p: p.key.name):
            slot = slots.slot_of(pod.labels)
            if slot is None or slot[1] in by_role.setdefault(slot[0], {}):
                strays.append(pod)
            else:
                by_role[slot[0]][slot[1]] = pod
        by_name = {s.key.name: s for s in sorted(services, key=lambda s: s.key.name)}
        return cls(
            by_role,
            tuple(strays),
            by_name,
            taken,
            related,
            children or {},
            nodes,
            outage,
            neighbours,
            namespace_ports,
        )

    def role(self, name: str) -> Mapping[int, PodView]:
        return self.pods.get(name, {})

    def child(self, resource: Resource, name: str) -> ChildView | None:
        return self.children.get(resource, {}).get(name)

    @cached_property
    def all_pods(self) -> tuple[PodView, ...]:
        slotted = (self.pods[role][index] for role in sorted(self.pods) for index in sorted(self.pods[role]))
        return (*slotted, *self.strays)
