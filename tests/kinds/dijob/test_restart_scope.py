"""``runPolicy.restartScope`` of a DIJob, and containers that their kubelet restarted in place (docs/dijob.md)."""

from datetime import timedelta

import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_nervexjob,
    a_pod,
    after,
    an_agconfig,
    children_of,
    names_of,
    plan_of,
    pod_json,
    services_of,
    view_of_pod,
    with_aggregator,
    with_spec,
    with_status,
)
from tests.kinds.dijob.test_replicas import (
    COLLECTOR,
    FORMED,
    GROUP,
    LEARNER,
    MASTER,
    a_job,
    a_member,
    body_of,
    crew,
    members_of,
    role_of,
)
from trainmaster.core.ids import POD
from trainmaster.core.plan import Plan
from trainmaster.core.view import PodView

COORDINATOR = "cartpole-coordinator"
TWO: Json = {name: {"role": role_of(name), "at": STAMP} for name in (COLLECTOR, LEARNER)}


def labels_of(name: str, attempt: str = "") -> dict[str, str]:
    labels = {"replica-type": role_of(name) or "coordinator", "pod-name": name}
    return labels | {"restart-count": attempt} if attempt else labels


def restarted(
    job: Json, name: str = COLLECTOR, times: int = 1, *, attempt: str = "", container: str = "di-container"
) -> PodView:
    """A pod of which a container runs again after it was killed."""
    containers = dict.fromkeys(("di-container", container))
    body = pod_json(job, role_of(name), name=name, labels=labels_of(name, attempt), containers=containers)
    killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
    body["status"]["containerStatuses"][-1] |= {"restartCount": times, "lastState": killed}
    return view_of_pod(body)


def with_pod(children: list[Child], pod: PodView) -> list[Child]:
    others = [c for c in children if not (isinstance(c, PodView) and c.key == pod.key)]
    return [*others, pod]


def without(children: list[Child], name: str) -> list[Child]:
    return [c for c in children if not (isinstance(c, PodView) and c.key.name == name)]


def a_whole_job(members: Json | None = None) -> tuple[Json, list[Child]]:
    """A job with restartScope All whose pods have run."""
    job = with_spec(a_job(TWO if members is None else members), runPolicy={"restartScope": "All"})
    children = crew(job, *(TWO if members is None else members))
    job = with_status(job, plan_of(job, children))
    assert plan_of(job, children).is_quiet
    return job, children


def restart_of(job: Json, children: list[Child]) -> tuple[Json, Plan]:
    """The job after the restart was stored, and what is done then."""
    stored = plan_of(job, children)
    assert stored.status_first
    job = with_status(job, stored)
    return job, plan_of(job, children)


# --- in place, with the scope Pod ---


def test_a_replica_that_was_restarted_in_place_is_reported_once_for_each_restart() -> None:
    job = a_job()
    job = with_status(job, plan_of(job, crew(job, COLLECTOR)))

    heard = []
    for times in (0, 1, 1, 3, 3):
        plan = plan_of(job, with_pod(crew(job, COLLECTOR), restarted(job, times=times)))
        heard.append([event.reason for event in plan.events])
        job = with_status(job, plan)

    assert heard == [[], ["ReplicaRestarted"], [], ["ReplicaRestarted"], []]


def test_the_event_says_which_pod_ended_how_and_what_to_do() -> None:
    job = a_job()

    (event,) = plan_of(job, with_pod(crew(job, COLLECTOR), restarted(job))).events

    assert event.message == (
        f"pod {COLLECTOR}: container di-container on node node-1 ended with reason Error exitcode 137 and was restarted"
        " in place; DI-engine's coordinator does not connect to it again. To restart the coordinator and all replicas"
        " in such a case, set spec.runPolicy.restartScope to All"
    )


def test_many_restarts_are_one_event() -> None:
    names = [f"cartpole-collector-bbbb{letter}" for letter in "bcdfg"]
    job = a_job({name: {"role": "collector", "at": STAMP} for name in names})

    events = plan_of(job, [*children_of(job), *(restarted(job, name) for name in names)]).events

    assert len(events) == 1
    assert "; and 2 more;" in events[0].message


