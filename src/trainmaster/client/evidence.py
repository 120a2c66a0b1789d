"""What `trainmaster why` reads about a job: Events, and the last lines of the first failure."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.client.job_finder import FoundJob, listed
from trainmaster.client.story import OUTPUT_LINES, JobEvent
from trainmaster.core.errors import ApiError, Unreachable
from trainmaster.core.ids import EVENT, JOB, Key
from trainmaster.core.observed import Observed
from trainmaster.core.view import WHOLE_CODEC
from trainmaster.core.wire import Wire
from trainmaster.kube.client import KubeCluster
from trainmaster.lifecycle.failure import Failure


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


_EVENT = msgspec.json.Decoder(_Event)


async def events_of(cluster: KubeCluster, job: FoundJob, observed: Observed) -> list[JobEvent]:
    """The Events of the job, of its pods and of its batch Jobs, the oldest first. Pods that are deleted are known by
    their names."""
    views = await listed(cluster, EVENT, WHOLE_CODEC, job.key.namespace)
    events = [_EVENT.decode(view.raw) for view in views]
    batch_jobs = {child.uid for child in observed.children.get(JOB, {}).values()}
    uids = {job.view.uid, *batch_jobs, *(pod.uid for pod in observed.all_pods)}
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


async def output_of(cluster: KubeCluster, job: FoundJob, failed: Failure | None) -> Sequence[str]:
    """The last lines of a container that failed; none if its log cannot be read."""
    if failed is None:
        return ()
    if failed.output:
        return failed.output
    try:
        async with cluster.log(Key(job.key.namespace, failed.pod), failed.container, tail=OUTPUT_LINES) as lines:
            return [line.decode(errors="replace") async for line in lines][-OUTPUT_LINES:]
    except (ApiError, Unreachable):
        return ()
