"""The scheduler of a cluster with one node: binds unscheduled pods to the node if it is ready."""

from typing import Any

from trainmaster.core.ids import POD
from trainmaster.local.apiserver.controllers.worker import Worker
from trainmaster.local.apiserver.http.status import bad_request, conflict, not_found
from trainmaster.local.apiserver.objects import metadata
from trainmaster.local.apiserver.objects.catalog import NODE
from trainmaster.local.apiserver.objects.state import State
from trainmaster.local.apiserver.store.store import Change, Place, Stored


def bind(state: State, place: Place, node: str, *, binding: dict[str, Any] | None = None) -> Stored:
    """Binds a pod to a node. Raises Refusal if the pod is already bound, is being deleted, or has another uid."""
    try:
        wanted = metadata.normal((binding or {}).get("metadata"))
    except ValueError as error:
        raise bad_request(f"the Binding cannot be read: {error}") from None
    if binding is not None and wanted.get("name") != place.name:
        raise bad_request("name in URL does not match name in Binding object")
    stored = state.store.get(place)
    if stored is None:
        raise not_found(POD, place.name)
    pod = stored.decode()
    meta, spec = pod["metadata"], pod["spec"]
    uid = wanted.get("uid", "")
    if uid and uid != meta["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise conflict(POD, place.name, why)
    if "deletionTimestamp" in meta:
        raise _taken(place, f"pod {place.name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _taken(place, f'pod {place.name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _taken(place, f"pod {place.name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = node
    if "annotations" in wanted:
        meta["annotations"] = {**meta.get("annotations", {}), **wanted["annotations"]}
    _set_scheduled(pod, state.timestamp())
    return state.store.put(place, pod)


def _taken(place: Place, why: str) -> Exception:
    resource = type(POD)(POD.group, POD.version, "pods/binding", POD.kind)
    return conflict(resource, place.name, why)


def node_of_binding(body: Any) -> str:
    """The node of a Binding; raises Refusal."""
    target = body.get("target") if isinstance(body, dict) else None
    if not isinstance(target, dict) or not isinstance(target.get("name"), str) or not target["name"]:
        raise bad_request("a Binding must have target.name, the node")
    if target.get("kind") not in (None, "", "Node"):
        raise bad_request(f'a pod can be bound to a Node only, and target.kind is "{target["kind"]}"')
    return str(target["name"])


def _set_scheduled(pod: dict[str, Any], now: str) -> None:
    status = pod.setdefault("status", {})
    others = [each for each in status.get("conditions") or [] if each.get("type") != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status["conditions"] = [*others, scheduled]


class Scheduler:
    """Follows pods and nodes in the store."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.worker: Worker[Place] = Worker("scheduler", self._handle)
        self._wake_all()
        state.store.listen(self._observe)

    def _observe(self, change: Change) -> None:
        if change.after is None:
            return
        if change.place.resource == str(POD):
            if b'"nodeName"' not in change.after.body:
                self.worker.add(change.place)
        elif change.place.resource == str(NODE) and not _is_usable(change.before) and _is_usable(change.after):
            self._wake_all()

    def _wake_all(self) -> None:
        for stored in self._state.store.select(str(POD)):
            self.worker.add(stored.place)

    def _handle(self, place: Place) -> None:
        stored = self._state.store.get(place)
        if stored is None:
            return
        pod = stored.decode()
        spec = pod["spec"]
        if spec.get("nodeName") or spec.get("schedulingGates") or "deletionTimestamp" in pod["metadata"]:
            return
        node = next((each.place.name for each in self._state.store.select(str(NODE)) if _is_usable(each)), "")
        if node:
            bind(self._state, place, node)


def _is_usable(stored: Stored | None) -> bool:
    if stored is None:
        return False
    node = stored.decode()
    if (node.get("spec") or {}).get("unschedulable") or "deletionTimestamp" in node["metadata"]:
        return False
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
