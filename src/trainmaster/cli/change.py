"""``trainmaster delete``, ``suspend``, ``resume`` and ``scale``: one change of one job."""

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from trainmaster.cli.connection import takes_cluster
from trainmaster.cli.exit_code import INTERRUPTED
from trainmaster.cli.status import JOB
from trainmaster.client.connection import Place

if TYPE_CHECKING:
    from trainmaster.client.job_finder import FoundJob, JobFinder


@click.command()
@JOB
@click.option("--no-wait", is_flag=True, help="Do not wait until its pods have ended.")
@takes_cluster
def delete(place: Place, job: str, no_wait: bool) -> None:
    """Delete a job and all that belongs to it.

    JOB is NAME, KIND/NAME or NAMESPACE/NAME. Its programs get SIGTERM and have the grace period of their
    pods to end, 30 s by default; the command waits for that.

    \b
    Example:
      trainmaster delete mnist
    """

    async def work(finder: "JobFinder") -> str:
        from trainmaster.client.deletion import delete

        say = partial(click.echo, err=True)
        found, what = await delete(finder.cluster, lambda: finder.find(job), waits=not no_wait, say=say)
        return _sentence(finder, found, what)

    try:
        _change(place, work)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


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
        found = await _set_suspended(finder, job, is_suspended=True)
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
        found = await _set_suspended(finder, job, is_suspended=False)
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

    async def work(finder: "JobFinder") -> str:
        from trainmaster.client import change

        found, changed = await change.scale(finder.cluster, lambda: finder.find(job), replicas, role)
        return _sentence(finder, found, f"has {replicas} replicas of {changed} now")

    _change(place, work)


def _change(place: Place, work: Any) -> None:
    from trainmaster.client.job_finder import with_finder

    click.echo(with_finder(place, work))


def _sentence(finder: "JobFinder", job: "FoundJob", what: str) -> str:
    return f"{job} in namespace {job.key.namespace} of {finder.connection.title} {what}"


async def _set_suspended(finder: "JobFinder", name: str, *, is_suspended: bool) -> "FoundJob":
    from trainmaster.client import change

    return await change.set_suspended(finder.cluster, lambda: finder.find(name), is_suspended=is_suspended)
