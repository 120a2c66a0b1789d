"""A real HorizontalPodAutoscaler scales jobs by what their pods use.

The metrics API is a CustomResourceDefinition of the test: its objects are what a metrics server would answer.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import yaml

from testbed.answer import Refused
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.integration.scene import Job, Scene
from tests.manifests.build import Manifest, aitrainingjob, ditask, replica, task

Object = dict[str, Any]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD_METRICS = "metrics.k8s.io/v1beta1/pods"
AUTOSCALERS = "autoscaling/v2/horizontalpodautoscalers"
DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "pods.metrics.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a metrics API for tests"},
    },
    "spec": {
        "group": "metrics.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "pods", "kind": "PodMetrics"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture(scope="module", autouse=True)
def metrics_api(plane: ControlPlane) -> Iterator[None]:
    plane.apply(yaml.safe_dump(DEFINITION))
    yield
    plane.request("DELETE", f"{CRDS}/pods.metrics.k8s.io")


def autoscaler(api: str, kind: str) -> Object:
    """Two to four replicas, each with 100 Mi."""
    target = {"type": "AverageValue", "averageValue": "100Mi"}
    return {
        "metadata": {"name": "job"},
        "spec": {
            "scaleTargetRef": {"apiVersion": api, "kind": kind, "name": "job"},
            "minReplicas": 2,
            "maxReplicas": 4,
            "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": target}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


async def use(scene: Scene, job: Job, amount: str, *names: str) -> None:
    """Each of these pods uses so much memory."""
    for name in names:
        pod = job.children("pods")[name]
        metrics = {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "PodMetrics",
            "metadata": {"name": name, "labels": pod["metadata"]["labels"]},
            "timestamp": pod["metadata"]["creationTimestamp"],
            "window": "30s",
            "containers": [
                {"name": container["name"], "usage": {"memory": amount, "cpu": "1m"}}
                for container in pod["spec"]["containers"]
            ],
        }
        with suppress(Refused):  # there are none of a new pod
            await scene.admin.delete(POD_METRICS, scene.namespace, name)
        await scene.admin.create(POD_METRICS, metrics, scene.namespace)


def job_of_workers() -> tuple[Manifest, str]:
    role = replica(replicas=2, edlPolicy="Manual", maxReplicas=4)
    return aitrainingjob("job", replicaSpecs={"worker": role}, elasticReplicas=2), "job-worker"


def job_of_collectors() -> tuple[Manifest, str]:
    return ditask("job", task("learner"), task("collector", maxReplicas=4), replicas=2), "job-collector"


@pytest.mark.parametrize(
    ("make", "others"),
    [pytest.param(job_of_workers, 0, id="aitrainingjob"), pytest.param(job_of_collectors, 1, id="dijob")],
)
async def test_an_autoscaler_scales_a_job_by_what_its_pods_use(
    scene: Scene, operator: OperatorProcess, make: Any, others: int
) -> None:
    manifest, prefix = make()
    job = await scene.create(manifest)

    def scaled() -> list[str]:
        return sorted(name for name in job.children("pods") if name.startswith(prefix))

    await job.until(lambda: len(job.children("pods")) == 2 + others, "it has its first pods")
    await scene.report("Running", *job.children("pods"))
    await use(scene, job, "200Mi", *scaled())
    await scene.admin.create(AUTOSCALERS, autoscaler(manifest["apiVersion"], manifest["kind"]), scene.namespace)

    await job.until(lambda: len(scaled()) == 4, "two pods with twice the target become four")
    await scene.report("Running", *scaled())
    await use(scene, job, "40Mi", *scaled())
    async with scene.kubelet():
        await job.until(lambda: len(scaled()) == 2, "and two when they use less than half of it")

    assert scaled() == [f"{prefix}-0", f"{prefix}-1"]
    assert len(job.children("pods")) == 2 + others
