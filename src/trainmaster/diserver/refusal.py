"""Answers that are not what was asked for: for good, or for now."""

LONGEST = 1000
"""Characters of a sentence: it may quote what a caller wrote, and goes into the log."""


class Refused(Exception):
    """No, and asking again does not help: a status that ends DI-engine's client, with a sentence that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message[:LONGEST]


class NotNow(Exception):
    """Something that passes is in the way: 200 with ``success: false``, after which a client asks again."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message[:LONGEST]
