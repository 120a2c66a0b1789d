"""Phases, counters and conditions of a DIJob (docs/dijob.md)."""

from datetime import datetime, timedelta

import msgspec
import pytest

from tests.build import NOW, Json, a_dijob, a_pod, children_of, plan_of, with_status
from trainmaster.core.condition import Condition
from trainmaster.core.view import PodView
from trainmaster.kinds.dijob.status import enter
from trainmaster.kinds.dijob.types import DIJob, DIJobStatus
from trainmaster.lifecycle.facts import state_of
from trainmaster.lifecycle.training import Training

JOB = a_dijob()
LATER = NOW + timedelta(minutes=5)


def a_coordinator(phase: str = "", restart: str = "Never", **containers: int | str | None) -> PodView:
    found = {name.replace("_", "-"): state for name, state in containers.items()}
    return a_pod(JOB, "coordinator", phase=phase, restart_policy=restart, containers=found or None)


def state(pod: PodView) -> str:
    return state_of(pod, Training("di-container", frozenset({"di-container"})))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_coordinator("Pending"), "Pending", id="pending"),
        pytest.param(a_coordinator("Unknown"), "Unknown", id="unknown"),
        pytest.param(a_coordinator("Running"), "Running", id="running"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=0), "Succeeded", id="succeeded"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=1), "Failed", id="failed"),
        pytest.param(a_pod(JOB, "coordinator", phase="Failed", reason="Evicted"), "Failed", id="evicted"),
    ],
)
def test_without_an_exit_code_the_phase_of_the_pod_decides(pod: PodView, expected: str) -> None:
    assert state(pod) == expected


@pytest.mark.parametrize(
    ("restart", "exit_code", "expected"),
    [
        pytest.param("Never", None, "Running", id="it runs"),
        pytest.param("Never", 0, "Succeeded", id="Never, exit 0"),
        pytest.param("Never", 1, "Failed", id="Never, exit 1"),
        pytest.param("Never", 137, "Failed", id="Never, exit 137"),
        pytest.param("OnFailure", 0, "Succeeded", id="OnFailure, exit 0"),
        pytest.param("OnFailure", 1, "Running", id="OnFailure, exit 1: the kubelet starts it again"),
        pytest.param("Always", 0, "Running", id="Always, exit 0: the kubelet starts it again"),
        pytest.param("Always", 1, "Running", id="Always, exit 1: the kubelet starts it again"),
    ],
)
def test_the_main_container_decides_while_a_side_car_runs(restart: str, exit_code: int | None, expected: str) -> None:
    assert state(a_coordinator("Running", restart, shell=None, di_container=exit_code)) == expected


@pytest.mark.parametrize(
    ("side_car", "main", "expected"),
    [
        pytest.param(1, None, "Running", id="a side-car that failed"),
        pytest.param(0, None, "Running", id="a side-car that is done"),
        pytest.param("CrashLoopBackOff", None, "Running", id="a side-car that crashes"),
        pytest.param(None, "CrashLoopBackOff", "Running", id="a main container that will be started again"),
    ],
)
def test_a_side_car_that_ends_does_not_end_the_job(
    side_car: int | str | None, main: int | str | None, expected: str
) -> None:
    assert state(a_coordinator("Running", shell=side_car, di_container=main)) == expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_coordinator("Failed", shell=137, di_container=0), "Succeeded", id="only the side-car failed"),
        pytest.param(a_coordinator("Failed", shell=0, di_container=2), "Failed", id="the main container failed"),
        pytest.param(a_coordinator("Failed", shell=1), "Failed", id="no main container to ask"),
        pytest.param(
            a_pod(JOB, "coordinator", phase="Failed", reason="Evicted", containers={"di-container": 0}),
            "Failed",
            id="the kubelet stopped it, politely",
        ),
    ],
)
def test_the_verdict_is_the_same_when_the_side_car_has_ended_too(pod: PodView, expected: str) -> None:
    assert state(pod) == expected


def test_without_a_main_container_those_of_the_template_decide() -> None:
    training = Training("di-container", frozenset({"coordinator"}))

    assert state_of(a_coordinator("Running", coordinator=1, proxy=None), training) == "Failed"
    assert state_of(a_coordinator("Running", coordinator=0, proxy=None), training) == "Succeeded"
    assert state_of(a_coordinator("Running", coordinator=None, proxy=1), training) == "Running"


def a_started_job(declared: Json | None = None) -> Json:
    job = with_status(JOB, plan_of(JOB))
    return with_status(job, job["status"] | {"declared": declared or {}})


@pytest.mark.parametrize(
    ("pod", "counters"),
    [
        pytest.param(a_coordinator("Pending"), {}, id="pending"),
        pytest.param(a_coordinator("Running"), {"active": 1}, id="running"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=0), {"succeeded": 1}, id="succeeded"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=9), {"failed": 1}, id="failed"),
        pytest.param(a_pod(JOB, "coordinator", deleting=True), {}, id="being deleted"),
        pytest.param(a_coordinator("Running", shell=None, di_container=0), {"succeeded": 1}, id="side-car"),
    ],
)
def test_a_coordinator_is_counted_once_or_not_at_all(pod: PodView, counters: Json) -> None:
    job = a_started_job()

    found = with_status(job, plan_of(job, [pod]))["status"]["replicaStatus"]

    assert found == {"Coordinator": counters, "Aggregator": {}, "Collector": {}, "Learner": {}}


