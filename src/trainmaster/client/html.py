"""Jobs as HTML tables for notebooks. All text is escaped: names, messages and output come from others. No scripts."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

from trainmaster.client.job_row import ready
from trainmaster.client.run_model import Replica
from trainmaster.client.status import JobStatus
from trainmaster.client.text import age, printable

MOST_ROWS = 50
WIDTH = 200
"""Characters of a cell."""

_JOBS = ("job", "namespace", "state", "replicas", "restarts", "age", "message", "last output")
_REPLICAS = ("replica", "state", "restarts", "reason", "last output")


def jobs_table(jobs: Sequence[JobStatus], now: datetime) -> str:
    return _table(_JOBS, [_job_cells(job, now) for job in jobs])


def job_table(job: JobStatus, now: datetime) -> str:
    """The job, and its replicas."""
    replicas = [(r.name, r.state, str(r.restarts), r.why, _last_line(r)) for r in job.replicas]
    return jobs_table([job], now) + (_table(_REPLICAS, replicas) if replicas else "")


def _job_cells(job: JobStatus, now: datetime) -> tuple[str, ...]:
    return (
        f"{job.kind}/{job.name}",
        job.namespace,
        job.phase,
        ready(job),
        str(job.restarts),
        age(job.created, now),
        job.message,
        _output(job.replicas),
    )


def _output(replicas: Sequence[Replica]) -> str:
    """The last line of a replica that failed, else of the first one."""
    lines = [(replica.state != "Failed", _last_line(replica)) for replica in replicas if replica.lines]
    return min(lines, key=lambda line: line[0])[1] if lines else ""


def _last_line(replica: Replica) -> str:
    return next((line for line in reversed(replica.lines) if line.strip()), "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    shown = [_row("td", row) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        shown.append(f'<tr><td colspan="{len(head)}">and {len(rows) - MOST_ROWS} more</td></tr>')
    return f"<table><thead>{_row('th', head)}</thead><tbody>{''.join(shown)}</tbody></table>"


def _row(tag: str, cells: Iterable[str]) -> str:
    text = (f'<{tag} style="text-align: left">{_text(cell)}</{tag}>' for cell in cells)
    return f"<tr>{''.join(text)}</tr>"


def _text(cell: str) -> str:
    text = printable(cell)
    return escape(f"{text[: WIDTH - 1]}…" if len(text) > WIDTH else text)
