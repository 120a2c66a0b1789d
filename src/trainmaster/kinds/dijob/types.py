"""DIJob, diengine.opendilab.org/v1alpha1: a reinforcement-learning job around one coordinator."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from trainmaster.core.condition import Conditions
from trainmaster.core.ids import Resource
from trainmaster.core.wire import Deadline, Generation, ManagedBy, Number, ObjectMeta, Ports, Template, Volumes, Wire
from trainmaster.kinds.dijob.declaration import Declared
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.gang import SchedulingPolicy
from trainmaster.lifecycle.restart import Restart, Restarts
from trainmaster.lifecycle.summary import Summary

RESOURCE = Resource("diengine.opendilab.org", "v1alpha1", "dijobs", "DIJob")


class RunPolicy(Wire, frozen=True):
    """How the job is run, as Kubeflow spells it."""

    suspend: bool = False
    """True: all pods are deleted. False again: the job starts again."""
    active_deadline_seconds: Deadline | None = None
    """The job fails if it has not ended so many seconds after its start or resumption. By default there is no
    deadline."""
    ttl_seconds_after_finished: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """The job is deleted so many seconds after its end. By default it is kept."""
    scheduling_policy: SchedulingPolicy | None = None
    """What the PodGroup of the job asks for. It has an effect if the operator has a gang scheduler."""
    restart_scope: Literal["All", "Pod"] = "Pod"
    """What restarts when a pod fails or its container is restarted in place. All: all pods of the job. Pod: that pod
    alone."""


class RoleSpec(Wire, frozen=True):
    template: Template
    """The pod template of the role. The environment of its main container tells it where the others are."""


class DIJobSpec(Wire, frozen=True):
    coordinator: RoleSpec
    """The coordinator. It runs first, and the job ends with its main container: exit code 0 is Succeeded, any other
    one is Failed. ``restartPolicy`` of the pod is Never unless the template says otherwise."""
    collector: RoleSpec | None = None
    """The collectors that the coordinator may request from di-server. Without this field there are none."""
    learner: RoleSpec | None = None
    """The learners that the coordinator may request from di-server. Without this field there are none."""
    group: str = ""
    """Free text, without effect."""
    priority_class_name: str = ""
    """The PriorityClass of every pod. By default the templates decide."""
    clean_pod_policy: Literal["Running", "All", "ALL", "None", ""] = "Running"
    """Which pods are deleted when the job has ended. Running: those that still run. All, or ALL: all. None: none.
    Services are always deleted."""
    volumes: Volumes = []
    """Volumes that are added to every pod, except aggregators."""
    managed_by: ManagedBy = ""
    """The controller that runs the job, for example kueue.x-k8s.io/multikueue. With any name other than that of the
    operator, the operator does not touch the job. It cannot be changed."""
    run_policy: RunPolicy = RunPolicy()
    """Suspension, deadline, time to live, gang and restart scope of the job."""


class RoleStatus(Wire, frozen=True):
    active: Number = 0
    """Running pods."""
    succeeded: Number = 0
    """Pods that have succeeded."""
    failed: Number = 0
    """Pods that have failed."""


class DIJobStatus(Wire, frozen=True):
    phase: str = ""
    """Created or Running; at the end Succeeded or Failed."""
    observed_generation: Generation = 0
    """The generation of the spec that this status is about."""
    conditions: Conditions = ()
    """The conditions that all kinds have, and then each phase that the job has had, the present one last."""
    replicas: Number = 0
    """The number of pods that the job has when all of them are created."""
    ready_replicas: Number | None = None
    """The number of pods that are ready."""
    replica_status: dict[str, RoleStatus] = {}
    """How many pods of each role are in which state."""
    ports: Ports = {}
    """The ports of replicas that share a network: by replica, then by the port that its template declares."""
    declared: Declared = Declared()
    """The replicas that the coordinator requested through di-server."""
    restarts: dict[str, Restarts] = {}
    """What is counted of the restarts of roles whose pods the operator creates by itself; with the restart scope All of
    all roles. Otherwise a requested replica is replaced under another name."""
    ran: dict[str, tuple[Number, ...]] = {}
    """With the restart scope All: the roles that the operator creates by itself whose pod has run in this attempt."""
    restart_history: tuple[Restart, ...] = ()
    """The last ten restarts."""
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
    completion_time: datetime | None = None
    """When the job ended."""
    summary: Summary = Summary()
    """What kubectl get shows of the job."""


class DIJob(Wire, frozen=True):
    """A reinforcement-learning job of DI-engine: its coordinator runs first and requests collectors and learners."""

    metadata: ObjectMeta
    """Standard metadata of an object. Names of pods and services are made from the name of the job."""
    spec: DIJobSpec
    """What the job shall do."""
    status: DIJobStatus = DIJobStatus()
    """What the operator knows about the job. Do not edit it."""
