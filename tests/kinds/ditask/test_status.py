"""Phases, counters, conditions and Events of a DIJob with tasks."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    Child,
    Json,
    a_container,
    a_ditask,
    a_node,
    a_pod,
    a_task,
    a_template,
    children_of,
    plan_of,
    pod_json,
    services_of,
    settled,
    view_of_pod,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD
from trainmaster.core.plan import Plan
from trainmaster.core.view import PodView


def running(job: Json | None = None) -> tuple[Json, list[Child]]:
    """A job while all of its pods run, and what it owns."""
    stored, _ = settled(a_ditask() if job is None else job)
    return settled(stored, children_of(stored))


def without(children: Iterable[Child], *names: str) -> list[Child]:
    return [child for child in children if child.key.name not in names]


def status_of(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def condition(status: Json, type_: str) -> Json:
    return next((c for c in status["conditions"] if c["type"] == type_), {})


def test_a_job_is_pending_with_its_ranks_before_anything_is_created() -> None:
    plan = plan_of(a_ditask())

    assert plan.status_first
    assert status_of(plan)["phase"] == "Pending"
    assert status_of(plan)["ranks"] == {"learner-0": 0, "collector-0": 1, "collector-1": 2}
    assert [(e.type, e.reason, e.message) for e in plan.events] == [("Normal", "JobPending", "job created.")]


def test_a_running_job_has_its_counters() -> None:
    job, _ = running()

    status = job["status"]
    assert (status["phase"], status["replicas"], status["readyReplicas"]) == ("Running", 3, 3)
    assert status["taskStatus"] == {"learner": {"Running": 1}, "collector": {"Running": 2}}
    assert status["allocation"] == ["node-1"] * 3
    assert (status["restarts"], status["reschedules"]) == (0, 0)  # columns of kubectl get show them
    assert (status["scaledReplicas"], status["selector"]) == (
        2,
        "diengine/job=cartpole,diengine/operator=di-operator,diengine/task-name=collector",
    )


def test_one_condition_of_a_phase_is_true_and_the_others_keep_their_times() -> None:
    job, _ = running()

    found = {c["type"]: c["status"] for c in job["status"]["conditions"]}
    assert found == {"Pending": "False", "Starting": "False", "Running": "True"}
    assert condition(job["status"], "Pending")["lastTransitionTime"] == NOW.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_job_runs_when_all_pods_are_ready_and_not_before() -> None:
    stored, _ = settled(a_ditask())
    pods = [a_pod(stored, "learner"), a_pod(stored, "collector", 0), a_pod(stored, "collector", 1, ready=False)]

    waits, _ = settled(stored, [*pods, *services_of(stored)])

    assert (waits["status"]["phase"], waits["status"]["readyReplicas"]) == ("Starting", 2)


@pytest.mark.parametrize(("unready", "phase"), [("proxy", "Running"), ("train", "Starting")])
def test_a_job_does_not_wait_for_side_cars_that_admission_added(unready: str, phase: str) -> None:
    template = a_template(a_container("train"))
    stored, _ = settled(a_ditask("cartpole", a_task("learner", 1, template)))
    pod = pod_json(stored, "learner", containers={"train": None, "proxy": None}, ready=False)
    for container in pod["status"]["containerStatuses"]:
        container["ready"] = container["name"] != unready

    found, _ = settled(stored, [view_of_pod(pod), *services_of(stored)])

    assert found["status"]["phase"] == phase
    assert found["status"]["readyReplicas"] == (phase == "Running")


def test_a_job_waits_for_a_readiness_gate() -> None:
    stored, _ = settled(a_ditask("cartpole", a_task("learner", 1)))
    pod = pod_json(stored, "learner", ready=False)
    pod["status"]["containerStatuses"][0]["ready"] = True

    found, _ = settled(stored, [view_of_pod(pod), *services_of(stored)])

    assert found["status"]["phase"] == "Starting"


def test_a_job_that_runs_stays_running_when_a_pod_is_not_ready_for_a_while() -> None:
    job, children = running()
    unready = [a_pod(job, "learner", ready=False), *without(children, "cartpole-learner-0")]

    plan = plan_of(job, unready)

    assert (status_of(plan)["phase"], status_of(plan)["readyReplicas"]) == ("Running", 2)
    assert plan.lazy > 0


# --- what is counted ---


def failed(job: Json, role: str, index: int = 0, **fields: Any) -> PodView:
    return a_pod(job, role, index, **({"exit_code": 1} | fields))


@pytest.mark.parametrize(
    ("fields", "phase", "counts"),
    [
        pytest.param({"exit_code": 1}, "Restarting", (1, 0), id="a failure"),
        pytest.param({"exit_code": 143}, "Restarting", (1, 0), id="SIGTERM"),
        pytest.param({"phase": "Failed", "containers": {}, "reason": "OutOfcpu"}, "Rescheduling", (0, 1), id="no room"),
        pytest.param({"phase": "Failed", "containers": {}, "reason": "Evicted"}, "Rescheduling", (0, 1), id="evicted"),
    ],
)
def test_a_failure_is_a_restart_and_what_a_node_did_a_reschedule(
    fields: Json, phase: str, counts: tuple[int, int]
) -> None:
    job, children = running()

    plan = plan_of(job, [failed(job, "learner", **fields), *without(children, "cartpole-learner-0")])

    assert plan.status_first
    assert status_of(plan)["phase"] == phase
    assert (status_of(plan).get("restarts", 0), status_of(plan).get("reschedules", 0)) == counts


def test_pods_that_fail_together_are_one_restart_and_a_lost_one_beside_them_one_reschedule() -> None:
    job, _children = running(a_ditask("cartpole", a_task("learner", 2), a_task("collector", 1)))
    pods = [failed(job, "learner", 0), failed(job, "learner", 1)]
    evicted = failed(job, "collector", phase="Failed", containers={}, reason="Evicted")

    plan = plan_of(job, [*pods, evicted, *services_of(job)])

    status = status_of(plan)
    assert (status["phase"], status["restarts"], status["reschedules"]) == ("Restarting", 1, 1)
    assert [event.reason for event in plan.events] == ["JobRestarting", "JobRescheduling"]
    assert condition(status, "Restarting")["message"].startswith("job is restarting since 2 pods failed.")


@pytest.mark.parametrize(("seconds", "restarts"), [(0.05, 1), (11, 2)])
def test_tasks_that_fail_within_moments_are_one_restart_as_with_di_orchestrator(seconds: float, restarts: int) -> None:
    job, children = running(a_ditask("cartpole", a_task("learner"), a_task("collector"), spec={"backoffLimit": 2}))
    first = [failed(job, "learner"), *without(children, "cartpole-learner-0")]
    job = with_status(job, plan_of(job, first))

    both = [failed(job, "learner"), failed(job, "collector"), *services_of(job)]
    status = status_of(plan_of(job, both, now=NOW + timedelta(seconds=seconds)))

    assert status["restarts"] == restarts
    assert [entry["replica"] for entry in status["restartHistory"]] == ["learner-0", "collector-0"]


def test_a_task_that_fails_with_another_is_within_the_limit_that_was_used_up_for_it() -> None:
    job, children = running(a_ditask("cartpole", a_task("learner"), a_task("collector"), spec={"backoffLimit": 1}))
    job = with_status(job, plan_of(job, [failed(job, "learner"), *without(children, "cartpole-learner-0")]))
    both = [failed(job, "learner"), failed(job, "collector"), *services_of(job)]

    at_once, later = (plan_of(job, both, now=NOW + timedelta(seconds=seconds)) for seconds in (0.05, 11))

    assert (status_of(at_once)["phase"], status_of(later)["phase"]) == ("Restarting", "Failed")


def test_the_limit_is_about_restarts_however_many_pods_failed_in_each() -> None:
    job = a_ditask("cartpole", a_task("collector", 3), spec={"backoffLimit": 1})
    job, children = running(job)
    first = plan_of(job, [*(failed(job, "collector", i) for i in range(3)), *services_of(job)])
    assert status_of(first)["phase"] == "Restarting"

    second = plan_of(
        with_status(job, {**job["status"], "restarts": 1}),
        [failed(job, "collector"), *without(children, "cartpole-collector-0")],
    )

    assert status_of(second)["phase"] == "Failed"
    assert status_of(second)["completionTimestamp"]
    assert status_of(second)["readyReplicas"] == 0
    assert "taskStatus" not in status_of(second)
    (event,) = second.events
    assert (event.type, event.reason) == ("Warning", "JobFailed")
    assert event.message.startswith("job is failed since some replicas are failed.")


def test_a_job_that_cannot_start_its_program_fails_within_its_limit_and_says_so() -> None:
    job, children = running()
    broken = a_pod(job, "learner", phase="Failed", containers={"di-container": (128, "StartError")})

    plan = plan_of(job, [broken, *without(children, "cartpole-learner-0")])

    assert condition(status_of(plan), "Failed")["message"] == (
        "job failed since 1 pods failed. pod cartpole-learner-0 failed: "
        "container di-container on node node-1 exited with reason StartError exitcode 128"
    )


def test_the_event_of_a_deadline_is_about_the_deadline() -> None:
    job, children = running(a_ditask(spec={"runPolicy": {"activeDeadlineSeconds": 60}}))

    plan = plan_of(job, children, now=NOW + timedelta(seconds=61))

    (event,) = plan.events
    assert (event.type, event.reason) == ("Warning", "JobFailed")
    assert event.message.startswith("DIJob cartpole failed because it was active longer than its deadline")


def test_sigterm_is_never_charged_in_a_preemptible_job() -> None:
    job, children = running(a_ditask(spec={"preemptible": True, "backoffLimit": 0}))

    plan = plan_of(job, [failed(job, "learner", exit_code=143), *without(children, "cartpole-learner-0")])

    assert (status_of(plan)["phase"], status_of(plan)["reschedules"]) == ("Rescheduling", 1)


def test_a_lost_node_is_never_charged() -> None:
    job, children = running(a_ditask(spec={"backoffLimit": 0}))

    plan = plan_of(job, children, nodes=[a_node(taints={"node.kubernetes.io/out-of-service": NOW})])

    assert (status_of(plan)["phase"], status_of(plan)["reschedules"]) == ("Rescheduling", 1)
    assert "Node node-1 is failed and offline" in condition(status_of(plan), "Rescheduling")["message"]


def test_a_missing_pod_is_counted_before_it_is_created_again() -> None:
    job, children = running()
    left = without(children, "cartpole-collector-0")

    plan = plan_of(job, left)
    stored = with_status(job, plan)
    again = plan_of(stored, left)

    assert plan.status_first
    assert (status_of(plan)["phase"], status_of(plan)["reschedules"]) == ("Rescheduling", 1)
    assert [create.key.name for create in again.creates if create.resource == POD] == ["cartpole-collector-0"]
    assert again.status is None or again.status["reschedules"] == 1


@pytest.mark.parametrize(
    ("spec", "deleted"),
    [
        pytest.param({}, ["cartpole-collector-0"], id="alone by default"),
        pytest.param(
            {"tasks": [a_task("learner"), {**a_task("collector", 2), "restartScope": "All"}]},
            ["cartpole-collector-0", "cartpole-collector-1"],
            id="with its task",
        ),
        pytest.param(
            {"runPolicy": {"restartScope": "All"}},
            ["cartpole-collector-0", "cartpole-collector-1", "cartpole-learner-0"],
            id="with the job",
        ),
    ],
)
def test_a_failed_pod_restarts(spec: Json, deleted: list[str]) -> None:
    job, children = running(a_ditask(spec=spec))
    observed = [failed(job, "collector"), *without(children, "cartpole-collector-0")]

    stored = with_status(job, plan_of(job, observed))

    assert stored["status"]["restarts"] == 1
    assert sorted(delete.key.name for delete in plan_of(stored, observed).deletes) == deleted


# --- scaling ---


def test_a_scale_in_deletes_the_highest_index_after_it_is_counted_and_leaves_the_grace_period() -> None:
    job, children = running()
    smaller = with_spec(job, tasks=[a_task("learner"), a_task("collector", 1)])

    plan = plan_of(smaller, children)
    then = plan_of(with_status(smaller, plan), children)

    assert plan.status_first
    assert [(delete.key.name, delete.grace) for delete in then.deletes] == [("cartpole-collector-1", None)]
    assert status_of(plan)["ranks"]["collector-1"] == 2


def test_what_di_server_was_asked_for_counts_until_the_spec_changes() -> None:
    job, children = running()
    asked = {
        "requestedReplicas": {
            "collector": {"replicas": 5, "specReplicas": 2},
            "gone": {"replicas": 1, "specReplicas": 1},
        }
    }
    requested = with_status(job, {**job["status"], **asked})

    grown = plan_of(requested, children)
    edited = plan_of(with_spec(requested, tasks=[a_task("learner"), a_task("collector", 3)]), children)

    assert status_of(grown)["replicas"] == 6
    assert status_of(grown)["requestedReplicas"] == {"collector": {"replicas": 5, "specReplicas": 2}}
    assert status_of(edited)["replicas"] == 4
    assert "requestedReplicas" not in status_of(edited)


def test_the_status_of_di_server_is_left_alone() -> None:
    job, children = running()
    profiled = with_status(job, {**job["status"], "profilings": {"fps": 7}})

    plan = plan_of(with_spec(profiled, tasks=[a_task("learner"), a_task("collector", 1)]), children)

    assert "profilings" not in status_of(plan)  # the patch does not mention it


# --- suspension ---


def test_ranks_begin_anew_after_a_suspension() -> None:
    job, children = running(a_ditask("cartpole", a_task("collector", 2), a_task("learner")))
    smaller, left = settled(with_spec(job, tasks=[a_task("collector", 1), a_task("learner")]), children)
    assert smaller["status"]["ranks"] == {"collector-0": 0, "collector-1": 1, "learner-0": 2}

    stopped, none = settled(with_spec(smaller, runPolicy={"suspend": True}), left)
    resumed, _ = settled(with_spec(stopped, runPolicy={}), none)

    assert (stopped["status"]["phase"], condition(stopped["status"], "Suspended")["status"]) == ("Pending", "True")
    assert "ranks" not in stopped["status"]
    assert resumed["status"]["ranks"] == {"collector-0": 0, "learner-0": 1}
