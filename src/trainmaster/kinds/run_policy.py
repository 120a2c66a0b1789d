"""``spec.runPolicy`` in Kubeflow's form: its fields, and what they mean in words that all kinds share."""

from typing import Annotated, Literal

import msgspec

from trainmaster.core.view import PodView
from trainmaster.core.wire import Deadline, ManagedBy, Wire
from trainmaster.kinds.kubeflow_status import JobStatus
from trainmaster.lifecycle import model, restart
from trainmaster.lifecycle.deadline import limit_of
from trainmaster.lifecycle.gang import SchedulingPolicy

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Policy(Wire, frozen=True):
    """The fields that older manifests have in the spec itself."""

    clean_pod_policy: Literal["All", "Running", "None", ""] | None = None
    """Which pods are deleted when the job has ended, with their services. All: all. Running: those that still run.
    None, which is the default: none."""
    ttl_seconds_after_finished: Count | None = None
    """The job is deleted this time after its end. By default it is kept."""
    active_deadline_seconds: Deadline | None = None
    """After this time the job has failed, and running pods are deleted under every ``cleanPodPolicy``. By default there
    is no deadline. A suspension resets it."""
    backoff_limit: Count | None = None
    """How many restarts the job may cause, all roles together. By default there is no limit. Evictions are not
    counted, and pods that fail within ten seconds count once."""
    scheduling_policy: SchedulingPolicy | None = None
    """What the PodGroup of the job asks for. It has an effect if the operator has a gang scheduler."""


class RunPolicy(Policy, frozen=True):
    suspend: bool = False
    """True: pods and services are deleted. False again: the job starts from the beginning."""
    managed_by: ManagedBy = ""
    """The controller that runs the job, for example kueue.x-k8s.io/multikueue. With any name other than that of the
    operator, the operator does not touch the job. It cannot be changed."""


def read(policy: RunPolicy, status: JobStatus, name: str, *, exit_codes: str = "") -> model.RunPolicy:
    """``name`` is what messages call the job: its kind and its name."""
    deadline = f"{name} has failed because it was active longer than specified deadline"
    limit = limit_of(status.start_time, policy.active_deadline_seconds, deadline)
    return model.RunPolicy(
        clean=status.clean or policy.clean_pod_policy or "None",
        suspend=f"{name} is suspended." if policy.suspend else "",
        limits=(limit,) if limit else (),
        ttl=limit_of(status.completion_time, policy.ttl_seconds_after_finished),
        exit_codes=restart.exit_codes(exit_codes),
        restart_limit=policy.backoff_limit,
        is_kept=_has_ended,
        keeps_services=True,
    )


def clean_after(policy: RunPolicy, cause: str) -> Literal["Running"] | None:
    """A job that is stopped leaves nothing running, whatever its policy."""
    is_stopped = cause in ("deadline", "limit") and (policy.clean_pod_policy or "None") == "None"
    return "Running" if is_stopped else None


def _has_ended(pod: PodView) -> bool:
    """A container that trains is stopped, also where a side-car has ended."""
    return pod.is_ended
