"""Nodes that have failed the pods of an MXJob: what runs there is lost, and nobody is there to be asked nicely."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from trainmaster.core.observed import Observed
from trainmaster.core.plan import soonest
from trainmaster.core.policies import node
from trainmaster.core.policies.fault import Fault
from trainmaster.core.policies.node import Trouble
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Settings


class Nodes(msgspec.Struct, frozen=True):
    """``bad`` are those on which no training goes on, ``lost`` those of them where no kubelet answers any more."""

    bad: Mapping[str, Trouble]
    lost: frozenset[str]
    next_look: float | None
    """Seconds until another one may be bad."""


def nodes_of(observed: Observed, settings: Settings, now: datetime) -> Nodes:
    """What the API does not tell since when it is so is not counted: a pod fails of it, or it does not."""
    grace = settings.node_fail_grace_period
    rules = node.Rules(grace, settings.bad_node_conditions)
    bad: dict[str, Trouble] = {}
    waits: list[float] = []
    for name, view in sorted((observed.nodes or {}).items()):
        for trouble in node.troubles_of(view, rules, {}):
            if (left := trouble.left(grace, now, now)) <= 0:
                bad.setdefault(name, trouble)
            elif trouble.since:
                waits.append(left)
    return Nodes(bad, node.lost(observed.nodes, grace, now), soonest(*waits))


def fault_of(pod: PodView, trouble: Trouble) -> Fault:
    """For every policy that brings back what failed, the pod has failed."""
    return msgspec.structs.replace(node.fault_of(pod, trouble), has_failed=True)
