"""MXJob, kubeflow.org/v1: MXNet with a parameter server, and TVM's tuning.

Two generations of manifests are read. The mxnet-operator had the fields of ``runPolicy`` in the spec itself, and
``successPolicy`` and ``label``, which the training-operator forgot.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.ids import Resource
from trainmaster.core.wire import ManagedBy, ObjectMeta, Ports, Template, Wire
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.gang import SchedulingPolicy
from trainmaster.lifecycle.restart import EXIT_CODES, Restart, Restarts

RESOURCE = Resource("kubeflow.org", "v1", "mxjobs", "MXJob")

Seconds = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Limit = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class ReplicaSpec(Wire, frozen=True):
    template: Template
    replicas: Count = 1
    restart_policy: Literal["Always", "OnFailure", "Never", "ExitCode"] = "Never"
    restart_scope: Literal["All", "Pod"] | None = None
    label: str = ""
    """The key of a TVM server, before it became the annotation ``tuner-server-key``."""


class Policy(Wire, frozen=True):
    """What both generations say about the run of a job."""

    clean_pod_policy: Literal["All", "Running", "None", ""] | None = None
    ttl_seconds_after_finished: Limit | None = None
    active_deadline_seconds: Seconds | None = None
    backoff_limit: Limit | None = None
    scheduling_policy: SchedulingPolicy | None = None


class RunPolicy(Policy, frozen=True):
    suspend: bool = False
    managed_by: ManagedBy = ""


class MXJobSpec(Policy, frozen=True, kw_only=True):
    job_mode: Literal["MXTrain", "MXTune"]
    mx_replica_specs: Annotated[dict[str, ReplicaSpec], msgspec.Meta(min_length=1, max_length=6)]
    run_policy: Annotated[RunPolicy, msgspec.Meta(extra={"default": {}})] = RunPolicy()
    """Always on the wire: the Kubeflow client reads no job without one."""
    success_policy: Literal["", "AllWorkers"] = ""
    restarting_exit_code: Annotated[str, msgspec.Meta(max_length=512, extra={"pattern": EXIT_CODES})] = ""


class ReplicaStatus(Wire, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class MXJobStatus(Wire, frozen=True):
    phase: str = ""
    observed_generation: int = 0
    conditions: Conditions = ()
    replica_statuses: dict[str, ReplicaStatus] = {}
    restarts: dict[str, Restarts] = {}
    restart_history: tuple[Restart, ...] = ()
    ran: dict[str, tuple[int, ...]] = {}
    """The places of a role whose pod was seen running in this attempt: one of these that is gone was lost."""
    done: dict[str, tuple[int, ...]] = {}
    """The places of a role whose pod has succeeded in this attempt. They are filled, whatever becomes of that pod."""
    ports: Ports = {}
    node_troubles: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen."""
    clean: CleanPodPolicy | None = None
    """In the place of the job's own policy, where that would leave something running."""
    start_time: datetime | None = None
    completion_time: datetime | None = None


class MXJob(Wire, frozen=True):
    """MXNet in a parameter server's roles (MXTrain), or TVM that tunes its operators (MXTune)."""

    metadata: ObjectMeta
    spec: MXJobSpec
    status: MXJobStatus = MXJobStatus()
