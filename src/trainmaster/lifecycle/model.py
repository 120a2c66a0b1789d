"""What spec and status of a job say, in words that all kinds share. A kind builds it once in each pass."""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from trainmaster.core.ids import POD, Resource
from trainmaster.core.slot import Slot
from trainmaster.core.view import PodView
from trainmaster.lifecycle.cleanup import CleanPodPolicy, has_stopped
from trainmaster.lifecycle.completion import Result
from trainmaster.lifecycle.deadline import Limit, Wait, WaitLimit
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.fault import Fault
from trainmaster.lifecycle.gang import Gang
from trainmaster.lifecycle.port import Ports, Wanted
from trainmaster.lifecycle.restart import Restart, Restarts, Rules
from trainmaster.lifecycle.training import Training

Place = tuple[str, int]
"""A role and an index: the position of one replica."""
Places = dict[str, tuple[int, ...]]
"""Indices by role, as a status has them."""


class Role(msgspec.Struct, frozen=True):
    name: str
    replicas: int
    rules: Rules
    misses_deleted_pods: bool = False
    """A pod that ran and was deleted has failed; else it is created again and nothing is counted."""
    misses_restarted_containers: bool = False
    """A pod whose container was restarted in place has failed; else its kubelet goes on."""
    ends_job: bool = True
    """The job may fail because of its pods."""
    training: Training = Training()
    """Which containers train; the others are side-cars, whose exit codes are ignored."""
    initial_replicas: int | None = None
    """How many replicas the job starts with, if not with all: the first ones. The others may come later."""
    required_replicas: int | None = None
    """How many replicas have to run so that the job waits for none, if not all."""

    @property
    def enough(self) -> int:
        return self.replicas if self.required_replicas is None else self.required_replicas


class Replica(msgspec.Struct, frozen=True):
    """What fills a slot of a kind whose replicas are not pods but create pods, such as batch Jobs."""

    state: str = ""
    """Pending, Running, Succeeded or Failed; empty while there is none, and one has to be created."""
    pod: PodView | None = None
    """The latest of its pods."""
    fault: Fault | None = None
    message: str = ""
    """What it waits for."""
    is_recovering: bool = False
    """It restarts its pod by itself, and ``message`` says after what fault."""
    podless_since: datetime | None = None
    """Since when it could have created a pod, while it has none."""
    restarts_alone: bool = False
    """It creates another pod when its pod is deleted; else the fault of its pod is a fault of the replica."""


class RunPolicy(msgspec.Struct, frozen=True, kw_only=True):
    clean: CleanPodPolicy
    """Which pods are deleted when the job has ended."""
    is_kept: Callable[[PodView], bool] = has_stopped
    """Which pods the clean-up policy Running keeps."""
    suspend: str = ""
    """Why the job must have no pods now; empty when it may have them."""
    limits: tuple[Limit, ...] = ()
    """Deadlines that are running."""
    wait_limits: tuple[WaitLimit, ...] = ()
    """How long the job may wait for nodes and containers, at its start or after a restart."""
    overdue_phase: str = "Failed"
    """How the job ends when a deadline is over."""
    linger: Limit | None = None
    """For how long an ended job leaves its pods alone, so that they end by themselves, before it cleans up."""
    ttl: Limit | None = None
    """How long a job that has ended is kept."""
    exit_codes: frozenset[int] = frozenset()
    """The exit codes after which a replica is restarted, where its policy asks for them."""
    restart_limit: int | None = None
    """Restarts of all roles together."""
    cleans_services: bool = False
    """Services are deleted at the end under the clean-up policy None, too."""
    keeps_services: bool = False
    """Services of pods that are kept at the end are kept, too."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What the status remembers from one pass to the next."""

    restarts: dict[str, Restarts] = {}
    history: tuple[Restart, ...] = ()
    done: Places = {}
    """Replicas of the present attempt that have succeeded: their pods may be deleted by now."""
    ran: Places = {}
    """Replicas of the present attempt whose pod was seen running."""
    ports: Ports = {}
    creation_errors: dict[str, datetime] = {}
    """Replicas whose containers cannot be created, and since when."""
    node_problems: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen. A device
    that a node no longer has is listed as ``node/device``."""
    wait: Wait | None = None
    """What the job waits for, where a limit is about it."""
    pod_group: str = ""
    """The pod group of Kueue in which pods were last seen."""
    failure: Failure | None = None
    """What a job that has failed has failed of."""


class Ending(msgspec.Struct, frozen=True):
    """A result that is stored while the pods are being deleted. ``clean`` stands in the place of the job's policy."""

    result: Result
    clean: CleanPodPolicy | None = None


class JobModel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    roles: dict[str, Role]
    known_roles: tuple[str, ...]
    """All roles that pods of the job may have had, also those that the spec no longer has."""
    slots: tuple[Slot, ...]
    """One for each replica that the spec asks for."""
    replicas: Mapping[str, Replica] | None = None
    """What fills the slots, by name, where that is not pods: pods are then deleted with it, and not by themselves."""
    replica_resource: Resource = POD
    services: tuple[Slot, ...] | None = None
    """Those that have a service, if not all slots have one: some of them, or one that stands for all."""
    is_recorded: bool = True
    """False while the status has to be stored before anything is created: names that an edit may change, or ranks."""
    run: RunPolicy
    memory: Memory
    attempt_label: str
    """The label by which a pod says for which attempt it was created."""
    has_ended: bool = False
    ending: Ending | None = None
    ends_in_steps: bool = False
    """The job has its last phase when its pods are deleted; else as soon as the result is known."""
    ended_elsewhere: Result | None = None
    """How the job has ended by the account of another operator."""
    requested_end: Result | None = None
    """The end that a user asks for."""
    is_new: bool = False
    """No status was stored yet."""
    is_suspended: bool = False
    starts_anew: bool = False
    """After a suspension all replicas begin again; else those that have succeeded are not repeated."""
    restarting: str = ""
    """The role whose restart was decided; its outdated pods are being deleted."""
    running_since: datetime | None = None
    """Since when the whole job has run without a fault."""
    wanted_ports: Wanted = {}
    """The ports of replicas that share a network with other pods."""
    declared_ports: frozenset[int] = frozenset()
    gang_scheduler: str = ""
    gang: Gang | None = None
    restarts_after_node_loss: bool = False
    """A pod on a lost node has failed, for every policy that restarts failed pods; else a policy has to say so."""
    is_free: Callable[[Fault], bool] | None = None
    """The faults that no restart limit is charged for. Evictions are never charged."""
    limits_creation: bool = False
    """A pod whose containers cannot be created for long has failed; else its kubelet goes on trying."""
    replaces_pending_pods: bool = False
    """A pod that has never run and is bound to a lost node is replaced, and nothing is counted; else it has failed."""
    not_before: Mapping[Place, tuple[datetime, float]] = {}
    """Replicas that are created so many seconds after that time at the earliest."""

    @property
    def misses_deleted_pods(self) -> bool:
        return any(role.misses_deleted_pods for role in self.roles.values())

    def rules(self) -> Mapping[str, Rules]:
        return {name: role.rules for name, role in self.roles.items()}
