"""Kueue: with a queue, the pods of a job are admitted together, as one pod group, or wait together.

Kueue's webhook holds a pod back by a scheduling gate until its group has as many pods as its annotation says and the
queue has room for them. It knows the group by its name. A pod that fails is replaced by another one of the same group
and role; a pod that the group has no place for would be deleted. So:

- all replicas that a job starts with are one group, and a replica that is started again takes the place in it that is
  free. When no pod of the group is left, the next one has another name: Kueue may still be removing the old one. The
  status stores the name of the last one;
- replicas that come later (elastic ones, those that a coordinator requests) are queued alone, each for itself;
- a group that is not continued is marked, so that Kueue gives its quota back although not all of its pods succeeded.

Kueue must not keep deleted pods with a finalizer, as it does for pods without a controller: their names are needed
again. The annotation ``PARENT`` says that they have one.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec

from trainmaster.core.ids import JOB, POD
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Body, Patch
from trainmaster.core.slot import Slot
from trainmaster.core.view import PodView
from trainmaster.lifecycle.model import JobModel, Place

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
MANAGED = "kueue.x-k8s.io/managed"
GROUP = "kueue.x-k8s.io/pod-group-name"
SIZE = "kueue.x-k8s.io/pod-group-total-count"
POD_SET = "kueue.x-k8s.io/role-hash"
PARENT = "kueue.x-k8s.io/pod-suspending-parent"
RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
"""``false`` on one pod of a group that is not continued: it has ended when its pods have."""

READ_LABELS = {
    QUEUE: "The LocalQueue of Kueue that admits the pods of the job. A change counts when all pods are created anew.",
    PRIORITY: "The WorkloadPriorityClass of Kueue for the job. It has an effect with a queue.",
}
"""Of jobs."""
LABELS = {
    QUEUE: "The queue of the job, if it has one.",
    PRIORITY: "The WorkloadPriorityClass of a job with a queue.",
    MANAGED: "``true`` for the pods of a job with a queue: Kueue admits them.",
    GROUP: "The pod group, which is also the name of Kueue's Workload. Replicas that are queued alone have none.",
}
ANNOTATIONS = {
    SIZE: "How many pods the pod group has.",
    POD_SET: "The role of the pod. Kueue's Workload has a pod set for each role.",
    PARENT: "``trainmaster`` for the pods of a job with a queue: Kueue sets no finalizer.",
}
"""Of pods, when they are created."""

MOST_ROLES = 8
"""Of a pod group. Pods of a job with more roles are queued alone."""
_LONGEST = 52
"""Of the name of a job in the name of a group, which has at most 63 characters."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Of a pod set."""


class Queue(msgspec.Struct, frozen=True):
    """What a job says by its labels."""

    name: str
    priority_class: str = ""


class Group(msgspec.Struct, frozen=True):
    name: str
    size: int
    queue: Queue
    """The same for all pods of the group, also when that of the job has changed."""


def queue_of(labels: Mapping[str, str]) -> Queue | None:
    """The queue that a job with these labels asks for; None if it asks for none."""
    name = labels.get(QUEUE, "")
    return Queue(name, labels.get(PRIORITY, "")) if name else None


def groups(
    queue: Queue, uid: str, model: JobModel, observed: Observed, missing: Sequence[Slot], settled: Container[Place]
) -> dict[str, Group]:
    """By the name of its slot, the group of each ``missing`` replica. Replicas without a group are queued alone. Those
    that have succeeded or have a pod are ``settled``: they are not part of a new group."""
    members = [slot for slot in model.slots if _is_member(model, slot)]
    if len({slot.role for slot in members}) > MOST_ROLES:
        return {}
    names = {slot.name for slot in members}
    wanted = [slot.name for slot in missing if slot.name in names]
    existing = _members(observed.all_pods)
    if opened := [found for name, pods in sorted(existing.items()) if (found := _opened(name, pods))]:
        group, room = max(opened, key=lambda found: found[1])
        return dict.fromkeys(wanted[:room], group)
    size = sum((slot.role, slot.index) not in settled for slot in members)
    return dict.fromkeys(wanted, Group(_name(uid, model, existing), size, queue))


def _is_member(model: JobModel, slot: Slot) -> bool:
    initial = model.roles[slot.role].initial_replicas
    return initial is None or slot.index < initial


