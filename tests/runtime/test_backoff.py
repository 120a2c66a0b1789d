import pytest

from trainmaster.runtime.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "seconds"),
    [
        pytest.param(0, 1.0, id="none counts as one"),
        pytest.param(1, 1.0, id="first"),
        pytest.param(2, 2.0, id="second"),
        pytest.param(5, 16.0, id="fifth"),
        pytest.param(8, 120.0, id="cap"),
        pytest.param(10_000, 120.0, id="far beyond the largest power"),
    ],
)
def test_the_delay_doubles_up_to_the_cap(failures: int, seconds: float) -> None:
    assert Backoff(1.0, 120.0, jitter=lambda: 0.0).delay(failures) == seconds


def test_jitter_adds_up_to_a_quarter() -> None:
    assert Backoff(1.0, 120.0, jitter=lambda: 0.5).delay(1) == 1.125
    assert Backoff(1.0, 120.0, jitter=lambda: 1.0).delay(100) == 150.0


def test_two_processes_do_not_wait_in_step() -> None:
    backoff = Backoff(1.0, 120.0)

    assert len({backoff.delay(3) for _ in range(10)}) > 1
