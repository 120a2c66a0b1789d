"""Objects with a wrong type in each field, for all reflectors of operator and di-server and for the plans of all kinds.

The stores are those of an operator of all kinds, with their listeners: no object stops a reflector, hides another one,
or makes a listener raise.
"""

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import msgspec
import pytest

from tests.build import NOW, SETTINGS
from tests.manifests import good
from tests.manifests.build import Manifest
from tests.odd import MARK, WRONG, Json, deep, variants, with_value
from tests.runtime.cluster import FakeCluster
from trainmaster.core.ids import CONFIG_MAP, JOB, NODE, POD, SERVICE, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import JOB_CODEC
from trainmaster.diserver import cache
from trainmaster.diserver.cache import Cache
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.reflector import Reflector
from trainmaster.wiring import manager

KINDS = all_resource_kinds(msgspec.structs.replace(SETTINGS, gang_scheduler="volcano"))
UNREADABLE = ("no JSON", "half a surrogate pair")
STAMP = "2026-11-15T11:59:00Z"


def kinds_of(manifest: Manifest) -> ResourceKinds:
    named = manifest["apiVersion"].rpartition("/")[0], manifest["kind"]
    return next(kinds for kinds in KINDS if (kinds.resource.group, kinds.resource.kind) == named)


def stored(manifest: Manifest) -> Json:
    """A job as the API server has it after its first pass."""
    metadata = {
        **manifest["metadata"],
        "namespace": "ml",
        "uid": "uid-of-odd",
        "resourceVersion": "500",
        "generation": 1,
        "creationTimestamp": STAMP,
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
    }
    body = {**manifest, "metadata": metadata}
    view = JOB_CODEC.object(msgspec.json.encode(body))
    kind = kinds_of(manifest).of(view.raw)
    return {**body, "status": kind.plan(view, Observed.of((), (), kind.slots), NOW).status or {}}


JOBS = {manifest["metadata"]["name"]: manifest for manifest in (good.PARALLEL, good.MNIST, good.NERVEX, good.MX)}
JOBS |= {manifest["metadata"]["name"]: manifest for manifest in (good.MLKUBE, good.MLKUBE_FIRST)}


def child(resource: Resource, owner: Json) -> Json:
    """A child of a job with all fields that a view has."""
    reference = {"controller": True, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    why = {"reason": "r", "message": "m"}
    state = {"terminated": {"exitCode": 1, **why}, "waiting": why}
    port = {"containerPort": 80, "hostPort": 20001}
    container = {"name": "main", "ports": [port], "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    condition = {"type": "Ready", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": STAMP}
    status = {"name": "main", "image": "x", "restartCount": 1, "state": state, "lastState": state}
    status["allocatedResourcesStatus"] = [{"name": "nvidia.com/gpu", "resources": [{"health": "Healthy"}]}]
    return {
        "metadata": {
            "name": "odd",
            "namespace": "" if resource == NODE else "ml",
            "uid": "uid-of-odd",
            "resourceVersion": "500",
            "creationTimestamp": STAMP,
            "deletionTimestamp": STAMP,
            "deletionGracePeriodSeconds": 30,
            "labels": dict(MANAGED_BY),
            "ownerReferences": [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], **reference}],
            "managedFields": [{"manager": "x"}],
        },
        "spec": {
            "nodeName": "node-1",
            "restartPolicy": "Never",
            "suspend": False,
            "minMember": 1,
            "containers": [container],
            "taints": [{"key": "node.kubernetes.io/unreachable", "timeAdded": STAMP}],
        },
        "status": {
            "phase": "Failed",
            "reason": "r",
            "message": "m",
            "startTime": STAMP,
            "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [condition],
            "containerStatuses": [status],
            "initContainerStatuses": [status],
            "allocatable": {"nvidia.com/gpu": "8"},
        },
        "data": {"a": "b"},
    }


def parts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Reflector[Any], Resource, str]]:
    """Every reflector that the programs make, its resource and its selector. They read from what ``cluster`` has."""
    made: list[tuple[Reflector[Any], Resource, str]] = []

    def build(cluster: Any, store: Any, codec: Any, **options: Any) -> Reflector[Any]:
        reflector = Reflector(FakeCluster(), store, codec, **options)
        made.append((reflector, store.resource, options.get("selector", "")))
        return reflector

    for module in (manager, cache):
        monkeypatch.setattr(module, "Reflector", build)
    for controller in manager.build_manager(FakeCluster(), KINDS)._controllers:
        controller._is_working = True
    Cache(FakeCluster())
    return made


