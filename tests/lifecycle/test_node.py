from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.build import NOW, a_node, a_pod, an_aitj
from trainmaster.core.ids import Key
from trainmaster.core.view import NodeView, PodView
from trainmaster.lifecycle import node
from trainmaster.lifecycle.node import NodeProblem, Rules

JOB = an_aitj()
GRACE = 30.0
RULES = Rules(GRACE, 900.0, frozenset({"GPUUnhealthy"}))
EARLIER = NOW - timedelta(seconds=29)
LONG_AGO = NOW - timedelta(seconds=30)

UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
GONE = NodeView(Key("", "node-1"), is_gone=True)


def troubles(view: NodeView) -> list[NodeProblem]:
    return list(node.problems_of(view, RULES))


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        pytest.param(a_node(), "", id="ready"),
        pytest.param(a_node(ready=""), "", id="of which nothing is said yet"),
        pytest.param(a_node(ready="False"), "NodeNotReady", id="not ready"),
        pytest.param(a_node(ready="Unknown"), "NodeNotReady", id="nobody knows"),
        pytest.param(a_node(ready="Unknown", taints={UNREACHABLE: NOW}), "NodeUnreachable", id="unreachable"),
        pytest.param(a_node(taints={OUT_OF_SERVICE: None}), "NodeOutOfService", id="out of service"),
        pytest.param(a_node(taints={"node.kubernetes.io/unschedulable": NOW}), "", id="cordoned"),
        pytest.param(a_node(taints={"example.com/unreachable": NOW}), "", id="somebody's own taint"),
        pytest.param(GONE, "NodeGone", id="gone"),
        pytest.param(a_node(conditions={"GPUUnhealthy": "Xid 79"}), "GPUUnhealthy", id="a bad condition"),
        pytest.param(a_node(conditions={"MemoryPressure": "low"}), "", id="another condition"),
    ],
)
def test_a_node_is_judged_by_what_the_api_says_of_it(view: NodeView, reason: str) -> None:
    assert [trouble.reason for trouble in troubles(view)] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("view", "left"),
    [
        pytest.param(a_node(ready="False", since=EARLIER), 1.0, id="not ready for 29 seconds"),
        pytest.param(a_node(ready="False", since=LONG_AGO), 0.0, id="not ready for 30 seconds"),
        pytest.param(a_node(ready="False", since=NOW + timedelta(seconds=5)), 35.0, id="its clock is ahead"),
        pytest.param(
            a_node(ready="Unknown", since=LONG_AGO, taints={UNREACHABLE: EARLIER}), 1.0, id="unreachable for 29 seconds"
        ),
        pytest.param(a_node(ready="Unknown", since=EARLIER, taints={UNREACHABLE: None}), 1.0, id="of unknown age"),
        pytest.param(a_node(taints={OUT_OF_SERVICE: NOW}), 0.0, id="somebody said so: no grace"),
        pytest.param(GONE, 0.0, id="gone: no grace"),
        pytest.param(a_node(conditions={"GPUUnhealthy": ""}, since=EARLIER), 1.0, id="a bad condition"),
    ],
)
def test_a_grace_period_is_counted_from_the_time_that_the_api_tells(view: NodeView, left: float) -> None:
    (trouble,) = troubles(view)

    assert trouble.left(GRACE, NOW, NOW) == left


@pytest.mark.parametrize(
    ("view", "is_lost"),
    [
        pytest.param(a_node(), False, id="ready"),
        pytest.param(a_node(ready="Unknown", since=EARLIER), False, id="within its grace period"),
        pytest.param(a_node(ready="Unknown", since=LONG_AGO), True, id="after it"),
        pytest.param(a_node(taints={OUT_OF_SERVICE: NOW}), True, id="out of service"),
        pytest.param(GONE, True, id="gone"),
        pytest.param(a_node(conditions={"GPUUnhealthy": ""}, since=LONG_AGO), False, id="bad, but its kubelet answers"),
    ],
)
def test_on_a_lost_node_nobody_lets_go_of_a_pod(view: NodeView, is_lost: bool) -> None:
    assert node.lost({"node-1": view}, GRACE, NOW) == (frozenset({"node-1"}) if is_lost else frozenset())


