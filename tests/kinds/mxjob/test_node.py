"""Nodes that fail: what ran there is lost, and the policies of its role say what becomes of it."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import NOW, Child, Json, an_mx_replica, an_mxjob, children_of, names_of, plan_of, with_status
from tests.kinds.mxjob.test_kind import but, counts_of, message_of, phase_of, running
from trainmaster.core.ids import POD, Key
from trainmaster.core.view import NodeConditionView, NodeView
from trainmaster.kinds.base import Settings

WELL = NodeView(Key("", "node-1"), ready="True", ready_since=NOW)
GONE = NodeView(Key("", "node-2"), is_gone=True)


def not_ready(seconds: int) -> NodeView:
    return NodeView(Key("", "node-2"), ready="False", ready_since=NOW - timedelta(seconds=seconds))


def trained(policy: str) -> tuple[Json, list[Child]]:
    """A job that runs, its worker 1 on node-2."""
    roles: dict[str, Any] = {role: an_mx_replica(restartPolicy=policy) for role in ("Scheduler", "Server")}
    job, children = running(an_mxjob(**roles, Worker=an_mx_replica(2, restartPolicy=policy)))
    return job, but(job, children, worker_1={"node": "node-2"})


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Never", "Failed"), ("OnFailure", "Restarting"), ("Always", "Restarting"), ("ExitCode", "Restarting")],
)
def test_a_pod_on_a_node_that_is_gone_is_lost(policy: str, expected: str) -> None:
    job, children = trained(policy)

    plan = plan_of(job, children, nodes=[WELL, GONE])

    assert phase_of(plan) == expected
    assert "pod mnist-worker-1 failed: Node node-2 is failed and offline: it was deleted" in message_of(plan)


def test_a_pod_that_waits_on_a_node_that_is_gone_is_made_anew_and_nobody_is_charged() -> None:
    job = an_mxjob()
    job = with_status(job, plan_of(job))
    waiting = but(job, children_of(job, phase="Pending"), worker_1={"phase": "Pending", "node": "node-2"})

    first = plan_of(job, waiting, nodes=[WELL, GONE])
    job = with_status(job, first)
    going = plan_of(job, waiting, nodes=[WELL, GONE])
    gone = plan_of(job, but(job, waiting, worker_1=None), nodes=[WELL, GONE])

    assert (phase_of(first), counts_of(job)) == ("Created", {})
    assert [event.reason for event in first.events] == ["PodReplaced"]
    assert [(delete.key.name, delete.grace) for delete in going.deletes] == [("mnist-worker-1", 0)]
    assert names_of(gone.creates, POD) == ["mnist-worker-1"]


def test_a_job_whose_first_status_tells_of_a_lost_node_is_created_all_the_same() -> None:
    job = an_mxjob()
    waiting = but(job, children_of(job, phase="Pending"), worker_1={"phase": "Pending", "node": "node-2"})

    plan = plan_of(job, waiting, nodes=[WELL, GONE])

    assert phase_of(plan) == "Created"
    assert [event.reason for event in plan.events] == ["MXJobCreated", "PodReplaced"]


def test_a_place_that_meets_lost_nodes_again_and_again_waits_longer_each_time() -> None:
    job = an_mxjob()
    job = with_status(job, plan_of(job))
    waits = []
    for attempt in ("0", "1", "2"):
        stranded = {"phase": "Pending", "node": "node-2", "attempt": attempt}
        waiting = but(job, children_of(job, phase="Pending"), worker_1=stranded)
        job = with_status(job, plan_of(job, waiting, nodes=[WELL, GONE]))
        waits.append(plan_of(job, but(job, waiting, worker_1=None), nodes=[WELL, GONE]).requeue_after)

    assert waits == [None, 10.0, 20.0]


def test_a_pod_that_waits_on_a_bad_node_with_a_living_kubelet_is_left_to_it() -> None:
    job = an_mxjob()
    job = with_status(job, plan_of(job))
    waiting = but(job, children_of(job, phase="Pending"), worker_1={"phase": "Pending", "node": "node-2"})
    bad = NodeView(
        Key("", "node-2"),
        ready="True",
        ready_since=NOW,
        conditions=(NodeConditionView("GpuLost", NOW - timedelta(seconds=60), ""),),
    )
    settings = Settings(bad_node_conditions=frozenset({"GpuLost"}))

    assert plan_of(job, waiting, nodes=[WELL, bad], settings=settings).is_quiet
    assert phase_of(plan_of(*trained("OnFailure"), nodes=[WELL, bad], settings=settings)) == "Restarting"


def test_a_node_that_is_not_ready_has_time_to_come_back() -> None:
    job, children = trained("OnFailure")

    early = plan_of(job, children, nodes=[WELL, not_ready(20)])
    late = plan_of(job, children, nodes=[WELL, not_ready(30)])

    assert early.is_quiet
    assert early.requeue_after == 10.0
    assert phase_of(late) == "Restarting"


def test_pods_on_a_lost_node_are_forced_and_the_others_are_asked_to_go() -> None:
    job, children = trained("OnFailure")
    job = with_status(job, plan_of(job, children, nodes=[WELL, GONE]))

    plan = plan_of(job, children, nodes=[WELL, GONE])

    graces = {delete.key.name: delete.grace for delete in plan.deletes if delete.resource == POD}
    assert graces == {
        "mnist-scheduler-0": None,
        "mnist-server-0": None,
        "mnist-worker-0": None,
        "mnist-worker-1": 0,
    }


def test_where_nodes_cannot_be_read_nothing_is_decided() -> None:
    job, children = trained("Never")

    assert plan_of(job, children, nodes=None).is_quiet


def test_a_pod_that_was_scaled_away_and_cannot_leave_its_lost_node_is_forced() -> None:
    job, children = trained("OnFailure")
    children = but(job, children, worker_1={"node": "node-2", "deleting": True})
    job["spec"]["mxReplicaSpecs"]["Worker"]["replicas"] = 1
    job = with_status(job, plan_of(job, children, nodes=[WELL, GONE]))

    plan = plan_of(job, children, nodes=[WELL, GONE])

    assert [(d.key.name, d.grace) for d in plan.deletes if d.resource == POD] == [("mnist-worker-1", 0)]
