"""`trainmaster up` and `down`: a local cluster that stays."""

import asyncio
import json
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.local.conftest import Start
from tests.local.program import Program, containers_of, job, python, role, script, serial
from tests.manifests.build import Manifest
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.embedded.state import is_state
from trainmaster.kinds.registry import KINDS
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.kubeconfig import load_config

DIJOB, AITJ = (kind.resource for kind in KINDS)
SLEEPS = script("echo ready; exec sleep 600")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def up(start: Start, state: Path) -> Callable[..., Program]:
    """Starts the cluster; it takes jobs when this returns."""

    def up(*args: str) -> Program:
        program = start("up", "--state", str(state), *args)
        program.until(lambda line: "export KUBECONFIG=" in line)
        return program

    return up


def api_of(state: Path) -> str:
    server: str = json.loads((state / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
    return server


@asynccontextmanager
async def client_of(state: Path) -> AsyncIterator[KubeCluster]:
    async with KubeCluster(load_config(kubeconfig=str(state / "kubeconfig"))) as cluster:
        yield cluster


async def create(cluster: KubeCluster, resource: Resource, manifest: Manifest) -> None:
    await cluster.create(resource, "default", json.dumps(manifest).encode())


async def pods_of(cluster: KubeCluster) -> list[dict[str, Any]]:
    return list(json.loads(await cluster.list(POD, namespace="default"))["items"])


async def until_running(cluster: KubeCluster, count: int) -> dict[str, str]:
    """The uids of the pods, by name, once so many of them run."""
    while True:
        pods = await pods_of(cluster)
        if [pod["status"].get("phase") for pod in pods].count("Running") == count:
            return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
        await asyncio.sleep(0.05)


async def until_ended(cluster: KubeCluster, resource: Resource, name: str) -> str:
    """The last phase of a job."""
    while True:
        status = json.loads(await cluster.get(resource, Key("default", name))).get("status", {})
        for condition in status.get("conditions", []):
            if condition["type"] == "Finished":
                return str(condition["reason"])
        await asyncio.sleep(0.05)


# --- a life ---


async def test_a_job_that_is_applied_runs_to_its_end(up: Callable[..., Program], state: Path, start: Start) -> None:
    program = up()
    async with client_of(state) as cluster:
        await create(cluster, DIJOB, serial(script("echo hi")))
        assert await until_ended(cluster, DIJOB, "job") == "Succeeded"
    down = start("down", "--state", str(state)).end()

    assert down == (0, "stopped\n", "")
    assert program.end()[0] == 0
    assert f"export KUBECONFIG={state}/kubeconfig" in program.output


async def test_ctrl_c_ends_the_processes_and_keeps_the_objects(up: Callable[..., Program], state: Path) -> None:
    program = up()
    async with client_of(state) as cluster:
        await create(cluster, AITJ, job(trainer=role(SLEEPS, 2)))
        before = await until_running(cluster, 2)
    program.send(signal.SIGINT)
    code, out, _ = program.end()
    assert code == 0
    assert "ending 2 containers" in out
    assert containers_of(state) == []

    up()
    async with client_of(state) as cluster:
        job_now = json.loads(await cluster.get(AITJ, Key("default", "job")))
        assert job_now["metadata"]["name"] == "job"
        # The programs ended by a signal: what that means is the job's own policy.
        assert await until_ended(cluster, AITJ, "job") == "Failed"
    assert set(before) == {"job-trainer-0", "job-trainer-1"}


async def test_ctrl_c_twice_does_not_wait_for_stubborn_programs(up: Callable[..., Program], state: Path) -> None:
    stubborn = python("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)")
    program = up()
    async with client_of(state) as cluster:
        await create(cluster, DIJOB, serial(stubborn))
        await until_running(cluster, 1)
    program.send(signal.SIGINT)
    program.until(lambda line: line.startswith("ending 1 containers"))
    program.send(signal.SIGINT)

    assert program.end()[0] == 0
    assert containers_of(state) == []


async def test_after_kill_9_nothing_is_lost_and_nothing_runs_twice(up: Callable[..., Program], state: Path) -> None:
    program = up()
    async with client_of(state) as cluster:
        for number in range(5):
            await create(cluster, AITJ, job(f"job-{number}", trainer=role(SLEEPS, 2)))
        before = await until_running(cluster, 10)
    watchers = sorted(containers_of(state))
    program.kill()
    assert sorted(containers_of(state)) == watchers

    up()
    async with client_of(state) as cluster:
        assert await until_running(cluster, 10) == before
        pods = await pods_of(cluster)
    assert sorted(containers_of(state)) == watchers
    assert {status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]} == {0}


# --- down ---


async def test_down_ends_what_a_killed_cluster_left_behind_and_purges(
    up: Callable[..., Program], start: Start, state: Path
) -> None:
    program = up()
    async with client_of(state) as cluster:
        await create(cluster, DIJOB, serial(SLEEPS))
        await until_running(cluster, 1)
    program.kill()
    code, out, err = start("down", "--state", str(state), "--purge").end()

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "nothing was running",
        "ending 1 containers that were left behind: they have 30 s",
        f"removed {state}",
    ]
    assert containers_of(state) == []
    assert is_state(state) is False


