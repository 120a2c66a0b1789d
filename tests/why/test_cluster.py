"""`trainmaster why` names the cause of every failure on a real API server, with a real scheduler and a real quota.

Programs run on a node of this machine. What only a kubelet, a node or a cluster of machines can do is reported by the
test, in a namespace of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from testbed.admin import Admin
from testbed.certificate import Authority
from testbed.operator import OperatorProcess, install
from testbed.plane import ControlPlane
from tests.integration.scene import Chronicle, Scene, add_node, ready
from tests.local.node.life import Scene as NodeScene
from tests.why.asking import CLEANED, KEPT, Answers, Asking, report
from tests.why.table import TABLE, Failure, main, pods
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.kubeconfig import load_config
from trainmaster.settings import NODE

pytestmark = pytest.mark.timeout(900)
"""The first test waits for all failures."""

PROGRAMS, PLAYED = "programs", "played"
"""The namespaces."""
FPGA = "example.com/fpga"
IMAGE = "registry.example/train:7"
CLEAN_NODES = 9
"""More than half of the nodes are ready: in an outage nothing is decided."""

# --- what kubelets, nodes and other components do to worker-0 ---

Act = Callable[[Scene, str], Awaitable[None]]
"""The name of the job is its second argument."""


async def _pod(scene: Scene, name: str) -> str:
    await scene.admin.wait_for("pods", scene.namespace, f"{name}-worker-0", lambda pod: pod)
    return f"{name}-worker-0"


async def _run(scene: Scene, name: str) -> tuple[str, str]:
    """Starts its pod on a node of its own."""
    pod, node = await _pod(scene, name), f"node-of-{name}"
    await add_node(scene.admin, node)
    await scene.admin.set_pod(scene.namespace, pod, phase="Running", node=node)
    return pod, node


async def nothing(scene: Scene, name: str) -> None:
    """The API server or the scheduler does it."""


async def cannot_pull(scene: Scene, name: str) -> None:
    pod, message = await _pod(scene, name), f'Back-off pulling image "{IMAGE}"'
    waiting = {"reason": "ImagePullBackOff", "message": message}
    status = {"name": "main", "image": IMAGE, "imageID": "", "ready": False, "restartCount": 0}
    await scene.bind(pod)
    await scene.admin.set_status(
        "pods", scene.namespace, pod, {"containerStatuses": [{**status, "state": {"waiting": waiting}}]}
    )


async def lose_node(scene: Scene, name: str) -> None:
    _, node = await _run(scene, name)
    lost = ready("Unknown", "Kubelet stopped posting node status.", seconds_ago=3600)
    await scene.admin.set_status("nodes", None, node, {"conditions": [lost]})


async def delete_node(scene: Scene, name: str) -> None:
    _, node = await _run(scene, name)
    await scene.admin.delete("nodes", None, node)


def ended(reason: str, message: str) -> Act:
    """The node ends the pod."""

    async def end(scene: Scene, name: str) -> None:
        pod, _ = await _run(scene, name)
        await scene.admin.set_pod(
            scene.namespace, pod, phase="Failed", node=None, containers=[137], reason=reason, message=message
        )

    return end


async def reject(scene: Scene, name: str) -> None:
    """The node does not admit the pod: it has no containers."""
    pod = await _pod(scene, name)
    await scene.bind(pod)
    message = "Node didn't have enough resource: cpu, requested: 4000, used: 6000, capacity: 8000"
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": message}
    await scene.admin.set_status("pods", scene.namespace, pod, status)


async def drain(scene: Scene, name: str) -> None:
    """As ``kubectl drain`` does."""
    pod, _ = await _run(scene, name)
    scene.slow_to_end.add(pod)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    await scene.admin.request("POST", f"/api/v1/namespaces/{scene.namespace}/pods/{pod}/eviction", body)


async def preempt(scene: Scene, name: str) -> None:
    """As the scheduler does for a pod of a higher priority."""
    pod, _ = await _run(scene, name)
    scene.slow_to_end.add(pod)
    why = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempting"}
    await scene.admin.set_status("pods", scene.namespace, pod, {"conditions": [why]})
    await scene.admin.delete("pods", scene.namespace, pod)


HELD = {**main(image=IMAGE), "schedulerName": "none", "terminationGracePeriodSeconds": 1}
"""Pods that the test binds to nodes."""
GPUS = main(resources={"limits": {"nvidia.com/gpu": 8}})

ACTS: dict[Failure, Act] = {
    pods("image", HELD, "ImagePullBackOff", IMAGE, waits=True): cannot_pull,
    pods("unschedulable", GPUS, "worker-0", "Insufficient nvidia.com/gpu", waits=True): nothing,
    pods("quota", main(resources={"limits": {FPGA: 100}}), "worker-0", "exceeded quota", waits=True): nothing,
    pods("node-lost", HELD, "worker-0", "node-of-node-lost", "stopped posting node status"): lose_node,
    pods("node-deleted", HELD, "worker-0", "node-of-node-deleted", "deleted"): delete_node,
    pods("evicted", HELD, "worker-0", "Evicted", "low on resource: ephemeral-storage"): ended(
        "Evicted", "The node was low on resource: ephemeral-storage. Container main was using 90Gi, request is 0."
    ),
    pods("shutdown", HELD, "worker-0", "node shutdown"): ended(
        "Terminated", "Pod was terminated in response to imminent node shutdown."
    ),
    pods("rejected", HELD, "worker-0", "OutOfcpu", "enough resource: cpu"): reject,
    pods("drained", HELD, "worker-0", "evicted", "node-of-drained"): drain,
    pods("preempted", HELD, "worker-0", "preempted", "node-of-preempted"): preempt,
}
ON_NODE = tuple(failure for failure in TABLE if failure.name != "gpu")
"""A pod is bound to the node by its name, so no scheduler looks at its GPUs."""
ALL = (*ON_NODE, *ACTS)

QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "fpgas"},
    "spec": {"hard": {f"requests.{FPGA}": "8"}},
}


@pytest.fixture(scope="module")
def answers(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("why")
    for name in ("client", "node"):
        (folder / name).mkdir()
    authority = Authority(folder / "client")
    pair = authority.client(NODE.client_name, "system:masters")
    arguments = (f"--kubelet-client-certificate={pair.certificate}", f"--kubelet-client-key={pair.key}")
    with ControlPlane(binaries=binaries, apiserver_arguments=arguments) as plane:
        install(plane)
        plane.start_controller_manager(("job-controller", "resourcequota-controller"))
        plane.start_scheduler()
        with OperatorProcess(plane):
            return asyncio.run(_ask(plane, folder, authority))


async def _ask(plane: ControlPlane, folder: Path, authority: Authority) -> Answers:
    kubeconfig = plane.kubeconfig("admin")
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin.of(plane))
        cluster = await stack.enter_async_context(KubeCluster(load_config(kubeconfig=str(kubeconfig))))
        world = await stack.enter_async_context(Chronicle(plane))
        for namespace in (PROGRAMS, PLAYED):
            await admin.create("namespaces", {"metadata": {"name": namespace}})
        machine = NodeScene(
            plane, admin, PROGRAMS, folder, Authority(folder / "node").server(), client_ca=authority.ca_file
        )
        scene = Scene(admin, world, PLAYED)
        for number in range(CLEAN_NODES):
            await add_node(admin, f"n{number}")
        await _limit(admin)
        try:
            async with machine.node(), scene.kubelet():
                on_node = Asking(cluster, kubeconfig, PROGRAMS, node=machine.name)
                played = Asking(cluster, kubeconfig, PLAYED, act=lambda failure, name: ACTS[failure](scene, name))
                return {**await played.ask_all(tuple(ACTS)), **await on_node.ask_all(ON_NODE)}
        finally:
            machine.sweep()


async def _limit(admin: Admin) -> None:
    """Until the quota has a status, nothing is created in its namespace."""
    await admin.create("resourcequotas", QUOTA, PLAYED)
    await admin.wait_for("resourcequotas", PLAYED, "fpgas", lambda quota: quota["status"]["hard"])


CELLS = [
    pytest.param(failure, policy, id=f"{failure.name}-{policy}")
    for failure in ALL
    for policy in ((KEPT,) if failure.waits else (KEPT, CLEANED))
]


@pytest.mark.parametrize(("failure", "policy"), CELLS)
def test_the_first_line_names_the_cause(failure: Failure, policy: str, answers: Answers) -> None:
    error = answers[failure.name, policy].error(failure)

    assert not error, error


def test_the_figures(answers: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\ntest bed: {report(ALL, answers)}")
