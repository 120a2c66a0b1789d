"""What ``kubectl get`` shows of a job in one line, the same for every kind."""

from collections.abc import Collection

from trainmaster.core.condition import (
    ACCEPTED,
    CONTAINER_CREATE_FAILED,
    FINISHED,
    POD_CREATE_FAILED,
    PODS_WAITING,
    SUSPENDED,
    Conditions,
    find,
)
from trainmaster.core.wire import Number, Wire
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.model import JobModel, Memory
from trainmaster.lifecycle.restart import Restarts

RUNNING = "Running"
_URGENT = (
    (FINISHED, "True"),
    (ACCEPTED, "False"),
    (POD_CREATE_FAILED, "True"),
    (CONTAINER_CREATE_FAILED, "True"),
    (PODS_WAITING, "True"),
    (SUSPENDED, "True"),
)
"""Conditions whose message is more important than that of the phase, the first most of all."""


class Summary(Wire, frozen=True):
    ready: str = ""
    """How many replicas run, and how many there are, for example 2/3."""
    restarts: Number | None = None
    """How often replicas were restarted, all roles together."""
    message: str = ""
    """What the job waits for, what was refused, or why it ended."""


def counted(old: Summary, model: JobModel, facts: Facts, memory: Memory, *, is_stopped: bool) -> Summary:
    """The summary with the numbers of this pass. While pods of an older attempt end, the last number stays."""
    running = sum(facts.state((slot.role, slot.index)) == RUNNING for slot in model.slots)
    ready = f"{0 if is_stopped else running}/{len(model.slots)}"
    return Summary(
        ready=ready if is_stopped or not old.ready or not facts.outdated else old.ready,
        restarts=restarts(memory.restarts.values()),
        message=old.message,
    )


def restarts(roles: Collection[Restarts]) -> int:
    """A restart of all pods raises the count of each role and is charged to one; evictions are charged to none."""
    return max((sum(role.used_of_job for role in roles), *(role.restarts for role in roles)))


def message_of(conditions: Conditions) -> str:
    """The most urgent condition; without one the last, which is the phase of the job."""
    urgent = [c for type_, word in _URGENT if (c := find(conditions, type_)) and c.status == word]
    return (*urgent, *conditions[-1:])[0].message if conditions else ""
