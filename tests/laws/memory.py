"""An API server in memory: optimistic concurrency, preconditions, graceful deletion, watch streams that lag.

It answers as kube-apiserver does for the few verbs that the operator uses; ``test_memory`` holds the two
against each other. It also plays the world around the operator: users, kubelets, the garbage collector.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from trainmaster.core.errors import AlreadyExists, Conflict, NotFound
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.runtime.cluster import Written

Object = dict[str, Any]


class Change(NamedTuple):
    type: str
    body: bytes

    def line(self) -> bytes:
        return b'{"type":"' + self.type.encode() + b'","object":' + self.body + b"}"


class MemoryApi:
    """Implements ``runtime.cluster.Cluster`` but for watches, which a test delivers by hand from ``streams``."""

    def __init__(self) -> None:
        self.revision = 100
        self.objects: dict[Resource, dict[Key, Object]] = {}
        self.streams: dict[Resource, list[Change]] = {}
        self._uids = 0

    # --- the port ---

    async def get(self, resource: Resource, key: Key) -> bytes:
        return msgspec.json.encode(self._find(resource, key))

    async def list(
        self, resource: Resource, *, namespace: str = "", selector: str = "", limit: int = 0, cursor: str = ""
    ) -> bytes:
        items = [self.objects.get(resource, {})[key] for key in sorted(self.objects.get(resource, {}))]
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self.revision)}, "items": items})

    def watch(
        self, resource: Resource, *, namespace: str = "", selector: str = "", resource_version: str, timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise AssertionError("watches are delivered by hand")

    async def create(self, resource: Resource, namespace: str, body: bytes) -> Written:
        given: Object = msgspec.json.decode(body)
        key = Key(namespace, given["metadata"]["name"])
        if key in self.objects.setdefault(resource, {}):
            raise AlreadyExists(f'{resource} "{key.name}" already exists', code=409)
        self._uids += 1
        given["metadata"] |= {"namespace": namespace, "uid": f"uid-{self._uids}", "generation": 1}
        if resource == POD:
            given["status"] = {"phase": "Pending"}
        return self._store("ADDED", resource, key, given)

    async def replace(self, resource: Resource, key: Key, body: bytes) -> Written:
        raise AssertionError("only leases are replaced")

    async def patch(self, resource: Resource, key: Key, patch: bytes, *, subresource: str = "") -> Written:
        given: Object = msgspec.json.decode(patch)
        current = self._find(resource, key)
        meta = current["metadata"]
        for precondition, wanted in given.pop("metadata", {}).items():
            if precondition in ("uid", "resourceVersion") and meta[precondition] != wanted:
                raise Conflict(f"{resource} {key}: {precondition} is {meta[precondition]}, not {wanted}", code=409)
        part = {"status": given.get("status", {})} if subresource == "status" else without(given, "status")
        changed = _merged(current, part)
        if changed == current:
            return _written(current)
        if subresource != "status":
            changed["metadata"]["generation"] += 1
        return self._store("MODIFIED", resource, key, changed)

    async def delete(self, resource: Resource, key: Key, *, uid: str, grace: int | None = None) -> Written:
        current = self._find(resource, key)
        if uid and current["metadata"]["uid"] != uid:
            raise Conflict(f"{resource} {key}: uid is not {uid}", code=409)
        if resource == POD and current.get("spec", {}).get("nodeName") and grace != 0:
            if "deletionTimestamp" in current["metadata"]:
                return _written(current)
            leaving = deepcopy(current)
            leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
            return self._store("MODIFIED", resource, key, leaving)
        self._remove(resource, key)
        return Written("", 0)

    # --- the world around the operator ---

    def bind(self, key: Key, node: str) -> None:
        pod = deepcopy(self.objects[POD][key])
        pod["spec"]["nodeName"] = node
        self._store("MODIFIED", POD, key, pod)

    def set_status(self, resource: Resource, key: Key, status: Object) -> None:
        changed = _merged(self.objects[resource][key], {"status": status})
        self._store("MODIFIED", resource, key, changed)

    def edit(self, resource: Resource, key: Key, spec: Object) -> None:
        """A user applies a new spec."""
        changed = deepcopy(self.objects[resource][key])
        if changed["spec"] != spec:
            changed["spec"] = spec
            changed["metadata"]["generation"] += 1
            self._store("MODIFIED", resource, key, changed)

    def remove(self, resource: Resource, key: Key) -> None:
        """Gone at once, as after a forced delete or when the kubelet has ended the last process."""
        self._remove(resource, key)

    def owned_by(self, uid: str, resource: Resource) -> dict[Key, Object]:
        found = self.objects.get(resource, {}).items()
        return {key: body for key, body in found if owner_uid(body) == uid}

    def collect_garbage(self, jobs: Resource, children: tuple[Resource, ...]) -> None:
        """Children of jobs that are no more go too."""
        alive = {body["metadata"]["uid"] for body in self.objects.get(jobs, {}).values()}
        for resource in children:
            for key, body in list(self.objects.get(resource, {}).items()):
                if (uid := owner_uid(body)) and uid not in alive:
                    self._remove(resource, key)

    # --- inside ---

    def _find(self, resource: Resource, key: Key) -> Object:
        try:
            return self.objects.get(resource, {})[key]
        except KeyError:
            raise NotFound(f"{resource} {key} not found", code=404) from None

    def _store(self, type_: str, resource: Resource, key: Key, body: Object) -> Written:
        self.revision += 1
        body["metadata"]["resourceVersion"] = str(self.revision)
        self.objects.setdefault(resource, {})[key] = body
        self.streams.setdefault(resource, []).append(Change(type_, msgspec.json.encode(body)))
        return _written(body)

    def _remove(self, resource: Resource, key: Key) -> None:
        body = deepcopy(self.objects[resource].pop(key))
        self.revision += 1
        body["metadata"]["resourceVersion"] = str(self.revision)
        self.streams.setdefault(resource, []).append(Change("DELETED", msgspec.json.encode(body)))


def owner_uid(body: Object) -> str:
    owners = body["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def without(body: Object, key: str) -> Object:
    return {k: v for k, v in body.items() if k != key}


def _merged(target: Object, patch: Object) -> Object:
    """RFC 7386."""
    merged = deepcopy(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            inner = merged.get(key)
            merged[key] = _merged(inner if isinstance(inner, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def _written(body: Object) -> Written:
    return Written(body["metadata"]["uid"], int(body["metadata"]["resourceVersion"]))
