"""On a real API server: objects as another operator left them, then our operator starts."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.admin import Admin, eventually
from testbed.operator import OperatorProcess, install
from testbed.plane import ControlPlane
from tests.build import Json
from tests.takeover.load import items_of, rank, renewed
from trainmaster.core.template import MANAGED_BY

PATIENCE = 60.0
RESOURCES = {
    "AITrainingJob": "elasticdeeplearning.ai/v1/aitrainingjobs",
    "DIJob": "diengine.opendilab.org/v1alpha1/dijobs",
    "MXJob": "kubeflow.org/v1/mxjobs",
    "MxJob": "mxnet.mlkube.io/v1beta1/mxjobs",
    "Job": "batch/v1/jobs",
    "Pod": "pods",
    "Service": "services",
}


class Left:
    """A job and its children in a namespace, stored anew: with uids of this API server."""

    def __init__(self, admin: Admin, namespace: str) -> None:
        self._admin, self._namespace = admin, namespace
        self._uids: dict[str, str] = {}
        self.job: Json = {}

    async def load(self, path: str) -> None:
        job, *children = (body for body in items_of(path) if body["kind"] in RESOURCES)
        self.job = await self._store(job)
        for child in sorted(children, key=rank):
            await self._store(child)

    async def _store(self, body: Json) -> Json:
        resource, meta = RESOURCES[body["kind"]], body["metadata"]
        stored = await self._admin.create(resource, renewed(body, self._uids), self._namespace)
        self._uids[meta["uid"]] = stored["metadata"]["uid"]
        if status := body.get("status"):
            return await self._admin.set_status(resource, self._namespace, meta["name"], status)
        return stored

    async def now(self) -> Json:
        return await self._admin.get(RESOURCES[self.job["kind"]], self._namespace, self.job["metadata"]["name"])

    async def of(self, kind: str) -> dict[str, Json]:
        """By uid."""
        return {body["metadata"]["uid"]: body for body in await self._admin.list(RESOURCES[kind], self._namespace)}

    async def until(self, is_met: Callable[[Json], object]) -> Json:
        meta = self.job["metadata"]
        resource = RESOURCES[self.job["kind"]]
        return await self._admin.wait_for(resource, self._namespace, meta["name"], is_met, timeout=PATIENCE)


def _is_running(job: Json) -> bool:
    status = job["status"]
    is_running = any((c["type"], c["status"]) == ("Running", "True") for c in status.get("conditions", ()))
    return bool(status.get("observedGeneration")) and (status.get("phase") == "Running" or is_running)


def _has_succeeded(job: Json) -> bool:
    status = job["status"]
    has_condition = any((c["type"], c["status"]) == ("Succeeded", "True") for c in status.get("conditions", ()))
    return has_condition or status["phase"] in ("Succeed", "Done")


def _is_adopted(body: Json) -> bool:
    labels: dict[str, Any] = body["metadata"].get("labels", {})
    return MANAGED_BY.items() <= labels.items()


@pytest.mark.parametrize(
    "path",
    [
        "aitrainingjob-148db3b/ps-trainer/running",
        "di-v0.2.2/ddp/running",
        "di-v0.2.2/parallel/running",
        "kubeflow-1.7/train/running",
        "mxjob-mlkube-c377703/dist/running",
    ],
)
async def test_a_job_goes_on_with_its_pods_and_ends_as_they_do(
    plane: ControlPlane, admin: Admin, namespace: str, path: str
) -> None:
    install(plane)
    left = Left(admin, namespace)
    await left.load(path)
    before = {kind: await left.of(kind) for kind in ("Pod", "Service", "Job")}

    async with OperatorProcess(plane, args=["--namespace", namespace]) as operator:

        async def all_are_adopted() -> None:
            for kind, found in before.items():
                now = await left.of(kind)
                assert now.keys() == found.keys(), f"other {kind}s: {[b['metadata']['name'] for b in now.values()]}"
                assert all(_is_adopted(body) for body in now.values()), kind

        await eventually(all_are_adopted, timeout=PATIENCE)
        job = await left.until(_is_running)
        await all_are_adopted()
        assert not any(c["type"] == "PodCreateFailed" for c in job["status"].get("conditions", ())), job["status"]
        for kind in ("Job", "Service"):
            for body in (await left.of(kind)).values():
                owners = body["metadata"]["ownerReferences"]
                assert job["metadata"]["uid"] in [owner["uid"] for owner in owners if owner.get("controller")]
        if "declared" in job["status"]:
            coordinator = f"{job['metadata']['name']}-coordinator"
            names = {pod["metadata"]["name"] for pod in before["Pod"].values()}
            assert job["status"]["declared"]["members"].keys() == names - {coordinator}

        for pod in before["Pod"].values():
            name = pod["metadata"]["name"]
            if job["kind"] != "DIJob" or name.endswith("coordinator"):
                await admin.set_pod(namespace, name, phase="Succeeded")
        await left.until(_has_succeeded)
        assert "defect in trainmaster" not in operator.log
        assert "Traceback" not in operator.log
