"""Condition arithmetic. One wire shape serves every kind; which times are written is the kind's habit."""

from collections.abc import Container
from datetime import datetime

import msgspec

ACCEPTED = "Accepted"
"""False: the spec cannot be run. The message names each field and says what to change."""
POD_CREATE_FAILED = "PodCreateFailed"
"""True: the API server refuses a pod or service of the job, or no port is free for it. The operator tries again."""
CONTAINER_CREATE_FAILED = "ContainerCreateFailed"
"""True: the node of a pod cannot create one of its containers. The kubelet tries again."""
PODS_WAITING = "PodsWaiting"
"""True: pods cannot start, or lost pods are not replaced yet. The message says what they wait for."""
DEFINITION_OUTDATED = "DefinitionOutdated"
"""True: the CustomResourceDefinition lacks fields of the status. Nothing is done for the job until it is updated."""
FINISHED = "Finished"
"""True: the job has ended. The reason is its last phase, of an MxJob its state. ``kubectl wait`` can wait for it."""

_GOOD = frozenset({"Succeed", "Succeeded"})
"""The last phases of a job that ended well, as the kinds spell them."""

SUSPENDED = "Suspended"
"""True: the job is suspended and has no pods until it is resumed."""


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    type: str
    """What the condition is about, for example Running or PodsWaiting."""
    status: str
    """True or False."""
    reason: str = ""
    """The reason in one word, for programs."""
    message: str = ""
    """The reason in a sentence, for users."""
    last_probe_time: datetime | None = None
    """When the condition was last checked. Only phases of AITrainingJobs have it."""
    last_update_time: datetime | None = None
    """When the condition was last changed."""
    last_transition_time: datetime | None = None
    """Since when the condition has this status."""


Conditions = tuple[Condition, ...]


def find(conditions: Conditions, type_: str) -> Condition | None:
    return next((c for c in conditions if c.type == type_), None)


def is_true(conditions: Conditions, type_: str) -> bool:
    found = find(conditions, type_)
    return found is not None and found.status == "True"


def has_succeeded(conditions: Conditions) -> bool | None:
    """None of a job that has not finished."""
    finished = find(conditions, FINISHED)
    return finished.reason in _GOOD if finished is not None and finished.status == "True" else None


def finished(conditions: Conditions, phase: str, last: Container[str], message: str, now: datetime) -> Conditions:
    """The conditions of a job that enters a phase: with Finished, if it is one of the ``last`` phases."""
    return put_standard(conditions, FINISHED, True, phase, message, now) if phase in last else conditions


def put_standard(
    conditions: Conditions, type_: str, status: bool, reason: str, message: str, now: datetime
) -> Conditions:
    """Set one standard condition; nothing changes when it says the same already.

    Standard conditions stand before the kind's own, because clients of the old operators read the last
    entry of the list as the current phase.
    """
    word = "True" if status else "False"
    old = find(conditions, type_)
    if old and (old.status, old.reason, old.message) == (word, reason, message):
        return conditions
    since = old.last_transition_time if old and old.status == word else now
    new = Condition(type_, word, reason, message, last_transition_time=since)
    if old:
        return tuple(new if c is old else c for c in conditions)
    return (new, *conditions)
