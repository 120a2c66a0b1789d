"""A limit on retries: a server in trouble must not get more requests because it is in trouble."""


class RetryBudget:
    """A bucket of tokens. A retry takes one, a success gives a tenth back: in the long run at most one
    request in ten is a retry."""

    def __init__(self, capacity: float = 20.0, earning: float = 0.1) -> None:
        self._capacity = capacity
        self._earning = earning
        self._tokens = capacity

    def earn(self) -> None:
        if self._tokens < self._capacity:
            self._tokens = min(self._tokens + self._earning, self._capacity)

    def take(self) -> bool:
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
