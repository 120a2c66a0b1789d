"""The control plane of the test bed is a real one, keeps its data, and leaves nothing behind."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from testbed import build
from testbed.admin import Admin
from testbed.answer import Refused
from testbed.operator import OperatorProcess
from testbed.plane import APISERVER, ETCD, ControlPlane, KubectlFailed, NotBuilt, User, free_port
from testbed.process import Died, StartFailed
from trainmaster.lifecycle import port as host_port


def config_map(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": {"key": "value"}}


def pod_body(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}


def is_alive(pid: int) -> bool:
    """A zombie that nobody has reaped yet is dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until_dead(pids: list[int], folder: Path, within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while any(map(is_alive, pids)) or folder.exists():
        assert time.monotonic() < deadline, f"alive: {[*filter(is_alive, pids)]}, {folder}: {folder.exists()}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def own_plane(binaries: Path) -> Iterator[ControlPlane]:
    """For tests that crash, restart or fill the control plane: the shared one is left alone."""
    users = {"alice": User("alice@example.org", ("team-a", "team-b"))}
    with ControlPlane(binaries=binaries, users=users) as plane:
        yield plane


def test_the_api_server_is_ready_and_of_the_pinned_version(plane: ControlPlane) -> None:
    version = plane.request("GET", "/version")

    assert version["gitVersion"] == build.KUBERNETES == "v1.36.3"
    assert f"Server Version: {build.KUBERNETES}" in plane.kubectl("version")


def test_a_user_may_do_nothing_by_default(plane: ControlPlane, namespace: str) -> None:
    with pytest.raises(Refused) as refused:
        plane.request("GET", f"/api/v1/namespaces/{namespace}/pods", user="stranger")

    assert refused.value.code == 403
    assert 'User "stranger" cannot list' in refused.value.message


def test_a_wrong_token_is_refused(plane: ControlPlane) -> None:
    with pytest.raises(KubectlFailed, match=r"Unauthorized|must be logged in"):
        plane.kubectl("--token=wrong", "get", "pods")


def test_a_kubeconfig_is_complete_in_itself_and_readable_by_its_owner_only(plane: ControlPlane) -> None:
    file = plane.kubeconfig("operator")
    config = yaml.safe_load(file.read_text())

    assert config["clusters"][0]["cluster"]["server"] == plane.url
    assert "certificate-authority-data" in config["clusters"][0]["cluster"]
    assert file.stat().st_mode & 0o077 == 0


def test_a_user_given_at_start_has_its_name_and_groups(own_plane: ControlPlane) -> None:
    said = own_plane.kubectl("auth", "whoami", "--output=yaml", user="alice")

    info = yaml.safe_load(said)["status"]["userInfo"]
    assert info["username"] == "alice@example.org"
    assert set(info["groups"]) == {"team-a", "team-b", "system:authenticated"}


def test_a_client_certificate_of_the_authority_is_a_user(own_plane: ControlPlane) -> None:
    pair = own_plane.authority.client("bob", "team-c")
    anonymous = own_plane.folder / "empty.kubeconfig"
    anonymous.touch()

    said = own_plane.kubectl(
        f"--kubeconfig={anonymous}",
        f"--server={own_plane.url}",
        f"--certificate-authority={own_plane.ca_file}",
        f"--client-certificate={pair.certificate}",
        f"--client-key={pair.key}",
        "auth",
        "whoami",
    )

    assert "bob" in said
    assert "team-c" in said


def test_applied_crds_are_served_when_apply_returns(own_plane: ControlPlane) -> None:
    own_plane.apply(WIDGETS)

    assert own_plane.request("GET", "/apis/example.org/v1/widgets")["items"] == []


def test_a_restart_keeps_data_and_address(own_plane: ControlPlane) -> None:
    url = own_plane.url
    own_plane.request("POST", "/api/v1/namespaces/default/configmaps", config_map("kept"))

    own_plane.restart_apiserver()

    assert own_plane.url == url
    kept = own_plane.request("GET", "/api/v1/namespaces/default/configmaps/kept")
    assert kept["data"] == {"key": "value"}


async def test_a_restart_from_a_worker_thread_outlives_the_thread(own_plane: ControlPlane) -> None:
    def restart_in_a_loop_of_its_own() -> None:
        asyncio.run(asyncio.to_thread(own_plane.restart_apiserver))

    await asyncio.to_thread(restart_in_a_loop_of_its_own)

    assert own_plane.is_running(APISERVER)
    assert own_plane.request("GET", "/version")["gitVersion"] == build.KUBERNETES


async def test_a_paused_api_server_answers_nothing_until_resumed(own_plane: ControlPlane) -> None:
    async with Admin.of(own_plane) as admin:
        own_plane.pause(APISERVER)
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await admin.get("namespaces", None, "default")
        finally:
            own_plane.resume(APISERVER)

        assert (await admin.get("namespaces", None, "default"))["status"]["phase"] == "Active"


async def test_scheduler_and_kwok_bring_a_pod_to_running(own_plane: ControlPlane) -> None:
    own_plane.start_scheduler()
    own_plane.start_kwok()
    names = own_plane.add_nodes(2, cpu="4", pods=10, extended={"nvidia.com/gpu": "8"})

    async with Admin.of(own_plane) as admin:
        await admin.create("pods", pod_body("runs"), "default")
        pod = await admin.wait_for(
            "pods", "default", "runs", lambda pod: pod["status"]["phase"] == "Running", timeout=60
        )
        node = await admin.get("nodes", None, pod["spec"]["nodeName"])

    assert node["metadata"]["name"] in names
    assert node["status"]["allocatable"] == {
        "cpu": "4",
        "memory": "1000Gi",
        "pods": "10",
        "nvidia.com/gpu": "8",
    }


async def test_the_garbage_collector_removes_what_an_owner_leaves(own_plane: ControlPlane) -> None:
    own_plane.start_controller_manager()

    async with Admin.of(own_plane) as admin:
        owner = await admin.create("configmaps", config_map("owner"), "default")
        child = config_map("child")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        child["metadata"] = {"name": "child", "ownerReferences": [reference]}
        await admin.create("configmaps", child, "default")
        await admin.delete("configmaps", "default", "owner")

        await admin.wait_gone("configmaps", "default", "child", timeout=60)


def test_a_program_that_runs_is_not_started_twice(own_plane: ControlPlane) -> None:
    with pytest.raises(StartFailed, match="kube-apiserver is running already"):
        own_plane.start_apiserver()

    assert own_plane.is_running(APISERVER)


def test_a_failed_start_shows_and_keeps_the_log(binaries: Path) -> None:
    plane = ControlPlane(binaries=binaries, apiserver_arguments=["--no-such-option"])

    with pytest.raises(StartFailed, match=r"kube-apiserver ended with 1 .*\n.*no-such-option") as failed:
        plane.start()

    named = re.search(r"the end of (\S+):", str(failed.value))
    assert named is not None
    log = Path(named[1])
    assert "no-such-option" in log.read_text()
    shutil.rmtree(log.parent)


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["etcd", "etcd's peer", "kube-apiserver"])
def test_a_port_that_is_lost_before_its_use_is_replaced(
    lost: int, binaries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief:
        taken: int = thief.getsockname()[1]
        ports = [free_port() for _ in range(lost)] + [taken]
        monkeypatch.setattr("testbed.plane.free_port", lambda: ports.pop(0) if ports else free_port())

        with ControlPlane(binaries=binaries) as plane:
            assert plane.request("GET", "/version")["gitVersion"] == build.KUBERNETES
            assert str(taken) not in plane.url
        assert ports == []


def test_a_free_port_is_none_that_an_operator_gives_to_a_pod() -> None:
    assert not {free_port() for _ in range(100)} & set(range(host_port.FIRST, host_port.LAST + 1))


async def test_an_operator_whose_port_is_lost_before_its_use_gets_another(
    binaries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as thief, ControlPlane(binaries=binaries) as plane:
        taken: int = thief.getsockname()[1]
        ports = [taken]
        monkeypatch.setattr("testbed.operator.free_port", lambda: ports.pop() if ports else free_port())

        async with OperatorProcess(plane) as operator:
            assert operator.metrics_port != taken
        assert ports == []


def test_a_program_that_dies_by_itself_is_reported_at_the_end(binaries: Path) -> None:
    plane = ControlPlane(binaries=binaries).start()
    os.kill(plane.pid(ETCD), signal.SIGKILL)
    while plane.is_running(ETCD):
        time.sleep(0.01)

    with pytest.raises(Died, match=r"etcd ended with -9 by itself; the end of .*/etcd.log"):
        plane.stop()

    assert (plane.folder / "etcd.log").exists()
    shutil.rmtree(plane.folder)


def test_stop_ends_every_process_and_removes_the_folder(binaries: Path) -> None:
    with ControlPlane(binaries=binaries) as plane:
        pids = [plane.pid(ETCD), plane.pid(APISERVER)]
        assert all(map(is_alive, pids))

    assert not any(map(is_alive, pids))
    assert not plane.folder.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_nothing_outlives_a_python_that_is(number: signal.Signals, binaries: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(binaries)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        folder, *pids = holder.stdout.readline().split()
        running = [int(pid) for pid in pids]
        assert all(map(is_alive, running))

        os.kill(holder.pid, number)
        holder.wait(30)

    wait_until_dead(running, Path(folder))


def test_missing_binaries_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(NotBuilt, match="run make testbed"):
        ControlPlane(binaries=tmp_path).start()


HOLDER = """
import signal, sys, threading
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored when the tests run in the background of a shell
from testbed.plane import ControlPlane
plane = ControlPlane(binaries=Path(sys.argv[1])).start()
print(plane.folder, plane.pid("etcd"), plane.pid("kube-apiserver"), flush=True)
threading.Event().wait()
"""

WIDGETS = """
apiVersion: v1
kind: Namespace
metadata: {name: widgets}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
