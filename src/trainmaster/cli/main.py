"""``trainmaster COMMAND``."""

import sys

import click

from trainmaster.cli.operator import operator
from trainmaster.core.errors import Trainmaster


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="trainmaster")
def cli() -> None:
    """Runs distributed training jobs that are described as Kubernetes custom resources."""


@cli.command()
def crds() -> None:
    """Print the definitions of all job kinds.

    \b
    Example:
      trainmaster crds | kubectl apply -f -
    """
    from trainmaster.api.crd import to_yaml

    click.echo(to_yaml(), nl=False)


cli.add_command(operator)


def main() -> None:
    """A known error is one sentence on stderr; only a defect of ours shows a traceback."""
    try:
        cli()
    except Trainmaster as error:
        click.echo(f"trainmaster: {error}", err=True)
        sys.exit(1)
