"""Reports why pods do not start: in conditions, which become False afterwards, and in one Event for each cause."""

from collections.abc import Iterator
from datetime import datetime

from trainmaster.core.condition import (
    CONTAINER_CREATE_FAILED,
    POD_CREATE_FAILED,
    PODS_WAITING,
    Conditions,
    find,
    is_true,
    put_standard,
)
from trainmaster.core.plan import Event, normal, warning
from trainmaster.lifecycle import reason
from trainmaster.lifecycle.facts import Waiting

NOTHING = Waiting()
BLOCKED = (POD_CREATE_FAILED, CONTAINER_CREATE_FAILED, PODS_WAITING)
"""Conditions that are True while pods cannot start."""

_SEE_POD = "its Events say why, for example a ConfigMap, Secret or volume that is missing: kubectl describe pod"


def reported(conditions: Conditions, waiting: Waiting, now: datetime) -> Conditions:
    """The conditions, with what pods wait for now."""
    conditions = _put(conditions, CONTAINER_CREATE_FAILED, reason.RETRYING, reason.CREATED, waiting.message, now)
    cause, message = _other(waiting)
    return _put(conditions, PODS_WAITING, cause, reason.STARTED, message, now)


def events(before: Conditions, waiting: Waiting) -> tuple[Event, ...]:
    """One for each cause that was not known before."""
    return tuple(_events(before, waiting))


def message(waiting: Waiting) -> str:
    """The message for the phase of a job that has not started; empty when no pod is blocked."""
    return waiting.message or _other(waiting)[1]


def _events(before: Conditions, waiting: Waiting) -> Iterator[Event]:
    if waiting.message and not is_true(before, CONTAINER_CREATE_FAILED):
        yield warning(CONTAINER_CREATE_FAILED, waiting.message)
    cause, text = _other(waiting)
    old = find(before, PODS_WAITING)
    if text and (old is None or (old.status, old.reason) != ("True", cause)):
        yield (normal if cause == reason.QUEUED else warning)(cause, text)


def _other(waiting: Waiting) -> tuple[str, str]:
    """The reason and the sentence of what pods wait for, apart from containers that cannot be created."""
    if waiting.outage:
        return reason.NODES_NOT_READY, waiting.outage
    if waiting.queued:
        return reason.QUEUED, waiting.queued
    if waiting.unschedulable:
        return reason.UNSCHEDULABLE, f"pod {waiting.unschedulable}"
    return (reason.CONTAINER_CREATING, f"{waiting.is_slow}; {_SEE_POD}") if waiting.is_slow else ("", "")


def _put(conditions: Conditions, type_: str, cause: str, over: str, message: str, now: datetime) -> Conditions:
    if message:
        return put_standard(conditions, type_, True, cause, message, now)
    return put_standard(conditions, type_, False, over, "", now) if is_true(conditions, type_) else conditions
