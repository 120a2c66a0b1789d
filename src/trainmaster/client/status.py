"""The state of a job at one moment, with its replicas and the last lines of their output."""

import asyncio

from trainmaster.client.job_finder import FoundJob, JobFinder
from trainmaster.client.job_row import Row, row_of
from trainmaster.client.observation import empty_model, model_of, pods_of
from trainmaster.client.run_model import LogSource, Outcome, Replica, RunModel
from trainmaster.core.errors import ApiError, Unreachable
from trainmaster.core.view import PodView
from trainmaster.kube.client import KubeCluster

LINES = 3
"""The last lines of each replica that are read."""
MOST_LOGS = 20
"""Replicas of one job whose output is read."""


class JobStatus(Row, frozen=True, kw_only=True):
    """``phase`` is one word, ``message`` the reason for it, ``ready`` of ``total`` replicas run."""

    outcome: Outcome
    """How the job has ended: succeeded, failed, refused or deleted; empty while it goes on."""
    replicas: tuple[Replica, ...] = ()

    @property
    def succeeded(self) -> bool:
        return self.outcome == "succeeded"


async def read_status(finder: JobFinder, job: FoundJob) -> JobStatus:
    pods = await pods_of(finder.cluster, [job])
    model = await model_of(finder.cluster, job)
    sources = model.log_sources(job.view.uid)[:MOST_LOGS]
    await asyncio.gather(*(_read_lines(finder.cluster, model, source) for source in sources))
    return _status(job, pods.get(job.view.uid, []), model)


async def read_statuses(finder: JobFinder, jobs: list[FoundJob]) -> list[JobStatus]:
    """Without replicas and their output: there may be many jobs."""
    pods = await pods_of(finder.cluster, jobs)
    return [_status(job, pods.get(job.view.uid, []), empty_model(job)) for job in jobs]


def _status(job: FoundJob, pods: list[PodView], model: RunModel) -> JobStatus:
    row = row_of(job, pods)
    (shown,) = model.jobs
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    return JobStatus(**fields, outcome=shown.outcome, replicas=shown.replicas)


async def _read_lines(cluster: KubeCluster, model: RunModel, source: LogSource) -> None:
    try:
        async with cluster.log(source.pod, source.container, tail=LINES) as lines:
            async for line in lines:
                model.observe_line(source.uid, line.decode(errors="replace"))
    except (ApiError, Unreachable):
        pass  # the pod is deleted, or its node does not answer: a status needs no output
