"""The job that `trainmaster run -- PROGRAM` makes of its options."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainmaster.cli import override
from trainmaster.client.manifest import Document, check_fields
from trainmaster.client.program import ProgramOptions, instead_of, job_of, name_of, sent_from
from trainmaster.core.errors import BadConfig
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.aitrainingjob.types import AITrainingJob
from trainmaster.kinds.base import Settings

CONTAINER = "spec.replicaSpecs.worker.template.spec.containers[0]"


def spec_of(**options: Any) -> dict[str, Any]:
    """The spec of a job with these options; it can be run."""
    document = job_of(["python3", "train.py"], ProgramOptions(**options), {"TOKEN": "secret"})
    check_fields([document])
    kind = AITrainingJobKind(Settings())
    assert kind.errors(msgspec.convert(document.body, AITrainingJob)) == []
    spec: dict[str, Any] = document.body["spec"]
    return spec


def container_of(**options: Any) -> dict[str, Any]:
    role: dict[str, Any] = spec_of(**options)["replicaSpecs"]["worker"]
    found: dict[str, Any] = role["template"]["spec"]["containers"][0]
    return found


def roles_of(**options: Any) -> dict[str, int]:
    return {name: role["replicas"] for name, role in spec_of(**options)["replicaSpecs"].items()}


# --- names ---


@pytest.mark.parametrize(
    ("program", "name"),
    [
        pytest.param(["python", "train.py"], "train", id="script"),
        pytest.param(["python", "-u", "src/My_Model.v2.py", "--x", "y.py"], "my-model-v2", id="folder and odd letters"),
        pytest.param(["torchrun", "--nproc-per-node=2", "ddp.py"], "ddp", id="launcher"),
        pytest.param(["python", "-m", "pkg.train", "a.py"], "pkg-train", id="module"),
        pytest.param(["./train"], "train", id="program"),
        pytest.param(["python", "-c", "print(1)"], "python", id="text"),
        pytest.param(["python", "2026-run.py"], "run", id="begins with a digit"),
        pytest.param(["bash", "学.sh"], "job", id="no letter left"),
        pytest.param(["python", f"{'a' * 39}-b.py"], "a" * 39, id="too long"),
        pytest.param(["python", "-m"], "python", id="no module"),
    ],
)
def test_the_name_comes_from_the_program_and_fits_pods(program: list[str], name: str) -> None:
    assert name_of(program) == name


def test_a_name_can_be_given() -> None:
    assert job_of(["sh"], ProgramOptions(name="mine"), {}).key.name == "mine"


# --- roles ---


@pytest.mark.parametrize(
    ("options", "roles"),
    [
        pytest.param({}, {"worker": 1}, id="nothing"),
        pytest.param({"replicas": 4}, {"worker": 4}, id="replicas"),
        pytest.param({"replicas": 4, "roles": ("ps=2",)}, {"ps": 2, "worker": 4}, id="workers and another"),
        pytest.param({"roles": ("chief=1", "eval=2")}, {"chief": 1, "eval": 2}, id="no workers"),
    ],
)
def test_roles_have_the_given_numbers(options: dict[str, Any], roles: dict[str, int]) -> None:
    assert roles_of(**options) == roles


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param({"roles": ("ps",)}, "--role ps: has no name and number; write it like --role ps=1", id="number"),
        pytest.param({"roles": ("=2",)}, "--role =2: has no name and number; write it like --role ps=1", id="name"),
        pytest.param(
            {"roles": ("ps=1", "ps=2")}, "--role ps=2: there is also --role ps=1; remove one of them", id="twice"
        ),
        pytest.param(
            {"replicas": 2, "roles": ("worker=3",)},
            "--replicas 2 and --role worker=3 are about the same role; remove one of them",
            id="both",
        ),
    ],
)
def test_contradicting_roles_are_refused_in_a_sentence(options: dict[str, Any], error: str) -> None:
    with pytest.raises(BadConfig) as raised:
        roles_of(**options)

    assert str(raised.value) == error


def test_a_job_does_not_wait_for_its_parameter_servers() -> None:
    spec = spec_of(replicas=2, roles=("ps=1",))

    assert spec["completePolicy"] == "Any"
    assert spec["replicaSpecs"]["ps"]["completePolicy"] == "None"
    assert "completePolicy" not in spec["replicaSpecs"]["worker"]


def test_servers_alone_are_waited_for() -> None:
    spec = spec_of(roles=("server=2",))

    assert "completePolicy" not in spec
    assert "completePolicy" not in spec["replicaSpecs"]["server"]


# --- what a replica gets ---


@pytest.mark.parametrize(
    ("restart", "rules"),
    [
        pytest.param("", {}, id="not given"),
        pytest.param("never", {"restartPolicy": "Never"}, id="never"),
        pytest.param("onfailure", {"restartPolicy": "OnFailure", "restartLimit": 3}, id="on failure"),
        pytest.param("always", {"restartPolicy": "Always"}, id="always"),
    ],
)
def test_restarts_are_those_of_the_option(restart: str, rules: dict[str, Any]) -> None:
    role = spec_of(restart=restart)["replicaSpecs"]["worker"]

    assert {name: value for name, value in role.items() if name.startswith("restart")} == rules


def test_variables_of_options_take_precedence_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "variables"
    file.write_text("# comment\n\nA=1\nexport B='two words'\nC=x=y\nTOKEN\n")
    env = container_of(env=("A=2", "D="), env_file=file)["env"]

    assert {variable["name"]: variable["value"] for variable in env} == {
        "A": "2",
        "B": "two words",
        "C": "x=y",
        "TOKEN": "secret",
        "D": "",
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("A B=1", "FILE, line 2: 'A B=1' is not a variable; write NAME=VALUE", id="name"),
        pytest.param("MISSING", "FILE, line 2: MISSING is not set in your shell; set it, or write", id="unset"),
        pytest.param("\udcff", "--env-file FILE: it is not UTF-8 text; check the path", id="bytes"),
    ],
)
def test_a_wrong_line_of_the_file_is_named(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "variables"
    file.write_bytes(f"A=1\n{text}\n".encode(errors="surrogateescape"))
    with pytest.raises(BadConfig) as raised:
        container_of(env_file=file)

    assert str(raised.value).startswith(error.replace("FILE", str(file)))


@pytest.mark.parametrize(
    ("word", "written"),
    [
        pytest.param("echo $HOME", "echo $HOME", id="a variable of the shell"),
        pytest.param("kill -9 $$", "kill -9 $$$$", id="the process itself"),
        pytest.param("echo $(date) $HOME", "echo $$(date) $$HOME", id="a command"),
    ],
)
def test_kubernetes_expands_nothing_in_a_program(word: str, written: str) -> None:
    document = job_of(["sh", "-c", word], ProgramOptions(), {})
    (container,) = document.body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]

    assert container["command"] == ["sh", "-c", written]


def test_gpus_are_a_limit_of_each_replica() -> None:
    assert container_of(gpus=2)["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert "resources" not in container_of()


def test_the_framework_is_passed_on() -> None:
    assert spec_of(framework="torch")["frameworkType"] == "pytorch"
    assert "frameworkType" not in spec_of()


def test_pods_that_have_ended_are_kept_with_their_logs() -> None:
    assert spec_of()["cleanPodPolicy"] == "Running"


def test_an_image_can_be_given() -> None:
    assert container_of(image="me/train:1")["image"] == "me/train:1"


# --- what to type instead ---


@pytest.mark.parametrize(
    ("files", "instead"),
    [
        pytest.param(["run.sh", "-x"], "sh run.sh -x", id="script"),
        pytest.param(["sh", "train.py"], "sh train.py", id="command"),
        pytest.param(["job.yaml"], "", id="manifest"),
        pytest.param(["no-such-program"], "", id="nothing that exists"),
        pytest.param(["-"], "", id="stdin"),
    ],
)
def test_a_program_without_dashes_is_recognized(files: list[str], instead: str) -> None:
    assert instead_of(files) == instead


def test_a_file_is_a_manifest_even_if_a_program_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sh").touch()

    assert instead_of(["sh"]) == ""


# --- where it runs ---


def sent(document: Document, folder: str = "/project", **environ: str) -> dict[str, Any]:
    """The container of the job, as it is sent to the local cluster."""
    sent = sent_from(document, Path(folder), environ)
    check_fields([sent])
    container: dict[str, Any] = sent.body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    return container


def test_folder_and_programs_are_those_of_the_caller_and_nothing_else_is_stored() -> None:
    container = sent(job_of(["train"], ProgramOptions(), {}), PATH="/a:/b", VIRTUAL_ENV="/a", TOKEN="secret")

    assert container["workingDir"] == "/project"
    assert container["env"] == [{"name": "PATH", "value": "/a:/b"}, {"name": "VIRTUAL_ENV", "value": "/a"}]


def test_what_the_job_says_itself_takes_precedence() -> None:
    document = job_of(["train"], ProgramOptions(env=("PATH=/mine", "A=1")), {})
    changed = override.apply([override.parse(f"{CONTAINER}.workingDir=/data")], [document])[0]
    container = sent(changed, PATH="/a")

    assert container["workingDir"] == "/data"
    assert {entry["name"]: entry["value"] for entry in container["env"]} == {
        "PATH": "/mine",
        "A": "1",
        "VIRTUAL_ENV": "",
    }


def test_a_path_with_a_dollar_sign_is_not_expanded() -> None:
    container = sent(job_of(["train"], ProgramOptions(), {}), PATH="/a/$(HOME)")

    assert container["env"][0] == {"name": "PATH", "value": "/a/$$(HOME)"}


def test_a_folder_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"the working folder .* is not UTF-8 text"):
        sent(job_of(["train"], ProgramOptions(), {}), folder="/a/\udcff")
