import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.build import NOW, a_node, view_of_node, view_of_pod
from tests.build import node_json as wire_node
from tests.runtime.kind import pod_json
from trainmaster.core.ids import NODE, POD, Key
from trainmaster.core.observed import Observed, SlotLabels
from trainmaster.core.view import NodeView, PodView
from trainmaster.runtime.node_index import POLL, SETTLING_SECONDS, NodeIndex
from trainmaster.runtime.store import Store


class Rig:
    """A book over a store of nodes and one of pods, and whom it told of what."""

    def __init__(self, *nodes: NodeView, seen: int = 1000) -> None:
        self.nodes, self.pods = Store[NodeView](NODE), Store[PodView](POD)
        self.book = NodeIndex(self.nodes, self.pods)
        self.told: list[str] = []
        self.book.listen(lambda pod: self.told.append(pod.key.name))
        self.pods.replace([], 1)
        if nodes:
            self.nodes.replace(nodes, seen)
        self.told.clear()

    def of(self, *pods: PodView) -> dict[str, str] | None:
        """What is known of the nodes of these pods."""
        found = self.book.of(pods)
        return None if found is None else {name: "gone" if view.is_gone else view.ready for name, view in found.items()}

    def poll(self, *pods: PodView) -> float | None:
        seen = Observed.of(pods, [], SlotLabels("role", "index"), nodes=self.book.of(pods))
        return self.book.poll(seen)


def wire_pod(name: str = "mnist-worker-0", node: str = "node-1", version: int = 500) -> dict[str, Any]:
    body = pod_json(name, version=version)
    body["spec"]["nodeName"] = node
    return body


def a_pod(name: str = "mnist-worker-0", node: str = "node-1", version: int = 500) -> PodView:
    return view_of_pod(wire_pod(name, node, version))


def moved(node: NodeView, **fields: Any) -> NodeView:
    return a_node(node.name, version=node.resource_version + 1, **fields)


def a_holder(name: str, node: str = "node-1", gpus: int = 1, version: int = 500) -> PodView:
    """A pod with devices."""
    body = wire_pod(name, node, version)
    body["spec"]["containers"] = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]
    return view_of_pod(body)


# --- pods of other jobs ---


def test_neighbours_are_other_pods_with_devices_where_a_job_has_some() -> None:
    rig = Rig(a_node("node-1"), a_node("node-2"))
    own, other = a_holder("mnist-worker-0"), a_holder("other-worker-0")
    for pod in (own, other, a_holder("elsewhere", "node-2"), a_pod("without-devices")):
        rig.pods.put(pod)

    assert rig.book.neighbours([own]) == (other,)
    assert rig.book.neighbours([a_pod("without-devices")]) == ()


def test_a_neighbour_that_is_gone_or_moved_is_none() -> None:
    rig = Rig(a_node("node-1"))
    own, gone, moved_away = a_holder("mnist-worker-0"), a_holder("gone"), a_holder("moved")
    for pod in (own, gone, moved_away):
        rig.pods.put(pod)
    rig.pods.remove(gone)
    rig.pods.put(a_holder("moved", "node-2", version=501))

    assert rig.book.neighbours([own]) == ()


def test_a_neighbour_is_seen_as_it_is_now() -> None:
    rig = Rig(a_node("node-1"))
    own, other = a_holder("mnist-worker-0"), a_holder("other")
    for pod in (own, other):
        rig.pods.put(pod)
    changed = msgspec.structs.replace(other, phase="Failed", resource_version=600)
    rig.pods.put(changed)

    assert rig.book.neighbours([own]) == (changed,)


# --- what is known ---


def test_the_nodes_of_a_job_are_those_that_its_pods_are_on() -> None:
    rig = Rig(a_node("node-1"), a_node("node-2", ready="False"), a_node("node-3"))

    assert rig.of(a_pod(node="node-1"), a_pod(node="node-2"), a_pod(node="")) == {"node-1": "True", "node-2": "False"}


