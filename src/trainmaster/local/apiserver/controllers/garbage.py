"""The garbage collector: deletes objects without owners, and applies the propagation policy of deleted owners.

Kubernetes' rules: an owner reference is valid if an object of that kind, name and uid exists. A dependent without a
valid owner is deleted. An owner that is deleted in the foreground waits for the dependents that block it; one that
orphans its dependents is removed from their owner references first.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from trainmaster.local.apiserver.controllers.worker import Worker
from trainmaster.local.apiserver.http.status import Refusal
from trainmaster.local.apiserver.objects.delete import FOREGROUND, ORPHAN, DeleteOptions, Preconditions, delete
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.objects.write import WriteOptions, patch
from trainmaster.local.apiserver.store.store import Change, Place, Stored

_OWNERS = b'"ownerReferences"'


class GarbageCollector:
    """Tracks owners and dependents by following the store."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dependents: defaultdict[str, set[Place]] = defaultdict(set)
        self.worker: Worker[Place] = Worker("garbage", self._handle)
        for resource in state.store.resources():
            for stored in state.store.select(resource):
                self._link(stored)
                self.worker.add(stored.place)
        state.store.listen(self._observe)

    def _observe(self, change: Change) -> None:
        if change.before is not None:
            self._unlink(change.before)
        if change.after is not None:
            self._link(change.after)
            if _OWNERS in change.after.body or b'"deletionTimestamp"' in change.after.body:
                self.worker.add(change.place)
        else:
            # Its dependents, and owners that waited for its deletion.
            last = change.last.decode()
            for place in self._dependents.get(last["metadata"]["uid"], ()):
                self.worker.add(place)
            for owner in _owners(last):
                self._add_owner(change.place, owner)

    def _add_owner(self, dependent: Place, owner: dict[str, Any]) -> None:
        stored = self._owner(dependent, owner)
        if stored is not None:
            self.worker.add(stored.place)

    def _link(self, stored: Stored) -> None:
        if _OWNERS in stored.body:
            for owner in _owners(stored.decode()):
                self._dependents[owner["uid"]].add(stored.place)

    def _unlink(self, stored: Stored) -> None:
        if _OWNERS in stored.body:
            for owner in _owners(stored.decode()):
                places = self._dependents[owner["uid"]]
                places.discard(stored.place)
                if not places:
                    del self._dependents[owner["uid"]]

    def _handle(self, place: Place) -> None:
        stored = self._state.store.get(place)
        if stored is None:
            return
        obj = stored.decode()
        meta = obj["metadata"]
        finalizers = meta.get("finalizers", [])
        if "deletionTimestamp" in meta and ORPHAN in finalizers:
            self._orphan(place, meta)
        elif "deletionTimestamp" in meta and FOREGROUND in finalizers:
            self._wait_for_dependents(place, meta)
        elif "deletionTimestamp" not in meta and _owners(obj):
            self._collect(place, obj)
        for owner in _owners(obj):
            # The dependent may no longer block its owner.
            self._add_blocked(place, owner)

    def _add_blocked(self, place: Place, owner: dict[str, Any]) -> None:
        stored = self._owner(place, owner)
        if stored is not None and _waits(stored) and not list(self._blocking(stored)):
            self.worker.add(stored.place)

    def _owner(self, dependent: Place, owner: dict[str, Any]) -> Stored | None:
        """The owner of a reference, if it exists with the same uid."""
        served = self._state.catalog.of_kind(owner["apiVersion"], owner["kind"])
        if served is None:
            return None
        namespace = dependent.namespace if served.namespaced else ""
        stored = self._state.store.get(Place(str(served.resource), namespace, owner["name"]))
        if stored is None or stored.decode()["metadata"]["uid"] != owner["uid"]:
            return None
        return stored

    def _collect(self, place: Place, obj: dict[str, Any]) -> None:
        """Deletes an object without owners. If some owners are left, removes references to deleted and waiting ones."""
        owners = _owners(obj)
        if any(self._state.catalog.of_kind(owner["apiVersion"], owner["kind"]) is None for owner in owners):
            return  # the existence of an owner of an unknown kind cannot be checked
        pairs = [(owner, self._owner(place, owner)) for owner in owners]
        kept = [owner for owner, stored in pairs if stored is not None and not _waits(stored)]
        if kept and len(kept) < len(owners):
            self._change(place, lambda target: target["metadata"].update(ownerReferences=kept))
        elif not kept:
            is_awaited = any(stored is not None and owner.get("blockOwnerDeletion") for owner, stored in pairs)
            has_dependents = bool(self._dependents.get(obj["metadata"]["uid"]))
            self._delete(place, obj["metadata"], "Foreground" if is_awaited and has_dependents else "Background")

    def _wait_for_dependents(self, place: Place, meta: dict[str, Any]) -> None:
        stored = self._state.store.get(place)
        blocking = [] if stored is None else list(self._blocking(stored))
        if not blocking:
            self._change(place, lambda target: _without_finalizer(target, FOREGROUND))
        for dependent in blocking:
            self.worker.add(dependent)

    def _blocking(self, owner: Stored) -> Iterator[Place]:
        uid = owner.decode()["metadata"]["uid"]
        for place in self._dependents.get(uid, ()):
            stored = self._state.store.get(place)
            if stored is not None and any(
                each["uid"] == uid and each.get("blockOwnerDeletion") for each in _owners(stored.decode())
            ):
                yield place

    def _orphan(self, place: Place, meta: dict[str, Any]) -> None:
        uid = meta["uid"]
        for dependent in tuple(self._dependents.get(uid, ())):
            self._change(dependent, lambda target: _without_owner(target, uid))
        self._change(place, lambda target: _without_finalizer(target, ORPHAN))

    def _delete(self, place: Place, meta: dict[str, Any], policy: str) -> None:
        served = self._state.catalog.of_resource(place.resource)
        if served is None:
            return
        says_itself = not {ORPHAN, FOREGROUND}.isdisjoint(meta.get("finalizers", ()))
        options = DeleteOptions(
            preconditions=Preconditions(uid=meta["uid"]), propagation_policy=None if says_itself else policy
        )
        try:
            delete(self._state, Target(served, place.namespace, place.name), options)
        except Refusal:
            return  # deleted or replaced meanwhile

    def _change(self, place: Place, change: Any) -> None:
        served = self._state.catalog.of_resource(place.resource)
        if served is None:
            return

        def changed(obj: dict[str, Any]) -> dict[str, Any]:
            change(obj)
            return obj

        try:
            patch(self._state, Target(served, place.namespace, place.name), changed, WriteOptions(validation="Ignore"))
        except Refusal:
            return  # deleted meanwhile


def _owners(obj: dict[str, Any]) -> list[dict[str, Any]]:
    owners: list[dict[str, Any]] = obj["metadata"].get("ownerReferences", [])
    return owners


def _waits(stored: Stored) -> bool:
    meta = stored.decode()["metadata"]
    return "deletionTimestamp" in meta and FOREGROUND in meta.get("finalizers", [])


def _without_finalizer(obj: dict[str, Any], name: str) -> None:
    obj["metadata"]["finalizers"] = [each for each in obj["metadata"].get("finalizers", []) if each != name]


def _without_owner(obj: dict[str, Any], uid: str) -> None:
    obj["metadata"]["ownerReferences"] = [each for each in _owners(obj) if each["uid"] != uid]
