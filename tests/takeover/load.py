"""Recorded objects as a world in which our operator starts."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.build import SETTINGS, Json, a_container, a_template, an_agconfig
from tests.laws.operator import EPOCH
from tests.matrix.world import World
from trainmaster.core.ids import JOB, NODE, POD, SERVICE, Resource

OBJECTS = Path(__file__).parent / "objects"
RESOURCES = {
    "Pod": POD,
    "Service": SERVICE,
    "Job": JOB,
    "PodGroup": Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"),
}
SET_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "namespace")
JOB_UID = re.compile("controller-uid$")
"""Labels of the pods of batch Jobs, by which the Job selects them."""


def items_of(path: str) -> list[Json]:
    found: dict[str, Any] = msgspec.json.decode((OBJECTS / f"{path}.json").read_bytes())
    return list(found["items"])


def _last_change(path: str) -> datetime:
    stamps = re.findall(r'"(2026-[-0-9]+T[0-9:]+Z)"', (OBJECTS / f"{path}.json").read_text())
    return datetime.fromisoformat(max(stamps))


def world_of(path: str, api_version: str = "") -> World:
    """The job with its children and nodes; our operator starts five seconds after the last of them changed.
    ``api_version`` is for a kind that is served under two groups."""
    job, *children = items_of(path)
    job["apiVersion"] = api_version or job["apiVersion"]
    gang = "scheduler-plugins-scheduler" if "gang" in path else ""
    world = World(job, settings=msgspec.structs.replace(SETTINGS, gang_scheduler=gang), nodes=0)
    world.loop.virtual = (_last_change(path) - EPOCH).total_seconds() + 5
    for node in items_of("cluster/nodes"):
        world.put(NODE, node)
    world.put(world.kind.resource, job)
    if related := world.kind.related:
        config = an_agconfig(a_template(a_container("di-container")))
        metadata = {**config["metadata"], "namespace": related.key.namespace, "name": related.key.name}
        world.put(related.resource, {**config, "metadata": metadata})
    for child in children:
        if resource := RESOURCES.get(child["kind"]):
            world.put(resource, child)
    return world


# --- on a real API server ---


def rank(body: Json) -> tuple[int, int]:
    """Owners first: batch Jobs before their pods, and aggregators before their learners."""
    return ("Job", "Pod", "Service").index(body["kind"]), len(body["metadata"].get("ownerReferences", ()))


def renewed(body: Json, uids: Mapping[str, str]) -> Json:
    """An object to be stored anew: with the uids that its owners have now, by those that they had."""
    meta = body["metadata"]
    given = {key: value for key, value in meta.items() if key not in SET_BY_SERVER}
    given["ownerReferences"] = [owner | {"uid": uids[owner["uid"]]} for owner in meta.get("ownerReferences", ())]
    given["labels"] = {
        key: uids.get(value, value) if JOB_UID.search(key) else value for key, value in meta.get("labels", {}).items()
    }
    return {**body, "metadata": given, "spec": _spec(body)}


def _spec(body: Json) -> Json:
    spec: Json = dict(body["spec"])
    if body["kind"] == "Service" and spec.get("clusterIP") != "None":
        return {key: value for key, value in spec.items() if key not in ("clusterIP", "clusterIPs")}
    if body["kind"] == "Job":
        template: Json = spec["template"]
        labels = {key: value for key, value in template["metadata"]["labels"].items() if not JOB_UID.search(key)}
        rest = {key: value for key, value in spec.items() if key not in ("selector", "manualSelector")}
        return rest | {"template": {**template, "metadata": {"labels": labels}}}
    return spec
