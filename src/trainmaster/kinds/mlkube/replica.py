"""How the replicas of an MxJob are, told from their batch Jobs and from the pods of these.

A batch Job starts a pod again until its ``backoffLimit`` is reached, whatever that pod died of. What will only happen
again is told apart here: then the replica has failed, and the job with it. Of a crew nobody is started again alone,
unless the user says so (``crew``): its batch Jobs give up at once.
"""

from collections.abc import Sequence
from math import inf

import msgspec

from trainmaster.core.condition import Conditions, find
from trainmaster.core.ids import JOB
from trainmaster.core.observed import Observed
from trainmaster.core.view import ChildView, PodView
from trainmaster.kinds.mlkube import labels
from trainmaster.kinds.mlkube.body import Slot, slots_of
from trainmaster.kinds.mlkube.types import MxJob
from trainmaster.lifecycle import fault
from trainmaster.lifecycle.fault import SIGNALLED, Fault
from trainmaster.lifecycle.restart import exit_codes

UNKNOWN = "Unknown"
STARTING = "Starting"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

READY = "Ready"
"""The condition that is True while all replicas run, or have succeeded."""
RECOVERING = "Recovering"
"""True: a replica died of something that need not happen again, and is started once more."""
CREW_RESTARTING = "CrewRestarting"
"""Why that is True from the fall of a crew until all of its next attempt run."""

TRIES = 6
"""How often a batch Job starts its pod again unless it is told."""
OUT_OF_MEMORY = "OOMKilled"
_FAILURE = ("Failed", "FailureTarget")
_ENDS = ("Complete", "SuccessCriteriaMet", *_FAILURE)
"""Conditions of a batch Job. The latter of each two stands there while its last pods go, which on a lost node takes for
ever; then the other follows, unless somebody suspends it in between."""
_HELD = "its Job does not try again as long as side-cars keep the pod alive"
_BEGINNING = ("", "ContainerCreating", "PodInitializing")
"""What every container waits for at first."""


