"""Token buckets and short memories, with times that the test chooses."""

import pytest

from trainmaster.diserver.rate import Buckets, Recent
from trainmaster.settings import SERVER, Rate


def test_a_caller_has_its_burst_and_then_its_rate() -> None:
    buckets: Buckets[str] = Buckets(Rate(2.0, 3))

    assert [buckets.take("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert [buckets.take("a", 1.0) for _ in range(3)] == [True, True, False]
    assert [buckets.take("a", 1000.0) for _ in range(4)] == [True, True, True, False]


def test_callers_do_not_share_a_bucket() -> None:
    buckets: Buckets[str] = Buckets(Rate(1.0, 1))

    assert [buckets.take(caller, 0.0) for caller in "abab"] == [True, True, False, False]


def test_a_full_table_forgets_the_caller_that_was_seen_least_recently() -> None:
    buckets: Buckets[str] = Buckets(Rate(1.0, 1), entries=2)
    for caller in "abac":
        buckets.take(caller, 0.0)

    assert [buckets.take(caller, 0.0) for caller in "acb"] == [False, False, True]


def test_what_was_found_is_forgotten_after_its_time() -> None:
    recent: Recent[str, str] = Recent(2.0)
    recent.put("a", "x", 10.0)

    assert [recent.get("a", now) for now in (10.0, 11.9, 12.0)] == ["x", "x", None]
    assert recent.get("b", 10.0) is None


def test_a_memory_is_bounded() -> None:
    recent: Recent[int, bool] = Recent(2.0, entries=3)
    for number in range(100):
        recent.put(number, True, 0.0)

    assert [number for number in range(100) if recent.get(number, 1.0)] == [97, 98, 99]


@pytest.mark.parametrize(
    ("requests", "per_second", "rate"),
    [
        pytest.param(100, 1.5, SERVER.limits.pods, id="a hundred coordinators on one node"),
        pytest.param(1, 1.5, SERVER.limits.unknown, id="a coordinator whose address is not known yet"),
    ],
)
def test_the_limits_leave_room_for_honest_clients(requests: int, per_second: float, rate: Rate) -> None:
    """DI-engine's client asks once a second, and now and then for other replicas."""
    buckets: Buckets[str] = Buckets(rate)

    assert all(buckets.take("node", second) for second in range(600) for _ in range(int(requests * per_second)))
