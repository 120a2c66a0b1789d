"""A limit on retries: a server in trouble must not get more requests because it is in trouble."""

from trainmaster.runtime.backoff import RETRY_BUDGET, RETRY_EARNING


class RetryBudget:
    """A bucket of tokens. A retry takes one, a success gives a tenth back: in the long run at most one
    request in ten is a retry."""

    def __init__(self, capacity: float = RETRY_BUDGET, earning: float = RETRY_EARNING) -> None:
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
