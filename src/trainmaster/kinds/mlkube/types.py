"""MxJob, mxnet.mlkube.io/v1beta1: training with MXNet, a batch Job for each replica. Some manifests still say
mlkube.io/v1beta1, as the group was called before: both are served, and mean the same."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.ids import Resource
from trainmaster.core.template import PodSpecPart, Port, TemplatePart
from trainmaster.core.wire import Deadline, Generation, ManagedBy, Number, ObjectMeta, Ports, Wire
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.gang import SchedulingPolicy
from trainmaster.lifecycle.restart import EXIT_CODES, Restart, Restarts
from trainmaster.lifecycle.summary import Summary

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
    """Whether the kubelet restarts a container that failed. By default Never; with ``restartScope`` All always
    Never."""


class JobTemplatePart(TemplatePart):
    """The fields that we read of the pod template of a batch Job."""

    spec: JobPodSpecPart
    """The spec of the pods. All fields of a PodSpec are kept; kubectl explain pod.spec describes them."""


JobTemplate = Annotated[dict[str, Any], msgspec.Meta(extra={"schema": JobTemplatePart})]


class ReplicaSpec(Wire, frozen=True):
    template: JobTemplate
    """The pod template of the type. It needs a container ``mxnet``: this gets the variables, and the replica ends with
    it. With ``restartScope`` All the ``restartPolicy`` of the pods is always Never."""
    replicas: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """The number of replicas; there is one SCHEDULER. It cannot be changed when the job has begun."""
    ps_root_port: Port = msgspec.field(name="PsRootPort", default=9091)
    """The port on which the scheduler listens. It cannot be changed when the job has begun."""
    mx_replica_type: ReplicaType = "WORKER"
    """What the replicas are to MXNet. Each type occurs once."""
    restart_scope: RestartScope = "All"
    """What restarts when a replica is lost. All: all replicas, under another runtime id. Pod: that replica alone, by
    its batch Job, for programs that let a worker join again."""


class MxJobSpec(Wire, frozen=True):
    job_mode: JobMode
    """local: one WORKER, without variables. dist: one SCHEDULER, with SERVERs and WORKERs."""
    replica_specs: Annotated[tuple[ReplicaSpec, ...], msgspec.Meta(min_length=1, max_length=3)]
    """The types of replicas, each once."""
    runtime_id: RuntimeId = msgspec.field(name="RuntimeId", default="")
    """Part of the names of all replicas. By default four characters that are derived from the job. When all replicas
    restart, they get another one: ``status.runtimeId`` is the one in use."""
    backoff_limit: Count | None = None
    """How often all replicas, or one that restarts alone, may restart. The default is 6. With ``restartScope`` All
    evictions are not counted."""
    active_deadline_seconds: Deadline | None = None
    """After this time the job has failed. The time in which it is suspended does not count. By default there is no
    deadline."""
    ttl_seconds_after_finished: Count | None = None
    """The job is deleted this time after its end. By default it is kept."""
    clean_pod_policy: CleanPodPolicy = "Running"
    """What happens to batch Jobs when the job has ended. Running: those that still run are suspended, and pods that
    have ended are kept. All: all are deleted. None: nothing is changed."""
    restarting_exit_code: Annotated[str, msgspec.Meta(max_length=512, extra={"pattern": EXIT_CODES})] = ""
    """Exit codes below 128 after which replicas restart, such as 1, 3-5. By default these fail the job. Codes of
    signals, from 128 on, always restart."""
    suspend: bool = False
    """True: the batch Jobs are suspended, and deleted when their pods are gone. False again: all replicas start again,
    under another runtime id."""
    scheduling_policy: SchedulingPolicy | None = None
    """What the PodGroup of the job asks for. It has an effect if the operator has a gang scheduler."""
    managed_by: ManagedBy = ""
    """The controller that runs the job, for example kueue.x-k8s.io/multikueue. With any name other than that of the
    operator, the operator does not touch the job. It cannot be changed."""


class ReplicaStatus(Wire, frozen=True):
    """The replicas of one type: the state of all together, and how many are in which state."""

    mx_replica_type: str = msgspec.field(name="Mx_replica_type")
    """SCHEDULER, SERVER or WORKER."""
    state: str
    """The state of all replicas of the type together."""
    replicas_states: dict[str, Number] = msgspec.field(name="ReplicasStates", default_factory=dict)
    """How many replicas of the type are in which state."""


class MxJobStatus(Wire, frozen=True):
    phase: str = ""
    """Creating, Running, Suspended, CleanUp, and at the end Done."""
    state: str = ""
    """Unknown, Running, Succeeded or Failed."""
    reason: str = ""
    """Why the job has failed: pod, node and exit code."""
    observed_generation: Generation = 0
    """The generation of the spec that this status is about."""
    runtime_id: str = ""
    """The runtime id in the names of the present replicas."""
    conditions: Conditions = ()
    """The conditions that all kinds have, and Ready and Recovering."""
    replica_statuses: tuple[ReplicaStatus, ...] = ()
    """The state of the replicas of each type."""
    restarts: dict[str, Restarts] = {}
    """What is counted of the restarts of each type."""
    restart_history: tuple[Restart, ...] = ()
    """The last ten restarts."""
    done: dict[str, tuple[Number, ...]] = {}
    """The indices of the replicas of each type that have succeeded in this attempt. Their Jobs may be deleted by
    now."""
    ports: Ports = {}
    """The ports of replicas that share a network: by replica, then by the port that its template declares."""
    node_troubles: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen. A device
    that a node no longer has is listed as ``node/device``."""
    pod_group: str = ""
    """The pod group of Kueue with the last pods that were seen. When they are gone, the next ones are another group."""
    failure: Failure | None = None
    """Which replica failed first and how, of a job that has failed. It stays when the pods are deleted."""
    start_time: datetime | None = None
    """When the job got its first status."""
    completion_time: datetime | None = None
    """When the job ended."""
    summary: Summary = Summary()
    """What kubectl get shows of the job."""


class MxJob(Wire, frozen=True):
    """A training job of MXNet: one worker by itself, or workers with parameter servers and a scheduler, by which they
    find each other. Every replica is a batch Job."""

    metadata: ObjectMeta
    """Standard metadata of an object. Names of pods and services are made from the name of the job."""
    spec: MxJobSpec
    """What the job shall do."""
    status: MxJobStatus = MxJobStatus()
    """What the operator knows about the job. Do not edit it."""


class FirstMxJob(MxJob, frozen=True):
    """A training job of MXNet, in the older group of such jobs. New jobs should use mxnet.mlkube.io, with the same
    fields."""
