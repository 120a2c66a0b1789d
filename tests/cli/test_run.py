"""The command line of `trainmaster run`; what it does is tested in tests/local."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tests.local.program import job, role, script, written
from trainmaster.cli.run import run
from trainmaster.cli.session import RunOptions
from trainmaster.client.program import FRAMEWORKS, RESTART_POLICIES
from trainmaster.core.errors import BadConfig


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """What would have been run; it is not, and ends with 7."""
    started: list[RunOptions] = []

    def run_jobs(options: RunOptions) -> int:
        started.append(options)
        return 7

    monkeypatch.setattr("trainmaster.cli.session.run_jobs", run_jobs)
    return started


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path, job(trainer=role(script("exit"))))


def typed(*args: str) -> Result:
    return CliRunner().invoke(run, args)


def test_options_reach_the_run_and_its_code_is_ours(given: list[RunOptions], file: str) -> None:
    options = ["--timeout", "1m30s", "--keep", "--logs", "there", "-n", "ml"]
    result = typed(file, *options, "--set", "spec.cleanPodPolicy=None", "--set", "spec.priority=high")
    (options_given,) = given
    (document,) = options_given.documents

    assert result.exit_code == 7
    assert (options_given.timeout, options_given.keep, options_given.logs) == (90.0, True, Path("there"))
    assert document.key.namespace == "ml"
    assert (document.body["spec"]["cleanPodPolicy"], document.body["spec"]["priority"]) == ("None", "high")


def test_without_options_there_is_no_end_and_nothing_is_kept(given: list[RunOptions], file: str) -> None:
    typed(file)

    assert [(options.timeout, options.keep, options.logs) for options in given] == [(0.0, False, None)]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        pytest.param(["missing.yaml"], "trainmaster: missing.yaml: cannot be read", id="file"),
        pytest.param(["FILE", "--set", "spec.x.y=1"], "trainmaster: --set spec.x.y=1: spec of", id="path"),
        pytest.param(["FILE", "--set", "spec.x=1"], "trainmaster: --set spec.x=1: spec of", id="field"),
        pytest.param(["FILE", "--timeout", "10x"], "'10x' is not a duration", id="duration"),
        pytest.param([], "nothing to run: give a manifest, or a program after --", id="nothing"),
        pytest.param(["--"], "there is no program after --", id="no program"),
        pytest.param(["train.py"], "train.py is a program and not a manifest; type: trainmaster run -- ", id="script"),
        pytest.param(["sh", "x"], "sh is a program and not a manifest; type: trainmaster run -- sh x", id="command"),
        pytest.param(["FILE", "--", "sh"], "two descriptions of a job; remove one of them", id="file and program"),
        pytest.param(["FILE", "--gpus", "1"], "--gpus describes a program after --, and ", id="option of a program"),
        pytest.param(["FILE", "--role", "ps=1"], "--role describes a program after --, and ", id="role of a program"),
        pytest.param(["FILE", "--context", "a", "--keep"], "--keep and --logs are for jobs on this machine", id="logs"),
        pytest.param(["--env", "=1", "--", "sh"], "--env: '=1' is not a variable; write NAME=VALUE", id="variable"),
    ],
)
def test_bad_input_ends_with_2_and_a_sentence(given: list[RunOptions], file: str, args: list[str], said: str) -> None:
    result = typed(*(file if arg == "FILE" else arg for arg in args))

    assert (result.exit_code, given) == (2, [])
    assert said in result.stderr


def test_a_failed_start_exits_with_2(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    def fail(_: RunOptions) -> int:
        raise BadConfig("no space left")

    monkeypatch.setattr("trainmaster.cli.session.run_jobs", fail)
    result = typed(file)

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "trainmaster: no space left\n")


def test_an_input_error_is_reported_before_the_http_stack_is_loaded(tmp_path: Path) -> None:
    """So that the error is shown in half the time."""
    (tmp_path / "bad.yaml").write_text("a: b: c")
    check = (
        "import sys, atexit\n"
        "atexit.register(lambda: print({'aiohttp', 'uvloop', 'rich.live'} & set(sys.modules)))\n"
        f"sys.argv = ['trainmaster', 'run', {str(tmp_path / 'bad.yaml')!r}]\n"
        "from trainmaster.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (2, "set()\n")
    assert ended.stderr.startswith(f"trainmaster: {tmp_path}/bad.yaml, line 1: is not YAML")


# --- without a manifest ---


def test_a_program_is_run_as_an_aitrainingjob(given: list[RunOptions]) -> None:
    result = typed("--replicas", "3", "-n", "ml", "--", "python3", "train.py", "--lr", "0.1", "--help")
    ((document,),) = [options.documents for options in given]
    (container,) = document.body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]

    assert (result.exit_code, document.key) == (7, ("ml", "train"))
    assert document.body["spec"]["replicaSpecs"]["worker"]["replicas"] == 3
    assert container["command"] == ["python3", "train.py", "--lr", "0.1", "--help"]


def test_a_dry_run_prints_what_run_would_read(given: list[RunOptions], tmp_path: Path) -> None:
    printed = typed("--replicas", "2", "--role", "ps=1", "--env", "A=b: c", "--dry-run", "--", "sh", "-c", "exit")
    typed("--replicas", "2", "--role", "ps=1", "--env", "A=b: c", "--", "sh", "-c", "exit")
    (tmp_path / "printed.yaml").write_text(printed.stdout)
    typed(str(tmp_path / "printed.yaml"))
    direct, read = (options.documents[0] for options in given)

    assert (printed.exit_code, printed.stderr) == (0, "")
    assert direct.body == read.body


def test_a_dry_run_names_no_namespace_that_was_not_given(file: str) -> None:
    assert "namespace" not in typed(file, "--dry-run").stdout
    assert "namespace: ml" in typed(file, "--dry-run", "-n", "ml").stdout


def test_the_choices_are_those_of_the_program() -> None:
    choices = {param.name: param.type.choices for param in run.params if isinstance(param.type, click.Choice)}

    del choices["format_"]
    assert choices == {"framework": tuple(FRAMEWORKS), "restart": tuple(RESTART_POLICIES)}
