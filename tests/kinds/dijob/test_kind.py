"""A DIJob from its creation to its clean-up (docs/dijob.md)."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_container,
    a_dijob,
    a_pod,
    a_service,
    a_template,
    children_of,
    kind_of,
    names_of,
    plan_of,
    view_of_create,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.plan import Event, Plan

JOB = a_dijob()
SERVICE_VIEW = a_service(JOB, "coordinator")
COORDINATOR = "cartpole-coordinator"
LATER = NOW + timedelta(minutes=5)


def condition_of(plan: Plan, type_: str) -> Json:
    assert plan.status is not None
    (found,) = [c for c in plan.status["conditions"] if c["type"] == type_]
    return dict(found)


def a_job_in(phase: str, **spec: Any) -> Json:
    """The job after our own passes brought it into this phase."""
    job = with_status(a_dijob(**spec), plan_of(a_dijob(**spec)))
    exits = {"Succeeded": 0, "Failed": 1}
    if phase == "Created":
        return job
    job = with_status(job, plan_of(job, children_of(job)))
    if phase in exits:
        job = with_status(job, plan_of(job, [a_pod(job, "coordinator", exit_code=exits[phase]), SERVICE_VIEW]))
    assert job["status"]["phase"] == phase
    return job


# --- creation ----------------------------------------------------------------------------------


def test_a_new_job_gets_its_coordinator_after_the_service_and_is_created() -> None:
    plan = plan_of(JOB)

    assert [(create.resource, create.key.name) for create in plan.creates] == [
        (SERVICE, COORDINATOR),
        (POD, COORDINATOR),
    ]
    assert all(create.why for create in plan.creates)
    assert plan.deletes == ()
    assert not plan.status_first
    assert plan.events == (Event("Normal", "DIJobCreated", "DIJob cartpole created"),)
    assert plan.status == {
        "phase": "Created",
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "DIJobCreated",
                "message": "DIJob cartpole created",
                "lastUpdateTime": STAMP,
                "lastTransitionTime": STAMP,
            }
        ],
        "replicas": 1,
        "readyReplicas": 0,
        "replicaStatus": {"Coordinator": {}, "Aggregator": {}, "Collector": {}, "Learner": {}},
        "startTime": STAMP,
        "summary": {"ready": "0/1", "restarts": 0, "message": "DIJob cartpole created"},
    }


def test_the_created_children_fill_their_slots() -> None:
    job = a_job_in("Created")

    assert plan_of(job, [view_of_create(create) for create in plan_of(JOB).creates]) == Plan()


@pytest.mark.parametrize(
    ("children", "resource"),
    [
        pytest.param([SERVICE_VIEW], POD, id="the pod"),
        pytest.param([a_pod(JOB, "coordinator")], SERVICE, id="the service"),
    ],
)
def test_only_what_is_missing_is_created_again(children: list[Child], resource: Any) -> None:
    plan = plan_of(a_job_in("Running"), children)

    assert [create.resource for create in plan.creates] == [resource]


def test_a_coordinator_that_was_deleted_is_created_again_and_the_job_stays_running() -> None:
    plan = plan_of(a_job_in("Running"), [SERVICE_VIEW])

    assert names_of(plan.creates, POD) == [COORDINATOR]
    assert plan.status is not None
    assert plan.status["phase"] == "Running"
    assert plan.status["replicaStatus"]["Coordinator"] == {}
    assert plan.events == ()


@pytest.mark.parametrize("exit_code", [None, 0, 1])
def test_a_coordinator_on_its_way_out_counts_as_nothing_and_keeps_its_slot(exit_code: int | None) -> None:
    going = a_pod(JOB, "coordinator", exit_code=exit_code, deleting=True)

    plan = plan_of(a_job_in("Running"), [going, SERVICE_VIEW])

    assert (plan.creates, plan.deletes) == ((), ())
    assert plan.status is not None
    assert plan.status["phase"] == "Running"
    assert plan.status["replicaStatus"]["Coordinator"] == {}


# --- phases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "phase", "reason", "message", "events"),
    [
        pytest.param(
            a_pod(JOB, "coordinator"),
            "Running",
            "DIJobRunning",
            "coordinator of DIJob cartpole is running",
            [],
            id="running",
        ),
        pytest.param(
            a_pod(JOB, "coordinator", exit_code=0),
            "Succeeded",
            "DIJobSucceeded",
            "DIJob cartpole succeeded because coordinator succeeded",
            ["Normal"],
            id="succeeded",
        ),
        pytest.param(
            a_pod(JOB, "coordinator", phase="Failed"),
            "Failed",
            "DIJobFailed",
            "DIJob cartpole failed because coordinator failed: "
            "pod cartpole-coordinator failed: no reason was reported (node node-1)",
            ["Warning"],
            id="failed",
        ),
    ],
)
def test_the_coordinator_decides_the_phase(
    pod: Child, phase: str, reason: str, message: str, events: list[str]
) -> None:
    plan = plan_of(a_job_in("Created"), [pod, SERVICE_VIEW])

    assert plan.status is not None
    assert plan.status["phase"] == phase
    found = condition_of(plan, phase)
    assert (found["status"], found["reason"], found["message"]) == ("True", reason, message)
    assert plan.events == tuple(Event(type_, reason, message) for type_ in events)


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_every_job_is_seen_created_first_however_fast_its_coordinator_is(phase: str) -> None:
    plan = plan_of(JOB, [a_pod(JOB, "coordinator", phase=phase), SERVICE_VIEW])

    assert plan.status is not None
    assert plan.status["phase"] == "Created"
    assert plan.events == (Event("Normal", "DIJobCreated", "DIJob cartpole created"),)


@pytest.mark.parametrize("phase", ["Pending", "Unknown", "Hibernating"])
@pytest.mark.parametrize("stored", ["Created", "Running"])
def test_a_coordinator_that_tells_nothing_leaves_the_phase(stored: str, phase: str) -> None:
    job = a_job_in(stored)

    plan = plan_of(job, [a_pod(job, "coordinator", phase=phase), SERVICE_VIEW])

    assert with_status(job, plan)["status"]["phase"] == stored
    assert plan.events == ()


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(
            a_pod(JOB, "coordinator", exit_code=137, node="gpu-7"),
            "container di-container on node gpu-7 exited with reason Error exitcode 137 (SIGKILL)",
            id="an exit code",
        ),
        pytest.param(
            a_pod(JOB, "coordinator", phase="Failed", reason="DeadlineExceeded", message="it took too long"),
            "DeadlineExceeded, it took too long (node node-1)",
            id="a deadline",
        ),
        pytest.param(
            a_pod(JOB, "coordinator", phase="Failed", reason="Unheard"),
            "Unheard (node node-1)",
            id="a reason without a message",
        ),
    ],
)
def test_a_failed_job_tells_why_after_the_ancestors_sentence(pod: Child, why: str) -> None:
    plan = plan_of(a_job_in("Running"), [pod, SERVICE_VIEW])

    said = f"DIJob cartpole failed because coordinator failed: pod cartpole-coordinator failed: {why}"
    assert condition_of(plan, "Failed")["message"] == said
    assert [event.message for event in plan.events] == [said]


@pytest.mark.parametrize(
    ("exit_code", "phase", "column"), [(0, "Succeeded", "succeeded"), (1, "Failed", "failed")], ids=["well", "badly"]
)
def test_the_verdict_is_stored_before_anything_is_deleted(exit_code: int, phase: str, column: str) -> None:
    children: list[Child] = [a_pod(JOB, "coordinator", exit_code=exit_code), SERVICE_VIEW]
    running = a_job_in("Running", clean="All")

    first = plan_of(running, children)
    second = plan_of(with_status(running, first), children)

    assert first.status_first
    assert (first.creates, first.deletes) == ((), ())
    assert first.status is not None
    assert first.status["replicaStatus"]["Coordinator"] == {column: 1}
    assert condition_of(first, "Running")["status"] == "False"
    assert condition_of(first, "Finished")["reason"] == phase
    assert names_of(second.deletes, POD) == [COORDINATOR]


def test_a_job_that_ends_while_its_service_is_missing_creates_nothing() -> None:
    plan = plan_of(a_job_in("Running"), [a_pod(JOB, "coordinator", exit_code=0)])

    assert plan.creates == ()


def test_a_side_car_does_not_keep_a_finished_job_running() -> None:
    pod = a_pod(JOB, "coordinator", phase="Running", containers={"di-container": 0, "shell": None})

    plan = plan_of(a_job_in("Running"), [pod, SERVICE_VIEW])

    assert plan.status is not None
    assert plan.status["phase"] == "Succeeded"


# --- the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize(
    "children",
    [
        pytest.param([], id="nothing left"),
        pytest.param([a_pod(JOB, "coordinator", exit_code=1)], id="a failed coordinator"),
        pytest.param([a_pod(JOB, "coordinator", exit_code=0)], id="a coordinator that succeeded"),
        pytest.param([a_pod(JOB, "coordinator", phase="Pending")], id="a new coordinator"),
    ],
)
def test_a_job_that_has_ended_never_changes_and_creates_nothing(phase: str, children: list[Child]) -> None:
    plan = plan_of(a_job_in(phase), children, now=LATER)

    assert (plan.status, plan.creates, plan.events) == (None, (), ())


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_job_of_the_old_operator_is_not_run_again(phase: str) -> None:
    job = a_dijob(status={"phase": phase})

    assert plan_of(job) == Plan()


RUNNING = a_pod(JOB, "collector", name="cartpole-collector-1")
PENDING = a_pod(JOB, "learner", phase="Pending", name="cartpole-learner-1")
CRASHING = a_pod(JOB, "learner", containers={"di-container": "CrashLoopBackOff"}, name="cartpole-learner-2")
DONE = a_pod(JOB, "coordinator", exit_code=0)


@pytest.mark.parametrize(
    ("policy", "deleted"),
    [
        pytest.param(
            "All", [COORDINATOR, "cartpole-collector-1", "cartpole-learner-1", "cartpole-learner-2"], id="All"
        ),
        pytest.param(
            "ALL", [COORDINATOR, "cartpole-collector-1", "cartpole-learner-1", "cartpole-learner-2"], id="ALL"
        ),
        pytest.param("Running", ["cartpole-collector-1", "cartpole-learner-1"], id="Running"),
        pytest.param("", ["cartpole-collector-1", "cartpole-learner-1"], id="empty means Running"),
        pytest.param(None, ["cartpole-collector-1", "cartpole-learner-1"], id="left out means Running"),
        pytest.param("None", [], id="None"),
    ],
)
def test_the_end_cleans_pods_by_policy_and_every_service(policy: str | None, deleted: list[str]) -> None:
    job = a_job_in("Succeeded", clean=policy)
    services = [a_service(job, "collector", name="cartpole-collector-1"), SERVICE_VIEW]

    plan = plan_of(job, [DONE, RUNNING, PENDING, CRASHING, *services])

    assert sorted(names_of(plan.deletes, POD)) == sorted(deleted)
    assert sorted(names_of(plan.deletes, SERVICE)) == ["cartpole-collector-1", COORDINATOR]
    assert all(delete.uid and delete.why for delete in plan.deletes)


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
def test_services_go_even_when_no_pod_is_left(policy: str) -> None:
    plan = plan_of(a_job_in("Failed", clean=policy), [SERVICE_VIEW])

    assert names_of(plan.deletes, SERVICE) == [COORDINATOR]


def test_what_is_on_its_way_out_is_not_deleted_again() -> None:
    job = a_job_in("Succeeded", clean="All")
    pod, service = a_pod(job, "coordinator", exit_code=0, deleting=True), a_service(job, "coordinator", deleting=True)

    plan = plan_of(job, [pod, service])

    assert plan.is_quiet
    assert plan.requeue_after == 60.0  # seconds beyond its grace period; then it is deleted by force


# --- settling ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "children"),
    [
        pytest.param("Created", [a_pod(JOB, "coordinator", phase="Pending"), SERVICE_VIEW], id="created"),
        pytest.param("Running", children_of(JOB), id="running"),
        pytest.param("Succeeded", [DONE], id="succeeded"),
        pytest.param("Failed", [a_pod(JOB, "coordinator", exit_code=1)], id="failed"),
    ],
)
def test_a_settled_job_is_left_in_peace(phase: str, children: list[Child]) -> None:
    assert plan_of(a_job_in(phase), children, now=LATER) == Plan()


def test_an_edit_of_the_spec_is_acknowledged() -> None:
    job = with_spec(a_job_in("Running"), group="another")

    plan = plan_of(job, children_of(JOB))

    assert plan.status is not None
    assert plan.status["observedGeneration"] == 2
    assert with_status(job, plan)["status"] == {**job["status"], "observedGeneration": 2}


def test_a_template_that_changes_later_does_not_touch_the_coordinator() -> None:
    edited = a_template(a_container("di-container", ports={"di-port": 9}))
    job = with_spec(a_job_in("Running"), coordinator={"template": edited})

    plan = plan_of(job, children_of(JOB))

    assert (plan.creates, plan.deletes) == ((), ())


# --- events of actions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "resource", "error", "event"),
    [
        ("create", POD, "", Event("Normal", "SuccessfulCreate", "Create pod: a, b")),
        ("create", SERVICE, "", Event("Normal", "SuccessfulCreate", "Create service: a, b")),
        ("delete", POD, "", Event("Normal", "SuccessfulDelete", "Delete pod: a, b")),
        ("delete", SERVICE, "", Event("Normal", "SuccessfulDelete", "Delete service: a, b")),
        ("create", POD, "no", Event("Warning", "FailedCreate", "Failed to create pod: a, b error: no")),
        ("delete", SERVICE, "no", Event("Warning", "FailedDelete", "Failed to delete service: a, b error: no")),
    ],
)
def test_actions_are_told_in_the_ancestors_words(verb: str, resource: Any, error: str, event: Event) -> None:
    assert kind_of(JOB).action_event(verb, resource, ["a", "b"], error) == event


def test_events_come_from_the_ancestors_component() -> None:
    assert kind_of(JOB).component == "di-orchestrator"


def test_our_pod_of_the_coordinators_name_without_its_labels_makes_room() -> None:
    job = a_dijob()
    relabelled = a_pod(job, "coordinator", labels={"replica-type": ""})

    plan = plan_of(job, [a_service(job, "coordinator"), relabelled])

    assert names_of(plan.deletes, POD) == ["cartpole-coordinator"]
