"""trainmaster.runtime.clock"""

from collections.abc import MutableMapping
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.runtime.kind import NOW
from trainmaster.runtime.clock import READ_SECONDS, Clock

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Rig:
    """A machine whose clock is ``ahead`` of the API server's."""

    def __init__(self, ahead: timedelta) -> None:
        self.ahead = ahead
        self.elapsed = 0.0
        self.clock = Clock(lambda: NOW + self.ahead, lambda: self.elapsed)

    def answer(self, date: str = "") -> None:
        self.clock.read(date or format_datetime(NOW, usegmt=True))


@pytest.mark.parametrize("ahead", [timedelta(), 9 * MINUTE, -9 * MINUTE])
def test_a_clock_that_is_nearly_right_is_used_as_it_is(ahead: timedelta) -> None:
    rig = Rig(ahead)
    rig.answer()

    assert rig.clock.now() == NOW + ahead


@pytest.mark.parametrize("ahead", [11 * MINUTE, 24 * HOUR, -HOUR])
def test_a_clock_that_is_far_off_is_corrected_by_the_api_servers_and_reported_once(
    ahead: timedelta, logs: list[MutableMapping[str, Any]]
) -> None:
    rig = Rig(ahead)
    for _ in range(3):
        rig.answer()
        rig.elapsed += READ_SECONDS

    assert rig.clock.now() == NOW
    assert [line["seconds_ahead"] for line in logs] == [ahead.total_seconds()]
    assert REGISTRY.get_sample_value("trainmaster_clock_ahead_seconds") == ahead.total_seconds()


def test_a_clock_that_was_set_right_is_used_again() -> None:
    rig = Rig(HOUR)
    rig.answer()
    rig.ahead, rig.elapsed = timedelta(), READ_SECONDS
    rig.answer()

    assert rig.clock.now() == NOW


@pytest.mark.parametrize("date", ["yesterday", "Tue, 17 Nov 2026 16:13:24"])
def test_a_header_that_is_no_date_is_ignored(date: str) -> None:
    rig = Rig(HOUR)
    rig.answer(date)

    assert rig.clock.now() == NOW + HOUR


def test_the_date_is_read_every_few_seconds_only() -> None:
    rig = Rig(timedelta())
    rig.answer()
    rig.ahead, rig.elapsed = HOUR, READ_SECONDS - 1
    rig.answer()
    assert rig.clock.now() == NOW + HOUR
    rig.elapsed = READ_SECONDS
    rig.answer()
    assert rig.clock.now() == NOW
