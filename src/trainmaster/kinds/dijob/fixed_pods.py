"""The pods that the operator makes by itself, one of each standing role, always of the same name."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Create, Delete, Event, deletions, warning
from trainmaster.core.template import Owner
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Settings
from trainmaster.kinds.dijob import address, declare
from trainmaster.kinds.dijob.body import standing_pod, standing_service
from trainmaster.kinds.dijob.profile import COORDINATOR, Profile, profile_of
from trainmaster.kinds.dijob.status import failure_of, is_displaced, is_on_lost_node, pod_state
from trainmaster.kinds.dijob.types import DIJob, Displaced
from trainmaster.lifecycle.cleanup import removal


class FixedPods(msgspec.Struct, frozen=True):
    """The pods of a job by standing role; a role without a pod is not there. ``lost_nodes`` are the nodes on which
    nothing runs any more."""

    job: DIJob
    profile: Profile
    pods: dict[str, PodView]
    lost_nodes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, job: DIJob, observed: Observed, lost_nodes: frozenset[str] = frozenset()) -> "FixedPods":
        profile = profile_of(job)
        found = ((role, observed.role(role).get(0)) for role in profile.standing)
        return cls(job, profile, {role: pod for role, pod in found if pod is not None}, lost_nodes)

    @property
    def coordinator(self) -> PodView | None:
        return self.pods.get(COORDINATOR)

    @property
    def is_running(self) -> bool:
        return all(self.state(role) == "Running" for role in self.profile.standing)

    def state(self, role: str) -> str:
        return pod_state(self.pods.get(role), self.profile.container(role))

    def is_lost(self, role: str) -> bool:
        """It comes again. Only a coordinator that failed by itself does not: that is the end of the job."""
        pod = self.pods.get(role)
        if pod is not None and is_on_lost_node(pod, self.lost_nodes):
            return True  # also when it is being deleted: its kubelet never confirms that
        if pod is None or pod.deleting:
            return False
        return is_displaced(pod) or (role != COORDINATOR and self.state(role) == "Failed")

    def is_on_record(self, role: str) -> bool:
        record, pod = self.job.status.displaced.get(role), self.pods.get(role)
        return record is not None and pod is not None and record.uid == pod.uid


def displaced(standing: FixedPods, now: datetime) -> tuple[dict[str, Displaced], tuple[Event, ...]]:
    """Who is lost is on record before it is deleted, and counted once."""
    records = dict(standing.job.status.displaced)
    events: list[Event] = []
    for role, pod in standing.pods.items():
        if not standing.is_lost(role) or standing.is_on_record(role):
            continue
        before = records.get(role)
        times = before.times + 1 if before and now - before.at < declare.CALM else 1
        records[role] = Displaced(pod.uid, now, times)
        events.append(warning(f"{role.capitalize()}Displaced", _said(standing, role, pod)))
    return records, tuple(events)


def _said(standing: FixedPods, role: str, pod: PodView) -> str:
    if is_on_lost_node(pod, standing.lost_nodes):
        return f"{pod.key.name} was on node {pod.node}, which is lost; another one comes in its place"
    why = failure_of(pod, standing.profile.container(role))
    because = f"{pod.key.name} was put out" if is_displaced(pod) else f"{pod.key.name} failed"
    return f"{because}: {why}; another one comes in its place" if why else f"{because}; another one comes"


def impostors(standing: FixedPods, observed: Observed, creates: Sequence[Create], now: datetime) -> tuple[Delete, ...]:
    """Of the standing names: our own pods whose labels were edited away, and those that are lost."""
    names = address.standing_names(standing.job)
    strays = [pod for pod in observed.strays if creates and pod.key.name in names]
    gone = [pod for role, pod in standing.pods.items() if standing.is_on_record(role)]
    return (
        *deletions(POD, strays, "it has the name of a replica but not its labels"),
        *removal(gone, "it is lost; another one comes in its place", now, standing.lost_nodes),
    )


def missing(
    standing: FixedPods, observed: Observed, now: datetime, owner: Owner, settings: Settings
) -> tuple[Create, ...]:
    """Services before pods: whoever starts has its name, and is told the addresses of the others."""
    job, services, pods = standing.job, list[Create](), list[Create]()
    if any(address.template_of(job, role) is None for role in standing.profile.standing):
        return ()
    for role in standing.profile.standing:
        if address.standing_name(job, role) not in observed.services:
            body = standing_service(job, role, owner)
            services.append(Create(SERVICE, body, f"the {role} has no address"))
        if role not in standing.pods and _wait(standing, role, now) is None:
            body = standing_pod(job, role, owner, settings)
            pods.append(Create(POD, body, f"the {role} has no pod"))
    return (*services, *pods)


def next_look(standing: FixedPods, now: datetime) -> float | None:
    """Seconds until the first of those that wait may come."""
    waits = (_wait(standing, role, now) for role in standing.profile.standing)
    return min((wait for wait in waits if wait is not None), default=None)


def _wait(standing: FixedPods, role: str, now: datetime) -> float | None:
    """Seconds until a pod may come in place of one that was lost; None when nothing is in its way."""
    record = standing.job.status.displaced.get(role)
    if record is None or role in standing.pods:
        return None
    return declare.pause_left(record.at, record.times, now) or None
