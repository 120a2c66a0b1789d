"""How long a job may take: deadlines while it goes on, and the time that it is kept after its end.

Times are counted from timestamps in the status, so they go on while no operator runs. ``seconds_left`` returns when to
check again.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

TIMEOUT = "Timeout"


class Limit(msgspec.Struct, frozen=True):
    """A number of seconds since a moment, and the message when they are over."""

    since: datetime
    seconds: int
    message: str

    def left(self, now: datetime) -> float:
        return (self.since + timedelta(seconds=self.seconds) - now).total_seconds()


def limit_of(since: datetime | None, seconds: int | None, message: str = "") -> Limit | None:
    """None where nothing is limited, or the time has not begun."""
    return Limit(since, seconds, message) if since is not None and seconds is not None else None


def overdue(limits: Sequence[Limit], now: datetime) -> Limit | None:
    """The first of them that is over."""
    return next((limit for limit in limits if limit.left(now) <= 0), None)


def seconds_left(limits: Sequence[Limit], now: datetime) -> float | None:
    """Until the next of them is over; None when there is none to wait for."""
    return min((left for limit in limits if (left := limit.left(now)) > 0), default=None)
