"""Faults of a real cluster, each with a job of every kind: what happens, and after how long."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import pytest

from testbed.cluster.cluster import Cluster
from tests.build import Json
from tests.e2e.audit import Audit
from tests.e2e.conftest import NAMESPACE, all_available
from tests.e2e.kinds import KINDS, TOO_MUCH
from tests.e2e.report import Report, Seen
from tests.e2e.scene import Pod, Scene

NODE = "node3"
RECOVERY_TIMEOUT = 240.0
PARTITION = 60.0
OUTAGE = 30.0
LEASE = 15.0
"""--leader-elect-lease-duration."""

HELD = "e2e.trainmaster/held"

LEASES = sorted({kind.lease for kind in KINDS})

Stories = Callable[[str], Scene]


@pytest.fixture
def story(installed: Cluster) -> Iterator[Stories]:
    """Jobs of every kind under a name; they are removed at the end, and every node is back."""
    scenes: list[Scene] = []

    def begin(name: str) -> Scene:
        scenes.append(Scene(installed, name))
        return scenes[-1]

    installed.wait("all nodes are ready", lambda: installed.ready_nodes() == set(installed.nodes), 120)
    yield begin
    for scene in scenes:
        scene.remove()


def is_elsewhere(size: int, pods: dict[str, Pod]) -> bool:
    return len(pods) == size and all(pod.node != NODE for pod in pods.values())


def on_node(pods: dict[str, dict[str, Pod]]) -> dict[str, int]:
    """How many pods each kind has on the node."""
    return {kind: sum(pod.node == NODE for pod in found.values()) for kind, found in pods.items()}


def require_recovery(took: dict[str, float], scene: Scene) -> None:
    late = [kind for kind in KINDS if kind.name not in took]
    said = "\n".join(f"{kind.name}: {json.dumps(scene.job(kind)['status'])[:2000]}" for kind in late)
    assert not late, f"not recovered within {RECOVERY_TIMEOUT:.0f} s:\n{said}"


def test_after_a_restart_of_kubelet_no_pod_was_touched(installed: Cluster, story: Stories, written: Report) -> None:
    scene = story("kubelet")
    scene.create(node=NODE)
    before = scene.wait_steady()
    node = installed.node(NODE)
    pids = node.folder / "pids.json"
    old = json.loads(pids.read_text())["kubelet"]

    node.kill_program("kubelet")
    installed.wait("kubelet is started again", lambda: json.loads(pids.read_text())["kubelet"] != old, 30)
    installed.wait("the node is ready", lambda: NODE in installed.ready_nodes(), 60)

    assert scene.wait_steady() == before
    written.fault("kubelet killed", {kind.name: Seen("goes on") for kind in KINDS})


def test_after_an_outage_of_the_api_jobs_go_on_and_new_ones_start(
    installed: Cluster, story: Stories, written: Report, audit: Audit
) -> None:
    """A new namespace has to wait for its service account: these are older."""
    scene, later = story("outage"), story("later")
    later.create_namespaces()
    scene.create()
    before = scene.wait_steady()

    installed.control.stop_api()
    time.sleep(OUTAGE)  # the fault is that long
    installed.control.start_api()
    installed.wait("the API server answers", installed.control.is_ready, 60)
    answered = datetime.now(UTC)
    later.create_jobs()
    took = later.times(lambda kind, pods: len(pods) == kind.size, RECOVERY_TIMEOUT)

    require_recovery(took, later)
    assert scene.wait_steady() == before
    audit.forgive()  # an API server that starts does not know all roles at once
    # Times of creation are whole seconds.
    created = {name: max((at - answered).total_seconds(), 0) for name, at in later.created().items()}
    ready = (max(map(ready_since, nodes_of(installed))) - answered).total_seconds()
    written.fact(f"all nodes Ready after an outage of the API server of {OUTAGE:.0f} s", f"{max(ready, 0):.0f} s")
    seen = {
        name: Seen(f"goes on; a new job has pods after {created[name]:.0f} s, and runs", seconds)
        for name, seconds in took.items()
    }
    written.fault(f"API server and etcd away for {OUTAGE:.0f} s", seen)


def test_after_a_kill_of_the_leader_every_kind_has_one_again_within_the_lease(
    installed: Cluster, story: Stories, written: Report
) -> None:
    """The other one takes the Leases, or the kubelet has started the container again before."""
    leader = make_one_leader(installed)
    killed = datetime.now(UTC)
    kill_container(installed, leader)
    took = times_of(LEASES, lambda name: renewed_at(lease_of(installed, name)) > killed)

    written.fault("leader killed (SIGKILL)", {kind.name: Seen("led again", took[kind.lease]) for kind in KINDS})
    assert max(took.values()) <= LEASE + 2
    installed.wait("all Deployments are available", lambda: all_available(installed), 120)
    scene = story("leader")
    scene.create()
    scene.wait_steady()


def test_when_the_node_of_the_leader_is_powered_off_the_other_one_leads_within_the_lease(
    installed: Cluster, written: Report
) -> None:
    leader = make_one_leader(installed)
    node = pod_of(installed, leader)["spec"]["nodeName"]

    killed = datetime.now(UTC)
    installed.kill(node)
    took = times_of(LEASES, lambda name: leader_of(installed, name) not in {"", leader})
    other = pod_of(installed, leader_of(installed, LEASES[0]))
    installed.start(node)
    installed.wait("all nodes are ready", lambda: installed.ready_nodes() == set(installed.nodes), 120)
    installed.wait("all Deployments are available", lambda: all_available(installed), 120)

    seen = {kind.name: Seen("the other one leads", took[kind.lease]) for kind in KINDS}
    written.fault("power-off of the leader's node", seen)
    assert max(took.values()) <= LEASE + 2, f"killed at {killed}; the other one: {other['status']}"


def test_a_job_that_uses_too_much_memory_fails_and_says_so(installed: Cluster, story: Stories, written: Report) -> None:
    scene = story("memory")
    started = time.monotonic()
    scene.create(command=TOO_MUCH, memory="64Mi")
    ended: dict[str, float] = {}
    while len(ended) < len(KINDS) and time.monotonic() - started < RECOVERY_TIMEOUT:
        for kind in KINDS:
            if kind.name not in ended and kind.row.result(scene.job(kind)) == "Failed":
                ended[kind.name] = time.monotonic() - started
        time.sleep(0.5)

    require_recovery(ended, scene)
    for kind in KINDS:
        namespace = scene.namespace(kind)
        events = installed.kubectl("get", "events", f"--namespace={namespace}", "--output=json")
        assert "OOMKilled" in json.dumps(scene.job(kind)["status"]) + events, kind.name
    written.fault(
        "a container is OOMKilled, no restarts allowed", {n: Seen("Failed, says so", s) for n, s in ended.items()}
    )


def test_pods_of_a_drained_node_come_again_elsewhere(installed: Cluster, story: Stories, written: Report) -> None:
    scene = story("drain")
    scene.create(node=NODE)
    before = on_node(scene.wait_steady())
    assert all(before.values()), before

    started = time.monotonic()
    installed.kubectl("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
    drained = time.monotonic() - started
    took = scene.times(lambda kind, pods: is_elsewhere(kind.size, pods), RECOVERY_TIMEOUT)
    installed.kubectl("uncordon", NODE)

    require_recovery(took, scene)
    written.fault("drain of the node", {n: Seen("runs elsewhere", drained + s) for n, s in took.items()})


def test_after_a_partition_every_job_has_each_pod_once(installed: Cluster, story: Stories, written: Report) -> None:
    scene = story("partition")
    scene.create(node=NODE)
    before = scene.wait_steady()
    assert all(on_node(before).values()), before

    installed.partition(NODE)
    took = scene.times(lambda kind, pods: is_elsewhere(kind.size, pods), PARTITION)
    installed.heal(NODE)
    installed.wait("the node is ready", lambda: NODE in installed.ready_nodes(), 60)
    after = scene.wait_steady()

    seen = {}
    for kind in KINDS:
        if after[kind.name].keys() == before[kind.name].keys():
            seen[kind.name] = Seen("goes on")
        elif kind.name in took:
            seen[kind.name] = Seen("runs elsewhere", took[kind.name])
        else:
            seen[kind.name] = Seen("runs again when the node is back")
    written.fault(f"partition of the node for {PARTITION:.0f} s", seen)


def test_when_a_node_is_powered_off_its_pods_come_again_elsewhere(
    installed: Cluster, story: Stories, written: Report
) -> None:
    scene = story("power")
    scene.create(node=NODE)
    before = on_node(scene.wait_steady())
    assert all(before.values()), before

    installed.kill(NODE)
    took = scene.times(lambda kind, pods: is_elsewhere(kind.size, pods), RECOVERY_TIMEOUT)
    installed.start(NODE)
    installed.wait("the node is ready", lambda: NODE in installed.ready_nodes(), 120)

    require_recovery(took, scene)
    scene.wait_steady()
    written.fault("power-off of the node", {n: Seen("runs elsewhere", s) for n, s in took.items()})


def test_a_namespace_that_is_deleted_goes_with_its_jobs_and_no_restart_is_counted(
    installed: Cluster, story: Stories, written: Report
) -> None:
    """A finalizer keeps the jobs, so that what was counted can be read. Kubernetes deletes the pods of a namespace
    before all else."""
    scene = story("namespace")
    scene.create(finalizers=[HELD])
    before = scene.wait_steady()
    names = [scene.namespace(kind) for kind in KINDS]

    started = time.monotonic()
    installed.kubectl("delete", "namespace", "--wait=false", *names)
    found: dict[str, set[str]] = {kind.name: set() for kind in KINDS}

    def are_gone() -> bool:
        pods = scene.bodies()
        for name, bodies in pods.items():
            found[name] |= {body["metadata"]["uid"] for body in bodies}
        return not any(pods.values())

    installed.wait("all pods are gone", are_gone, 120)
    took = time.monotonic() - started
    jobs = {kind.name: scene.job(kind) for kind in KINDS}
    for kind in KINDS:
        nothing = json.dumps([{"op": "remove", "path": "/metadata/finalizers"}])
        namespace = f"--namespace={scene.namespace(kind)}"
        installed.kubectl("patch", kind.lease, "job", namespace, "--type=json", f"--patch={nothing}")

    assert found == {name: before[name].keys() for name in found}
    assert {kind.name: kind.row.counted(jobs[kind.name]) for kind in KINDS if kind.row.counted} == {
        kind.name: 0 for kind in KINDS if kind.row.counted
    }
    written.fault("namespace deleted", {kind.name: Seen("ends, no restart counted", took) for kind in KINDS})


def times_of(names: Iterable[str], is_so: Callable[[str], bool]) -> dict[str, float]:
    """How many seconds it took for each name until it was so."""
    started, missing = time.monotonic(), set(names)
    took: dict[str, float] = {}
    while missing:
        assert time.monotonic() - started < RECOVERY_TIMEOUT, f"not within {RECOVERY_TIMEOUT:.0f} s: {missing}"
        for name in [name for name in missing if is_so(name)]:
            took[name] = time.monotonic() - started
            missing.remove(name)
        time.sleep(0.2)
    return took


def make_one_leader(cluster: Cluster) -> str:
    """Each kind has a Lease, and two operators may share them; let one have all, and answer the name of its pod."""
    leader = leader_of(cluster, LEASES[0])

    def is_only_one() -> bool:
        """The pod that takes the place of another one may be faster, and goes, too."""
        others = {leader_of(cluster, name) for name in LEASES} - {leader, ""}
        for other in others:
            cluster.kubectl("delete", "pod", other, f"--namespace={NAMESPACE}", "--ignore-not-found", "--force")
        return not others and {leader_of(cluster, name) for name in LEASES} == {leader}

    cluster.wait("one leads", is_only_one, 120)
    cluster.wait("the other operator is ready on another node", lambda: len(nodes_of_operators(cluster)) == 2, 120)
    cluster.wait("all Deployments are available", lambda: all_available(cluster), 120)
    return leader


def nodes_of_operators(cluster: Cluster) -> set[str]:
    """The nodes on which operators are ready. Statuses of Deployments may be older: after an outage of the API the
    controllers are late."""
    query = "labelSelector=app.kubernetes.io/name%3Dtrainmaster-operator"
    pods = cluster.control.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{query}")["items"]
    ready = {"type": "Ready", "status": "True"}
    return {
        pod["spec"]["nodeName"]
        for pod in pods
        if any(ready.items() <= condition.items() for condition in pod["status"].get("conditions", ()))
    }


def leader_of(cluster: Cluster, lease: str) -> str:
    """The pod that holds a Lease."""
    return str(lease_of(cluster, lease)["holderIdentity"]).rpartition("_")[0]


def lease_of(cluster: Cluster, lease: str) -> Json:
    """The spec of a Lease."""
    body = cluster.control.get(f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}")
    return {"holderIdentity": "", **body["spec"]}


def renewed_at(lease: Json) -> datetime:
    """When it was renewed last."""
    return datetime.fromisoformat(lease["renewTime"])


def nodes_of(cluster: Cluster) -> list[Json]:
    """All nodes."""
    bodies: list[Json] = cluster.control.get("/api/v1/nodes")["items"]
    return bodies


def ready_since(node: Json) -> datetime:
    """Since when a node is Ready, or not."""
    [at] = [each["lastTransitionTime"] for each in node["status"]["conditions"] if each["type"] == "Ready"]
    return datetime.fromisoformat(at)


def pod_of(cluster: Cluster, name: str) -> Json:
    """A pod of the installation."""
    body: Json = cluster.control.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
    return body


def kill_container(cluster: Cluster, pod: str) -> None:
    """Kill the first process of a pod's container, as the system does when memory is short."""
    body = pod_of(cluster, pod)
    container = body["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    ctr = cluster.node_binaries / "ctr"
    cluster.node(body["spec"]["nodeName"]).run(ctr, "-n", "k8s.io", "tasks", "kill", "--signal=SIGKILL", container)
