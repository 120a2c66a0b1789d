"""One operator in the model: the real controller, stores, barrier and executor over the memory API.

``Port`` stands between them: it dies between two writes, loses answers, refuses, and checks the laws that
are about single writes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from tests.laws.maker import Maker
from tests.laws.memory import MemoryApi, Object, owner_uid
from trainmaster.core.errors import AlreadyExists, Conflict, ServerError, TooManyRequests, Unreachable
from trainmaster.core.ids import JOB, NODE, POD, SERVICE, Key, Resource
from trainmaster.core.plan import MAX_ACTIONS, Plan
from trainmaster.core.view import (
    CHILD_CODEC,
    JOB_CODEC,
    NODE_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    ChildView,
    Codec,
    JobView,
    NodeView,
    PodView,
    ServiceView,
)
from trainmaster.kinds.base import Kind
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.cluster import Written
from trainmaster.runtime.controller import Controller
from trainmaster.runtime.executor import Executor
from trainmaster.runtime.host_ports import HostPorts
from trainmaster.runtime.node_index import NodeIndex
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.store import Store

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

FAULTS = ("409", "429", "500", "cut before", "cut after")


class Crash(BaseException):
    """The process is dead. Nothing catches this."""


class LawBroken(AssertionError):
    """A law of docs/decisions/0001 does not hold."""


class Trouble(NamedTuple):
    """What goes wrong at the n-th write of a pass (from 0): a fault, or death right after it."""

    at: int
    what: str


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only when the test says so."""

    virtual = 0.0

    def time(self) -> float:
        return self.virtual


class Port:
    """The operator's way to the API, for one incarnation of its process."""

    def __init__(self, api: MemoryApi, jobs: Resource, wanted: Callable[[Key, str], set[str]]) -> None:
        self._api = api
        self._jobs = jobs
        self._wanted = wanted
        self.trouble: Trouble | None = None
        self.job_uid = ""
        self.writes = 0
        self._is_dead = False
        self._uncertain = False
        """True when an answer got lost: from then on an AlreadyExists is nobody's fault."""

    async def get(self, resource: Resource, key: Key) -> bytes:
        return await self._api.get(resource, key)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        limit: int = 0,
        cursor: str = "",
        max_bytes: int = 0,
    ) -> bytes:
        return await self._api.list(resource)

    async def version(self, resource: Resource, *, namespace: str = "", fields: str = "") -> int:
        return await self._api.version(resource)

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        resource_version: str,
        timeout: float,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError("watches are delivered by hand")

    async def create(self, resource: Resource, namespace: str, body: bytes) -> Written:
        self._check_create(resource, msgspec.json.decode(body))
        return await self._write(self._creating(resource, namespace, body))

    async def replace(self, resource: Resource, key: Key, body: bytes) -> Written:
        raise LawBroken("the operator replaces nothing")

    async def patch(
        self, resource: Resource, key: Key, patch: bytes, *, subresource: str = "", strict: bool = False
    ) -> Written:
        given = msgspec.json.decode(patch).get("metadata", {})
        if not given.get("uid") or not given.get("resourceVersion"):
            raise LawBroken("state lives in the API: a patch names the version that it was planned on")
        if resource == self._jobs:
            if subresource != "status":
                raise LawBroken("owned: of a job only the status is patched")
            if not strict:
                raise LawBroken("state lives in the API: a field that cannot be stored must not be lost in silence")
        elif (target := self._api.objects.get(resource, {}).get(key)) and owner_uid(target) != self.job_uid:
            raise LawBroken(f"owned: {resource} {key} belongs to somebody else")
        elif resource == JOB and self._is_wanted(key):
            raise LawBroken(f"state lives in the API: {key.name} is stopped before a verdict or restart was stored")
        return await self._write(self._api.patch(resource, key, patch, subresource=subresource, strict=strict))

    async def delete(self, resource: Resource, key: Key, *, uid: str, grace: int | None = None) -> Written:
        self._check_delete(resource, key, uid)
        self._check_force(resource, key, uid, grace)
        return await self._write(self._api.delete(resource, key, uid=uid, grace=grace))

    # --- laws about single writes ---

    def _check_create(self, resource: Resource, body: Object) -> None:
        if owner_uid(body) != self.job_uid:
            raise LawBroken(f"owned: {resource} {body['metadata']['name']} does not carry our controller reference")
        job = self._stored_job()
        if job is not None and job.get("status", {}).get("phase") in ENDED:
            raise LawBroken(f"monotone: {body['metadata']['name']} is created for a job that has ended")
        if job is not None and resource == POD and body["spec"].get("hostNetwork"):
            # The API server makes every port of a container a port of the host.
            numbers = {p["containerPort"] for c in body["spec"]["containers"] for p in c["ports"]}
            if not numbers <= set(stored_ports(job).values()):
                raise LawBroken(f"state lives in the API: {body['metadata']['name']} has a port that is not on record")

    def _check_delete(self, resource: Resource, key: Key, uid: str) -> None:
        if not uid:
            raise LawBroken(f"owned: {resource} {key} is deleted without a uid precondition")
        target = self._api.objects.get(resource, {}).get(key)
        if target is None or target["metadata"]["uid"] != uid:
            return  # the precondition will refuse it
        if resource == self._jobs:
            if uid != self.job_uid or target.get("status", {}).get("phase") not in ENDED:
                raise LawBroken(f"owned: job {key} is deleted, and has not ended")
            return
        if not self._is_owned(target):
            raise LawBroken(f"owned: {resource} {key} belongs to somebody else")
        job = self._stored_job()
        status = job.get("status", {}) if job else {}
        if job is None or _is_judged(status) or _is_suspended(status):
            return
        if resource == POD and (_is_outdated(target, status) or _is_leaving(target)):
            return
        if key.name in self._wanted(Key(key.namespace, job["metadata"]["name"]), self.job_uid):
            raise LawBroken(f"state lives in the API: {key.name} is deleted before a verdict was stored")

    def _is_owned(self, target: Object) -> bool:
        """By the job itself, or by a batch Job of it."""
        owner = owner_uid(target)
        return self.job_uid in (owner, self._api.owners.get(owner))

    def _check_force(self, resource: Resource, key: Key, uid: str, grace: int | None) -> None:
        target = self._api.objects.get(resource, {}).get(key)
        if target is None or target["metadata"]["uid"] != uid or grace != 0:
            return
        is_over = target["status"]["phase"] in ("Succeeded", "Failed")
        if uid not in self._api.doomed and not is_over and "deletionTimestamp" not in target["metadata"]:
            raise LawBroken(f"owned: {key.name} is forced to go, and could have been asked")

    def _is_wanted(self, key: Key) -> bool:
        """It belongs to a job that goes on."""
        job = self._stored_job()
        if job is None or _is_judged(job.get("status", {})) or _is_suspended(job.get("status", {})):
            return False
        return key.name in self._wanted(Key(key.namespace, job["metadata"]["name"]), self.job_uid)

    def _stored_job(self) -> Object | None:
        stored = self._api.objects.get(self._jobs, {}).values()
        return next((job for job in stored if job["metadata"]["uid"] == self.job_uid), None)

    # --- trouble ---

    async def _creating(self, resource: Resource, namespace: str, body: bytes) -> Written:
        try:
            return await self._api.create(resource, namespace, body)
        except AlreadyExists:
            name = msgspec.json.decode(body)["metadata"]["name"]
            found = self._api.objects[resource][Key(namespace, name)]
            if owner_uid(found) == self.job_uid and not self._uncertain:
                raise LawBroken(f"read your writes: {resource} {name} is created again by the same process") from None
            raise

    async def _write(self, call: Any) -> Written:
        if self._is_dead:
            call.close()
            raise Crash
        number, self.writes = self.writes, self.writes + 1
        what = self.trouble.what if self.trouble and self.trouble.at == number else ""
        if what in ("409", "429", "500", "cut before"):
            call.close()
            raise _fault(what)
        written: Written = await call
        if what == "cut after":
            self._uncertain = True
            raise _fault(what)
        if what == "crash":
            self._is_dead = True
            raise Crash
        return written


