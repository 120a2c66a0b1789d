"""``trainmaster why``: what happened to a job, and what happens next."""

from typing import TYPE_CHECKING

import click

from trainmaster.cli.connection import takes_cluster
from trainmaster.cli.status import JOB
from trainmaster.client.connection import Place

if TYPE_CHECKING:
    from trainmaster.client.job_finder import JobFinder


@click.command()
@JOB
@takes_cluster
def why(place: Place, job: str) -> None:
    """Explain why a job waits, restarts or has failed.

    JOB is NAME, KIND/NAME or NAMESPACE/NAME. There are ten lines at most. The first has the cause. The others have the
    last output, the rule that applied, Events, the next step of the operator, and what to type.

    \b
    Example:
      trainmaster why mnist
    """
    from trainmaster.client.job_finder import with_finder

    click.echo("\n".join(with_finder(place, lambda finder: _read(finder, job))))


async def _read(finder: "JobFinder", name: str) -> list[str]:
    from trainmaster.client.explanation import explain

    return await explain(finder, await finder.find(name))
