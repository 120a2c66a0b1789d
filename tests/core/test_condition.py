from datetime import datetime, timedelta

import pytest

from tests.build import NOW
from trainmaster.core.condition import Condition, find, is_true, put_standard

EARLIER = NOW - timedelta(hours=1)
RUNNING = Condition("Running", "True", "JobRunning", "it runs", last_transition_time=EARLIER)
NOT_ACCEPTED = Condition("Accepted", "False", "InvalidSpec", "bad", last_transition_time=EARLIER)


def test_a_condition_is_found_by_its_type() -> None:
    assert find((NOT_ACCEPTED, RUNNING), "Running") is RUNNING
    assert find((NOT_ACCEPTED,), "Running") is None


@pytest.mark.parametrize(
    ("type_", "true"),
    [
        pytest.param("Running", True, id="True"),
        pytest.param("Accepted", False, id="False"),
        pytest.param("Finished", False, id="absent"),
    ],
)
def test_a_condition_is_true_when_it_says_so(type_: str, true: bool) -> None:
    assert is_true((NOT_ACCEPTED, RUNNING), type_) is true


def test_a_new_standard_condition_stands_before_the_others() -> None:
    found = put_standard((RUNNING,), "Finished", True, "Succeeded", "done", NOW)

    assert found == (Condition("Finished", "True", "Succeeded", "done", last_transition_time=NOW), RUNNING)


def test_a_condition_that_says_the_same_stays_untouched() -> None:
    old = (NOT_ACCEPTED, RUNNING)

    assert put_standard(old, "Accepted", False, "InvalidSpec", "bad", NOW) is old


@pytest.mark.parametrize(
    ("status", "reason", "message", "since"),
    [
        pytest.param(True, "Valid", "", NOW, id="another status starts a new time"),
        pytest.param(False, "InvalidSpec", "worse", EARLIER, id="another message keeps the time"),
        pytest.param(False, "Other", "bad", EARLIER, id="another reason keeps the time"),
    ],
)
def test_a_standard_condition_changes_in_its_place(status: bool, reason: str, message: str, since: datetime) -> None:
    new, *others = put_standard((NOT_ACCEPTED, RUNNING), "Accepted", status, reason, message, NOW)

    assert (new.type, new.status, new.reason, new.message) == ("Accepted", str(status), reason, message)
    assert new.last_transition_time == since
    assert others == [RUNNING]