def test_nodes_that_cannot_be_read_are_not_lost() -> None:
    assert node.lost(None, GRACE, NOW) == frozenset()


def test_a_fault_of_a_node_names_pod_node_and_reason() -> None:
    said = "Kubelet stopped posting node status."
    (trouble,) = troubles(a_node(ready="Unknown", message=said))

    fault = node.fault_of(a_pod(JOB, "trainer"), trouble)

    assert fault.message == f"pod mnist-trainer-0 failed: Node node-1 is failed and offline: {said}"
    assert (fault.phase, fault.node, fault.reason) == ("NodeFail", "node-1", "NodeNotReady")
    assert (fault.is_node, fault.has_failed, fault.exits) == (True, False, ())


# --- devices ---

GPU = "nvidia.com/gpu"


def holder(index: int, gpus: int = 2, **fields: Any) -> PodView:
    return a_pod(JOB, "trainer", index, devices={GPU: gpus}, **fields)


def works(gpus: int, capacity: int = 8) -> dict[str, NodeView]:
    return {"node-1": a_node(devices={GPU: gpus}, capacity=capacity)}


def names_hit(pods: Sequence[PodView], working: int, others: Sequence[PodView] = ()) -> list[int]:
    """The indices of the pods that are hit."""
    found = node.device_problems(pods, others, works(working))
    return [index for index, pod in enumerate(pods) if pod.uid in found]


BAD, GOOD, UNKNOWN = {GPU: ["Healthy", "Unhealthy"]}, {GPU: ["Healthy", "Healthy"]}, {GPU: ["Healthy", "Unknown"]}
NEIGHBOUR = a_pod(an_aitj("other"), "trainer", devices={GPU: 4})


@pytest.mark.parametrize(
    ("health", "others", "working", "hit"),
    [
        pytest.param([{}, {}], (), 4, [], id="all work"),
        pytest.param([{}, {}], (), 3, [0, 1], id="one does not, of this job"),
        pytest.param([{}, {}], (), 0, [], id="the plug-in has stopped, or all are dead"),
        pytest.param([{}, BAD], (), 0, [1], id="all are dead, and a kubelet says so of one pod"),
        pytest.param([{}, {}], (), 7, [], id="more work than were given"),
        pytest.param([{}, {}], (NEIGHBOUR,), 8, [], id="all of two jobs work"),
        pytest.param([{}, {}], (NEIGHBOUR,), 7, [0, 1], id="one does not, of either job"),
        pytest.param([{}, BAD], (), 4, [1], id="a kubelet says it before the node does"),
        pytest.param([{}, BAD], (), 3, [1], id="a kubelet says which one"),
        pytest.param([{}, BAD], (NEIGHBOUR,), 7, [1], id="a kubelet says which one of two jobs"),
        pytest.param([{}, BAD], (), 2, [0, 1], id="two do not work, and one of them is known"),
        pytest.param([GOOD, {}], (), 3, [1], id="a pod that is known to be healthy is not hit"),
        pytest.param([GOOD, GOOD], (NEIGHBOUR,), 7, [], id="it is a device of the other job"),
        pytest.param([UNKNOWN, GOOD], (), 3, [0], id="unknown health is not healthy"),
    ],
)
def test_pods_are_hit_that_have_or_may_have_a_device_that_does_not_work(
    health: list[dict[str, list[str]]], others: tuple[PodView, ...], working: int, hit: list[int]
) -> None:
    pods = [holder(index, health=each) for index, each in enumerate(health)]

    assert names_hit(pods, working, others) == hit


def test_another_job_says_which_device_does_not_work() -> None:
    other = a_pod(an_aitj("other"), "trainer", devices={GPU: 2}, health=BAD)

    assert names_hit([holder(0), holder(1)], 5, [other]) == []


def test_pods_on_other_nodes_are_not_hit() -> None:
    pods = [holder(0), holder(1, node="node-2")]
    nodes = works(1) | {"node-2": a_node("node-2", devices={GPU: 2})}

    assert node.device_problems(pods, (), nodes).keys() == {pods[0].uid}


