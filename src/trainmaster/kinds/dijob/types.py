"""DIJob, diengine.opendilab.org/v1alpha1: a reinforcement-learning job around one coordinator."""

from datetime import datetime
from typing import Literal

from trainmaster.core.condition import Conditions
from trainmaster.core.ids import Resource
from trainmaster.core.wire import ManagedBy, ObjectMeta, Ports, Template, Volumes, Wire
from trainmaster.kinds.dijob.declaration import Declared

RESOURCE = Resource("diengine.opendilab.org", "v1alpha1", "dijobs", "DIJob")


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


class RoleStatus(Wire, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class Displaced(Wire, frozen=True):
    """The last pod of a standing role that was lost, and comes again. On record before it is deleted."""

    uid: str
    at: datetime
    times: int = 0


class DIJobStatus(Wire, frozen=True):
    phase: str = ""
    observed_generation: int = 0
    conditions: Conditions = ()
    replica_status: dict[str, RoleStatus] = {}
    ports: Ports = {}
    declared: Declared = Declared()
    displaced: dict[str, Displaced] = {}
    start_time: datetime | None = None
    completion_time: datetime | None = None


class DIJob(Wire, frozen=True):
    """A reinforcement-learning job of DI-engine: its coordinator runs first and asks for collectors and learners."""

    metadata: ObjectMeta
    spec: DIJobSpec
    status: DIJobStatus = DIJobStatus()
