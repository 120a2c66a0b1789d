"""Failed containers of a job that are still there."""

from trainmaster.client.job_finder import FoundJob
from trainmaster.core.observed import Observed
from trainmaster.core.view import ContainerView, PodView
from trainmaster.lifecycle.failure import Failure, of_container


def failures_of(job: FoundJob, observed: Observed) -> list[Failure]:
    """The failed containers of the job's pods, also of a pod that has restarted its container since."""
    return [
        of_container(pod, ended, *_replica_of(job, pod))
        for pod in observed.all_pods
        if not pod.deleting
        for container in (*pod.init_containers, *pod.containers)
        if (ended := _failed(container))
    ]


def _failed(container: ContainerView) -> ContainerView | None:
    if container.exit_code:
        return container
    return container.last if container.last and container.last.exit_code else None


def _replica_of(job: FoundJob, pod: PodView) -> tuple[str, str]:
    """The replica and its role. Without an index in the labels the name of the pod distinguishes replicas."""
    slots = job.kind.slots
    role, index = slots.slot_of(pod.labels) or ("", 0)
    name = f"{role.lower()}-{index}" if role and slots.index else pod.key.name.removeprefix(f"{job.key.name}-")
    return name, role
