"""A retry budget: an overloaded server must not get more requests because of retries."""

from trainmaster.runtime.backoff import RETRY_BUDGET, RETRY_EARNING


class RetryBudget:
    """A token bucket. A retry takes one token, a success adds a tenth: in the long run at most one request in ten is
    a retry."""

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
