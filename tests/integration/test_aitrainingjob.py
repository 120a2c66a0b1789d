"""The life of an AITrainingJob on a real API server, and what may come in between."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from testbed.plane import ControlPlane
from tests.faults.world import PATIENCE, Object, is_deleting
from tests.integration.scene import Job, Scene, owner_of
from tests.manifests.build import TRAINER, Manifest, aitrainingjob, container, replica

pytestmark = pytest.mark.usefixtures("operator")


def trainers(count: int, name: str = "job", **spec: Any) -> Manifest:
    return aitrainingjob(name, replicaSpecs={"trainer": replica(replicas=count)}, **spec)


def with_ps() -> Manifest:
    """One parameter server, which ends with the job, and two trainers, which end the job."""

    def role(name: str, port: int, **fields: Any) -> Manifest:
        return replica(container(name, ports=[{"name": f"aitj-{port}", "containerPort": port}]), **fields)

    ps, trainer = role("aitj-ps", 7000, completePolicy="None"), role("aitj-trainer", 7001, replicas=2)
    return aitrainingjob("mnist", completePolicy="Any", replicaSpecs={"ps": ps, "trainer": trainer})


PODS = ["mnist-ps-0", "mnist-trainer-0", "mnist-trainer-1"]


@pytest.fixture
async def lived(scene: Scene) -> AsyncIterator[Job]:
    """A job that has come to its good end, step by step as on a cluster with a scheduler and kubelets."""
    job = await scene.create(with_ps())
    await job.pods_are_there()
    await job.reach("Pending")
    await scene.bind(*PODS)
    await job.reach("Creating")
    await scene.report("Running", *PODS)
    await job.reach("Running")
    for trainer in PODS[1:]:
        await scene.end(trainer, 0)
    async with scene.kubelet():
        await job.reach("Succeed")
        yield job


async def test_a_job_goes_through_its_phases_in_order_with_few_writes(lived: Job) -> None:
    await lived.childless()

    assert lived.phases == ["Pending", "Creating", "Running", "Terminating", "Succeed"]
    assert len(lived.statuses) <= 6
    assert lived.condition("Finished")["reason"] == "Succeed"
    assert lived.status["replicaStatuses"] == {"ps": {}, "trainer": {"succeeded": 2}}
    assert {"startTime", "startRunningTime", "endTime"} <= lived.status.keys()
    assert "ending" not in lived.status


class Event(NamedTuple):
    type: str
    reason: str
    source: str
    message: str


async def test_describe_tells_the_story_of_a_job(lived: Job, scene: Scene, plane: ControlPlane) -> None:
    def is_complete(events: list[Object]) -> bool:
        return {"TrainingJobSucceed", "SuccessfulDeleteService"} <= {event["reason"] for event in events}

    events = await scene.admin.wait_list("events", scene.namespace, is_complete, timeout=PATIENCE)
    described = await asyncio.to_thread(plane.kubectl, "describe", "aitj", "mnist", "--namespace", scene.namespace)

    told = sorted(events, key=lambda event: int(event["metadata"]["resourceVersion"]))
    story = [Event(e["type"], e["reason"], e["source"]["component"], e["message"]) for e in told]
    assert [event.reason for event in story if event.reason != "SuccessfulDeleteService"] == [
        "SuccessfulCreateService",
        "SuccessfulCreatePod",
        "TrainingJobRunning",
        "TrainingJobTerminating",
        "SuccessfulDeletePod",
        "TrainingJobSucceed",
    ]
    assert {(event.type, event.source) for event in story} == {("Normal", "TrainingJobOperator")}
    messages = {event.reason: event.message for event in story}
    assert all(name in messages["SuccessfulCreatePod"] for name in PODS)
    assert messages["TrainingJobRunning"] == "all pods are running"
    assert messages["TrainingJobTerminating"] == "job mnist completed; deleting pods"
    assert messages["TrainingJobSucceed"] == "job mnist completed; deleted pods"
    for event in story:
        assert event.reason in described
        assert event.message in described


async def test_pods_find_each_other(scene: Scene) -> None:
    job = await scene.create(with_ps())
    await job.pods_are_there()

    pods, services = job.children("pods"), job.children("services")
    assert sorted(services) == PODS
    for name, service in services.items():
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert service["spec"]["selector"].items() <= pods[name]["metadata"]["labels"].items()
    assert [port["port"] for port in services["mnist-ps-0"]["spec"]["ports"]] == [7000]
    pod = pods["mnist-trainer-1"]
    assert pod["spec"]["restartPolicy"] == "Never"
    where = scene.namespace
    assert (
        env_of(pod).items()
        >= {
            "PS_HOSTS": f"mnist-ps-0.{where}:7000",
            "PS_INSTANCES_NUM": "1",
            "TRAINER_INSTANCES": f"mnist-trainer-0.{where},mnist-trainer-1.{where}",
            "TRAINER_HOSTS_NUM": "2",
            "TRAININGJOB_REPLICA_NAME": "trainer",
            "TRAININGJOB_REPLICA_INDEX": "1",
            "TRAININGJOB_SERVICE": f"mnist-trainer-1.{where}",
            "TRAININGJOB_PORTS": "7001",
            "TRAININGJOB_NAME": "mnist",
            "TRAININGJOB_NAMESPACE": where,
        }.items()
    )


async def test_a_deleted_pod_is_created_again_and_the_others_stay(scene: Scene) -> None:
    job = await scene.create(trainers(2))
    await job.start()
    before = uids_of(job)

    await scene.let_go("job-trainer-1")
    await job.until(lambda: before["job-trainer-1"] != uids_of(job).get("job-trainer-1", ""), "the pod is gone")
    await job.start()

    assert uids_of(job)["job-trainer-0"] == before["job-trainer-0"]
    assert scene.incarnations("pods") == {"job-trainer-0": 1, "job-trainer-1": 2}
    await job.until(lambda: counted(job) == {"active": 2}, "both are counted")


async def test_a_deleted_service_is_created_again(scene: Scene) -> None:
    job = await scene.create(trainers(1))
    await job.start()
    before = job.children("services")["job-trainer-0"]["metadata"]["uid"]

    await scene.admin.delete("services", scene.namespace, "job-trainer-0")

    def is_new() -> bool:
        return any(service["metadata"]["uid"] != before for service in job.children("services").values())

    await job.until(is_new, "it has a service again")
    assert job.phase == "Running"


async def test_a_job_grows_and_shrinks_with_its_replicas(scene: Scene) -> None:
    job = await scene.create(trainers(1))
    await job.start()
    first = uids_of(job)

    await job.edit({"replicaSpecs": {"trainer": {"replicas": 3}}})
    await job.pods_are_there()
    await scene.report("Running", "job-trainer-1", "job-trainer-2")
    await job.until(lambda: counted(job) == {"active": 3}, "all 3 are counted")

    grown = uids_of(job)
    assert grown.items() >= first.items()
    assert sorted(job.children("services")) == ["job-trainer-0", "job-trainer-1", "job-trainer-2"]
    assert env_of(job.children("pods")["job-trainer-2"])["TRAINER_INSTANCES_NUM"] == "3"

    await job.edit({"replicaSpecs": {"trainer": {"replicas": 1}}})
    async with scene.kubelet():
        await job.until(lambda: uids_of(job) == first, "only the first pod is left")
        await job.until(lambda: list(job.children("services")) == ["job-trainer-0"], "only its service is left")
    await job.until(lambda: (job.phase, counted(job)) == ("Running", {"active": 1}), "it runs with one pod")
    assert job.status["observedGeneration"] == 3


async def test_an_edited_template_is_for_the_pods_that_are_made_from_then_on(scene: Scene) -> None:
    job = await scene.create(trainers(2))
    await job.start()
    before = uids_of(job)

    await job.edit(
        {"replicaSpecs": {"trainer": {"template": {"spec": {"containers": [container(TRAINER, tty=True)]}}}}}
    )
    await job.until(lambda: job.status["observedGeneration"] == 2, "the edit was seen")
    assert uids_of(job) == before
    await scene.let_go("job-trainer-1")
    await job.until(lambda: before["job-trainer-1"] not in uids_of(job).values(), "the pod is gone")
    await job.start()

    ttys = {name: pod["spec"]["containers"][0].get("tty", False) for name, pod in job.children("pods").items()}
    assert ttys == {"job-trainer-0": False, "job-trainer-1": True}


async def test_an_edited_end_policy_counts_at_once(scene: Scene) -> None:
    job = await scene.create(trainers(2, cleanPodPolicy="None"))
    await job.start()
    await scene.end("job-trainer-1", 0)
    await job.until(lambda: counted(job) == {"active": 1, "succeeded": 1}, "one trainer has succeeded")
    assert job.phase == "Running"

    await job.edit({"replicaSpecs": {"trainer": {"completePolicy": "Any"}}})

    await job.reach("Succeed")


def labelled(tier: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"tier": tier}}}


async def test_an_edit_that_cannot_be_run_stops_nothing_and_is_said(scene: Scene) -> None:
    job = await scene.create(trainers(1))
    await job.start()
    before = uids_of(job)

    await job.edit({"replicaSpecs": {"trainer": {"replicas": 2, "template": labelled("very high")}}})
    assert "very high" in await job.says("PodCreateFailed", "True")
    assert uids_of(job) == before
    await job.edit({"replicaSpecs": {"trainer": {"template": labelled("high")}}})

    await job.says("PodCreateFailed", "False")
    await job.start()


async def test_a_job_of_the_same_name_waits_for_the_old_pods_and_touches_none_of_them(scene: Scene) -> None:
    old = await scene.create(trainers(2))
    await old.start()
    old_pods = old.children("pods")

    await old.delete()
    for name in old_pods:  # the garbage collector asks them to go; the kubelet takes its time
        await scene.admin.delete("services", scene.namespace, name)
        await scene.admin.delete("pods", scene.namespace, name)
    await scene.until(lambda: all(is_deleting(pod) for pod in scene.pods().values()), "the old pods are to go")
    new = await scene.create(trainers(2))
    said = await new.says("PodCreateFailed", "True")

    assert "waits for the pod of the deleted AITrainingJob job, which has up to 30 s to end" in said
    assert {name: pod["metadata"]["uid"] for name, pod in scene.pods().items()} == {
        name: pod["metadata"]["uid"] for name, pod in old_pods.items()
    }
    assert {owner_of(pod) for pod in scene.pods().values()} == {old.uid}
    assert counted(new) == {}

    await scene.let_go(*old_pods)
    await new.start()
    await new.says("PodCreateFailed", "False")
    assert scene.incarnations("pods") == {"job-trainer-0": 2, "job-trainer-1": 2}


async def test_a_job_that_is_being_deleted_gets_no_new_pods(scene: Scene) -> None:
    job = await scene.create(trainers(2))
    await job.start()

    await scene.admin.delete(job.resource, scene.namespace, job.name, propagation="Foreground")
    await job.until(lambda: is_deleting(job.stored), "it is to go, after its pods")
    await scene.let_go("job-trainer-1")
    await scene.settled()

    assert list(job.children("pods")) == ["job-trainer-0"]
    assert scene.incarnations("pods")["job-trainer-1"] == 1


FOREIGN_POD = {"spec": {"containers": [container()]}}
FOREIGN_SERVICE = {"spec": {"clusterIP": "None"}}
SOMEBODY = {"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "0123", "controller": True}


@pytest.mark.parametrize(
    ("resource", "body", "owners", "whose"),
    [
        pytest.param("pods", FOREIGN_POD, [], "has no owner", id="pod-of-nobody"),
        pytest.param("pods", FOREIGN_POD, [SOMEBODY], "belongs to ConfigMap mine (0123)", id="pod-of-somebody"),
        pytest.param("services", FOREIGN_SERVICE, [], "has no owner", id="service-of-nobody"),
    ],
)
async def test_a_name_that_is_taken_is_said_and_left_alone(
    scene: Scene, resource: str, body: Object, owners: list[Object], whose: str
) -> None:
    metadata = {"name": "job-trainer-0", "ownerReferences": owners}
    foreign = await scene.admin.create(resource, {"metadata": metadata, **body}, scene.namespace)
    job = await scene.create(trainers(1))

    said = await job.says("PodCreateFailed", "True")

    assert f"{scene.namespace}/job-trainer-0: the name is taken by an object that {whose}" in said
    stored = await scene.admin.get(resource, scene.namespace, "job-trainer-0")
    assert stored["metadata"] == foreign["metadata"]
    assert job.phase == "Pending"

    await scene.admin.delete(resource, scene.namespace, "job-trainer-0", grace=0)
    await job.start()
    await job.says("PodCreateFailed", "False")


async def test_a_quota_is_said_and_used_up_as_soon_as_it_grows(scene: Scene) -> None:
    """No quota controller runs here: the test writes what it would have counted."""
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}}
    await scene.admin.create("resourcequotas", quota, scene.namespace)
    await scene.admin.set_status("resourcequotas", scene.namespace, "small", allowance(1, used=0))
    job = await scene.create(trainers(3))

    said = await job.says("PodCreateFailed", "True")

    await scene.catch_up()
    assert "exceeded quota: small" in said
    assert len(job.children("pods")) == 1

    await scene.admin.set_status("resourcequotas", scene.namespace, "small", allowance(3, used=1))
    await job.start()
    await job.says("PodCreateFailed", "False")
    assert scene.incarnations("pods") == dict.fromkeys(job.slots, 1)


async def test_a_pod_that_says_it_fills_another_place_is_replaced(scene: Scene) -> None:
    job = await scene.create(trainers(2))
    await job.start()
    before = uids_of(job)

    relabelled = {"metadata": {"labels": {"TrainingJobReplicaIndex": "many"}}}
    await scene.admin.patch("pods", scene.namespace, "job-trainer-1", relabelled)
    async with scene.kubelet():
        await job.until(lambda: before["job-trainer-1"] not in uids_of(job).values(), "the pod is gone")
    await job.start()

    assert uids_of(job)["job-trainer-0"] == before["job-trainer-0"]


def allowance(pods: int, *, used: int) -> Object:
    return {"hard": {"pods": str(pods)}, "used": {"pods": str(used)}}


def uids_of(job: Job) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in job.children("pods").items()}


def counted(job: Job) -> Object:
    found: Object = job.status.get("replicaStatuses", {}).get("trainer", {})
    return found


def env_of(pod: Object) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0]["env"]}
