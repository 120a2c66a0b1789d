"""Gang scheduling: the pods of a job get their nodes together, or none of them gets one.

A scheduler that can do that wants a **PodGroup**, which says how many pods have to be placed at once, and pods that
name their group. Two dialects are known: Volcano's, and for every other name that of the scheduler-plugins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from trainmaster.core.ids import Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Body, Create, Delete, Patch, deletions
from trainmaster.core.quantity import Quantity, canonical, parsed, total
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.wire import Wire

VOLCANO = "volcano"

VOLCANO_GROUP = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
PLUGINS_GROUP = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")

VOLCANO_GROUP_NAME = "scheduling.k8s.io/group-name"
VOLCANO_TASK = "volcano.sh/task-spec"
PLUGINS_GROUP_NAME = "scheduling.x-k8s.io/pod-group"
LABELS = {PLUGINS_GROUP_NAME: "The PodGroup of the pod, with a gang scheduler other than Volcano."}
ANNOTATIONS = {
    VOLCANO_GROUP_NAME: "The PodGroup of the pod, with the gang scheduler Volcano.",
    VOLCANO_TASK: "The role of the pod, with the gang scheduler Volcano.",
}


class SchedulingPolicy(Wire, frozen=True):
    """What a job asks of a gang scheduler, as Kubeflow spells it."""

    min_available: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """How many pods have to be scheduled at once. By default all pods of the job; more than these has no effect."""
    queue: str = ""
    """The queue of the PodGroup. Volcano reads it."""
    min_resources: dict[str, int | str] = {}
    """The resources that the pods need together before the first of them is scheduled. By default what the first
    ``minAvailable`` pods request."""
    priority_class: str = ""
    """The PriorityClass of the PodGroup. Volcano reads it."""
    schedule_timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """Seconds that the first pods wait for the last one. The scheduler-plugins read it."""


class Gang(msgspec.Struct, frozen=True):
    """What one job requests from its scheduler: at least ``min_member`` pods at once. Other fields are written only if
    they are set and the dialect has them."""

    scheduler: str
    key: Key
    """Of the PodGroup."""
    min_member: int = 0
    """``sized`` sets it: only the classified pods say which replicas are not placed again."""
    queue: str = ""
    priority_class: str = ""
    min_resources: Mapping[str, str] = {}
    """What those pods ask for together, unless the job says otherwise: a queue lets them in when it has that much."""
    timeout: int | None = None
    """Seconds that the first pods wait for the last one."""
    roles: Mapping[str, tuple[Body, int]] = {}
    """The pod spec of each role, and how many of its pods are placed at once."""
    min_available: int | None = None
    """Not more than so many."""

    @property
    def resource(self) -> Resource:
        return group_resource(self.scheduler)


class _GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_member: int | None = None
    min_resources: dict[str, Any] | None = None


class _Group(msgspec.Struct, frozen=True):
    spec: _GroupSpec = _GroupSpec()


_GROUP = msgspec.json.Decoder(_Group)


def group_resource(scheduler: str) -> Resource:
    return VOLCANO_GROUP if scheduler == VOLCANO else PLUGINS_GROUP


def is_wanted(scheduler: str, named: Iterable[str]) -> bool:
    """True when there is a gang scheduler and no pod asks for another one: what two schedulers place, neither of them
    can place at once. ``named`` are the schedulers that the pods name, empty for none."""
    return bool(scheduler) and all(name in ("", scheduler) for name in named)


def gang_of(
    key: Key, scheduler: str, roles: Mapping[str, tuple[Body, int]], policy: SchedulingPolicy | None
) -> Gang | None:
    """The gang of a job with so many pods of each of these specs; None without a gang scheduler, or when a pod names
    another one."""
    if not is_wanted(scheduler, [str(spec.get("schedulerName") or "") for spec, _ in roles.values()]):
        return None
    asked = policy or SchedulingPolicy()
    return Gang(
        scheduler=scheduler,
        key=key,
        queue=asked.queue,
        priority_class=asked.priority_class,
        min_resources={name: str(amount) for name, amount in asked.min_resources.items()},
        timeout=asked.schedule_timeout_seconds,
        roles=roles,
        min_available=asked.min_available,
    )


def sized(gang: Gang, succeeded: Mapping[str, Sequence[int]]) -> Gang:
    """The gang of the pods that are left to be placed. Replicas that have ``succeeded`` are not placed again. A group
    has at least one member, so that single pods of an elastic job are placed, too."""
    left = [(spec, max(number - len(succeeded.get(role, ())), 0)) for role, (spec, number) in gang.roles.items()]
    to_place = sum(number for _, number in left)
    members = max(min(gang.min_available or to_place, to_place), 1)
    needs = gang.min_resources or needed(_first(left, members))
    return msgspec.structs.replace(gang, min_member=members, min_resources=needs)


def _first(roles: Iterable[tuple[Body, int]], number: int) -> Iterator[tuple[Body, int]]:
    """So many pods, of the first roles before the next: the spec of each and how often it is among them."""
    for spec, replicas in roles:
        yield spec, min(replicas, number)
        number -= min(replicas, number)


class _ResourcesPart(msgspec.Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class _ContainerPart(msgspec.Struct, rename="camel"):
    resources: _ResourcesPart | None = None
    restart_policy: str | None = None


class _PodPart(msgspec.Struct, rename="camel"):
    containers: list[_ContainerPart]
    init_containers: list[_ContainerPart] | None = None
    overhead: dict[str, str | int | float] | None = None


def needed(pods: Iterable[tuple[Body, int]]) -> dict[str, str]:
    """What so many pods of each of these specs ask for together. Nothing, where one of them cannot be understood: the
    API server will say so of the pod."""
    parts: dict[str, list[Quantity]] = {}
    try:
        for spec, number in pods:
            if not number:
                continue
            for name, asked in _asked(msgspec.convert(spec, _PodPart)).items():
                parts.setdefault(name, []).append(Quantity(asked.amount * number, asked.suffix))
    except (ValueError, msgspec.ValidationError):
        return {}
    return {name: canonical(total(of)) for name, of in parts.items()}


def _asked(pod: _PodPart) -> dict[str, Quantity]:
    """As the scheduler counts it: containers and side-cars run together, each other init container alone before."""
    inits = pod.init_containers or []
    together = [*pod.containers, *(each for each in inits if each.restart_policy == "Always")]
    asked = _added(_requests(each) for each in together)
    for each in inits:
        for name, amount in _requests(each).items():
            asked[name] = max(asked.get(name, amount), amount)
    return _added([asked, _parsed(pod.overhead)])


def _added(amounts: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    parts: dict[str, list[Quantity]] = {}
    for each in amounts:
        for name, amount in each.items():
            parts.setdefault(name, []).append(amount)
    return {name: total(of) for name, of in parts.items()}


def _requests(container: _ContainerPart) -> dict[str, Quantity]:
    """What is only limited is asked for as well."""
    given = container.resources or _ResourcesPart()
    return _parsed(given.limits) | _parsed(given.requests)


def _parsed(amounts: Mapping[str, str | int | float] | None) -> dict[str, Quantity]:
    return {name: parsed(str(amount)) for name, amount in (amounts or {}).items()}


def member(pod: Body, gang: Gang, role: str) -> Body:
    """The pod as one of the gang."""
    metadata = pod["metadata"]
    name = gang.key.name
    if gang.scheduler == VOLCANO:
        given = metadata.get("annotations") or {}
        metadata = {**metadata, "annotations": {**given, VOLCANO_GROUP_NAME: name, VOLCANO_TASK: role}}
    else:
        metadata = {**metadata, "labels": {**(metadata.get("labels") or {}), PLUGINS_GROUP_NAME: name}}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "schedulerName": gang.scheduler}}


def missing(gang: Gang, observed: Observed, owner: Body) -> tuple[Create, ...]:
    """The PodGroup, if it is not there. It comes before the pods: a scheduler that finds one without its group puts
    it aside."""
    if observed.child(gang.resource, gang.key.name):
        return ()
    return (Create(gang.resource, group_body(gang, owner), f"{gang.min_member} pods are to be placed together"),)


def group_body(gang: Gang, owner: Body) -> Body:
    spec = _size(gang)
    if gang.scheduler == VOLCANO:
        optional = {"queue": gang.queue, "priorityClassName": gang.priority_class}
        spec |= {field: value for field, value in optional.items() if value}
    elif gang.timeout is not None:
        spec["scheduleTimeoutSeconds"] = gang.timeout
    return {
        "apiVersion": gang.resource.api_version,
        "kind": gang.resource.kind,
        "metadata": {
            "name": gang.key.name,
            "namespace": gang.key.namespace,
            "labels": dict(MANAGED_BY),
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _size(gang: Gang) -> Body:
    size: Body = {"minMember": gang.min_member}
    return size | {"minResources": dict(gang.min_resources)} if gang.min_resources else size


def changed(gang: Gang, observed: Observed) -> tuple[Patch, ...]:
    """Updates the size of the PodGroup to the number of pods. Other fields keep the edits of users."""
    found = observed.child(gang.resource, gang.key.name)
    if found is None or found.deleting or (old := _spec(found.raw)).min_member == gang.min_member:
        return ()
    # A patch leaves what it does not name.
    wanted = dict.fromkeys(old.min_resources or (), None) | dict(gang.min_resources)
    body = {"spec": {"minMember": gang.min_member, **({"minResources": wanted} if wanted else {})}}
    why = f"{gang.min_member} pods are to be placed together now"
    return (Patch(gang.resource, found.key, found.uid, found.resource_version, body, why),)


def _spec(raw: bytes) -> _GroupSpec:
    """The spec of a PodGroup; empty when it cannot be decoded, so that the group is patched."""
    try:
        return _GROUP.decode(raw).spec
    except msgspec.ValidationError:
        return _GroupSpec()


def surplus(scheduler: str, observed: Observed, why: str, *, keep: str = "") -> tuple[Delete, ...]:
    """The PodGroups of a job that needs none, or another one."""
    if not scheduler:
        return ()
    resource = group_resource(scheduler)
    groups = observed.children.get(resource, {})
    return deletions(resource, [group for name, group in groups.items() if name != keep], why)
