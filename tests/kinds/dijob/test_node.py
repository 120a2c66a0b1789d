"""DIJob and NerveXJob whose pods are on a node that is lost: nothing waits for a kubelet that never answers."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_dijob,
    a_nervexjob,
    a_node,
    a_pod,
    after,
    an_agconfig,
    names_of,
    plan_of,
    services_of,
    with_status,
)
from tests.kinds.dijob.test_replicas import COLLECTOR, LEARNER, a_job, a_member, crew, members_of
from trainmaster.core.ids import POD
from trainmaster.core.view import NodeView

GRACE = 30
"""Seconds that a node which is not ready has to come back, unless the operator is told otherwise."""


def not_ready(seconds: float = GRACE) -> NodeView:
    return a_node("node-1", ready="Unknown", since=NOW - timedelta(seconds=seconds))


def graces_of(job: Json, children: list[Child], **observed: Any) -> dict[str, int | None]:
    plan = plan_of(job, children, nodes=[not_ready()], **observed)
    return {delete.key.name: delete.grace for delete in plan.deletes if delete.resource == POD}


@pytest.mark.parametrize("deleting", [False, True], ids=["running", "terminating"])
@pytest.mark.parametrize("kind", ["DIJob", "NerveXJob"])
def test_a_coordinator_on_a_lost_node_comes_again(kind: str, deleting: bool) -> None:
    job = a_dijob() if kind == "DIJob" else a_nervexjob()
    config = None if kind == "DIJob" else an_agconfig()
    for _ in range(3):
        job = with_status(job, plan_of(job, agconfig=config))
    roles = ["coordinator"] if kind == "DIJob" else ["aggregator", "coordinator"]
    pods: list[Child] = [a_pod(job, role, deleting=deleting and role == "coordinator") for role in roles]
    children = [*pods, *services_of(job)]
    job = with_status(job, plan_of(job, children))

    stored = plan_of(job, children, nodes=[not_ready()], agconfig=config)
    if not deleting or kind == "NerveXJob":  # its aggregator was not deleted, and restarts
        job = with_status(job, stored)
    forced = plan_of(job, children, nodes=[not_ready()], agconfig=config)
    job, left = after(job, children, forced)
    later = plan_of(job, left, now=NOW + timedelta(seconds=60), agconfig=config)

    lost = "Node node-1 is failed and offline: it is not ready; another pod takes its place"
    assert [event.message for event in stored.events if "coordinator" in event.message] == (
        [] if deleting else [f"pod cartpole-coordinator failed: {lost}"]
    )
    assert {d.key.name: d.grace for d in forced.deletes if d.resource == POD} == {
        f"cartpole-{role}": 0 for role in roles
    }
    assert names_of(later.creates, POD) == [f"cartpole-{role}" for role in sorted(roles, reverse=True)]


@pytest.mark.parametrize("name", [COLLECTOR, LEARNER])
def test_a_replica_on_a_lost_node_is_replaced_under_another_name(name: str) -> None:
    role = "collector" if name == COLLECTOR else "learner"
    job = a_job({name: {"role": role, "at": STAMP}})
    coordinator = a_pod(job, "coordinator", node="node-2")
    there = [child for child in crew(job, name) if child.key.name not in (name, coordinator.key.name)]
    children = [coordinator, a_member(job, name), *there]

    plan = plan_of(job, children, nodes=[not_ready(), a_node("node-2")])

    assert plan.status_first
    assert [event.reason for event in plan.events] == ["ReplicaLost"]
    (new,) = members_of(plan)
    assert new != name
    assert graces_of(with_status(job, plan), children) == {name: 0}


def test_a_replica_that_is_deleted_on_a_lost_node_is_forced_and_created_again() -> None:
    job = a_job({COLLECTOR: {"role": "collector", "at": STAMP}})
    coordinator = a_pod(job, "coordinator", node="node-2")
    there = [child for child in crew(job, COLLECTOR) if child.key.name not in (COLLECTOR, coordinator.key.name)]

    assert graces_of(job, [coordinator, a_member(job, COLLECTOR, deleting=True), *there]) == {COLLECTOR: 0}
    assert COLLECTOR in names_of(plan_of(job, [coordinator, *there]).creates, POD)


def test_a_node_that_is_not_ready_has_time_to_come_back() -> None:
    job = a_job({})

    plan = plan_of(job, crew(job), nodes=[not_ready(GRACE - 10)])

    assert plan.is_quiet
    assert plan.requeue_after == 10.0


def test_where_nodes_cannot_be_read_nothing_is_decided() -> None:
    job = a_job({})

    assert plan_of(job, crew(job), nodes=None).is_quiet


@pytest.mark.parametrize("deleting", [False, True], ids=["running", "terminating"])
def test_the_clean_up_of_an_ended_job_does_not_wait_for_a_lost_node(deleting: bool) -> None:
    job = a_dijob(spec={"cleanPodPolicy": "All"}, status={"phase": "Succeeded"})
    pod = a_pod(job, "coordinator", deleting=deleting)

    assert graces_of(job, [pod]) == {pod.key.name: 0}


def test_a_pod_that_had_ended_before_its_node_was_lost_decides_as_ever() -> None:
    job = a_job({})
    done = a_pod(job, "coordinator", exit_code=0)
    children = [done, *(child for child in crew(job) if child.key.name != done.key.name)]

    plan = plan_of(job, children, nodes=[not_ready()])

    assert plan.status is not None
    assert plan.status["phase"] == "Succeeded"