def _members(pods: Iterable[PodView]) -> dict[str, list[PodView]]:
    """The pods that stay, by group."""
    found: dict[str, list[PodView]] = {}
    for pod in pods:
        if (name := pod.labels.get(GROUP, "")) and not pod.deleting:
            found.setdefault(name, []).append(pod)
    return found


def _opened(name: str, pods: Sequence[PodView]) -> tuple[Group, int] | None:
    """The group, and how many pods it has room for; None of one that has ended. A failed pod takes no place."""
    said = pods[0].annotations.get(SIZE, "")
    size = int(said) if said.isascii() and said.isdecimal() and len(said) <= 9 else 0
    queue = queue_of(pods[0].labels)
    if not size or not queue or any(map(_is_closed, pods)):
        return None
    return Group(name, size, queue), max(size - sum(pod.phase != "Failed" for pod in pods), 0)


def _is_closed(pod: PodView) -> bool:
    return pod.annotations.get(RETRIABLE) == "false"


def last_seen(pods: Iterable[PodView], stored: str) -> str:
    """The group that pods may join now; without one the last that was, which is ``stored``."""
    opened = [name for name, members in _members(pods).items() if _opened(name, members)]
    return stored if stored in opened else max(opened, default=stored)


def _name(uid: str, model: JobModel, existing: Iterable[str]) -> str:
    """Another one for each attempt of all pods, and never that of a group that has ended."""
    attempts = [[role, each.attempt, sorted(each.attempts.items())] for role, each in model.memory.restarts.items()]
    said = msgspec.json.encode([uid, sorted(attempts), sorted(existing), model.memory.pod_group])
    return f"{model.name[:_LONGEST].rstrip('-.')}-{blake2b(said, digest_size=5).hexdigest()}"


def queued(body: Body, queue: Queue, group: Group | None, role: str) -> Body:
    """The pod, or the batch Job that creates it, with what Kueue reads."""
    if body.get("kind") == JOB.kind:
        spec = body["spec"]
        return {**body, "spec": {**spec, "template": queued(spec["template"], queue, group, role)}}
    metadata, queue = body["metadata"], group.queue if group else queue
    labels = {QUEUE: queue.name, MANAGED: "true"} | ({PRIORITY: queue.priority_class} if queue.priority_class else {})
    annotations = {PARENT: "trainmaster"}
    if group:
        labels[GROUP] = group.name
        annotations |= {SIZE: str(group.size), POD_SET: _pod_set(role)}
    return {
        **body,
        "metadata": {
            **metadata,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": {**(metadata.get("annotations") or {}), **annotations},
        },
    }


def _pod_set(role: str) -> str:
    """Without it Kueue would make a pod set for each combination of ports and resources, of which it allows eight."""
    name = role.lower()
    return name if _NAME.fullmatch(name) else blake2b(name.encode(), digest_size=4).hexdigest()


def closed(pods: Iterable[PodView]) -> tuple[Patch, ...]:
    """Marks the groups of these pods, which are all that is left of them. Kueue notices by itself that all pods of a
    group have succeeded."""
    why = "its pod group is not continued"
    body = {"metadata": {"annotations": {RETRIABLE: "false"}}}
    return tuple(
        Patch(POD, pods[0].key, pods[0].uid, pods[0].resource_version, body, why)
        for pods in _members(pods).values()
        if (found := _opened(pods[0].labels[GROUP], pods))
        and sum(pod.phase == "Succeeded" for pod in pods) < found[0].size
    )


def waiting(pending: Iterable[PodView]) -> str:
    """Which of the pending pods wait for Kueue; empty if none does."""
    gated = [pod for pod in pending if pod.is_queued and not pod.deleting]
    if not gated:
        return ""
    queue, group = gated[0].labels.get(QUEUE, ""), gated[0].labels.get(GROUP, "")
    verb = f"pod {gated[0].key.name} waits" if len(gated) == 1 else f"{len(gated)} pods wait"
    what = "it" if len(gated) == 1 else "them"
    where = f"kubectl describe workload {group} says why" if group else "kubectl get workloads lists what is queued"
    return f"{verb} for Kueue to admit {what} to queue {queue}; {where}"
