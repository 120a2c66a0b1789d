"""DIJob, diengine.opendilab.org/v2alpha1: tasks whose replicas find each other by rank.

v1alpha1 shares the resource (docs/decisions/0009). The union of both is the schema of the definition. It has no
defaults: the API server would write those of one version into jobs of the other.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.wire import Anything, Generation, ManagedBy, Number, ObjectMeta, Ports, Template, Volumes, Wire
from trainmaster.kinds.dijob.declaration import Declared, LastRequest
from trainmaster.kinds.dijob.types import RESOURCE, RoleSpec, RoleStatus, RunPolicy
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.restart import Restart, Restarts
from trainmaster.lifecycle.summary import Summary

VERSION = "v2alpha1"

__all__ = ["RESOURCE", "VERSION", "DITaskJob", "DITaskSpec", "DITaskStatus", "RequestedReplicas", "Task", "UnionJob"]

Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
TaskName = Annotated[str, msgspec.Meta(max_length=63)]

_ATOMIC = {"openapi": {"x-kubernetes-map-type": "atomic"}}
"""The operator alone writes it. Field by field the managed fields would be as long again."""


class Task(Wire, frozen=True):
    template: Template
    """The pod template of the task. ``restartPolicy`` of the pods is always Never: the operator restarts pods, not the
    kubelet. The container di-container trains; without one of this name all containers do."""
    name: TaskName = ""
    """The name of the task, a DNS label. By default it is that of the type; a task of the type none needs a name."""
    type: Literal["learner", "collector", "evaluator", "none"] = "none"
    """What the task does. learner, collector and evaluator may occur once each."""
    replicas: Count = 1
    """The number of pods of the task. All tasks together may have 10000. It may be changed while the job runs: no pod
    that stays is restarted."""
    min_replicas: Count | None = None
    """The fewest replicas that ``kubectl scale`` and di-server may set. It may not be more than ``replicas``."""
    max_replicas: Count | None = None
    """The most replicas that ``kubectl scale`` and di-server may set. It may not be less than ``replicas``."""
    restart_scope: Literal["Pod", "All"] = "Pod"
    """What restarts when a pod of the task has failed. Pod: that pod alone. All: all pods of the task."""


Tasks = Annotated[tuple[Task, ...], msgspec.Meta(min_length=1, max_length=32)]


class DITaskSpec(Wire, frozen=True, kw_only=True):
    tasks: Tasks
    """The tasks of a job of v2alpha1. They run together until all of their pods have succeeded. A job has either tasks
    or a coordinator, and keeps what it has."""
    group: str = ""
    """Free text, without effect."""
    priority: Literal["normal", "high", ""] = ""
    """Of jobs with tasks. high: the pods have the PriorityClass of this name, if there is one. normal, or empty: they
    have none."""
    preemptible: bool = False
    """Of jobs with tasks. True: a pod that was ended by SIGTERM is started again and not charged to
    ``backoffLimit``."""
    backoff_limit: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 3
    """Of jobs with tasks: restarts after failures before the job fails. A negative number sets no limit. Evictions and
    lost nodes are not counted, and pods that fail within ten seconds count once."""
    clean_pod_policy: Literal["Running", "All", "ALL", "None", ""] = "Running"
    """Which pods are deleted when the job has ended. Running: those that still run. All, or ALL: all. None: none.
    Services are always deleted."""
    volumes: Volumes = []
    """Volumes that are added to every pod, except aggregators."""
    managed_by: ManagedBy = ""
    """The controller that runs the job, for example kueue.x-k8s.io/multikueue. With any name other than
    diengine.opendilab.org/trainmaster the operator does not touch the job. It cannot be changed."""
    run_policy: RunPolicy = RunPolicy()
    """Suspension, deadline, time to live, gang and restart scope of the job."""
    replicas: Count | None = None
    """Of jobs with tasks: replaces ``replicas`` of the scaled task. ``kubectl scale`` and autoscalers write it. It must
    be between ``minReplicas`` and ``maxReplicas`` of the task."""
    scaled_task: TaskName = ""
    """Of jobs with tasks: the task that ``replicas`` is about. By default the collector."""
    coordinator: Anything = None
    """Of jobs of v1alpha1: a job with tasks must not have one."""


class RequestedReplicas(Wire, frozen=True):
    """What di-server was asked for. It counts as long as the spec asks for ``spec_replicas``."""

    replicas: Count
    """The requested number of replicas."""
    spec_replicas: Count
    """The number in the spec when they were requested. The request counts as long as the spec has this number."""


class DITaskStatus(Wire, frozen=True, kw_only=True):
    """``profilings`` is missing: di-server alone writes it."""

    phase: str = ""
    """With tasks Pending, Starting, Running, Restarting or Rescheduling; with a coordinator Created or Running. At the
    end Succeeded or Failed."""
    observed_generation: Generation = 0
    """The generation of the spec that this status is about."""
    conditions: Conditions = ()
    """The conditions that all kinds have, and then each phase that the job has had, the present one last."""
    replicas: Number = 0
    """The number of pods that the job has when all of them are created."""
    ready_replicas: Number | None = None
    """The number of pods that are ready."""
    restarts: Number | None = None
    """How often pods were restarted after failures."""
    reschedules: Number | None = None
    """Of jobs with tasks: how often pods were created again for another reason than a failure, such as a lost node or
    another number of replicas."""
    task_status: dict[str, dict[str, Number]] = {}
    """How many pods of each task are in which phase."""
    allocation: tuple[str, ...] = ()
    """The node of each replica, by rank."""
    ranks: Annotated[dict[str, Number], msgspec.Meta(extra=_ATOMIC)] = {}
    """The rank of each replica, by task and index. A rank does not change while the job has pods."""
    requested_replicas: dict[str, RequestedReplicas] = {}
    """The numbers of replicas of tasks that were requested through di-server."""
    last_request: LastRequest | None = None
    """The last request to di-server, by which the same request is recognised when its response got lost."""
    scaled_replicas: Number = 0
    """The pods of the scaled task, as the scale subresource shows them."""
    selector: str = ""
    """The label selector of the pods of the scaled task, as the scale subresource shows it."""
    attempts: dict[str, Restarts] = {}
    """What is counted of the restarts of each task."""
    restart_history: tuple[Restart, ...] = ()
    """The last ten restarts."""
    ran: dict[str, tuple[Number, ...]] = {}
    """The indices of the replicas of a task or role whose pod was seen running in this attempt."""
    done: dict[str, tuple[Number, ...]] = {}
    """The indices of the replicas of a task that have succeeded in this attempt. They are not created again."""
    node_troubles: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen. A device
    that a node no longer has is listed as ``node/device``."""
    pod_group: str = ""
    """The pod group of Kueue with the last pods that were seen. When they are gone, the next ones are another group."""
    failure: Failure | None = None
    """Which replica failed first and how, of a job that has failed. It stays when the pods are deleted."""
    clean: CleanPodPolicy | None = None
    """Replaces ``cleanPodPolicy`` of the spec, where that would leave pods running."""
    start_time: datetime | None = None
    """When the job was started, or resumed."""
    completion_timestamp: datetime | None = None
    """When a job with tasks ended."""
    summary: Summary = Summary()
    """What kubectl get shows of the job."""


