"""Batch Jobs and the service of an MxJob, and the environment by which ps-lite's processes find each other."""

from collections.abc import Mapping
from zlib import crc32

from trainmaster.core import template
from trainmaster.core.ids import JOB, SERVICE, Key
from trainmaster.core.plan import Body
from trainmaster.core.slot import Slot, place_of
from trainmaster.core.template import MANAGED_BY, Owner
from trainmaster.kinds.accelerator import Accelerator
from trainmaster.kinds.mlkube import labels
from trainmaster.kinds.mlkube.accelerator import equipped
from trainmaster.kinds.mlkube.types import MxJob, ReplicaSpec
from trainmaster.lifecycle import environment, gang
from trainmaster.lifecycle.gang import Gang

ID_LENGTH = 4
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def runtime_id(job: MxJob) -> str:
    """Part of all names, so that a job that is created anew does not meet what is left of the one before it.

    The stored one is used whatever becomes of the spec. The first is made from the uid and the numbers of replicas: two
    plans give the same names, and an edit before the id is stored gives other names, whose Jobs replace the first ones.
    """
    return job.status.runtime_id or job.spec.runtime_id or _made_of(f"{job.metadata.uid}/{_members(job)}", ID_LENGTH)


def next_runtime_id(job: MxJob) -> str:
    """That of the next attempt: it shares no name with the one before, whose pods may still be terminating. It is no
    longer than the one that the job's name was found short enough for."""
    old = runtime_id(job)
    ids = (_made_of(f"{job.metadata.uid}/{old}/{number}", min(len(old), ID_LENGTH)) for number in range(100))
    return next((found for found in ids if found != old), old)


def _members(job: MxJob) -> str:
    return ",".join(f"{spec.mx_replica_type}={spec.replicas}" for spec in job.spec.replica_specs)


def _made_of(text: str, length: int) -> str:
    number, found = crc32(text.encode()), ""
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        found += _DIGITS[digit]
    return found


def roles_of(job: MxJob) -> dict[str, ReplicaSpec]:
    """The scheduler first: all others wait for it."""
    specs = {spec.mx_replica_type: spec for spec in job.spec.replica_specs}
    return {role: specs[role] for role in labels.ROLES if role in specs}


def restarts_alone(job: MxJob, role: str) -> bool:
    """A replica of the role is restarted by its batch Job, and no other replica with it."""
    return job.spec.job_mode == "local" or roles_of(job)[role].restart_scope == "Pod"


def slots_of(job: MxJob) -> list[Slot]:
    """A slot has the name of its batch Job; the scheduler's service has the same."""
    made, roles = runtime_id(job), roles_of(job)
    prefixes = {role: f"{job.metadata.name}-{role.lower()}-{made}" for role in roles}
    return [Slot(r, index, f"{prefixes[r]}-{index}") for r, spec in roles.items() for index in range(spec.replicas)]


def shared_ports(job: MxJob, *, shared_network: bool) -> dict[str, tuple[int, ...]]:
    """The scheduler's port, if it shares its network with other pods; the other roles choose theirs by themselves."""
    spec = roles_of(job).get(labels.SCHEDULER)
    if spec is None or not (shared_network or template.is_on_host(spec.template)):
        return {}
    return {place_of(labels.SCHEDULER, 0): (spec.ps_root_port,)}


def gang_of(job: MxJob, scheduler: str) -> Gang | None:
    return gang.gang_of(
        Key(job.metadata.namespace, job.metadata.name),
        scheduler,
        {role: (spec.template["spec"], spec.replicas) for role, spec in roles_of(job).items()},
        job.spec.scheduling_policy,
    )


ENVIRONMENT = {
    "DMLC_PS_ROOT_PORT": "The port of the scheduler.",
    "DMLC_PS_ROOT_URI": "The name of the scheduler's service.",
    "DMLC_NUM_SERVER": "The number of servers.",
    "DMLC_NUM_WORKER": "The number of workers.",
    "DMLC_ROLE": "``scheduler``, ``server`` or ``worker``.",
    "DMLC_USE_KUBERNETES": "``1``: ps-lite does not bind to the name of the service.",
}
"""Of the container ``mxnet``, with ``jobMode`` dist."""


