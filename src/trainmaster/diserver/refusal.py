"""Errors that become answers: permanent (``Refused``) and temporary (``RetryLater``)."""

LONGEST = 1000
"""Characters of a message: it may quote the request, and it is logged."""


class Refused(Exception):
    """The request can never succeed: a 4xx or 5xx, after which DI-engine's client exits."""

    def __init__(self, status: int, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.message = message[:LONGEST]
        self.retry_after = retry_after
        """Seconds of the header Retry-After; 0 for none."""

    def again(self) -> "Refused":
        """The same refusal without the traceback, which keeps the request in memory."""
        return Refused(self.status, self.message, retry_after=self.retry_after)


class RetryLater(Exception):
    """A temporary error: 200 with ``success: false``, after which the client retries."""

    def __init__(self, message: str, *, because: str = "", is_limit: bool = False) -> None:
        super().__init__(message)
        self.message = message[:LONGEST]
        self.because = because[:LONGEST] or self.message
        """For the log: more than the caller may know."""
        self.is_limit = is_limit
        """The caller sends too many requests: they are counted and not logged."""


def too_many(message: str) -> Refused:
    return Refused(429, f"{message}: send fewer", retry_after=1)
