"""A kind of job that does what the test says, and what such jobs and their children look like on the wire."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.build import view_of, view_of_pod, view_of_service
from trainmaster.core.condition import Conditions
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.core.observed import Observed, SlotLabels
from trainmaster.core.plan import Create, Event, Plan, normal, warning
from trainmaster.core.view import CHILD_CODEC, ChildView, JobView, PodView, ServiceView
from trainmaster.core.wire import ObjectMeta, Wire
from trainmaster.kinds.base import Kind, Related, Settings
from trainmaster.lifecycle.summary import Summary

Json = dict[str, Any]

TOY = Resource("test.example", "v1", "toys", "Toy")
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
KEY = Key("ml", "mnist")


class ToyStatus(Wire, frozen=True):
    phase: str = ""
    observed_generation: int = 0
    conditions: Conditions = ()
    active: int = 0
    summary: Summary = Summary()


class Toy(Wire, frozen=True):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: ToyStatus = ToyStatus()


Decide = Callable[[Toy, Observed], Plan]


class ToyKind(Kind[Toy]):
    resource = TOY
    slots = SlotLabels("role", "index")
    component = "toy-operator"
    job_type = Toy
    status_type = ToyStatus
    initial_phase = "Created"
    phases = frozenset({"Created", "Running", "Ended"})
    ended = frozenset({"Ended"})

    def __init__(
        self,
        decide: Decide = lambda job, observed: Plan(),
        related: Related | None = None,
        children: tuple[Resource, ...] = (),
    ) -> None:
        super().__init__(Settings())
        self._related = related
        self._children = children
        self.decided_by = decide
        self.passes: list[tuple[str, float]] = []
        """Of which job, and when."""

    @property
    def related(self) -> Related | None:
        return self._related

    @property
    def children(self) -> tuple[Resource, ...]:
        return self._children

    def errors(self, job: Toy) -> list[str]:
        return []

    def decide(self, job: Toy, observed: Observed, now: datetime) -> Plan:
        self.passes.append((job.metadata.name, asyncio.get_running_loop().time()))
        return self.decided_by(job, observed)

    def action_event(self, verb: str, resource: Resource, names: Sequence[str], error: str = "") -> Event:
        said = f"{verb} {resource.kind.lower()} {', '.join(names)}"
        return warning(f"Failed{verb.capitalize()}", f"{said}: {error}") if error else normal(verb.capitalize(), said)


def toy_json(
    name: str = "mnist", *, uid: str = "", version: int = 100, deleting: bool = False, status: Json | None = None
) -> Json:
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": uid or f"uid-of-{name}",
        "generation": 1,
        "resourceVersion": str(version),
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-15T12:00:00Z"
    body: Json = {"apiVersion": TOY.api_version, "kind": TOY.kind, "metadata": metadata, "spec": {}}
    return body if status is None else body | {"status": status}


def pod_json(
    name: str = "mnist-worker-0",
    *,
    owner: Json | None = None,
    uid: str = "",
    version: int = 100,
    phase: str = "Running",
    deleting: bool = False,
    **status: Any,
) -> Json:
    """A worker of the toy ``owner``, by default of ``toy_json()``."""
    body = pod_body(name, owner)
    body["metadata"] |= {"uid": uid or f"uid-of-{name}", "resourceVersion": str(version)}
    if deleting:
        body["metadata"]["deletionTimestamp"] = "2026-11-15T12:00:00Z"
    return body | {"status": {"phase": phase, **status}}


def pod_body(name: str, owner: Json | None = None) -> Json:
    """A pod as a plan creates it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "labels": {"role": "worker", "index": name.rpartition("-")[2]},
            "ownerReferences": [owner_reference(owner or toy_json())],
        },
        "spec": {"restartPolicy": "Never"},
    }


def owner_reference(owner: Json) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def a_toy(name: str = "mnist", **fields: Any) -> JobView:
    return view_of(toy_json(name, **fields))


def a_pod(name: str = "mnist-worker-0", **fields: Any) -> PodView:
    return view_of_pod(pod_json(name, **fields))


def a_service(name: str = "mnist-worker-0", **fields: Any) -> ServiceView:
    return view_of_service(pod_json(name, **fields))


def child_json(resource: Resource, name: str, *, owner: Json | None = None, version: int = 100) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-of-{name}",
            "resourceVersion": str(version),
            "ownerReferences": [owner_reference(owner or toy_json())],
        },
    }


def a_child(resource: Resource, name: str, **fields: Any) -> ChildView:
    (view,) = CHILD_CODEC.page(a_page(child_json(resource, name, **fields), version=1)).views
    return view


def create_pod(name: str = "mnist-worker-0", owner: Json | None = None) -> Create:
    return Create(POD, pod_body(name, owner), "a worker has no pod")


def create_pods(count: int) -> tuple[Create, ...]:
    return tuple(create_pod(f"mnist-worker-{index}") for index in range(count))


def a_line(change: str, body: Json) -> bytes:
    return msgspec.json.encode({"type": change, "object": body})


def a_bookmark(version: int) -> bytes:
    return a_line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def an_error_line(code: int, message: str) -> bytes:
    status = {"kind": "Status", "metadata": {}, "status": "Failure", "code": code, "message": message}
    return a_line("ERROR", status)


def a_page(*bodies: Json, version: int, cursor: str = "") -> bytes:
    metadata = {"resourceVersion": str(version)} | ({"continue": cursor} if cursor else {})
    return msgspec.json.encode({"metadata": metadata, "items": list(bodies)})
