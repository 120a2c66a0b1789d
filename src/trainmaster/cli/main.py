"""``trainmaster COMMAND``."""

import sys

import click

from trainmaster.cli.change import delete, resume, scale, suspend
from trainmaster.cli.completion import completion
from trainmaster.cli.down import down
from trainmaster.cli.exit_code import FAILED
from trainmaster.cli.explain import explain
from trainmaster.cli.init import init
from trainmaster.cli.list_jobs import list_jobs
from trainmaster.cli.log import flush_logging
from trainmaster.cli.logs import logs
from trainmaster.cli.node import node
from trainmaster.cli.operator import operator
from trainmaster.cli.run import run
from trainmaster.cli.server import server
from trainmaster.cli.status import status
from trainmaster.cli.up import up
from trainmaster.cli.webhook import webhook
from trainmaster.cli.why import why
from trainmaster.core.errors import Trainmaster


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="trainmaster")
def cli() -> None:
    """Runs distributed training jobs that are described as Kubernetes custom resources.

    \b
    On this machine, without a cluster:
      trainmaster run --replicas 2 -- python3 train.py
      trainmaster run examples/dijob-serial.yaml

    \b
    Jobs of a local cluster (trainmaster up), or of the cluster of the kubeconfig:
      trainmaster list
      trainmaster why JOB
      trainmaster logs JOB --follow

    \b
    On a cluster:
      trainmaster crds | kubectl apply -f -
      trainmaster operator --kubeconfig ~/.kube/config
    """


@cli.command()
def crds() -> None:
    """Print the definitions of all job kinds.

    \b
    Example:
      trainmaster crds | kubectl apply -f -
    """
    from trainmaster.kinds.crd import to_yaml

    click.echo(to_yaml(), nl=False)


for command in (
    *(run, init, explain, list_jobs, status, why, logs, delete, scale, suspend, resume),
    *(up, down, node, operator, server, webhook, completion),
):
    cli.add_command(command)


def main() -> None:
    """A known error is one sentence on stderr; only a defect of ours shows a traceback."""
    try:
        cli()
    except Trainmaster as error:
        flush_logging()
        click.echo(f"trainmaster: {error}", err=True)
        sys.exit(FAILED)
