"""A client for tests, and nothing of trainmaster in it: the user who writes objects, the kubelet who reports pods.

    async with Admin.of(plane) as admin:
        await admin.create("pods", body, "default")
        await admin.set_pod("default", "worker-0", phase="Failed", containers=[137])
        await admin.wait_for("pods", "default", "worker-0", lambda pod: pod["status"]["phase"] == "Failed")

A resource is named as in its path: `pods`, `apps/v1/deployments`, `diengine.opendilab.org/v2alpha1/dijobs`.
What is not namespaced takes None for the namespace.
"""

import asyncio
import datetime
import json
import ssl
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import aiohttp
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from testbed.answer import WARM_UP_PAUSE, WARM_UP_TRIES, Object, Refused, answer_of

if TYPE_CHECKING:
    from testbed.plane import ControlPlane

MERGE = "application/merge-patch+json"
TIMEOUT = 15.0
POLL = 0.03

# How a container is: its exit code, or why it waits, or None when it runs.
Container = int | str | None

# The methods of Admin hide the builtin behind their own `list`.
Objects = list[Object]

T = TypeVar("T")


def path_of(resource: str, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
    """Where a resource is on the API server."""
    *group, plural = resource.split("/")
    parts = ["apis", *group] if len(group) == 2 else ["api", *(group or ["v1"])]
    if namespace is not None:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, subresource) if part]
    return "/" + "/".join(parts)


async def eventually(probe: Callable[[], Awaitable[T]], *, timeout: float = TIMEOUT) -> T:
    """Call until it raises no AssertionError; the last one is raised when time is up."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return await probe()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(POLL)


class _Connector(aiohttp.TCPConnector):
    """Remembers its connections, also those that it closed. A server that refuses in the middle of a body says no
    farewell, and over TLS a close waits for one: longer than the test's event loop is there."""

    def __init__(self, *, ssl: ssl.SSLContext | bool, limit: int) -> None:
        super().__init__(ssl=ssl, limit=limit)
        self._used = weakref.WeakSet[asyncio.Transport]()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:
            self._used.add(connection.transport)
        return connection

    def abort(self) -> None:
        for transport in self._used:
            transport.abort()


