"""Elastic jobs on a real API server: scaled by kubectl and by an autoscaler, and smaller after the loss of a node."""

import asyncio
import json
from typing import Any

import pytest

from testbed.admin import eventually
from testbed.answer import Refused
from testbed.plane import ControlPlane
from tests.faults.world import PATIENCE, is_deleting
from tests.integration.scene import Job, Scene
from tests.manifests.build import Manifest, aitrainingjob, replica

AITJ = "elasticdeeplearning.ai/v1/aitrainingjobs"
NAME = "job-membership"

pytestmark = pytest.mark.usefixtures("operator")


def elastic(policy: str, count: int = 2, **fields: Any) -> Manifest:
    """A job of one role, whose number of replicas may change."""
    return aitrainingjob("job", replicaSpecs={"worker": replica(replicas=count, edlPolicy=policy, **fields)})


def workers(*indexes: int) -> list[str]:
    return [f"job-worker-{index}" for index in indexes]


async def running(scene: Scene, manifest: Manifest, count: int) -> Job:
    """The job with so many pods, which all run."""
    job = await scene.create(manifest)
    await job.until(lambda: sorted(job.children("pods")) == workers(*range(count)), f"it has {count} pods")
    await scene.report("Running", *workers(*range(count)))
    await job.reach("Running")
    return job


def leaving(job: Job) -> list[str]:
    return sorted(name for name, pod in job.children("pods").items() if is_deleting(pod))


async def members(scene: Scene, *names: str) -> int:
    """Wait until exactly these take part, and answer the generation."""
    generation = 0

    async def are_there() -> None:
        nonlocal generation
        stored = [c for c in await scene.admin.list("configmaps", scene.namespace) if c["metadata"]["name"] == NAME]
        assert stored
        found = json.loads(stored[0]["data"]["members.json"])
        assert [member["name"] for member in found["members"]] == list(names)
        generation = found["generation"]

    await eventually(are_there, timeout=PATIENCE)
    return generation


async def scale(plane: ControlPlane, scene: Scene, to: int) -> str:
    words = (f"--namespace={scene.namespace}", "scale", "aitj/job", f"--replicas={to}")
    return await asyncio.to_thread(plane.kubectl, *words)


async def test_kubectl_scales_a_job_up_and_down_and_its_other_pods_stay(plane: ControlPlane, scene: Scene) -> None:
    job = await running(scene, elastic("Manual", maxReplicas=4), 2)
    first = await members(scene, *workers(0, 1))
    uids = {name: pod["metadata"]["uid"] for name, pod in job.children("pods").items()}

    assert await scale(plane, scene, 4) == "aitrainingjob.elasticdeeplearning.ai/job scaled\n"
    await job.until(lambda: sorted(job.children("pods")) == workers(0, 1, 2, 3), "it has 4 pods")
    await job.until(lambda: sorted(job.children("services")) == workers(0, 1, 2, 3), "and as many services")
    await scene.report("Running", *workers(2, 3))
    second = await members(scene, *workers(0, 1, 2, 3))

    await scale(plane, scene, 2)
    third = await members(scene, *workers(0, 1))
    await job.until(lambda: leaving(job) == workers(2, 3), "they are told to go, and given their time")
    assert sorted(job.children("services")) == workers(0, 1, 2, 3)
    async with scene.kubelet():
        await job.until(lambda: sorted(job.children("services")) == workers(0, 1), "it has 2 services")

    await scene.catch_up()
    assert {name: pod["metadata"]["uid"] for name, pod in job.children("pods").items()} == uids
    assert first < second < third
    assert set(job.phases[job.phases.index("Running") :]) == {"Running"}
    assert "RestartCount" not in job.status


