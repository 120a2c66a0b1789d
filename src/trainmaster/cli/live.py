"""Renders jobs on a terminal, as a function of the run model and the time. ``Screen`` shows the result."""

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trainmaster.cli.run_model import LINES, Job, Replica
from trainmaster.cli.text import age, printable

LAST_LINES = 10
"""Lines of a failed replica that are shown at the end."""
MOST_FAILED = 3
"""Failed replicas of a job whose last lines are shown: most fail for the same reason."""

_PHASE_STYLES = {"succeeded": "green", "failed": "red", "refused": "red", "deleted": "yellow"}
_STATE_STYLES = {"Running": "cyan", "Succeeded": "green", "Failed": "red", "Starting": "dim", "Stopped": "dim"}


def view(jobs: Sequence[Job], now: datetime, *, height: int, note: str = "") -> RenderableType:
    """All jobs, one below the other, within ``height`` lines; ``note`` is the last line."""
    room = max(1, (height - 5 * len(jobs) - 2) // max(1, len(jobs)))
    parts: list[RenderableType] = []
    for job in jobs:
        header = _header(job, now)
        header.no_wrap, header.overflow = True, "ellipsis"
        parts += [header, _table(job, now, room), Text()]
    if note:
        parts.append(Text(note, style="yellow"))
    return Group(*parts)


def summary(jobs: Sequence[Job], now: datetime) -> RenderableType:
    """How all jobs ended, with the last lines of failed replicas."""
    parts: list[RenderableType] = []
    for job in jobs:
        parts += [_header(job, now), _table(job, now, len(job.replicas))]
        failed = [r for r in job.replicas if r.lines and (r.state == "Failed" or (r.state == "Stopped" and r.why))]
        for replica in failed[:MOST_FAILED]:
            parts.append(Text(f"the last lines of {replica.name} ({replica.why}):", style="red"))
            parts += [Text(f"  {printable(line)}") for line in replica.lines[-LAST_LINES:]]
        parts.append(Text())
    return Group(*parts)


def progress(job: Job) -> str:
    total = len(job.replicas)
    running = sum(replica.state == "Running" for replica in job.replicas)
    over = sum(replica.is_over for replica in job.replicas)
    return f"{running}/{total} running, {over} ended"


def _header(job: Job, now: datetime) -> Text:
    header = Text()
    header.append(f"{job.kind} {job.name}", style="bold")
    header.append(f"  {job.phase or 'Accepted'}", style=_PHASE_STYLES.get(job.outcome, "cyan"))
    header.append(f"  {age(job.since, job.until or now)}  {progress(job)}")
    if job.message:
        header.append(f"\n{job.message}", style="dim")
    return header


def _table(job: Job, now: datetime, room: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("replica", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("restarts", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("last line", no_wrap=True, overflow="ellipsis", ratio=1)
    shown, hidden = _chosen(job.replicas, room)
    for replica in shown:
        table.add_row(
            replica.name,
            Text(replica.state, style=_STATE_STYLES.get(replica.state, "yellow")),
            str(replica.restarts),
            age(replica.since, replica.until or now),
            Text(replica.why, style="yellow")
            if replica.why
            else Text(printable(replica.lines[-1]) if replica.lines else ""),
        )
    return Group(table, Text(f"… and {hidden} more", style="dim")) if hidden else table


def _chosen(replicas: Sequence[Replica], room: int) -> tuple[list[Replica], int]:
    """The replicas that fit, and the number of hidden ones. Abnormal replicas are preferred to running ones."""
    if len(replicas) <= room:
        return list(replicas), 0
    first = sorted(replicas, key=lambda replica: (not replica.why, replica.state == "Running"))[:room]
    return [replica for replica in replicas if replica in first], len(replicas) - len(first)


class Screen:
    """The terminal during a run."""

    most_lines = LINES

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._note = ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def line(self, label: str, text: str) -> None:
        """Does nothing: the view shows the last line of each replica."""

    def progress(self, label: str, text: str, now: float) -> None:
        """Does nothing: see ``line``."""

    def show(self, jobs: Sequence[Job], now: datetime, *, is_last: bool = False) -> None:
        if is_last:
            self._live.update(Text(), refresh=True)
            self._live.stop()
            self._console.print(summary(jobs, now), end="")
        else:
            content = view(jobs, now, height=self._console.size.height, note=self._note)
            self._live.update(content, refresh=True)

    def message(self, text: str) -> None:
        self._note = text
