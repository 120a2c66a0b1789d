"""A job as the commands for people find it."""

from tests.build import SETTINGS, Json, view_of
from trainmaster.client.job_finder import FoundJob
from trainmaster.kinds.registry import all_resource_kinds


def found(job: Json) -> FoundJob:
    group = job["apiVersion"].rpartition("/")[0]
    kinds = all_resource_kinds(SETTINGS)
    of_job = next(each for each in kinds if (each.resource.group, each.resource.kind) == (group, job["kind"]))
    return FoundJob(of_job, view_of(job))
