"""How long a container that ended waits before it is started again, as a kubelet counts it."""

CAP = 300.0
HEALTHY = 600.0
"""An attempt that ran this long ends a streak of failures."""


class RestartBackoff:
    """The first restart comes at once, then ``base`` seconds after the end, doubling up to five minutes."""

    def __init__(self, base: float = 10.0) -> None:
        self._base = base

    def delay(self, streak: int) -> float:
        return 0.0 if streak <= 1 else min(CAP, self._base * 2.0 ** min(streak - 2, 32))


def streak_after(streak: int, ran: float) -> int:
    """``streak`` attempts ended soon before this one, which ran for ``ran`` seconds."""
    return 1 if ran >= HEALTHY else streak + 1
