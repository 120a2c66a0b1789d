"""Replicas that di-server of DI-orchestrator v0.2 created by itself, as members of our declaration.

It kept no record: what a replica is, its pod says by labels, environment, resources and owners.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from trainmaster.core.view import CandidateView
from trainmaster.kinds.dijob import address, labels
from trainmaster.kinds.dijob.declaration import MAX_GPUS, Aggregator, Declared, Member, Role
from trainmaster.kinds.dijob.declare import AGGREGATOR, COLLECTOR, DDP_LEARNER, LEARNER, counted
from trainmaster.kinds.dijob.profile import COORDINATOR, Profile, profile_of
from trainmaster.kinds.dijob.types import DIJob

_ROLES: Mapping[str, Role] = {role: role for role in (COLLECTOR, LEARNER, AGGREGATOR, DDP_LEARNER)}


class _Env(msgspec.Struct):
    name: str
    value: str = ""


class _Resources(msgspec.Struct):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class _Container(msgspec.Struct):
    name: str
    env: list[_Env] = []
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Owner(msgspec.Struct):
    kind: str
    name: str


class _Meta(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime
    owner_references: list[_Owner] = []


class _Spec(msgspec.Struct):
    containers: list[_Container]


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str
    restart_count: int = 0


class _Status(msgspec.Struct, rename="camel"):
    container_statuses: list[_ContainerStatus] = []


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_POD = msgspec.json.Decoder(_Pod)


def adopted(job: DIJob, pods: Iterable[CandidateView]) -> Declared | None:
    """The declaration with these pods as its members; None when it has all of them. Pods that are being deleted are
    none, and neither are learners of a DDP group whose aggregator is gone. A DDP learner that was made by hand has no
    group."""
    old, profile = job.status.declared, profile_of(job)
    found = {pod.key.name: pod for pod in pods}
    fixed = address.fixed_names(job)
    members = {
        name: _member(_ROLES[role], pod, profile)
        for name, pod in found.items()
        if name not in {*fixed, *old.members}
        and not pod.deleting
        and (role := pod.labels.get(labels.REPLICA_TYPE, "")) in _ROLES
    }
    known = old.members | members
    members = {
        name: each
        for name, each in members.items()
        if each.role != DDP_LEARNER or each.aggregator in known or _is_hand_made(found[name], profile)
    }
    if not members:
        return None
    members |= {name: _with_group(each, members, name) for name, each in members.items() if each.role == AGGREGATOR}
    coordinator = found.get(address.coordinator_name(job))
    heads = (name for name, each in members.items() if each.role == AGGREGATOR)
    aggregator = address.aggregator_of(job) or next((_described(found[name], profile) for name in heads), None)
    return msgspec.structs.replace(
        old,
        members=old.members | members,
        incarnations=_incarnations(members, coordinator, profile) | old.incarnations,
        aggregator=aggregator,
        aggregator_template=None,
    )


def _member(role: Role, pod: CandidateView, profile: Profile) -> Member:
    body = _POD.decode(pod.raw)
    main = _main(body, profile.container(role))
    # What a request asked for is both; a template alone seldom is.
    asked = {name: each for name, each in main.resources.limits.items() if main.resources.requests.get(name) == each}
    if role == AGGREGATOR:
        asked = {}  # its own resources are those of its template
    member = Member(
        role,
        body.metadata.creation_timestamp,
        cpus=asked.get("cpu", ""),
        gpus=_number(asked.get(labels.GPU, "")),
        memory=asked.get("memory", ""),
    )
    if role != DDP_LEARNER:
        return member
    if _is_hand_made(pod, profile):
        # A master is one of several pods, however many: then its service has the port at which they meet.
        is_master = pod.labels.get(labels.DDP_TYPE) == labels.DDP_MASTER
        return msgspec.structs.replace(member, world_size=min(member.gpus + is_master, MAX_GPUS))
    env = _env(main)
    master = env.get("MASTER_ADDR", "")
    return msgspec.structs.replace(
        member,
        aggregator=next((owner.name for owner in body.metadata.owner_references if owner.kind == "Pod"), ""),
        world_size=_number(env.get("WORLD_SIZE", "")),
        start_rank=_number(env.get("START_RANK", "")),
        master="" if master == "localhost" else master,
    )


def _is_hand_made(pod: CandidateView, profile: Profile) -> bool:
    """Every DDP learner of di-server has this variable. The reference to its aggregator tells nothing: the garbage
    collector removes it when the aggregator is gone."""
    return "WORLD_SIZE" not in _env(_main(_POD.decode(pod.raw), profile.container(DDP_LEARNER)))


def _env(container: _Container) -> dict[str, str]:
    return {each.name: each.value for each in container.env}


def _with_group(head: Member, members: Mapping[str, Member], name: str) -> Member:
    """An aggregator with what was asked for its learner, which the pods of the DDP group share."""
    group = [each for each in members.values() if each.aggregator == name]
    size = max((each.world_size for each in group), default=0)
    if len(group) != 1:
        return msgspec.structs.replace(head, world_size=size)
    return msgspec.structs.replace(head, cpus=group[0].cpus, memory=group[0].memory, world_size=size)


def _incarnations(members: Mapping[str, Member], coordinator: CandidateView | None, profile: Profile) -> dict[str, str]:
    """The coordinator that runs has stated how many replicas it has: what it asks for next is added to them."""
    if coordinator is None:
        return {}
    container = profile.container(COORDINATOR)
    statuses = _POD.decode(coordinator.raw).status.container_statuses
    restarts = next((each.restart_count for each in statuses if each.name == container), 0)
    incarnation = f"{coordinator.uid}/{restarts}" if restarts else coordinator.uid
    return {role: incarnation for role in (COLLECTOR, LEARNER) if counted(members, role)}


def _described(pod: CandidateView, profile: Profile) -> Aggregator:
    """Where an aggregator listens. The template that v0.2 created it from was never stored with the job."""
    return address.described(profile, {"spec": msgspec.json.decode(pod.raw)["spec"]})


def _main(pod: _Pod, name: str) -> _Container:
    return next((container for container in pod.spec.containers if container.name == name), pod.spec.containers[0])


def _number(text: str) -> int:
    """0 for what is no number of GPUs."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0
    return number if number <= MAX_GPUS else 0