async def test_what_is_out_of_bounds_or_cannot_be_scaled_is_refused(plane: ControlPlane, scene: Scene) -> None:
    await running(scene, elastic("Manual", minReplicas=2, maxReplicas=4), 2)
    await scene.create(aitrainingjob("fixed"))

    for name, to, says in (
        ("job", 5, "spec.elasticReplicas: Invalid value: 5 is more than maxReplicas of worker (4)"),
        ("job", 1, "spec.elasticReplicas: Invalid value: 1 is less than minReplicas of worker (2)"),
        ("fixed", 2, "scales the one replica whose edlPolicy is Auto or Manual, and there are 0"),
    ):
        with pytest.raises(Refused) as refused:
            await scene.admin.patch(AITJ, scene.namespace, name, {"spec": {"replicas": to}}, subresource="scale")
        assert says in refused.value.message


async def test_an_auto_job_runs_with_what_has_room_and_goes_on_without_a_lost_node(scene: Scene) -> None:
    manifest = elastic("Auto", minReplicas=2, maxReplicas=4, restartLimit=0)
    job = await scene.create(manifest)
    await job.until(lambda: sorted(job.children("pods")) == workers(0, 1, 2, 3), "it has as many as there may be")
    await scene.report("Running", *workers(0, 1, 2))
    await job.reach("Running")
    first = await members(scene, *workers(0, 1, 2))
    lost = job.children("pods")["job-worker-1"]["metadata"]["uid"]

    await scene.admin.set_pod(scene.namespace, "job-worker-1", phase="Failed", reason="NodeLost", message="it is gone")
    second = await members(scene, *workers(0, 2))
    await job.until(
        lambda: job.children("pods").get("job-worker-1", {"metadata": {"uid": lost}})["metadata"]["uid"] != lost,
        "another pod is in its place",
    )
    await scene.report("Running", *workers(1, 3))
    third = await members(scene, *workers(0, 1, 2, 3))

    assert first < second < third
    await job.until(lambda: job.status.get("RestartCount") == {"worker": 1}, "it has counted the one that it lost")
    assert job.phase == "Running"
    assert job.status["restarts"]["worker"].get("used", 0) == 0


async def test_an_autoscaler_finds_what_to_scale_and_scales_it(scene: Scene) -> None:
    """By its minimum alone: that takes no metrics."""
    manifest = elastic("Manual", maxReplicas=4)
    manifest["spec"]["elasticReplicas"] = 2
    job = await running(scene, manifest, 2)
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "job"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "elasticdeeplearning.ai/v1", "kind": "AITrainingJob", "name": "job"},
            "minReplicas": 3,
            "maxReplicas": 4,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
        },
    }
    await scene.admin.create("autoscaling/v2/horizontalpodautoscalers", autoscaler, scene.namespace)
    await job.until(lambda: sorted(job.children("pods")) == workers(0, 1, 2), "it has 3 pods")

    async def is_content() -> None:
        stored = await scene.admin.get("autoscaling/v2/horizontalpodautoscalers", scene.namespace, "job")
        said = {condition["type"]: condition["status"] for condition in stored["status"].get("conditions", ())}
        assert said.get("AbleToScale") == "True"

    await eventually(is_content, timeout=PATIENCE)
    await job.until(lambda: job.stored["spec"]["elasticReplicas"] == 3, "it is to have 3 replicas")
    assert job.status["selector"] == (
        "GroupName=elasticdeeplearning.ai,TrainingJobName=job,TrainingJobReplicaName=worker"
    )


async def test_a_file_that_somebody_takes_away_comes_back_and_all_goes_at_the_end(scene: Scene) -> None:
    job = await running(scene, elastic("Manual"), 2)
    first = await members(scene, *workers(0, 1))
    await scene.admin.delete("configmaps", scene.namespace, NAME)

    again = await members(scene, *workers(0, 1))
    async with scene.kubelet():
        for name in workers(0, 1):
            await scene.end(name, 0)
        await job.reach("Succeed")
    with pytest.raises(Refused) as refused:
        await scene.admin.get("configmaps", scene.namespace, NAME)
    assert refused.value.code == 404
    assert again == first  # a generation always means the same members