def test_a_pod_that_is_created_again_under_its_name_begins_to_count_anew() -> None:
    job = a_job({COLLECTOR: {"role": "collector", "at": STAMP, "restarts": 4}})

    new = plan_of(job, crew(job, COLLECTOR))

    assert members_of(new)[COLLECTOR].get("restarts", 0) == 0
    assert new.events == ()


def test_a_replica_that_is_replaced_under_another_name_begins_to_count_anew() -> None:
    job = a_job({COLLECTOR: {"role": "collector", "at": STAMP, "restarts": 4}})

    failed = plan_of(job, with_pod(crew(job, COLLECTOR), a_member(job, COLLECTOR, exit_code=1)))

    assert [member.get("restarts", 0) for member in members_of(failed).values() if member] == [0]


def test_a_side_car_that_is_restarted_in_place_does_not_matter() -> None:
    job = a_job()

    assert plan_of(job, with_pod(crew(job, COLLECTOR), restarted(job, container="log-shipper"))).events == ()


# --- the scope All ---


@pytest.mark.parametrize("name", [COLLECTOR, LEARNER])
def test_all_pods_restart_under_their_names_when_a_container_was_restarted_in_place(name: str) -> None:
    job, children = a_whole_job()
    children = with_pod(children, restarted(job, name))

    stored = plan_of(job, children)
    job, plan = restart_of(job, children)

    assert sorted(names_of(plan.deletes, POD)) == sorted([COLLECTOR, LEARNER, COORDINATOR])
    assert plan.creates == ()
    assert [event.reason for event in stored.events] == ["ReplicaFailed"]
    assert "the coordinator and all replicas restart (restartScope All)" in stored.events[0].message
    job, left = after(job, children, plan)
    again = plan_of(job, left, now=NOW + timedelta(seconds=1))
    assert sorted(names_of(again.creates, POD)) == sorted([COLLECTOR, LEARNER, COORDINATOR])
    assert {c.body["metadata"]["labels"]["restart-count"] for c in again.creates if c.resource == POD} == {"1"}


def test_all_pods_restart_when_a_replica_failed() -> None:
    job, children = a_whole_job()

    _, plan = restart_of(job, with_pod(children, a_member(job, COLLECTOR, exit_code=1)))

    assert len(names_of(plan.deletes, POD)) == 3


@pytest.mark.parametrize("name", [COLLECTOR, COORDINATOR])
def test_all_pods_restart_when_one_that_ran_was_deleted(name: str) -> None:
    job, children = a_whole_job()

    _, plan = restart_of(job, without(children, name))

    assert sorted(names_of(plan.deletes, POD)) == sorted({COLLECTOR, LEARNER, COORDINATOR} - {name})
    assert plan.creates == ()


def test_all_pods_restart_when_one_is_being_deleted_that_was_not_seen_running_before() -> None:
    job = with_spec(a_job(TWO), runPolicy={"restartScope": "All"})

    _, plan = restart_of(job, with_pod(crew(job, *TWO), a_member(job, COLLECTOR, deleting=True)))

    assert sorted(names_of(plan.deletes, POD)) == sorted([LEARNER, COORDINATOR])


def test_all_pods_restart_when_the_coordinator_was_restarted_in_place() -> None:
    job, children = a_whole_job()
    body = pod_json(job, "coordinator", restart_policy="OnFailure")
    body["status"]["containerStatuses"][0] |= {"restartCount": 1}

    _, plan = restart_of(job, with_pod(children, view_of_pod(body)))

    assert len(names_of(plan.deletes, POD)) == 3


def test_the_end_of_the_coordinators_program_is_the_end_of_the_job_under_every_scope() -> None:
    job, children = a_whole_job()

    ended = with_status(job, plan_of(job, with_pod(children, a_pod(job, "coordinator", exit_code=1))))

    assert ended["status"]["phase"] == "Failed"


def test_a_replica_that_has_not_run_yet_is_created_again_and_nothing_restarts() -> None:
    job = with_spec(a_job(), runPolicy={"restartScope": "All"})
    job = with_status(job, plan_of(job, children_of(job)))

    plan = plan_of(job, children_of(job))

    assert names_of(plan.creates, POD) == [COLLECTOR]


