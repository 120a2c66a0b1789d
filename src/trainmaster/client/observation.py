"""What jobs own, read once: the input of a plan that is printed and not applied."""

from collections.abc import Mapping, Sequence

from trainmaster.client.job_finder import FoundJob, listed
from trainmaster.client.run_model import RunModel
from trainmaster.core.errors import Forbidden, NotFound
from trainmaster.core.ids import JOB, NODE, POD, SERVICE, Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import (
    CHILD_CODEC,
    NODE_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    WHOLE_CODEC,
    ChildView,
    NodeView,
    PodView,
)
from trainmaster.runtime.cluster import Cluster

SELECTOR = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())


async def pods_of(cluster: Cluster, jobs: Sequence[FoundJob]) -> dict[str, list[PodView]]:
    """The pods of these jobs, by the uid of the job."""
    if not jobs:
        return {}
    namespace = _common_namespace(jobs)
    owners: dict[str, str] = {job.view.uid: job.view.uid for job in jobs}
    if any(JOB in job.kinds.children for job in jobs):
        batch = await listed(cluster, JOB, CHILD_CODEC, namespace, SELECTOR)
        owners |= {child.uid: child.owner.uid for child in batch if child.owner and child.owner.uid in owners}
    found: dict[str, list[PodView]] = {}
    for pod in await listed(cluster, POD, POD_CODEC, namespace, SELECTOR):
        if pod.owner and (job := owners.get(pod.owner.uid)):
            found.setdefault(job, []).append(pod)
    return found


def _common_namespace(jobs: Sequence[FoundJob]) -> str:
    """The namespace of all jobs; empty if there are several."""
    namespaces = {job.key.namespace for job in jobs}
    return namespaces.pop() if len(namespaces) == 1 else ""


def empty_model(job: FoundJob, *, has_many: bool = False) -> RunModel:
    """Of a job whose pods were not observed yet; ``has_many`` is set if others are shown beside it."""
    slots = {resource: [kind.slots for kind in job.kinds.kinds] for resource in job.kinds.resources}
    model = RunModel(slots, kinds=dict.fromkeys(job.kinds.resources, job.kinds), has_many=has_many)
    model.observe_job(job.resource, None, job.view)
    return model


async def model_of(cluster: Cluster, job: FoundJob) -> RunModel:
    """The replicas of a job, as the live view of a run shows them."""
    model = empty_model(job)
    if JOB in job.kinds.children:
        for child in await listed(cluster, JOB, WHOLE_CODEC, job.key.namespace, SELECTOR):
            model.observe_child(None, child)
    for pod in await listed(cluster, POD, WHOLE_CODEC, job.key.namespace, SELECTOR):
        model.observe_pod(None, pod)
    return model


async def observe(cluster: Cluster, job: FoundJob) -> Observed:
    """As the operator would observe the job, without the ports and pods of other jobs."""
    space = job.key.namespace
    pods = (await pods_of(cluster, [job])).get(job.view.uid, [])
    services = await listed(cluster, SERVICE, SERVICE_CODEC, space, SELECTOR)
    return Observed.of(
        pods,
        [service for service in services if service.owner and service.owner.uid == job.view.uid],
        job.kind.slots,
        related=await _related(cluster, job),
        children={resource: await _children(cluster, job, resource) for resource in job.kinds.children},
        nodes=await _nodes(cluster, pods),
    )


async def _children(cluster: Cluster, job: FoundJob, resource: Resource) -> Mapping[str, ChildView]:
    views = await listed(cluster, resource, CHILD_CODEC, job.key.namespace, SELECTOR)
    return {view.key.name: view for view in views if view.owner and view.owner.uid == job.view.uid}


async def _related(cluster: Cluster, job: FoundJob) -> bytes | None:
    if (related := job.kind.related) is None:
        return None
    try:
        return await cluster.get(related.resource, related.key)
    except (NotFound, Forbidden):
        return None


async def _nodes(cluster: Cluster, pods: Sequence[PodView]) -> Mapping[str, NodeView] | None:
    """The nodes of the pods; None if they may not be read."""
    found: dict[str, NodeView] = {}
    for name in sorted({pod.node for pod in pods if pod.node}):
        try:
            found[name] = NODE_CODEC.object(await cluster.get(NODE, Key("", name)))
        except NotFound:
            found[name] = NodeView(Key("", name), is_gone=True)
        except Forbidden:
            return None
    return found
