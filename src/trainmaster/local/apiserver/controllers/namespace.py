"""Deletion of namespaces and CustomResourceDefinitions: first their content, then the object itself."""

from collections.abc import Iterator
from typing import Any

from trainmaster.core.ids import NAMESPACE
from trainmaster.local.apiserver.controllers.worker import Worker
from trainmaster.local.apiserver.http.status import Refusal
from trainmaster.local.apiserver.objects.catalog import DEFINITION
from trainmaster.local.apiserver.objects.delete import DeleteOptions, delete
from trainmaster.local.apiserver.objects.metadata import CLEANUP
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.objects.write import WriteOptions, create, patch
from trainmaster.local.apiserver.store.store import Change, Place, Stored

INITIAL = ("default", "kube-system", "kube-public", "kube-node-lease")
_KUBERNETES = "kubernetes"
_WITH_ALL = DeleteOptions(propagation_policy="Background")


def create_initial(state: State) -> None:
    """Creates the namespaces of every cluster."""
    served = state.catalog.of_resource(str(NAMESPACE))
    assert served is not None  # noqa: S101 – built in
    for name in INITIAL:
        if state.store.get(Place(str(NAMESPACE), "", name)) is None:
            create(state, Target(served), {"metadata": {"name": name}}, WriteOptions())


class ContentDeleter:
    """Deletes the content of namespaces and definitions that are being deleted, then finalizes them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.worker: Worker[Place] = Worker("emptier", self._handle)
        for resource in (str(NAMESPACE), str(DEFINITION)):
            for stored in state.store.select(resource):
                self.worker.add(stored.place)
        state.store.listen(self._observe)

    def _observe(self, change: Change) -> None:
        place = change.place
        if place.resource in (str(NAMESPACE), str(DEFINITION)):
            if change.after is not None and b'"deletionTimestamp"' in change.after.body:
                self.worker.add(place)
        elif change.after is None:
            # It may have been the last object of a namespace or definition that is being deleted.
            for container in (Place(str(NAMESPACE), "", place.namespace), Place(str(DEFINITION), "", place.resource)):
                stored = self._state.store.get(container)
                if stored is not None and b'"deletionTimestamp"' in stored.body:
                    self.worker.add(container)

    def _handle(self, place: Place) -> None:
        stored = self._state.store.get(place)
        if stored is None or "deletionTimestamp" not in stored.decode()["metadata"]:
            return
        for content in tuple(self._content(place)):
            self._delete(content)
        if not any(True for _ in self._content(place)):
            self._finalize(place)

    def _content(self, place: Place) -> Iterator[Stored]:
        if place.resource == str(DEFINITION):
            yield from self._state.store.select(place.name)
            return
        for resource in self._state.store.resources():
            yield from self._state.store.select(resource, place.name)

    def _delete(self, stored: Stored) -> None:
        place = stored.place
        served = self._state.catalog.of_resource(place.resource)
        if served is None:
            self._state.store.remove(place)  # its definition is no longer served, so the API cannot delete it
            return
        if "deletionTimestamp" in stored.decode()["metadata"]:
            return
        try:
            delete(self._state, Target(served, place.namespace, place.name), _WITH_ALL)
        except Refusal:
            return  # deleted meanwhile

    def _finalize(self, place: Place) -> None:
        served = self._state.catalog.of_resource(place.resource)
        if served is None:
            return
        subresource = "finalize" if place.resource == str(NAMESPACE) else ""
        target = Target(served, "", place.name, subresource)
        try:
            patch(self._state, target, _finalized, WriteOptions(validation="Ignore"))
        except Refusal:
            return  # another finalizer is left, or it was deleted meanwhile


def _finalized(obj: dict[str, Any]) -> dict[str, Any]:
    meta = obj["metadata"]
    meta["finalizers"] = [each for each in meta.get("finalizers", []) if each != CLEANUP]
    if obj["kind"] == NAMESPACE.kind:
        spec = obj.get("spec") or {}
        obj["spec"] = {**spec, "finalizers": [each for each in spec.get("finalizers", []) if each != _KUBERNETES]}
    return obj
