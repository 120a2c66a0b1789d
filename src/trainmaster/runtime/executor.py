"""Applies a Plan: deletes, creates with a slow start, patches, one status patch. It decides nothing.

What went wrong is either a *refusal* (returned as a Failure: the job's status will say it) or *passing* (no answer,
overload, a lost race: the pass is tried again). An answer to a create that may pass is a Failure with a cause, because
it may last; anything else that may pass is raised.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from trainmaster.core.definition import UPDATE_COMMAND
from trainmaster.core.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, Stale, Terminating
from trainmaster.core.ids import NAMESPACE, POD, Key, Resource
from trainmaster.core.plan import Create, Delete, Patch, Plan, merge_patch
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import JobView, PodView
from trainmaster.kinds.base import Failure
from trainmaster.runtime import metrics
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.namespace_limit import NamespaceLimit

IN_FLIGHT = 8
"""Requests of one job at once. The API server is hardly faster with more, and the connections are for all jobs: a job
of thousands of pods must not make a small one wait."""
IN_FLIGHT_OF_NAMESPACE = 16
"""Requests of all jobs of one namespace at once, for the same reason."""

TERMINATING = 1024
"""Namespaces that are remembered as being deleted. One that is forgotten is asked again."""
TERMINATING_SECONDS = 30.0
"""For so long after such an answer nothing is created there."""

log = structlog.get_logger(__name__)

A = TypeVar("A", Create, Delete, Patch)
Do = Callable[[JobView, A, "Applied"], Awaitable[None]]


class Applied(msgspec.Struct):
    """What became of the actions of one pass."""

    deleted: list[Delete] = []
    created: list[Create] = []
    patched: list[Patch] = []
    failures: list[Failure] = []
    is_terminating: bool = False
    """Nothing was created, because the namespace is being deleted, and the job with it."""

    def in_order_of(self, plan: Plan) -> None:
        """Requests of one batch end in any order; people read the names as they were planned."""
        outcomes: tuple[tuple[list[Any], Sequence[Any]], ...] = (
            (self.deleted, plan.deletes),
            (self.created, plan.creates),
            (self.patched, plan.patches),
        )
        for done, planned in outcomes:
            place = {id(action): number for number, action in enumerate(planned)}
            done.sort(key=lambda action: place[id(action)])


class _OwnerPart(msgspec.Struct):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class _MetaPart(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] = {}
    owner_references: list[_OwnerPart] = []
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None

    @property
    def grace(self) -> int:
        return self.deletion_grace_period_seconds or 0


class _ObjectPart(msgspec.Struct):
    metadata: _MetaPart


def _elapsed() -> float:
    return asyncio.get_running_loop().time()


class Executor:
    def __init__(self, cluster: Cluster, barrier: Barrier) -> None:
        self.cluster = cluster
        self._barrier = barrier
        self._limit = NamespaceLimit(IN_FLIGHT_OF_NAMESPACE)
        self._terminating: OrderedDict[str, float] = OrderedDict()
        """Namespaces that are being deleted, and when the API server last said it."""

    async def act(self, job: JobView, plan: Plan) -> Applied:
        """Deletes, then creates, then patches. Stops at the first batch that something passing went wrong in."""
        applied = Applied(is_terminating=bool(plan.creates) and self._has_refused(job.key.namespace))
        await self._batch(plan.deletes, job, self._delete, applied)
        size, rest = 1, plan.creates
        while rest and not applied.failures and not applied.is_terminating:
            # 1, 2, 4, …: a namespace without quota is asked once, not a thousand times.
            batch, rest = rest[:size], rest[size:]
            await self._batch(batch, job, self._create, applied)
            size *= 2
        if not applied.failures and not applied.is_terminating:
            await self._batch(plan.patches, job, self._patch, applied)
        applied.in_order_of(plan)
        return applied

    async def are_current(self, pods: Iterable[PodView]) -> bool:
        """Whether the API server has these pods as the cache shows them."""
        for pod in pods:
            try:
                async with self._limit.request(pod.key.namespace):
                    found = msgspec.json.decode(await self.cluster.get(POD, pod.key), type=_ObjectPart).metadata
            except NotFound:
                return False
            if (found.uid, int(found.resource_version)) != (pod.uid, pod.resource_version):
                return False
        return True

    async def is_terminating(self, namespace: str) -> bool:
        """Whether the namespace is being deleted. False without the right to read it."""
        if self._has_refused(namespace):
            return True
        try:
            async with self._limit.request(namespace):
                body = await self.cluster.get(NAMESPACE, Key("", namespace))
        except (Forbidden, NotFound):
            return False
        return bool(msgspec.json.decode(body, type=_ObjectPart).metadata.deletion_timestamp)

    def _has_refused(self, namespace: str) -> bool:
        """Whether the API server has just said that the namespace is being deleted. It may be another one a moment
        later, and one of several API servers may know that later than the others."""
        refused = self._terminating.get(namespace)
        return refused is not None and _elapsed() - refused < TERMINATING_SECONDS

    def expect(self, namespace: str) -> None:
        """A job was created in the namespace: if it was being deleted, it is another one now."""
        self._terminating.pop(namespace, None)

    async def store_status(self, resource: Resource, job: JobView, old: dict[str, object], plan: Plan) -> bool:
        """One merge patch, refused when the job is not the one that was planned for, or when its definition lacks a
        field: plans wait for what they store. False: nothing to store."""
        if plan.status is None or not (patch := merge_patch(old, plan.status)):
            return False
        preconditions = {"uid": job.uid, "resourceVersion": str(job.resource_version)}
        body = msgspec.json.encode({"metadata": preconditions, "status": patch})
        try:
            # Before creates and deletes: a status is one request, and people wait to see it.
            async with self._limit.request(job.key.namespace, first=True):
                written = await self.cluster.patch(resource, job.key, body, subresource="status", strict=True)
        except NotFound as error:
            # Deleted meanwhile: the watch will say so before the next try. Or its CRD is the ancestors'.
            hint = f"if the job exists, its CRD has no status: {UPDATE_COMMAND}"
            raise Conflict(f"{error.message}; {hint}") from error
        if written.resource_version == job.resource_version:
            raise Stale(f"{resource} {job.key}: the API server has this status already, and the cache does not show it")
        self._barrier.wrote(job.uid, resource, written.resource_version)
        metrics.STATUS_WRITES.labels(resource.kind).inc()
        return True

    async def _batch(self, actions: Sequence[A], job: JobView, do: Do[A], applied: Applied) -> None:
        """All of them, a few at once; after the first passing error no other is begun. If it is raised, that is when
        those under way have ended."""
        if len(actions) == 1:
            async with self._limit.request(job.key.namespace):
                await do(job, actions[0], applied)
            return
        errors: list[BaseException] = []
        rest = iter(actions)  # shared: each free worker takes the next action

        async def work() -> None:
            for action in rest:
                try:
                    async with self._limit.request(job.key.namespace):
                        await do(job, action, applied)
                except Exception as error:
                    errors.append(error)
                if errors or applied.is_terminating or any(failure.cause for failure in applied.failures):
                    return

        await asyncio.gather(*(work() for _ in range(min(IN_FLIGHT, len(actions)))))
        if errors:
            raise errors[0]

    async def _create(self, job: JobView, action: Create, applied: Applied) -> None:
        resource, key = action.resource, action.key
        try:
            written = await self.cluster.create(resource, key.namespace, msgspec.json.encode(action.body))
            self._barrier.wrote(job.uid, resource, written.resource_version)
            applied.created.append(action)
            self._report(job, "create", action)
        except AlreadyExists:
            if error := await self._claim(job, action):
                applied.failures.append(Failure(action, error))
        except Terminating:
            applied.is_terminating = True
            self._terminating[key.namespace] = _elapsed()
            self._terminating.move_to_end(key.namespace)
            if len(self._terminating) > TERMINATING:
                self._terminating.popitem(last=False)
        except (Invalid, Forbidden, NotFound) as refusal:
            applied.failures.append(Failure(action, refusal.why))
        except ApiError as error:
            applied.failures.append(Failure(action, error.why, error))

    async def _claim(self, job: JobView, action: Create) -> str:
        """Whose is the object of that name? Ours: the store is late and the barrier waits. Else: an error."""
        resource, key = action.resource, action.key
        try:
            found = msgspec.json.decode(await self.cluster.get(resource, key), type=_ObjectPart).metadata
        except NotFound:
            raise Conflict(f"{resource} {key} went away while it was being created") from None
        owner = next((o for o in found.owner_references if o.controller), None)
        if owner is not None and owner.uid == job.uid:
            return await self._adopt(job, resource, key, found)
        if owner is not None and _is_former(owner, action):
            noun, job_ = resource.kind.lower(), f"{owner.kind} {owner.name}"
            if found.deletion_timestamp is None:
                return f"waits for the {noun} of the deleted {job_}; if it stays: kubectl delete {noun} {key.name}"
            return f"waits for the {noun} of the deleted {job_}, which has up to {found.grace} s to end"
        whose = f"belongs to {owner.kind} {owner.name} ({owner.uid})" if owner else "has no owner"
        return f"the name is taken by an object that {whose}; delete it or rename the job"

    async def _adopt(self, job: JobView, resource: Resource, key: Key, found: _MetaPart) -> str:
        """Our watch shows it when it has our label: one that another operator created, as a PodGroup, has none."""
        version = int(found.resource_version)
        if not MANAGED_BY.items() <= found.labels.items():
            preconditions = {"uid": found.uid, "resourceVersion": found.resource_version}
            body = msgspec.json.encode({"metadata": {**preconditions, "labels": MANAGED_BY}})
            try:
                version = (await self.cluster.patch(resource, key, body)).resource_version
            except (Forbidden, Invalid) as refusal:
                labels = " ".join(f"{name}={value}" for name, value in MANAGED_BY.items())
                how = f"kubectl label {resource.plural} {key.name} {labels}"
                return f"it exists without the label that we watch by, and gets none: {refusal.message}; {how}"
        self._barrier.wrote(job.uid, resource, version)
        return ""

    async def _delete(self, job: JobView, action: Delete, applied: Applied) -> None:
        resource, key = action.resource, action.key
        try:
            written = await self.cluster.delete(resource, key, uid=action.uid, grace=action.grace)
            if written.resource_version:
                self._barrier.wrote(job.uid, resource, written.resource_version)
            else:
                self._barrier.deleted(job.uid, resource, key, action.uid)
            applied.deleted.append(action)
            self._report(job, "delete", action)
        except NotFound as error:
            # A Conflict is for the next pass: no event may follow that brings it about.
            if resource.is_custom:
                # Gone already, and the watch will say so before the next try. Or the API server has just started and
                # does not serve this resource yet.
                raise Conflict(f"{error.message}; its deletion is tried again until the watch shows it") from error
            self._barrier.deleted(job.uid, resource, key, action.uid)
        except Forbidden as refusal:
            applied.failures.append(Failure(action, refusal.why))

    async def _patch(self, job: JobView, action: Patch, applied: Applied) -> None:
        resource, key = action.resource, action.key
        preconditions = {"uid": action.uid, "resourceVersion": str(action.version)}
        body = action.body | {"metadata": action.body.get("metadata", {}) | preconditions}
        try:
            written = await self.cluster.patch(resource, key, msgspec.json.encode(body))
        except NotFound as error:
            raise Conflict(f"{resource} {key} went away while it was being changed") from error
        except (Invalid, Forbidden) as refusal:
            applied.failures.append(Failure(action, refusal.why))
            return
        self._barrier.wrote(job.uid, resource, written.resource_version)
        applied.patched.append(action)
        self._report(job, "patch", action)

    @staticmethod
    def _report(job: JobView, verb: str, action: Create | Delete | Patch) -> None:
        metrics.ACTIONS.labels(verb, action.resource.plural).inc()
        if log.is_enabled_for(logging.DEBUG):
            log.debug(verb, job=str(job.key), resource=action.resource.plural, name=action.key.name, because=action.why)


def _is_former(owner: _OwnerPart, action: Create) -> bool:
    """The owner is a job of the same kind and name, which must have been deleted before this one was created."""
    owners = msgspec.convert(action.body.get("metadata", {}), _MetaPart).owner_references
    return any(o.controller and (o.kind, o.name) == (owner.kind, owner.name) for o in owners)
