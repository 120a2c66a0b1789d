"""Recorded objects as a world in which our operator starts."""

import re
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
