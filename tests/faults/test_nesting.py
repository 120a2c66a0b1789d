"""Jobs that are nested as deeply as a real API server allows: operator and di-server go on, also after a restart."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from testbed.admin import Admin, eventually, path_of
from testbed.operator import OperatorProcess, install
from testbed.plane import ControlPlane
from testbed.server import ServerProcess
from tests.faults.world import PATIENCE
from tests.manifests.build import TRAINER, Manifest, aitrainingjob, container, dijob, resource_of, template
from tests.odd import MARK, deep, with_value

SPACE = "default"


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """A plane of its own: the watches of other tests cannot read these jobs."""
    with ControlPlane(binaries=binaries) as plane:
        install(plane)
        yield plane


class User:
    """Speaks bytes with the API server and with di-server: Python cannot decode these jobs."""

    def __init__(self, plane: ControlPlane, session: aiohttp.ClientSession) -> None:
        self._plane = plane
        self._session = session

    async def store(self, manifest: Manifest, levels: int) -> None:
        body = with_value(manifest, deep(levels))
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._url(manifest), data=body, headers=headers) as response:
            assert response.status == 201, await response.text()

    async def has_condition(self, manifest: Manifest) -> None:
        async with self._session.get(self._url(manifest, manifest["metadata"]["name"])) as response:
            stored = await response.read()
        assert b'"reason":"InvalidSpec"' in stored

    async def ask_for_collectors(self, server: ServerProcess, job: str, number: int) -> None:
        body = {"namespace": SPACE, "coordinator": f"{job}-coordinator", "collectors": {"replicas": number}}
        async with self._session.post(f"{server.url}/v1alpha1/replicas", json=body) as response:
            assert response.status == 200, await response.text()

    def _url(self, manifest: Manifest, name: str = "") -> str:
        return self._plane.url + path_of(resource_of(manifest), SPACE, name)


@pytest.fixture
async def user(plane: ControlPlane) -> AsyncIterator[User]:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=plane.ca_file), force_close=True)
    headers = {"Authorization": f"Bearer {plane.token('admin')}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield User(plane, session)
    await asyncio.sleep(0)  # aiohttp cannot be asked when its TLS connections are gone


DEEP = (
    aitrainingjob("deep-ai", replicaSpecs={"trainer": {"template": template(container(TRAINER), x=MARK)}}),
    dijob("deep-di", coordinator={"template": template(x=MARK)}),
)


async def test_jobs_that_are_nested_too_deeply_are_told_so_and_the_others_are_driven_also_after_a_restart(
    plane: ControlPlane, admin: Admin, user: User
) -> None:
    async with OperatorProcess(plane) as operator, ServerProcess(plane) as server:
        for levels in (1500, 9000):
            for manifest in DEEP:
                named = manifest | {"metadata": {"name": f"{manifest['metadata']['name']}-{levels}"}}
                await user.store(named, levels)
                await eventually(partial(user.has_condition, named), timeout=PATIENCE)
        await drive(admin, user, server, "before")

        await asyncio.to_thread(operator.come_again)
        await asyncio.to_thread(server.come_again)
        await drive(admin, user, server, "after")

        for process in (operator, server):
            assert process.is_running()
            assert "Traceback" not in process.log
            assert "defect in trainmaster" not in process.log


async def drive(admin: Admin, user: User, server: ServerProcess, name: str) -> None:
    """A new AITrainingJob gets its pod, a new DIJob its coordinator and the collectors that it asks for."""
    good = [aitrainingjob(f"{name}-ai"), dijob(f"{name}-di", collector={"template": template()})]
    for manifest in good:
        await admin.create(resource_of(manifest), manifest, SPACE)
    for pod in (f"{name}-ai-trainer-0", f"{name}-di-coordinator"):
        await admin.wait_for("pods", SPACE, pod, lambda pod: pod, timeout=PATIENCE)
    await admin.set_pod(SPACE, f"{name}-di-coordinator", phase="Running", containers=[None])
    await eventually(lambda: user.ask_for_collectors(server, f"{name}-di", 2), timeout=PATIENCE)

    async def are_there() -> None:
        pods = [pod["metadata"]["name"] for pod in await admin.list("pods", SPACE)]
        assert sum(pod.startswith(f"{name}-di-collector-") for pod in pods) >= 2

    await eventually(are_there, timeout=PATIENCE)
