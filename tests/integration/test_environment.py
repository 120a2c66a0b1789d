"""The addresses of large jobs on a real API server: one ConfigMap, which pods refer to."""

from typing import Any

import pytest

from testbed.admin import eventually
from tests.faults.world import PATIENCE
from tests.integration.scene import Scene
from tests.manifests.build import Manifest, aitrainingjob, mx_replica, mxjob, replica

REPLICAS = 65

pytestmark = pytest.mark.usefixtures("operator")


async def config_maps(scene: Scene, number: int) -> list[Any]:
    """Those of our jobs, once there are so many."""
    found: list[Any] = []

    async def are_there() -> None:
        nonlocal found
        stored = await scene.admin.list("configmaps", scene.namespace)
        found = [each for each in stored if each["metadata"]["name"].startswith("job-env-")]
        assert len(found) == number

    await eventually(are_there, timeout=PATIENCE)
    return found


def referred(pod: Any) -> set[tuple[str, str]]:
    """The ConfigMaps that the containers of a pod refer to, and their keys."""
    entries = [entry for container in pod["spec"]["containers"] for entry in container["env"]]
    references = [entry["valueFrom"]["configMapKeyRef"] for entry in entries if "valueFrom" in entry]
    return {(each["name"], each["key"]) for each in references}


@pytest.mark.parametrize(
    ("manifest", "addresses"),
    [
        pytest.param(
            aitrainingjob("job", replicaSpecs={"worker": replica(replicas=REPLICAS)}),
            {"WORKER_INSTANCES": ",".join(f"job-worker-{index}.{{namespace}}" for index in range(REPLICAS))},
            id="aitrainingjob",
        ),
        pytest.param(
            mxjob("job", mxReplicaSpecs={"Worker": mx_replica(replicas=REPLICAS)}),
            {
                "MX_CONFIG_CLUSTER": '{"worker":['
                + ",".join(f'{{"url":"job-worker-{index}","port":9091}}' for index in range(REPLICAS))
                + "]}"
            },
            id="mxjob",
        ),
    ],
)
async def test_the_pods_of_a_large_job_refer_to_its_config_map_which_comes_back_when_it_is_deleted(
    manifest: Manifest, addresses: dict[str, str], scene: Scene
) -> None:
    job = await scene.create(manifest)
    await job.pods_are_there()

    (stored,) = await config_maps(scene, 1)
    name = stored["metadata"]["name"]
    assert {key: stored["data"][key] for key in addresses} == {
        key: text.replace("{namespace}", scene.namespace) for key, text in addresses.items()
    }
    assert [owner["uid"] for owner in stored["metadata"]["ownerReferences"]] == [job.uid]
    for pod in job.children("pods").values():
        assert {(name, key) for key in addresses} <= referred(pod)

    await scene.admin.delete("configmaps", scene.namespace, name)
    (again,) = await config_maps(scene, 1)
    assert (again["metadata"]["name"], again["data"]) == (name, stored["data"])
