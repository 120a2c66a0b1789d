"""What `trainmaster why` reads about a job: Events, how containers ended, and the last lines of the first failure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from trainmaster.cli.failure import ContainerEnd
from trainmaster.cli.job_finder import FoundJob, listed
from trainmaster.cli.observation import SELECTOR
from trainmaster.cli.story import OUTPUT_LINES, JobEvent
from trainmaster.core.errors import ApiError, Unreachable
from trainmaster.core.ids import EVENT, POD, Key
from trainmaster.core.observed import Observed
from trainmaster.core.view import WHOLE_CODEC
from trainmaster.core.wire import ObjectMeta, Wire
from trainmaster.kube.client import KubeCluster


class _Terminated(Wire, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class _State(Wire, frozen=True):
    terminated: _Terminated | None = None


class _ContainerStatus(Wire, frozen=True):
    name: str = ""
    state: _State = _State()
    last_state: _State = _State()


class _Resources(Wire, frozen=True):
    limits: dict[str, Any] = {}


class _Container(Wire, frozen=True):
    name: str = ""
    resources: _Resources = _Resources()


class _PodSpec(Wire, frozen=True):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()


class _PodStatus(Wire, frozen=True):
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


class _Pod(Wire, frozen=True):
    metadata: ObjectMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _Involved(Wire, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _Event(Wire, frozen=True):
    involved_object: _Involved = _Involved()
    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    first_timestamp: datetime | None = None

    @property
    def time(self) -> datetime | None:
        return self.last_timestamp or self.event_time or self.first_timestamp


_POD = msgspec.json.Decoder(_Pod)
_EVENT = msgspec.json.Decoder(_Event)


async def ends_of(cluster: KubeCluster, job: FoundJob, observed: Observed) -> list[ContainerEnd]:
    """The failed containers of the job's pods, also of a pod that has restarted its container since."""
    own = {pod.uid: pod for pod in observed.all_pods if not pod.deleting}
    views = await listed(cluster, POD, WHOLE_CODEC, job.key.namespace, SELECTOR)
    return [end for view in views if view.uid in own for end in _failures(job, _POD.decode(view.raw))]


def _failures(job: FoundJob, pod: _Pod) -> list[ContainerEnd]:
    slot = job.kind.slots.slot_of(pod.metadata.labels)
    limits = {each.name: str(each.resources.limits.get("memory", "")) for each in pod.spec.containers}
    return [
        ContainerEnd(
            pod=pod.metadata.name,
            container=container.name,
            code=ended.exit_code,
            replica=pod.metadata.name.removeprefix(f"{job.key.name}-"),
            role=slot[0] if slot else "",
            reason=ended.reason,
            message=ended.message,
            node=pod.spec.node_name,
            memory=limits.get(container.name, ""),
            time=ended.finished_at,
        )
        for container in (*pod.status.init_container_statuses, *pod.status.container_statuses)
        for ended in (container.state.terminated or container.last_state.terminated,)
        if ended and ended.exit_code
    ]


async def events_of(cluster: KubeCluster, job: FoundJob, observed: Observed) -> list[JobEvent]:
    """The Events of the job and of its pods, the oldest first. Pods that are deleted are known by their names."""
    views = await listed(cluster, EVENT, WHOLE_CODEC, job.key.namespace)
    events = [_EVENT.decode(view.raw) for view in views]
    uids = {job.view.uid, *(pod.uid for pod in observed.all_pods)}
    prefix = f"{job.key.name}-"
    found = [
        JobEvent(
            what=f"{event.involved_object.kind.lower()} {event.involved_object.name}",
            type=event.type,
            reason=event.reason,
            message=event.message,
            time=event.time,
            is_of_job=event.involved_object.uid == job.view.uid,
        )
        for event in events
        if event.involved_object.uid in uids
        or (event.involved_object.kind == "Pod" and event.involved_object.name.startswith(prefix))
    ]
    return sorted(found, key=lambda event: (event.time is not None, event.time))


async def output_of(cluster: KubeCluster, job: FoundJob, end: ContainerEnd | None) -> Sequence[str]:
    """The last lines of a container that failed; none if its log cannot be read."""
    if end is None:
        return ()
    try:
        async with cluster.log(Key(job.key.namespace, end.pod), end.container, tail=OUTPUT_LINES) as lines:
            return [line.decode(errors="replace") async for line in lines][-OUTPUT_LINES:]
    except (ApiError, Unreachable):
        return ()