class _ConditionPart(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _StatusPart(msgspec.Struct):
    succeeded: int | None = None
    conditions: list[_ConditionPart] | None = None


class _SpecPart(msgspec.Struct, rename="camel"):
    suspend: bool | None = None
    backoff_limit: int = TRIES


class _JobPart(msgspec.Struct):
    spec: _SpecPart = msgspec.field(default_factory=_SpecPart)
    status: _StatusPart = msgspec.field(default_factory=_StatusPart)

    def condition(self, *types: str) -> _ConditionPart | None:
        """The first of these that holds."""
        return next((c for c in self.status.conditions or () if c.type in types and c.status == "True"), None)


_JOB_PART = msgspec.json.Decoder(_JobPart)


class Replica(msgspec.Struct, frozen=True):
    """``message`` says why it failed, what it waits for, or, of one that ``is_recovering``, what it comes back from;
    it is empty where there is nothing special to say. ``fault`` is for one that the others cannot go on without."""

    slot: Slot
    state: str
    message: str = ""
    is_recovering: bool = False
    is_held: bool = False
    """It comes back when its side-cars have ended, and not before."""
    fault: Fault | None = None

    @property
    def has_started(self) -> bool:
        return self.state in (RUNNING, SUCCEEDED)


def is_over(child: ChildView) -> bool:
    """True of a batch Job that comes to its end, or was told to stop: no pod of it is started any more."""
    job = _JOB_PART.decode(child.raw)
    return bool(job.spec.suspend) or job.condition(*_ENDS) is not None


def replicas_of(job: MxJob, observed: Observed) -> list[Replica]:
    retryable = exit_codes(job.spec.restarting_exit_code)
    pods: dict[str, list[PodView]] = {}
    for pod in sorted(observed.all_pods, key=_began):
        if pod.owner is not None and not pod.deleting:
            pods.setdefault(pod.owner.uid, []).append(pod)
    is_formed = has_formed(job)
    found = []
    for slot in slots_of(job):
        child = observed.child(JOB, slot.name)
        if is_done(job, slot):
            found.append(Replica(slot, SUCCEEDED))
        elif child is None or (child.deleting and not _is_complete(child)):
            is_lost = is_formed and not slot.is_alone
            found.append(Replica(slot, STARTING, fault=_lost(f"the Job of {slot.place} is gone") if is_lost else None))
        else:
            found.append(_judged(slot, child, pods.get(child.uid, ()), retryable, is_formed=is_formed))
    return found


def _is_complete(child: ChildView) -> bool:
    """True of a batch Job that has succeeded, be it on its way out."""
    return bool(_JOB_PART.decode(child.raw).status.succeeded)


def is_done(job: MxJob, slot: Slot) -> bool:
    """It is on record that this replica has succeeded: nobody misses its Job."""
    return slot.index in job.status.done.get(slot.role, ())


def has_run(job: MxJob) -> bool:
    """All replicas have run at the same time. The ancestor said so, too, but had no runtime id in its status: its Jobs
    are not ours, and nobody misses them."""
    return job.status.phase == RUNNING and bool(job.status.runtime_id)


def has_formed(job: MxJob) -> bool:
    """All replicas of this attempt have run: who is not there now is lost, and not yet to come."""
    return has_run(job) and not is_crew_restarting(job.status.conditions)


def is_crew_restarting(conditions: Conditions) -> bool:
    found = find(conditions, RECOVERING)
    return found is not None and (found.status, found.reason) == ("True", CREW_RESTARTING)


def _judged(
    slot: Slot, child: ChildView, pods: Sequence[PodView], retryable: frozenset[int], *, is_formed: bool
) -> Replica:
    """The main container decides, whatever side-cars still do."""
    job = _JOB_PART.decode(child.raw)
    if job.status.succeeded or any(_has_succeeded(pod) for pod in pods):
        return Replica(slot, SUCCEEDED)
    faults = [found for pod in pods if (found := _fault(pod))]
    for found in faults:
        if why := _end_of(found, retryable):
            return Replica(slot, FAILED, f"{found.message}{why}")
    # A Job ends after its pods. Who sees one that still runs is behind, and will be told how it ended.
    given_up = None if any(not pod.is_ended for pod in pods) else job.condition(*_FAILURE)
    if not slot.is_alone and (faults or given_up):
        return Replica(slot, STARTING, fault=faults[-1] if faults else _lost(f"the pod of {slot.place} is gone"))
    if given_up:
        last = f"; {faults[-1].message}" if faults else ""
        return Replica(slot, FAILED, f"job {slot.name} has failed: {given_up.reason}, {given_up.message}{last}")
    is_missed = is_formed and not slot.is_alone
    if job.spec.suspend:
        lost = _lost(f"the Job of {slot.place} was suspended") if is_missed else None
        said = f"job {slot.name} is suspended; it goes on when somebody resumes it"
        return Replica(slot, STARTING, said, fault=lost)
    if any(_is_running(pod) for pod in pods):
        return Replica(slot, RUNNING)
    if (is_missed and not pods) or sum(pod.phase == "Failed" for pod in pods) > job.spec.backoff_limit:
        return Replica(slot, RUNNING if is_formed else STARTING)  # until its Job says that it has failed, or goes
    if faults:
        is_held = any(_is_held(pod) for pod in pods)
        then = _HELD if is_held else "it is started again"
        return Replica(slot, STARTING, f"{faults[-1].message}; {then}", is_recovering=True, is_held=is_held)
    return Replica(slot, STARTING, _waits_for(pods))


def _began(pod: PodView) -> float:
    """Those that no node has taken yet are the youngest."""
    return pod.started.timestamp() if pod.started else inf


def _lost(message: str) -> Fault:
    return Fault(FAILED, message, has_failed=True)


# --- pods ---


def _has_succeeded(pod: PodView) -> bool:
    """A pod has a reason when somebody put an end to it: a program that is told to end may well do so with 0."""
    main = pod.container(labels.CONTAINER)
    return main is not None and main.exit_code == 0 and not pod.reason


def _is_running(pod: PodView) -> bool:
    main = pod.container(labels.CONTAINER)
    return pod.phase == "Running" and (main is None or (main.exit_code is None and not main.waiting))


def _waits_for(pods: Sequence[PodView]) -> str:
    """What it waits for, if it is more than its turn."""
    for pod in pods:
        main = pod.container(labels.CONTAINER)
        waiting = main.waiting if main and main.waiting not in _BEGINNING else ""
        if said := pod.unschedulable or waiting:
            return f"pod {pod.key.name}: {said}"
    return ""


def _fault(pod: PodView) -> Fault | None:
    """What went wrong with a pod; None when nothing did. A container that its kubelet starts again shows its last end
    beside its new life."""
    main = pod.container(labels.CONTAINER)
    if main is not None and main.exit_code is None and main.last is not None and main.last.exit_code:
        return fault.failure(msgspec.structs.replace(pod, containers=(main.last,)), _takes_part)
    if pod.phase != "Failed" and not (main is not None and main.exit_code):
        return None
    return fault.failure(pod, _takes_part)


def _is_held(pod: PodView) -> bool:
    """True of one that has failed and does not end, because side-cars live on. One with a reason is being ended."""
    main = pod.container(labels.CONTAINER)
    is_dead = main is not None and bool(main.exit_code) and pod.restart_policy == "Never"
    return is_dead and not pod.is_ended and not pod.reason


def _takes_part(container: str) -> bool:
    return container == labels.CONTAINER


def _end_of(found: Fault, retryable: frozenset[int]) -> str:
    """Why there is no use in another try; empty when there is. The exit code says it: what a signal ended may run
    through the next time, what ended by itself will end the same way again. Where no program ended, its pod was put
    out or refused, which says nothing about the program."""
    if found.reason == OUT_OF_MEMORY:
        return ": it needs more memory than its limit allows (OOMKilled)"
    if found.comes_again is False:
        return "; a container that cannot be started is not retried"
    if found.is_node or found.exit_code is None or found.exit_code >= SIGNALLED or found.exit_code in retryable:
        return ""
    return f"; exit code {found.exit_code} is not retried (restartingExitCode)"
