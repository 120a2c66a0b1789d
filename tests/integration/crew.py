"""Jobs with coordinators that call di-server from addresses of their own, and what must be true of them in the end."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.diserver.client import Client
from tests.faults.world import Object, is_deleting
from tests.integration.scene import Job, Scene
from tests.manifests.build import Manifest, container, dijob, template

_addresses = (f"127.1.{high}.{low}" for high, low in itertools.product(range(1, 250), range(1, 250)))


def next_address() -> str:
    """Of this machine, and of no other pod."""
    return next(_addresses)


class Balanced(Client):
    """Its connections go to several servers in turn, as a Service sends them."""

    def __init__(self, *args: Any, urls: Sequence[str], **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._urls = itertools.cycle(urls)

    def address(self) -> str:
        return next(self._urls)


class Team:
    """A job, and the client that its coordinator is."""

    def __init__(self, job: Job, urls: Sequence[str]) -> None:
        self.job = job
        self.scene = job.scene
        self.urls = urls
        self.coordinator = f"{job.name}-coordinator"
        self._sessions: list[aiohttp.ClientSession] = []

    async def appear(self) -> Client:
        """Its coordinator has a pod, which runs at once and calls: before anybody knows its address."""
        await self.scene.until(lambda: self._living(), f"{self.coordinator} is there")
        ip = next_address()
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(ip, 0)))
        self._sessions.append(session)
        client = Balanced(session, "", self.scene.namespace, self.coordinator, pause=1.0, urls=self.urls)
        self._reporting = asyncio.ensure_future(self.run(self.coordinator, ip=ip))
        return client

    async def run(self, pod: str, *, ip: str | None = None) -> None:
        """A pod runs, says its kubelet."""
        await self.scene.admin.set_pod(self.scene.namespace, pod, phase="Running", ip=ip or next_address())

    @property
    def declared(self) -> set[str]:
        return set(self.job.status.get("declared", {}).get("members", {}))

    async def complete(self, number: int) -> None:
        """So many replicas are declared, and its pods and services are theirs and those of the spec: none left over."""

        def is_complete() -> bool:
            wanted = {*self.job.slots, *self.declared}
            pods = {name for name, pod in self.job.children("pods").items() if not is_deleting(pod)}
            return len(self.declared) == number and pods == wanted == set(self.job.children("services"))

        await self.job.until(is_complete, f"it has exactly the {number} that are declared")

    async def close(self) -> None:
        await self._reporting
        for session in self._sessions:
            await session.close()

    def _living(self) -> Object | None:
        pod = self.job.children("pods").get(self.coordinator)
        return pod if pod is not None and not is_deleting(pod) else None


@asynccontextmanager
async def team(scene: Scene, job: str | Manifest, urls: Sequence[str], **spec: Any) -> AsyncIterator[Team]:
    """Of a DIJob of this name, or of another job."""
    found = Team(await scene.create(manifest(job, **spec) if isinstance(job, str) else job), urls)
    try:
        yield found
    finally:
        await found.close()


def manifest(name: str, **spec: Any) -> Manifest:
    return dijob(name, **{"collector": {"template": template()}, "learner": {"template": template()}, **spec})


def roles(*names: str) -> Manifest:
    """Templates of a NerveXJob, whose containers are called as their roles."""
    return {name: {"template": template(container(name))} for name in names}


def names(client: Client, found: Object | None) -> set[str]:
    """The pods of an answer."""
    assert found is not None
    return {client.pod_of(url) for url in (*found["collectors"], *found["learners"])}
