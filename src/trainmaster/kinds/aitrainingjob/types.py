"""AITrainingJob, elasticdeeplearning.ai/v1: generic training jobs of any number of roles."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.ids import Resource
from trainmaster.core.wire import Deadline, Generation, ManagedBy, Number, ObjectMeta, Ports, Template, Wire
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import EndPolicy
from trainmaster.lifecycle.deadline import Wait
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.restart import EXIT_CODES, Restart, RestartPolicy, Restarts, RestartScope
from trainmaster.lifecycle.summary import Summary

RESOURCE = Resource("elasticdeeplearning.ai", "v1", "aitrainingjobs", "AITrainingJob")

Seconds = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Edl = Literal["Auto", "Manual", "Never"]
"""Whether the number of replicas may change while the job goes on: by the room that there is, by its user, or not."""

_CLEAN: dict[str, CleanPodPolicy] = {
    "All": "All",
    "Running": "Running",
    "None": "None",
    "CleanPodPolicyAll": "All",
    "CleanPodPolicyNone": "None",
}


class ReplicaSpec(Wire, frozen=True):
    template: Template
    """The pod template of the role. ``restartPolicy`` of the pods is always Never: the operator restarts pods, not the
    kubelet. Containers named aitj-… train and the others are side-cars; without such a name all containers train."""
    replicas: Count = 1
    """The number of pods of the role. It may be changed while the job runs. A role with 0 replicas does not count for
    the end of the job."""
    min_replicas: Count | None = None
    """The fewest replicas that an elastic role runs with. By default as many as ``replicas``, which it may not
    exceed."""
    max_replicas: Count | None = None
    """The most replicas that an elastic role may be scaled to. With edlPolicy Auto so many pods are created. It may
    not be less than ``replicas``."""
    restart_limit: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """How many restarts the role may cause; 0 never restarts. By default there is no limit. Evictions are not counted,
    and pods that fail within ten seconds count once. When the limit is used up, a failed pod has failed, and
    ``failPolicy`` decides."""
    restart_policy: RestartPolicy = "Never"
    """After which faults pods restart. OnFailure: its program failed, or the kubelet ended the pod. ExitCode: all exit
    codes are in ``restartingExitCode``. OnNodeFail: the kubelet ended the pod, or its node is lost.
    OnNodeFailWithExitCode: either of these two. Always: all faults."""
    restart_scope: RestartScope = "All"
    """Which pods restart with a failed pod. All: all pods of the job. Replica: all pods of the role. Pod: the failed
    pod alone."""
    restart_backoff_seconds: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 10
    """The first restart follows at once, the second in a row after this time, each later one after twice the time, at
    most 300 seconds. 0 never waits. Ten minutes of Running without a fault end the row."""
    restart_reset_seconds: Seconds | None = None
    """After the job has run for this time without a fault, ``restartLimit`` starts again from zero. By default it does
    not."""
    fail_policy: EndPolicy = "Any"
    """When the role has failed. Any: its first pod has. All: all of its pods have. Rank0: pod 0 has. None: never."""
    complete_policy: EndPolicy = "All"
    """When the role has succeeded. Any: its first pod has. All: all of its pods have. Rank0: pod 0 has. None: never."""
    edl_policy: Edl = "Never"
    """How the number of replicas may change while the job runs, between ``minReplicas`` and ``maxReplicas``. Never:
    only by an edit of ``replicas``. Manual: by scaling. Auto: as many of ``maxReplicas`` take part as there is room
    for, and the job continues without those whose node is lost."""


class AITrainingJobSpec(Wire, frozen=True):
    replica_specs: Annotated[dict[str, ReplicaSpec], msgspec.Meta(min_length=1, max_length=32)]
    """The roles of the job, by name. A name has letters, digits and -; two names must differ in more than case. All
    roles together may have 10000 replicas."""
    elastic_replicas: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    """Replaces ``replicas`` of the one role whose edlPolicy is Manual or Auto. ``kubectl scale`` and autoscalers write
    it. It must be between ``minReplicas`` and ``maxReplicas`` of the role."""
    framework_type: str = ""
    """pytorch, tensorflow, paddle, mxnet or jax, in any case: training containers get the variables that the framework
    reads. Any other word is accepted, without effect."""
    fault_tolerant: bool = False
    """Accepted for old manifests, without effect."""
    priority: Annotated[str, msgspec.Meta(max_length=63, pattern=r"^([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?$")] = ""
    """The label ``priority`` of the pods, and their ``priorityClassName`` if the template has none and such a
    PriorityClass exists."""
    scheduler_name: str = ""
    """Replaces ``schedulerName`` of every pod. By default the templates decide."""
    time_limit: Deadline | None = None
    """Seconds from the time when all pods had started. When they are over, the job ends in the phase Timeout. By
    default there is no limit. A suspension resets it."""
    pending_time_limit: Seconds | None = None
    """Seconds that the job may wait for nodes, at its start or after a restart. When they are over, the job ends in the
    phase Timeout. Time in a suspension, in a queue of Kueue or in a back-off is not counted. By default there is no
    limit."""
    creating_time_limit: Seconds | None = None
    """Seconds that containers may take to be created once all pods have nodes. When they are over, the job ends in the
    phase Timeout. By default there is no limit."""
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """The job is deleted this time after its end, with all that is left of it. By default it is kept."""
    suspend: bool = False
    """True: the pods that have not ended are deleted. False again: they are created again."""
    requeue_on_preemption: bool = False
    """True: the annotation ``Preempted`` suspends the job until the annotation is removed, instead of ending it."""
    restarting_exit_code: Annotated[str, msgspec.Meta(max_length=512, extra={"pattern": EXIT_CODES})] = ""
    """The exit codes for the restart policies ExitCode and OnNodeFailWithExitCode: numbers, ranges and signals, such as
    137, 140-143, SIGSEGV. By default there are none."""
    clean_pod_policy: Literal["All", "Running", "None", "CleanPodPolicyAll", "CleanPodPolicyNone"] = "All"
    """Which pods are deleted when the job has ended. All: all. Running: those in which no container has ended. None:
    none. CleanPodPolicyAll and CleanPodPolicyNone mean All and None. After Timeout, Preempted and NodeFail all are
    deleted."""
    fail_policy: EndPolicy = "Any"
    """When the job has failed. Any: its first role has. All: all roles have. Rank0: pod 0 of the first role by name
    has. None: never by a role alone; when all roles have ended, the job has failed if one of them failed."""
    complete_policy: EndPolicy = "All"
    """When the job has succeeded. Any: its first role has. All: all roles have. Rank0: pod 0 of the first role by name
    has. None: never by a role alone; when all roles have ended, the job has succeeded if none failed."""
    managed_by: ManagedBy = ""
    """The controller that runs the job, for example kueue.x-k8s.io/multikueue. With any name other than
    elasticdeeplearning.ai/trainmaster the operator does not touch the job. It cannot be changed."""

    @property
    def clean(self) -> CleanPodPolicy:
        """The documents of the trainingjob-operator print the names of its constants instead of their values."""
        return _CLEAN[self.clean_pod_policy]


class ReplicaStatus(Wire, frozen=True):
    pending: Number = 0
    """Pods without a node."""
    scheduled: Number = 0
    """Pods with a node whose containers do not run yet."""
    active: Number = 0
    """Running pods."""
    succeeded: Number = 0
    """Pods that have succeeded."""
    restarting: Number = 0
    """Pods that are pending after a restart."""
    failed: Number = 0
    """Pods that have failed."""


class Ending(Wire, frozen=True):
    """The verdict while the pods are being removed: on record before the first of them is deleted."""

    phase: str
    """The phase that the job will have when its pods are gone."""
    message: str = ""
    """Why the job has ended."""
    clean: CleanPodPolicy | None = None
    """Replaces ``cleanPodPolicy`` of the spec, where that would leave pods running."""


class MembershipRecord(Wire, frozen=True):
    """The last membership of an elastic job; ``digest`` stands for its members. The first one has none."""

    generation: Number = 1
    """How often the members have changed. The file of members has the same number."""
    digest: str = ""
    """A digest of the members, by which a change is noticed."""
    time: datetime | None = None
    """When the members changed."""


class AITrainingJobStatus(Wire, frozen=True):
    phase: str = ""
    """Pending, Creating, Running, Terminating or Restarting; at the end Succeed, Failed, Timeout, NodeFail or
    Preempted."""
    observed_generation: Generation = 0
    """The generation of the spec that this status is about."""
    conditions: Conditions = ()
    """The conditions that all kinds have, and then each phase that the job has had, the present one last."""
    replica_statuses: dict[str, ReplicaStatus] = {}
    """How many pods of each role are in which state."""
    restart_count: dict[str, Number] = msgspec.field(name="RestartCount", default_factory=dict)
    """How often each role was restarted. It only grows."""
    restart_replica_name: str = msgspec.field(name="RestartReplicaName", default="")
    """The role whose restart is in progress."""
    restarts: dict[str, Restarts] = {}
    """What is counted of the restarts of each role."""
    restart_history: tuple[Restart, ...] = ()
    """The last ten restarts."""
    done: dict[str, tuple[Number, ...]] = {}
    """The indices of the replicas of each role that have succeeded in this attempt. Their pods may be deleted by
    now."""
    elastic_replicas: Number = 0
    """The pods of the elastic role, as the scale subresource shows them."""
    selector: str = ""
    """The label selector of the pods of the elastic role, as the scale subresource shows it."""
    membership: MembershipRecord = MembershipRecord()
    """The last change of the members of an elastic job."""
    creation_errors: dict[str, datetime] = {}
    """The replicas whose containers cannot be created, and since when."""
    node_troubles: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen. A device
    that a node no longer has is listed as ``node/device``."""
    wait: Wait | None = None
    """What the job waits for until it runs, and since when. Only in jobs with ``pendingTimeLimit`` or
    ``creatingTimeLimit``."""
    ports: Ports = {}
    """The ports of replicas that share a network: by replica, then by the port that its template declares."""
    pod_group: str = ""
    """The pod group of Kueue with the last pods that were seen. When they are gone, the next ones are another group."""
    failure: Failure | None = None
    """Which replica failed first and how, of a job that has failed. It stays when the pods are deleted."""
    ending: Ending | None = None
    """The result, while the pods are being deleted."""
    start_time: datetime | None = None
    """When the job got its first status."""
    first_running_time: datetime | None = None
    """When the first pod ran. Only in jobs with ``timeLimit``."""
    start_running_time: datetime | None = None
    """When all pods ran for the first time."""
    end_time: datetime | None = None
    """When the job ended."""
    summary: Summary = Summary()
    """What kubectl get shows of the job."""


class AITrainingJob(Wire, frozen=True):
    """A training job of any number of roles, each with its own template, end policies and restart policy."""

    metadata: ObjectMeta
    """Standard metadata of an object. Names of pods and services are made from the name of the job."""
    spec: AITrainingJobSpec
    """What the job shall do."""
    status: AITrainingJobStatus = AITrainingJobStatus()
    """What the operator knows about the job. Do not edit it."""
