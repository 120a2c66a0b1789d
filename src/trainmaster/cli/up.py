"""``trainmaster up``: a local cluster that stays."""

from pathlib import Path

import click

from trainmaster.cli.log import configure_logging

STATE = click.option(
    "--state",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where its state is kept; default $XDG_STATE_HOME/trainmaster or ~/.local/state/trainmaster.",
)


@click.command()
@STATE
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the API; default: any free one.")
@click.option("--namespace", "-n", default="default", show_default=True, help="Namespace that kubectl uses.")
@click.option("--v", "verbosity", type=int, default=0, show_default=True, help="4 and more logs every action and why.")
def up(state: Path | None, port: int, namespace: str, verbosity: int) -> None:
    """Keep a local cluster on this machine.

    API, node and operator run until Ctrl-C. Objects stay between two starts. Ctrl-C ends the processes of all pods;
    the next start goes on as the jobs' own policies say. If it was killed, its pods run on, and the next start takes
    them over.

    \b
    Example:
      trainmaster up
      trainmaster up --state /tmp/lab --port 6443

    \b
    In another terminal:
      export KUBECONFIG=~/.local/state/trainmaster/kubeconfig
      kubectl apply -f examples/aitrainingjob-ps.yaml
      kubectl get aitj -w
    """
    configure_logging("auto", verbosity)
    # Imported here: the HTTP stack takes longer to load than --help should take to answer.
    from trainmaster.cli.home import keep_up
    from trainmaster.local.state import default_folder

    keep_up(state or default_folder(), port=port, namespace=namespace, say=click.echo)
