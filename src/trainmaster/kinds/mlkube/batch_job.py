"""What is read of batch Jobs, and how they are removed.

A Job that is deleted takes its pods and their logs along; one that is suspended keeps the pods that have ended.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from trainmaster.core.ids import JOB
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Patch, deletions
from trainmaster.core.view import ChildView
from trainmaster.kinds.mlkube import labels
from trainmaster.lifecycle.cleanup import CleanPodPolicy, is_gone
from trainmaster.lifecycle.decide import Removal

BACKOFF_LIMIT = 6
"""How often a batch Job restarts its pod unless its spec says otherwise."""
FAILURE = ("Failed", "FailureTarget")
_ENDS = ("Complete", "SuccessCriteriaMet", *FAILURE)
"""Conditions of a batch Job. It has the latter of each two while its last pods are being deleted."""
_SUSPENDED = {"spec": {"suspend": True}}


class Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _StatusPart(msgspec.Struct, rename="camel"):
    succeeded: int | None = None
    start_time: datetime | None = None
    conditions: list[Condition] | None = None


class _SpecPart(msgspec.Struct, rename="camel"):
    suspend: bool | None = None
    backoff_limit: int = BACKOFF_LIMIT


class _MetaPart(msgspec.Struct):
    labels: dict[str, str] = {}


class BatchJob(msgspec.Struct):
    """The fields that we read of a batch Job."""

    metadata: _MetaPart = msgspec.field(default_factory=_MetaPart)
    spec: _SpecPart = msgspec.field(default_factory=_SpecPart)
    status: _StatusPart = msgspec.field(default_factory=_StatusPart)

    def condition(self, *types: str) -> Condition | None:
        """The first of these that is True."""
        return next((c for c in self.status.conditions or () if c.type in types and c.status == "True"), None)

    @property
    def creating_since(self) -> datetime | None:
        """Since when its controller creates pods for it; None if it does not, or does not any more."""
        return None if self.is_over else self.status.start_time

    @property
    def is_over(self) -> bool:
        """It creates no pods any more."""
        return bool(self.spec.suspend) or self.condition(*_ENDS) is not None


_DECODER = msgspec.json.Decoder(BatchJob)


def is_adopted(child: ChildView) -> bool:
    """True for a Job of the mxnet-operator, which does not have the label of the job. It restarts its pod by itself,
    also where a Job of ours leaves that to the restart of all replicas."""
    return labels.JOB_NAME not in read(child).metadata.labels


def read(child: ChildView) -> BatchJob:
    return _DECODER.decode(child.raw)


def is_over(child: ChildView) -> bool:
    return read(child).is_over


def outdated(children: Iterable[ChildView], observed: Observed) -> Removal:
    """Removes Jobs that fill no slot. Each is suspended first, and deleted when its pods are gone: they hold what the
    pods of the next attempt need, such as GPUs or a port."""
    old, why = list(children), "it fills no slot of the job any more"
    alive = {p.owner.uid for p in observed.all_pods if p.owner and not p.is_ended and not is_gone(p)} if old else set()
    return Removal(
        deletes=deletions(JOB, [child for child in old if is_over(child) and child.uid not in alive], why),
        patches=_suspensions([child for child in old if not is_over(child)], why),
        # A Job that is deleted in the foreground stays until its pods are gone.
        is_done=all(child.deleting and child.uid not in alive for child in old),
    )


def cleaned(children: Iterable[ChildView], policy: CleanPodPolicy) -> Removal:
    """Removes the Jobs of a job that has ended."""
    why = f"the job has ended and cleanPodPolicy is {policy}"
    match policy:
        case "All":
            found = list(children)
            return Removal(deletions(JOB, found, why), is_done=not found)
        case "Running":
            running = [child for child in children if not is_over(child)]
            return Removal(patches=_suspensions(running, why), is_done=not running)
        case "None":
            return Removal()


def _suspensions(children: Iterable[ChildView], why: str) -> tuple[Patch, ...]:
    return tuple(Patch(JOB, c.key, c.uid, c.resource_version, _SUSPENDED, why) for c in children if not c.deleting)
