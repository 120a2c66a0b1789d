"""Definitions and statuses of a newer version: during a rolling upgrade, and after a downgrade.

No newer version exists. The test writes what such an operator would store: fields that the operator under test does not
know, in the spec, in the status and in an entry of a map of the status.
"""

from collections.abc import Iterator

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.integration.scene import Job, Scene, uid_of
from tests.manifests.build import Manifest, aitrainingjob, dijob, mx_replica, mxjob, replica
from tests.skew.definition import current, manifest, newer

FIELD = "future"
VALUE = {"verdict": {"by": "a newer operator"}}
LEASE = "aitrainingjobs.elasticdeeplearning.ai"
ELECTION = (
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
)


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> Iterator[ControlPlane]:
    """With definitions of a newer version."""
    plane.apply(manifest(newer(FIELD)))
    yield plane
    plane.apply(manifest(current()))


def restarting(body: Manifest) -> tuple[Manifest, str]:
    """A job, and the role that restarts and in whose entry of ``status.restarts`` a newer operator has written."""
    specs = body["spec"].get("replicaSpecs") or body["spec"]["mxReplicaSpecs"]
    return {**body, "spec": {**body["spec"], FIELD: VALUE}}, next(iter(specs))


AITRAININGJOB = restarting(
    aitrainingjob("ait", replicaSpecs={"trainer": replica(restartPolicy="Always", restartBackoffSeconds=0)})
)
MXJOB = restarting(
    mxjob(
        "mx", mxReplicaSpecs={role: mx_replica(restartPolicy="OnFailure") for role in ("Scheduler", "Server", "Worker")}
    )
)


async def write_as_a_newer_operator(job: Job, role: str) -> None:
    change = {FIELD: VALUE, "restarts": {role: {FIELD: VALUE}}}
    await job.scene.admin.set_status(job.resource, job.scene.namespace, job.name, change)
    await job.until(lambda: FIELD in job.status, "a newer operator has written into its status")


def kept(job: Job, role: str) -> list[object]:
    """What is there of the fields of a newer version."""
    return [job.stored["spec"].get(FIELD), job.status.get(FIELD), job.status["restarts"].get(role, {}).get(FIELD)]


async def restart_and_succeed(job: Job) -> None:
    """A pod fails and comes again; then all of them succeed."""
    failed = uid_of(job.children("pods")[job.slots[0]])
    async with job.scene.kubelet():
        await job.scene.end(job.slots[0], 137)
        await job.until(lambda: failed not in map(uid_of, job.children("pods").values()), "the failed pod is deleted")
        await job.runs_again()
        for name in job.slots:
            await job.scene.end(name, 0)
        await job.reach("Succeed", "Succeeded")


@pytest.mark.parametrize(("body", "role"), [AITRAININGJOB, MXJOB], ids=["AITrainingJob", "MXJob"])
async def test_a_job_of_a_newer_version_runs_to_its_end_and_keeps_all_fields(
    plane: ControlPlane, scene: Scene, body: Manifest, role: str
) -> None:
    async with OperatorProcess(plane):
        job = await scene.create(body)
        await job.start()
        await write_as_a_newer_operator(job, role)
        await restart_and_succeed(job)

        assert kept(job, role) == [VALUE, VALUE, VALUE]
        assert job.status["restarts"][role]["count"] == 1


async def test_a_dijob_of_a_newer_version_keeps_all_fields_when_it_ends(plane: ControlPlane, scene: Scene) -> None:
    async with OperatorProcess(plane):
        job = await scene.create(dijob("di", **{FIELD: VALUE}))
        await job.start()
        await write_as_a_newer_operator(job, "coordinator")
        await job.scene.end(job.slots[0], 0)
        await job.reach("Succeeded")

        assert kept(job, "coordinator") == [VALUE, VALUE, VALUE]


async def test_when_the_leader_of_a_rolling_upgrade_dies_the_other_version_goes_on_and_keeps_all_fields(
    plane: ControlPlane, scene: Scene
) -> None:
    body, role = AITRAININGJOB
    async with OperatorProcess(plane, args=ELECTION, election=scene.namespace) as leader:
        job = await scene.create(body)
        await job.start()
        await write_as_a_newer_operator(job, role)
        async with OperatorProcess(plane, args=ELECTION, election=scene.namespace) as follower:
            leader.kill()
            await restart_and_succeed(job)

            assert f'leader_election_master_status{{name="{LEASE}"}} 1.0' in follower.metrics()
    assert kept(job, role) == [VALUE, VALUE, VALUE]
    assert job.status["restarts"][role]["count"] == 1
