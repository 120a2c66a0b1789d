"""What the API server really holds, watched past every fault, and every incarnation that there ever was."""

import asyncio
import json
import ssl
from collections.abc import Callable
from typing import Any, Self, TypeVar

import aiohttp

from testbed.admin import path_of
from testbed.plane import ControlPlane

Object = dict[str, Any]
T = TypeVar("T")

DIJOBS = "diengine.opendilab.org/v1alpha1/dijobs"
DITASKS = "diengine.opendilab.org/v2alpha1/dijobs"
"""The same objects, in the other version."""
AITRAININGJOBS = "elasticdeeplearning.ai/v1/aitrainingjobs"
NERVEXJOBS = "nervex.sensetime.com/v1alpha1/nervexjobs"
MXJOBS = "kubeflow.org/v1/mxjobs"
MLKUBE_JOBS = "mxnet.mlkube.io/v1beta1/mxjobs"
FIRST_MLKUBE_JOBS = "mlkube.io/v1beta1/mxjobs"
BATCH_JOBS = "batch/v1/jobs"
WATCHED = (
    "pods",
    "services",
    BATCH_JOBS,
    DIJOBS,
    DITASKS,
    AITRAININGJOBS,
    NERVEXJOBS,
    MXJOBS,
    MLKUBE_JOBS,
    FIRST_MLKUBE_JOBS,
)

PATIENCE = 150.0
"""Seconds until a wait is given up: no test passes faster by a small number here, and some machines are slow."""
PAUSE = 0.2


class World:
    """One watch of each resource, of all namespaces; `until` waits for the events of one namespace.

    Asking the server again and again for hundreds of jobs would cost more than the operator under test.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._url = plane.url
        self._headers = {"Authorization": f"Bearer {plane.admin_token}"}
        self._tls = ssl.create_default_context(cafile=plane.ca_file)
        self._objects: dict[str, dict[str, dict[str, Object]]] = {resource: {} for resource in WATCHED}
        """By resource, namespace and name: who asks, asks for one namespace, at every event."""
        self._uids: dict[tuple[str, str], dict[str, set[str]]] = {}
        self._statuses: dict[tuple[str, str, str], list[Object]] = {}
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._synced = {resource: asyncio.Event() for resource in WATCHED}

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        self._session = aiohttp.ClientSession(
            self._url, headers=self._headers, connector=connector, timeout=aiohttp.ClientTimeout(), read_bufsize=2**22
        )
        self._tasks = [asyncio.ensure_future(self._follow(resource)) for resource in WATCHED]
        for synced in self._synced.values():
            await synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    def find(self, resource: str, namespace: str, name: str) -> Object:
        """The object, or an empty one."""
        return self._objects[resource].get(namespace, {}).get(name, {})

    def all(self, resource: str, namespace: str) -> dict[str, Object]:
        """The objects of a namespace by name."""
        return dict(self._objects[resource].get(namespace, {}))

    def incarnations(self, resource: str, namespace: str) -> dict[str, int]:
        """How many objects there have been, by name."""
        return {name: len(uids) for name, uids in sorted(self._uids.get((resource, namespace), {}).items())}

    def statuses(self, resource: str, namespace: str, name: str) -> list[Object]:
        """Every status that an object has had, in order."""
        return self._statuses.get((resource, namespace, name), [])

    async def until(self, namespace: str, is_met: Callable[[], T], what: str, *, timeout: float = PATIENCE) -> T:
        """Wait until something is true of a namespace, and answer it; fails with how it is when time is up."""
        changed = asyncio.Event()
        waiters = self._waiters.setdefault(namespace, set())
        waiters.add(changed)
        try:
            async with asyncio.timeout(timeout):
                while not (met := is_met()):
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise AssertionError(f"{what}: not so after {timeout:.0f} s; {self.describe(namespace)}") from None
        else:
            return met
        finally:
            waiters.discard(changed)

    def describe(self, namespace: str) -> str:
        """A namespace in a few lines, for the message of a failure."""
        lines = [f"namespace {namespace} holds"]
        for resource in WATCHED:
            for name, found in self.all(resource, namespace).items():
                status = json.dumps(found.get("status", {}))
                deleting = " (being deleted)" if is_deleting(found) else ""
                lines.append(f"  {resource} {name}{deleting} {status[:600]}")
        return "\n".join(lines)

    async def _follow(self, resource: str) -> None:
        while True:
            try:
                version = await self._list(resource)
                self._synced[resource].set()
                await self._watch(resource, version)
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(PAUSE)

    async def _list(self, resource: str) -> str:
        async with self._session.get(path_of(resource), raise_for_status=True) as response:
            found = await response.json()
        listed = {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in found["items"]}
        known = [(where, name) for where, objects in self._objects[resource].items() for name in objects]
        for where, name in known:
            if (where, name) not in listed:
                self._take(resource, "DELETED", self._objects[resource][where][name])
        for item in listed.values():
            self._take(resource, "ADDED", item)
        version: str = found["metadata"]["resourceVersion"]
        return version

    async def _watch(self, resource: str, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version}
        async with self._session.get(path_of(resource), params=query, raise_for_status=True) as response:
            try:
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    self.hear(resource, event["type"], event["object"])
            finally:
                # Closing would say goodbye in TLS, for which the event loop may not live long enough.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()

    def hear(self, resource: str, kind: str, found: Object) -> None:
        """A watch tells something."""
        self._take(resource, kind, found)

    def _take(self, resource: str, kind: str, found: Object) -> None:
        meta = found["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        self._uids.setdefault((resource, namespace), {}).setdefault(name, set()).add(meta["uid"])
        self._statuses.setdefault((resource, namespace, name), []).append(found.get("status", {}))
        if kind == "DELETED":
            self._objects[resource].get(namespace, {}).pop(name, None)
        else:
            self._objects[resource].setdefault(namespace, {})[name] = found
        for waiter in self._waiters.get(namespace, ()):
            waiter.set()


def is_deleting(found: Object) -> bool:
    return "deletionTimestamp" in found.get("metadata", {})
