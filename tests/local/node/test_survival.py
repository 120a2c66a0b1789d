"""Nodes end and are killed; what they ran is taken over, reported or ended, and never doubled."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.admin import eventually
from tests.local.node.life import Scene, container, state_of, terminated
from trainmaster.local.disk import write_whole
from trainmaster.local.node.process import running_shims, send

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@contextmanager
def separate_node(scene: Scene) -> Iterator["subprocess.Popen[bytes]"]:
    """The node as a process of its own, as `trainmaster node` starts it."""
    command = [
        *(sys.executable, "-c", "from trainmaster.cli import main; main()", "node", "--allow-root"),
        *("--kubeconfig", str(scene.plane.kubeconfig()), "--name", scene.name),
        *("--folder", str(scene.folder), "--workdir", str(scene.workdir), "--client-ca", str(scene.plane.ca_file)),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def shim_of(scene: Scene, pod: dict[str, Any]) -> int:
    uid = pod["metadata"]["uid"]
    return next(pid for spec, pid in running_shims(scene.folder).items() if uid in spec)


async def test_container_is_adopted_and_not_started_twice(scene: Scene) -> None:
    async with scene.node():
        pod = await scene.pod("a", "echo $$$$ >> pids; while [ ! -e go ]; do sleep 0.02; done; exit 7", policy="Always")
        before = await scene.running("a")
        await scene.appears("pids")
    async with scene.node():
        assert len(scene.processes(pod)) >= 2
        (scene.workdir / "go").touch()
        after = await scene.until("a", lambda pod: state_of(pod, field="lastState")["terminated"])

    assert state_of(after, field="lastState")["terminated"]["exitCode"] == 7
    assert (scene.workdir / "pids").read_text().split()[0] != ""
    assert state_of(before)["running"]["startedAt"] == state_of(after, field="lastState")["terminated"]["startedAt"]


async def test_end_without_a_running_node_is_reported(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "while [ ! -e go ]; do sleep 0.02; done; touch gone; exit 9")
        await scene.running("a")
    (scene.workdir / "go").touch()
    await scene.appears("gone")
    async with scene.node():
        pod = await scene.ended("a")

    assert (pod["status"]["phase"], terminated(pod)["exitCode"]) == ("Failed", 9)


async def test_ended_pod_is_not_run_again(scene: Scene) -> None:
    async with scene.node():
        await scene.pod("a", "echo x >> runs")
        first = await scene.ended("a")
    async with scene.node():
        await scene.pod("b", "true")
        await scene.ended("b")
        second = await scene.admin.get("pods", scene.namespace, "a")

    assert (scene.workdir / "runs").read_text() == "x\n"
    assert first["status"] == second["status"]


async def test_pod_that_was_deleted_while_no_node_ran_is_ended(scene: Scene) -> None:
    async with scene.node():
        pod = await scene.pod("a", "sleep 1000")
        await scene.running("a")
    await scene.delete("a", grace=0)
    assert scene.processes(pod)
    async with scene.node():
        await scene.forgotten(pod)

        assert scene.processes(pod) == []


async def test_deletion_continues_after_a_restart(scene: Scene) -> None:
    async with scene.node():
        pod = await scene.pod("a", "sleep 1000")
        await scene.running("a")
    await scene.admin.delete("pods", scene.namespace, "a")
    async with scene.node():
        await scene.admin.wait_gone("pods", scene.namespace, "a")

        assert scene.processes(pod) == []


async def test_killed_shim_takes_its_container_along(scene: Scene) -> None:
    async with scene.node():
        pod = await scene.pod("a", "setsid sleep 1000 & touch up; sleep 1000")
        await scene.appears("up")
        await scene.running("a")
        send(shim_of(scene, pod), signal.SIGKILL)
        ended = await scene.ended("a")

        assert (terminated(ended)["exitCode"], terminated(ended)["reason"]) == (137, "Error")
        assert "the shim of this container was killed" in terminated(ended)["message"]
        assert scene.processes(pod) == []


async def test_shim_that_died_without_a_node_is_noticed(scene: Scene) -> None:
    async with scene.node():
        pod = await scene.pod("a", "setsid sleep 1000 & touch up; sleep 1000")
        await scene.appears("up")
        await scene.running("a")
    send(shim_of(scene, pod), signal.SIGKILL)
    async with scene.node():
        ended = await scene.ended("a")

        assert terminated(ended)["exitCode"] == 137
        assert scene.processes(pod) == []


async def test_attempt_that_was_only_prepared_is_started(scene: Scene) -> None:
    async with scene.node():
        pod = await scene.pod("a", "echo x >> runs; sleep 1000")
        await scene.appears("runs")
    await scene.kill(pod)
    folder = scene.folder / "pods" / pod["metadata"]["uid"] / "containers" / "main" / "0"
    (folder / "running.json").unlink()
    async with scene.node():

        async def look() -> None:
            assert (scene.workdir / "runs").read_text() == "x\nx\n"

        await eventually(look)
        assert (await scene.running("a"))["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_killed_node_is_replaced_without_loss_and_without_doubles(scene: Scene) -> None:
    names = [f"p{number}" for number in range(5)]
    with separate_node(scene) as node:
        pods = [await scene.pod(name, f"echo x >> {name}; while [ ! -e go ]; do sleep 0.02; done") for name in names]
        for name in names:
            await scene.running(name)
        node.send_signal(signal.SIGKILL)
        node.wait()
    assert all(scene.processes(pod) for pod in pods)
    with separate_node(scene):
        (scene.workdir / "go").touch()
        ended = [await scene.ended(name) for name in names]

    assert [pod["status"]["phase"] for pod in ended] == ["Succeeded"] * len(names)
    assert [(scene.workdir / name).read_text() for name in names] == ["x\n"] * len(names)


async def test_node_that_stops_leaves_its_pods_running(scene: Scene) -> None:
    with separate_node(scene) as node:
        pod = await scene.pod("a", "sleep 1000")
        await scene.running("a")
        node.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(node.wait, 20) == 0

    assert scene.processes(pod)


async def test_full_disk_is_logged_and_retried(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.local.node.worker.RETRY_SECONDS", 0.1)
    is_full = True

    def write(file: Path, content: bytes) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        write_whole(file, content)

    monkeypatch.setattr("trainmaster.local.node.attempt.write_whole", write)
    async with scene.node():
        await scene.pod("a", "exit 3")
        waiting = await scene.until("a", lambda pod: state_of(pod)["waiting"]["message"])
        is_full = False
        pod = await scene.ended("a")

    assert state_of(waiting)["waiting"]["reason"] == "CreateContainerError"
    assert "No space left on device" in state_of(waiting)["waiting"]["message"]
    assert terminated(pod)["exitCode"] == 3


async def test_node_of_its_own_probes_containers(scene: Scene) -> None:
    probe = {"periodSeconds": 1, "exec": {"command": ["test", "-e", "up"]}}
    with separate_node(scene):
        await scene.pod("a", container("sleep 1000", readinessProbe=probe))
        await scene.running("a")
        (scene.workdir / "up").touch()
        await scene.until("a", lambda pod: pod["status"]["containerStatuses"][0]["ready"])
