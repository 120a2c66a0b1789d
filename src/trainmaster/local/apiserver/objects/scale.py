"""The scale subresource of a custom resource: one object seen through its number of replicas."""

import copy
from typing import Any

from trainmaster.local.apiserver.http.status import internal
from trainmaster.local.apiserver.objects import field_error as cause
from trainmaster.local.apiserver.objects.field_error import Cause
from trainmaster.local.apiserver.objects.resource import Served

API_VERSION = "autoscaling/v1"
KIND = "Scale"


def _paths(served: Served) -> dict[str, str]:
    found: dict[str, str] = (served.definition or {}).get("subresources", {}).get("scale", {})
    return found


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


def _at(obj: dict[str, Any], path: str) -> Any:
    value: Any = obj
    for step in _steps(path):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def show(served: Served, obj: dict[str, Any]) -> dict[str, Any]:
    """The Scale of an object for somebody who asks for it: without a number there is none to show."""
    path = _paths(served)["specReplicasPath"]
    if _at(obj, path) is None:
        raise internal(f'the spec replicas field "{path}" does not exist')
    return read(served, obj)


def read(served: Served, obj: dict[str, Any]) -> dict[str, Any]:
    """The Scale of an object that is to be scaled; a number that is not there counts as zero."""
    paths = _paths(served)
    metadata = obj["metadata"]
    wanted = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": _at(obj, paths.get("statusReplicasPath", "")) or 0}
    selector = _at(obj, paths.get("labelSelectorPath", ""))
    if selector and isinstance(selector, str):
        status["selector"] = selector
    replicas = _at(obj, paths.get("specReplicasPath", ""))
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {key: metadata[key] for key in wanted if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def errors(scale: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Scale that was sent."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        return [cause.wrong_type("spec.replicas", str(replicas), "must be an integer")]
    if replicas < 0:
        return [cause.invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
    return []


def write(served: Served, obj: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    """The object with the number of replicas that a Scale asks for."""
    written = copy.deepcopy(obj)
    *steps, last = _steps(_paths(served)["specReplicasPath"])
    target = written
    for step in steps:
        target = target.setdefault(step, {})
    target[last] = (scale.get("spec") or {}).get("replicas", 0)
    return written
