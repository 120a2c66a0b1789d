"""AITrainingJob, elasticdeeplearning.ai/v1: generic training jobs of any number of roles."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.ids import Resource
from trainmaster.core.wire import ManagedBy, ObjectMeta, Ports, Template, Wire
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import EndPolicy
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.restart import EXIT_CODES, Restart, RestartPolicy, Restarts, RestartScope

RESOURCE = Resource("elasticdeeplearning.ai", "v1", "aitrainingjobs", "AITrainingJob")

Seconds = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Edl = Literal["Auto", "Manual", "Never"]
"""Whether the number of replicas may change while the job goes on: by the room that there is, by its user, or not."""


class ReplicaSpec(Wire, frozen=True):
    template: Template
    replicas: Count = 1
    min_replicas: Count | None = None
    max_replicas: Count | None = None
    restart_limit: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    restart_policy: RestartPolicy = "Never"
    restart_scope: RestartScope = "All"
    restart_backoff_seconds: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 10
    restart_reset_seconds: Seconds | None = None
    fail_policy: EndPolicy = "Any"
    complete_policy: EndPolicy = "All"
    edl_policy: Edl = "Never"


class AITrainingJobSpec(Wire, frozen=True):
    replica_specs: Annotated[dict[str, ReplicaSpec], msgspec.Meta(min_length=1, max_length=32)]
    elastic_replicas: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """In the place of the replicas of the one elastic role: what ``kubectl scale`` and autoscalers write."""
    framework_type: str = ""
    """Which variables training containers get, see framework.py. Other words have no effect."""
    fault_tolerant: bool = False
    priority: Annotated[str, msgspec.Meta(max_length=63, pattern=r"^([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?$")] = ""
    scheduler_name: str = ""
    time_limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    pending_time_limit: Seconds | None = None
    creating_time_limit: Seconds | None = None
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    suspend: bool = False
    requeue_on_preemption: bool = False
    restarting_exit_code: Annotated[str, msgspec.Meta(max_length=512, extra={"pattern": EXIT_CODES})] = ""
    clean_pod_policy: CleanPodPolicy = "All"
    fail_policy: EndPolicy = "Any"
    complete_policy: EndPolicy = "All"
    managed_by: ManagedBy = ""


class ReplicaStatus(Wire, frozen=True):
    pending: int = 0
    scheduled: int = 0
    active: int = 0
    succeeded: int = 0
    restarting: int = 0
    failed: int = 0


class Ending(Wire, frozen=True):
    """The verdict while the pods are being removed: on record before the first of them is deleted."""

    phase: str
    message: str = ""
    clean: CleanPodPolicy | None = None
    """In the place of the job's own policy, where that would leave something running."""


class MembershipRecord(Wire, frozen=True):
    """The last membership of an elastic job; ``digest`` stands for its members. The first one has none."""

    generation: int = 1
    digest: str = ""
    time: datetime | None = None


class AITrainingJobStatus(Wire, frozen=True):
    phase: str = ""
    observed_generation: int = 0
    conditions: Conditions = ()
    replica_statuses: dict[str, ReplicaStatus] = {}
    restart_count: dict[str, int] = msgspec.field(name="RestartCount", default_factory=dict)
    restart_replica_name: str = msgspec.field(name="RestartReplicaName", default="")
    restarts: dict[str, Restarts] = {}
    restart_history: tuple[Restart, ...] = ()
    done: dict[str, tuple[int, ...]] = {}
    """The replicas of the present attempt that have succeeded, by role: their pods may be deleted by now."""
    elastic_replicas: int = 0
    selector: str = ""
    """Of the pods of the elastic role, as the scale subresource shows it."""
    membership: MembershipRecord = MembershipRecord()
    creation_errors: dict[str, datetime] = {}
    """The replicas whose containers cannot be created, and since when."""
    node_troubles: dict[str, datetime] = {}
    """Nodes with which something is wrong, and since when that is seen; where the node itself does not tell it."""
    ports: Ports = {}
    failure: Failure | None = None
    """Which replica failed first and how, of a job that has failed. It stays when the pods are deleted."""
    ending: Ending | None = None
    start_time: datetime | None = None
    first_running_time: datetime | None = None
    start_running_time: datetime | None = None
    end_time: datetime | None = None


class AITrainingJob(Wire, frozen=True):
    """A training job of any number of replica groups, each with its own template, end policies and restart policy."""

    metadata: ObjectMeta
    spec: AITrainingJobSpec
    status: AITrainingJobStatus = AITrainingJobStatus()
