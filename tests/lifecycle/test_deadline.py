from datetime import UTC, datetime, timedelta

import pytest

from trainmaster.lifecycle.deadline import LONGEST, Limit, overdue, seconds_left

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def limit(seconds: int, message: str = "") -> Limit:
    return Limit(NOW, seconds, message)


@pytest.mark.parametrize(("elapsed", "is_over"), [(0, False), (59, False), (60, True), (61, True)])
def test_a_limit_is_over_when_its_time_is(elapsed: int, is_over: bool) -> None:
    now = NOW + timedelta(seconds=elapsed)

    assert (overdue([limit(60)], now) is not None) == is_over
    assert seconds_left([limit(60)], now) == (None if is_over else 60 - elapsed)


@pytest.mark.parametrize("seconds", [2**31, 300_000_000_000, 2**63 - 1, 10**400])
@pytest.mark.parametrize("since", [NOW, datetime.max.replace(tzinfo=UTC)], ids=["now", "in the last year"])
def test_a_limit_that_no_calendar_has_room_for_is_not_over_and_needs_no_longer_timer(
    seconds: int, since: datetime
) -> None:
    limits = [Limit(since, seconds, "")]

    assert (overdue(limits, NOW), seconds_left(limits, NOW)) == (None, LONGEST)


def test_the_next_limit_is_waited_for_and_the_first_that_is_over_is_told() -> None:
    limits = [limit(100, "a"), limit(10, "b"), limit(20, "c")]

    assert seconds_left(limits, NOW) == 10
    found = overdue(limits, NOW + timedelta(seconds=30))
    assert found is not None
    assert found.message == "b"


def test_without_limits_nothing_is_waited_for() -> None:
    assert (overdue([], NOW), seconds_left([], NOW)) == (None, None)
