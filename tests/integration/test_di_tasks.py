"""di-server's v2alpha1 and an operator on a real API server: tasks are scaled, and the last change of the spec wins."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from testbed.admin import eventually
from testbed.plane import ControlPlane
from testbed.server import ServerProcess
from tests.faults.world import Object
from tests.integration.crew import next_address
from tests.integration.scene import Job, Scene
from tests.manifests.build import ditask, task


@pytest.fixture(scope="module")
def servers(plane: ControlPlane) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    with ServerProcess(plane) as first, ServerProcess(plane) as second:
        yield first, second
        for server in (first, second):
            assert server.is_running()
            assert "defect in trainmaster" not in server.log
            assert "Traceback" not in server.log


class Mesh:
    """A job with tasks, called by one of its pods."""

    def __init__(self, job: Job, session: aiohttp.ClientSession, ip: str) -> None:
        self.job = job
        self.ip = ip
        self._session = session

    async def call(self, server: ServerProcess, method: str, what: str, body: Any = None) -> tuple[int, Object]:
        path = f"{server.url}/v2alpha1/job/{self.job.scene.namespace}.{self.job.name}/{what}"
        async with self._session.request(method, path, json=body) as response:
            return response.status, await response.json()

    async def scale(self, server: ServerProcess, method: str, replicas: int) -> None:
        status, said = await self.call(server, method, "replicas", {"replicas": replicas})
        assert (status, said["success"]) == (200, True), said

    async def has(self, *places: str) -> None:
        """It has these pods and no others."""
        wanted = {f"{self.job.name}-{place}" for place in places}
        await self.job.until(lambda: set(self.job.children("pods")) == wanted, f"it has {places}")


@asynccontextmanager
async def mesh(scene: Scene, *tasks: Any) -> AsyncIterator[Mesh]:
    given = tasks or (task("learner"), task("collector", replicas=2, maxReplicas=6))
    job, ip = await scene.create(ditask("mesh", *given)), next_address()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(ip, 0))) as session:
        found = Mesh(job, session, ip)
        await found.has("learner-0", "collector-0", "collector-1")
        await scene.admin.set_pod(scene.namespace, "mesh-learner-0", phase="Running", ip=ip)
        yield found


@pytest.mark.usefixtures("operator")
async def test_a_task_is_scaled_through_any_server(scene: Scene, servers: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = servers
    async with mesh(scene) as each, scene.kubelet():
        await each.scale(first, "POST", 2)
        await each.has("learner-0", *(f"collector-{n}" for n in range(4)))
        await each.scale(second, "DELETE", 3)
        await each.has("learner-0", "collector-0")
        status, said = await each.call(first, "POST", "replicas", {"replicas": 6})

        assert (status, "maxReplicas is 6" in said["message"]) == (400, True)
        assert each.job.status["requestedReplicas"] == {"collector": {"replicas": 1, "specReplicas": 2}}


@pytest.mark.usefixtures("operator")
async def test_the_last_change_of_the_spec_replaces_a_request(
    scene: Scene, servers: tuple[ServerProcess, ServerProcess]
) -> None:
    async with mesh(scene) as each, scene.kubelet():
        await each.scale(servers[0], "POST", 3)
        await each.has("learner-0", *(f"collector-{n}" for n in range(5)))
        await each.job.edit({"tasks": [task("learner"), task("collector", replicas=3, maxReplicas=6)]})

        await each.has("learner-0", *(f"collector-{n}" for n in range(3)))
        await each.job.until(lambda: "requestedReplicas" not in each.job.status, "the request is dropped")


@pytest.mark.usefixtures("operator")
async def test_addresses_come_by_rank_as_kubelets_report_them(
    scene: Scene, servers: tuple[ServerProcess, ServerProcess]
) -> None:
    async with mesh(scene) as each:
        ip = next_address()
        await scene.admin.set_pod(scene.namespace, "mesh-collector-1", phase="Running", ip=ip)

        async def both_say_so() -> None:
            for server in servers:
                _, said = await each.call(server, "GET", "replicas")
                assert said["data"] == [f"{each.ip}:22270", "", f"{ip}:22270"]

        await eventually(both_say_so)


@pytest.mark.usefixtures("operator")
async def test_a_report_is_stored_whole_and_replaces_the_one_before(
    scene: Scene, servers: tuple[ServerProcess, ServerProcess]
) -> None:
    reports: list[Object] = [
        {"fps": 12.5, "nested": {"list": [1, {"deep": [True, "x"]}], "old": 1}, "old": "x"},
        {"fps": 13, "nested": {"list": []}},
    ]
    async with mesh(scene) as each:
        for server, report in zip(servers, reports, strict=True):
            status, said = await each.call(server, "POST", "profilings", report)
            assert (status, said["message"]) == (200, "successfully report profilings")
            await each.job.until(
                lambda report=report: each.job.status.get("profilings") == report,  # type: ignore[misc]
                "it is stored",
            )
        await each.scale(servers[0], "POST", 1)
        await each.has("learner-0", *(f"collector-{n}" for n in range(3)))
        assert each.job.status["profilings"] == reports[1]  # the operator leaves it alone
