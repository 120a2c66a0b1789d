"""Time that passes when a test says so. The wall clock may also jump; the other one never does."""

from datetime import datetime, timedelta

from tests.webhook.build import NOW


class Clock:
    def __init__(self) -> None:
        self._wall = NOW
        self._elapsed = 1000.0

    def now(self) -> datetime:
        return self._wall

    def monotonic(self) -> float:
        return self._elapsed

    def run(self, seconds: float) -> None:
        self._wall += timedelta(seconds=seconds)
        self._elapsed += seconds

    def jump(self, days: float) -> None:
        self._wall += timedelta(days=days)
