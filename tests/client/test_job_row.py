"""What a line of `trainmaster list` says about a job."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.build import NOW, STAMP, a_dijob, a_ditask, a_pod, a_replica, an_aitj, an_mxjob, settled
from tests.client.found import found
from trainmaster.client.job_row import HEAD, Row, cells, list_of, newest_first, row_of
from trainmaster.client.text import table

RESTARTS = {
    "ps": {"count": 3, "used": 0},
    "trainer": {"count": 3, "used": 2},
}


def condition(type_: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def shown(row: Row) -> dict[str, str]:
    return dict(zip(HEAD, cells(row, NOW), strict=True))


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
    assert shown(row)["READY"] == "1/5"


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
    assert shown(row)["READY"] == "0/?"


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


# --- what a narrow terminal shows ---

LOSS = "ValueError: the loss grows: choose a smaller rate"
FAILURE = {"replica": "worker-1", "role": "worker", "pod": "train-worker-1", "node": "local", "exitCode": 1}


def over(reason: str, message: str = "", seconds: int = 12, **status: Any) -> dict[str, Any]:
    """A status that ended so many seconds after its job was created."""
    end = condition("Finished", reason=reason, message=message)
    end["lastTransitionTime"] = (datetime.fromisoformat(STAMP) + timedelta(seconds=seconds)).isoformat()
    return {"phase": reason, "conditions": [end], **status}


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        pytest.param({"output": ["step 3", LOSS]}, f"{LOSS} (worker-1, exit code 1)", id="exception"),
        pytest.param({}, "worker-1 exited with code 1", id="silent"),
        pytest.param(
            {"exitCode": 137, "signal": "SIGKILL", "output": ["allocating"]},
            "worker-1 was killed by SIGKILL (137)",
            id="signal",
        ),
        pytest.param(
            {"exitCode": 137, "signal": "SIGKILL", "reason": "OOMKilled", "memoryLimit": "200Mi"},
            "worker-1 ran out of memory (OOMKilled, exit code 137) at its limit of 200Mi",
            id="memory",
        ),
        pytest.param({"exitCode": None, "message": "node n1 is lost"}, "node n1 is lost (worker-1)", id="node"),
    ],
)
def test_the_message_of_a_failed_job_begins_with_its_cause(failure: dict[str, Any], cause: str) -> None:
    row = row_of(found(an_aitj(status=over("Failed", "worker-1 (pod …", failure=FAILURE | failure))), ())

    assert shown(row)["MESSAGE"] == cause
    assert row.message == "worker-1 (pod …"


def test_the_message_of_a_deadline_is_not_a_program_that_was_stopped() -> None:
    row = row_of(found(an_aitj(status=over("Timeout", "the job has run for 60 seconds", failure=FAILURE))), ())

    assert shown(row)["MESSAGE"] == "the job has run for 60 seconds"


def test_a_job_that_has_succeeded_has_its_duration_and_no_more_words() -> None:
    row = row_of(found(an_aitj(trainer=2, status=over("Succeed", "job mnist completed; deleted pods"))), ())

    assert (shown(row)["READY"], shown(row)["DURATION"], shown(row)["MESSAGE"]) == ("-", "12s", "")
    assert row.message == "job mnist completed; deleted pods"


def test_the_cause_is_on_a_terminal_of_110_columns() -> None:
    """Namespace and kind would say the same in every line."""
    jobs = [an_aitj(name, status=over("Failed", failure=FAILURE | {"output": [LOSS]})) for name in ("train", "mem")]
    rows = [row_of(found(job), ()) for job in jobs]
    lines = table(*list_of(rows, rows[0].namespace, NOW), 110).splitlines()

    assert lines[0].split() == ["NAME", "PHASE", "READY", "RESTARTS", "DURATION", "AGE", "MESSAGE"]
    assert all(LOSS in line for line in lines[1:])


def test_columns_that_differ_are_shown() -> None:
    rows = [row_of(found(job), ()) for job in (an_aitj(), a_dijob(namespace="ml"))]
    elsewhere, _ = list_of(rows[:1], "another", NOW)
    both, _ = list_of(rows, rows[0].namespace, NOW)

    assert elsewhere[:2] == ["NAMESPACE", "NAME"]
    assert both[:2] == ["KIND", "NAME"]


def test_the_newest_job_is_the_first() -> None:
    jobs = [an_aitj("old"), an_aitj("new"), an_aitj("without")]
    jobs[1]["metadata"]["creationTimestamp"] = (datetime.fromisoformat(STAMP) + timedelta(seconds=1)).isoformat()
    del jobs[2]["metadata"]["creationTimestamp"]

    assert [row.name for row in newest_first([row_of(found(job), ()) for job in jobs])] == ["new", "old", "without"]