def test_pods_of_other_jobs_that_have_ended_hold_no_device() -> None:
    assert names_hit([holder(0)], 2, [msgspec.structs.replace(NEIGHBOUR, phase="Succeeded")]) == []


def test_pods_that_have_ended_hold_no_device() -> None:
    assert names_hit([holder(0), holder(1, exit_code=0)], 2) == []
    assert names_hit([holder(0, exit_code=0, health=BAD)], 2) == []


def test_a_pod_that_is_being_deleted_still_holds_its_devices() -> None:
    assert names_hit([holder(0), holder(1, deleting=True)], 3) == [0, 1]


def test_only_pods_with_such_a_device_are_hit() -> None:
    pods = [holder(0), a_pod(JOB, "trainer", 1, devices={"x.com/npu": 1}), a_pod(JOB, "trainer", 2)]
    nodes = {"node-1": a_node(devices={GPU: 1, "x.com/npu": 1})}

    assert node.device_problems(pods, (), nodes).keys() == {pods[0].uid}


@pytest.mark.parametrize("nodes", [{}, {"node-1": GONE}], ids=["not known", "gone"])
def test_nothing_is_known_of_the_devices_of_a_node_that_is(nodes: dict[str, NodeView]) -> None:
    assert node.device_problems([holder(0)], (), nodes) == {}


def test_a_kubelet_is_believed_where_nodes_cannot_be_read() -> None:
    pod = holder(0, health=BAD)

    assert node.device_problems([pod], (), {}).keys() == {pod.uid}


def test_a_device_problem_says_what_is_known_and_has_a_grace_period_from_when_it_was_seen() -> None:
    one, two = holder(0, health=BAD), holder(1)
    found = node.device_problems([one, two], (), works(2))

    assert found[one.uid][0].message == "of its devices on node node-1 1 nvidia.com/gpu is unhealthy"
    (problem,) = found[two.uid]
    assert problem.message == (
        "Node node-1 has 2 nvidia.com/gpu that work, and pods were given 4 of them; which ones do not work is not known"
    )
    for problem in (*found[one.uid], *found[two.uid]):
        assert (problem.left(GRACE, EARLIER, NOW), problem.left(GRACE, LONG_AGO, NOW)) == (1.0, 0.0)
        assert not problem.is_lost


# --- devices that a node no longer has ---


@pytest.mark.parametrize(
    ("working", "capacity", "hit"),
    [
        pytest.param(8, 8, "", id="all work"),
        pytest.param(7, 8, "work", id="one of eight is dead"),
        pytest.param(0, 8, "", id="the plug-in restarts: no device is allocatable, and the capacity stays"),
        pytest.param(0, 0, "left", id="the plug-in is gone for five minutes, or the kubelet restarts"),
        pytest.param(7, 7, "left", id="the plug-in is back and lists one device less"),
        pytest.param(6, 7, "work", id="it lists one less, and one of the others is dead"),
        pytest.param(0, 7, "left", id="it listed one less, and restarts again"),
    ],
)
def test_devices_that_are_not_allocatable_have_failed_only_if_others_work(
    working: int, capacity: int, hit: str
) -> None:
    pod = holder(0, 8)
    found = node.device_problems([pod], (), works(working, capacity))

    says = {
        "work": f"Node node-1 has {working} nvidia.com/gpu that work, and pods were given 8 of them;"
        " which ones do not work is not known",
        "left": f"Node node-1 has {capacity} nvidia.com/gpu left, and pods were given 8 of them;"
        " its device plug-in no longer lists the others",
    }
    assert [(each.message, each.missing_device) for each in found.get(pod.uid, ())] == (
        [(says[hit], GPU if hit == "left" else "")] if hit else []
    )


def test_every_problem_of_a_pod_is_told_since_each_has_a_grace_period_of_its_own() -> None:
    pod = a_pod(JOB, "trainer", devices={GPU: 2, "x.com/npu": 2})
    view = msgspec.structs.replace(a_node(), devices={GPU: 0, "x.com/npu": 1}, capacity={GPU: 0, "x.com/npu": 2})
    found = node.device_problems([pod], (), {"node-1": view})

    assert [each.missing_device for each in found[pod.uid]] == [GPU, ""]