class Admin:
    """Speaks plain dicts with an API server, with one bearer token."""

    def __init__(self, url: str, token: str, ca_file: Path | None = None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=ca_file) if ca_file else None

    @classmethod
    def of(cls, plane: "ControlPlane", user: str = "admin") -> Self:
        """A client of this plane, as one of its users."""
        return cls(plane.url, plane.token(user), plane.ca_file)

    async def __aenter__(self) -> Self:
        self._connector = _Connector(ssl=self._tls or True, limit=32)
        self._session = aiohttp.ClientSession(self._url, headers=self._headers, connector=self._connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        self._connector.abort()

    # -- objects -------------------------------------------------------------------------------------------

    async def create(self, resource: str, body: Object, namespace: str | None = None) -> Object:
        """Create and answer what was stored; the namespace may also be in the body."""
        where = namespace or body.get("metadata", {}).get("namespace")
        return await self.request("POST", path_of(resource, where), body)

    async def get(self, resource: str, namespace: str | None, name: str) -> Object:
        """One object; raises Refused with code 404 when it is not there."""
        return await self.request("GET", path_of(resource, namespace, name))

    async def find(self, resource: str, namespace: str | None, name: str) -> Object | None:
        """One object, or None."""
        try:
            return await self.get(resource, namespace, name)
        except Refused as refused:
            if refused.code == 404:
                return None
            raise

    async def list(self, resource: str, namespace: str | None = None, *, labels: str = "", fields: str = "") -> Objects:
        """The items that match; without a namespace those of all namespaces."""
        wanted = {"labelSelector": labels, "fieldSelector": fields}
        query = {key: value for key, value in wanted.items() if value}
        found = await self.request("GET", path_of(resource, namespace), query=query)
        items: Objects = found["items"]
        return items

    async def replace(self, resource: str, body: Object, *, subresource: str = "") -> Object:
        """Write a whole object back: a 409 when somebody was faster."""
        meta = body["metadata"]
        path = path_of(resource, meta.get("namespace"), meta["name"], subresource)
        return await self.request("PUT", path, body)

    async def patch(
        self, resource: str, namespace: str | None, name: str, change: Object, *, subresource: str = ""
    ) -> Object:
        """Merge a change into an object."""
        path = path_of(resource, namespace, name, subresource)
        return await self.request("PATCH", path, change, content_type=MERGE)

    async def set_status(self, resource: str, namespace: str | None, name: str, status: Object) -> Object:
        """Merge a change into an object's status."""
        return await self.patch(resource, namespace, name, {"status": status}, subresource="status")

    async def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        grace: int | None = None,
        propagation: str | None = None,
        uid: str = "",
    ) -> Object:
        """Delete; a pod on a node goes only with grace=0, which is what its kubelet says when it is gone. With ``uid``
        only that incarnation."""
        wanted = {
            "gracePeriodSeconds": grace,
            "propagationPolicy": propagation,
            "preconditions": {"uid": uid} if uid else None,
        }
        options = {key: value for key, value in wanted.items() if value is not None}
        return await self.request("DELETE", path_of(resource, namespace, name), options or None)

    async def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Any other request; raises Refused."""
        text = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": content_type}
        for _ in range(WARM_UP_TRIES):
            try:
                data = BytesIO(text) if text is not None else None  # aiohttp warns of large bytes
                async with self._session.request(method, path, data=data, params=query, headers=headers) as response:
                    return answer_of(response.status, await response.read())
            except Refused as refused:
                last = refused
                if not refused.is_warming_up:
                    raise
            await asyncio.sleep(WARM_UP_PAUSE)
        raise last

    # -- waiting -------------------------------------------------------------------------------------------

    async def wait_for(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        is_met: Callable[[Object], object],
        *,
        timeout: float = TIMEOUT,
    ) -> Object:
        """Wait until an object is there and meets the condition; says how it was when time is up.

        A condition that stumbles over a field that is not there yet is not met yet.
        """

        async def look() -> Object:
            found = await self.find(resource, namespace, name)
            assert found is not None, f"{resource} {namespace}/{name} is not there"
            assert _meets(found, is_met), f"{resource} {namespace}/{name} stays {_shown(found)}"
            return found

        return await eventually(look, timeout=timeout)

    async def wait_list(
        self,
        resource: str,
        namespace: str | None,
        is_met: Callable[[Objects], object],
        *,
        labels: str = "",
        timeout: float = TIMEOUT,
    ) -> Objects:
        """Wait until the items meet the condition together."""

        async def look() -> Objects:
            found = await self.list(resource, namespace, labels=labels)
            assert _meets(found, is_met), f"{resource} in {namespace} stay {[_shown(item) for item in found]}"
            return found

        return await eventually(look, timeout=timeout)

    async def wait_gone(self, resource: str, namespace: str | None, name: str, *, timeout: float = TIMEOUT) -> None:
        """Wait until an object is not there any more."""

        async def look() -> None:
            found = await self.find(resource, namespace, name)
            assert found is None, f"{resource} {namespace}/{name} is still there: {_shown(found)}"

        await eventually(look, timeout=timeout)

    # -- the kubelet ---------------------------------------------------------------------------------------

    async def bind(self, namespace: str, name: str, node: str) -> None:
        """Put a pod on a node, as the scheduler does; the node need not exist."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.request("POST", path_of("pods", namespace, name, "binding"), body)

    async def set_pod(
        self,
        namespace: str,
        name: str,
        *,
        phase: str = "Running",
        node: str | None = "n1",
        containers: Sequence[Container] | None = None,
        init_containers: Sequence[Container] | None = None,
        restarts: int = 0,
        ready: bool | None = None,
        ip: str | None = "10.0.0.1",
        reason: str | None = None,
        message: str | None = None,
    ) -> Object:
        """Report a pod as its kubelet does: bound to a node, in a phase, its containers in these states.

        A container is its exit code, or why it waits, or None when it runs; left out, all are as the phase says.
        """
        pod = await self.get("pods", namespace, name)
        if node is not None and not pod["spec"].get("nodeName"):
            await self.bind(namespace, name, node)
        spec = pod["spec"]
        status = _pod_status(
            phase,
            _statuses(spec["containers"], _states(containers, spec["containers"], phase), restarts),
            ready=phase == "Running" if ready is None else ready,
        )
        if "initContainers" in spec:
            states = [0] * len(spec["initContainers"]) if init_containers is None else init_containers
            status["initContainerStatuses"] = _statuses(spec["initContainers"], states, 0)
        extra = {"reason": reason, "message": message, "podIP": ip if phase != "Pending" else None}
        status |= {key: value for key, value in extra.items() if value is not None}
        if "podIP" in status:
            status["podIPs"] = [{"ip": status["podIP"]}]
        return await self.set_status("pods", namespace, name, status)


def _meets(found: T, is_met: Callable[[T], object]) -> bool:
    try:
        return bool(is_met(found))
    except (KeyError, IndexError, TypeError):
        return False


def _shown(found: Object) -> str:
    meta = found.get("metadata", {})
    deleting = " (being deleted)" if "deletionTimestamp" in meta else ""
    return f"{meta.get('name')}{deleting} {json.dumps(found.get('status', {}))[:2000]}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _states(given: Sequence[Container] | None, containers: Sequence[Object], phase: str) -> Sequence[Container]:
    if given is not None:
        return given
    of_phase: dict[str, Container] = {"Pending": "ContainerCreating", "Succeeded": 0, "Failed": 1}
    return [of_phase.get(phase)] * len(containers)


def _statuses(containers: Sequence[Object], states: Sequence[Container], restarts: int) -> list[Object]:
    return [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": state is None,
            "restartCount": restarts,
            "state": _state(state),
        }
        for container, state in zip(containers, states, strict=True)
    ]


def _state(state: Container) -> Object:
    match state:
        case None:
            return {"running": {"startedAt": _now()}}
        case str():
            return {"waiting": {"reason": state}}
        case _:
            reason = "Completed" if state == 0 else "Error"
            ended: Object = {"exitCode": state, "reason": reason, "startedAt": _now(), "finishedAt": _now()}
            return {"terminated": ended}


def _pod_status(phase: str, containers: list[Object], *, ready: bool) -> Object:
    is_ready = "True" if ready else "False"
    conditions = {
        "PodScheduled": "True",
        "Initialized": "False" if phase == "Pending" else "True",
        "ContainersReady": is_ready,
        "Ready": is_ready,
    }
    return {
        "phase": phase,
        "startTime": _now(),
        "conditions": [
            {"type": kind, "status": value, "lastTransitionTime": _now()} for kind, value in conditions.items()
        ],
        "containerStatuses": containers,
    }
