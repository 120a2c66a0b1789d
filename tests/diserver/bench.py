"""A di-server on loopback over an API server in memory, and callers at addresses of their own.

Linux gives a machine all of 127.0.0.0/8: every pod calls from its own address, as in a cluster.
"""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from testbed.admin import eventually
from testbed.plane import free_port
from tests.build import STAMP, Json, a_container, a_dijob, a_ditask, a_task, a_template
from tests.diserver.client import Client
from tests.runtime.cluster import FakeCluster
from trainmaster.core.errors import Trainmaster, Unreachable
from trainmaster.core.ids import NODE, POD, Key, Resource
from trainmaster.diserver.limits import Rules
from trainmaster.diserver.serve import ServerOptions, run_server
from trainmaster.kinds.dijob.aggregatorconfig import RESOURCE as AGGREGATOR_CONFIG
from trainmaster.kinds.dijob.types import RESOURCE
from trainmaster.settings import SERVER, ServerLimits

NAMESPACE = "rl"
TEMPLATE = a_template(a_container("di-container"))
ROLES: Json = {"collector": {"template": TEMPLATE}, "learner": {"template": TEMPLATE}}


class Reviews:
    """Answers TokenReviews and SubjectAccessReviews; ``error`` is raised instead.

    A token is for one audience, as with kube-apiserver (tests/integration/test_di.py): a review that names others does
    not authenticate it, and one that names none asks for the API server's own.
    """

    def __init__(self) -> None:
        self.users: dict[str, Json] = {}
        """By token for di-server."""
        self.api_users: dict[str, Json] = {}
        """By token for the API server."""
        self.may_update: set[tuple[str, str]] = set()
        self.asked = 0
        self.tokens = 0
        self.error: Trainmaster | None = None

    async def review(self, resource: Resource, body: bytes) -> bytes:
        self.asked += 1
        if self.error is not None:
            raise self.error
        spec = msgspec.json.decode(body)["spec"]
        if resource.kind == "TokenReview":
            self.tokens += 1
            audiences = spec.get("audiences", [])
            user = (self.users if "di-server" in audiences else self.api_users).get(spec["token"])
            status = {"authenticated": user is not None, "user": user or {}, "audiences": audiences}
            return msgspec.json.encode({"status": status})
        where = spec["resourceAttributes"]["namespace"]
        allowed = {(spec["user"], where), (spec["user"], "*")} & self.may_update
        return msgspec.json.encode({"status": {"allowed": bool(allowed)}})


