"""MxJob, mxnet.mlkube.io/v1beta1: training with MXNet, a batch Job for each replica. Some manifests still say
mlkube.io/v1beta1, as the group was called before: both are served, and mean the same."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.ids import Resource
from trainmaster.core.template import PodSpecPart, Port, TemplatePart
from trainmaster.core.wire import ManagedBy, ObjectMeta, Ports, Wire
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.gang import SchedulingPolicy
from trainmaster.lifecycle.restart import EXIT_CODES, Restart, Restarts

RESOURCE = Resource("mxnet.mlkube.io", "v1beta1", "mxjobs", "MxJob")
FIRST_RESOURCE = Resource("mlkube.io", "v1beta1", "mxjobs", "MxJob")

JobMode = Literal["local", "dist"]
ReplicaType = Literal["SCHEDULER", "SERVER", "WORKER"]
PodRestartPolicy = Literal["OnFailure", "Never"]
"""Those that a batch Job takes."""
RestartScope = Literal["All", "Pod"]
"""What restarts when a replica is lost: all replicas, or that one alone."""

MAX_RUNTIME_ID = 16

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
RuntimeId = Annotated[str, msgspec.Meta(max_length=MAX_RUNTIME_ID, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")]


class JobPodSpecPart(PodSpecPart):
    restart_policy: PodRestartPolicy | None = None


class JobTemplatePart(TemplatePart):
    """The fields that we read of the pod template of a batch Job."""

    spec: JobPodSpecPart


JobTemplate = Annotated[dict[str, Any], msgspec.Meta(extra={"schema": JobTemplatePart})]


class ReplicaSpec(Wire, frozen=True):
    template: JobTemplate
    replicas: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    ps_root_port: Port = msgspec.field(name="PsRootPort", default=9091)
    mx_replica_type: ReplicaType = "WORKER"
    restart_scope: RestartScope = "All"


class MxJobSpec(Wire, frozen=True):
    job_mode: JobMode
    replica_specs: Annotated[tuple[ReplicaSpec, ...], msgspec.Meta(min_length=1, max_length=3)]
    runtime_id: RuntimeId = msgspec.field(name="RuntimeId", default="")
    backoff_limit: Count | None = None
    active_deadline_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    ttl_seconds_after_finished: Count | None = None
    clean_pod_policy: CleanPodPolicy = "Running"
    restarting_exit_code: Annotated[str, msgspec.Meta(max_length=512, extra={"pattern": EXIT_CODES})] = ""
    suspend: bool = False
    scheduling_policy: SchedulingPolicy | None = None
    managed_by: ManagedBy = ""


class ReplicaStatus(Wire, frozen=True):
    """The replicas of one type: the state of all together, and how many are in which state."""

    mx_replica_type: str = msgspec.field(name="Mx_replica_type")
    state: str
    replicas_states: dict[str, int] = msgspec.field(name="ReplicasStates", default_factory=dict)


class MxJobStatus(Wire, frozen=True):
    phase: str = ""
    state: str = ""
    reason: str = ""
    """Why it failed."""
    observed_generation: int = 0
    runtime_id: str = ""
    conditions: Conditions = ()
    replica_statuses: tuple[ReplicaStatus, ...] = ()
    restarts: dict[str, Restarts] = {}
    restart_history: tuple[Restart, ...] = ()
    done: dict[str, tuple[int, ...]] = {}
    """The indices of a type that have succeeded in this attempt. Their Jobs may be deleted by now."""
    ports: Ports = {}
    node_troubles: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen."""
    failure: Failure | None = None
    """Which replica failed first and how, of a job that has failed. It stays when the pods are deleted."""
    start_time: datetime | None = None
    completion_time: datetime | None = None


class MxJob(Wire, frozen=True):
    """A training job of MXNet: one worker by itself, or workers with parameter servers and the scheduler by which they
    find each other. Every replica is a batch Job."""

    metadata: ObjectMeta
    spec: MxJobSpec
    status: MxJobStatus = MxJobStatus()


class FirstMxJob(MxJob, frozen=True):
    """A training job of MXNet, in the group that such jobs had first; new ones belong to mxnet.mlkube.io."""
