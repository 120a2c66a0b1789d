"""Programs that are sent to `trainmaster up` from another folder than its own."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.local.cluster import AITJ, client_of
from tests.local.conftest import Start, Up
from tests.local.program import environ_of, job, role, script, written
from trainmaster.core.ids import Key

SAYS = '#!/bin/sh\necho "%s in $PWD with $VIRTUAL_ENV"\n'
"""A program of a virtual environment."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a virtual environment. `up` has a program of the same name in its PATH, too."""
    project = tmp_path / "project"
    for folder, text in ((project / ".venv" / "bin", "mine"), (tmp_path / "bin", "that of up")):
        folder.mkdir(parents=True)
        (folder / "train").write_text(SAYS % text)
        (folder / "train").chmod(0o755)
    return project


def activated(project: Path, home: Path) -> dict[str, str]:
    """The variables of a shell in which the environment of the project is active."""
    venv = project / ".venv"
    return {"PATH": f"{venv}/bin:{environ_of(home)['PATH']}", "VIRTUAL_ENV": str(venv), "AWS_SECRET_ACCESS_KEY": "s3"}


def of_up(home: Path) -> dict[str, str]:
    return {"PATH": f"{home}/bin:{environ_of(home)['PATH']}", "VIRTUAL_ENV": "/venv/of/up"}


def said(out: str) -> list[str]:
    return [line.removeprefix("worker-0 | ") for line in out.splitlines() if line.startswith("worker-0 |")]


async def test_a_program_runs_in_the_folder_and_the_virtual_environment_of_its_caller(
    up: Up, start: Start, state: Path, project: Path, tmp_path: Path
) -> None:
    up(environ=of_up(tmp_path))
    command = ("run", "--kubeconfig", str(state / "kubeconfig"), "--", "train")
    code, out, err = start(*command, typed_in=project, environ=activated(project, tmp_path)).end()

    assert (code, err) == (0, "")
    assert said(out) == [f"mine in {project} with {project}/.venv"]
    async with client_of(state) as cluster:
        stored = await cluster.get(AITJ, Key("default", "train"))
    container = container_of(json.loads(stored))
    assert container["workingDir"] == str(project)
    assert {entry["name"] for entry in container["env"]} == {"PATH", "VIRTUAL_ENV"}, "other variables may be secrets"


def test_a_program_without_a_virtual_environment_does_not_get_that_of_up(
    up: Up, start: Start, state: Path, project: Path, tmp_path: Path
) -> None:
    up(environ=of_up(tmp_path))
    command = ("run", "--kubeconfig", str(state / "kubeconfig"), "--", "sh", "-c", 'echo "<$VIRTUAL_ENV>"')
    _, out, _ = start(*command, typed_in=project).end()

    assert said(out) == ["<>"]


def test_a_context_that_was_copied_into_another_kubeconfig_is_the_local_cluster_too(
    start: Start, project: Path, tmp_path: Path
) -> None:
    start("up").until(lambda line: "export KUBECONFIG=" in line)
    (tmp_path / ".kube").mkdir()
    shutil.copy(tmp_path / ".local" / "state" / "trainmaster" / "kubeconfig", tmp_path / ".kube" / "config")
    command = ("run", "--context", "trainmaster", "--", "pwd")
    _, out, _ = start(*command, typed_in=project).end()

    assert said(out) == [str(project)]


def test_a_manifest_runs_in_the_folder_of_up_which_up_prints(
    up: Up, start: Start, state: Path, project: Path, tmp_path: Path
) -> None:
    python = tmp_path / "bin" / "python3"
    python.symlink_to("/bin/sh")
    cluster = up(environ=of_up(tmp_path))
    file = written(tmp_path, job(spec={"cleanPodPolicy": "None"}, worker=role(script("pwd"))))
    command = ("run", "--kubeconfig", str(state / "kubeconfig"), file)
    _, out, _ = start(*command, typed_in=project, environ=activated(project, tmp_path)).end()

    assert said(out) == [str(tmp_path)]
    where = f"Programs of manifests without workingDir run in {tmp_path}; python3 is {python}\n"
    cluster.until(lambda line: line == where)


def container_of(body: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    return container
