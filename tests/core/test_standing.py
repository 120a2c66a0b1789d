"""How a job stands, whatever its kind."""

from typing import Any

import pytest

from trainmaster.core.standing import Standing, standing_of


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
    ],
)
def test_a_job_has_succeeded_or_failed_when_it_says_that_it_is_finished(
    status: dict[str, Any], has_succeeded: bool | None
) -> None:
    assert standing_of(status).has_succeeded is has_succeeded


def test_the_restarts_of_all_roles_count_but_for_those_that_a_role_only_shared() -> None:
    status = {"restarts": {"Worker": {"count": 3, "used": 2}, "Server": {"count": 3, "used": 1}, "Scheduler": {}}}

    assert standing_of(status).restarted == 3


@pytest.mark.parametrize(
    "status", [{"phase": 7}, {"phase": "Running", "restarts": []}, {"conditions": {}}, {"conditions": [{"type": 1}]}]
)
def test_nothing_is_known_by_a_status_of_a_strange_shape(status: dict[str, Any]) -> None:
    assert standing_of(status) == Standing()
