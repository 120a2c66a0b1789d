"""How a job stands by its status alone, in the words that all kinds share."""

from collections.abc import Mapping
from typing import Any

import msgspec

from trainmaster.core.condition import Conditions, has_succeeded
from trainmaster.core.policies.restart import Restarts


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: Conditions = ()
    restarts: dict[str, Restarts] = {}

    @property
    def has_succeeded(self) -> bool | None:
        """None of a job that has not ended."""
        return has_succeeded(self.conditions)

    @property
    def restarted(self) -> int:
        """How often the job, or a part of it, was started again for a fault."""
        return sum(restarts.used for restarts in self.restarts.values())


def standing_of(status: Mapping[str, Any]) -> Standing:
    """Somebody may have stored a status of a strange shape: nothing is known by that one."""
    try:
        return msgspec.convert(status, Standing)
    except msgspec.ValidationError:
        return Standing()
