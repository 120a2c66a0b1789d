"""``trainmaster up``: runs a persistent local cluster."""

from pathlib import Path

import click

from trainmaster.cli.log import configure_logging

STATE = click.option(
    "--state",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="State folder; default $XDG_STATE_HOME/trainmaster or ~/.local/state/trainmaster.",
)


@click.command()
@STATE
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of the API; default: any free one.")
@click.option("--namespace", "-n", default="default", show_default=True, help="Namespace that kubectl uses.")
@click.option("--v", "verbosity", type=int, default=0, show_default=True, help="4 and more logs every action.")
def up(state: Path | None, port: int, namespace: str, verbosity: int) -> None:
    """Run a local cluster on this machine.

    API, node and operator run until Ctrl-C. Objects are kept between two starts. Ctrl-C ends the processes of all pods;
    after the next start the restart policies of the jobs apply, as after the shutdown of a node. If `up` itself is
    killed, its pods continue to run, and the next start adopts them.

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
    # Imported here: loading the HTTP stack would delay --help.
    from trainmaster.cli.up_session import run_until_signal
    from trainmaster.local.state import default_folder

    run_until_signal(state or default_folder(), port=port, namespace=namespace, print_line=click.echo)