def objects_of(resource: Resource) -> Iterator[Json]:
    """Good objects of a resource, all called ``odd``."""
    own = [manifest for manifest in JOBS.values() if kinds_of(manifest).resource == resource]
    for manifest in own:
        yield stored({**manifest, "metadata": {"name": "odd"}})
    if not own:
        yield child(resource, stored(good.PARALLEL))


def renamed(raw: bytes, name: bytes) -> bytes:
    return raw.replace(b'"name":"odd"', b'"name":"%s"' % name)


def odd_objects(good_one: Json, turn: int) -> Iterator[bytes]:
    """Each field with a third of the wrong values, in turn: many reflectors have the same decoder."""
    for number, (_, marked) in enumerate(variants(good_one)):
        for kind, value in enumerate(WRONG.values()):
            if (number + kind + turn) % 3 == 0:
                yield renamed(with_value(marked, value), b"odd-%d-%d" % (number, kind))


def large_objects(good_one: Json) -> Iterator[bytes]:
    marked = {**good_one, "spec": {**good_one["spec"], "odd": MARK}}
    for name, value in ((b"deep", deep(1500)), (b"deepest", deep(9900)), (b"large", b'"%s"' % (b"x" * 1_400_000))):
        yield renamed(with_value(marked, value), name)


@pytest.mark.looptime
async def test_no_object_stops_a_reflector_or_hides_another_or_makes_a_listener_raise(
    monkeypatch: pytest.MonkeyPatch, logs: list[MutableMapping[str, Any]]
) -> None:
    made = parts(monkeypatch)
    assert {resource for _, resource, _ in made} >= {POD, SERVICE, NODE, CONFIG_MAP, JOB, *(k.resource for k in KINDS)}
    tried: set[Resource] = set()
    for turn, (reflector, resource, selector) in enumerate(made):
        for good_one in objects_of(resource):
            good_raw, odd = msgspec.json.encode(good_one), list(odd_objects(good_one, turn))
            odd += large_objects(good_one) if resource not in tried else ()
            tried.add(resource)
            cluster, store = FakeCluster(), reflector._store
            first, last, new = (renamed(good_raw, name) for name in (b"first", b"last", b"new"))
            page = b",".join([first, *odd, last])
            cluster.pages.append(b'{"items":[%s],"metadata":{"resourceVersion":"400"}}' % page)
            cluster.watches.append([*(b'{"type":"MODIFIED","object":%s}' % raw for raw in (*odd, new)), 100.0])
            reflector._cluster, reflector._version = cluster, ""
            task = asyncio.create_task(reflector.run())
            await asyncio.wait({task}, timeout=5)
            assert not task.done(), f"{resource} {selector}"
            names = {key.name for key in store.keys()}  # noqa: SIM118 a store is no dict
            assert names >= {"first", "last", "new"}, f"{resource} {selector}"
            assert (len(cluster.asked("list")), len(cluster.asked("watch"))) == (1, 1), f"{resource} {selector}"
            task.cancel()
    defects = [line for line in logs if "defect" in line["event"]]
    assert defects == []


@pytest.mark.parametrize("name", JOBS)
def test_every_field_of_a_job_with_a_wrong_type_is_planned_or_told_in_a_condition(name: str) -> None:
    kinds, body = kinds_of(JOBS[name]), stored(JOBS[name])
    for path, marked in variants(body):
        for wrong, value in WRONG.items():
            try:
                view = JOB_CODEC.object(with_value(marked, value))
            except ValueError:
                assert path.startswith("metadata") or wrong in UNREADABLE, f"{path}: {wrong}"
                continue
            kind = kinds.of(view.raw)
            plan = kind.plan(view, Observed.of((), (), kind.slots), NOW)
            msgspec.json.encode([create.body for create in plan.creates])
            assert kind.known_status(view) is not None, f"{path}: {wrong}"
            assert kind.is_foreign(view) in (True, False), f"{path}: {wrong}"