def test_every_role_is_counted_and_running_pods_have_succeeded_when_the_job_has() -> None:
    roles = {"aaaaa": "collector", "bbbbb": "collector", "ccccc": "learner", "ddddd": "ddp-learner"}
    names = {f"cartpole-{role}-{suffix}": role for suffix, role in roles.items()}
    members = {name: {"role": role, "at": "2026-01-01T00:00:00Z"} for name, role in names.items()}
    job = a_started_job({"members": members})
    pods = [a_pod(job, r, name=n, labels={"replica-type": r, "pod-name": n}) for n, r in names.items()]

    running = plan_of(job, [*children_of(job), *pods]).status
    ended = plan_of(job, [a_pod(job, "coordinator", exit_code=0), *pods]).status

    assert running is not None
    assert ended is not None
    assert running["replicaStatus"] == {
        "Coordinator": {"active": 1},
        "Aggregator": {},
        "Collector": {"active": 2},
        "Learner": {"active": 1},
        "DDPLearner": {"active": 1},
    }
    assert ended["replicaStatus"]["Collector"] == {"succeeded": 2}


def test_kubectl_get_is_told_how_many_pods_there_are_and_how_many_are_ready() -> None:
    """In the fields of jobs with tasks: kubectl has the same columns for both."""
    name = "cartpole-collector-aaaaa"
    job = a_started_job({"members": {name: {"role": "collector", "at": "2026-01-01T00:00:00Z"}}})
    waiting = a_pod(job, "collector", name=name, labels={"replica-type": "collector", "pod-name": name}, ready=False)

    running = plan_of(job, [*children_of(job), waiting]).status
    ended = plan_of(job, [a_pod(job, "coordinator", exit_code=0), waiting]).status

    assert running is not None
    assert ended is not None
    assert (running["readyReplicas"], running["replicas"]) == (1, 2)
    assert ended["readyReplicas"] == 0


# --- conditions --------------------------------------------------------------------------------


def an_entry(type_: str, status: str = "True", *, since: datetime = NOW, updated: datetime = NOW) -> Condition:
    return Condition(type_, status, f"DIJob{type_}", "said", last_update_time=updated, last_transition_time=since)


def entered(status: DIJobStatus, phase: str, message: str, now: datetime) -> DIJobStatus:
    return enter(msgspec.structs.replace(msgspec.convert(JOB, DIJob), status=status), phase, message, now)


def test_a_phase_is_a_condition_with_the_ancestors_reason() -> None:
    assert entered(DIJobStatus(), "Created", "said", NOW) == DIJobStatus(
        phase="Created", conditions=(an_entry("Created"),), start_time=NOW
    )


def test_created_stays_true_when_the_job_runs() -> None:
    status = entered(entered(DIJobStatus(), "Created", "said", NOW), "Running", "said", LATER)

    assert status.phase == "Running"
    assert status.conditions == (an_entry("Created"), an_entry("Running", since=LATER, updated=LATER))


def test_entering_the_same_phase_again_keeps_its_entry_untouched() -> None:
    status = entered(DIJobStatus(), "Running", "said", NOW)

    assert entered(status, "Running", "other words", LATER) == status


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_running_becomes_false_with_fresh_times_when_the_job_ends(phase: str) -> None:
    running = entered(entered(DIJobStatus(), "Created", "said", NOW), "Running", "said", NOW)

    finished, *rest = entered(running, phase, "said", LATER).conditions

    assert rest == [
        an_entry("Created"),
        an_entry("Running", "False", since=LATER, updated=LATER),
        an_entry(phase, since=LATER, updated=LATER),
    ]
    assert finished == Condition("Finished", "True", phase, "said", last_transition_time=LATER)


def test_there_is_one_entry_for_a_type_and_the_newest_stands_last() -> None:
    old = DIJobStatus(conditions=(an_entry("Running", "False"), an_entry("Created")))

    assert entered(old, "Running", "said", LATER).conditions == (
        an_entry("Created"),
        an_entry("Running", since=LATER, updated=LATER),
    )


def test_another_reason_replaces_the_entry_and_keeps_its_transition_time() -> None:
    foreign = Condition("Running", "True", "SomethingElse", "x", last_update_time=NOW, last_transition_time=NOW)

    (entry,) = entered(DIJobStatus(conditions=(foreign,)), "Running", "said", LATER).conditions

    assert entry == an_entry("Running", since=NOW, updated=LATER)


def test_a_running_condition_that_was_false_already_keeps_its_times() -> None:
    old = DIJobStatus(conditions=(an_entry("Running", "False"),))

    assert an_entry("Running", "False") in entered(old, "Failed", "said", LATER).conditions
