"""The life of a DIJob on a real API server: its coordinator, what it leaves behind, and what cannot be created."""

from typing import Any

import pytest

from testbed.plane import ControlPlane
from tests.faults.world import Object
from tests.integration.scene import Scene
from tests.manifests.build import Manifest, container, coordinated, dijob, template

pytestmark = pytest.mark.usefixtures("operator")

COORDINATOR = "job-coordinator"
EXITED = "pod job-coordinator failed: container di-container on node n1 exited with reason Error exitcode 137 (SIGKILL)"


def started_with(**fields: Any) -> Manifest:
    return coordinated(template(container(**fields)))


@pytest.mark.parametrize(
    ("code", "phase", "says", "counter"),
    [
        pytest.param(0, "Succeeded", "succeeded because coordinator succeeded", "succeeded", id="succeeded"),
        pytest.param(137, "Failed", f"failed because coordinator failed: {EXITED}", "failed", id="failed"),
    ],
)
async def test_the_life_of_the_coordinator_is_the_life_of_the_job(
    scene: Scene, code: int, phase: str, says: str, counter: str
) -> None:
    job = await scene.create(dijob())
    await job.pods_are_there()
    await job.reach("Created")
    await scene.report("Running", COORDINATOR)
    await job.reach("Running")
    assert job.status["replicaStatus"]["Coordinator"] == {"active": 1}
    await scene.end(COORDINATOR, code)
    await job.reach(phase)

    assert job.phases == ["Created", "Running", phase]
    assert len(job.statuses) == 3
    assert job.status["conditions"][-1]["type"] == phase
    assert job.status["conditions"][-1]["message"] == f"DIJob job {says}"
    assert job.condition("Running")["status"] == "False"
    assert job.condition("Finished")["reason"] == phase
    assert job.status["replicaStatus"] == {
        "Coordinator": {counter: 1},
        "Aggregator": {},
        "Collector": {},
        "Learner": {},
    }


async def test_kubectl_get_shows_a_job_with_a_coordinator_in_the_columns_of_v2alpha1(
    scene: Scene, plane: ControlPlane
) -> None:
    """kubectl prefers that version, also for jobs of v1alpha1."""
    job = await scene.create(dijob(collector={"template": template()}))
    await job.pods_are_there()
    member = {"job-collector-x": {"role": "collector", "at": "2026-11-15T12:00:00Z"}}
    await scene.admin.set_status(job.resource, scene.namespace, job.name, {"declared": {"members": member}})
    await job.until(lambda: "job-collector-x" in job.children("pods"), "its collector is there")
    await scene.report("Running", COORDINATOR)
    await job.until(lambda: job.status.get("readyReplicas") == 1, "its coordinator is ready")

    titles, row = plane.kubectl("get", "dijob", f"--namespace={scene.namespace}").splitlines()

    assert titles.split() == ["NAME", "PHASE", "READYREPLICAS", "REPLICAS", "RESTARTS", "RESCHEDULES", "AGE"]
    assert row.split()[:-1] == ["job", "Running", "1", "2", "0"]


async def test_a_ddp_replica_that_was_made_by_hand_gets_a_service_with_all_its_ports(scene: Scene) -> None:
    """As DI-orchestrator's own test makes it: with labels and the owner, and with nothing in its environment."""
    job = await scene.create(dijob(learner={"template": template()}))
    await job.start()
    name = "job-ddp-learner-sdf"
    own = {"group-name": "diengine.opendilab.org", "dijob-name": "job", "controller-name": "di-operator"}
    own |= {"replica-type": "ddp-learner", "pod-name": name, "ddp-learner-type": "ddp-learner-master"}
    owner = {"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", "name": "job", "uid": job.uid}
    metadata = {"name": name, "labels": own, "ownerReferences": [owner | {"controller": True}]}
    main = container(resources={"limits": {"nvidia.com/gpu": "4"}})
    made = await scene.admin.create("pods", {"metadata": metadata, "spec": {"containers": [main]}}, scene.namespace)
    await job.until(lambda: name in job.children("services"), "its service is there")

    service = job.children("services")[name]["spec"]
    assert [port["name"] for port in service["ports"]] == [
        "di-port",
        *("gpu-port-1", "gpu-port-2", "gpu-port-3"),
        "master-port",
    ]
    assert service["selector"].items() <= own.items()
    pod = job.children("pods")[name]
    assert (pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]) == (made["metadata"]["uid"], False)


async def test_the_events_are_those_that_users_of_dijob_know(scene: Scene) -> None:
    job = await scene.create(dijob(cleanPodPolicy="All"))
    await job.reach("Created")
    await job.live()

    def is_complete(events: list[Object]) -> bool:
        return [event["reason"] for event in events].count("SuccessfulDelete") == 2

    events = await scene.admin.wait_list("events", scene.namespace, is_complete, timeout=150)
    why = "the job has ended and cleanPodPolicy is All"
    assert {event["source"]["component"] for event in events} == {"di-orchestrator"}
    assert {(event["reason"], event["message"]) for event in events} == {
        ("SuccessfulCreate", "Create service: job-coordinator"),
        ("SuccessfulCreate", "Create pod: job-coordinator"),
        ("DIJobCreated", "DIJob job created"),
        ("DIJobSucceeded", "DIJob job succeeded because coordinator succeeded"),
        ("SuccessfulDelete", f"Delete pod: job-coordinator: {why}"),
        ("SuccessfulDelete", f"Delete service: job-coordinator: {why}"),
    }


