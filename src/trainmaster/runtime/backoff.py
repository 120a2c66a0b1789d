"""Back-off of API calls: how long and how often is tried again."""

import random
from collections.abc import Callable
from typing import NamedTuple


class Delays(NamedTuple):
    """Seconds before the first retry, which double with each failure, and the most that they become."""

    base: float
    cap: float


RECONCILE = Delays(1.0, 120.0)
"""Passes of one job."""
WATCH = Delays(0.2, 2.4)
"""Lists and watches of one resource. With jitter at most 3 s: so long jobs wait after an outage."""
EVENTS = Delays(1.0, 60.0)
"""Events of one job."""
REGISTER_NODE = Delays(0.2, 5.0)
"""Local mode: the Node."""
POD_STATUS = Delays(0.2, 30.0)
"""Local mode: the status of one pod."""

REQUEST_TRIES = 3
"""Of one request, at once, after 429 and after connections that broke."""
RETRY_AFTER_CAP = 10.0
"""Seconds: the longest pause that the API server may ask for with Retry-After."""
RETRY_BUDGET = 20.0
"""Retries of one client in a row."""
RETRY_EARNING = 0.1
"""What a success adds to the budget: in the long run one request in ten may be a retry."""


class Backoff:
    """``delay(n)`` for the n-th failure in a row: ``base`` doubling up to ``cap``, plus up to a quarter, so that
    processes do not retry at the same time."""

    def __init__(self, base: float, cap: float, jitter: Callable[[], float] = random.random) -> None:
        self.base = base
        self.cap = cap
        self._jitter = jitter

    def delay(self, failures: int) -> float:
        doubled = self.base * 2.0 ** min(max(failures, 1) - 1, 32)
        return min(self.cap, doubled) * (1 + self._jitter() / 4)
