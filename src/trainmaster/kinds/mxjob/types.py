"""MXJob, kubeflow.org/v1: MXNet with a parameter server, and TVM's tuning.

Two generations of manifests are read. The mxnet-operator had the fields of ``runPolicy`` in the spec itself, and
``successPolicy`` and ``label``, which the training-operator forgot.
"""

from typing import Annotated, Literal

import msgspec

from trainmaster.core.ids import Resource
from trainmaster.core.wire import ObjectMeta, Template, Wire
from trainmaster.kinds.kubeflow_status import JobStatus
from trainmaster.kinds.run_policy import Policy, RunPolicy
from trainmaster.lifecycle.restart import EXIT_CODES

RESOURCE = Resource("kubeflow.org", "v1", "mxjobs", "MXJob")

Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class ReplicaSpec(Wire, frozen=True):
    template: Template
    """The pod template of the role. It needs a container ``mxnet``, whose ports are published; the port ``mxjob-port``
    9091 is added. ``restartPolicy`` of the pods is always Never: the operator restarts pods, not the kubelet."""
    replicas: Count = 1
    """The number of pods of the role. A Scheduler or TunerTracker has exactly one. All roles together may have
    10000."""
    restart_policy: Literal["Always", "OnFailure", "Never", "ExitCode"] = "Never"
    """What happens when a pod fails. Never: the job has failed. OnFailure, Always: restart. ExitCode: restart if the
    code is in ``restartingExitCode``, or if the kubelet ended the pod."""
    restart_scope: Literal["All", "Pod"] | None = None
    """All: when a pod of the role restarts, all pods of the job do. Pod: that pod alone, for programs that let a
    replica join again. The default is All with MXTrain and Pod with MXTune."""
    label: str = ""
    """The key of a TVM server. The annotation ``tuner-server-key`` of the template replaces it."""


class MXJobSpec(Policy, frozen=True, kw_only=True):
    job_mode: Literal["MXTrain", "MXTune"]
    """MXTrain: the roles Scheduler, Server and Worker, or Worker alone. MXTune: TunerTracker, TunerServer and Tuner."""
    mx_replica_specs: Annotated[dict[str, ReplicaSpec], msgspec.Meta(min_length=1, max_length=6)]
    """The roles of the job, by name, in any case."""
    run_policy: Annotated[RunPolicy, msgspec.Meta(extra={"default": {}})] = RunPolicy()
    """How the job is run. It is always stored, because Kubeflow's client reads no job without it. Most of its fields
    may also be in the spec itself; if a field is in both places, the values must be equal."""
    success_policy: Literal["", "AllWorkers"] = ""
    """AllWorkers: the job has succeeded when all workers have. By default when the scheduler has, or without one all
    workers; with MXTune all tuners."""
    restarting_exit_code: Annotated[str, msgspec.Meta(max_length=512, extra={"pattern": EXIT_CODES})] = ""
    """The exit codes after which the restart policy ExitCode restarts: numbers, ranges and signals, such as 130,
    137-143, SIGSEGV. By default 128-255."""


class MXJob(Wire, frozen=True):
    """A training job of MXNet with a parameter server (MXTrain), or a job of TVM that tunes operators (MXTune)."""

    metadata: ObjectMeta
    """Standard metadata of an object. Names of pods and services are made from the name of the job."""
    spec: MXJobSpec
    """What the job shall do."""
    status: JobStatus = JobStatus()
    """What the operator knows about the job. Do not edit it."""