@pytest.mark.parametrize("seen", [499, 500, 501])
@pytest.mark.parametrize(
    ("node", "known"),
    [
        pytest.param(a_node("node-2"), "gone", id="it is not there: it may be new"),
        pytest.param(a_node("node-1", ready="False"), "False", id="it is not ready: it may be back"),
    ],
)
def test_nothing_is_known_of_a_node_to_which_a_pod_was_bound_since(node: NodeView, known: str, seen: int) -> None:
    rig = Rig(node, seen=seen)

    assert rig.of(a_pod(version=500)) == ({"node-1": known} if seen >= 500 else {})
    assert rig.poll(a_pod(version=500)) == (None if seen >= 500 else POLL)


def test_a_node_that_was_well_is_not_asked_after_again() -> None:
    """Of a job that just got its pods there is nothing to wait for."""
    rig = Rig(a_node("node-1"), seen=400)

    assert rig.of(a_pod(version=500)) == {"node-1": "True"}
    assert rig.poll(a_pod(version=500)) is None


def test_what_becomes_of_a_pod_on_its_node_makes_the_node_no_less_known() -> None:
    rig = with_pods(Rig(a_node("node-1", ready="False"), seen=600), a_pod(version=500))
    later = a_pod(version=900)
    rig.pods.put(later)

    assert rig.of(later) == {"node-1": "False"}


def test_another_pod_of_the_same_name_was_bound_anew() -> None:
    rig = with_pods(Rig(a_node("node-1", ready="False"), seen=600), a_pod(version=500))
    other = view_of_pod({**wire_pod(version=900), "metadata": {**wire_pod(version=900)["metadata"], "uid": "another"}})
    rig.pods.put(other)

    assert rig.of(other) == {}


def test_the_newest_pod_counts() -> None:
    rig = Rig(a_node("node-2"), seen=600)

    assert rig.of(a_pod("a", version=500), a_pod("b", version=700)) == {}


@pytest.mark.parametrize("pods_seen", [1000, 1001])
@pytest.mark.parametrize(
    ("node", "is_suspect"),
    [
        pytest.param(a_node(version=1001), False, id="well"),
        pytest.param(a_node(version=1001, ready="False"), True, id="not-ready"),
        pytest.param(None, True, id="deleted"),
    ],
)
def test_a_pod_may_have_ended_before_its_node_was_lost_if_the_store_of_pods_is_older(
    node: NodeView | None, is_suspect: bool, pods_seen: int
) -> None:
    rig = Rig(a_node(), a_node("node-2"))
    pod = a_pod()
    rig.pods.put(pod)
    rig.pods.advance(pods_seen)
    rig.nodes.put(node) if node else rig.nodes.remove(a_node(version=1001))

    assert rig.book.uncertain([pod]) == (((pod, 1001),) if is_suspect and pods_seen < 1001 else ())


def test_a_heartbeat_and_the_end_of_a_pod_leave_nothing_uncertain() -> None:
    rig = Rig(a_node(ready="False", version=200))
    pod = a_pod()
    rig.pods.put(pod)
    rig.nodes.put(a_node(ready="False", version=1001))

    assert rig.book.uncertain([pod]) == ()
    rig.nodes.put(a_node(ready="Unknown", version=1002))
    assert rig.book.uncertain([msgspec.structs.replace(pod, phase="Succeeded")]) == ()


def test_what_was_never_listed_decides_nothing_and_is_not_waited_for() -> None:
    rig = Rig()

    assert rig.of(a_pod()) is None
    assert rig.poll(a_pod()) is None


def test_an_empty_list_decides_nothing() -> None:
    rig = Rig()
    rig.nodes.replace([], 1000)

    assert rig.of(a_pod()) is None
    assert rig.poll(a_pod()) is None


def test_a_store_that_is_not_current_decides_nothing_and_is_looked_at_again() -> None:
    rig = Rig(a_node("node-1", ready="False"))
    rig.nodes.is_current = False

    assert rig.of(a_pod()) is None
    assert rig.poll(a_pod()) == POLL


# --- who is told ---


def with_pods(rig: Rig, *pods: PodView) -> Rig:
    for pod in pods:
        rig.pods.put(pod)
    return rig


