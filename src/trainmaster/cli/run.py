"""``trainmaster run``: runs jobs to completion on this machine."""

from pathlib import Path

import click

from trainmaster.cli.option import Duration
from trainmaster.core.errors import Trainmaster

BAD_INPUT = 2
INTERRUPTED = 130


@click.command()
@click.argument("files", metavar="FILE…", nargs=-1, required=True)
@click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set a value in all jobs that have this path; may be repeated.",
)
@click.option("--timeout", type=Duration(), default="0", help="Stop after this time, for example 10m.")
@click.option("--keep", is_flag=True, help="Keep the folder of the run, with all logs, and print its path.")
@click.option(
    "--logs",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the log of each container into a file in this folder.",
)
@click.option("--namespace", "-n", default="", help="Namespace of objects without one; default: default.")
@click.pass_context
def run(
    context: click.Context,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    timeout: float,
    keep: bool,
    logs: Path | None,
    namespace: str,
) -> None:
    """Run jobs to completion on this machine.

    FILE… are manifests with any number of documents: jobs, and the ConfigMaps, Secrets and Services that they need. A
    dash reads stdin. Ctrl-C stops the jobs gracefully; a second Ctrl-C kills them at once.

    \b
    Exit code:
      0    every job succeeded            124  --timeout was reached
      1    a job failed                   130  interrupted
      2    bad input, or cannot start

    \b
    Example:
      trainmaster run examples/dijob-serial.yaml
      trainmaster run examples/aitrainingjob-ps.yaml --set spec.replicaSpecs.trainer.replicas=4
      trainmaster run examples/aitrainingjob-mnist.yaml --timeout 10m --logs /tmp/mnist
    """
    try:
        context.exit(_run(files, overrides, timeout, keep, logs, namespace))
    except Trainmaster as error:
        click.echo(f"trainmaster: {error}", err=True)
        context.exit(BAD_INPUT)
    except KeyboardInterrupt:  # before the signal handlers are installed
        context.exit(INTERRUPTED)


def _run(
    files: tuple[str, ...], overrides: tuple[str, ...], timeout: float, keep: bool, logs: Path | None, namespace: str
) -> int:
    # Imported step by step: errors in manifests are reported before the HTTP stack is loaded.
    from trainmaster.cli import manifest, override

    changes = [override.parse(text) for text in overrides]
    documents = manifest.placed(override.apply(changes, manifest.read(files)), namespace)
    manifest.check_fields(documents)

    from trainmaster.cli.session import RunOptions, run_jobs

    return run_jobs(RunOptions(documents=documents, timeout=timeout, keep=keep, logs=logs))
