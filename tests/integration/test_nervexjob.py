"""The life of a NerveXJob on a real API server: coordinator and aggregator, what they are told, and what is missing."""

from collections.abc import Iterator

import pytest

from testbed.plane import ControlPlane
from testbed.server import ServerProcess
from tests.faults.world import Object, is_deleting
from tests.integration.crew import names, roles, team
from tests.integration.scene import AGGREGATORCONFIGS, Scene, give_aggregators
from tests.manifests.build import agconfig, nervexjob
from trainmaster.settings import SYSTEM_NAMESPACE

pytestmark = pytest.mark.usefixtures("operator")

COORDINATOR, AGGREGATOR = "job-coordinator", "job-aggregator"


@pytest.fixture(autouse=True)
def aggregators(plane: ControlPlane) -> None:
    """An example has one of its own, and leaves it behind."""
    give_aggregators(plane)


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Iterator[ServerProcess]:
    with ServerProcess(plane) as server:
        yield server


@pytest.mark.parametrize(
    ("code", "phase", "counter"), [pytest.param(0, "Succeeded", "succeeded"), pytest.param(1, "Failed", "failed")]
)
async def test_the_job_runs_when_both_run_and_ends_with_its_coordinator(
    scene: Scene, code: int, phase: str, counter: str
) -> None:
    job = await scene.create(nervexjob())
    await job.pods_are_there()
    await scene.report("Running", COORDINATOR)
    await job.until(lambda: job.status["replicaStatus"]["Coordinator"] == {"active": 1}, "its coordinator is counted")
    assert job.phase == "Created"
    await scene.report("Running", AGGREGATOR)
    await job.reach("Running")
    await scene.end(COORDINATOR, code)
    async with scene.kubelet():
        await job.reach(phase)
        await job.until(lambda: set(job.children("pods")) == {COORDINATOR}, "its coordinator alone is left")
        await job.until(lambda: not job.children("services"), "its services are gone")

    assert job.phases == ["Created", "Running", phase]
    assert job.condition("Finished")["reason"] == phase
    assert job.status["conditions"][-1]["reason"] == f"NerveXJob{phase}"
    assert job.status["replicaStatus"]["Coordinator"] == {counter: 1}


async def test_both_are_told_where_the_other_one_is(scene: Scene) -> None:
    job = await scene.create(nervexjob())
    await job.pods_are_there()

    urls = {
        "KUBERNETES_COORDINATOR_URL": f"{COORDINATOR}.{scene.namespace}:22273",
        "KUBERNETES_AGGREGATOR_URL": f"{AGGREGATOR}.{scene.namespace}:22272",
    }
    for name, role, port in ((COORDINATOR, "coordinator", 22273), (AGGREGATOR, "aggregator", 22272)):
        pod, service = job.children("pods")[name], job.children("services")[name]
        (container,) = pod["spec"]["containers"]
        env = {entry["name"]: entry["value"] for entry in container["env"]}
        assert urls.items() <= env.items()
        assert env[f"{role.upper()}_PORT"] == str(port)
        assert [(entry["name"], entry["containerPort"]) for entry in container["ports"]] == [(role, port)]
        assert [(entry["name"], entry["port"]) for entry in service["spec"]["ports"]] == [(role, port)]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert (
            pod["metadata"]["labels"].items()
            >= {
                "group-name": "nervex.sensetime.com",
                "nervexjob-name": "job",
                "controller-name": "nervex-operator",
                "replica-type": role,
            }.items()
        )


async def test_a_job_without_an_aggregatorconfig_waits_for_it(plane: ControlPlane, scene: Scene) -> None:
    await scene.admin.delete(AGGREGATORCONFIGS, SYSTEM_NAMESPACE, "aggregator-config")
    try:
        job = await scene.create(nervexjob())
        said = await job.says("PodCreateFailed", "True")
        await scene.settled()
        assert (job.phase, job.children("pods"), job.children("services")) == ("Created", {}, {})

        await scene.admin.create(AGGREGATORCONFIGS, agconfig(SYSTEM_NAMESPACE), SYSTEM_NAMESPACE)
        await job.live()
    finally:
        give_aggregators(plane)

    assert (
        f"AggregatorConfig {SYSTEM_NAMESPACE}/aggregator-config is missing: create it there, those of other namespaces"
        in said
    )
    assert job.phase == "Succeeded"
    assert job.condition("PodCreateFailed")["status"] == "False"


