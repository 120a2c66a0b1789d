"""How a job stands, whatever its kind."""

from typing import Any

import pytest

from trainmaster.runtime.job_summary import StatusSummary, summary_of


def finished(reason: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": [{"type": "Finished", "status": status, "reason": reason, "message": "…"}]}


@pytest.mark.parametrize(
    ("status", "has_succeeded"),
    [
        pytest.param({}, None, id="nothing is known"),
        pytest.param({"phase": "Running"}, None, id="it runs"),
        pytest.param({"phase": "Succeeded", **finished("Succeeded")}, True, id="DIJob, MXJob and MxJob"),
        pytest.param({"phase": "Succeed", **finished("Succeed")}, True, id="AITrainingJob"),
        pytest.param({"phase": "Failed", **finished("Failed")}, False, id="it failed"),
        pytest.param({"phase": "Timeout", **finished("Timeout")}, False, id="it took too long"),
        pytest.param({"phase": "Running", **finished("Failed", "False")}, None, id="it is not true"),
        pytest.param({"conditions": [{"type": "Succeeded", "status": "True"}]}, True, id="by another operator"),
        pytest.param({"conditions": [{"type": "Failed", "status": "True"}]}, False, id="failed by another operator"),
        pytest.param({"conditions": [{"type": "Failed", "status": "False"}]}, None, id="by no operator"),
    ],
)
def test_a_job_has_succeeded_or_failed_when_it_says_that_it_is_finished(
    status: dict[str, Any], has_succeeded: bool | None
) -> None:
    assert summary_of(status).has_succeeded is has_succeeded


def restarts(**used: int) -> StatusSummary:
    return summary_of({"restarts": {role: {"count": 9, "used": number} for role, number in used.items()}})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            {}, {"Worker": 2, "Server": 1, "Scheduler": 0}, 3, id="a role that only shared them does not count"
        ),
        pytest.param({"Worker": 2}, {"Worker": 3}, 1, id="one more"),
        pytest.param({"Worker": 3}, {"Worker": 1}, 1, id="a budget was given back"),
    ],
)
def test_restarts_count_that_a_role_brought_about(before: dict[str, int], after: dict[str, int], expected: int) -> None:
    assert restarts(**after).restarts_since(restarts(**before)) == expected


def test_restarts_of_a_job_that_has_a_number_of_them_are_those_of_its_attempts() -> None:
    before, after = ({"restarts": n, "attempts": {"collector": {"count": 5, "used": n}}} for n in (1, 3))

    assert summary_of(after).restarts_since(summary_of(before)) == 2
    assert summary_of(after).restarts_since(summary_of({})) == 3


@pytest.mark.parametrize(
    "status", [{"phase": 7}, {"phase": "Running", "restarts": []}, {"conditions": {}}, {"conditions": [{"type": 1}]}]
)
def test_nothing_is_known_by_a_status_of_a_strange_shape(status: dict[str, Any]) -> None:
    assert summary_of(status) == StatusSummary()
