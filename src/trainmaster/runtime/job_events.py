"""The Events of jobs of one kind, each with its line in the log."""

from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from trainmaster.core.ids import Resource
from trainmaster.core.plan import Create, Delete, Event, Patch
from trainmaster.core.view import JobView
from trainmaster.kinds.base import Failure, Kind
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.executor import Applied
from trainmaster.runtime.recorder import Recorder

REFUSALS = 3
"""Refused actions of one pass that get an Event each."""

_VERBS = {Create: "create", Delete: "delete", Patch: "update"}

log = structlog.get_logger(__name__)


class JobEvents:
    def __init__(self, kinds: ResourceKinds, recorder: Recorder) -> None:
        self._kinds = kinds
        self._recorder = recorder

    def record(self, job: JobView, event: Event) -> None:
        kind = self._kinds.of(job.raw)
        log.info("job event", job=str(job.key), kind=kind.name, reason=event.reason, says=event.message)
        self._recorder.record(kind.resource, job, kind.component, event)

    def record_actions(self, job: JobView, applied: Applied) -> None:
        """One Event for all that was done to a resource for one reason, and one line in the log for the pass."""
        kind = self._kinds.of(job.raw)
        events = [_event(kind, *action, names) for action, names in _grouped(applied).items()]
        for event in events:
            self._recorder.record(kind.resource, job, kind.component, event)
        if events:
            log.info("applied", job=str(job.key), kind=kind.name, did=[event.message for event in events])

    def record_failures(self, job: JobView, failures: Sequence[Failure]) -> None:
        kind = self._kinds.of(job.raw)
        for failure in failures[:REFUSALS]:
            verb, action = _VERBS[type(failure.action)], failure.action
            self.record(job, kind.action_event(verb, action.resource, [action.key.name], failure.error))


def _event(kind: Kind[Any], verb: str, resource: Resource, why: str, names: list[str]) -> Event:
    event = kind.action_event(verb, resource, names)
    return msgspec.structs.replace(event, message=f"{event.message}: {why}") if why else event


def _grouped(applied: Applied) -> dict[tuple[str, Resource, str], list[str]]:
    """Names by verb, resource and reason. All children are created because they are missing: that goes without
    saying."""
    done: dict[tuple[str, Resource, str], list[str]] = {}
    actions: list[Create | Delete | Patch] = [*applied.deleted, *applied.created, *applied.patched]
    for action in actions:
        why = "" if isinstance(action, Create) else action.why
        done.setdefault((_VERBS[type(action)], action.resource, why), []).append(action.key.name)
    return done