class Bench:
    def __init__(self, cluster: FakeCluster, reviews: Reviews, url: str, trust: ssl.SSLContext | bool = True) -> None:
        self._trust = trust
        self.cluster = cluster
        self.reviews = reviews
        self.url = url
        self._numbers = itertools.count(11)
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    # --- the cluster ---

    def job(self, name: str = "cart", *, uid: str = "", **spec: Any) -> Json:
        body = a_dijob(name, namespace=NAMESPACE, spec=ROLES | spec, status={"phase": "Running"})
        if uid:
            body["metadata"]["uid"] = uid
        return self.cluster.put(RESOURCE, body)

    def task_job(self, name: str = "mesh", *tasks: Json, spec: Json | None = None, **status: Any) -> Json:
        """A running job with tasks: a learner and two collectors, unless told."""
        given = tasks or (a_task("learner"), a_task("collector", 2))
        places = [f"{task.get('name') or task['type']}-{i}" for task in given for i in range(task["replicas"])]
        stored = {"phase": "Running", "ranks": {place: rank for rank, place in enumerate(places)}, **status}
        return self.cluster.put(RESOURCE, a_ditask(name, *given, namespace=NAMESPACE, spec=spec, status=stored))

    def pod(self, name: str, *, job: str = "cart", ip: str | None = None, restarts: int = 0, **fields: Any) -> str:
        """A pod of a job; answers its address. An empty one is not known yet."""
        address = f"127.0.0.{next(self._numbers)}" if ip is None else ip
        owner = {"apiVersion": RESOURCE.api_version, "kind": "DIJob", "name": job, "uid": f"uid-of-{job}"}
        metadata: Json = {
            "name": name,
            "namespace": fields.get("namespace", NAMESPACE),
            "uid": fields.get("uid", f"uid-of-{name}"),
            "labels": {"dijob-name": job, "diengine/job": job, "app.kubernetes.io/managed-by": "trainmaster"},
            "ownerReferences": [owner | {"controller": True} | fields.get("owner", {})],
        }
        if fields.get("deleting"):
            metadata["deletionTimestamp"] = STAMP
        status: Json = {
            "phase": fields.get("phase", "Running"),
            "podIPs": [{"ip": address}] if address else [],
            "containerStatuses": [{"name": "di-container", "restartCount": restarts} | fields.get("main", {})],
        }
        spec = {"restartPolicy": "Always", "hostNetwork": fields.get("host_network", False)}
        body = {"metadata": metadata, "spec": spec, "status": status}
        self.cluster.put(POD, body)
        return address

    def aggregator_config(self, template: Json = TEMPLATE) -> None:
        metadata = {"name": "aggregator-config", "namespace": "di-system"}
        self.cluster.put(AGGREGATOR_CONFIG, {"metadata": metadata, "spec": {"aggregator": {"template": template}}})

    def node(self, name: str, gpus: int, *, ready: bool = True, unschedulable: bool = False) -> None:
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        body = {
            "metadata": {"name": name, "namespace": ""},
            "spec": {"unschedulable": unschedulable},
            "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions},
        }
        self.cluster.put(NODE, body)

    def status(self, name: str = "cart") -> Json:
        found: Json = self.cluster.find(RESOURCE, Key(NAMESPACE, name)) or {}
        status: Json = found.get("status", {})
        return status

    def members(self, name: str = "cart") -> Json:
        found: Json = self.status(name).get("declared", {}).get("members", {})
        return found

    def set_status(self, name: str = "cart", **fields: Any) -> None:
        body = self.cluster.find(RESOURCE, Key(NAMESPACE, name)) or {}
        self.cluster.put(RESOURCE, {**body, "status": {**body.get("status", {}), **fields}})

    def take_pod(self, name: str) -> None:
        self.cluster.take(POD, Key(NAMESPACE, name))

    async def cut_watches(self) -> None:
        """No watch shows anything from now on, and none can be opened."""
        self.cluster.cut(Unreachable("cut"))
        for _ in range(10):
            await asyncio.sleep(0)  # the reflectors notice it in their next turn

    async def answered(self, name: str = "cart") -> None:
        """Until the last request of a job is marked as answered."""

        async def look() -> None:
            assert self.status(name)["declared"]["last"].get("answered")

        await eventually(look)

    # --- callers ---

    def session(self, ip: str = "127.0.0.1") -> aiohttp.ClientSession:
        if ip not in self._sessions:
            connector = aiohttp.TCPConnector(local_addr=(ip, 0), ssl=self._trust)
            self._sessions[ip] = aiohttp.ClientSession(connector=connector)
        return self._sessions[ip]

    def client(self, ip: str, name: str = "cart-coordinator", *, url: str = "") -> Client:
        return Client(self.session(ip), url or self.url, NAMESPACE, name, pause=0.05)

    async def call(
        self, method: str, path: str, body: Any = None, *, ip: str = "127.0.0.1", **options: Any
    ) -> tuple[int, Json]:
        """Any request; a body that is bytes goes as it is."""
        data = body if isinstance(body, bytes) else msgspec.json.encode({} if body is None else body)
        async with self.session(ip).request(method, self.url + path, data=data, **options) as response:
            return response.status, await response.json()

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()


@asynccontextmanager
async def serving(
    cluster: FakeCluster | None = None,
    *,
    rules: Rules | None = None,
    is_open: bool = False,
    synced: bool = True,
    kinds: tuple[str, ...] = (),
    limits: ServerLimits = SERVER.limits,
    tls: ssl.SSLContext | None = None,
    trust: ssl.SSLContext | bool = True,
) -> AsyncIterator[Bench]:
    cluster, reviews = cluster or FakeCluster(), Reviews()
    address = f"127.0.0.1:{free_port()}"
    options = ServerOptions(
        bind_address=address, allow_unidentified=is_open, drain=0.0, rules=rules or Rules(), kinds=kinds, limits=limits
    )
    stop, started = asyncio.Event(), asyncio.Event()
    bench = Bench(cluster, reviews, f"{'https' if tls else 'http'}://{address}", trust)
    running = asyncio.ensure_future(
        run_server(cluster, reviews, options, stop, now=lambda: datetime.now(UTC), tls=tls, started=started)
    )
    try:
        await asyncio.wait((running, asyncio.ensure_future(started.wait())), return_when=asyncio.FIRST_COMPLETED)
        async with asyncio.timeout(10):
            while synced and not running.done():
                async with bench.session().get(f"{bench.url}/readyz") as response:
                    if response.status == 200:
                        break
                await asyncio.sleep(0.01)
        yield bench
    finally:
        await bench.close()
        stop.set()
        await running
