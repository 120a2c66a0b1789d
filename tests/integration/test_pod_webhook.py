"""A webhook of the cluster that is down: the API server answers each create of a pod with 500."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from testbed.admin import eventually, path_of
from testbed.answer import Refused
from tests.faults.world import Object
from tests.integration.scene import Job, Scene
from tests.manifests.build import aitrainingjob, dijob, mlkubejob, mxjob, nervexjob, replica

WEBHOOKS = "admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NOWHERE = "https://127.0.0.1:1/"

pytestmark = pytest.mark.usefixtures("operator")


@asynccontextmanager
async def webhook_that_is_down(scene: Scene, **labels: str) -> AsyncIterator[None]:
    """For pods and batch Jobs with these labels, in the namespace of the scene."""
    configuration = {
        "metadata": {"name": scene.namespace},
        "webhooks": [
            {
                "name": "down.example.com",
                "clientConfig": {"url": NOWHERE},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}},
                "objectSelector": {"matchLabels": labels},
                "rules": [
                    {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [plural]}
                    for group, plural in (("", "pods"), ("batch", "jobs"))
                ],
            }
        ],
    }
    await scene.admin.create(WEBHOOKS, configuration)
    try:
        await is_used(scene, labels)
        yield
    finally:
        await scene.admin.delete(WEBHOOKS, None, scene.namespace)


async def is_used(scene: Scene, labels: Object) -> None:
    """Until the API server calls the webhook: it does so a moment after it was configured."""
    spec = {"containers": [{"name": "a", "image": "a"}]}
    pod = {"metadata": {"generateName": "probe-", "labels": labels}, "spec": spec}

    async def look() -> None:
        refusal = ""
        try:
            await scene.admin.request("POST", path_of("pods", scene.namespace), pod, query={"dryRun": "All"})
        except Refused as refused:
            refusal = refused.message
        assert "failed calling webhook" in refusal

    await eventually(look)


async def reported(scene: Scene, job: Job) -> list[Object]:
    """The Events that say why nothing is created. They are sent after the status."""

    def is_met(events: list[Object]) -> bool:
        return bool(_about(events, job))

    return _about(await scene.admin.wait_list("events", scene.namespace, is_met), job)


def _about(events: list[Object], job: Job) -> list[Object]:
    own = [event for event in events if event["involvedObject"].get("uid") == job.uid]
    return [event for event in own if event["type"] == "Warning" and "failed calling webhook" in event["message"]]


async def test_a_job_of_every_kind_says_that_its_pods_cannot_be_created_and_goes_on_later(scene: Scene) -> None:
    async with webhook_that_is_down(scene):
        jobs = [
            await scene.create(body)
            for body in (
                aitrainingjob("ait"),
                mxjob("mx"),
                dijob("di"),
                nervexjob("nervex"),
                mlkubejob("mlkube"),
                mlkubejob("first", group="mlkube.io"),
            )
        ]
        for message in await asyncio.gather(*(job.says("PodCreateFailed", "True") for job in jobs)):
            assert "failed calling webhook" in message
        assert all(job.phase for job in jobs)
        for job in jobs:
            assert len(await reported(scene, job)) == 1
    await asyncio.gather(*(job.says("PodCreateFailed", "False") for job in jobs))


async def test_the_status_of_other_pods_is_stored_while_one_cannot_be_created(scene: Scene) -> None:
    async with webhook_that_is_down(scene, TrainingJobReplicaName="b"):
        job = await scene.create(aitrainingjob("job", replicaSpecs={"a": replica(), "b": replica()}))
        await job.says("PodCreateFailed", "True")
        await scene.report("Running", "job-a-0")

        await job.until(lambda: job.status["replicaStatuses"]["a"].get("active") == 1, "its first pod is counted")
        assert job.condition("PodCreateFailed")["status"] == "True"
