"""Restarts of a whole crew. ps-lite lets nobody join again who was lost: when a replica falls, all of them are started
again, under other names. Those of the old attempt are gone before the new ones come."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from trainmaster.core.condition import find
from trainmaster.core.ids import JOB
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Delete, Patch, deletions, soonest
from trainmaster.core.view import ChildView, PodView
from trainmaster.kinds.mlkube.body import slots_of
from trainmaster.kinds.mlkube.replica import READY, TRIES, Replica, is_over
from trainmaster.kinds.mlkube.types import MxJob
from trainmaster.lifecycle import restart
from trainmaster.lifecycle.cleanup import patience_left
from trainmaster.lifecycle.restart import Decision, FailedPod, Rules

BACKOFF = 10
"""Seconds before the second restart in a row, as before the first one of a batch Job."""

STOPPED = {"spec": {"suspend": True}}


class Sweep(msgspec.Struct, frozen=True):
    """What is done about batch Jobs that fill no place; ``is_done`` when none is left that matters."""

    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    wait: float | None = None
    is_done: bool = True


def tries_of(job: MxJob) -> int:
    return TRIES if job.spec.backoff_limit is None else job.spec.backoff_limit


def has_tries_left(job: MxJob) -> bool:
    return sum(restarts.used for restarts in job.status.restarts.values()) < tries_of(job)


def again(job: MxJob, fallen: Sequence[Replica], now: datetime) -> Decision:
    """The restart of everybody, counted once for whoever fell first."""
    rules = Rules("Always", "All", None, BACKOFF, None)
    ready = find(job.status.conditions, READY)
    since = ready.last_transition_time if ready and ready.status == "True" else None
    return restart.decide(
        [FailedPod(each.slot.role, each.slot.index, each.fault) for each in fallen if each.fault],
        {spec.mx_replica_type: rules for spec in job.spec.replica_specs},
        job.status.restarts,
        job.status.restart_history,
        calm=now - since if since else timedelta(),
        now=now,
    )


def wait_of(job: MxJob, now: datetime) -> float | None:
    """Seconds until the next attempt may begin; None when nothing is in its way."""
    times = [restarts.next_time for restarts in job.status.restarts.values() if restarts.next_time]
    left = (max(times) - now).total_seconds() if times else 0
    return left if left > 0 else None


def sweep(job: MxJob, observed: Observed, now: datetime) -> Sweep:
    """A batch Job of an older attempt, or that the spec does not ask for any more, is stopped first, and deleted when
    its pods are gone: they hold what the next ones need, be it GPUs or a port."""
    names = {slot.name for slot in slots_of(job)}
    old = [child for name, child in observed.children.get(JOB, {}).items() if name not in names]
    if not old:
        return Sweep()
    why = "it fills no place of the job any more"
    alive = {child.uid: _alive(child, observed, now) for child in old}
    running = [child for child in old if not child.deleting and not is_over(child)]
    goes = [child for child in old if is_over(child) and not alive[child.uid]]
    waits = (patience_left(pod, now) for pods in alive.values() for pod in pods)
    return Sweep(
        deletes=deletions(JOB, goes, why),
        patches=tuple(Patch(JOB, c.key, c.uid, c.resource_version, STOPPED, why) for c in running),
        wait=soonest(*waits),
        # One that is deleted in the foreground stays until its pods are gone, and on a lost node they never are.
        is_done=all(child.deleting and not alive[child.uid] for child in old),
    )


def _alive(child: ChildView, observed: Observed, now: datetime) -> list[PodView]:
    """Pods that have not ended, but for those that their node does not let go of."""
    pods = [pod for pod in observed.all_pods if pod.owner is not None and pod.owner.uid == child.uid]
    return [pod for pod in pods if not pod.is_ended and ((left := patience_left(pod, now)) is None or left > 0)]
