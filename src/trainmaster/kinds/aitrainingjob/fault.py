"""Faults of pods that have not ended (spec §3): containers that cannot be created, nodes that failed.

What the API does not tell since when it is so is counted from the moment in which it was first seen; the status
remembers that, so it goes on while no operator runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from trainmaster.api.aitrainingjob import AITrainingJob
from trainmaster.core.observed import Observed
from trainmaster.core.plan import soonest
from trainmaster.core.policies import creation, node
from trainmaster.core.policies.fault import Fault
from trainmaster.core.slot import place_of
from trainmaster.core.view import PodView
from trainmaster.kinds.aitrainingjob.body import slots_of
from trainmaster.kinds.base import Settings


class Faults(msgspec.Struct, frozen=True):
    """``of_pods`` are by the uid of the pod. ``creation_errors`` and ``node_troubles`` are what the status is to
    remember; ``said`` is what a user is to know of containers that cannot be created."""

    of_pods: Mapping[str, Fault]
    creation_errors: dict[str, datetime]
    node_troubles: dict[str, datetime]
    said: str = ""
    next_look: float | None = None
    """Seconds until something may be judged otherwise than now."""


class _Creation(msgspec.Struct):
    faults: dict[str, Fault] = {}
    errors: dict[str, datetime] = {}
    said: list[str] = []
    waits: list[float | None] = []


class _Nodes(msgspec.Struct):
    bad: dict[str, node.Trouble] = {}
    seen: dict[str, datetime] = {}
    waits: list[float] = []


def faults_of(job: AITrainingJob, observed: Observed, settings: Settings, now: datetime) -> Faults:
    pods = observed.all_pods
    created, nodes = _creation(job, observed, pods, settings, now), _nodes(job, observed, pods, settings, now)
    rest = len(created.said) - 3
    return Faults(
        # of a pod on a failed node nothing else matters
        of_pods=created.faults | dict(_on_bad_nodes(pods, nodes.bad)),
        creation_errors=created.errors,
        node_troubles=nodes.seen,
        said="; ".join(created.said[:3]) + (f"; and {rest} more" if rest > 0 else ""),
        next_look=soonest(*created.waits, *nodes.waits),
    )


def _creation(
    job: AITrainingJob, observed: Observed, pods: Sequence[PodView], settings: Settings, now: datetime
) -> _Creation:
    stored, found = job.status.creation_errors, _Creation()
    times = creation.Times(
        duration=settings.creating_duration_period,
        restart=settings.creating_restart_period,
        can_fail=settings.enable_creating_failed,
    )
    if not stored and not any(creation.error_of(pod) for pod in pods):
        return found  # as nearly always
    for place, pod in _places(job, observed):
        error = creation.error_of(pod) if pod and not pod.deleting else None
        if pod and error:
            since = found.errors[place] = stored.get(place, now)
            found.said.append(creation.said(pod, error))
            found.waits.append(creation.next_look(pod, since, times, now))
            if fault := creation.fault_of(pod, error, since, times, now):
                found.faults[pod.uid] = fault
        elif place in stored and (pod is None or pod.deleting or pod.phase == "Pending"):
            found.errors[place] = stored[place]  # only a replica that runs has overcome it
    return found


def _places(job: AITrainingJob, observed: Observed) -> Iterator[tuple[str, PodView | None]]:
    """The slots of the job with their pods."""
    for slot in slots_of(job):
        yield place_of(slot.role, slot.index), observed.role(slot.role.lower()).get(slot.index)


def _nodes(
    job: AITrainingJob, observed: Observed, pods: Sequence[PodView], settings: Settings, now: datetime
) -> _Nodes:
    rules = node.Rules(settings.node_fail_grace_period, settings.bad_node_conditions)
    used = node.devices_used(pods)
    found = _Nodes()
    for name, view in sorted((observed.nodes or {}).items()):
        for trouble in node.troubles_of(view, rules, used.get(name, {})):
            seen = job.status.node_troubles.get(name, now)
            if trouble.since is None and not trouble.is_final:
                found.seen[name] = seen
            if (left := trouble.left(rules.grace, seen, now)) > 0:
                found.waits.append(left)
            else:
                found.bad.setdefault(name, trouble)
    if observed.nodes is None:
        found.seen = job.status.node_troubles  # nothing is known: nothing is forgotten
    return found


def _on_bad_nodes(pods: Sequence[PodView], bad: Mapping[str, node.Trouble]) -> Iterator[tuple[str, Fault]]:
    """Pods that ended have nothing more to lose, and those that were told to go are on their way."""
    for pod in pods if bad else ():
        trouble = bad.get(pod.node)
        if trouble is None or pod.is_ended or pod.deleting:
            continue
        if not trouble.device or trouble.device in dict(pod.devices):
            yield pod.uid, node.fault_of(pod, trouble)
