"""A job that is described by arguments."""

from pathlib import Path
from typing import Any, get_args

import pytest

from trainmaster import Job, Refused
from trainmaster.client import job as described
from trainmaster.client.job import document_of
from trainmaster.client.program import FRAMEWORKS, RESTART_POLICIES, ProgramOptions, job_of


def test_a_job_is_the_one_that_the_command_line_makes_of_the_same_options() -> None:
    command = ["python3", "train.py", "$(HOME)"]
    job = Job(
        "x", replicas=2, roles={"ps": 1}, command=command, framework="jax", restart="onfailure", gpus=1, image="i"
    )
    options = ProgramOptions(
        name="x", replicas=2, roles=("ps=1",), framework="jax", restart="onfailure", gpus=1, image="i"
    )

    assert document_of(job, is_local=False).body == job_of(command, options, {}).body


def test_a_local_job_runs_in_the_current_folder_or_in_its_own() -> None:
    assert _workdirs(Job("x", command=["pwd"], roles={"ps": 1}), is_local=True) == {str(Path.cwd())}
    assert _workdirs(Job("x", command=["pwd"]), is_local=False) == {None}
    assert _workdirs(Job("x", command=["pwd"], workdir="/data"), is_local=False) == {"/data"}


def test_a_local_job_finds_its_programs_as_its_caller_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/project/.venv/bin:/bin")
    monkeypatch.setenv("VIRTUAL_ENV", "/project/.venv")

    assert _env(Job("x", command=["train"], env={"A": "b"}), is_local=True) == {
        "A": "b",
        "PATH": "/project/.venv/bin:/bin",
        "VIRTUAL_ENV": "/project/.venv",
    }
    assert _env(Job("x", command=["train"], env={"A": "b"}), is_local=False) == {"A": "b"}


def test_a_value_may_contain_anything() -> None:
    body = document_of(Job("x", command=["true"], env={"A": "b=c\n", "EMPTY": ""}), is_local=False).body

    assert body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "b=c\n"},
        {"name": "EMPTY", "value": ""},
    ]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"command": "python3 train.py"}, "command: must be a list of words"),
        ({"command": []}, "command: is empty"),
        ({"replicas": 0}, "replicas: 0 is not a positive number"),
        ({"replicas": True}, "replicas: True is not a positive number"),
        ({"roles": {"ps": -1}}, r"roles\['ps'\]: -1 is not a positive number"),
        ({"roles": {"a=b": 1}}, "roles: 'a=b' is not a name"),
        ({"gpus": 0.5}, "gpus: 0.5 is not a number of GPUs"),
        ({"framework": "pytorch"}, "framework: 'pytorch' is not known; choose one of torch, tensorflow"),
        ({"restart": "OnFailure"}, "restart: 'OnFailure' is not known; choose one of never, onfailure, always"),
        ({"env": {"A B": "1"}}, "env: 'A B' is not the name of a variable"),
        ({"name": ""}, "name: is empty; give it one, or leave it out"),
        ({"replicas": 0, "gpus": -1}, "replicas: 0 is not a positive number; gpus: -1 is not"),
    ],
)
def test_everything_that_is_wrong_is_said_at_once(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        document_of(Job(**{"name": "x", "command": ["true"], **fields}), is_local=True)


def test_the_typed_words_are_those_of_the_command_line() -> None:
    assert set(get_args(described.Framework)) - {""} == set(FRAMEWORKS)
    assert set(get_args(described.Restart)) - {""} == set(RESTART_POLICIES)


def _env(job: Job, *, is_local: bool) -> dict[str, str]:
    roles = document_of(job, is_local=is_local).body["spec"]["replicaSpecs"]
    return {entry["name"]: entry["value"] for entry in roles["worker"]["template"]["spec"]["containers"][0]["env"]}


def _workdirs(job: Job, *, is_local: bool) -> set[Any]:
    roles = document_of(job, is_local=is_local).body["spec"]["replicaSpecs"].values()
    return {role["template"]["spec"]["containers"][0].get("workingDir") for role in roles}
