"""``trainmaster list``: all jobs, each in a line."""

from typing import TYPE_CHECKING

import click

from trainmaster.cli.connection import takes_cluster
from trainmaster.client.connection import Place, now

if TYPE_CHECKING:
    from trainmaster.client.connection import Connection
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

    The jobs are those of the local cluster if one is running, else those of the kubeconfig, the newest first. The
    columns NAMESPACE and KIND are left out if they would say the same in every line.

    \b
    Example:
      trainmaster list
      trainmaster list --namespace ml --format json
    """
    from trainmaster.client.job_finder import with_finder
    from trainmaster.client.job_row import Row, list_of, newest_first, row_of
    from trainmaster.client.observation import pods_of
    from trainmaster.client.text import table, terminal_width, to_json

    async def rows_of(finder: "JobFinder") -> tuple[list[Row], "Connection"]:
        jobs = await finder.all()
        pods = await pods_of(finder.cluster, jobs)
        return newest_first([row_of(job, pods.get(job.view.uid, ())) for job in jobs]), finder.connection

    rows, connection = with_finder(place, rows_of)
    if form == "json":
        click.echo(to_json(rows))
    elif rows:
        click.echo(table(*list_of(rows, connection.namespace, now()), terminal_width()))
    else:
        where = f"namespace {connection.namespace} of " if connection.is_narrow else ""
        click.echo(f"there are no jobs in {where}{connection.title}", err=True)
