"""The commands for people against a real API server, with an operator and a node whose pods are processes."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.admin import Admin
from testbed.certificate import Authority
from testbed.operator import install
from testbed.plane import ControlPlane, User
from tests.integration.conftest import TENANT
from tests.integration.scene import Scene, give_node
from tests.integration.test_example import in_namespace
from tests.local.node.life import Scene as NodeScene
from tests.local.program import PROGRAM
from tests.manifests.build import Manifest, aitrainingjob, container, ditask, replica
from trainmaster.settings import NODE

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(scope="module")
def kubelet_client(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("kubelet-client"))


@pytest.fixture(scope="module")
def plane(binaries: Path, kubelet_client: Authority) -> Iterator[ControlPlane]:
    """A control plane whose API server shows nodes a certificate, so that they serve logs."""
    pair = kubelet_client.client(NODE.client_name, "system:masters")
    arguments = (f"--kubelet-client-certificate={pair.certificate}", f"--kubelet-client-key={pair.key}")
    with ControlPlane(binaries=binaries, apiserver_arguments=arguments, users={TENANT: User(TENANT)}) as plane:
        install(plane)
        give_node(plane)
        yield plane


@pytest.fixture
def machine(
    plane: ControlPlane, admin: Admin, namespace: str, tmp_path: Path, kubelet_client: Authority
) -> Iterator[NodeScene]:
    """A node of the cluster on this machine."""
    pair = Authority(tmp_path).server()
    scene = NodeScene(plane, admin, namespace, tmp_path, pair, client_ca=kubelet_client.ca_file)
    yield scene
    scene.sweep()


class Typed:
    """``trainmaster COMMAND`` by a user of the cluster."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._kubeconfig, self._folder = kubeconfig, folder

    async def start(self, *args: str, program: Sequence[str] = ()) -> asyncio.subprocess.Process:
        """``program`` stands after the options."""
        return await asyncio.create_subprocess_exec(
            *PROGRAM,
            *args,
            "--kubeconfig",
            str(self._kubeconfig),
            *(["--", *program] if program else []),
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *args: str, program: Sequence[str] = ()) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        process = await self.start(*args, program=program)
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def out(self, *args: str) -> str:
        code, out, err = await self(*args)
        assert (code, err) == (0, ""), (out, err)
        return out


@pytest.fixture
def typed(plane: ControlPlane, namespace: str, tmp_path: Path) -> Typed:
    return Typed(in_namespace(plane, namespace, tmp_path), tmp_path)


def job_on(node: str, name: str, command: str, replicas: int = 1, **spec: Any) -> Manifest:
    worker = replica(container("aitj-main", command=["sh", "-c", command]), replicas=replicas)
    worker["template"]["spec"]["nodeName"] = node
    return aitrainingjob(name, replicaSpecs={"worker": worker}, **spec)


