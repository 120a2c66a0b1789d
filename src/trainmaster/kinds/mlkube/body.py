"""Batch Jobs and the service of an MxJob, and the environment by which ps-lite's processes find each other."""

from collections.abc import Iterator, Mapping
from zlib import crc32

import msgspec

from trainmaster.core import template
from trainmaster.core.ids import JOB, SERVICE
from trainmaster.core.plan import Body
from trainmaster.core.template import MANAGED_BY, Owner
from trainmaster.kinds.accelerator import Accelerator
from trainmaster.kinds.mlkube import labels
from trainmaster.kinds.mlkube.accelerator import equipped
from trainmaster.kinds.mlkube.types import MxJob, ReplicaSpec

ID_LENGTH = 4
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def runtime_id(job: MxJob) -> str:
    """Part of all names, so that a job that is created anew does not meet what is left of the one before it.

    The stored one is used whatever becomes of the spec. The first comes from the uid and from who the members are:
    whoever plans twice plans the same names, and a crew that is changed before its id is stored is another crew, which
    the old one makes room for.
    """
    return job.status.runtime_id or job.spec.runtime_id or _made_of(f"{job.metadata.uid}/{_members(job)}", ID_LENGTH)


def next_runtime_id(job: MxJob) -> str:
    """That of a crew which is started again: it shares no name with the one before, whose pods may still be leaving.
    It is no longer than the one that the job's name was found short enough for."""
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


class Slot(msgspec.Struct, frozen=True):
    """A place in the job, and the name of the batch Job that fills it; the scheduler's service has the same."""

    role: str
    index: int
    name: str
    spec: ReplicaSpec
    is_alone: bool
    """It is started again by its batch Job, and nobody else with it."""

    @property
    def place(self) -> str:
        """As messages and ``status.ports`` call it."""
        return f"{self.role.lower()}-{self.index}"


def slots_of(job: MxJob) -> Iterator[Slot]:
    """All places that the spec asks for, the scheduler first: all others wait for it."""
    name, made = job.metadata.name, runtime_id(job)
    is_local = job.spec.job_mode == "local"
    for role in labels.ROLES:
        for spec in job.spec.replica_specs:
            if spec.mx_replica_type == role:
                is_alone = is_local or spec.restart_scope == "Pod"
                for index in range(spec.replicas):
                    yield Slot(role, index, f"{name}-{role.lower()}-{made}-{index}", spec, is_alone)


def scheduler_of(job: MxJob) -> Slot | None:
    """Of a local job there is none."""
    first = next(slots_of(job), None)
    return first if first is not None and first.role == labels.SCHEDULER else None


def shared_ports(job: MxJob, *, shared_network: bool) -> dict[str, tuple[int, ...]]:
    """The scheduler's port, if it shares its network with strangers; all others choose theirs by themselves."""
    scheduler = scheduler_of(job)
    if scheduler is None or not (shared_network or template.is_on_host(scheduler.spec.template)):
        return {}
    return {scheduler.place: (scheduler.spec.ps_root_port,)}


class Builder:
    """Builds the children of one job; what they share is worked out once."""

    def __init__(self, job: MxJob, owner: Owner, accelerators: Mapping[str, Accelerator]) -> None:
        self._job = job
        self._owner = owner.reference(blocks=True)
        self._accelerators = accelerators
        self._scheduler = scheduler_of(job)
        self._runtime_id = runtime_id(job)

    def job(self, slot: Slot) -> Body:
        """The batch Job of a replica. Its pods carry our labels: by them they are seen and counted."""
        given = slot.spec.template
        metadata = given.get("metadata") or {}
        own = self._labels(slot)
        spec: Body = {
            "completions": 1,
            "parallelism": 1,
            "template": {
                **given,
                "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **own}},
                "spec": self._pod_spec(slot),
            },
        }
        limit = self._job.spec.backoff_limit if slot.is_alone else 0
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
        """The scheduler's address, from the moment on in which its pod is there: the others come as soon as they can,
        and ps-lite asks it for nothing that it could be ready for."""
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
        given = slot.spec.template["spec"]
        pod: Body = equipped(
            {
                **given,
                "containers": [
                    template.with_env(container, template.env_of(self._env(slot)))
                    if container["name"] == labels.CONTAINER
                    else container
                    for container in given["containers"]
                ],
                # Of one that its kubelet restarts the Job of a crew would leave nothing: no exit code, no logs.
                "restartPolicy": (slot.is_alone and given.get("restartPolicy")) or "Never",
            },
            self._accelerators,
        )
        template.resolve_on_host(pod)
        return pod

    def _env(self, slot: Slot) -> dict[str, str]:
        if self._scheduler is None:
            return {}
        counts: dict[str, int] = {spec.mx_replica_type: spec.replicas for spec in self._job.spec.replica_specs}
        return {
            "DMLC_PS_ROOT_PORT": str(self._port(self._scheduler)),
            "DMLC_PS_ROOT_URI": self._scheduler.name,
            "DMLC_NUM_SERVER": str(counts[labels.SERVER]),
            "DMLC_NUM_WORKER": str(counts[labels.WORKER]),
            "DMLC_ROLE": slot.role.lower(),
            # Without it ps-lite binds the scheduler to DMLC_PS_ROOT_URI, which is the name of a service.
            "DMLC_USE_KUBERNETES": "1",
        }

    def _port(self, scheduler: Slot) -> int:
        """On a shared network another one than the spec says."""
        declared = scheduler.spec.ps_root_port
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
