"""Renders jobs on a terminal, as a function of the run model and the time. ``Screen`` shows the result."""

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trainmaster.client.run_model import LINES, Job, Notice, Replica
from trainmaster.client.text import age, duration, printable

KEYS = "↓ ↑ the log of a replica   f the log of the next one with a problem"
LOG_KEYS = "↓ ↑ the log of another replica   Esc all replicas"
MOST_ROWS = 20
"""Replicas of a job beyond which those in the same state share a row."""
LONGEST_SPANS = 24
MOST_NOTICES = 3
"""Events and messages that are shown at a time."""
MOST_WARNINGS = 10
"""Warnings that are shown at the end."""
LAST_LINES = 10
"""Lines of a failed replica that are shown at the end."""
MOST_FAILED = 3
"""Failed replicas of a job whose last lines are shown: most fail for the same reason."""

_PHASE_STYLES = {"succeeded": "green", "failed": "red", "refused": "red", "deleted": "yellow"}
_STATE_STYLES = {"Running": "cyan", "Succeeded": "green", "Failed": "red", "Starting": "dim", "Stopped": "dim"}


class Row(msgspec.Struct, frozen=True):
    """One replica, or several in the same state."""

    name: str
    replicas: tuple[Replica, ...]

    @property
    def first(self) -> Replica:
        return self.replicas[0]


