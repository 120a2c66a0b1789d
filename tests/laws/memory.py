"""An API server in memory: optimistic concurrency, preconditions, graceful deletion, watch streams that lag.

It answers as kube-apiserver does for the few verbs that the operator uses; ``test_memory`` holds the two
against each other. It also plays the world around the operator: users, kubelets, the garbage collector.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from trainmaster.core.errors import AlreadyExists, Conflict, Invalid, NotFound
from trainmaster.core.ids import CONFIG_MAP, POD, SERVICE, Key, Resource
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
        self.doomed: set[str] = set()
        """Pods, by uid, that were on a node while it was lost."""
        self.owners: dict[str, str] = {}
        """The uid of the owner of every object that there ever was, by its own."""
        self._uids = 0

    # --- the port ---

    async def get(self, resource: Resource, key: Key) -> bytes:
        return msgspec.json.encode(self._find(resource, key))

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
        found = self.objects.get(resource, {})
        items = [found[key] for key in sorted(found) if namespace in ("", key.namespace)]
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self.revision)}, "items": items})

    async def version(self, resource: Resource, *, namespace: str = "", fields: str = "") -> int:
        return self.revision

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
        given: Object = msgspec.json.decode(body)
        key = Key(namespace, given["metadata"]["name"])
        if key in self.objects.setdefault(resource, {}):
            raise AlreadyExists(f'{resource} "{key.name}" already exists', code=409)
        self._uids += 1
        given["metadata"] |= {"namespace": namespace, "uid": f"uid-{self._uids}"}
        if resource not in (SERVICE, CONFIG_MAP):  # which have no generations
            given["metadata"]["generation"] = 1
        if resource == POD:
            given["status"] = {"phase": "Pending"}
        return self._store("ADDED", resource, key, given)

    async def replace(self, resource: Resource, key: Key, body: bytes) -> Written:
        raise AssertionError("only leases are replaced")

    async def patch(
        self, resource: Resource, key: Key, patch: bytes, *, subresource: str = "", strict: bool = False
    ) -> Written:
        given: Object = msgspec.json.decode(patch)
        current = self._find(resource, key)
        stored, asked = current["metadata"], given.get("metadata", {})
        if asked.get("resourceVersion", stored["resourceVersion"]) != stored["resourceVersion"]:
            raise Conflict(f"{resource} {key}: the object has been modified", code=409)
        if subresource == "status":
            # Nothing of the metadata is looked at besides the version: a uid is no precondition here.
            changed = _merged(current, {"status": given.get("status", {})})
        elif asked.get("uid", stored["uid"]) != stored["uid"]:
            raise Invalid(f"{resource} {key}: metadata.uid: field is immutable", code=422)
        else:
            changed = _merged(current, without(given, "status"))
        if changed == current:
            return _written(current)
        if changed.get("spec") != current.get("spec"):
            changed["metadata"]["generation"] += 1
        return self._store("MODIFIED", resource, key, changed)

    async def delete(self, resource: Resource, key: Key, *, uid: str, grace: int | None = None) -> Written:
        """An empty ``uid`` is for users, who name no incarnation."""
        current = self._find(resource, key)
        if uid and current["metadata"]["uid"] != uid:
            raise Conflict(f"{resource} {key}: uid is not {uid}", code=409)
        return self._delete(resource, key, grace)

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

    def annotate(self, resource: Resource, key: Key, annotations: Object) -> None:
        """A user sets these annotations, and no others."""
        changed = deepcopy(self.objects[resource][key])
        changed["metadata"]["annotations"] = annotations
        self._store("MODIFIED", resource, key, changed)

    def remove(self, resource: Resource, key: Key) -> None:
        """Gone at once, as after a forced delete or when the kubelet has ended the last process."""
        self._delete(resource, key, grace=0)

    def owned_by(self, uid: str, resource: Resource) -> dict[Key, Object]:
        found = self.objects.get(resource, {}).items()
        return {key: body for key, body in found if owner_uid(body) == uid}

    def collect_garbage(self, jobs: Resource, children: tuple[Resource, ...]) -> None:
        """Children of jobs that are no more are deleted too, and their children, pods on a node gracefully."""
        owners = (jobs, *children)
        alive = {body["metadata"]["uid"] for resource in owners for body in self.objects.get(resource, {}).values()}
        for resource in children:
            for key, body in list(self.objects.get(resource, {}).items()):
                if (uid := owner_uid(body)) and uid not in alive:
                    self._delete(resource, key, grace=None)

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
        self.owners[body["metadata"].get("uid", "")] = owner_uid(body)
        self.streams.setdefault(resource, []).append(Change(type_, msgspec.json.encode(body)))
        return _written(body)

    def _delete(self, resource: Resource, key: Key, grace: int | None) -> Written:
        if resource == POD:
            current = self.objects[POD][key]
            is_leaving = "deletionTimestamp" in current["metadata"]
            if grace != 0 and (is_leaving or _is_alive(current)):
                return _written(current) if is_leaving else self._leave(key)
            self._leave(key)  # what goes at once is marked, too, and a watch tells it
        written = self._remove(resource, key)
        # A custom resource answers with a Status, which has no version.
        return written if resource in (POD, SERVICE) else Written("", 0)

    def _leave(self, key: Key) -> Written:
        pod = deepcopy(self.objects[POD][key])
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"] |= {
                "deletionTimestamp": "2026-01-01T00:00:30Z",
                "generation": pod["metadata"]["generation"] + 1,
            }
        return self._store("MODIFIED", POD, key, pod)

    def _remove(self, resource: Resource, key: Key) -> Written:
        body = deepcopy(self.objects[resource].pop(key))
        self.revision += 1
        body["metadata"]["resourceVersion"] = str(self.revision)
        self.streams.setdefault(resource, []).append(Change("DELETED", msgspec.json.encode(body)))
        return _written(body)


def owner_uid(body: Object) -> str:
    owners = body["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def _is_alive(pod: Object) -> bool:
    """A kubelet has to stop it first."""
    return bool(pod["spec"].get("nodeName")) and pod["status"]["phase"] not in ("Succeeded", "Failed")


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
