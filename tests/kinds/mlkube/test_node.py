"""Lost nodes, evictions and pods that cannot start, as an MxJob treats and reports them."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import NOW, Json, a_node
from tests.kinds.mlkube.build import (
    Child,
    a_begun,
    a_job,
    a_pod,
    a_spec,
    condition_of,
    plan_of,
    running,
    status_of,
)
from trainmaster.core.ids import POD, Key
from trainmaster.core.view import NodeView

PLACE = ("worker", 1)
LOST = {
    "node-1": a_node("node-1"),
    "node-2": a_node("node-2", ready="Unknown", since=NOW - timedelta(seconds=31), message="Kubelet stopped."),
}
GONE = {"node-1": a_node("node-1"), "node-2": NodeView(Key("", "node-2"), is_gone=True)}
FAILING = {"FailureTarget": ("BackoffLimitExceeded", "Job has reached the specified backoff limit")}


def a_group(**given: Any) -> Json:
    """All replicas run, and restart together."""
    return a_begun("Running", "Running", servers=1, workers=2, **given)


def alone() -> Json:
    """The same, but a worker restarts alone."""
    specs = [a_spec("SCHEDULER"), a_spec("SERVER"), a_spec("WORKER", 2, restartScope="Pod")]
    return a_begun("Running", "Running", specs=specs)


def with_worker(job: Json, *worker: Child) -> list[Child]:
    return running(job, *worker, without=[PLACE])


@pytest.mark.parametrize("nodes", [LOST, GONE], ids=["not ready", "deleted"])
def test_a_pod_on_a_lost_node_restarts_the_group(nodes: dict[str, NodeView]) -> None:
    job = a_group()

    plan = plan_of(job, with_worker(job, a_job(job, *PLACE), a_pod(job, *PLACE, node="node-2")), nodes=nodes)

    (event,) = plan.events
    assert status_of(plan)["restarts"]["WORKER"]["used"] == 1
    assert "pod digits-worker-1kkf-1-aaaaa failed: Node node-2 is failed and offline" in event.message


def test_a_node_has_its_grace_period() -> None:
    job = a_group()
    nodes = {"node-2": a_node("node-2", ready="Unknown", since=NOW - timedelta(seconds=20))}

    plan = plan_of(job, with_worker(job, a_job(job, *PLACE), a_pod(job, *PLACE, node="node-2")), nodes=nodes)

    assert "restarts" not in status_of(plan)
    assert plan.requeue_after == 10


def test_an_evicted_pod_restarts_the_group_and_is_not_charged() -> None:
    job = a_group(backoffLimit=0)
    evicted = a_pod(job, *PLACE, deleting=True, disruption="EvictionByEvictionAPI")

    plan = plan_of(job, with_worker(job, a_job(job, *PLACE), evicted))

    assert {role: (r["count"], r.get("used", 0)) for role, r in status_of(plan)["restarts"].items()} == {
        "SCHEDULER": (1, 0),
        "SERVER": (1, 0),
        "WORKER": (1, 0),
    }
    assert "was evicted from node node-1 (EvictionByEvictionAPI)" in plan.events[0].message


def test_a_deleted_pod_is_named_with_its_node() -> None:
    job = a_group()
    lost: list[Child] = [a_job(job, *PLACE, conditions=FAILING), a_pod(job, *PLACE, deleting=True, node="node-2")]

    plan = plan_of(job, with_worker(job, *lost))

    said = "pod digits-worker-1kkf-1-aaaaa is lost: it was deleted on node node-2 while the job ran"
    assert condition_of(plan, "Recovering") == ("True", "CrewRestarting", f"restart times is 1, {said}")


def test_a_pod_of_the_old_attempt_on_a_lost_node_is_force_deleted() -> None:
    """Its kubelet does not confirm the deletion, and its Job waits for it."""
    job = a_group()
    restarted = {**job, "status": status_of(plan_of(job, running(job, without=[PLACE])))}
    old: list[Child] = [a_job(job, *PLACE, suspend=True), a_pod(job, *PLACE, deleting=True, node="node-2")]

    plan = plan_of(restarted, old, nodes=LOST)

    assert [(d.resource, d.grace) for d in plan.deletes] == [(POD, 0)]
    assert plan.creates == ()


def test_a_pod_on_a_lost_node_whose_replica_restarts_alone_is_force_deleted_so_that_its_job_creates_another_one() -> (
    None
):
    job = alone()

    plan = plan_of(job, with_worker(job, a_job(job, *PLACE), a_pod(job, *PLACE, node="node-2")), nodes=LOST)

    assert [(d.resource, d.key.name, d.grace) for d in plan.deletes] == [(POD, "digits-worker-1kkf-1-aaaaa", 0)]
    assert plan.deletes[0].why == "another pod takes its place, and its node node-2 is lost"
    assert "restarts" not in status_of(plan)
    assert condition_of(plan, "Recovering")[:2] == ("True", "ReplicaRestarting")
    (event,) = plan.events
    assert event.message.startswith("worker-1: pod digits-worker-1kkf-1-aaaaa failed: Node node-2 is failed")


def test_a_pod_that_is_being_deleted_on_a_lost_node_is_force_deleted_once() -> None:
    job = alone()
    leaving = a_pod(job, *PLACE, deleting=True, node="node-2")

    plan = plan_of(job, with_worker(job, a_job(job, *PLACE), leaving), nodes=LOST)
    forced = plan_of(
        job, with_worker(job, a_job(job, *PLACE), a_pod(job, *PLACE, forced=True, node="node-2")), nodes=LOST
    )

    assert [(d.key.name, d.grace) for d in plan.deletes] == [("digits-worker-1kkf-1-aaaaa", 0)]
    assert forced.deletes == ()


def test_an_eviction_of_a_replica_that_restarts_alone_has_an_event() -> None:
    job = alone()
    evicted = a_pod(job, *PLACE, deleting=True, disruption="EvictionByEvictionAPI")

    plan = plan_of(job, with_worker(job, a_job(job, *PLACE), evicted))

    assert "was evicted from node node-1" in plan.events[0].message
    assert "restarts" not in status_of(plan)


@pytest.mark.parametrize(
    ("pod", "type_", "says"),
    [
        pytest.param({"waiting": "ImagePullBackOff"}, "ContainerCreateFailed", "[ImagePullBackOff]", id="image"),
        pytest.param({"unschedulable": "0/3 nodes are available"}, "PodsWaiting", "0/3 nodes", id="no node"),
    ],
)
def test_what_a_pod_waits_for_is_in_a_condition_and_an_event(pod: Json, type_: str, says: str) -> None:
    job = a_begun(servers=1, workers=2)
    children = with_worker(job, a_job(job, *PLACE), a_pod(job, *PLACE, phase="Pending", **pod))

    plan = plan_of(job, children)
    again = plan_of({**job, "status": status_of(plan)}, children)

    assert condition_of(plan, type_)[0] == "True"
    assert says in condition_of(plan, type_)[2]
    assert any(says in event.message for event in plan.events)
    assert again.is_quiet
    assert again.events == ()
