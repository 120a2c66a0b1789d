"""PodDisruptionBudgets for the pods of a job, with the real disruption controller, as docs/operating.md has them."""

from typing import Any

import pytest

from testbed.answer import Refused
from testbed.operator import REPOSITORY, OperatorProcess
from tests.integration.scene import Scene
from tests.manifests.build import Manifest, aitrainingjob, dijob, ditask, mlkubejob, mxjob, nervexjob, replica
from trainmaster.kinds.aitrainingjob import labels as aitrainingjob_labels
from trainmaster.kinds.ditask import labels as ditask_labels
from trainmaster.kinds.mlkube import labels as mlkube_labels
from trainmaster.kinds.mxjob import labels as mxjob_labels

Object = dict[str, Any]

BUDGETS = "policy/v1/poddisruptionbudgets"
TRAINERS = {"trainer": replica(replicas=3)}
ELASTIC = {"trainer": replica(replicas=3, minReplicas=2, maxReplicas=4, edlPolicy="Manual")}
JOBS: dict[str, tuple[Manifest, str]] = {
    "AITrainingJob": (aitrainingjob(replicaSpecs=TRAINERS), aitrainingjob_labels.TRAINING_JOB_NAME),
    "elastic AITrainingJob": (aitrainingjob(replicaSpecs=ELASTIC), aitrainingjob_labels.TRAINING_JOB_NAME),
    "DIJob with a coordinator": (dijob(), "dijob-name"),
    "DIJob with tasks": (ditask(), ditask_labels.JOB),
    "NerveXJob": (nervexjob(), "nervexjob-name"),
    "MXJob": (mxjob(), mxjob_labels.JOB_NAME),
    "MxJob": (mlkubejob(), mlkube_labels.JOB_NAME),
}
"""A job of each kind, and the label of its pods with its name."""


def budget(name: str, label: str, **limit: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {label: "job"}}, **limit}}


@pytest.mark.parametrize("kind", JOBS)
async def test_a_budget_with_a_number_of_pods_lets_a_drain_take_the_others(
    scene: Scene, operator: OperatorProcess, kind: str
) -> None:
    manifest, label = JOBS[kind]
    job = await scene.create(manifest)
    await job.start()
    pods = sorted(job.children("pods"))
    await scene.admin.create(BUDGETS, budget("number", label, minAvailable=len(pods) - 1), scene.namespace)

    found = await scene.admin.wait_for(
        BUDGETS, scene.namespace, "number", lambda body: body["status"]["disruptionsAllowed"]
    )
    assert (found["status"]["expectedPods"], found["status"]["disruptionsAllowed"]) == (len(pods), 1)
    await evict(scene, pods[0])
    if len(pods) > 1:
        with pytest.raises(Refused, match="disruption budget"):
            await evict(scene, pods[1])


async def evict(scene: Scene, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    await scene.admin.request("POST", f"/api/v1/namespaces/{scene.namespace}/pods/{pod}/eviction", body)


@pytest.mark.parametrize("limit", [{"maxUnavailable": 1}, {"minAvailable": "50%"}], ids=["maxUnavailable", "percent"])
async def test_a_budget_that_depends_on_the_size_of_a_job_allows_no_disruption(
    scene: Scene, operator: OperatorProcess, limit: Object
) -> None:
    """Kubernetes asks the owner of the pods for its size, and a job has a size for each role."""
    manifest, label = JOBS["AITrainingJob"]
    job = await scene.create(manifest)
    await job.start()
    await scene.admin.create(BUDGETS, budget("share", label, **limit), scene.namespace)

    found = await scene.admin.wait_for(BUDGETS, scene.namespace, "share", lambda body: body["status"]["conditions"])

    [condition] = found["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SyncFailed")
    assert found["status"]["disruptionsAllowed"] == 0


async def test_a_budget_with_a_maximum_works_for_a_job_that_was_scaled(scene: Scene, operator: OperatorProcess) -> None:
    manifest, label = JOBS["elastic AITrainingJob"]
    job = await scene.create(manifest | {"spec": {**manifest["spec"], "elasticReplicas": 3}})
    await job.start()
    await scene.admin.create(BUDGETS, budget("share", label, maxUnavailable=1), scene.namespace)

    found = await scene.admin.wait_for(
        BUDGETS, scene.namespace, "share", lambda body: body["status"]["disruptionsAllowed"]
    )

    assert (found["status"]["expectedPods"], found["status"]["disruptionsAllowed"]) == (3, 1)


def test_the_document_has_the_label_of_every_kind() -> None:
    text = (REPOSITORY / "docs" / "operating.md").read_text()
    section = text.partition("## Budgets for jobs")[2].partition("\n## ")[0]

    assert [label for _, label in JOBS.values() if f"`{label}`" not in section] == []
