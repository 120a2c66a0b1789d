"""How the replicas of an MxJob are, judged by their batch Jobs and the pods of these.

A batch Job restarts its pod until its ``backoffLimit`` is reached, whatever the pod failed of. A fault that will only
happen again is found here: the replica has failed then. In ``dist`` mode no replica is restarted alone unless the user
says so (``restartScope``): all replicas restart, and their batch Jobs have ``backoffLimit: 0``.
"""

from collections.abc import Iterable, Sequence
from math import inf

import msgspec

from trainmaster.core.condition import Conditions, find
from trainmaster.core.ids import JOB
from trainmaster.core.observed import Observed
from trainmaster.core.slot import Slot
from trainmaster.core.view import OUT_OF_MEMORY, ChildView, PodView
from trainmaster.kinds.mlkube import batch_job, labels, reason
from trainmaster.kinds.mlkube.batch_job import BatchJob
from trainmaster.kinds.mlkube.body import restarts_alone, roles_of
from trainmaster.kinds.mlkube.types import MxJob
from trainmaster.lifecycle import fault
from trainmaster.lifecycle.completion import FAILED
from trainmaster.lifecycle.facts import lost
from trainmaster.lifecycle.fault import SIGNALLED, Fault
from trainmaster.lifecycle.model import Replica
from trainmaster.lifecycle.restart import exit_codes
from trainmaster.lifecycle.training import Training

PHASE_RUNNING = "Running"
RECOVERING = "Recovering"
"""True while a replica restarts after a fault that need not happen again. The message says which."""

_HELD = "its Job does not try again as long as side-cars keep the pod alive"
_RESTARTED = "it is started again"
_TRAINING = Training(labels.CONTAINER)


class JobReplica(Replica, frozen=True):
    is_held: bool = False
    """Its Job restarts it when the side-cars of its failed pod have ended, and not before."""


class _Pods(msgspec.Struct, frozen=True):
    """Of one batch Job, the oldest first."""

    staying: Sequence[PodView] = ()
    deleting: Sequence[PodView] = ()

    @property
    def latest(self) -> PodView | None:
        return next(iter((*reversed(self.staying), *reversed(self.deleting))), None)

    @property
    def evicted(self) -> PodView | None:
        return next((pod for pod in self.deleting if pod.disruption), None)


def replicas_of(job: MxJob, slots: Iterable[Slot], observed: Observed) -> dict[str, JobReplica]:
    """By the name of the slot."""
    retryable, has_run = exit_codes(job.spec.restarting_exit_code), has_formed(job)
    alone = {role: restarts_alone(job, role) for role in roles_of(job)}
    by_owner: dict[str, list[PodView]] = {}
    for pod in sorted(observed.all_pods, key=_began):
        if pod.owner is not None:
            by_owner.setdefault(pod.owner.uid, []).append(pod)
    found = {}
    for slot in slots:
        child = observed.child(JOB, slot.name)
        owned = by_owner.get(child.uid, ()) if child else ()
        pods = _Pods([pod for pod in owned if not pod.deleting], [pod for pod in owned if pod.deleting])
        is_alone = alone[slot.role] or (child is not None and batch_job.is_adopted(child))
        replica = _judged(slot, child, pods, retryable, alone=is_alone, has_run=has_run)
        since = batch_job.read(child).creating_since if child and not owned and not child.deleting else None
        found[slot.name] = msgspec.structs.replace(
            replica, pod=pods.latest, podless_since=since, restarts_alone=is_alone
        )
    return found


def has_formed(job: MxJob) -> bool:
    """All replicas of this attempt have run: a Job that does not exist was deleted, and is not yet to be created. A job
    that mxnet-operator ran has the same phase and no runtime id; its Jobs are not missed."""
    status = job.status
    has_run = status.phase == PHASE_RUNNING and bool(status.runtime_id)
    return has_run and not is_group_restarting(status.conditions)


def is_group_restarting(conditions: Conditions) -> bool:
    found = find(conditions, RECOVERING)
    return found is not None and (found.status, found.reason) == ("True", reason.GROUP_RESTARTING)


def _judged(
    slot: Slot, child: ChildView | None, pods: _Pods, retryable: frozenset[int], *, alone: bool, has_run: bool
) -> JobReplica:
    """The main container decides, whatever side-cars still do. A Job that is gone is a fault if all have run."""
    job = batch_job.read(child) if child else None
    if job is None or (child and child.deleting and not job.status.succeeded):
        return JobReplica("Pending" if job else "", fault=lost(f"job {slot.name}") if has_run and not alone else None)
    if job.status.succeeded or any(_has_succeeded(pod) for pod in pods.staying):
        return JobReplica("Succeeded")
    faults = [found for pod in pods.staying if (found := _fault(pod))]
    for found in faults:
        if why := _why_permanent(found, retryable):
            return JobReplica("Failed", fault=_permanent(found, f"{found.message}{why}"))
    return (_alone if alone else _in_group)(slot, job, pods, faults, has_run)


