"""How jobs look where nobody looks on: lines that can be searched, each with its replica in front."""

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, TextIO

from trainmaster.cli.scene import Job

BAR_PERIOD = 1.0
"""Seconds between two states of a progress bar that are shown."""


class Lines:
    """Writes each change once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told: dict[str, tuple[str, str]] = {}
        self._bars: dict[str, tuple[str, float]] = {}
        """By label: the state of a progress bar that was shown last, and when the next one may be."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._out.flush()

    def line(self, label: str, text: str) -> None:
        state, due = self._bars.get(label, ("", 0.0))
        self._bars[label] = ("", due)
        if not state or state != text:
            self._out.write(f"{label} | {text}\n")

    def progress(self, label: str, text: str, now: float) -> None:
        """A progress bar that has not ended; its end comes as a line. ``now`` is in seconds."""
        _, due = self._bars.get(label, ("", 0.0))
        if now >= due:
            self._bars[label] = (text, now + BAR_PERIOD)
            self._out.write(f"{label} | {text}\n")

    def show(self, jobs: Sequence[Job], now: datetime, *, is_last: bool = False) -> None:
        """Phases of jobs, and replicas with which something is wrong."""
        for job in jobs:
            for replica in job.replicas:
                if replica.why:
                    self._tell(f"{job} {replica.name}", replica.state, replica.why)
            if job.phase:
                self._tell(str(job), job.phase, job.message)
        self._out.flush()

    def say(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def _tell(self, what: str, state: str, why: str) -> None:
        if self._told.get(what) != (state, why):
            self._told[what] = (state, why)
            self._out.write(f"{what} {state}{': ' if why else ''}{why}\n")
