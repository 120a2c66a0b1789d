"""Waiting longer after each failure, never in step with others."""

import random
from collections.abc import Callable


class Backoff:
    """``delay(n)`` for the n-th failure in a row: ``base`` doubling up to ``cap``, plus up to a quarter."""

    def __init__(self, base: float, cap: float, jitter: Callable[[], float] = random.random) -> None:
        self.base = base
        self.cap = cap
        self._jitter = jitter

    def delay(self, failures: int) -> float:
        doubled = self.base * 2.0 ** min(max(failures, 1) - 1, 32)
        return min(self.cap, doubled) * (1 + self._jitter() / 4)