async def test_logs_are_followed_from_before_the_job_has_pods_to_its_end(
    scene: Scene, machine: NodeScene, typed: Typed, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    counts = f"echo 1; until [ -e {seen} ]; do sleep 0.1; done; echo 2"
    job = await scene.create(job_on(machine.name, "count", counts, 2, suspend=True))
    following = await typed.start("logs", "count", "--follow")
    assert following.stdout is not None
    async with machine.node():
        await job.edit({"suspend": False})
        out = [await following.stdout.readline() for _ in range(2)]
        seen.touch()
        out += (await following.stdout.read()).splitlines()
        assert await following.wait() == 0

    assert sorted(line.decode().strip() for line in out) == [
        "worker-0 | 1",
        "worker-0 | 2",
        "worker-1 | 1",
        "worker-1 | 2",
    ]


async def test_logs_that_were_deleted_with_their_pods_cannot_be_followed(
    scene: Scene, machine: NodeScene, typed: Typed
) -> None:
    job = await scene.create(job_on(machine.name, "short", "echo 1"))
    async with machine.node():
        await job.reach("Succeed")
        code, out, err = await typed("logs", "short", "--follow")

    assert (code, out) == (1, "")
    assert "aitrainingjob/short has no pod that has started, or they are deleted, and so no logs" in err


async def test_why_reads_the_output_of_the_failed_pod(scene: Scene, machine: NodeScene, typed: Typed) -> None:
    job = await scene.create(job_on(machine.name, "crash", "echo boom; exit 139", cleanPodPolicy="None"))
    async with machine.node():
        await job.reach("Failed")
        lines = (await typed.out("why", "crash")).splitlines()
        logs = await typed.out("logs", "crash")

    assert f"worker-0 (pod crash-worker-0, node {machine.name}) was killed by SIGSEGV (139); " in lines[0]
    assert lines[0].endswith("; its last line was: boom")
    assert lines[-1].startswith("type: trainmaster logs aitrainingjob/crash --role worker --all --kubeconfig ")
    assert logs == "worker-0 | boom\n"


async def test_why_says_the_same_when_the_pods_are_deleted(scene: Scene, machine: NodeScene, typed: Typed) -> None:
    """The kubelet copies the output of a container into the status of its pod, the operator into that of the job."""
    program = "echo step 1; printf boom; kill -SEGV $$$$"
    jobs = [
        await scene.create(job_on(machine.name, f"{p.lower()}-crash", program, cleanPodPolicy=p))
        for p in ("None", "All")
    ]
    async with machine.node():
        for job in jobs:
            await job.reach("Failed")
        await scene.catch_up()
        kept, deleted = [(await typed.out("why", job.name)).splitlines() for job in jobs]

    assert not jobs[1].children("pods")
    how = f"worker-0 (pod all-crash-worker-0, node {machine.name}) was killed by SIGSEGV (139)"
    assert f"ago: {how}; " in deleted[0]
    assert deleted[0].endswith("; its last line was: boom")
    assert deleted[1] == kept[1] == "  | step 1"
    finished = next(c for c in jobs[1].status["conditions"] if c["type"] == "Finished")
    assert finished["message"].startswith(how)
    assert deleted[0].endswith(finished["message"])


async def test_list_and_why_say_what_a_job_waits_for(scene: Scene, typed: Typed) -> None:
    job = await scene.create(aitrainingjob("waits"))
    await job.pods_are_there()
    rows = json.loads(await typed.out("list", "--namespace", scene.namespace, "--format", "json"))
    status = json.loads(await typed.out("status", f"{scene.namespace}/waits", "--format", "json"))

    assert [(row["kind"], row["name"], row["ready"], row["total"]) for row in rows] == [
        ("aitrainingjob", "waits", 0, 1)
    ]
    assert [replica["state"] for replica in status["replicas"]] == ["Starting"]
    assert "aitrainingjob/waits is " in await typed.out("why", "waits")


async def test_a_job_is_scaled_suspended_and_deleted(scene: Scene, typed: Typed) -> None:
    job = await scene.create(aitrainingjob("change"))
    await job.pods_are_there()
    await typed.out("scale", "change", "2")
    await job.until(lambda: len(job.children("pods")) == 2, "two pods")
    await typed.out("suspend", "change")
    async with scene.kubelet():
        await job.until(lambda: not job.children("pods"), "no pods")
        await typed.out("resume", "change")
        await job.until(lambda: len(job.children("pods")) == 2, "two pods again")
        await typed.out("delete", "change", "--no-wait")
    code, _, err = await typed("status", "change")

    assert code == 1
    assert err.startswith("trainmaster: there is no job change in the cluster of ")


async def test_the_tasks_of_a_dijob_are_scaled(scene: Scene, typed: Typed) -> None:
    job = await scene.create(ditask("tasks"))
    await job.pods_are_there()
    rows = json.loads(await typed.out("list", "--namespace", scene.namespace, "--format", "json"))
    await typed.out("scale", "tasks", "2")
    await typed.out("scale", "tasks", "3", "--role", "learner")
    await job.until(lambda: len(job.children("pods")) == 5, "five pods")
    names = sorted(job.children("pods"))
    code, _, err = await typed("scale", "tasks", "0")

    assert [(row["kind"], row["name"], row["ready"], row["total"]) for row in rows] == [("dijob", "tasks", 0, 2)]
    assert names == [*(f"tasks-collector-{i}" for i in range(2)), *(f"tasks-learner-{i}" for i in range(3))]
    assert code == 1
    assert "spec.replicas" in err


async def test_a_user_without_rights_is_told_so(plane: ControlPlane, scene: Scene, tmp_path: Path) -> None:
    stranger = Typed(Path(plane.kubeconfig(TENANT)), tmp_path)
    code, out, err = await stranger("list")

    assert (code, out) == (1, "")
    assert "forbidden" in err
    assert err.count("\n") == 1


async def test_a_program_runs_on_a_cluster_with_its_output_and_its_exit_code(machine: NodeScene, typed: Typed) -> None:
    node = ["--set", f"spec.replicaSpecs.worker.template.spec.nodeName={machine.name}"]
    async with machine.node():
        good = await typed("run", "--replicas", "2", "--name", "good", *node, program=["sh", "-c", "echo hello"])
        bad = await typed("run", "--name", "bad", *node, program=["sh", "-c", "echo oh; exit 3"])
        again = await typed("run", "--name", "bad", *node, program=["sh"])

    assert (good[0], good[2]) == (0, "")
    assert {"worker-0 | hello", "worker-1 | hello"} <= set(good[1].splitlines())
    assert "aitrainingjob/good Succeed: " in good[1]
    assert bad[0] == 1
    assert "worker-0 | oh\n" in bad[1]
    assert "aitrainingjob/bad Failed: " in bad[1]
    assert again[0] == 2
    assert "trainmaster: the command line: aitrainingjob/bad exists in namespace " in again[2]


async def test_a_time_limit_leaves_the_job_on_the_cluster(scene: Scene, typed: Typed) -> None:
    code, out, _ = await typed("run", "--name", "waits", "--timeout", "3s", program=["sh"])
    rows = json.loads(await typed.out("list", "--namespace", scene.namespace, "--format", "json"))

    assert code == 124
    assert "not ended in the cluster of " in out
    assert "aitrainingjob/waits; follow with `trainmaster logs aitrainingjob/waits --kubeconfig " in out
    assert [row["name"] for row in rows] == ["waits"]
