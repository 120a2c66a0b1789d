"""Pods and services of an MXJob, and the environment by which its pods find each other."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from trainmaster.core import template
from trainmaster.core.ids import Key
from trainmaster.core.plan import Body
from trainmaster.core.slot import Slot, place_of, slot_of
from trainmaster.core.template import Owner
from trainmaster.kinds.mxjob import labels
from trainmaster.kinds.mxjob.policy import policy_of
from trainmaster.kinds.mxjob.role import SCHEDULER, SERVER, WORKER, master, roles_of, slots_of
from trainmaster.kinds.mxjob.types import MXJob, ReplicaSpec
from trainmaster.lifecycle import gang
from trainmaster.lifecycle.environment import Environment, environment_of
from trainmaster.lifecycle.gang import Gang

CLUSTER = "MX_CONFIG_CLUSTER"
"""Of large jobs: the part of MX_CONFIG that all pods share."""


ENVIRONMENT = {
    "MX_CONFIG": "The addresses of all replicas by role, the keys of TVM servers, and role and index of the pod, in "
    "JSON. In every container.",
    CLUSTER: "Of large jobs: the addresses of MX_CONFIG, in JSON. In every container.",
    "DMLC_PS_ROOT_PORT": "The port of the scheduler.",
    "DMLC_PS_ROOT_URI": "The address of the scheduler.",
    "DMLC_NUM_SERVER": "The number of servers.",
    "DMLC_NUM_WORKER": "The number of workers.",
    "DMLC_ROLE": "The role, in lower case.",
    "DMLC_USE_KUBERNETES": "``1``: ps-lite does not bind to the name of the service.",
    "DMLC_WORKER_ID": "Of workers: the index.",
    "DMLC_NODE_HOST": "The address of the pod, which ps-lite sends to the others, unless the template sets it or "
    "DMLC_INTERFACE.",
}
"""Those called DMLC are in the container ``mxnet`` alone."""


class _Port(msgspec.Struct, frozen=True):
    name: str
    number: int


def ports_of(replica: ReplicaSpec) -> tuple[_Port, ...]:
    """The ports of the container that trains; ours is among them, whether the template has it or not."""
    containers = template.read(replica.template).spec.containers
    declared = [port for c in containers if c.name == labels.CONTAINER for port in c.ports or ()]
    found = [_Port(port.name, port.container_port) for port in declared]
    if main_port(found) is None:
        found.append(_Port(labels.PORT_NAME, labels.DEFAULT_PORT))
    unique: dict[int, _Port] = {}  # a service has every number once, whatever the names
    for port in found:
        if port.number not in unique or port.name == labels.PORT_NAME:
            unique[port.number] = port
    return tuple(unique.values())


def main_port(ports: Sequence[_Port]) -> int | None:
    """The port by which peers know a replica: the one of our name, or the one that it would have."""
    named = [port.number for port in ports if port.name == labels.PORT_NAME]
    usual = [port.number for port in ports if port.number == labels.DEFAULT_PORT]
    return next(iter(named + usual), None)


def shared_ports(job: MXJob, *, shared_network: bool) -> dict[str, tuple[int, ...]]:
    """The published ports of every slot that shares its network with other programs."""
    return {
        place_of(role, index): tuple(port.number for port in ports_of(replica))
        for role, replica in roles_of(job.spec).items()
        if shared_network or template.is_on_host(replica.template)
        for index in range(replica.replicas)
    }


def declared_ports(job: MXJob) -> frozenset[int]:
    """All ports that the templates name: those that are not published stay what they are."""
    parts = [template.read(replica.template).spec for replica in roles_of(job.spec).values()]
    return frozenset(port.container_port for part in parts for c in part.containers for port in c.ports or ())


def gang_of(job: MXJob, scheduler: str) -> Gang | None:
    """What the job asks of a gang scheduler; None without one, or when its pods ask for others."""
    return gang.gang_of(
        Key(job.metadata.namespace, job.metadata.name),
        scheduler,
        {role: (replica.template["spec"], replica.replicas) for role, replica in roles_of(job.spec).items()},
        policy_of(job.spec).scheduling_policy,
    )


class Builder:
    """Builds the children of one job; what they share is worked out once."""

    def __init__(self, job: MXJob, owner: Owner, gang: Gang | None, *, shared_network: bool) -> None:
        self._job = job
        self._gang = gang
        self._shared_network = shared_network
        self._owner = owner.reference(blocks=True)
        self._roles = roles_of(job.spec)
        self._ports = {role: ports_of(replica) for role, replica in self._roles.items()}
        self._master = slot_of(job.metadata.name, master(job.spec), 0)
        # Go sorts the keys of a map, and clients compare texts.
        self._keys = {role.lower(): tuner_key(self._roles[role]) for role in sorted(self._roles, key=str.lower)}

    def pod(self, slot: Slot) -> Body:
        replica = self._roles[slot.role]
        given = replica.template["spec"]
        config = self._config(slot)
        pod: Body = {
            **given,
            "containers": [self._container(container, slot, config) for container in given["containers"]],
            "restartPolicy": "Never",  # a restart is the operator's decision, never the kubelet's
        }
        if given.get("initContainers"):
            pod["initContainers"] = [template.with_env(c, config) for c in given["initContainers"]]
        template.resolve_on_host(pod)
        body = template.pod_body(
            replica.template,
            name=slot.name,
            namespace=self._job.metadata.namespace,
            labels=self._pod_labels(slot),
            owner=self._owner,
            spec=pod,
        )
        return gang.member(body, self._gang, slot.role.lower()) if self._gang else body

    def service(self, slot: Slot) -> Body:
        return template.headless_service_body(
            name=slot.name,
            namespace=self._job.metadata.namespace,
            labels=self._labels(slot),
            selector=self._slot_labels(slot),
            owner=self._owner,
            ports=[
                (port.name or f"port-{port.number}", self._given(slot, port.number)) for port in self._ports[slot.role]
            ],
        )

    # --- addresses ---

    def _given(self, slot: Slot, declared: int) -> int:
        """The port that a slot has for one that its template declares: the same, unless it shares a network."""
        return self._job.status.ports.get(slot.place, {}).get(str(declared), declared)

    def _main_port(self, slot: Slot) -> int:
        return self._given(slot, main_port(self._ports[slot.role]) or labels.DEFAULT_PORT)

    @cached_property
    def _cluster(self) -> dict[str, list[Body]]:
        """Where every slot listens, by its role."""
        cluster: dict[str, list[Body]] = {role.lower(): [] for role in sorted(self._roles, key=str.lower)}
        for slot in slots_of(self._job):
            cluster[slot.role.lower()].append({"url": slot.name, "port": self._main_port(slot)})
        return cluster

    # --- environment ---

    @cached_property
    def environment(self) -> Environment:
        """The addresses of all replicas, in JSON."""
        slots = sum(map(len, self._cluster.values()))
        return environment_of(self._job.metadata.name, {CLUSTER: _json(self._cluster)}, slots)

    @cached_property
    def _shared_config(self) -> str:
        """MX_CONFIG as all pods have it, up to the task of the pod. Kubernetes replaces ``$(…)``."""
        cluster = f"$({CLUSTER})" if self.environment.data else self.environment.entries[CLUSTER]["value"]
        return f'{{"cluster":{cluster},"labels":{_json(self._keys)}'

    def _config(self, slot: Slot) -> template.Env:
        task = _json({"type": slot.role.lower(), "index": slot.index})
        config = template.env_of({"MX_CONFIG": f'{self._shared_config},"task":{task}}}'})
        return {**self.environment.entries, **config} if self.environment.data else config

    def _container(self, container: Mapping[str, Any], slot: Slot, config: template.Env) -> Body:
        """Every container gets the addresses of the replicas. Only the training container gets a role: importing mxnet
        with the role of a server never returns."""
        if container["name"] != labels.CONTAINER:
            return template.with_env(container, config)
        env = {**config, **template.env_of(self._dmlc(slot))}
        with_env = template.with_env(self._with_ports(container, slot), env)
        return _with_node_host(with_env) if SCHEDULER in self._roles else with_env

    def _dmlc(self, slot: Slot) -> dict[str, str]:
        """What ps-lite reads, in the order that it always had."""
        root = next(iter(self._cluster.get(SCHEDULER.lower(), ())), {"url": "", "port": 0})
        found = {
            "DMLC_PS_ROOT_PORT": str(root["port"]),
            "DMLC_PS_ROOT_URI": str(root["url"]),
            "DMLC_NUM_SERVER": str(len(self._cluster.get(SERVER.lower(), ()))),
            "DMLC_NUM_WORKER": str(len(self._cluster.get(WORKER.lower(), ()))),
            "DMLC_ROLE": slot.role.lower(),
            "DMLC_USE_KUBERNETES": "1",
        }
        return found | {"DMLC_WORKER_ID": str(slot.index)} if slot.role == WORKER else found

    def _with_ports(self, container: Mapping[str, Any], slot: Slot) -> Body:
        given = list(container.get("ports") or ())
        if main_port([_Port(port.get("name", ""), port["containerPort"]) for port in given]) is None:
            given.append({"name": labels.PORT_NAME, "containerPort": labels.DEFAULT_PORT})
        whole = {**container, "ports": given}
        if not (allotted := self._job.status.ports.get(slot.place)):
            return whole
        on_host = self._shared_network or template.is_on_host(self._roles[slot.role].template)
        return template.with_ports(whole, allotted, lambda _: True, on_host=on_host)

    # --- labels ---

    def _slot_labels(self, slot: Slot) -> dict[str, str]:
        return {
            labels.OPERATOR_NAME: labels.CONTROLLER,
            labels.JOB_NAME: self._job.metadata.name,
            labels.REPLICA_TYPE: slot.role.lower(),
            labels.REPLICA_INDEX: str(slot.index),
        }

    def _labels(self, slot: Slot) -> dict[str, str]:
        """Also by the names that selectors of older times ask for."""
        return {
            **self._slot_labels(slot),
            **dict.fromkeys(labels.OLD_GROUP_NAMES, labels.GROUP),
            **dict.fromkeys(labels.OLD_JOB_NAMES, self._job.metadata.name),
            **dict.fromkeys(labels.OLD_REPLICA_TYPES, slot.role.lower()),
            **dict.fromkeys(labels.OLD_REPLICA_INDICES, str(slot.index)),
        }

    def _pod_labels(self, slot: Slot) -> dict[str, str]:
        restarts = self._job.status.restarts.get(slot.role)
        found = self._labels(slot) | {labels.RESTART_COUNT: str(restarts.count if restarts else 0)}
        found |= self.environment.labels
        if slot == self._master:
            found |= dict.fromkeys((labels.JOB_ROLE, labels.OLD_JOB_ROLE), labels.MASTER)
        return found


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def tuner_key(replica: ReplicaSpec) -> str:
    metadata = template.read(replica.template).metadata
    annotations = metadata.annotations if metadata else None
    return (annotations or {}).get(labels.TUNER_KEY, replica.label)


def _with_node_host(container: Body) -> Body:
    """Sets the address that ps-lite sends to its peers, by default the first that it finds on the machine. Values of
    the user are kept."""
    env: Sequence[Body] = container["env"]
    if any(entry["name"] in ("DMLC_NODE_HOST", "DMLC_INTERFACE") for entry in env):
        return container
    own = {"name": "DMLC_NODE_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    return {**container, "env": [own, *env]}
