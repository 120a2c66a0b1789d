"""The roles of an MXJob: which of them a mode has, what fills them, and which one decides the result."""

from collections.abc import Mapping

from trainmaster.core.slot import Slot, numbered
from trainmaster.kinds.mxjob.types import MXJob, MXJobSpec, ReplicaSpec

SCHEDULER, SERVER, WORKER = "Scheduler", "Server", "Worker"
TUNER_TRACKER, TUNER_SERVER, TUNER = "TunerTracker", "TunerServer", "Tuner"

MODES: Mapping[str, tuple[str, ...]] = {
    "MXTrain": (SCHEDULER, SERVER, WORKER),
    "MXTune": (TUNER_TRACKER, TUNER_SERVER, TUNER),
}
ROLES = tuple(role for roles in MODES.values() for role in roles)
SINGLE = (SCHEDULER, TUNER_TRACKER)
"""Roles of which there is one: all others look for it."""
FIXED = (SCHEDULER, SERVER)
"""Roles that cannot rejoin ps-lite: when one of them is lost, the training cannot continue."""

_CANONICAL = {role.lower(): role for role in ROLES}


def canonical(name: str) -> str:
    """The role that a key means; the ancestors read the keys in any case. Empty when there is no such role."""
    return _CANONICAL.get(name.lower(), "")


def roles_of(spec: MXJobSpec) -> dict[str, ReplicaSpec]:
    """The replicas of a valid job by their role, in the order in which roles are always named."""
    found = {canonical(name): replica for name, replica in spec.mx_replica_specs.items()}
    return {role: found[role] for role in ROLES if role in found}


def slots_of(job: MXJob) -> tuple[Slot, ...]:
    """All places that the spec asks for."""
    return numbered(job.metadata.name, {role: spec.replicas for role, spec in roles_of(job.spec).items()})


def deciding(spec: MXJobSpec) -> str:
    """The role whose success is the job's."""
    if spec.job_mode == "MXTune":
        return TUNER
    return SCHEDULER if SCHEDULER in roles_of(spec) and spec.success_policy != "AllWorkers" else WORKER


def leading(spec: MXJobSpec) -> str:
    """The role whose running pods make the job Running."""
    if spec.job_mode == "MXTune":
        return TUNER
    return SCHEDULER if SCHEDULER in roles_of(spec) else WORKER


def master(spec: MXJobSpec) -> str:
    """The role whose first pod clients ask for the logs of a job."""
    return SERVER if SERVER in roles_of(spec) else deciding(spec)