CHANGES: Iterable[Any] = (
    pytest.param({}, False, id="a heartbeat"),
    pytest.param({"ready": "Unknown"}, True, id="not ready"),
    pytest.param({"since": NOW + timedelta(seconds=1)}, True, id="it was not ready for a moment"),
    pytest.param({"taints": {"node.kubernetes.io/out-of-service": NOW}}, True, id="a taint"),
    pytest.param({"taints": {"example.com/mine": NOW}}, False, id="somebody's own taint"),
    pytest.param({"conditions": {"GPUUnhealthy": "Xid 79"}}, True, id="a condition"),
    pytest.param({"devices": {"nvidia.com/gpu": 7}}, True, id="a device less"),
)


@pytest.mark.parametrize(("change", "is_told"), CHANGES)
def test_jobs_hear_of_their_nodes_what_matters(change: dict[str, Any], is_told: bool) -> None:
    node = a_node("node-1")
    rig = with_pods(Rig(node, a_node("node-2")), a_pod("a"), a_pod("b", node="node-2"))

    rig.nodes.put(moved(node, **change))

    assert rig.told == (["a"] if is_told else [])


def test_a_heartbeat_with_other_times_and_images_is_the_same_node() -> None:
    body = wire_node("node-1")
    rig = with_pods(Rig(view_of_node(body)), a_pod("a"))
    body["metadata"]["resourceVersion"] = "201"
    body["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-15T12:00:10Z"
    body["status"]["images"] = [{"names": ["x"], "sizeBytes": 1}]

    rig.nodes.put(view_of_node(body))

    assert rig.told == []


def test_jobs_hear_of_a_node_that_is_deleted() -> None:
    node = a_node("node-1")
    rig = with_pods(Rig(node, a_node("node-2")), a_pod("a"))

    rig.nodes.remove(moved(node))

    assert rig.told == ["a"]


def test_jobs_hear_when_nodes_can_be_read_for_the_first_time() -> None:
    rig = with_pods(Rig(), a_pod("a"))

    rig.nodes.replace([a_node("node-1")], 1000)

    assert rig.told == ["a"]


def test_pods_that_moved_or_went_are_not_told_of_their_old_node() -> None:
    one, two = a_node("node-1"), a_node("node-2")
    rig = with_pods(Rig(one, two), a_pod("a", node=""), a_pod("b"), a_pod("a", node="node-2", version=501))
    rig.pods.remove(a_pod("b", version=502))

    rig.nodes.put(moved(one, ready="False"))
    rig.nodes.put(moved(two, ready="False"))

    assert rig.told == ["a"]
    assert rig.pods.get(Key("ml", "b")) is None


def test_a_pod_that_a_restored_backup_has_is_on_a_node_that_is_known() -> None:
    node = a_node("node-1", ready="False", version=50)
    rig = Rig(node, seen=1000)
    rig.pods.put(a_pod(version=900))
    for store in (rig.nodes, rig.pods):
        store.rewind()
    rig.nodes.replace([node], 100)
    rig.pods.replace([a_pod(version=80)], 100)

    assert rig.of(a_pod(version=80)) == {"node-1": "False"}


# --- outages ---


@pytest.mark.parametrize(("away", "total", "is_outage"), [(2, 2, False), (3, 5, True), (3, 6, False)])
def test_nodes_that_are_not_ready_are_an_outage_when_they_are_most(away: int, total: int, is_outage: bool) -> None:
    rig = Rig(*(a_node(f"node-{n}", ready="Unknown" if n < away else "True") for n in range(total)))

    assert rig.book.outage().startswith(f"{away} of {total} nodes are not ready") == is_outage


@pytest.mark.looptime
async def test_after_an_outage_of_the_api_server_it_takes_a_minute_until_a_node_can_be_lost() -> None:
    """kube-controller-manager does not see before which nodes are well."""
    rig, pod = Rig(a_node("node-1", ready="Unknown")), a_pod()
    assert (rig.book.outage(), rig.poll(pod)) == ("", None)

    rig.nodes.recover()
    await asyncio.sleep(SETTLING_SECONDS - 1)
    assert "the API server was not available" in rig.book.outage()
    assert rig.poll(pod) == POLL

    await asyncio.sleep(2)
    assert (rig.book.outage(), rig.poll(pod)) == ("", None)


@pytest.mark.looptime
async def test_after_an_outage_jobs_whose_nodes_are_well_are_not_looked_at_again() -> None:
    rig = Rig(a_node("node-1"))

    rig.nodes.recover()

    assert rig.poll(a_pod()) is None
