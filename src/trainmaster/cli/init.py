"""``trainmaster init``: a manifest to begin with."""

from pathlib import Path

import click

from trainmaster.core.errors import BadConfig

OLD_DIJOB = "dijob-v1alpha1"
"""The older form of a DIJob, which is no kind of its own."""


def _complete(_context: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    from trainmaster.client.kind_name import job_kinds

    return [name for name in (*(each.name for each in job_kinds()), OLD_DIJOB) if name.startswith(typed)]


@click.command()
@click.argument("kind", shell_complete=_complete)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write into this file, which must not exist. Default: standard output.",
)
def init(kind: str, output: Path | None) -> None:
    """Write a commented manifest of a job.

    KIND is aitrainingjob, dijob, dijob-v1alpha1, mxjob, nervexjob or mxjob.mxnet.mlkube.io. The manifest runs as it is.

    \b
    Example:
      trainmaster init aitrainingjob --output job.yaml
      trainmaster run job.yaml
    """
    text = starter_of(kind)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("x") as file:
            file.write(text)
    except OSError as error:
        raise BadConfig(f"--output {output}: {error.strerror}; choose another file") from error
    click.echo(f"{output} is written; run it with: trainmaster run {output}")


def starter_of(kind: str) -> str:
    # Imported here: reading all kinds would delay --help.
    from trainmaster.client.kind_name import kind_called

    if kind.lower() == OLD_DIJOB:
        return _read(OLD_DIJOB)
    found = kind_called(kind)
    # mlkube.io is the first group that the mxnet-operator had; the fields are the same.
    name = found.name.replace("mxjob.mlkube.io", "mxjob.mxnet.mlkube.io")
    return _read(name).replace("mxnet.mlkube.io/v1beta1", found.resource.api_version)


def _read(name: str) -> str:
    from importlib.resources import files

    return (files("trainmaster.cli") / "starter" / f"{name}.yaml").read_text()
