"""Jobs that were stored under a definition without a maximum, with the number by which users wrote "no limit"."""

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.integration.scene import Scene
from tests.manifests.build import Manifest, aitrainingjob, mxjob, replica
from tests.skew.definition import Object, changed, current, manifest

NO_LIMIT = 2**63 - 1


def unbounded() -> list[Object]:
    """Definitions whose deadlines have no maximum."""

    def remove(properties: Object) -> None:
        spec = properties["spec"].get("properties", {})
        policy = spec.get("runPolicy", {}).get("properties", {})
        for field in (spec.get("timeLimit"), policy.get("activeDeadlineSeconds")):
            if field:
                field.pop("maximum", None)

    return changed(remove)


@pytest.mark.parametrize(
    "body",
    [
        aitrainingjob("ait", replicaSpecs={"trainer": replica()}, timeLimit=NO_LIMIT),
        mxjob("mx", runPolicy={"activeDeadlineSeconds": NO_LIMIT}),
    ],
    ids=["AITrainingJob", "MXJob"],
)
async def test_a_job_with_a_deadline_above_the_maximum_runs_to_its_end(
    plane: ControlPlane, scene: Scene, body: Manifest
) -> None:
    plane.apply(manifest(unbounded()))
    job = await scene.create(body)
    plane.apply(manifest(current()))
    async with OperatorProcess(plane):
        await job.start()
        for name in job.slots:
            await job.scene.end(name, 0)
        await job.reach("Succeed", "Succeeded")
