"""The summary of a job from its status, in terms that all kinds share."""

from collections.abc import Mapping
from typing import Any

import msgspec

from trainmaster.core.condition import Conditions, has_succeeded, is_true
from trainmaster.lifecycle.restart import NONE, Restarts

SUCCEEDED, FAILED = "Succeeded", "Failed"


class StatusSummary(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: Conditions = ()
    restarts: dict[str, Restarts] | int = {}
    """Of each role. A number in kinds that have ``attempts`` for this."""
    attempts: dict[str, Restarts] = {}

    @property
    def by_role(self) -> dict[str, Restarts]:
        """A number that is 0 is not stored."""
        return self.restarts if isinstance(self.restarts, dict) and self.restarts else self.attempts

    @property
    def has_succeeded(self) -> bool | None:
        """None of a job that has not ended. Other operators say it by the name of a condition."""
        if any(is_true(self.conditions, end) for end in (FAILED, SUCCEEDED)):
            return not is_true(self.conditions, FAILED)
        return has_succeeded(self.conditions)

    def restarts_since(self, before: "StatusSummary") -> int:
        """How often the job, or a part of it, was started again for a fault. A budget may have been given back."""
        old = before.by_role
        grown = [(r.used_of_job, r.used_of_job - old.get(role, NONE).used_of_job) for role, r in self.by_role.items()]
        return sum(more if more >= 0 else used for used, more in grown)


def summary_of(status: Mapping[str, Any]) -> StatusSummary:
    """The summary of a stored status; empty when it cannot be decoded."""
    try:
        return msgspec.convert(status, StatusSummary)
    except msgspec.ValidationError:
        return StatusSummary()