@pytest.mark.parametrize(
    ("given", "port"),
    [
        pytest.param([], 22273, id="default"),
        pytest.param([{"name": "di-port", "containerPort": 22270}], 22270, id="own"),
        pytest.param([{"name": "web", "containerPort": 80}], 22273, id="other"),
    ],
)
async def test_the_coordinator_is_told_its_port_and_has_a_name(scene: Scene, given: list[Object], port: int) -> None:
    job = await scene.create(started_with(ports=given, env=[{"name": "MINE", "value": "1"}]))
    await job.pods_are_there()

    pod, service = job.children("pods")[COORDINATOR], job.children("services")[COORDINATOR]
    main = pod["spec"]["containers"][0]
    assert [entry["containerPort"] for entry in main["ports"] if entry["name"] == "di-port"] == [port]
    assert {entry["name"]: entry["value"] for entry in main["env"]} == {
        "MINE": "1",
        "COORDINATOR_PORT": str(port),
        "KUBERNETES_POD_NAMESPACE": scene.namespace,
        "KUBERNETES_POD_NAME": COORDINATOR,
        "KUBERNETES_SERVER_URL": "di-server.di-system:8080",
        "KUBERNETES_COORDINATOR_URL": f"{COORDINATOR}.{scene.namespace}:{port}",
    }
    assert service["spec"]["clusterIP"] == "None"
    assert [(entry["name"], entry["port"]) for entry in service["spec"]["ports"]] == [("di-port", port)]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["metadata"]["ownerReferences"] == [
        {"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", "name": "job", "uid": job.uid}
        | {"controller": True}
    ]


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param({"cleanPodPolicy": "ALL"}, set(), id="ALL"),
        pytest.param({"cleanPodPolicy": "All"}, set(), id="All"),
        pytest.param({"cleanPodPolicy": "Running"}, {COORDINATOR}, id="Running"),
        pytest.param({"cleanPodPolicy": "None"}, {COORDINATOR, "job-collector-x"}, id="None"),
        pytest.param({"cleanPodPolicy": ""}, {COORDINATOR}, id="empty"),
        pytest.param({}, {COORDINATOR}, id="default"),
    ],
)
async def test_an_ended_job_leaves_behind_what_its_clean_pod_policy_says(
    scene: Scene, policy: Manifest, left: set[str]
) -> None:
    """A collector that runs for ever stands for what di-server declares."""
    job = await scene.create(dijob(collector={"template": template()}, **policy))
    await job.start()
    member = {"job-collector-x": {"role": "collector", "at": "2026-11-15T12:00:00Z"}}
    await scene.admin.set_status(job.resource, scene.namespace, job.name, {"declared": {"members": member}})
    await job.until(lambda: "job-collector-x" in job.children("pods"), "its collector is there")
    await scene.report("Running", "job-collector-x")
    await scene.end(COORDINATOR, 0)
    async with scene.kubelet():
        await job.reach("Succeeded")
        await job.until(lambda: not job.children("services"), "its services are gone")
        await job.until(lambda: set(job.children("pods")) <= left, f"of its pods only {left} are left")
        await scene.settled()

    assert set(job.children("pods")) == left


@pytest.mark.parametrize(
    ("bad", "says", "cure"),
    [
        pytest.param(
            dijob(priorityClassName="huge"),
            "no PriorityClass with name huge was found",
            {"priorityClassName": None},
            id="unknown-priority-class",
        ),
        pytest.param(
            started_with(resources={"limits": {"cpu": "plenty"}}),
            "quantities must match the regular expression",
            {"coordinator": {"template": template()}},
            id="bad-quantity",
        ),
    ],
)
async def test_a_coordinator_that_cannot_be_created_is_said_and_comes_after_an_edit(
    scene: Scene, bad: Manifest, says: str, cure: Manifest
) -> None:
    job = await scene.create(bad)

    assert says in await job.says("PodCreateFailed", "True")
    assert job.phase == "Created"

    await job.edit(cure)
    await job.start()
    await job.says("PodCreateFailed", "False")
    assert job.status["observedGeneration"] == 2


async def test_a_spec_that_cannot_be_run_is_said_and_runs_after_an_edit(scene: Scene) -> None:
    volume = {"name": "data", "emptyDir": {}}
    job = await scene.create(coordinated(template(volumes=[volume]), volumes=[volume]))

    assert "spec.volumes[0].name: 'data' is also a volume" in await job.says("Accepted", "False")
    assert job.phase == "Created"

    await job.edit({"volumes": [{"name": "more", "emptyDir": {}}]})
    await job.start()
    assert job.condition("Accepted")["status"] == "True"
    volumes = [entry["name"] for entry in job.children("pods")[COORDINATOR]["spec"]["volumes"]]
    assert volumes == ["data", "more"]


async def test_a_deleted_coordinator_is_created_again(scene: Scene) -> None:
    job = await scene.create(dijob())
    await job.start()

    await scene.let_go(COORDINATOR)
    await job.until(lambda: scene.incarnations("pods")[COORDINATOR] == 2, "it is there again")
    await job.start()
    await scene.end(COORDINATOR, 0)

    await job.reach("Succeeded")


async def test_the_end_of_the_main_container_is_the_end_of_the_job_whatever_a_side_car_does(scene: Scene) -> None:
    job = await scene.create(coordinated(template(container(), container("side-car"))))
    await job.start()

    await scene.admin.set_pod(scene.namespace, COORDINATOR, phase="Running", containers=[0, None])

    await job.reach("Succeeded")
