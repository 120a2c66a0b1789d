"""``trainmaster list``: all jobs, each in a line."""

from typing import TYPE_CHECKING

import click

from trainmaster.cli.connection import takes_cluster
from trainmaster.client.connection import Place, now

if TYPE_CHECKING:
    from trainmaster.client.job_finder import JobFinder

FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json for programs.",
)


@click.command(name="list")
@FORMAT
@takes_cluster
def list_jobs(place: Place, form: str) -> None:
    """List jobs of all kinds with their state and the reason for it.

    The jobs are those of the local cluster if one is running, else those of the kubeconfig.

    \b
    Example:
      trainmaster list
      trainmaster list --namespace ml --format json
    """
    from trainmaster.client.job_finder import with_finder
    from trainmaster.client.job_row import HEAD, Row, cells, row_of
    from trainmaster.client.observation import pods_of
    from trainmaster.client.text import table, terminal_width, to_json

    async def rows_of(finder: "JobFinder") -> tuple[list[Row], str]:
        jobs = await finder.all()
        pods = await pods_of(finder.cluster, jobs)
        return [row_of(job, pods.get(job.view.uid, ())) for job in jobs], finder.connection.title

    rows, title = with_finder(place, rows_of)
    if form == "json":
        click.echo(to_json(rows))
    elif rows:
        click.echo(table(HEAD, [cells(row, now()) for row in rows], terminal_width()))
    else:
        click.echo(f"there are no jobs in {title}", err=True)