def _is_judged(status: Object) -> bool:
    """Its verdict is on record."""
    return bool(status.get("ending")) or status.get("phase") in (*ENDED, "CleanUp")


def _is_suspended(status: Object) -> bool:
    return any((c["type"], c["status"]) == ("Suspended", "True") for c in status.get("conditions", ()))


def _is_outdated(pod: Object, status: Object) -> bool:
    """A restart of this pod was counted since it was created."""
    labels = pod["metadata"]["labels"]
    role = next((labels[name] for name in _ROLE_LABELS if name in labels), "")
    label = next((labels[name] for name in _ATTEMPT_LABELS if name in labels), 0)
    return bool(restarts_of(status).get(role, 0) > int(label))


_ROLE_LABELS = (
    "TrainingJobReplicaName",
    "training.kubeflow.org/replica-type",
    "replica-type",
    "diengine/task-name",
)
_ATTEMPT_LABELS = (
    "RestartCount",
    "training.kubeflow.org/restart-count",
    "restart-count",
    "diengine/restart-count",
)


def restarts_of(status: Object) -> dict[str, int]:
    """The restarts that were counted, by role in lower case."""
    return {role.lower(): counted.get("count", 0) for role, counted in counts_of(status).items()}


def counts_of(status: Object) -> Object:
    """What is remembered of the restarts of each role. Jobs with tasks have a number of that name."""
    found: Object | int = status.get("restarts", {})
    return status.get("attempts", {}) if isinstance(found, int) else found


def _is_leaving(pod: Object) -> bool:
    """Somebody else decided that; maybe nobody is left on its node to do it."""
    return "deletionTimestamp" in pod["metadata"]


def _fault(what: str) -> Exception:
    match what:
        case "409":
            return Conflict("injected")
        case "429":
            return TooManyRequests("injected")
        case "500":
            return ServerError("injected")
    return Unreachable("injected")


