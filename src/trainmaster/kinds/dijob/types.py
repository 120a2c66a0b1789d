"""DIJob, diengine.opendilab.org/v1alpha1: a reinforcement-learning job around one coordinator."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.ids import Resource
from trainmaster.core.wire import ManagedBy, ObjectMeta, Ports, Template, Volumes, Wire
from trainmaster.kinds.dijob.declaration import Declared
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.gang import SchedulingPolicy
from trainmaster.lifecycle.restart import Restart, Restarts

RESOURCE = Resource("diengine.opendilab.org", "v1alpha1", "dijobs", "DIJob")


class RunPolicy(Wire, frozen=True):
    """How the job is run, as Kubeflow spells it."""

    suspend: bool = False
    active_deadline_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    scheduling_policy: SchedulingPolicy | None = None
    restart_scope: Literal["All", "Pod"] = "Pod"
    """What restarts when a pod fails or its container is restarted in place: all pods of the job, or the pod alone."""


class RoleSpec(Wire, frozen=True):
    template: Template


class DIJobSpec(Wire, frozen=True):
    coordinator: RoleSpec
    collector: RoleSpec | None = None
    learner: RoleSpec | None = None
    group: str = ""
    priority_class_name: str = ""
    clean_pod_policy: Literal["Running", "All", "ALL", "None", ""] = "Running"
    volumes: Volumes = []
    managed_by: ManagedBy = ""
    run_policy: RunPolicy = RunPolicy()


class RoleStatus(Wire, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class DIJobStatus(Wire, frozen=True):
    phase: str = ""
    observed_generation: int = 0
    conditions: Conditions = ()
    replica_status: dict[str, RoleStatus] = {}
    ports: Ports = {}
    declared: Declared = Declared()
    restarts: dict[str, Restarts] = {}
    """Of the roles whose pods the operator creates by itself, and of all roles with the restart scope All. Otherwise a
    declared replica is replaced under another name."""
    ran: dict[str, tuple[int, ...]] = {}
    """With the restart scope All, roles that the operator creates by itself whose pod has run."""
    restart_history: tuple[Restart, ...] = ()
    node_troubles: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen."""
    failure: Failure | None = None
    """Which replica failed first and how, of a job that has failed. It stays when the pods are deleted."""
    clean: CleanPodPolicy | None = None
    """In the place of the job's own policy, where that would leave something running."""
    start_time: datetime | None = None
    completion_time: datetime | None = None


class DIJob(Wire, frozen=True):
    """A reinforcement-learning job of DI-engine: its coordinator runs first and asks for collectors and learners."""

    metadata: ObjectMeta
    spec: DIJobSpec
    status: DIJobStatus = DIJobStatus()
