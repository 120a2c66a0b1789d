from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from tests.build import NOW, a_node, a_pod, an_aitj
from trainmaster.core.ids import Key
from trainmaster.core.view import NodeView
from trainmaster.lifecycle import node
from trainmaster.lifecycle.node import NodeProblem, Rules

JOB = an_aitj()
GRACE = 30.0
RULES = Rules(GRACE, frozenset({"GPUUnhealthy"}))
EARLIER = NOW - timedelta(seconds=29)
LONG_AGO = NOW - timedelta(seconds=30)

UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
GONE = NodeView(Key("", "node-1"), is_gone=True)


def troubles(view: NodeView, used: Mapping[str, int] | None = None) -> list[NodeProblem]:
    return list(node.problems_of(view, RULES, used or {}))


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
    ("devices", "used", "short"),
    [
        pytest.param({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 8}, [], id="all work"),
        pytest.param({"nvidia.com/gpu": 7}, {"nvidia.com/gpu": 8}, ["nvidia.com/gpu"], id="one less"),
        pytest.param({"nvidia.com/gpu": 7}, {"nvidia.com/gpu": 4}, [], id="none that we were given, maybe"),
        pytest.param({}, {"nvidia.com/gpu": 1}, ["nvidia.com/gpu"], id="the plugin is gone"),
        pytest.param({"amd.com/gpu": 1}, {"amd.com/gpu": 1, "x.com/npu": 2}, ["x.com/npu"], id="of two kinds"),
    ],
)
def test_devices_that_are_fewer_than_were_given_out_are_a_trouble(
    devices: dict[str, int], used: dict[str, int], short: list[str]
) -> None:
    found = troubles(a_node(devices=devices), used)

    assert [trouble.device for trouble in found] == short
    assert not any(trouble.is_lost for trouble in found)


def test_a_missing_device_is_counted_from_when_it_was_first_seen() -> None:
    (trouble,) = troubles(a_node(devices={"nvidia.com/gpu": 7}), {"nvidia.com/gpu": 8})

    assert trouble.message == "Node node-1 has 7 nvidia.com/gpu that work, and pods of this job were given 8 of them"
    assert (trouble.left(GRACE, EARLIER, NOW), trouble.left(GRACE, LONG_AGO, NOW)) == (1.0, 0.0)


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


@pytest.mark.parametrize(("since", "left"), [(EARLIER, 1.0), (LONG_AGO, None), (None, None)])
def test_somebody_looks_when_the_grace_period_is_over(since: Any, left: float | None) -> None:
    assert node.until_lost({"node-1": a_node(ready="False", since=since)}, GRACE, NOW) == left


def test_nodes_that_cannot_be_read_are_not_lost() -> None:
    assert node.lost(None, GRACE, NOW) == frozenset()
    assert node.until_lost(None, GRACE, NOW) is None


def test_a_fault_of_a_node_names_pod_node_and_reason() -> None:
    said = "Kubelet stopped posting node status."
    (trouble,) = troubles(a_node(ready="Unknown", message=said))

    fault = node.fault_of(a_pod(JOB, "trainer"), trouble)

    assert fault.message == f"pod mnist-trainer-0 failed: Node node-1 is failed and offline: {said}"
    assert (fault.phase, fault.node, fault.reason) == ("NodeFail", "node-1", "NodeNotReady")
    assert (fault.is_node, fault.has_failed, fault.exits) == (True, False, ())


def test_devices_are_counted_of_pods_that_have_not_ended() -> None:
    gpus = {"nvidia.com/gpu": 2}
    pods = [
        a_pod(JOB, "trainer", 0, devices=gpus),
        a_pod(JOB, "trainer", 1, devices=gpus, deleting=True),
        a_pod(JOB, "trainer", 2, devices=gpus, exit_code=0),
        a_pod(JOB, "trainer", 3, devices={"x.com/npu": 1}, node="node-2"),
        a_pod(JOB, "trainer", 4),
    ]

    assert node.devices_used(pods) == {"node-1": {"nvidia.com/gpu": 4}, "node-2": {"x.com/npu": 1}}
