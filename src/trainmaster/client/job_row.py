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
from trainmaster.lifecycle.restart import Restart
from trainmaster.lifecycle.summary import restarts
from trainmaster.runtime.job_summary import StatusSummary

HEAD = ("NAMESPACE", "KIND", "NAME", "PHASE", "READY", "RESTARTS", "AGE", "MESSAGE")


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


def row_of(job: FoundJob, pods: Sequence[PodView]) -> Row:
    status = status_of(job)
    metadata, _ = job.kind.status_of(job.view)
    return Row(
        namespace=job.key.namespace,
        kind=job.kinds.name,
        name=job.key.name,
        phase=phase_of(job, status),
        ready=sum(pod.phase == "Running" and not pod.deleting for pod in pods),
        total=_total(job, pods),
        restarts=restarts_of(status),
        created=metadata.creation_timestamp,
        message=message_of(status.conditions),
    )


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
    """The row of a table with ``HEAD``."""
    since = age(row.created, now)
    return (row.namespace, row.kind, row.name, row.phase, ready(row), str(row.restarts), since, row.message)