def test_down_where_nothing_was_ever_up_is_told(start: Start, tmp_path: Path) -> None:
    code, out, err = start("down", "--state", str(tmp_path)).end()

    assert (code, out) == (1, "")
    assert err == (
        f"trainmaster: {tmp_path} is no state folder: nothing was started there; say which with --state DIR\n"
    )


# --- what cannot be ---


def test_two_cannot_use_one_folder(up: Callable[..., Program], start: Start, state: Path) -> None:
    program = up()
    code, out, err = start("up", "--state", str(state)).end()

    assert (code, out) == (1, "")
    assert err.startswith(f"trainmaster: state folder {state} is in use by process {program.pid}; stop that one")
    assert err.count("\n") == 1


def test_a_port_that_is_taken_is_told(start: Start, state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, out, err = start("up", "--state", str(state), "--port", str(port)).end()

    assert (code, out) == (1, "")
    assert f"{port}" in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("trainmaster: ")
    assert "Traceback" not in err


def test_a_database_that_is_none_is_told_and_left_alone(up: Callable[..., Program], start: Start, state: Path) -> None:
    up().send(signal.SIGINT)
    start("down", "--state", str(state)).end()
    database = state / "objects.db"
    database.write_bytes(b"not a database" * 1000)
    code, _, err = start("up", "--state", str(state)).end()

    assert code == 1
    assert err.splitlines()[-1].startswith("trainmaster: ")
    assert "Traceback" not in err
    assert database.read_bytes() == b"not a database" * 1000


# --- who may come in ---


@pytest.mark.parametrize("token", [pytest.param("", id="none"), pytest.param("Bearer wrong", id="wrong")])
def test_without_the_token_nobody_gets_in(up: Callable[..., Program], state: Path, token: str) -> None:
    up()
    trusted = ssl.create_default_context(cafile=str(state / "certificate.pem"))
    request = urllib.request.Request(f"{api_of(state)}/api/v1/pods", headers={"Authorization": token} if token else {})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, context=trusted)

    with refused.value:
        assert refused.value.code == 401


def test_nothing_listens_on_anything_but_loopback(up: Callable[..., Program]) -> None:
    program = up()
    sockets = {str(path.readlink()) for path in Path(f"/proc/{program.pid}/fd").iterdir() if path.is_symlink()}
    listening = [
        (words[1], words[9])
        for table in ("tcp", "tcp6")
        for words in map(str.split, Path(f"/proc/{program.pid}/net/{table}").read_text().splitlines()[1:])
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets
    ]

    assert len(listening) == 2  # the API, and the node's logs
    assert {address.split(":")[0] for address, _ in listening} == {"0100007F"}
