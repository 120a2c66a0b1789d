"""The time by which jobs are planned.

Times in a status are compared with times that the API server writes. A machine whose clock is far ahead would end jobs
by their deadlines and delete finished ones by their TTL at once. Such a clock is corrected by the API server's.
"""

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

import structlog

from trainmaster.runtime import metrics

TOLERANCE = timedelta(minutes=10)
"""Clocks may differ by this: dates of answers are whole seconds, and answers are late when the API server is busy."""
READ_SECONDS = 10.0
"""Between two looks at the date of an answer."""

log = structlog.get_logger(__name__)


class Clock:
    """``now`` is the clock of this machine, ``monotonic`` one that is never set."""

    def __init__(self, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._now = now
        self._monotonic = monotonic
        self._read_at = -math.inf
        self._correction = timedelta()

    def now(self) -> datetime:
        return self._now() - self._correction

    def read(self, date: str) -> None:
        """Takes the ``Date`` header of an answer of the API server."""
        if self._monotonic() < self._read_at + READ_SECONDS:
            return
        try:
            ahead = self._now() - parsedate_to_datetime(date)
        except (ValueError, TypeError):  # not a date, or one without a time zone
            return
        self._read_at = self._monotonic()
        metrics.CLOCK_AHEAD.set(ahead.total_seconds())
        was_wrong, is_wrong = bool(self._correction), abs(ahead) > TOLERANCE
        self._correction = ahead if is_wrong else timedelta()
        if is_wrong and not was_wrong:
            log.warning(
                "the clock of this machine is wrong: jobs are planned by the clock of the API server",
                seconds_ahead=round(ahead.total_seconds()),
                hint="synchronise the clock of this node",
            )