def _in_group(slot: Slot, job: BatchJob, pods: _Pods, faults: Sequence[Fault], has_run: bool) -> JobReplica:
    """Every fault is a fault of the replica, for which all replicas restart."""
    if faults:
        return JobReplica("Pending", fault=faults[-1])
    if pods.evicted:
        return JobReplica("Pending", fault=fault.disruption(pods.evicted))
    if _failure(job, pods):
        return JobReplica("Pending", fault=lost(*_pod(slot, pods.latest)))
    if job.spec.suspend:
        return JobReplica("Pending", fault=_suspended(slot) if has_run else None, message=_waits(slot))
    # A pod may be gone before its Job says how it ended: the watch of Jobs may lag behind that of pods.
    is_unknown = has_run and not pods.staying
    return JobReplica("Running" if is_unknown or any(_is_running(pod) for pod in pods.staying) else "Pending")


def _alone(slot: Slot, job: BatchJob, pods: _Pods, faults: Sequence[Fault], has_run: bool) -> JobReplica:
    """The batch Job restarts its pod until its backoffLimit is reached."""
    if given_up := _failure(job, pods):
        last = f"; {faults[-1].message}" if faults else ""
        message = f"job {slot.name} has failed: {given_up.reason}, {given_up.message}{last}"
        return JobReplica("Failed", fault=_permanent(faults[-1] if faults else Fault(FAILED, ""), message))
    if job.spec.suspend:
        return JobReplica("Pending", message=_waits(slot))
    if any(_is_running(pod) for pod in pods.staying):
        return JobReplica("Running")
    if sum(pod.phase == "Failed" for pod in pods.staying) > job.spec.backoff_limit:
        return JobReplica("Running" if has_run else "Pending")  # until its Job says that it has failed
    if faults:
        is_held = any(_is_held(pod) for pod in pods.staying)
        message = f"{faults[-1].message}; {_HELD if is_held else _RESTARTED}"
        return JobReplica("Pending", message=message, is_recovering=True, is_held=is_held)
    if pods.evicted and not pods.staying:
        message = f"{fault.disruption(pods.evicted).message}; {_RESTARTED}"
        return JobReplica("Pending", message=message, is_recovering=True)
    return JobReplica("Pending")


def _failure(job: BatchJob, pods: _Pods) -> batch_job.Condition | None:
    """Why a Job failed. A Job ends after its pods: while the store shows one running, the reason is not known yet."""
    return None if any(not pod.is_ended for pod in pods.staying) else job.condition(*batch_job.FAILURE)


def _permanent(found: Fault, message: str) -> Fault:
    return msgspec.structs.replace(found, message=message, comes_again=False)


def _pod(slot: Slot, pod: PodView | None) -> tuple[str, str]:
    """The name of a pod, and its node."""
    return (f"pod {pod.key.name}", pod.node) if pod else (f"the pod of {slot.place}", "")


def _suspended(slot: Slot) -> Fault:
    return Fault(FAILED, f"job {slot.name} was suspended by a user while the others ran", has_failed=True)


def _waits(slot: Slot) -> str:
    return f"job {slot.name} is suspended; it goes on when it is resumed"


def _began(pod: PodView) -> float:
    """A pod without a node is the youngest."""
    return pod.started.timestamp() if pod.started else inf


# --- pods ---


def _has_succeeded(pod: PodView) -> bool:
    """A pod has a reason when it was ended from outside: a program that is asked to end may exit with 0."""
    main = pod.container(labels.CONTAINER)
    return main is not None and main.exit_code == 0 and not pod.reason


def _is_running(pod: PodView) -> bool:
    main = pod.container(labels.CONTAINER)
    return pod.phase == "Running" and (main is None or (main.exit_code is None and not main.waiting))


def _fault(pod: PodView) -> Fault | None:
    """What went wrong with a pod. A container that its kubelet restarted shows its last end beside its new state."""
    main = pod.container(labels.CONTAINER)
    if main is not None and main.exit_code is None and main.last is not None and main.last.exit_code:
        return fault.failure(msgspec.structs.replace(pod, containers=(main.last,)), _TRAINING)
    if pod.phase != "Failed" and not (main is not None and main.exit_code):
        return None
    return fault.failure(pod, _TRAINING)


def _is_held(pod: PodView) -> bool:
    """It has failed and does not end, because side-cars run on. A pod with a reason is being ended."""
    main = pod.container(labels.CONTAINER)
    has_failed = main is not None and bool(main.exit_code) and pod.restart_policy == "Never"
    return has_failed and not pod.is_ended and not pod.reason


def _why_permanent(found: Fault, retryable: frozenset[int]) -> str:
    """Why a restart would not help; empty when it may. A program that a signal ended may succeed the next time, one
    that exited by itself will do so again. A pod that was evicted or refused says nothing about its program."""
    if found.reason == OUT_OF_MEMORY:
        return ": it needs more memory than its limit allows (OOMKilled)"
    if found.comes_again is False:
        return "; a container that cannot be started is not retried"
    if found.is_node or found.exit_code is None or found.exit_code >= SIGNALLED or found.exit_code in retryable:
        return ""
    return f"; exit code {found.exit_code} is not retried (restartingExitCode)"