async def test_the_aggregatorconfig_of_a_stranger_is_not_read(plane: ControlPlane, scene: Scene) -> None:
    """Its namespace is called as that of an ancestor, and is not the installation's."""
    await scene.admin.delete(AGGREGATORCONFIGS, SYSTEM_NAMESPACE, "aggregator-config")
    await scene.admin.create("namespaces", {"metadata": {"name": "nervex-system"}})
    await scene.admin.create(AGGREGATORCONFIGS, agconfig("nervex-system", image="evil"), "nervex-system")
    try:
        job = await scene.create(nervexjob())
        said = await job.says("PodCreateFailed", "True")
        await scene.settled()
        assert job.children("pods") == {}
    finally:
        await scene.admin.delete("namespaces", None, "nervex-system")
        give_aggregators(plane)

    assert "those of other namespaces are not read" in said
    await job.live()


async def test_a_lost_aggregator_comes_back_as_it_was(plane: ControlPlane, scene: Scene) -> None:
    """Whatever became of the AggregatorConfig since: the coordinator knows this one's address."""
    job = await scene.create(nervexjob())
    await job.start()
    before = job.children("pods")[AGGREGATOR]["spec"]["containers"][0]["ports"]
    other = agconfig(ports=[{"name": "aggregator", "containerPort": 99}])
    await scene.admin.patch(AGGREGATORCONFIGS, SYSTEM_NAMESPACE, "aggregator-config", {"spec": other["spec"]})
    try:
        async with scene.kubelet():
            await scene.admin.set_pod(scene.namespace, AGGREGATOR, phase="Failed", reason="Evicted")
            await job.until(lambda: scene.incarnations("pods").get(AGGREGATOR) == 2, "it is there again")
    finally:
        give_aggregators(plane)

    assert job.children("pods")[AGGREGATOR]["spec"]["containers"][0]["ports"] == before
    assert job.phase == "Running"
    await job.live()


async def test_the_events_are_those_of_a_nervexjob(scene: Scene) -> None:
    job = await scene.create(nervexjob(cleanPodPolicy="All"))
    await job.reach("Created")
    await job.live()

    def is_complete(events: list[Object]) -> bool:
        return [event["reason"] for event in events].count("SuccessfulDelete") == 2

    events = await scene.admin.wait_list("events", scene.namespace, is_complete, timeout=150)
    assert {event["source"]["component"] for event in events} == {"nervex-operator"}
    assert {(event["reason"], event["message"]) for event in events} >= {
        ("NerveXJobCreated", "NerveXJob job created"),
        ("SuccessfulCreate", "Create pod: job-coordinator, job-aggregator"),
        ("NerveXJobSucceeded", "NerveXJob job succeeded because coordinator succeeded"),
    }


async def test_kubectl_knows_it_by_its_short_name(plane: ControlPlane, scene: Scene) -> None:
    job = await scene.create(nervexjob())
    await job.live()

    head, row = plane.kubectl("--namespace", scene.namespace, "get", "nvxjob").splitlines()

    assert head.split() == ["NAME", "PHASE", "AGE", "READY", "RESTARTS"]
    assert row.split()[:2] == ["job", "Succeeded"]


async def test_its_coordinator_gets_replicas_and_gives_one_back(scene: Scene, server: ServerProcess) -> None:
    """As the walk-through of nervex-operator tells it; the aggregator is no learner of the answers."""
    manifest = nervexjob("nervexjob-example-1", **roles("collector", "learner"))
    async with team(scene, manifest, [server.url]) as each:
        client = await each.appear()
        asked = await client.start({"replicas": 2}, {"replicas": 2})
        await each.complete(4)
        gone = await client.delete(collectors={"replicas": 1}, learners={"replicas": 0})
        await each.complete(3)
        listed = await client.get()

        assert names(client, asked) == each.declared | names(client, gone)
        assert names(client, listed) == each.declared
        staying = [name for name, pod in each.job.children("pods").items() if not is_deleting(pod)]
        assert sorted(name.rpartition("-")[0] for name in staying) == [
            "nervexjob-example-1",
            "nervexjob-example-1",
            "nervexjob-example-1-collector",
            "nervexjob-example-1-learner",
            "nervexjob-example-1-learner",
        ]
