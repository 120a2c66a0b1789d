"""``trainmaster server``: its options, and what it says when it cannot start."""

import socket
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from trainmaster.cli.main import cli
from trainmaster.cli.server import check_open, options_of, server
from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import Key
from trainmaster.diserver.limits import Rules
from trainmaster.diserver.serve import ServerOptions
from trainmaster.kube.config import Config

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: a, user: {}}]
"""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[ServerOptions]:
    """What the server would have been started with; it is not."""
    started: list[ServerOptions] = []

    def run(given: dict[str, Any]) -> None:
        started.append(options_of(given, Config("https://127.0.0.1:1", "test", pod_namespace="di-system")))

    monkeypatch.setattr("trainmaster.cli.server._serve", run)
    monkeypatch.setattr("trainmaster.wiring.loop.run_loop", lambda _: None)
    monkeypatch.setattr("trainmaster.cli.server.configure_logging", lambda style, verbosity: None)
    return started


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["server", *args])


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param([], ServerOptions(bind_address=":8080"), id="defaults"),
        pytest.param(["--bind-address", "h:1"], ServerOptions(bind_address="h:1"), id="address"),
        pytest.param(["--server-bind-address=h:1"], ServerOptions(bind_address="h:1"), id="address by its older name"),
        pytest.param(["-s", "h:1"], ServerOptions(bind_address="h:1"), id="address by its letter"),
        pytest.param(
            ["--service-domain-name=svc.x"],
            ServerOptions(bind_address=":8080", rules=Rules(service_domain="svc.x")),
            id="domain",
        ),
        pytest.param(
            ["--namespace=rl"],
            ServerOptions(
                bind_address=":8080", namespace="rl", rules=Rules(aggregator_config=Key("rl", "aggregator-config"))
            ),
            id="namespace",
        ),
        pytest.param(
            ["--allow-unidentified=true"], ServerOptions(bind_address=":8080", allow_unidentified=True), id="open"
        ),
        pytest.param(["--shutdown-delay-duration=1m"], ServerOptions(bind_address=":8080", drain=60.0), id="drain"),
        pytest.param(
            ["--agconfig-namespace=n", "--agconfig-name=c", "--max-replicas-per-job=7", "--shared-network"],
            ServerOptions(
                bind_address=":8080",
                rules=Rules(max_per_job=7, aggregator_config=Key("n", "c"), shared_network=True),
            ),
            id="rules",
        ),
    ],
)
def test_options_reach_the_server(given: list[ServerOptions], args: list[str], expected: ServerOptions) -> None:
    result = run(*args)

    assert (result.exit_code, result.output) == (0, "")
    assert given == [expected]


IGNORED = (
    "--leader-elect",
    "--lease-lock-name=x",
    "--lease-lock-namespace=x",
    "--di-server-url=http://x:1",
    "--qps=100",
    "--burst=200",
    "--metric-addr=:8443",
    "--probe-address=:8080",
    "--zap-devel=true",
    "--zap-encoder=json",
    "--zap-log-level=debug",
    "--zap-stacktrace-level=error",
    "--zap-time-encoding=iso8601",
)


@pytest.mark.parametrize(
    ("pod_namespace", "namespace"),
    [
        pytest.param("ml-platform", "ml-platform", id="in a pod"),
        pytest.param("", "trainmaster-system", id="outside of a cluster"),
    ],
)
def test_the_aggregatorconfig_is_that_of_the_installations_namespace(pod_namespace: str, namespace: str) -> None:
    given = server.make_context("server", []).params
    config = Config("https://127.0.0.1:1", "test", namespace="context-of-somebody", pod_namespace=pod_namespace)

    assert options_of(given, config).rules.aggregator_config == Key(namespace, "aggregator-config")


@pytest.mark.parametrize("address", [":8080", "0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "di.example:8080"])
def test_a_server_that_lets_everybody_act_on_all_jobs_is_for_one_machine(address: str) -> None:
    options = ServerOptions(bind_address=address, allow_unidentified=True)

    with pytest.raises(BadConfig, match=r"--allow-unidentified: every caller .* --bind-address=127\.0\.0\.1:8080, or "):
        check_open(options)


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        pytest.param(ServerOptions(bind_address="127.0.0.1:1", allow_unidentified=True), 1, id="loopback"),
        pytest.param(ServerOptions(bind_address="localhost:1", allow_unidentified=True), 1, id="localhost"),
        pytest.param(ServerOptions(bind_address="[::1]:1", allow_unidentified=True), 1, id="loopback of IPv6"),
        pytest.param(ServerOptions(bind_address=":1", namespace="ml", allow_unidentified=True), 1, id="one namespace"),
        pytest.param(ServerOptions(bind_address=":1"), 0, id="callers are known"),
    ],
)
def test_a_server_without_known_callers_warns_at_its_start(options: ServerOptions, warnings: int) -> None:
    with structlog.testing.capture_logs() as logs:
        check_open(options)

    assert [line["log_level"] for line in logs] == ["warning"] * warnings


@pytest.mark.parametrize("option", IGNORED)
def test_options_without_a_meaning_are_accepted_with_a_warning(given: list[ServerOptions], option: str) -> None:
    with structlog.testing.capture_logs() as logs:
        assert run(option).exit_code == 0

    assert [line["option"] for line in logs] == [option.partition("=")[0]]


def test_the_letter_of_an_option_without_a_meaning_is_accepted(given: list[ServerOptions]) -> None:
    with structlog.testing.capture_logs() as logs:
        assert run("-p", ":8080").exit_code == 0

    assert [line["option"] for line in logs] == ["--probe-address"]


@pytest.mark.parametrize(
    "args", [["--gpu-alloc-policy=clever"], ["--max-replicas-per-job=0"], ["--shutdown-delay-duration=soon"]]
)
def test_bad_options_are_refused(given: list[ServerOptions], args: list[str]) -> None:
    result = run(*args)

    assert result.exit_code == 2
    assert not given


def test_an_address_that_is_taken_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setattr("trainmaster.cli.server.configure_logging", lambda style, verbosity: None)
    with socket.create_server(("127.0.0.1", 0)) as taken, structlog.testing.capture_logs():
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("--kubeconfig", str(tmp_path / "config"), "--bind-address", address)

    assert isinstance(result.exception, BadConfig)
    assert f"cannot listen on {address}" in str(result.exception)
