"""Which restart of how many: `restart 2 of 3`."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from trainmaster.client.text import duration
from trainmaster.core.errors import BadSpec
from trainmaster.core.observed import Observed
from trainmaster.core.view import JobView
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.lifecycle.model import JobModel
from trainmaster.lifecycle.restart import NONE, Restart, Restarts
from trainmaster.lifecycle.summary import restarts


class LastRestart(msgspec.Struct, frozen=True):
    """The last restart of a job."""

    time: datetime
    number: int
    """Restarts up to now: those that count for the limit, if there is one."""
    limit: int | None
    cause: str

    def text(self, at: datetime | None, now: datetime) -> str:
        """``at`` is the end of the back-off."""
        of = "" if self.limit is None else f" of {self.limit}"
        left = timedelta(seconds=math.ceil((at - now).total_seconds())) if at else timedelta()
        wait = f" in {duration(now, now + left)}" if left > timedelta() else ""
        return f"restart {self.number}{of}{wait}: {self.cause}"

    @property
    def count(self) -> str:
        """``3 restarts (limit 3)``; the limit only if it is used up."""
        is_over = self.limit is not None and self.number >= self.limit
        return f"{self.number} restart{'' if self.number == 1 else 's'}{f' (limit {self.limit})' if is_over else ''}"


def last_restart(
    history: Sequence[Restart], counts: Mapping[str, Restarts] | int, model: JobModel | None
) -> LastRestart | None:
    """``counts`` are by role, or their number, as a kind stores them."""
    if not history:
        return None
    # Pods that fail together are restarted together; the first one is the cause.
    first = next(entry for entry in history if entry.time == history[-1].time)
    if first.exit_code is not None:
        first = msgspec.structs.replace(first, node="")  # of a program that failed by itself
    number, limit = _number(history[-1].replica, counts, model)
    return LastRestart(first.time, number, limit, first.describe())


def _number(replica: str, counts: Mapping[str, Restarts] | int, model: JobModel | None) -> tuple[int, int | None]:
    if isinstance(counts, int):
        return counts, None
    roles = model.roles if model else {}
    role = max((name for name in roles if replica.startswith(name.lower())), key=len, default="")
    if role and (limit := roles[role].rules.limit) is not None:
        return counts.get(role, NONE).used, limit
    if model and model.run.restart_limit is not None:
        return sum(each.used_of_job for each in counts.values()), model.run.restart_limit
    return restarts(counts.values()), None


def model_of_job(kinds: ResourceKinds, job: JobView) -> JobModel | None:
    """What the spec says, without any pods; None if it cannot be read."""
    kind = kinds.of(job.raw)
    if not isinstance(kind, LifecycleKind):
        return None
    try:
        return kind.read(kind.decode(job), Observed.of((), (), kind.slots))
    except BadSpec:
        return None
