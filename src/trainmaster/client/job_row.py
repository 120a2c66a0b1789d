"""One job in a line: what ``trainmaster list`` and ``status`` say about it."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.client.job_finder import FoundJob
from trainmaster.client.run_model import message_of
from trainmaster.client.text import age
from trainmaster.core import condition
from trainmaster.core.errors import BadSpec
from trainmaster.core.observed import Observed
from trainmaster.core.view import PodView
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.fault import is_exception
from trainmaster.lifecycle.restart import Restart
from trainmaster.lifecycle.summary import restarts
from trainmaster.runtime.job_summary import StatusSummary

HEAD = ("NAMESPACE", "KIND", "NAME", "PHASE", "READY", "RESTARTS", "DURATION", "AGE", "MESSAGE")
_NOT_OF_A_PROGRAM = ("Timeout", "Preempted", "NodeFail")
"""Ends whose message says more than what a program failed of."""


class Status(StatusSummary, frozen=True, rename="camel"):
    """The fields of a status that all kinds have."""

    restart_history: tuple[Restart, ...] = ()
    failure: Failure | None = None


class Row(msgspec.Struct, frozen=True):
    namespace: str
    kind: str
    name: str
    phase: str
    ready: int
    """Pods that run."""
    total: int | None
    """Replicas of the spec; None if the spec cannot be read."""
    restarts: int
    created: datetime | None
    message: str
    cause: str = ""
    """The message for a narrow column: what a program failed of first, then its replica; nothing if all is well."""
    ended: datetime | None = None


def row_of(job: FoundJob, pods: Sequence[PodView]) -> Row:
    status = status_of(job)
    metadata, _ = job.kind.status_of(job.view)
    finished = condition.find(status.conditions, condition.FINISHED)
    phase, message = phase_of(job, status), message_of(status.conditions)
    return Row(
        namespace=job.key.namespace,
        kind=job.kinds.name,
        name=job.key.name,
        phase=phase,
        ready=sum(pod.phase == "Running" and not pod.deleting for pod in pods),
        total=_total(job, pods),
        restarts=restarts_of(status),
        created=metadata.creation_timestamp,
        message=message,
        cause=_cause(status, phase, message),
        ended=finished.last_transition_time if finished and finished.status == "True" else None,
    )


def _cause(status: Status, phase: str, message: str) -> str:
    succeeded, failed, history = condition.has_succeeded(status.conditions), status.failure, status.restart_history
    if succeeded:
        return ""
    if succeeded is False and failed and phase not in _NOT_OF_A_PROGRAM:
        return _brief(failed)
    return history[-1].describe() if history and phase == "Restarting" else message


def _brief(failed: Failure) -> str:
    if failed.exit_code is None:
        return f"{failed.message or failed.reason} ({failed.replica})"
    if failed.line and (is_exception(failed.line) or not failed.signal):
        return f"{failed.line} ({failed.replica}, exit code {failed.exit_code})"
    return f"{failed.replica} {failed.end}"


def status_of(job: FoundJob) -> Status:
    stored = job.kind.status_of(job.view)[1]
    try:
        return msgspec.convert(stored, Status)
    except msgspec.ValidationError:  # written by another operator
        return Status(phase=job.kind.phase_of(job.view))


def phase_of(job: FoundJob, status: Status) -> str:
    """One word for the state of a job of any kind."""
    accepted = condition.find(status.conditions, condition.ACCEPTED)
    finished = condition.find(status.conditions, condition.FINISHED)
    if finished and finished.status == "True":
        return finished.reason
    if job.view.deleting:
        return "Deleting"
    if accepted and accepted.status == "False":
        return "Refused"
    if condition.is_true(status.conditions, condition.SUSPENDED):
        return "Suspended"
    return status.phase or "New"


def restarts_of(status: Status) -> int:
    """Kinds whose status has a number count by themselves."""
    return status.restarts if isinstance(status.restarts, int) else restarts(status.restarts.values())


def _total(job: FoundJob, pods: Sequence[PodView]) -> int | None:
    kind = job.kind
    if not isinstance(kind, LifecycleKind):
        return None
    try:
        decoded = kind.decode(job.view)
    except BadSpec:
        return None
    return len(kind.read(decoded, Observed.of(pods, (), kind.slots)).slots)


def ready(row: Row) -> str:
    return f"{row.ready}/{'?' if row.total is None else row.total}"


def cells(row: Row, now: datetime) -> tuple[str, ...]:
    """The row of a table with ``HEAD``. Of a job that has ended no replicas can be ready."""
    took = age(row.created, row.ended or now)
    pods = "-" if row.ended else ready(row)
    names = (row.namespace, row.kind, row.name)
    return (*names, row.phase, pods, str(row.restarts), took, age(row.created, now), row.cause)


def newest_first(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.created.timestamp() if row.created else 0.0, reverse=True)


def list_of(rows: Sequence[Row], namespace: str, now: datetime) -> tuple[Sequence[str], list[Sequence[str]]]:
    """The head and the rows of a table. Columns that would say the same in every row are left out: a namespace that is
    ``namespace``, and the kind."""
    hidden = [
        name
        for name, words in (
            ("NAMESPACE", {row.namespace for row in rows} | {namespace}),
            ("KIND", {row.kind for row in rows}),
        )
        if len(words) == 1
    ]
    kept = [place for place, name in enumerate(HEAD) if name not in hidden]
    return [HEAD[place] for place in kept], [[cells(row, now)[place] for place in kept] for row in rows]
