"""di-server under the names that DI-engine's shipped configurations and nervex-operator's mock have for it."""

import sys
from pathlib import Path

import pytest

from tests.local.cluster import client_of, create, until_running
from tests.local.conftest import Start, Up
from tests.local.network import Network
from tests.local.program import python, serial, written
from tests.local.test_caller import LIST, METRICS, asking, grow, idle, of, sent, until_written
from trainmaster.settings import OPERATOR
from trainmaster.wiring.server_name import PORT, SERVICES, server_name

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")

NAME = OPERATOR.jobs.server_url
NAMES = (NAME, "nervex-server.nervex-system:8080")
"""Of the Services of di-manager.yaml and nervex-manager.yaml."""


def test_the_names_are_those_of_the_services_on_a_cluster() -> None:
    assert tuple(f"{service.name}.{service.namespace}:{PORT}" for service in SERVICES) == NAMES


@pytest.mark.parametrize("name", NAMES)
async def test_a_program_finds_its_own_job_by_the_name_of_di_server(
    up: Up, state: Path, tmp_path: Path, name: str
) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, idle("other"))
        await until_running(cluster, 1)
        requests = [of("mine"), grow("mine"), LIST, of("other"), grow("other")]
        await create(cluster, asking("mine", tmp_path / "answers", requests, name))
        answers = await until_written(tmp_path / "answers")

    assert [status for status, _ in answers] == [200, 200, 200, 404, 404]
    assert len(answers[1][1]["data"]["collectors"]) == 1
    assert [each["coordinator"] for each in answers[2][1]["data"]] == ["mine-coordinator"]


@pytest.mark.parametrize("name", ["di-server.di-system.svc", "nervex-server.nervex-system.svc.cluster.local"])
async def test_longer_names_lead_there_too(up: Up, state: Path, tmp_path: Path, name: str) -> None:
    up()
    server = f"{name}:8080"
    async with client_of(state) as cluster:
        await create(cluster, asking("mine", tmp_path / "answers", [of("mine")], server))
        answers = await until_written(tmp_path / "answers")

    assert [status for status, _ in answers] == [200]


async def test_web_pages_and_programs_in_no_pod_are_refused_there_too(up: Up, state: Path, tmp_path: Path) -> None:
    up()
    page, host = {"Origin": "http://evil.example"}, {"Host": "evil.example:8080"}
    hosts = state / "node" / "hosts" / "default"
    async with client_of(state) as cluster:
        await create(cluster, asking("mine", tmp_path / "answers", [of("mine", **page), of("mine", **host)], NAME))
        answers = await until_written(tmp_path / "answers")
        (address,) = [line.split()[0] for line in hosts.read_text().splitlines() if "\tdi-server.di-system " in line]
        outside = sent(f"{address}:8080", [of("mine"), grow("mine"), LIST, METRICS, of("mine", Host=NAME)])

    assert [status for status, _ in answers] == [403, 403]
    assert [status for status, _ in outside] == [403] * 5


async def test_two_clusters_of_one_machine_have_their_own_server(start: Start, tmp_path: Path) -> None:
    for name in ("one", "two"):
        start("up", "--state", str(tmp_path / name)).until(lambda line: "export KUBECONFIG=" in line)
    for name in ("one", "two"):
        async with client_of(tmp_path / name) as cluster:
            await create(cluster, asking(name, tmp_path / f"answers-{name}", [LIST], NAME))
    for name in ("one", "two"):
        ((status, answer),) = await until_written(tmp_path / f"answers-{name}")

        assert status == 200
        assert [each["coordinator"] for each in answer["data"]] == [f"{name}-coordinator"]


def test_an_address_in_use_is_passed_over(tmp_path: Path) -> None:
    with server_name(tmp_path) as first, server_name(tmp_path) as second:
        assert (first.warning, second.warning) == ("", "")
        assert not set(first.services.values()) & set(second.services.values())


TAKE_PORT = """
import socket, signal
server = socket.create_server(("", 8080))
print("taken", flush=True)
signal.pause()
"""


def test_a_port_that_another_program_has_everywhere_is_mentioned_once_and_the_job_runs(
    start: Start, network: Network, tmp_path: Path
) -> None:
    network.background(TAKE_PORT, "taken")
    resolves = "import socket; socket.gethostbyname('di-server.di-system')"
    manifest = written(tmp_path, serial(python(f"try:\n    {resolves}\nexcept OSError:\n    print('unknown')")))

    code, output, errors = start("run", manifest, "--timeout", "60s", inside=network.inside).end()

    assert code == 0, output + errors
    names = "di-server.di-system and nervex-server.nervex-system"
    assert output.count(f"Warning: the names {names} do not resolve in pods") == 1
    assert "(address already in use)" in output
    assert "(system_addr, --server) has one of these names, remove it, or end the program that uses port 8080" in output
    assert "unknown" in output
