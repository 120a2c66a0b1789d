"""``trainmaster delete``, ``suspend``, ``resume`` and ``scale``: one change of one job."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from trainmaster.cli.connection import Place, takes_cluster
from trainmaster.cli.status import JOB
from trainmaster.core.errors import BadConfig, Conflict

if TYPE_CHECKING:
    from trainmaster.cli.job_finder import FoundJob, JobFinder

CONFLICTS = 4
"""How often a job is read again that has changed before its patch."""


@click.command()
@JOB
@takes_cluster
def delete(place: Place, job: str) -> None:
    """Delete a job and all that belongs to it.

    JOB is NAME, KIND/NAME or NAMESPACE/NAME.

    \b
    Example:
      trainmaster delete mnist
    """

    async def work(finder: "JobFinder") -> str:
        found = await finder.find(job)
        await finder.cluster.delete(found.resource, found.key, uid=found.view.uid)
        return _sentence(finder, found, "is deleted with its pods")

    _change(place, work)


@click.command()
@JOB
@takes_cluster
def suspend(place: Place, job: str) -> None:
    """Stop a job: its pods are deleted until it is resumed.

    JOB is NAME, KIND/NAME or NAMESPACE/NAME.

    \b
    Example:
      trainmaster suspend mnist
      trainmaster resume mnist
    """

    async def work(finder: "JobFinder") -> str:
        found = await _going_on(finder, job)
        await _patch(finder, found, suspension(found, is_suspended=True))
        resumed = f"trainmaster resume {found}{finder.connection.options_of(found.key.namespace)}"
        return _sentence(finder, found, f"is suspended: its pods are deleted; continue with: {resumed}")

    _change(place, work)


@click.command()
@JOB
@takes_cluster
def resume(place: Place, job: str) -> None:
    """Continue a suspended job.

    JOB is NAME, KIND/NAME or NAMESPACE/NAME.

    \b
    Example:
      trainmaster resume mnist
    """

    async def work(finder: "JobFinder") -> str:
        found = await _going_on(finder, job)
        await _patch(finder, found, suspension(found, is_suspended=False))
        return _sentence(finder, found, "is resumed: its pods are created again")

    _change(place, work)


@click.command()
@JOB
@click.argument("replicas", metavar="N", type=click.IntRange(0, 10_000))
@click.option("--role", default="", help="The role whose number of replicas changes; needed if there are several.")
@takes_cluster
def scale(place: Place, job: str, replicas: int, role: str) -> None:
    """Change the number of replicas of a role.

    JOB is NAME, KIND/NAME or NAMESPACE/NAME. In an elastic job, and in a DIJob with tasks, no other pod restarts.
    The roles of such a DIJob are its tasks; without --role its collectors change.

    \b
    Example:
      trainmaster scale elastic 4
      trainmaster scale mnist 4 --role worker
    """
    from trainmaster.cli.scaling import scaled

    async def change(finder: "JobFinder") -> str:
        found = await _going_on(finder, job)
        changed, patch = scaled(found, replicas, role)
        await _patch(finder, found, patch)
        return _sentence(finder, found, f"has {replicas} replicas of {changed} now")

    _change(place, lambda finder: retried(lambda: change(finder)))


def _change(place: Place, work: Any) -> None:
    from trainmaster.cli.job_finder import with_finder

    click.echo(with_finder(place, work))


def _sentence(finder: "JobFinder", job: "FoundJob", what: str) -> str:
    return f"{job} in namespace {job.key.namespace} of {finder.connection.title} {what}"


async def _going_on(finder: "JobFinder", name: str) -> "FoundJob":
    """The job of this name, if it has not ended."""
    from trainmaster.cli.job_row import phase_of, status_of
    from trainmaster.core import condition

    found = await finder.find(name)
    status = status_of(found)
    if condition.is_true(status.conditions, condition.FINISHED):
        raise BadConfig(f"{found} has ended with {phase_of(found, status)} and cannot change any more; create it again")
    return found


async def retried(change: Callable[[], Awaitable[str]]) -> str:
    """Reads and patches again after a conflict: the status of a job that starts changes often."""
    for _ in range(CONFLICTS):
        with suppress(Conflict):
            return await change()
    return await change()


async def _patch(finder: "JobFinder", job: "FoundJob", patch: dict[str, Any]) -> None:
    import msgspec

    await finder.cluster.patch(job.resource, job.key, msgspec.json.encode(patch))


def suspension(job: "FoundJob", *, is_suspended: bool) -> dict[str, Any]:
    """The patch that suspends or resumes a job."""
    from trainmaster.cli.manifest import schema_of

    fields = schema_of(job.resource)["properties"]["spec"]["properties"]
    value = {"suspend": is_suspended}
    return {"spec": value if "suspend" in fields else {"runPolicy": value}}
