"""Phases, counters and conditions of a DIJob (spec §1.7, §1.8; side-cars: §9.1 #4)."""

from datetime import datetime, timedelta

import pytest

from tests.build import NOW, a_dijob, a_pod
from trainmaster.core.condition import Condition
from trainmaster.core.view import PodView
from trainmaster.kinds.dijob.profile import DI
from trainmaster.kinds.dijob.status import counted, enter, folded, is_displaced, pod_state
from trainmaster.kinds.dijob.types import DIJobStatus, RoleStatus

JOB = a_dijob()
LATER = NOW + timedelta(minutes=5)


def a_coordinator(phase: str = "", restart: str = "Never", **containers: int | str | None) -> PodView:
    found = {name.replace("_", "-"): state for name, state in containers.items()}
    return a_pod(JOB, "coordinator", phase=phase, restart_policy=restart, containers=found or None)


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        pytest.param(None, "", id="no pod"),
        pytest.param(a_coordinator("Pending"), "", id="pending"),
        pytest.param(a_coordinator("Unknown"), "", id="unknown"),
        pytest.param(a_coordinator("Hibernating"), "", id="a phase of the future"),
        pytest.param(a_coordinator("Running"), "Running", id="running"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=0), "Succeeded", id="succeeded"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=1), "Failed", id="failed"),
        pytest.param(a_pod(JOB, "coordinator", phase="Failed", reason="Evicted"), "Failed", id="evicted"),
        pytest.param(a_pod(JOB, "coordinator", deleting=True), "", id="running, on its way out"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=1, deleting=True), "", id="failed, on its way out"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=0, deleting=True), "", id="succeeded, on its way out"),
    ],
)
def test_a_coordinator_counts_by_its_phase_and_not_when_it_goes(pod: PodView | None, state: str) -> None:
    assert pod_state(pod, "di-container") == state


