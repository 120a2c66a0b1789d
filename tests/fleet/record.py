"""What the API server tells of the fleet, without a gap: every change of jobs, pods, services and Events."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Self

import aiohttp
import msgspec

from testbed.admin import path_of
from testbed.plane import ControlPlane
from tests.fleet.life import Life
from tests.fleet.story import CONTRACTS
from trainmaster.core.view import version_of
from trainmaster.kube.line import LineBuffer

Object = dict[str, Any]

WATCH_SECONDS = 3600


class Record:
    """``lives`` are jobs by namespace and name. ``contracts`` has the name of the contract of each namespace."""

    def __init__(self, plane: ControlPlane, resources: Sequence[str], contracts: Mapping[str, str]) -> None:
        self.lives: dict[tuple[str, str], Life] = {}
        self.changes = 0
        self._plane, self._resources, self._contracts = plane, resources, contracts

    async def __aenter__(self) -> Self:
        tls = ssl.create_default_context(cafile=self._plane.ca_file)
        self._session = aiohttp.ClientSession(
            self._plane.url,
            connector=aiohttp.TCPConnector(ssl=tls),
            headers={"Authorization": f"Bearer {self._plane.admin_token}"},
            timeout=aiohttp.ClientTimeout(),
        )
        opened = {resource: asyncio.Event() for resource in ("pods", "services", "events", *self._resources)}
        self._tasks = [asyncio.ensure_future(self._follow(resource, event)) for resource, event in opened.items()]
        for event in opened.values():
            await event.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _follow(self, resource: str, opened: asyncio.Event) -> None:
        path = path_of(resource)
        async with self._session.get(path, params={"limit": "1"}, raise_for_status=True) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        while True:
            query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
            async with self._session.get(path, params=query, raise_for_status=True) as watch:
                opened.set()
                version = await self._take_all(resource, watch) or version

    async def _take_all(self, resource: str, watch: aiohttp.ClientResponse) -> str:
        buffer, line = LineBuffer(), b""
        async for chunk in watch.content.iter_any():
            for line in buffer.feed(chunk):
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise ConnectionError(f"the watch of {resource} has a gap: {event['object']}")
                self.changes += 1
                self._take(resource, event["type"], event["object"])
        return version_of(line) if line else ""

    def _take(self, resource: str, kind: str, found: Object) -> None:
        namespace = found["metadata"].get("namespace", "")
        if namespace not in self._contracts:
            return
        label = CONTRACTS[self._contracts[namespace]].label
        match resource:
            case "pods" | "services":
                name = found["metadata"].get("labels", {}).get(label, "")
            case "events":
                name = found["involvedObject"]["name"]
            case _:
                name = found["metadata"]["name"]
        life = self.lives.get((namespace, name))
        if life is None:
            return
        match resource:
            case "pods":
                life.see_pod(kind, found)
            case "services":
                (life.services.discard if kind == "DELETED" else life.services.add)(found["metadata"]["name"])
            case "events":
                life.events[found["metadata"]["uid"]] = (found["type"], found["reason"], found.get("count", 1))
            case life.resource:  # DIJobs are served, and watched, in two versions
                life.see_job(kind, found)