class DITaskJob(Wire, frozen=True):
    metadata: ObjectMeta
    """Standard metadata of an object. Names of pods and services are made from the name of the job."""
    spec: DITaskSpec
    """What the job shall do."""
    status: DITaskStatus = DITaskStatus()
    """What the operator knows about the job. Do not edit it."""


# --- both versions ---


class UnionSpec(DITaskSpec, frozen=True, kw_only=True):
    tasks: Tasks | None = None  # type: ignore[assignment]  # jobs of v1alpha1 have none
    coordinator: RoleSpec | None = None
    """The coordinator of a job of v1alpha1. It runs first, and the job ends with its main container: exit code 0 is
    Succeeded, any other one is Failed. A job has either a coordinator or tasks, and keeps what it has."""
    collector: RoleSpec | None = None
    """Of jobs with a coordinator: the collectors that it may request from di-server. Without it, it can request
    none."""
    learner: RoleSpec | None = None
    """Of jobs with a coordinator: the learners that it may request from di-server. Without this field there are
    none."""
    priority_class_name: str = ""
    """Of jobs with a coordinator: the PriorityClass of every pod. By default the templates decide."""


class UnionStatus(DITaskStatus, frozen=True, kw_only=True):
    restarts: Anything = None
    """With tasks a number: how often pods were restarted after failures. With a coordinator a map: what is counted of
    the restarts of each role."""
    profilings: Annotated[dict[str, Anything], msgspec.Meta(extra=_ATOMIC)] = {}
    """What the replicas of a job with tasks reported about themselves to di-server."""
    replica_status: dict[str, RoleStatus] = {}
    """Of jobs with a coordinator: how many pods of each role are in which state."""
    declared: Declared = Declared()
    """Of jobs with a coordinator: the replicas that it requested through di-server."""
    ports: Ports = {}
    """The ports of replicas that share a network: by replica, then by the port that its template declares."""
    completion_time: datetime | None = None
    """When a job with a coordinator ended."""


class UnionJob(Wire, frozen=True):
    """A reinforcement-learning job of DI-engine. It has tasks (v2alpha1), or a coordinator that runs first and requests
    collectors and learners (v1alpha1)."""

    metadata: ObjectMeta
    """Standard metadata of an object. Names of pods and services are made from the name of the job."""
    spec: UnionSpec
    """What the job shall do."""
    status: UnionStatus = UnionStatus()
    """What the operator knows about the job. Do not edit it."""
