"""A namespace that is deleted with a job in it."""

import asyncio
from typing import Any

import pytest

from testbed.operator import OperatorProcess
from tests.e2e.kinds import KINDS, Kind
from tests.integration.metric import Metrics
from tests.integration.scene import Scene


def counts(status: dict[str, Any]) -> dict[str, Any]:
    """The parts of a status that a failed pod changes."""
    return {name: status.get(name) for name in ("restarts", "restartHistory", "failure", "completionTime")}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_the_end_of_a_namespace_is_no_failure_of_its_jobs(
    operator: OperatorProcess, scene: Scene, elsewhere: Scene, kind: Kind
) -> None:
    """The controller of namespaces deletes pods before jobs. It does not run here: the job stays, and can be read."""
    job = await scene.create(kind.manifest(scene.namespace))
    await job.start()
    before, pods = counts(job.status), scene.incarnations("pods")

    await scene.admin.delete("namespaces", None, scene.namespace)
    async with scene.kubelet():
        for name in scene.pods():
            await scene.admin.delete("pods", scene.namespace, name)
        await scene.until(lambda: not scene.pods(), "its pods are gone")
    await elsewhere.settled()  # the operator has had its time

    assert counts(job.status) == before
    assert scene.incarnations("pods") == pods


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_nothing_is_created_or_warned_of_while_a_namespace_terminates(
    operator: OperatorProcess, scene: Scene, elsewhere: Scene, kind: Kind
) -> None:
    """The pods of its job wait for a node when they are deleted, so the job is to get others."""
    dropped = await _dropped(operator)
    job = await scene.create(kind.manifest(scene.namespace))
    await job.pods_are_there()
    pods = scene.incarnations("pods")

    await scene.admin.delete("namespaces", None, scene.namespace)
    for name in scene.pods():
        await scene.admin.delete("pods", scene.namespace, name, grace=0)
    await scene.until(lambda: not scene.pods(), "its pods are gone")
    await elsewhere.settled()

    assert scene.incarnations("pods") == pods
    assert not job.condition("PodCreateFailed")
    assert await _dropped(operator) == dropped
    warnings = [line for line in operator.log.splitlines() if "warning" in line.lower() and scene.namespace in line]
    assert not [line for line in warnings if "being terminated" in line]


async def _dropped(operator: OperatorProcess) -> float:
    metrics = Metrics(await asyncio.to_thread(operator.metrics))
    return metrics.total("trainmaster_events_dropped_total", because="refused")