def view(jobs: Sequence[Job], now: datetime, *, height: int, notices: Sequence[str] = (), keys: str = "") -> Group:
    """All jobs, one below the other, within ``height`` lines; then the notices, and which keys there are."""
    below = [Text(printable(text), style="yellow", no_wrap=True, overflow="ellipsis") for text in notices]
    if keys:
        below.append(Text(keys, style="dim", no_wrap=True, overflow="ellipsis"))
    room = max(1, (height - 5 * len(jobs) - len(below)) // max(1, len(jobs)))
    parts: list[RenderableType] = []
    for job in jobs:
        header = _header(job, now)
        header.no_wrap, header.overflow = True, "ellipsis"
        parts += [header, _table(job, now, room), Text()]
    return Group(*parts, *below)


def log_view(job: Job, replica: Replica, now: datetime, *, height: int, keys: str = "") -> Group:
    """The last lines of one replica."""
    lines = replica.lines[-max(1, height - 5) :]
    header = _header(job, now)
    header.append("\n")
    header.append(replica.name, style="bold")
    header.append(f"  {replica.state}", style=_STATE_STYLES.get(replica.state, "yellow"))
    header.append(f"  {printable(replica.why)}  " if replica.why else "  ")
    header.append(f"the last {len(lines)} of {max(len(lines), replica.line_count):,} lines", style="dim")
    parts = [header, *(Text(printable(line)) for line in lines), Text(keys, style="dim")]
    for part in parts:
        part.no_wrap, part.overflow = True, "ellipsis"
    return Group(*parts)


def summary(jobs: Sequence[Job], now: datetime) -> RenderableType:
    """How all jobs ended: their replicas, the last lines of failed ones, and the verdict."""
    parts: list[RenderableType] = []
    for job in jobs:
        parts.append(_table(job, now, len(job.replicas)))
        for name, why, lines in _last_outputs(job)[:MOST_FAILED]:
            parts.append(Text(f"the last lines of {name}{f' ({printable(why)})' if why else ''}:", style="red"))
            parts += [Text(f"  {printable(line)}") for line in lines[-LAST_LINES:]]
        parts.append(_header(job, now))
    return Group(*parts)


def _last_outputs(job: Job) -> list[tuple[str, str, Sequence[str]]]:
    """Name, reason and last lines of failed replicas, the first failure first. If the log of that one was not read, as
    with a pod that is deleted by now, the status of the job has its lines."""
    first = job.failure
    found: list[tuple[str, str, Sequence[str]]] = [
        (replica.name, replica.why, replica.lines)
        for replica in sorted(job.replicas, key=lambda replica: first is None or replica.name != first.replica)
        if replica.lines and (replica.state == "Failed" or (replica.state == "Stopped" and replica.why))
    ]
    if first and first.output and all(name != first.replica for name, _, _ in found):
        found.insert(0, (first.replica, "", first.output))
    return found


def progress(job: Job) -> str:
    total = len(job.replicas)
    running = sum(replica.state == "Running" for replica in job.replicas)
    over = sum(replica.is_over for replica in job.replicas)
    return f"{running}/{total} running, {over} ended"


def _header(job: Job, now: datetime) -> Text:
    header = Text()
    style = _PHASE_STYLES.get(job.outcome, "cyan")
    header.append(f"{job.kind} {job.name}", style="bold")
    header.append(f"  {printable(job.phase) or 'Accepted'}", style=style)
    header.append(f"  {age(job.since, job.until or now)}  {progress(job)}")
    if message := _countdown(job, now) or job.sentence:
        header.append(f"\n{printable(message)}", style=style if job.outcome in ("failed", "refused") else "")
    return header


def _countdown(job: Job, now: datetime) -> str:
    """``restart 2 of 3 in 8 s: trainer-1 exited with code 3: <last line>``; empty if no restart is waited for."""
    if job.restart_at is None or job.restart_at <= now:
        return ""
    return job.restart.text(job.restart_at, now) if job.restart else f"restart in {duration(now, job.restart_at)}"


def _table(job: Job, now: datetime, room: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("replica", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("restarts", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("last line", no_wrap=True, overflow="ellipsis", ratio=1)
    shown, hidden = _chosen(rows_of(job.replicas), room)
    for row in shown:
        replica = row.first
        table.add_row(
            row.name,
            Text(printable(replica.state), style=_STATE_STYLES.get(replica.state, "yellow")),
            str(replica.restarts),
            age(replica.since, replica.until or now),
            _last(replica, now),
        )
    return Group(table, Text(f"… and {hidden} more", style="dim")) if hidden else table


def _last(replica: Replica, now: datetime) -> Text:
    if replica.restart_at and replica.restart_at > now:
        line = "".join(f" after: {printable(line)}" for line in replica.lines[-1:])
        return Text(f"restart in {age(now, replica.restart_at)}{line}", style="yellow")
    if replica.why:
        return Text(printable(replica.why), style="yellow")
    return Text(printable(replica.lines[-1]) if replica.lines else "")


def rows_of(replicas: Sequence[Replica]) -> list[Row]:
    """A row for each replica; if there are many, one for all of a role that are in the same state."""
    if len(replicas) <= MOST_ROWS:
        return [Row(replica.name, (replica,)) for replica in replicas]
    groups: dict[tuple[object, ...], list[Replica]] = {}
    for replica in replicas:
        role, _, index = replica.name.rpartition("-")
        same = (role if index.isdecimal() else replica.name, replica.state, replica.why, replica.restarts)
        groups.setdefault(same, []).append(replica)
    return [Row(_name_of(group), tuple(group)) for group in groups.values()]


def _name_of(group: Sequence[Replica]) -> str:
    """``worker-0``, ``worker-0…7``, or ``worker-0,2…7 (7)``, cut if it is long."""
    if len(group) == 1:
        return group[0].name
    role = group[0].name.rpartition("-")[0]
    spans: list[list[int]] = []
    for index in (int(replica.name.rpartition("-")[2]) for replica in group):
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    text = ",".join(str(first) if first == last else f"{first}…{last}" for first, last in spans)
    if len(text) > LONGEST_SPANS:
        text = text[:LONGEST_SPANS].rpartition(",")[0] + ",…"
    return f"{role}-{text} ({len(group)})" if "," in text else f"{role}-{text}"


def _chosen(rows: Sequence[Row], room: int) -> tuple[list[Row], int]:
    """The rows that fit, and the number of replicas that are not in them. Abnormal replicas are preferred."""
    if len(rows) <= room:
        return list(rows), 0
    first = sorted(rows, key=lambda row: (not row.first.why, row.first.state == "Running"))[:room]
    return [row for row in rows if row in first], sum(len(row.replicas) for row in rows if row not in first)


class Screen:
    """The terminal during a run: its alternate screen, which a new size of the window does not disturb, and at the end
    the summary on the normal one."""

    most_lines = LINES

    def __init__(self, console: Console, *, has_keys: bool = False) -> None:
        self._console = console
        self.has_keys = has_keys and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop")
        self._notices: deque[str] = deque(maxlen=MOST_NOTICES)
        self._warnings: deque[str] = deque(maxlen=MOST_WARNINGS)
        """For the end: the alternate screen is gone then."""
        self._selected = ""
        """The pod whose log is shown; empty: all replicas are shown."""
        self._order: list[Replica] = []

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
            self._live.stop()
            for text in self._warnings:
                self._console.print(Text(printable(text), style="yellow"))
            self._console.print(summary(jobs, now))
        else:
            self._live.update(self._picture(jobs, now), refresh=True)

    def _picture(self, jobs: Sequence[Job], now: datetime) -> RenderableType:
        height = self._console.size.height
        self._order = [replica for job in jobs for replica in job.replicas]
        for job in jobs:
            for replica in job.replicas:
                if replica.pod == self._selected:
                    return log_view(job, replica, now, height=height, keys=LOG_KEYS)
        return view(jobs, now, height=height, notices=self._notices, keys=KEYS if self.has_keys else "")

    def press(self, key: str) -> None:
        """``next``, ``previous`` and ``failed`` show the log of a replica, ``all`` shows all replicas."""
        pods = [replica.pod for replica in self._order]
        place = pods.index(self._selected) if self._selected in pods else None
        if key == "all" or not pods:
            self._selected = ""
        elif key == "failed":
            later = self._order[place + 1 :] if place is not None else []
            self._selected = next((r.pod for r in (*later, *self._order) if r.why), self._selected)
        else:
            step = 1 if key == "next" else -1
            self._selected = pods[(place + step) % len(pods)] if place is not None else pods[0 if step > 0 else -1]

    def notice(self, notice: Notice) -> None:
        text = str(notice)
        if notice.is_shown and text not in self._notices:
            self._notices.append(text)
        if notice.is_shown and text not in self._warnings:
            self._warnings.append(text)

    def message(self, text: str) -> None:
        self._notices.append(text)
        if text.startswith("Warning: "):
            self._warnings.append(text)

    def end(self, code: int, logs: str) -> None:
        if logs:
            self._console.print(Text(f"logs: {logs}"), soft_wrap=True)
