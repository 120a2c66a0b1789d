"""An operator that is newer than the definitions: Helm and ``kubectl set image`` do not update them."""

import asyncio
from collections.abc import Iterator

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.integration.scene import Scene, uid_of
from tests.manifests.build import Manifest, aitrainingjob, mx_replica, mxjob, replica
from tests.skew.definition import current, manifest, older
from trainmaster.core.definition import UPDATE_COMMAND

MISSING = ("restarts", "restartHistory", "RestartCount", "RestartReplicaName")

ROLES = ("Scheduler", "Server", "Worker")
JOBS: tuple[Manifest, ...] = (
    aitrainingjob("ait", replicaSpecs={"trainer": replica(restartPolicy="Always", restartBackoffSeconds=0)}),
    mxjob("mx", mxReplicaSpecs={role: mx_replica(restartPolicy="OnFailure") for role in ROLES}),
)


@pytest.fixture
def operator(plane: ControlPlane) -> Iterator[OperatorProcess]:
    """An operator on definitions that lack some fields of the status."""
    plane.apply(manifest(older(*MISSING)))
    try:
        with OperatorProcess(plane, is_waited_for=False) as operator:
            yield operator
            assert "Traceback" not in operator.log
    finally:
        plane.apply(manifest(current()))


async def test_a_restart_that_cannot_be_recorded_is_reported_and_follows_the_update_of_the_definition(
    plane: ControlPlane, operator: OperatorProcess, scene: Scene
) -> None:
    jobs = [await scene.create(body) for body in JOBS]
    await asyncio.gather(*(job.start() for job in jobs))
    before = {job.name: {uid_of(pod) for pod in job.children("pods").values()} for job in jobs}
    failed = {uid_of(job.children("pods")[job.slots[0]]) for job in jobs}
    await asyncio.gather(*(scene.end(job.slots[0], 137) for job in jobs))

    for job in jobs:
        message = await job.says("DefinitionOutdated", "True")
        assert "status.restart" in message
        assert UPDATE_COMMAND in message
    await scene.catch_up()
    assert {job.name: {uid_of(pod) for pod in job.children("pods").values()} for job in jobs} == before
    assert UPDATE_COMMAND in operator.log
    assert not operator.is_ready()

    plane.apply(manifest(current()))
    async with scene.kubelet():
        await asyncio.gather(*(job.says("DefinitionOutdated", "False") for job in jobs))
        await scene.until(lambda: failed.isdisjoint(map(uid_of, scene.pods().values())), "failed pods are deleted")
        await asyncio.gather(*(job.runs_again() for job in jobs))
    assert operator.is_ready()
