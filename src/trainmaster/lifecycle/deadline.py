"""How long a job may take: deadlines while it goes on, limits on waiting, and the time that it is kept after its end.

Times are counted from timestamps in the status, so they go on while no operator runs. ``seconds_left`` returns when to
check again.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

TIMEOUT = "Timeout"

LONGEST = 2**31 - 1
"""Seconds. A longer limit counts as this one, and no timer is longer: a stored job may have a number, or an edited
time, that no float and no calendar has room for."""

Stage = Literal["Nodes", "Containers"]
"""What a job waits for until it runs: nodes for its pods, then the containers of pods that have nodes."""


class Limit(msgspec.Struct, frozen=True):
    """A number of seconds since a moment, and the message when they are over."""

    since: datetime
    seconds: int
    message: str

    def left(self, now: datetime) -> float:
        return seconds_until(self.since, self.seconds, now)


class Wait(msgspec.Struct, frozen=True):
    """What a job waits for, as its status remembers it."""

    stage: str
    """Nodes: not enough pods have a node. Containers: they have nodes, and not enough of them run."""
    since: datetime
    """Since when. Time in which the operator creates no pods is not part of it: a suspension, a queue, a back-off, pods
    of an older attempt that are being deleted, a spec that is not accepted."""


class WaitLimit(msgspec.Struct, frozen=True):
    """For how many seconds a job may wait at a stage, and the message when they are over."""

    stage: Stage
    seconds: int
    message: str


def seconds_until(since: datetime, seconds: float, now: datetime) -> float:
    """Seconds until so many have passed since then, at most ``LONGEST``. No date is computed: it may not exist."""
    return min((since - now).total_seconds() + min(seconds, LONGEST), LONGEST)


def limit_of(since: datetime | None, seconds: int | None, message: str = "") -> Limit | None:
    """None where nothing is limited, or the time has not begun."""
    return Limit(since, seconds, message) if since is not None and seconds is not None else None


def overdue(limits: Sequence[Limit], now: datetime) -> Limit | None:
    """The first of them that is over."""
    return next((limit for limit in limits if limit.left(now) <= 0), None)


def seconds_left(limits: Sequence[Limit], now: datetime) -> float | None:
    """Until the next of them is over; None when there is none to wait for."""
    return min((left for limit in limits if (left := limit.left(now)) > 0), default=None)
