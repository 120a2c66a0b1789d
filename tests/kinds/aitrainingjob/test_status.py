"""Phases, counters and conditions of an AITrainingJob (docs/aitrainingjob.md, Phases and Status)."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from tests.build import NOW, Child, Json, a_pod, an_aitj, kind_of, observed, view_of
from trainmaster.core.condition import Condition
from trainmaster.core.view import PodView
from trainmaster.kinds.aitrainingjob.kind import AITrainingJobKind
from trainmaster.kinds.aitrainingjob.status import count, enter, phase_of
from trainmaster.kinds.aitrainingjob.types import AITrainingJob, AITrainingJobStatus, ReplicaStatus
from trainmaster.lifecycle.facts import Facts, classify, replica_pods

LATER = NOW + timedelta(minutes=5)
JOB = an_aitj(trainer=2, ps=1)


def decoded(job: Json) -> AITrainingJob:
    found = kind_of(job).decode(view_of(job))
    assert isinstance(found, AITrainingJob)
    return found


def facts_of(job: Json, children: Sequence[Child] = ()) -> Facts:
    kind, seen = kind_of(job), observed(job, children)
    assert isinstance(kind, AITrainingJobKind)
    model = kind.read(decoded(job), seen)
    return classify(model, replica_pods(model, seen), seen, kind.fault_rules, NOW)


def pods_of(trainers: str, ps: str = "R") -> list[Child]:
    """One letter for a pod: P pending, B bound to a node, R running, S succeeded, F failed, `-` missing."""
    phases = {"P": "Pending", "B": "Pending", "R": "Running", "S": "Succeeded", "F": "Failed"}
    slots = [*(("trainer", i, one) for i, one in enumerate(trainers)), ("ps", 0, ps)]
    return [
        a_pod(JOB, role, i, phase=phases[one], node="" if one == "P" else "node-1")
        for role, i, one in slots
        if one != "-"
    ]


# --- counters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "counters"),
    [
        pytest.param(a_pod(JOB, "ps", phase="Pending"), ReplicaStatus(pending=1), id="pending"),
        pytest.param(a_pod(JOB, "ps", phase="Pending", node="n"), ReplicaStatus(scheduled=1), id="bound to a node"),
        pytest.param(a_pod(JOB, "ps", phase="Running"), ReplicaStatus(active=1), id="running"),
        pytest.param(a_pod(JOB, "ps", exit_code=0), ReplicaStatus(succeeded=1), id="succeeded"),
        pytest.param(a_pod(JOB, "ps", exit_code=1), ReplicaStatus(failed=1), id="failed"),
        pytest.param(a_pod(JOB, "ps", phase="Unknown"), ReplicaStatus(failed=1), id="unknown counts as failed"),
        pytest.param(
            a_pod(JOB, "ps", deleting=True), ReplicaStatus(active=1), id="on its way out counts like any other"
        ),
    ],
)
def test_a_pod_is_counted_in_one_column(pod: PodView, counters: ReplicaStatus) -> None:
    assert count(decoded(JOB), facts_of(JOB, [pod])) == {"ps": counters, "trainer": ReplicaStatus()}


def test_only_pods_in_slots_of_the_spec_are_counted() -> None:
    surplus, stray = a_pod(JOB, "trainer", 2), a_pod(JOB, "trainer", 0, labels={}, name="stray")

    counters = count(decoded(JOB), facts_of(JOB, [*pods_of("RS"), surplus, stray]))

    assert counters == {"trainer": ReplicaStatus(active=1, succeeded=1), "ps": ReplicaStatus(active=1)}


def test_counters_are_keyed_by_the_name_as_its_user_wrote_it() -> None:
    job = an_aitj(PServer=1)

    assert count(decoded(job), facts_of(job, [a_pod(job, "PServer")])) == {"PServer": ReplicaStatus(active=1)}


# --- phases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trainers", "ps", "phase", "message"),
    [
        pytest.param("--", "-", "Pending", "all pods are waiting for scheduling", id="no pod yet"),
        pytest.param("PP", "P", "Pending", "all pods are waiting for scheduling", id="none scheduled"),
        pytest.param("BP", "B", "Pending", "all pods are waiting for scheduling", id="one not scheduled"),
        pytest.param("RR", "-", "Pending", "all pods are waiting for scheduling", id="one missing"),
        pytest.param("RR", "P", "Pending", "all pods are waiting for scheduling", id="one back in the queue"),
        pytest.param("BB", "B", "Creating", "creating containers", id="all scheduled"),
        pytest.param("RB", "R", "Creating", "creating containers", id="one still creating"),
        pytest.param("SB", "R", "Creating", "creating containers", id="one done, one still creating"),
        pytest.param("RR", "R", "Running", "all pods are running", id="all running"),
        pytest.param("SR", "R", "Running", "all pods are running", id="a pod that ended has run"),
        pytest.param("FR", "R", "Running", "all pods are running", id="a pod that failed has run"),
    ],
)
def test_the_phase_of_a_job_that_goes_on(trainers: str, ps: str, phase: str, message: str) -> None:
    job, seen = decoded(JOB), facts_of(JOB, pods_of(trainers, ps))

    assert phase_of(job, count(job, seen), seen) == (phase, message)


def test_a_pending_job_tells_what_the_scheduler_said() -> None:
    stuck = a_pod(JOB, "trainer", 0, phase="Pending", unschedulable="0/3 nodes are available")
    job, seen = decoded(JOB), facts_of(JOB, [stuck, a_pod(JOB, "ps")])

    assert phase_of(job, count(job, seen), seen) == (
        "Pending",
        "all pods are waiting for scheduling: mnist-trainer-0: 0/3 nodes are available",
    )


def test_a_role_without_replicas_does_not_hold_the_job_back() -> None:
    job = an_aitj(trainer=1, ps=0)
    seen = facts_of(job, [a_pod(job, "trainer")])

    assert phase_of(decoded(job), count(decoded(job), seen), seen)[0] == "Running"


# --- history -----------------------------------------------------------------------------------


def an_entry(type_: str, status: str = "True", message: str = "said", since: datetime = NOW) -> Condition:
    return Condition(type_, status, f"TrainingJob{type_}", message, last_probe_time=since, last_transition_time=since)


def entered(*phases: str, status: AITrainingJobStatus | None = None) -> AITrainingJobStatus:
    found = status or AITrainingJobStatus()
    for phase in phases:
        found = enter(found, phase, "said", NOW)
    return found


def test_the_first_phase_starts_the_history_and_the_job() -> None:
    assert entered("Pending") == AITrainingJobStatus(phase="Pending", conditions=(an_entry("Pending"),), start_time=NOW)


def test_a_new_phase_is_appended_and_the_last_entry_becomes_false_with_its_times() -> None:
    status = enter(entered("Pending"), "Creating", "said", LATER)

    assert status.conditions == (an_entry("Pending", "False"), an_entry("Creating", since=LATER))


def test_entering_the_same_phase_replaces_the_message_and_keeps_the_times() -> None:
    status = enter(entered("Pending"), "Pending", "other words", LATER)

    assert status.conditions == (an_entry("Pending", message="other words"),)


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(an_entry("Pending", "False"), id="another status"),
        pytest.param(msgspec.structs.replace(an_entry("Pending"), reason="Foreign"), id="another reason"),
    ],
)
def test_an_entry_of_the_same_phase_that_says_something_else_is_replaced(last: Condition) -> None:
    status = enter(AITrainingJobStatus(conditions=(last,)), "Pending", "said", LATER)

    assert status.conditions == (an_entry("Pending", since=LATER),)


def test_each_phase_stands_once_and_the_present_one_last() -> None:
    """``kubectl wait --for=condition=Running`` looks at the first of that type."""
    types = [(c.type, c.status) for c in entered("Pending", "Running", "Restarting", "Running").conditions]

    assert types == [("Pending", "False"), ("Restarting", "False"), ("Running", "True")]


def test_a_phase_that_stands_twice_in_a_stored_status_stands_once_after_the_next_change() -> None:
    twice = (an_entry("Running", "False"), an_entry("Restarting", "False"), an_entry("Running"))

    status = enter(AITrainingJobStatus(conditions=twice), "Terminating", "said", LATER)

    assert status.conditions == (
        an_entry("Restarting", "False"),
        an_entry("Running", "False"),
        an_entry("Terminating", since=LATER),
    )


def test_standard_conditions_stand_before_the_history_and_are_not_touched_by_it() -> None:
    accepted = Condition("Accepted", "True", "Valid", last_transition_time=NOW)
    status = AITrainingJobStatus(conditions=(an_entry("Pending"), accepted))

    assert enter(status, "Running", "said", LATER).conditions == (
        accepted,
        an_entry("Pending", "False"),
        an_entry("Running", since=LATER),
    )


def test_entering_the_same_phase_keeps_the_standard_conditions() -> None:
    refused = Condition("PodCreateFailed", "True", "FailedCreate", "no quota", last_transition_time=NOW)
    status = AITrainingJobStatus(conditions=(refused, an_entry("Running", "False"), an_entry("Pending")))

    assert enter(status, "Pending", "said", LATER).conditions == status.conditions


@pytest.mark.parametrize("phase", ["Succeed", "Failed", "Timeout", "Preempted", "NodeFail"])
def test_an_ending_phase_finishes_the_job_and_sets_its_end(phase: str) -> None:
    status = enter(entered("Running"), phase, "said", LATER)

    assert status.end_time == LATER
    assert status.conditions == (
        Condition("Finished", "True", phase, "said", last_transition_time=LATER),
        an_entry("Running", "False"),
        an_entry(phase, since=LATER),
    )


@pytest.mark.parametrize(
    ("phases", "start", "running", "end"),
    [
        pytest.param(("Pending",), True, False, False, id="pending"),
        pytest.param(("Pending", "Creating"), True, False, False, id="creating"),
        pytest.param(("Pending", "Running"), True, True, False, id="running"),
        pytest.param(("Pending", "Terminating"), True, False, False, id="terminating"),
        pytest.param(("Pending", "Failed"), True, False, True, id="failed before it ran"),
        pytest.param(("Pending", "Running", "Terminating", "Succeed"), True, True, True, id="succeeded"),
    ],
)
def test_which_times_a_phase_sets(phases: Sequence[str], start: bool, running: bool, end: bool) -> None:
    status = entered(*phases)

    times = (status.start_time, status.start_running_time, status.end_time)
    assert times == tuple(NOW if is_set else None for is_set in (start, running, end))


def test_times_are_set_once() -> None:
    first = entered("Pending", "Running")

    again = enter(enter(first, "Pending", "said", LATER), "Running", "said", LATER)

    assert (again.start_time, again.start_running_time) == (NOW, NOW)
