"""DIJob, diengine.opendilab.org/v2alpha1: tasks whose replicas find each other by rank.

v1alpha1 shares the resource (docs/decisions/0009). The union of both is the schema of the definition. It has no
defaults: the API server would write those of one version into jobs of the other.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.wire import Anything, ManagedBy, ObjectMeta, Ports, Template, Volumes, Wire
from trainmaster.kinds.dijob.declaration import Declared, LastRequest
from trainmaster.kinds.dijob.types import RESOURCE, RoleSpec, RoleStatus, RunPolicy
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.restart import Restart, Restarts

VERSION = "v2alpha1"

__all__ = ["RESOURCE", "VERSION", "DITaskJob", "DITaskSpec", "DITaskStatus", "RequestedReplicas", "Task", "UnionJob"]

Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
TaskName = Annotated[str, msgspec.Meta(max_length=63)]

_ATOMIC = {"openapi": {"x-kubernetes-map-type": "atomic"}}
"""The operator alone writes it. Field by field the managed fields would be as long again."""


class Task(Wire, frozen=True):
    template: Template
    name: TaskName = ""
    """By default what the type is called."""
    type: Literal["learner", "collector", "evaluator", "none"] = "none"
    replicas: Count = 1
    min_replicas: Count | None = None
    max_replicas: Count | None = None
    restart_scope: Literal["Pod", "All"] = "Pod"
    """All: when one pod of the task has failed, all pods of the task restart."""


Tasks = Annotated[tuple[Task, ...], msgspec.Meta(min_length=1, max_length=32)]


class DITaskSpec(Wire, frozen=True, kw_only=True):
    tasks: Tasks
    group: str = ""
    priority: Literal["normal", "high", ""] = ""
    """With ``high`` the pods have the PriorityClass of this name, if there is one."""
    preemptible: bool = False
    """A pod that was ended by SIGTERM is started again and not charged to ``backoffLimit``."""
    backoff_limit: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 3
    """Restarts after failures. A negative number sets no limit."""
    clean_pod_policy: Literal["Running", "All", "ALL", "None", ""] = "Running"
    volumes: Volumes = []
    managed_by: ManagedBy = ""
    run_policy: RunPolicy = RunPolicy()
    replicas: Count | None = None
    """In the place of the replicas of the scaled task: what ``kubectl scale`` and autoscalers write."""
    scaled_task: TaskName = ""
    """By default the collector."""
    coordinator: Anything = None
    """Of v1alpha1: a job with tasks must not have one."""


class RequestedReplicas(Wire, frozen=True):
    """What di-server was asked for. It counts as long as the spec asks for ``spec_replicas``."""

    replicas: Count
    spec_replicas: Count


class DITaskStatus(Wire, frozen=True, kw_only=True):
    """``profilings`` is missing: di-server alone writes it."""

    phase: str = ""
    observed_generation: int = 0
    conditions: Conditions = ()
    replicas: int = 0
    ready_replicas: int | None = None
    restarts: Number | None = None
    reschedules: Number | None = None
    """These are stored when they are 0, too: columns of ``kubectl get`` show them."""
    task_status: dict[str, dict[str, int]] = {}
    allocation: tuple[str, ...] = ()
    """The node of each replica, by rank."""
    ranks: Annotated[dict[str, Number], msgspec.Meta(extra=_ATOMIC)] = {}
    """By <task>-<index>. A rank never changes while the job has pods."""
    requested_replicas: dict[str, RequestedReplicas] = {}
    last_request: LastRequest | None = None
    """The last one to di-server, by which the same request is recognised when its answer got lost."""
    scaled_replicas: int = 0
    selector: str = ""
    """Of the pods of the scaled task, as the scale subresource shows it."""
    attempts: dict[str, Restarts] = {}
    restart_history: tuple[Restart, ...] = ()
    ran: dict[str, tuple[int, ...]] = {}
    """The replicas of a task whose pod was seen running in this attempt."""
    done: dict[str, tuple[int, ...]] = {}
    """The replicas of a task whose pod has succeeded in this attempt. They are not created again."""
    node_troubles: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen."""
    failure: Failure | None = None
    """Which replica failed first and how, of a job that has failed. It stays when the pods are deleted."""
    clean: CleanPodPolicy | None = None
    """In the place of the job's own policy, where that would leave something running."""
    start_time: datetime | None = None
    completion_timestamp: datetime | None = None


class DITaskJob(Wire, frozen=True):
    metadata: ObjectMeta
    spec: DITaskSpec
    status: DITaskStatus = DITaskStatus()


# --- both versions ---


class UnionSpec(DITaskSpec, frozen=True, kw_only=True):
    tasks: Tasks | None = None  # type: ignore[assignment]  # jobs of v1alpha1 have none
    coordinator: RoleSpec | None = None
    collector: RoleSpec | None = None
    learner: RoleSpec | None = None
    priority_class_name: str = ""


class UnionStatus(DITaskStatus, frozen=True, kw_only=True):
    restarts: Anything = None
    """A number in v2alpha1; in v1alpha1 a map of what is remembered of each role."""
    profilings: Annotated[dict[str, Anything], msgspec.Meta(extra=_ATOMIC)] = {}
    replica_status: dict[str, RoleStatus] = {}
    declared: Declared = Declared()
    ports: Ports = {}
    completion_time: datetime | None = None


class UnionJob(Wire, frozen=True):
    """A reinforcement-learning job of DI-engine. It has tasks (v2alpha1), or a coordinator that runs first and asks for
    collectors and learners (v1alpha1)."""

    metadata: ObjectMeta
    spec: UnionSpec
    status: UnionStatus = UnionStatus()
