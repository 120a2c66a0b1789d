"""The operator sees what another one left: its watches ask for these objects, too."""

import asyncio

import pytest

from tests.build import SETTINGS
from tests.matrix.world import matches
from tests.runtime.cluster import FakeCluster
from tests.takeover.load import RESOURCES, items_of
from trainmaster.core.ids import Resource
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.wiring.manager import build_manager

RUNNING = (
    "aitrainingjob-148db3b/ps-trainer/running",
    "kubeflow-1.7/train/running",
    "di-v0.2.2/parallel/running",
    "mxjob-mlkube-c377703/dist/running",
)


async def _selectors() -> dict[Resource, set[str]]:
    """What an operator lists of each resource."""
    cluster, stop = FakeCluster(), asyncio.Event()
    manager = build_manager(cluster, all_resource_kinds(SETTINGS))
    running = asyncio.ensure_future(manager.run(stop))
    while not manager.is_ready:  # noqa: ASYNC110 readiness has no event
        await asyncio.sleep(0)
    stop.set()
    await running
    found: dict[Resource, set[str]] = {}
    for call in cluster.calls:
        if call.verb == "list":
            found.setdefault(call.resource, set()).add(call.options.get("selector", ""))
    return found


@pytest.mark.parametrize("path", RUNNING)
async def test_the_operator_watches_the_children_of_its_predecessor(path: str) -> None:
    selectors = await _selectors()

    unseen = [
        f"{child['kind']} {child['metadata']['name']}"
        for child in items_of(path)
        if (resource := RESOURCES.get(child["kind"]))
        and not any(matches(child["metadata"].get("labels", {}), selector) for selector in selectors[resource])
    ]

    assert unseen == []