def test_a_restart_is_counted_and_the_next_in_a_row_waits() -> None:
    job, children = a_whole_job()
    job = with_status(job, plan_of(job, with_pod(children, restarted(job))))
    children = of_attempt(job, children, "1")
    job = with_status(job, plan_of(job, children))
    job = with_status(job, plan_of(job, with_pod(children, restarted(job, attempt="1"))))

    collector = job["status"]["restarts"]["collector"]
    assert (collector["count"], collector["used"], collector["streak"]) == (2, 2, 2)
    assert collector["nextTime"] == "2026-11-15T12:00:01Z"
    assert job["status"]["restarts"]["coordinator"]["attempt"] == 2
    assert job["status"]["restarts"]["coordinator"]["nextTime"] == collector["nextTime"]
    assert [entry["scope"] for entry in job["status"]["restartHistory"]] == ["All", "All"]


def of_attempt(job: Json, children: list[Child], attempt: str) -> list[Child]:
    names = [child.key.name for child in children if isinstance(child, PodView)]
    pods = [a_pod(job, role_of(n) or "coordinator", name=n, labels=labels_of(n, attempt)) for n in names]
    return [*(child for child in children if not isinstance(child, PodView)), *pods]


def test_a_replica_that_is_requested_after_a_restart_is_of_the_present_attempt() -> None:
    job, children = a_whole_job()
    job, plan = restart_of(job, with_pod(children, restarted(job)))
    job, left = after(job, children, plan)
    declared = job["status"]["declared"]
    new = "cartpole-collector-zzzzz"
    members = declared["members"] | {new: {"role": "collector", "at": STAMP}}
    job = with_status(job, job["status"] | {"declared": declared | {"members": members}})

    plan = plan_of(job, left, now=NOW + timedelta(seconds=1))

    assert body_of(plan, new)["metadata"]["labels"]["restart-count"] == "1"


def test_a_ddp_group_restarts_with_all_others_under_its_names() -> None:
    job, children = a_whole_job(FORMED)

    _, plan = restart_of(job, without(children, MASTER))

    assert sorted(names_of(plan.deletes, POD)) == sorted({*GROUP, COORDINATOR} - {MASTER})
    assert plan.creates == ()


def test_nothing_restarts_that_another_restart_covers() -> None:
    """The attempt of all pods is raised once, however many of them failed."""
    job, children = a_whole_job()
    for name in (COLLECTOR, LEARNER):
        children = with_pod(children, restarted(job, name))

    job, _ = restart_of(job, children)

    assert {role: entry["count"] for role, entry in job["status"]["restarts"].items()} == {
        "collector": 1,
        "coordinator": 1,
        "learner": 1,
    }


def test_declared_replicas_keep_their_attempt_when_the_scope_becomes_pod_again() -> None:
    job, children = a_whole_job()
    job, _ = restart_of(job, with_pod(children, restarted(job)))
    job = with_spec(job, runPolicy={})
    children = of_attempt(job, children, "1")
    job = with_status(job, plan_of(job, children))

    failed = with_pod(children, a_member(job, COLLECTOR, exit_code=1, labels=labels_of(COLLECTOR, "1")))
    before, job = job["status"]["restarts"], with_status(job, plan_of(job, failed))

    assert job["status"]["restarts"]["collector"] == before["collector"]
    assert COLLECTOR not in job["status"]["declared"]["members"]


def test_a_deleted_replica_is_created_again_alone_when_the_scope_becomes_pod_again() -> None:
    job, children = a_whole_job()
    job = with_spec(job, runPolicy={})

    plan = plan_of(job, without(children, COLLECTOR))

    assert names_of(plan.creates, POD) == [COLLECTOR]
    assert names_of(plan.deletes, POD) == []


def test_the_aggregator_of_a_nervexjob_restarts_with_the_coordinator() -> None:
    config = an_agconfig()
    job = with_aggregator(a_nervexjob(spec={"runPolicy": {"restartScope": "All"}}))
    children: list[Child] = [a_pod(job, "aggregator"), a_pod(job, "coordinator"), *services_of(job)]
    for _ in range(3):
        job = with_status(job, plan_of(job, children, agconfig=config))

    lost = without(children, "cartpole-aggregator")
    job = with_status(job, plan_of(job, lost, agconfig=config))
    plan = plan_of(job, lost, agconfig=config)

    assert names_of(plan.deletes, POD) == ["cartpole-coordinator"]
