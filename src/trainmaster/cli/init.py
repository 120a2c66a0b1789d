"""``trainmaster init``: a manifest to begin with."""

from pathlib import Path

import click

from trainmaster.core.errors import BadConfig


@click.command()
@click.argument("kind")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write into this file, which must not exist. Default: standard output.",
)
def init(kind: str, output: Path | None) -> None:
    """Write a commented manifest of a job.

    KIND is aitrainingjob, dijob, mxjob, nervexjob or mxjob.mxnet.mlkube.io. The manifest runs as it is.

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
    from importlib.resources import files

    from trainmaster.cli.kind_name import kind_called

    found = kind_called(kind)
    # mlkube.io is the first group that the mxnet-operator had; the fields are the same.
    name = found.name.replace("mxjob.mlkube.io", "mxjob.mxnet.mlkube.io")
    text = (files("trainmaster.cli") / "starter" / f"{name}.yaml").read_text()
    return text.replace("mxnet.mlkube.io/v1beta1", found.resource.api_version)
