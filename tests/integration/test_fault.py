"""Nodes that fail and containers that cannot be created, on a real API server: every way in which that shows itself.

What policies and scopes make of a fault is `policy.py`. Here a job has two workers; the first is on a node that is
well, the second on one of its own. All rows are played at once.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from testbed.admin import Admin
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import Object
from tests.integration.scene import GPU, NODE, Job, Scene, add_node, ready
from tests.integration.stage import play_all
from tests.integration.test_external import ALL_ENDED
from tests.manifests.build import TRAINER, Manifest, aitrainingjob, container, replica

FIRST, SECOND = "job-worker-0", "job-worker-1"

ARGS = [
    "--node-fail-grace-period=1s",
    "--bad-node-condition=GPUUnhealthy",
    "--creating-duration-period=1s",
    "--creating-restart-period=4s",
]


class Row(NamedTuple):
    """``says`` is part of what the job tells at its end, or at its restart; ``again`` are the pods that come twice."""

    id: str
    policy: str
    fault: str
    path: list[str]
    says: str
    again: tuple[str, ...] = ()
    fields: Manifest = {}


OFFLINE = "Node {node} is failed and offline"
PATH = ["Terminating", "Restarting", "Running"]
END = ["Terminating", "NodeFail"]
FAULTS = {
    "not-ready": f"{OFFLINE}: the kubelet is silent",
    "unreachable": f"{OFFLINE}: it is unreachable",
    "out-of-service": f"{OFFLINE}: it is out of service",
    "deleted": f"{OFFLINE}: it was deleted",
    "gpu": "Node {node} has 1 nvidia.com/gpu that work, and pods were given 2 of them",
    "all-gpus": "of its devices on node {node} 2 nvidia.com/gpu is unhealthy",
    "condition": "Node {node} has the condition GPUUnhealthy: Xid 79",
}

CREATION = ("image", "init")
"""These come before the job runs."""

ROWS = [
    *(Row(f"{fault}-restarts", "OnNodeFail", fault, PATH, says, (SECOND,)) for fault, says in FAULTS.items()),
    *(Row(f"{fault}-ends", "OnFailure", fault, END, says) for fault, says in FAULTS.items()),
    Row("no-kubelet-within-fail-policy-all", "Never", "both", END, OFFLINE, fields={"failPolicy": "All"}),
    Row("no-image-is-tried-again", "Never", "image", PATH, f"container {TRAINER} of image busybox", (SECOND,)),
    Row("no-image-and-no-restart-ends", "Never", "image", ["Terminating", "Failed"], "", fields={"restartLimit": 0}),
    Row("no-init-image-is-tried-again", "Never", "init", PATH, "container fetch", (SECOND,)),
]


def spec_of(row: Row) -> Manifest:
    limits = {GPU: "2"} if "gpu" in row.fault else {"cpu": "1"}
    role = replica(
        container(TRAINER, resources={"limits": limits}),
        replicas=2,
        restartPolicy=row.policy,
        restartScope="Pod",
        **row.fields,
    )
    if row.fault == "init":
        role["template"]["spec"]["initContainers"] = [container("fetch")]
    return aitrainingjob("job", replicaSpecs={"worker": role})


# --- nodes ---


async def fail(admin: Admin, name: str, fault: str) -> None:
    match fault:
        case "not-ready" | "both":
            await admin.set_status("nodes", None, name, {"conditions": [ready("Unknown", "the kubelet is silent")]})
        case "unreachable" | "out-of-service":
            added = ready()["lastTransitionTime"]
            taint = {"key": f"node.kubernetes.io/{fault}", "effect": "NoExecute", "timeAdded": added}
            await admin.patch("nodes", None, name, {"spec": {"taints": [taint]}})
        case "deleted":
            await admin.delete("nodes", None, name)
        case "gpu":
            await admin.set_status("nodes", None, name, {"allocatable": {GPU: "1"}})
        case "all-gpus" | "plug-in":
            await admin.set_status("nodes", None, name, {"allocatable": {GPU: "0"}})
        case "kubelet":
            await admin.set_status("nodes", None, name, {"allocatable": {GPU: "0"}, "capacity": {GPU: "0"}})
        case "condition":
            sick = ready("True", "Xid 79") | {"type": "GPUUnhealthy"}
            await admin.set_status("nodes", None, name, {"conditions": [ready(), sick]})


# --- playing them ---


class Outcome(NamedTuple):
    status: Object
    phases: list[str]
    incarnations: dict[str, int]


async def befall(job: Job, row: Row) -> None:
    scene = job.scene
    if row.fault == "image":
        await scene.admin.set_pod(scene.namespace, SECOND, phase="Pending", containers=["ErrImagePull"])
    elif row.fault == "init":
        await scene.admin.set_pod(
            scene.namespace, SECOND, phase="Pending", containers=["PodInitializing"], init_containers=["ErrImagePull"]
        )
    else:
        await fail(scene.admin, scene.namespace, row.fault)
    if row.fault == "all-gpus":
        await report_unhealthy(scene, SECOND)


async def report_unhealthy(scene: Scene, name: str) -> None:
    """The kubelet says that both devices of a pod are dead."""
    pod = await scene.admin.get("pods", scene.namespace, name)
    dead = [{"resourceID": f"GPU-{number}", "health": "Unhealthy"} for number in range(2)]
    statuses = [
        {**each, "allocatedResourcesStatus": [{"name": GPU, "resources": dead}]}
        for each in pod["status"]["containerStatuses"]
    ]
    await scene.admin.set_status("pods", scene.namespace, name, {"containerStatuses": statuses})


async def play(scene: Scene, row: Row) -> Outcome:
    node = scene.namespace
    await add_node(scene.admin, node)
    job = await scene.create(spec_of(row))
    async with scene.kubelet():
        await job.pods_are_there()
        await scene.admin.bind(scene.namespace, SECOND, node)
        await scene.admin.bind(scene.namespace, FIRST, node if row.fault == "both" else NODE)
        if row.fault not in CREATION:
            await scene.report("Running", FIRST, SECOND)
            await job.reach("Running")
        await befall(job, row)
        await job.until(lambda: job.phase in ALL_ENDED or job.phases[-2:] == PATH[:2], "it restarts or ends")
        if job.phase not in ALL_ENDED:
            await job.runs_again()
    return Outcome(job.status, job.phases, scene.incarnations("pods"))


@pytest.fixture(scope="module")
def operator(plane: ControlPlane) -> Iterator[OperatorProcess]:
    with OperatorProcess(plane, args=ARGS) as operator:
        yield operator
        assert operator.is_running()
        assert "defect in trainmaster" not in operator.log


@pytest.fixture(scope="module")
def outcomes(plane: ControlPlane, operator: OperatorProcess) -> dict[str, Outcome | str]:
    return play_all(plane, "fault", {row.id: partial(play, row=row) for row in ROWS})


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
def test_a_fault_is_seen_told_and_answered(row: Row, outcomes: dict[str, Outcome | str]) -> None:
    outcome = outcomes[row.id]

    assert isinstance(outcome, Outcome), outcome
    status, phases, incarnations = outcome
    assert phases[-len(row.path) :] == row.path
    assert {name for name, number in incarnations.items() if number > 1} == set(row.again)
    told = " ".join(c["message"] for c in status["conditions"] if c["type"] in ("Terminating", row.path[-1]))
    assert row.says.format(node=f"fault-{row.id}") in told
    if row.fault in CREATION:
        assert f"pod {SECOND} create container failed[ErrImagePull] and has been retrying for " in told
        assert "check that the image exists, and that imagePullSecrets let it be pulled" in told
    if row.again:
        (entry,) = status["restartHistory"]
        assert (entry["replica"], bool(entry["node"])) == ("worker-1", True)


# --- how pods go ---


@pytest.fixture
async def node(admin: Admin, namespace: str) -> str:
    await add_node(admin, namespace)
    return namespace


def workers(policy: str = "Never", **fields: Any) -> Manifest:
    role = replica(replicas=2, restartPolicy=policy, restartScope="All", **fields)
    return aitrainingjob("job", replicaSpecs={"worker": role})


async def start(scene: Scene, manifest: Manifest, node: str) -> Job:
    job = await scene.create(manifest)
    await job.pods_are_there()
    await scene.admin.bind(scene.namespace, SECOND, node)
    await job.start()
    return job


@pytest.mark.usefixtures("operator")
async def test_the_pod_on_the_lost_node_is_forced_and_the_other_one_is_asked(scene: Scene, node: str) -> None:
    """No kubelet runs here, so only pods that are deleted by force go."""
    job = await start(scene, workers("OnNodeFail"), node)

    await fail(scene.admin, node, "not-ready")
    await job.until(lambda: set(job.children("pods")) == {FIRST}, "the one that is lost is gone")
    await job.until(lambda: "deletionTimestamp" in job.children("pods")[FIRST]["metadata"], "the other one is asked")

    await job.until(lambda: job.phase == "Terminating", "it is terminating")
    assert job.children("pods")[FIRST]["metadata"]["deletionGracePeriodSeconds"] == 30


@pytest.mark.usefixtures("operator")
async def test_a_pod_that_succeeded_stays_whatever_becomes_of_its_node(scene: Scene, node: str) -> None:
    """Pods that have ended are not judged by their node."""
    job = await start(scene, workers("Always"), node)
    await scene.end(SECOND, 0)

    await fail(scene.admin, node, "deleted")
    await scene.settled()
    await scene.end(FIRST, 0)
    async with scene.kubelet():
        await job.reach("Succeed")

    assert scene.incarnations("pods")[SECOND] == 1


@pytest.mark.usefixtures("operator")
async def test_a_node_that_is_not_ready_for_a_moment_costs_nothing(scene: Scene, node: str) -> None:
    """Its grace period begins in an hour, so that it does not end on a slow machine."""
    job = await start(scene, workers("Always"), node)

    away = ready("False", "restarting", seconds_ago=-3600)
    await scene.admin.set_status("nodes", None, node, {"conditions": [away]})
    await scene.settled()
    await scene.admin.set_status("nodes", None, node, {"conditions": [ready(seconds_ago=0)]})
    await scene.settled()

    assert (job.phase, job.phases[-1]) == ("Running", "Running")
    assert set(scene.incarnations("pods").values()) == {1}


# --- devices ---


async def start_on_gpus(scene: Scene, node: str) -> Job:
    """Two workers have the eight GPUs of a node."""
    role = replica(
        container(TRAINER, resources={"limits": {GPU: "4"}}),
        replicas=2,
        restartPolicy="OnNodeFail",
        restartScope="Pod",
    )
    job = await scene.create(aitrainingjob("job", replicaSpecs={"worker": role}))
    await job.pods_are_there()
    await scene.admin.bind(scene.namespace, FIRST, node)
    await scene.admin.bind(scene.namespace, SECOND, node)
    await job.start()
    return job


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("what", ["plug-in", "kubelet"])
async def test_a_restart_of_the_device_plug_in_or_the_kubelet_restarts_no_training(
    scene: Scene, node: str, what: str
) -> None:
    """While it is away no device is allocatable. --node-fail-grace-period, which is a second here, is not about it."""
    job = await start_on_gpus(scene, node)

    await fail(scene.admin, node, what)
    if what == "kubelet":
        await job.until(lambda: list(job.status.get("nodeTroubles", ())) == [f"{node}/{GPU}"], "it is seen")
    await scene.settled()
    await scene.admin.set_status("nodes", None, node, {"allocatable": {GPU: "8"}, "capacity": {GPU: "8"}})
    await job.until(lambda: "nodeTroubles" not in job.status, "it is over")
    await scene.settled()

    assert (job.phase, "RestartCount" in job.status) == ("Running", False)
    assert {scene.incarnations("pods")[name] for name in (FIRST, SECOND)} == {1}


@pytest.mark.usefixtures("operator")
async def test_one_dead_device_of_eight_restarts_the_pods_that_may_have_it(scene: Scene, node: str) -> None:
    job = await start_on_gpus(scene, node)

    async with scene.kubelet():
        await scene.admin.set_status("nodes", None, node, {"allocatable": {GPU: "7"}})
        await job.until(lambda: job.phases[-2:] == PATH[:2], "it restarts")
        await job.pods_are_there()

    assert {entry["reason"] for entry in job.status["restartHistory"]} == {"DeviceFailure"}
    assert {scene.incarnations("pods")[name] for name in (FIRST, SECOND)} == {2}
