"""Renders jobs without a terminal: searchable lines, each with its replica as a prefix.

A pipe often ends at a terminal, as that of tee, so lines have no control sequences and no colours; log files have them.
"""

import sys
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, TextIO

from trainmaster.client.run_model import Job, Notice
from trainmaster.core.plain import plain

MOST_NOTICES = 1000
"""Events that are remembered."""
BAR_PERIOD = 1.0
"""Seconds between two shown states of a progress bar."""

_RESTARTING = ("Terminating", "Restarting")
"""Phases of jobs that restart."""


class Lines:
    """Writes each change once."""

    most_lines = sys.maxsize
    has_keys = False

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._states: dict[str, tuple[str, str]] = {}
        self._restarts: dict[str, datetime] = {}
        """By job: when the last restart was decided that was written."""
        self._notices: dict[Notice, None] = {}
        self._bars: dict[str, tuple[str, float]] = {}
        """By label: the last shown state of a progress bar, and the time from which the next one may be shown."""

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
            self._out.write(f"{label} | {plain(text)}\n")

    def progress(self, label: str, text: str, now: float) -> None:
        """An incomplete progress bar; its last state is a line. ``now`` is in seconds."""
        _, due = self._bars.get(label, ("", 0.0))
        if now >= due:
            self._bars[label] = (text, now + BAR_PERIOD)
            self._out.write(f"{label} | {plain(text)}\n")

    def show(self, jobs: Sequence[Job], now: datetime, *, is_last: bool = False) -> None:
        """Phases of jobs, and abnormal states of replicas."""
        for job in jobs:
            for replica in job.replicas:
                if replica.why:
                    self._write_state(f"{job} {replica.name}", replica.state, replica.why)
                else:
                    self._states.pop(f"{job} {replica.name}", None)  # the same fault may come again
            self._write_restart(job, now)
            if is_last:
                self._write_unread_output(job)
            if job.phase:
                self._write_state(str(job), job.phase, job.sentence)
        self._out.flush()

    def _write_restart(self, job: Job, now: datetime) -> None:
        if job.restart and self._restarts.get(str(job)) != job.restart.time:
            self._restarts[str(job)] = job.restart.time
            self._out.write(plain(f"{job} {job.restart.text(job.restart_at, now)}") + "\n")
            if job.phase in _RESTARTING:
                self._states[str(job)] = (job.phase, job.sentence)  # the line says more

    def _write_unread_output(self, job: Job) -> None:
        """The last lines of the first failure, if its log was not read: its pod may have been deleted before."""
        failure = job.failure
        if failure and not any(replica.lines for replica in job.replicas if replica.name == failure.replica):
            for text in failure.output:
                self.line(failure.replica, text)

    def notice(self, notice: Notice) -> None:
        """A warning that is counted again is not written again."""
        if notice.is_shown and notice not in self._notices:
            self._notices[notice] = None
            if len(self._notices) > MOST_NOTICES:
                del self._notices[next(iter(self._notices))]
            self._out.write(f"{plain(str(notice))}\n")
            if self._states.get(notice.what, ("", ""))[0] != notice.reason:
                self._states[notice.what] = (notice.reason, notice.message)  # it is the state of a pod that waits

    def press(self, key: str) -> None:
        """Does nothing: there are no keys."""

    def end(self, code: int, logs: str) -> None:
        if logs:
            self._out.write(f"logs: {logs}\n")
            self._out.flush()

    def message(self, text: str) -> None:
        self._out.write(f"{plain(text)}\n")
        self._out.flush()

    def _write_state(self, what: str, state: str, why: str) -> None:
        if self._states.get(what) != (state, why):
            self._states[what] = (state, why)
            self._out.write(plain(f"{what} {state}{': ' if why else ''}{why}") + "\n")
