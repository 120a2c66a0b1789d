"""The back-off before a container is restarted, as in a kubelet."""

CAP = 300.0
HEALTHY = 600.0
"""Seconds after which an attempt resets the back-off."""


class RestartBackoff:
    """The first restart is immediate, the next one ``base`` seconds after the end, doubling up to five minutes."""

    def __init__(self, base: float = 10.0) -> None:
        self._base = base

    def delay(self, streak: int) -> float:
        return 0.0 if streak <= 1 else min(CAP, self._base * 2.0 ** min(streak - 2, 32))


def streak_after(streak: int, ran: float) -> int:
    """The streak after one more attempt, which ran for ``ran`` seconds."""
    return 1 if ran >= HEALTHY else streak + 1
