"""An Auto job with a real scheduler: it starts with what has room, grows when nodes come, and shrinks when they go."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.operator import install
from testbed.plane import ControlPlane
from tests.integration.scene import Job, Scene
from tests.manifests.build import aitrainingjob, replica


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """With a scheduler, and with kubelets for as many nodes as a test adds."""
    with ControlPlane(binaries=binaries) as plane:
        install(plane)
        plane.start_scheduler()
        plane.start_kwok()
        yield plane


async def runs_with(job: Job, count: int, says: str) -> None:
    await job.until(lambda: job.status.get("replicaStatuses", {}).get("worker", {}).get("active") == count, says)
    await job.until(lambda: job.status["conditions"][-1]["message"] == says, says)


@pytest.mark.usefixtures("operator")
async def test_a_job_is_as_large_as_there_is_room(plane: ControlPlane, scene: Scene) -> None:
    async def room(prefix: str) -> None:
        """A node for two pods."""
        await asyncio.to_thread(plane.add_nodes, 1, pods=2, prefix=prefix)

    await room("first")
    worker = replica(edlPolicy="Auto", minReplicas=2, replicas=2, maxReplicas=4, restartLimit=0)
    job = await scene.create(aitrainingjob("job", replicaSpecs={"worker": worker}))
    await runs_with(job, 2, "running with 2 of 4 worker pods")

    await room("second")
    await runs_with(job, 4, "all pods are running")

    await scene.admin.delete("nodes", None, "first-0")
    await runs_with(job, 2, "running with 2 of 4 worker pods")
    assert [entry["node"] for entry in job.status["restartHistory"]] == ["first-0", "first-0"]

    await room("third")
    await runs_with(job, 4, "all pods are running")
    assert {pod["spec"]["nodeName"] for pod in job.children("pods").values()} == {"second-0", "third-0"}
    assert job.phases[job.phases.index("Running") :] == ["Running"]
    assert job.status["restarts"]["worker"].get("used", 0) == 0
