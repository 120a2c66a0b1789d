"""A kind that describes its jobs, and leaves the decisions to the lifecycle."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from trainmaster.core.ids import Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Event, Plan
from trainmaster.core.view import JobView
from trainmaster.kinds import status
from trainmaster.kinds.base import Failure, J, Kind, changed_status
from trainmaster.kinds.priority import classless
from trainmaster.lifecycle import decide
from trainmaster.lifecycle.completion import Result
from trainmaster.lifecycle.decide import Builder, Report, Verdict
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.gang import group_resource
from trainmaster.lifecycle.model import JobModel


class LifecycleKind(Kind[J]):
    looks_at_nodes = True
    counters: ClassVar[tuple[str, ...]] = ("replica_statuses", "conditions")
    """The fields of the status that may wait to be stored while nothing else changes. Conditions are among them where
    they stay true for long."""
    priority_label: ClassVar[str] = ""
    """The label of pods with the priority of the job, if that may be the name of a PriorityClass."""

    @abstractmethod
    def read(self, job: J, observed: Observed) -> JobModel:
        """What spec and status say."""

    @abstractmethod
    def result(self, job: J, model: JobModel, facts: Facts, verdict: Verdict) -> Result:
        """Whether the job has ended, and how."""

    @abstractmethod
    def builder(self, job: J, model: JobModel, facts: Facts) -> Builder:
        """Builds pods and services."""

    @abstractmethod
    def status(self, job: J, report: Report, now: datetime) -> Any:
        """The status after a pass that decided this."""

    @abstractmethod
    def events(self, job: J, report: Report, new: Any) -> tuple[Event, ...]:
        """The Events of such a pass."""

    @property
    def children(self) -> tuple[Resource, ...]:
        scheduler = self.settings.gang_scheduler
        return (group_resource(scheduler),) if scheduler else ()

    def decide(self, job: J, observed: Observed, now: datetime) -> Plan:
        return decide.decide(self, job, observed, now)

    def conclude(self, view: JobView, plan: Plan, failures: Sequence[Failure], now: datetime) -> Plan:
        concluded = super().conclude(view, plan, failures, now)
        if not self.priority_label or concluded.status is None:
            return concluded
        stored = self._status(concluded.status)
        conditions = classless(stored.conditions, failures, self.priority_label, now.replace(microsecond=0))
        if conditions == stored.conditions:
            return concluded
        new = msgspec.structs.replace(stored, conditions=conditions)
        return msgspec.structs.replace(concluded, status=changed_status(stored, new))

    def delay(self, job: J, new: Any) -> float:
        """Seconds that the new status may wait to be stored."""
        return status.delay(job.status, new, self.counters)
