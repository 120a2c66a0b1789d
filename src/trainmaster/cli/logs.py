"""``trainmaster logs``: what the programs of a job wrote."""

import io
import os
import sys
from typing import TYPE_CHECKING

import click

from trainmaster.cli.connection import takes_cluster
from trainmaster.cli.exit_code import BROKEN_PIPE, INTERRUPTED
from trainmaster.cli.status import JOB
from trainmaster.client.connection import Place
from trainmaster.core.errors import BadConfig

if TYPE_CHECKING:
    from trainmaster.client.job_finder import JobFinder
    from trainmaster.client.log_reader import LogOptions


@click.command()
@JOB
@click.option("--follow", "-f", is_flag=True, help="Wait for pods and for lines until the job has ended.")
@click.option("--role", default="", help="Only replicas of this role.")
@click.option("--previous", is_flag=True, help="The run before the last restart of a container in its pod.")
@click.option(
    "--all", "is_all", is_flag=True, help="All lines, and earlier runs; default: the last 100 of each replica."
)
@click.option("--raw", is_flag=True, help="Lines as the programs wrote them, with control sequences and colours.")
@takes_cluster
@click.pass_context
def logs(
    context: click.Context, /, place: Place, job: str, follow: bool, role: str, previous: bool, is_all: bool, raw: bool
) -> None:
    """Print the logs of a job, each line with its replica.

    JOB is NAME, KIND/NAME or NAMESPACE/NAME. A cluster deletes logs with their pods. The local cluster
    keeps those of its last 200 deleted pods.

    Control sequences of the programs are left out, so that they cannot change the terminal; a terminal gets
    their colours.

    \b
    Example:
      trainmaster logs mnist
      trainmaster logs mnist --follow --role worker
    """
    from trainmaster.client.job_finder import with_finder
    from trainmaster.client.log_reader import CONNECTIONS, LogOptions

    if follow and previous:
        raise BadConfig("--follow waits for new lines, and --previous has none; remove one of them")
    options = LogOptions(role=role, previous=previous, is_all=is_all, is_raw=raw)
    code = 0
    try:
        with_finder(place, lambda finder: _print(finder, job, options, is_following=follow), connections=CONNECTIONS)
    except* BrokenPipeError:
        # As documented by Python: without it the interpreter fails at exit to flush stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = BROKEN_PIPE
    except* KeyboardInterrupt:
        code = INTERRUPTED
    context.exit(code)


async def _print(finder: "JobFinder", name: str, options: "LogOptions", *, is_following: bool) -> None:
    from trainmaster.client.log_reader import LogReader
    from trainmaster.core.plain import plain, with_colours

    shown = str if options.is_raw else with_colours if sys.stdout.isatty() else plain
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # the bytes of --raw

    async def write(label: str, line: str) -> None:
        sys.stdout.write(f"{label} | {shown(line)}\n")
        if is_following:
            sys.stdout.flush()

    reader = LogReader(finder.cluster, await finder.find(name), options, write, deleted=finder.deleted_pods)
    await (reader.follow() if is_following else reader.show())
    if is_following and not reader.has_followed:
        raise BadConfig(reader.nothing())
    sys.stdout.flush()
