"""Changes of one job: delete, suspend, resume, scale. ``find`` reads the job, again after a conflict."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from trainmaster.client.errors import Refused
from trainmaster.client.job_finder import FoundJob
from trainmaster.client.job_row import phase_of, status_of
from trainmaster.client.manifest import schema_of
from trainmaster.client.scaling import scaled
from trainmaster.core import condition
from trainmaster.core.errors import Conflict
from trainmaster.runtime.cluster import Cluster

CONFLICTS = 4
"""How often a job is read again that has changed before its patch."""

Find = Callable[[], Awaitable[FoundJob]]
T = TypeVar("T")


async def delete(cluster: Cluster, find: Find) -> FoundJob:
    job = await find()
    await cluster.delete(job.resource, job.key, uid=job.view.uid)
    return job


async def set_suspended(cluster: Cluster, find: Find, *, is_suspended: bool) -> FoundJob:
    job = await _going_on(find)
    await _patch(cluster, job, suspension(job, is_suspended=is_suspended))
    return job


async def scale(cluster: Cluster, find: Find, replicas: int, role: str) -> tuple[FoundJob, str]:
    """Returns the job and the role that has changed."""

    async def change() -> tuple[FoundJob, str]:
        job = await _going_on(find)
        changed, patch = scaled(job, replicas, role)
        await _patch(cluster, job, patch)
        return job, changed

    return await retried(change)


async def _going_on(find: Find) -> FoundJob:
    """The job, if it has not ended."""
    job = await find()
    status = status_of(job)
    if condition.is_true(status.conditions, condition.FINISHED):
        raise Refused(f"{job} has ended with {phase_of(job, status)} and cannot change any more; create it again")
    return job


async def retried(change: Callable[[], Awaitable[T]]) -> T:
    """Reads and patches again after a conflict: the status of a job that starts changes often."""
    for _ in range(CONFLICTS):
        with suppress(Conflict):
            return await change()
    return await change()


async def _patch(cluster: Cluster, job: FoundJob, patch: dict[str, Any]) -> None:
    await cluster.patch(job.resource, job.key, msgspec.json.encode(patch))


def suspension(job: FoundJob, *, is_suspended: bool) -> dict[str, Any]:
    """The patch that suspends or resumes a job."""
    fields = schema_of(job.resource)["properties"]["spec"]["properties"]
    value = {"suspend": is_suspended}
    return {"spec": value if "suspend" in fields else {"runPolicy": value}}
