"""The Python API against a real API server, with an operator and a node whose pods are processes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from testbed.plane import ControlPlane
from tests.integration.conftest import TENANT
from tests.integration.scene import Scene
from tests.integration.test_commands import job_on, kubelet_client, machine, plane
from tests.integration.test_example import in_namespace
from tests.local.node.life import Scene as NodeScene
from tests.manifests.build import aitrainingjob
from trainmaster import ApiError, AsyncClient, BadConfig, Client, Job, JobFailed, JobNotFound, Refused, TimedOut

__all__ = ["kubelet_client", "machine", "plane"]

pytestmark = pytest.mark.usefixtures("operator")

SECONDS = 60.0


@pytest.fixture
def kubeconfig(plane: ControlPlane, namespace: str, tmp_path: Path) -> Path:
    return in_namespace(plane, namespace, tmp_path)


async def test_a_job_is_submitted_followed_and_explained(machine: NodeScene, kubeconfig: Path) -> None:
    async with machine.node(), AsyncClient(kubeconfig=kubeconfig) as client:
        good = await client.submit(job_on(machine.name, "good", "echo hello", 2, cleanPodPolicy="None"))
        lines = [str(line) async for line in good.logs(follow=True)]
        status = await good.wait(timeout=SECONDS)
        bad = await client.submit(job_on(machine.name, "bad", "echo boom; exit 139", cleanPodPolicy="None"))
        with pytest.raises(JobFailed) as caught:
            await bad.wait(timeout=SECONDS)

    assert sorted(lines) == ["worker-0 | hello", "worker-1 | hello"]
    assert (status.phase, status.namespace) == ("Succeed", machine.namespace)
    assert f"worker-0 (pod bad-worker-0, node {machine.name}) was killed by SIGSEGV (139)" in caught.value.story
    assert "its last line was: boom\n" in caught.value.story


async def test_a_job_is_changed_and_deleted(scene: Scene, kubeconfig: Path) -> None:
    job = await scene.create(aitrainingjob("change"))
    await job.pods_are_there()
    async with AsyncClient(kubeconfig=kubeconfig, namespace=scene.namespace) as client:
        (found,) = await client.jobs()
        await found.scale(2)
        await job.until(lambda: len(job.children("pods")) == 2, "two pods")
        with pytest.raises(TimedOut):
            await found.wait(timeout=0.5)
        async with scene.kubelet():
            await found.suspend()
            await job.until(lambda: not job.children("pods"), "no pods")
            await found.resume()
            await job.until(lambda: len(job.children("pods")) == 2, "two pods again")
        waiting = asyncio.create_task(found.wait(timeout=SECONDS))
        await found.delete()
        with pytest.raises(JobNotFound):
            await waiting


async def test_the_api_server_says_what_is_wrong(scene: Scene, kubeconfig: Path) -> None:
    wrong: dict[str, Any] = aitrainingjob("wrong")
    wrong["spec"]["replicaSpecs"]["trainer"] |= {"replicas": -1, "restartPolicy": "Sometimes"}
    async with AsyncClient(kubeconfig=kubeconfig) as client:
        with pytest.raises(Refused) as caught:
            await client.submit(wrong)
        await client.submit(Job("twice", command=["true"]))
        with pytest.raises(Refused, match=r"Job\('twice'\): aitrainingjob/twice exists in namespace "):
            await client.submit(Job("twice", command=["true"]))

    assert "spec.replicaSpecs.trainer.replicas" in str(caught.value)
    assert "spec.replicaSpecs.trainer.restartPolicy" in str(caught.value)


def test_a_user_without_rights_is_told_so(plane: ControlPlane) -> None:
    with Client(kubeconfig=plane.kubeconfig(TENANT)) as client, pytest.raises(ApiError, match="forbidden"):
        client.jobs()


def test_a_context_that_does_not_exist_is_an_error(kubeconfig: Path) -> None:
    with (
        pytest.raises(BadConfig, match="context 'lab' does not exist; choose another one"),
        Client(kubeconfig=kubeconfig, context="lab"),
    ):
        pass
