"""The scheduler of a cluster with one node: binds unscheduled pods to the node if it is ready and has their GPUs."""

from typing import Any

from trainmaster.core.ids import NODE, POD
from trainmaster.local.apiserver.controllers.worker import Worker
from trainmaster.local.apiserver.http.status import bad_request, conflict, not_found
from trainmaster.local.apiserver.objects import metadata
from trainmaster.local.apiserver.objects.state import State
from trainmaster.local.apiserver.store.store import Change, Place, Stored
from trainmaster.local.gpu import GPU, gpus_of


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


def _set_scheduled(pod: dict[str, Any], now: str, message: str = "") -> bool:
    """``message`` says why the pod cannot be scheduled. False if the condition was the same before."""
    conditions = pod.setdefault("status", {}).get("conditions") or []
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    if message:
        scheduled |= {"status": "False", "reason": "Unschedulable", "message": message}
    before: dict[str, Any] = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
    if before.get("status") == scheduled["status"]:
        scheduled["lastTransitionTime"] = before.get("lastTransitionTime")
    pod["status"]["conditions"] = [*(each for each in conditions if each is not before), scheduled]
    return before != scheduled


class Scheduler:
    """Follows pods and nodes in the store."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: set[Place] = set()
        """Pods for which there are not enough GPUs."""
        self.worker: Worker[Place] = Worker("scheduler", self._handle)
        self._wake_all()
        state.store.listen(self._observe)

    def _observe(self, change: Change) -> None:
        if change.place.resource == str(POD):
            if change.after is not None and b'"nodeName"' not in change.after.body:
                self.worker.add(change.place)
            elif self._waiting and _gpus_in_use(change.before) > _gpus_in_use(change.after):
                for place in self._waiting:
                    self.worker.add(place)
        elif change.place.resource == str(NODE) and _room(change.before) != _room(change.after):
            self._wake_all()

    def _wake_all(self) -> None:
        for stored in self._state.store.select(str(POD)):
            self.worker.add(stored.place)

    def _handle(self, place: Place) -> None:
        self._waiting.discard(place)
        stored = self._state.store.get(place)
        if stored is None:
            return
        pod = stored.decode()
        spec = pod["spec"]
        if spec.get("nodeName") or spec.get("schedulingGates") or "deletionTimestamp" in pod["metadata"]:
            return
        node = next((each for each in self._state.store.select(str(NODE)) if _is_usable(each)), None)
        if node is None:
            return
        if message := self._shortage(gpus_of(spec), node):
            self._waiting.add(place)
            if _set_scheduled(pod, self._state.timestamp(), message):
                self._state.store.put(place, pod)
            return
        bind(self._state, place, node.place.name)

    def _shortage(self, count: int, node: Stored) -> str:
        """Why a pod with this number of GPUs cannot run now; empty if it can."""
        if not count:
            return ""
        room = _room(node)
        free = room - sum(map(_gpus_in_use, self._state.store.select(str(POD))))
        if count <= free:
            return ""
        have = f"{free} of {room} are free" if room else "this machine has none"
        return f"0/1 nodes are available: 1 Insufficient {GPU}: the pod requests {count}, and {have}"


def _gpus_in_use(stored: Stored | None) -> int:
    """Of a pod that is bound to a node and has not ended."""
    if stored is None or GPU.encode() not in stored.body:
        return 0
    pod = stored.decode()
    is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return 0 if is_over or not pod["spec"].get("nodeName") else gpus_of(pod["spec"])


def _room(stored: Stored | None) -> int:
    """The GPUs of a node; -1 if it takes no pods."""
    if stored is None or not _is_usable(stored):
        return -1
    count = str(((stored.decode().get("status") or {}).get("allocatable") or {}).get(GPU, "0"))
    return int(count) if count.isdecimal() else 0


def _is_usable(stored: Stored | None) -> bool:
    if stored is None:
        return False
    node = stored.decode()
    if (node.get("spec") or {}).get("unschedulable") or "deletionTimestamp" in node["metadata"]:
        return False
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
