"""What a line of `trainmaster list` says about a job."""

from typing import Any

import pytest

from tests.build import NOW, STAMP, a_dijob, a_ditask, a_pod, a_replica, an_aitj, an_mxjob, settled
from tests.client.found import found
from trainmaster.client.job_row import cells, row_of

RESTARTS = {
    "ps": {"count": 3, "used": 0},
    "trainer": {"count": 3, "used": 2},
}


def condition(type_: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("status", "phase", "message"),
    [
        pytest.param({}, "New", "", id="not seen yet"),
        pytest.param(
            {"phase": "Running", "conditions": [condition("Running", message="all pods are running")]},
            "Running",
            "all pods are running",
            id="running",
        ),
        pytest.param(
            {"phase": "Done", "conditions": [condition("Finished", reason="Failed", message="exit code 3")]},
            "Failed",
            "exit code 3",
            id="ended: the result, not the phase",
        ),
        pytest.param(
            {"phase": "Pending", "conditions": [condition("Accepted", "False", message="spec.x: is wrong")]},
            "Refused",
            "spec.x: is wrong",
            id="refused",
        ),
        pytest.param(
            {"phase": "Pending", "conditions": [condition("Suspended", message="suspended")]},
            "Suspended",
            "suspended",
            id="suspended",
        ),
        pytest.param({"phase": "Odd", "conditions": 7}, "Odd", "", id="of another operator"),
    ],
)
def test_the_phase_and_its_reason_are_the_same_words_for_all_kinds(
    status: dict[str, Any], phase: str, message: str
) -> None:
    row = row_of(found(an_aitj(status=status)), ())

    assert (row.phase, row.message) == (phase, message)


def test_a_job_that_is_being_deleted_says_so() -> None:
    job = an_aitj()
    job["metadata"]["deletionTimestamp"] = STAMP

    assert row_of(found(job), ()).phase == "Deleting"


def test_running_pods_are_counted_and_replicas_without_pods_are_in_the_total() -> None:
    job = an_aitj(trainer=4, ps=1)
    pods = [a_pod(job, "trainer", 0), a_pod(job, "trainer", 1, exit_code=0), a_pod(job, "ps", 0, deleting=True)]
    row = row_of(found(job), pods)

    assert (row.ready, row.total) == (1, 5)
    assert cells(row, NOW)[4] == "1/5"


def test_the_total_of_an_elastic_role_is_what_it_is_scaled_to() -> None:
    role = a_replica(2, edlPolicy="Manual", maxReplicas=8)

    assert row_of(found(an_aitj(worker=role, spec={"elasticReplicas": 6})), ()).total == 6


@pytest.mark.parametrize(
    ("job", "total"),
    [
        pytest.param(a_dijob(), 1, id="DIJob"),
        pytest.param(a_ditask(), 3, id="DIJob with tasks"),
        pytest.param(a_ditask(spec={"replicas": 5}), 6, id="tasks that were scaled"),
        pytest.param(an_mxjob(), 4, id="MXJob"),
    ],
)
def test_every_kind_has_a_total(job: dict[str, Any], total: int) -> None:
    job, children = settled(job)
    pods = [child for child in children if hasattr(child, "phase")]

    assert row_of(found(job), pods).total == total  # type: ignore[arg-type]


def test_a_spec_that_cannot_be_read_has_no_total() -> None:
    row = row_of(found(an_aitj(trainer=a_replica(-1))), ())

    assert row.total is None
    assert cells(row, NOW)[4] == "0/?"


@pytest.mark.parametrize(
    ("restarts", "number"),
    [
        pytest.param({}, 0, id="none"),
        pytest.param(RESTARTS, 3, id="of all pods: once, evictions included"),
        pytest.param({"a": {"count": 2, "used": 2}, "b": {"count": 1, "used": 1}}, 3, id="of single pods: their sum"),
    ],
)
def test_restarts_are_counted_once(restarts: dict[str, Any], number: int) -> None:
    assert row_of(found(an_aitj(status={"restarts": restarts})), ()).restarts == number


@pytest.mark.parametrize(
    ("status", "number"),
    [
        pytest.param(
            {"restarts": 2, "attempts": {"learner": {"count": 3, "used": 2}}}, 2, id="the number of the status"
        ),
        pytest.param({"reschedules": 1, "attempts": {"learner": {"count": 1}}}, 0, id="reschedules are no restarts"),
    ],
)
def test_a_dijob_with_tasks_has_the_restarts_that_its_status_has(status: dict[str, Any], number: int) -> None:
    row = row_of(found(a_ditask(status={"phase": "Running", **status})), ())

    assert (row.kind, row.phase, row.restarts) == ("dijob", "Running", number)
