"""The declared replicas of a running job: who is missing, who is nobody's, who has failed."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Create, Delete, Event, deletions, soonest, warning
from trainmaster.core.template import Owner
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Settings
from trainmaster.kinds.dijob import address, declare, labels
from trainmaster.kinds.dijob.body import member_pod, member_service
from trainmaster.kinds.dijob.declaration import Declared, Member
from trainmaster.kinds.dijob.profile import profile_of
from trainmaster.kinds.dijob.status import failure_of, is_displaced, is_on_lost_node, pod_state
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.lifecycle.cleanup import patience, removal


class DeclaredPods(msgspec.Struct, frozen=True):
    """The pods of a job by name, with what was declared. On ``lost_nodes`` nothing runs any more."""

    members: Mapping[str, Member]
    pods: Mapping[str, PodView]
    lost_nodes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, job: DIJob, observed: Observed, lost_nodes: frozenset[str] = frozenset()) -> "DeclaredPods":
        standing = address.standing_names(job)
        pods = {pod.key.name: pod for pod in observed.all_pods if pod.key.name not in standing}
        return cls(job.status.declared.members, pods, lost_nodes)

    @property
    def filled(self) -> Iterator[tuple[str, PodView]]:
        """Roles and pods of the replicas that have one."""
        return ((self.members[name].role, pod) for name, pod in self.pods.items() if self.is_own(name))

    def is_own(self, name: str) -> bool:
        """A pod of ours that says by its labels who it is: its service finds it by them."""
        member, pod = self.members.get(name), self.pods.get(name)
        if member is None or pod is None:
            return False
        return pod.labels.get(labels.REPLICA_TYPE) == member.role and pod.labels.get(labels.POD_NAME) == name

    def is_there(self, name: str) -> bool:
        """It has a pod, and keeps it."""
        return self.is_own(name) and not self.pods[name].deleting

    def groups(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Aggregators, each with the names of all of its DDP group, its own included."""
        for name, member in self.members.items():
            if learners := declare.group_of(self.members, name) if member.role == declare.AGGREGATOR else ():
                yield name, (name, *learners)


class Loss(msgspec.Struct, frozen=True):
    reason: str
    said: str
    is_own_fault: bool


def replaced(job: DIJob, crew: DeclaredPods, now: datetime) -> tuple[Declared, tuple[Event, ...]]:
    """The declaration with new names for those that failed; each with what happened to it."""
    declared = job.status.declared
    events: list[Event] = []
    for name, loss in sorted(_losses(job, crew).items()):
        if name not in declared.members:
            continue  # another one of its group has brought this about already
        attempt = str(declared.members[name].attempt)
        suffixes = declare.derived_suffixes(job.metadata.uid, name, attempt)
        declared, new = declare.replaced(declared, name, suffixes=suffixes, now=now, is_own_fault=loss.is_own_fault)
        events.append(warning(loss.reason, f"{name} {loss.said}; {new} comes in its place"))
    return declared, tuple(events)


def _losses(job: DIJob, crew: DeclaredPods) -> dict[str, Loss]:
    """Whoever failed. And whoever of a DDP group was deleted: alone under its old name nobody would talk to it."""
    found = {
        name: Loss("ReplicaLost", "is gone from its DDP group", is_own_fault=False)
        for head, group in crew.groups()
        for name in group
        if crew.members[head].formed and not crew.is_there(name)
    }
    for name, member in crew.members.items():
        pod, main = crew.pods.get(name), profile_of(job).container(member.role)
        if pod is None or not crew.is_own(name):
            continue
        if is_on_lost_node(pod, crew.lost_nodes):
            found[name] = Loss("ReplicaLost", f"was on node {pod.node}, which is lost", is_own_fault=False)
        elif pod_state(pod, main) == "Failed":
            because = f": {reason}" if (reason := failure_of(pod, main)) else ""
            found[name] = Loss("ReplicaFailed", f"failed{because}", is_own_fault=not is_displaced(pod))
    return found


def formed(declared: Declared, crew: DeclaredPods) -> Declared:
    """The declaration with those DDP groups on record that have all of their pods now."""
    complete = (head for head, group in crew.groups() if all(crew.is_there(name) for name in group))
    new = {head: member for head in complete if not (member := declared.members[head]).formed}
    if not new:
        return declared
    members = {head: msgspec.structs.replace(member, formed=True) for head, member in new.items()}
    return msgspec.structs.replace(declared, members=declared.members | members)


def leftovers(job: DIJob, crew: DeclaredPods, observed: Observed, now: datetime) -> tuple[Delete, ...]:
    """Pods and services of replicas that nobody wants any more, or that do not say who they are."""
    pods = [pod for name, pod in crew.pods.items() if not crew.is_own(name)]
    wanted = {*address.standing_names(job), *crew.members}
    services = [service for name, service in observed.services.items() if name not in wanted]
    why = "no replica of this name is declared"
    return (*removal(pods, why, now, crew.lost_nodes), *deletions(SERVICE, services, why))


def missing(
    job: DIJob, crew: DeclaredPods, observed: Observed, now: datetime, owner: Owner, settings: Settings
) -> Iterator[Create]:
    """Services before pods, an aggregator before its learners: whoever starts is found by name."""
    ready: list[tuple[str, Member, PodView | None]] = []
    for name, member in _in_order(crew.members):
        if address.template_of(job, member.role) is None or wait_for(member, now) > 0:
            continue
        aggregator = crew.pods.get(member.aggregator) if member.aggregator else None
        if member.aggregator and aggregator is None:
            continue  # its reference is part of the learner
        ready.append((name, member, aggregator))
    for name, member, aggregator in ready:
        if name not in observed.services:
            service = member_service(job, name, member, owner, aggregator)
            yield Create(SERVICE, service, f"{member.role} {name} has no address")
    for name, member, aggregator in ready:
        if name not in crew.pods:
            pod = member_pod(job, name, member, owner, settings, aggregator)
            yield Create(POD, pod, f"{member.role} {name} has no pod")


def untemplated(job: DIJob) -> str:
    """What to say when replicas are declared whose template was taken away."""
    roles = {member.role for member in job.status.declared.members.values()}
    lost = sorted(role for role in roles if address.template_of(job, role) is None)
    return f"no template for {', '.join(lost)}: put it back, or take the replicas back by di-server" if lost else ""


def wait_for(member: Member, now: datetime) -> float:
    """Seconds until a replica that came in place of a failed one may have its pod."""
    return declare.pause_left(member.at, member.attempt, now)


def next_look(crew: DeclaredPods, now: datetime) -> float | None:
    """Seconds until the first of those that wait is due, or a pod that does not go is deleted by force."""
    waits = [wait for name, member in crew.members.items() if name not in crew.pods and (wait := wait_for(member, now))]
    return soonest(*waits, patience((pod for name, pod in crew.pods.items() if not crew.is_own(name)), now))


def _in_order(members: Mapping[str, Member]) -> list[tuple[str, Member]]:
    order = {role: number for number, role in enumerate(address.ROLES)}
    return sorted(members.items(), key=lambda entry: (order[entry[1].role], entry[0]))
