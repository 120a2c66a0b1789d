"""The roles of an MXJob: which of them a mode has, what each is asked for, and who has the last word."""

from collections.abc import Mapping

import msgspec

from trainmaster.api.mxjob import MXJob, MXJobSpec, Policy, ReplicaSpec, RunPolicy
from trainmaster.core.policies.cleanup import CleanPodPolicy
from trainmaster.core.policies.restart import RestartPolicy, RestartScope, Rules

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
"""Roles that ps-lite does not let join again: without one of them nobody can go on."""

BACKOFF = 10
"""Seconds before the second restart in a row; twice as many before each that follows."""
RETRYABLE = "128-255"
"""Exit codes of a program that was ended from outside, as the training-operator has them since 1.5."""

_CANONICAL = {role.lower(): role for role in ROLES}
_POLICIES: Mapping[str, RestartPolicy] = {
    "Always": "Always",
    "OnFailure": "OnFailure",
    "Never": "Never",
    # A pod that its node ended has no exit code of its own.
    "ExitCode": "OnNodeFailWithExitCode",
}


class Slot(msgspec.Struct, frozen=True):
    """A place in the job, and the name of the pod and the service that fill it."""

    role: str
    index: int
    name: str

    @property
    def place(self) -> str:
        """The key of a slot in ``status.ports``: the name of its pod without that of the job."""
        return place_of(self.role, self.index)


def place_of(role: str, index: int) -> str:
    return f"{role.lower()}-{index}"


def canonical(name: str) -> str:
    """The role that a key means; the ancestors read the keys in any case. Empty when there is no such role."""
    return _CANONICAL.get(name.lower(), "")


def roles_of(spec: MXJobSpec) -> dict[str, ReplicaSpec]:
    """The replicas of a valid job by their role, in the order in which roles are always named."""
    found = {canonical(name): replica for name, replica in spec.mx_replica_specs.items()}
    return {role: found[role] for role in ROLES if role in found}


def slot_of(job: MXJob, role: str, index: int) -> Slot:
    return Slot(role, index, f"{job.metadata.name}-{place_of(role, index)}")


def slots_of(job: MXJob) -> list[Slot]:
    """All places that the spec asks for."""
    roles = roles_of(job.spec).items()
    return [slot_of(job, role, index) for role, replica in roles for index in range(replica.replicas)]


def policy_of(spec: MXJobSpec) -> RunPolicy:
    """The run policy, with what an older manifest says in the spec itself."""
    run = spec.run_policy
    older = {field: getattr(spec, field) for field in Policy.__struct_fields__ if getattr(run, field) is None}
    return RunPolicy(**({field: getattr(run, field) for field in RunPolicy.__struct_fields__} | older))


def clean_policy_of(spec: MXJobSpec) -> CleanPodPolicy:
    return policy_of(spec).clean_pod_policy or "None"


def rules_of(spec: MXJobSpec) -> dict[str, Rules]:
    """A parameter server lets nobody join again, so its roles restart together unless the user knows better; TVM's
    servers and tuners come and go."""
    default: RestartScope = "All" if spec.job_mode == "MXTrain" else "Pod"
    return {
        role: Rules(_POLICIES[replica.restart_policy], replica.restart_scope or default, None, BACKOFF, None)
        for role, replica in roles_of(spec).items()
    }


def deciding(spec: MXJobSpec) -> str:
    """The role whose success is the job's."""
    if spec.job_mode == "MXTune":
        return TUNER
    return SCHEDULER if SCHEDULER in roles_of(spec) and spec.success_policy != "AllWorkers" else WORKER


def leading(spec: MXJobSpec) -> str:
    """The role that says that the job runs."""
    if spec.job_mode == "MXTune":
        return TUNER
    return SCHEDULER if SCHEDULER in roles_of(spec) else WORKER


def master(spec: MXJobSpec) -> str:
    """The role whose first pod clients ask for the logs of a job."""
    return SERVER if SERVER in roles_of(spec) else deciding(spec)
