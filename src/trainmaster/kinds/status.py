"""What the lifecycle stores in the status of every kind: what a pass remembers, and the standard conditions."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from trainmaster.core.condition import ACCEPTED, FINISHED, Conditions, find, put_standard
from trainmaster.core.plan import BRIEF, LAZY, Event, warning
from trainmaster.core.wire import Wire
from trainmaster.kinds.base import cleared, portless
from trainmaster.lifecycle import reason, waiting
from trainmaster.lifecycle.decide import Report
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.model import Memory

S = TypeVar("S", bound=Wire)

_FIELDS = {
    "restarts": "restarts",
    "history": "restart_history",
    "done": "done",
    "ran": "ran",
    "ports": "ports",
    "creation_errors": "creation_errors",
    "node_problems": "node_troubles",
    "wait": "wait",
    "pod_group": "pod_group",
    "failure": "failure",
}
"""Where a status has what is remembered. A kind that does not need one of these has no such field."""


def recalled(status: Wire) -> Memory:
    """What a status remembers."""
    found = {name: getattr(status, field) for name, field in _FIELDS.items() if hasattr(status, field)}
    memory = Memory(**found)
    return memory if memory.wait is None or _is_accepted(status) else msgspec.structs.replace(memory, wait=None)


def _is_accepted(status: Any) -> bool:
    """False of a job whose spec could not be run: it did not wait meanwhile."""
    accepted = find(status.conditions, ACCEPTED)
    return accepted is None or accepted.status == "True"


def recorded(status: S, memory: Memory, *names: str) -> S:
    """The status that remembers this; with ``names``, these fields of it alone."""
    fields = {_FIELDS[name]: getattr(memory, name) for name in names or _FIELDS}
    return msgspec.structs.replace(status, **{f: value for f, value in fields.items() if hasattr(status, f)})


def standard_conditions(conditions: Conditions, report: Report, now: datetime) -> Conditions:
    """The conditions that all kinds have. Only a job that goes on, or that stops, has news of its pods."""
    if report.step not in ("proceed", "suspend", "ending", "end"):
        return conditions
    conditions = cleared(conditions, all_created=report.is_all_created, now=now)
    conditions = waiting.reported(conditions, report.waiting, now)
    if report.step == "end" and report.memory.failure:
        conditions = _explained(conditions, report.memory.failure, now)
    return portless(conditions, report.port_error, now)


def _explained(conditions: Conditions, failure: Failure, now: datetime) -> Conditions:
    """Finished says in one sentence which replica failed first, and how; the condition of the phase has the words that
    clients of the kind know."""
    finished = find(conditions, FINISHED)
    if finished is None:
        return conditions
    others = f"; {failure.others} more failed" if failure.others else ""
    return put_standard(conditions, FINISHED, True, finished.reason, f"{failure.describe()}{others}", now)


def delay(old: Any, new: Any, counters: Iterable[str]) -> float:
    """Seconds that the new status may wait. Only ``counters`` may; successes wait for a moment."""
    fields = [field for field in (*counters, "done", "summary") if hasattr(new, field)]
    counted = msgspec.structs.replace(old, **{field: getattr(new, field) for field in fields})
    if old == new or new != counted:
        return 0.0
    return LAZY if getattr(new, "done", None) == getattr(old, "done", None) else BRIEF


def replaced(report: Report) -> tuple[Event, ...]:
    """Pods that are pending on a lost node and are replaced."""
    stranded = report.facts.stranded if report.step == "replace" else ()
    return tuple(warning(reason.POD_REPLACED, f"{f.fault.message}; another pod takes its place") for f in stranded)