def stored_ports(job: Object) -> dict[tuple[str, str], int]:
    """The ports of a job by replica and declared port."""
    ports = job.get("status", {}).get("ports", {})
    return {(replica, port): number for replica, given in ports.items() for port, number in given.items()}


ENDED = frozenset({"Succeed", "Succeeded", "Failed", "Timeout", "Preempted", "NodeFail", "Done"})


class Operator:
    """An incarnation of the operator's process. Its stores are empty and unsynced until ``sync``."""

    def __init__(self, api: MemoryApi, maker: Maker, loop: VirtualLoop) -> None:
        self.api = api
        self.maker = maker
        self.kind: Kind[Any] = maker.kind(maker.settings)
        kind = self.kind
        self.loop = loop
        self.port = Port(api, kind.resource, self._wanted)
        self.jobs, self.pods = Store[JobView](kind.resource), Store[PodView](POD)
        self.services = Store[ServiceView](SERVICE)
        self._codecs: dict[Resource, tuple[Store[Any], Codec[Any]]] = {
            kind.resource: (self.jobs, JOB_CODEC),
            POD: (self.pods, POD_CODEC),
            SERVICE: (self.services, SERVICE_CODEC),
        }
        self.children = {resource: Store[ChildView](resource) for resource in kind.children}
        self._codecs |= {resource: (store, CHILD_CODEC) for resource, store in self.children.items()}
        self.related: Store[JobView] | None = None
        if kind.related:
            self.related = Store[JobView](kind.related.resource)
            self._codecs[kind.related.resource] = (self.related, JOB_CODEC)
        self.nodes: NodeIndex | None = None
        if kind.looks_at_nodes:
            nodes = Store[NodeView](NODE)
            self._codecs[NODE] = (nodes, NODE_CODEC)
            self.nodes = NodeIndex(nodes, self.pods)
        self._cursor: dict[Resource, int] = {}
        self.ports = HostPorts()
        self.ports.follow(self.jobs, self.pods)
        barrier = Barrier({resource: store for resource, (store, _) in self._codecs.items()})
        self.controller = loop.run_until_complete(self._controller(barrier))

    async def _controller(self, barrier: Barrier) -> Controller:
        kind = self.kind
        return Controller(
            ResourceKinds(self.kind),
            jobs=self.jobs,
            pods=self.pods,
            services=self.services,
            barrier=barrier,
            executor=Executor(self.port, barrier),
            recorder=Recorder(self.port, self.now),
            ports=self.ports,
            now=self.now,
            workers=1,
            related={kind.related: self.related} if kind.related and self.related else None,
            children=self.children,
            nodes=self.nodes,
        )

    def _wanted(self, key: Key, uid: str) -> set[str]:
        """The children that a job must have by the spec that this process knows: it may be behind."""
        seen = self.jobs.get(key)
        if seen is None or seen.uid != uid:
            return set()
        return self.maker.names(key, msgspec.json.decode(seen.raw))

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.virtual)

    def sync(self, resource: Resource) -> None:
        """The list of one resource arrives."""

        async def listed() -> None:
            store, codec = self._codecs[resource]
            page = codec.page(await self.api.list(resource))
            store.replace(page.views, int(page.resource_version))

        self.loop.run_until_complete(listed())
        self._cursor[resource] = len(self.api.streams.get(resource, ()))

    def deliver(self, resource: Resource, count: int) -> None:
        """Up to ``count`` lines of one watch arrive; the others lag."""

        async def delivered() -> None:
            store, codec = self._codecs[resource]
            stream, start = self.api.streams.get(resource, []), self._cursor[resource]
            for change in stream[start : start + count]:
                line = codec.line(change.line())
                assert line.view is not None
                store.remove(line.view) if line.type == "DELETED" else store.put(line.view)
            self._cursor[resource] = min(start + count, len(stream))

        if resource in self._cursor:
            self.loop.run_until_complete(delivered())

    def catch_up(self) -> None:
        for resource in self._codecs:
            if resource not in self._cursor:
                self.sync(resource)
            self.deliver(resource, 1_000_000)

    def run_pass(self, key: Key, trouble: Trouble | None = None) -> None:
        """One pass. Raises Crash when the process died in it; passing errors are what they are: nothing."""
        job = self.jobs.get(key) if self.jobs.is_synced else None
        self.port.job_uid = job.uid if job else ""
        self.port.trouble, self.port.writes = trouble, 0
        self.controller.queue.forget(key)
        try:
            self.loop.run_until_complete(self.controller.reconcile(key))
        except (Conflict, TooManyRequests, ServerError, Unreachable):
            pass
        finally:
            self.port.trouble = None

    def plan(self, key: Key) -> Plan:
        """What would be done now; checks that deciding is pure and bounded."""
        job = self.jobs.get(key)
        if job is None:
            return Plan()
        observed = self.controller.observer.observe(job)
        plan = self.kind.plan(job, observed, self.now())
        if plan != self.kind.plan(job, observed, self.now()):
            raise LawBroken("pure: the same input gives two plans")
        if len(plan.creates) + len(plan.deletes) + len(plan.patches) > MAX_ACTIONS:
            raise LawBroken("bounded: too many actions in one pass")
        return plan
