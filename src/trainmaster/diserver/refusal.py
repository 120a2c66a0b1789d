"""Errors that become answers: permanent (``Refused``) and temporary (``RetryLater``)."""

LONGEST = 1000
"""Characters of a message: it may quote the request, and it is logged."""


class Refused(Exception):
    """The request can never succeed: a 4xx or 5xx, after which DI-engine's client exits."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message[:LONGEST]


class RetryLater(Exception):
    """A temporary error: 200 with ``success: false``, after which the client retries."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message[:LONGEST]