class Builder:
    """Builds the children of one job; what they share is worked out once."""

    environment = environment.NONE

    def __init__(
        self, job: MxJob, owner: Owner, accelerators: Mapping[str, Accelerator], gang: Gang | None = None
    ) -> None:
        self._job = job
        self._owner = owner.reference(blocks=True)
        self._accelerators = accelerators
        self._gang = gang
        self._roles = roles_of(job)
        self._scheduler = next((slot for slot in slots_of(job) if slot.role == labels.SCHEDULER), None)
        self._runtime_id = runtime_id(job)

    def pod(self, slot: Slot) -> Body:
        """The batch Job that creates the pod of a replica. The pod has our labels, by which it is found."""
        given = self._roles[slot.role].template
        metadata = given.get("metadata") or {}
        own = self._labels(slot)
        pod: Body = {
            **given,
            "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **own}},
            "spec": self._pod_spec(slot),
        }
        spec: Body = {
            "completions": 1,
            "parallelism": 1,
            "template": gang.member(pod, self._gang, slot.role.lower()) if self._gang else pod,
        }
        limit = self._job.spec.backoff_limit if restarts_alone(self._job, slot.role) else 0
        if limit is not None:
            spec["backoffLimit"] = limit
        return {
            "apiVersion": JOB.api_version,
            "kind": JOB.kind,
            "metadata": {
                "name": slot.name,
                "namespace": self._job.metadata.namespace,
                "labels": own,
                "ownerReferences": [self._owner],
            },
            "spec": spec,
        }

    def service(self, slot: Slot) -> Body:
        """The scheduler's address. It leads to a pod that is not ready, too: ps-lite's scheduler has no readiness."""
        own = self._labels(slot)
        return {
            "apiVersion": SERVICE.api_version,
            "kind": SERVICE.kind,
            "metadata": {
                "name": slot.name,
                "namespace": self._job.metadata.namespace,
                "labels": own,
                "ownerReferences": [self._owner],
            },
            "spec": {
                "selector": {key: value for key, value in own.items() if key not in MANAGED_BY},
                "ports": [{"name": labels.PORT_NAME, "port": self._port(slot)}],
                "publishNotReadyAddresses": True,
            },
        }

    def _pod_spec(self, slot: Slot) -> Body:
        given = self._roles[slot.role].template["spec"]
        pod: Body = equipped(
            {
                **given,
                "containers": [
                    template.with_env(container, template.env_of(self._env(slot)))
                    if container["name"] == labels.CONTAINER
                    else container
                    for container in given["containers"]
                ],
                # With backoffLimit 0 a Job deletes a pod that its kubelet restarts, with its exit code and logs.
                "restartPolicy": (restarts_alone(self._job, slot.role) and given.get("restartPolicy")) or "Never",
            },
            self._accelerators,
        )
        template.resolve_on_host(pod)
        return pod

    def _env(self, slot: Slot) -> dict[str, str]:
        if self._scheduler is None:
            return {}
        return {
            "DMLC_PS_ROOT_PORT": str(self._port(self._scheduler)),
            "DMLC_PS_ROOT_URI": self._scheduler.name,
            "DMLC_NUM_SERVER": str(self._roles[labels.SERVER].replicas),
            "DMLC_NUM_WORKER": str(self._roles[labels.WORKER].replicas),
            "DMLC_ROLE": slot.role.lower(),
            # Without it ps-lite binds the scheduler to DMLC_PS_ROOT_URI, which is the name of a service.
            "DMLC_USE_KUBERNETES": "1",
        }

    def _port(self, scheduler: Slot) -> int:
        """On a shared network another one than the spec says."""
        declared = self._roles[scheduler.role].ps_root_port
        return self._job.status.ports.get(scheduler.place, {}).get(str(declared), declared)

    def _labels(self, slot: Slot) -> dict[str, str]:
        return {
            labels.GROUP: "",
            labels.JOB_NAME: self._job.metadata.name,
            labels.JOB_TYPE: slot.role,
            labels.RUNTIME_ID: self._runtime_id,
            labels.TASK_INDEX: str(slot.index),
            **MANAGED_BY,
        }
