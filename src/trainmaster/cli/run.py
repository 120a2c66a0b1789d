"""``trainmaster run``: runs jobs to completion on this machine."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainmaster.cli.exit_code import BAD_INPUT, INTERRUPTED
from trainmaster.cli.option import Duration, ProgramCommand, program_of
from trainmaster.client.connection import Place
from trainmaster.core.errors import BadConfig, Trainmaster

if TYPE_CHECKING:
    from trainmaster.client.manifest import Document
    from trainmaster.client.program import ProgramOptions


# The names are those of program.FRAMEWORKS and program.RESTART_POLICIES, whose import would delay --help.
_FRAMEWORKS = ("torch", "tensorflow", "paddle", "mxnet", "jax")
_RESTARTS = ("never", "onfailure", "always")


@click.command(cls=ProgramCommand)
@click.argument("files", metavar="[FILE]… [-- PROGRAM…]", nargs=-1, type=click.Path(readable=False))
@click.option("--replicas", type=click.IntRange(1, 10_000), help="Number of workers that run PROGRAM. Default: 1.")
@click.option(
    "--role",
    "roles",
    metavar="NAME=N",
    multiple=True,
    help="N replicas of this role run PROGRAM; may be repeated. The job does not wait for roles called ps or server.",
)
@click.option(
    "--restart",
    type=click.Choice(_RESTARTS),
    help="When failed replicas of PROGRAM restart: onfailure at most three times. Default: never.",
)
@click.option(
    "--env", metavar="NAME[=VALUE]", multiple=True, help="A variable for PROGRAM; without a value that of your shell."
)
@click.option(
    "--env-file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Variables for PROGRAM, NAME=VALUE in each line.",
)
@click.option("--framework", type=click.Choice(_FRAMEWORKS), help="What PROGRAM trains with (spec.frameworkType).")
@click.option("--gpus", type=click.IntRange(0, 1024), default=0, help="GPUs of each replica of PROGRAM.")
@click.option("--name", default="", help="Name of the job that runs PROGRAM. Default: from the program.")
@click.option("--image", default="", help="Image of PROGRAM on a cluster; local mode has no images.")
@click.option("--dry-run", is_flag=True, help="Print the manifest instead of running it.")
@click.option(
    "--set",
    "overrides",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set a value in all jobs that have this path; may be repeated.",
)
@click.option(
    "--timeout", type=Duration(takes_seconds=True), default="0", help="Stop after this time, for example 10m or 90 (s)."
)
@click.option("--keep", is_flag=True, help="Keep the folder of the run, with all logs, and print its path.")
@click.option(
    "--logs",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the log of each container into a file in this folder.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(("text", "json")),
    default="text",
    help="json: one object in each line, with phases, Events and how the jobs ended. Default: text.",
)
@click.option("--namespace", "-n", default="", help="Namespace of objects without one; default: default.")
@click.option("--context", default="", help="Run on the cluster of this context of the kubeconfig, not here.")
@click.option("--kubeconfig", default="", help="Run on the cluster of this kubeconfig, not here.")
@click.option("--run-in-cluster", is_flag=True, help="Run on the cluster whose pod this is, with its service account.")
@click.pass_context
def run(
    click_context: click.Context,
    /,
    files: tuple[str, ...],
    overrides: tuple[str, ...],
    timeout: float,
    keep: bool,
    logs: Path | None,
    format_: str,
    namespace: str,
    context: str,
    kubeconfig: str,
    run_in_cluster: bool,
    dry_run: bool,
    **program_options: Any,
) -> None:
    """Run jobs to completion on this machine, or on a cluster.

    FILE… are manifests with any number of documents: jobs, and the ConfigMaps, Secrets and Services that they need. A
    dash reads stdin. PROGRAM… is run as an AITrainingJob, without a manifest. Ctrl-C stops the jobs gracefully; a
    second Ctrl-C kills them at once. With --context or --kubeconfig the jobs are created on a cluster and shown until
    they have ended; there Ctrl-C and --timeout do not stop them.

    \b
    Exit code:
      0    every job succeeded            124  --timeout was reached
      1    a job failed                   130  interrupted
      2    bad input, or cannot start

    \b
    Example:
      trainmaster run examples/dijob-serial.yaml
      trainmaster run --replicas 2 -- python3 -c 'import os; print(os.environ["WORKER_HOSTS"])'
      trainmaster run --replicas 2 --dry-run -- python3 train.py > job.yaml
      trainmaster run examples/aitrainingjob-ps.yaml --set spec.replicaSpecs.trainer.replicas=4
      trainmaster run examples/aitrainingjob-mnist.yaml --timeout 10m --logs /tmp/mnist
      trainmaster run examples/aitrainingjob-ps.yaml --kubeconfig ~/.kube/config
    """
    try:
        documents = _documents(files, program_of(click_context), program_options, overrides)
        is_json = format_ == "json"
        if dry_run:
            code = _print(documents, namespace)
        elif context or kubeconfig or run_in_cluster:
            place = Place(kubeconfig, context, None, namespace)
            is_program = program_of(click_context) is not None
            has_folder = keep or bool(logs)
            code = _submit(documents, place, timeout, is_program=is_program, has_folder=has_folder, is_json=is_json)
        else:
            code = _run(documents, namespace, timeout=timeout, keep=keep, logs=logs, is_json=is_json)
        click_context.exit(code)
    except Trainmaster as error:
        click.echo(f"trainmaster: {error}", err=True)
        click_context.exit(BAD_INPUT)
    except KeyboardInterrupt:  # before the signal handlers are installed
        click_context.exit(INTERRUPTED)


def _documents(
    files: tuple[str, ...],
    program: tuple[str, ...] | None,
    program_options: dict[str, Any],
    overrides: tuple[str, ...],
) -> list["Document"]:
    # Imported step by step: errors in manifests are reported before the HTTP stack is loaded.
    from trainmaster.cli import override
    from trainmaster.client import manifest
    from trainmaster.client.program import ProgramOptions, job_of

    options = ProgramOptions(**{name: value for name, value in program_options.items() if value is not None})
    _check_source(files, program, options)
    changes = [override.parse(text) for text in overrides]
    documents = [job_of(program, options, os.environ)] if program else manifest.read(files)
    documents = override.apply(changes, documents)
    manifest.check_fields(documents)
    return documents


def _check_source(files: tuple[str, ...], program: tuple[str, ...] | None, options: "ProgramOptions") -> None:
    """A job is described by files or by a program and its options."""
    from trainmaster.client.program import NOTHING, instead_of

    if program and files:
        raise BadConfig(f"{files[0]} and the program after -- are two descriptions of a job; remove one of them")
    if program:
        return
    if program is not None:
        raise BadConfig("there is no program after --; type for example: trainmaster run -- python3 train.py")
    if not files:
        raise BadConfig("nothing to run: give a manifest, or a program after --: trainmaster run -- python3 train.py")
    if instead := instead_of(files):
        raise BadConfig(f"{files[0]} is a program and not a manifest; type: trainmaster run -- {instead}")
    if options != NOTHING:
        given = [name for name in options.__struct_fields__ if getattr(options, name) != getattr(NOTHING, name)]
        option = {"roles": "role"}.get(given[0], given[0]).replace("_", "-")
        raise BadConfig(f"--{option} describes a program after --, and {files[0]} is a manifest; use --set, or edit it")


def _print(documents: "Sequence[Document]", namespace: str) -> int:
    from trainmaster.client.manifest import placed, to_yaml

    in_namespace = placed(documents, namespace)
    click.echo(to_yaml(in_namespace if namespace else documents), nl=False)
    return 0


def _run(documents: "Sequence[Document]", namespace: str, **options: Any) -> int:
    from trainmaster.client.manifest import placed

    in_namespace = placed(documents, namespace)

    from trainmaster.cli.session import RunOptions, run_jobs

    return run_jobs(RunOptions(documents=in_namespace, **options))


def _submit(
    documents: "Sequence[Document]", place: Place, timeout: float, *, is_program: bool, has_folder: bool, is_json: bool
) -> int:
    if has_folder:
        raise BadConfig("--keep and --logs are for jobs on this machine; on a cluster use trainmaster logs")

    from trainmaster.cli.submission import submit

    return submit(place, documents, timeout, is_program=is_program, is_json=is_json)
