import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version

import pytest
import structlog
import yaml
from click.testing import CliRunner

from trainmaster.cli.main import cli, main
from trainmaster.core.errors import NotLeading, Unreachable
from trainmaster.kinds.registry import KINDS

PROGRAM = [sys.executable, "-c", "from trainmaster.cli import main; main()"]
NOWHERE = ["--master=http://127.0.0.1:1", "--metrics-bind-address=0", "--health-probe-bind-address=0"]

Answer = tuple[int, str, str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Runs ``trainmaster ARGS`` in this process: its exit code, stdout and stderr."""
    monkeypatch.setattr("trainmaster.cli.operator.configure_logging", lambda style, verbosity: None)

    def run(*args: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["trainmaster", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield f"127.0.0.1:{other.getsockname()[1]}"


# --- errors are one sentence ---


def test_a_kubeconfig_that_does_not_exist_is_told_in_a_sentence(run: Callable[..., Answer]) -> None:
    assert run("operator", "--kubeconfig", "/no/such/file") == (
        1,
        "",
        "trainmaster: --kubeconfig: /no/such/file does not exist; check the path\n",
    )


def test_no_cluster_at_all_is_told_in_a_sentence(run: Callable[..., Answer]) -> None:
    code, out, err = run("operator")

    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("trainmaster: no API server to talk to")


ORDER = "leader election needs lease-duration > renew-deadline > retry-period > 0, got"


@pytest.mark.parametrize(
    ("times", "got"),
    [
        pytest.param(("10s", "10s", "2s"), "10s, 10s and 2s", id="deadline not before the end"),
        pytest.param(("15s", "2s", "2s"), "15s, 2s and 2s", id="one try only"),
        pytest.param(("15s", "10s", "0"), "15s, 10s and 0s", id="hot loop"),
        pytest.param(("2s", "10s", "15s"), "2s, 10s and 15s", id="upside down"),
        pytest.param(("1m", "1.5m", "500ms"), "60s, 90s and 0.5s", id="as seconds"),
    ],
)
def test_bad_election_times_are_told_in_a_sentence(
    run: Callable[..., Answer], times: tuple[str, str, str], got: str
) -> None:
    lease, renew, retry = times
    given = ["--leader-elect-lease-duration", lease, "--leader-elect-renew-deadline", renew]
    given += ["--leader-elect-retry-period", retry]

    assert run("operator", *NOWHERE, "--leader-elect", *given) == (1, "", f"trainmaster: {ORDER} {got}\n")


@pytest.mark.parametrize("option", ["--metrics-bind-address", "--health-probe-bind-address"])
def test_a_port_that_is_taken_is_told_in_a_sentence(run: Callable[..., Answer], taken: str, option: str) -> None:
    code, out, err = run("operator", *NOWHERE, option, taken)

    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"trainmaster: cannot listen on {taken}: ")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(NotLeading("lease a/b could not be renewed within 10 s"), id="plain"),
        pytest.param(ExceptionGroup("", [NotLeading("lease a/b could not be renewed within 10 s")]), id="grouped"),
        pytest.param(
            ExceptionGroup(
                "", [ExceptionGroup("", [NotLeading("lease a/b could not be renewed within 10 s")]), Unreachable("cut")]
            ),
            id="the first of many",
        ),
    ],
)
def test_a_leader_that_loses_its_lease_ends_with_one_line_of_the_log(
    run: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def end(_: object) -> None:
        raise error

    monkeypatch.setattr("trainmaster.cli.operator_process._operate", end)

    with structlog.testing.capture_logs() as logs:
        assert run("operator") == (1, "", "")
    assert logs == [
        {
            "log_level": "error",
            "event": "ending: this process does not lead any more",
            "because": "lease a/b could not be renewed within 10 s",
        }
    ]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("no answer"), id="plain"),
        pytest.param(ExceptionGroup("", [ExceptionGroup("", [Unreachable("no answer")])]), id="grouped"),
    ],
)
def test_what_else_ends_the_operator_is_told_in_a_sentence(
    run: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def end(_: object) -> None:
        raise error

    monkeypatch.setattr("trainmaster.cli.operator_process._operate", end)

    assert run("operator") == (1, "", "trainmaster: no answer\n")


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ExceptionGroup("", [ZeroDivisionError()]), id="alone"),
        pytest.param(ExceptionGroup("", [NotLeading("lost"), ZeroDivisionError()]), id="with a known error"),
    ],
)
def test_a_defect_of_ours_shows_its_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def end(_: object) -> None:
        raise error

    monkeypatch.setattr("trainmaster.cli.operator_process._operate", end)
    monkeypatch.setattr("trainmaster.cli.operator.configure_logging", lambda style, verbosity: None)
    monkeypatch.setattr(sys, "argv", ["trainmaster", "operator"])

    with pytest.raises(ExceptionGroup) as raised:
        main()
    assert raised.value.subgroup(ZeroDivisionError) is not None


# --- help ---


@pytest.mark.parametrize("name", sorted(cli.commands))
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_of_every_command_has_an_example(name: str, option: str) -> None:
    result = CliRunner().invoke(cli, [name, option])

    assert result.exit_code == 0
    assert f"Example:\n    trainmaster {name}" in result.output


def test_help_lists_every_command_with_a_sentence() -> None:
    output = CliRunner().invoke(cli, ["--help"]).output

    for name, command in cli.commands.items():
        assert re.search(rf"^  {name} +{re.escape(command.get_short_help_str(100))}$", output, re.MULTILINE)


def test_the_version_is_that_of_the_package() -> None:
    assert version("trainmaster") in CliRunner().invoke(cli, ["--version"]).output


def test_an_unknown_command_is_told() -> None:
    result = CliRunner().invoke(cli, ["oprator"])

    assert result.exit_code == 2
    assert "No such command 'oprator'" in result.stderr


# --- crds ---


def test_crds_prints_a_definition_for_every_kind() -> None:
    result = CliRunner().invoke(cli, ["crds"])
    documents = list(yaml.safe_load_all(result.stdout))

    assert result.exit_code == 0
    assert {document["kind"] for document in documents} == {"CustomResourceDefinition"}
    defined = {(d["spec"]["group"], d["spec"]["names"]["kind"]) for d in documents}
    assert defined >= {(kind.resource.group, kind.resource.kind) for kind in KINDS}


# --- the process ---


def test_help_does_not_load_the_http_stack() -> None:
    script = "import sys, trainmaster.cli; sys.exit(' '.join({'aiohttp', 'uvloop'} & set(sys.modules)) or 0)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_operator_well_and_its_log_is_json(number: signal.Signals) -> None:
    """It has no API server: it waits for its stores."""
    with subprocess.Popen([*PROGRAM, "operator", *NOWHERE], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [json.loads(process.stderr.readline())]
        process.send_signal(number)
        lines += [json.loads(line) for line in process.stderr]

    assert process.returncode == 0
    assert (lines[0]["event"], lines[0]["server"], lines[-1]["event"]) == ("starting", "http://127.0.0.1:1", "stopped")
