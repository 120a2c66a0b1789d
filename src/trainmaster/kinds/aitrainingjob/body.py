"""Pods and services of an AITrainingJob, and the environment by which its pods find each other."""

from collections.abc import Mapping
from functools import lru_cache

from trainmaster.api.aitrainingjob import AITrainingJob, ReplicaSpec
from trainmaster.core import template
from trainmaster.core.plan import Body
from trainmaster.core.template import ContainerPart, Owner
from trainmaster.kinds.aitrainingjob import labels


def child_name(job: AITrainingJob, role: str, index: int) -> str:
    """The name of a pod and of its service."""
    return f"{job.metadata.name}-{role.lower()}-{index}"


class Builder:
    """Builds the children of one job; what they share is worked out once."""

    def __init__(self, job: AITrainingJob, owner: Owner) -> None:
        self._job = job
        self._owner = owner.reference(blocks=True)
        self._ports = {role: _published(spec) for role, spec in job.spec.replica_specs.items()}
        self._discovery = {
            variable: value for role in sorted(self._ports) for variable, value in self._role_env(role).items()
        }

    def has_service(self, role: str) -> bool:
        """A role without a training container is nobody's peer and gets no address."""
        return self._ports[role] is not None

    def pod(self, role: str, index: int) -> Body:
        spec = self._job.spec.replica_specs[role]
        env = self._discovery | self._slot_env(role, index)
        given = spec.template["spec"]
        pod: Body = {
            **given,
            "containers": [
                template.with_env(c, env | {"TRAININGJOB_PORTS": _container_ports(c)}) for c in given["containers"]
            ],
            "restartPolicy": "Never",  # a restart is the operator's decision, never the kubelet's
        }
        if given.get("initContainers"):
            pod["initContainers"] = [template.with_env(c, env) for c in given["initContainers"]]
        if self._job.spec.scheduler_name:
            pod["schedulerName"] = self._job.spec.scheduler_name
        if given.get("hostNetwork") and not given.get("dnsPolicy"):
            pod["dnsPolicy"] = "ClusterFirstWithHostNet"  # else service names do not resolve
        return template.pod_body(
            self._with_job_labels(spec),
            name=child_name(self._job, role, index),
            namespace=self._job.metadata.namespace,
            labels=self._pod_labels(role, index),
            owner=self._owner,
            spec=pod,
        )

    def service(self, role: str, index: int) -> Body:
        slot = self._slot_labels(role, index)
        return template.headless_service_body(
            name=child_name(self._job, role, index),
            namespace=self._job.metadata.namespace,
            labels=slot,
            selector=slot,
            owner=self._owner,
            ports=[(f"{labels.PREFIX}{port}", port) for port in self._ports[role] or ()],
        )

    def _with_job_labels(self, spec: ReplicaSpec) -> Mapping[str, object]:
        """The template; labels of the job fill the keys that it leaves free."""
        given = spec.template.get("metadata") or {}
        merged = {**self._job.metadata.labels, **(given.get("labels") or {})}
        return {**spec.template, "metadata": {**given, "labels": merged}}

    def _slot_labels(self, role: str, index: int) -> dict[str, str]:
        return {
            labels.GROUP_NAME: labels.GROUP,
            labels.TRAINING_JOB_NAME: self._job.metadata.name,
            labels.REPLICA_NAME: role.lower(),
            labels.REPLICA_INDEX: str(index),
        }

    def _pod_labels(self, role: str, index: int) -> dict[str, str]:
        own = self._slot_labels(role, index) | {
            labels.JOB_NAME: self._job.metadata.name,
            labels.POD_ROLE: role.lower(),
            labels.RESTART_COUNT: "0",
        }
        return own | {labels.PRIORITY: self._job.spec.priority} if self._job.spec.priority else own

    def _role_env(self, role: str) -> dict[str, str]:
        meta, spec = self._job.metadata, self._job.spec.replica_specs[role]
        # The ancestors kept the case of the name here while the pods are named in lower case: such an
        # address could never resolve. Ours is the name that the service really has.
        instances = [f"{child_name(self._job, role, i)}.{meta.namespace}" for i in range(spec.replicas)]
        ports = [str(port) for port in self._ports[role] or ()]
        hosts = [f"{instance}:{port}" for instance in instances for port in ports]
        values: dict[str, str] = {}
        for prefix in _env_prefixes(role):
            for word, entries in (("INSTANCES", instances), ("PORTS", ports), ("HOSTS", hosts)):
                values[f"{prefix}_{word}"] = ",".join(entries)
                values[f"{prefix}_{word}_NUM"] = str(len(entries))
        return values

    def _slot_env(self, role: str, index: int) -> dict[str, str]:
        meta = self._job.metadata
        return {
            "TRAININGJOB_REPLICA_NAME": role.lower(),
            "TRAININGJOB_REPLICA_TYPE": role.lower(),
            "TRAININGJOB_REPLICA_INDEX": str(index),
            "TRAININGJOB_REPLICA_RESTARTCOUNT": "0",
            "TRAININGJOB_SERVICE": f"{child_name(self._job, role, index)}.{meta.namespace}",
            "TRAININGJOB_NAME": meta.name,
            "TRAININGJOB_NAMESPACE": meta.namespace,
        }


@lru_cache(maxsize=1024)
def _env_prefixes(role: str) -> tuple[str, ...]:
    """``MY-PS`` as it always was, and ``MY_PS`` beside it, which a shell can read."""
    raw = role.upper()
    return tuple(dict.fromkeys((raw, raw.replace("-", "_"))))


def _published(spec: ReplicaSpec) -> tuple[int, ...] | None:
    """Ports of a role that are published; None when it has no training container at all."""
    training = [c for c in template.read(spec.template).spec.containers if c.name.startswith(labels.PREFIX)]
    if not training:
        return None
    return tuple(dict.fromkeys(port for container in training for port in _training_ports(container)))


def _training_ports(container: ContainerPart) -> list[int]:
    return [port.container_port for port in container.ports if port.name.startswith(labels.PREFIX)]


def _container_ports(container: Mapping[str, object]) -> str:
    name, ports = container["name"], container.get("ports") or ()
    if not str(name).startswith(labels.PREFIX) or not isinstance(ports, list):
        return ""
    return ",".join(str(p["containerPort"]) for p in ports if str(p.get("name", "")).startswith(labels.PREFIX))