@pytest.mark.parametrize(
    ("restart", "exit_code", "state"),
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
def test_the_main_container_decides_while_a_side_car_runs(restart: str, exit_code: int | None, state: str) -> None:
    assert pod_state(a_coordinator("Running", restart, shell=None, di_container=exit_code), "di-container") == state


@pytest.mark.parametrize(
    ("side_car", "main", "state"),
    [
        pytest.param(1, None, "Running", id="a side-car that failed"),
        pytest.param(0, None, "Running", id="a side-car that is done"),
        pytest.param("CrashLoopBackOff", None, "Running", id="a side-car that crashes"),
        pytest.param(None, "CrashLoopBackOff", "Running", id="a main container that will be started again"),
    ],
)
def test_a_side_car_that_ends_does_not_end_the_job(
    side_car: int | str | None, main: int | str | None, state: str
) -> None:
    assert pod_state(a_coordinator("Running", shell=side_car, di_container=main), "di-container") == state


@pytest.mark.parametrize(
    ("pod", "state"),
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
def test_the_verdict_is_the_same_when_the_side_car_has_ended_too(pod: PodView, state: str) -> None:
    assert pod_state(pod, "di-container") == state


def test_without_a_main_container_the_pod_decides() -> None:
    assert pod_state(a_coordinator("Running", coordinator=1), "di-container") == "Running"


@pytest.mark.parametrize(
    ("pod", "counters"),
    [
        pytest.param(None, RoleStatus(), id="no pod"),
        pytest.param(a_coordinator("Pending"), RoleStatus(), id="pending"),
        pytest.param(a_coordinator("Running"), RoleStatus(active=1), id="running"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=0), RoleStatus(succeeded=1), id="succeeded"),
        pytest.param(a_pod(JOB, "coordinator", exit_code=9), RoleStatus(failed=1), id="failed"),
        pytest.param(a_pod(JOB, "coordinator", deleting=True), RoleStatus(), id="on its way out"),
        pytest.param(a_coordinator("Running", shell=None, di_container=0), RoleStatus(succeeded=1), id="side-car"),
    ],
)
def test_one_pod_is_counted_once_or_not_at_all(pod: PodView | None, counters: RoleStatus) -> None:
    found = counted([("coordinator", pod)] if pod else [], DI)

    assert found == dict.fromkeys(("Aggregator", "Collector", "Learner"), RoleStatus()) | {"Coordinator": counters}


def test_every_role_is_counted_and_ddp_learners_only_when_there_are_any() -> None:
    roles = ["collector", "collector", "learner", "aggregator", "ddp-learner"]

    found = counted([(role, a_pod(JOB, role, name=f"cartpole-{role}")) for role in roles], DI)

    assert found == {
        "Coordinator": RoleStatus(),
        "Aggregator": RoleStatus(active=1),
        "Collector": RoleStatus(active=2),
        "Learner": RoleStatus(active=1),
        "DDPLearner": RoleStatus(active=1),
    }
    assert folded(found | {"Collector": RoleStatus(active=2, succeeded=1, failed=1)})["Collector"] == RoleStatus(
        succeeded=3, failed=1
    )


@pytest.mark.parametrize(
    ("phase", "reason", "displaced"),
    [
        ("Failed", "Evicted", True),
        ("Failed", "OutOfcpu", True),
        ("Failed", "Outofmemory", True),
        ("Failed", "UnexpectedAdmissionError", True),
        ("Failed", "", False),
        ("Failed", "DeadlineExceeded", False),
        ("Failed", "NodeLost", True),
        ("Failed", "Shutdown", True),
        ("Running", "Evicted", False),
    ],
)
def test_a_pod_that_its_node_put_out_is_told_from_one_that_failed(phase: str, reason: str, displaced: bool) -> None:
    assert is_displaced(a_pod(JOB, "collector", phase=phase, reason=reason)) is displaced


# --- conditions --------------------------------------------------------------------------------


def an_entry(type_: str, status: str = "True", *, since: datetime = NOW, updated: datetime = NOW) -> Condition:
    return Condition(type_, status, f"DIJob{type_}", "said", last_update_time=updated, last_transition_time=since)


def test_a_phase_is_a_condition_with_the_ancestors_reason() -> None:
    assert enter(DIJobStatus(), "Created", "said", NOW, DI) == DIJobStatus(
        phase="Created", conditions=(an_entry("Created"),), start_time=NOW
    )


def test_created_stays_true_when_the_job_runs() -> None:
    status = enter(enter(DIJobStatus(), "Created", "said", NOW, DI), "Running", "said", LATER, DI)

    assert status.phase == "Running"
    assert status.conditions == (an_entry("Created"), an_entry("Running", since=LATER, updated=LATER))


def test_entering_the_same_phase_again_keeps_its_entry_untouched() -> None:
    status = enter(DIJobStatus(), "Running", "said", NOW, DI)

    assert enter(status, "Running", "other words", LATER, DI) == status


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_running_becomes_false_with_fresh_times_when_the_job_ends(phase: str) -> None:
    running = enter(enter(DIJobStatus(), "Created", "said", NOW, DI), "Running", "said", NOW, DI)

    finished, *rest = enter(running, phase, "said", LATER, DI).conditions

    assert rest == [
        an_entry("Created"),
        an_entry("Running", "False", since=LATER, updated=LATER),
        an_entry(phase, since=LATER, updated=LATER),
    ]
    assert finished == Condition("Finished", "True", phase, "said", last_transition_time=LATER)


def test_there_is_one_entry_for_a_type_and_the_newest_stands_last() -> None:
    old = DIJobStatus(conditions=(an_entry("Running", "False"), an_entry("Created")))

    assert enter(old, "Running", "said", LATER, DI).conditions == (
        an_entry("Created"),
        an_entry("Running", since=LATER, updated=LATER),
    )


def test_another_reason_replaces_the_entry_and_keeps_its_transition_time() -> None:
    foreign = Condition("Running", "True", "SomethingElse", "x", last_update_time=NOW, last_transition_time=NOW)

    (entry,) = enter(DIJobStatus(conditions=(foreign,)), "Running", "said", LATER, DI).conditions

    assert entry == an_entry("Running", since=NOW, updated=LATER)


def test_a_running_condition_that_was_false_already_keeps_its_times() -> None:
    old = DIJobStatus(conditions=(an_entry("Running", "False"),))

    assert an_entry("Running", "False") in enter(old, "Failed", "said", LATER, DI).conditions
