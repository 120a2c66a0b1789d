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
    replicas: Count = 1
    restart_policy: Literal["Always", "OnFailure", "Never", "ExitCode"] = "Never"
    restart_scope: Literal["All", "Pod"] | None = None
    label: str = ""
    """The key of a TVM server, before it became the annotation ``tuner-server-key``."""


class MXJobSpec(Policy, frozen=True, kw_only=True):
    job_mode: Literal["MXTrain", "MXTune"]
    mx_replica_specs: Annotated[dict[str, ReplicaSpec], msgspec.Meta(min_length=1, max_length=6)]
    run_policy: Annotated[RunPolicy, msgspec.Meta(extra={"default": {}})] = RunPolicy()
    """Always on the wire: the Kubeflow client reads no job without one."""
    success_policy: Literal["", "AllWorkers"] = ""
    restarting_exit_code: Annotated[str, msgspec.Meta(max_length=512, extra={"pattern": EXIT_CODES})] = ""


class MXJob(Wire, frozen=True):
    """MXNet in a parameter server's roles (MXTrain), or TVM that tunes its operators (MXTune)."""

    metadata: ObjectMeta
    spec: MXJobSpec
    status: JobStatus = JobStatus()
