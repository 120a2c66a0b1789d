"""Pods and services of an AITrainingJob, and the environment by which its pods find each other."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from trainmaster.core import template
from trainmaster.core.plan import Body
from trainmaster.core.slot import Slot, numbered, place_of, slot_of
from trainmaster.core.template import ContainerPart, Env, Owner
from trainmaster.kinds.aitrainingjob import labels
from trainmaster.kinds.aitrainingjob.elastic import elastic_roles, size_bounds
from trainmaster.kinds.aitrainingjob.framework import Cluster, Framework, Place, framework_of, ranked
from trainmaster.kinds.aitrainingjob.types import AITrainingJob, ReplicaSpec
from trainmaster.kinds.priority import set_class
from trainmaster.lifecycle import gang as gangs
from trainmaster.lifecycle.environment import Environment, environment_of
from trainmaster.lifecycle.gang import Gang
from trainmaster.lifecycle.training import Training

ENVIRONMENT = {
    "<ROLE>_INSTANCES": "The addresses of the replicas of a role, separated by commas.",
    "<ROLE>_INSTANCES_NUM": "The number of these addresses.",
    "<ROLE>_PORTS": "The published ports of the role, separated by commas.",
    "<ROLE>_PORTS_NUM": "The number of these ports.",
    "<ROLE>_HOSTS": "Every address of the role with every port, ``address:port``, separated by commas.",
    "<ROLE>_HOSTS_NUM": "The number of these.",
    "<ROLE>_0_ADDRESS": "The address of replica 0 of the role; empty if there is none.",
    "<ROLE>_0_PORT": "The first published port of replica 0 of the role; empty if there is none.",
    "TRAININGJOB_NAME": "The name of the job.",
    "TRAININGJOB_NAMESPACE": "The namespace of the job.",
    "TRAININGJOB_REPLICA_NAME": "The role of the pod, in lower case.",
    "TRAININGJOB_REPLICA_TYPE": "The role of the pod, in lower case.",
    "TRAININGJOB_REPLICA_INDEX": "The index of the pod in its role.",
    "TRAININGJOB_REPLICA_RESTARTCOUNT": "``status.RestartCount`` of the role when the pod was created.",
    "TRAININGJOB_SERVICE": "The address of the pod.",
    "TRAININGJOB_PORTS": "The published ports of the container, separated by commas. Not in init containers.",
    "TRAININGJOB_MEMBERSHIP_FILE": "Of elastic jobs: the path of the file that lists the current members.",
}
"""Of all containers. <ROLE> is a role in upper case; one with ``-`` has its variables with ``_``, too."""

MEMBERS = "members.json"
"""The file that lists the current members of an elastic job."""
_MEMBERSHIP_FOLDER = "/var/run/trainmaster"
_MEMBERSHIP_VOLUME = "trainmaster-membership"
_MEMBER_SIZE = 90
"""Of a member without its words: the names of its fields, two numbers, and what stands between them."""
OWN_ENV_SIZE = 360
"""Minimum size of the variables that describe the pod itself, in JSON."""
_TASK_SIZE = 64
"""Of TF_CONFIG without its list of endpoints."""
FRAMEWORK_ENV_SIZE = 900
"""Of the variables that a framework adds for the pod itself, in JSON."""


def membership_name(job: AITrainingJob) -> str:
    """The name of the ConfigMap that holds the file."""
    return f"{job.metadata.name}-membership"


def child_name(job: AITrainingJob, role: str, index: int) -> str:
    """The name of a pod and of its service."""
    return slot_of(job.metadata.name, role, index).name


def env_sizes(job: AITrainingJob, role: str) -> dict[str, int]:
    """The variables that say where the replicas of a role are. The values of the longest are at most so long."""
    spec = job.spec.replica_specs[role]
    ports = _published(template.read(spec.template).spec.containers)
    address = len(f"{child_name(job, role, max(spec.replicas - 1, 0))}.{job.metadata.namespace},")
    sizes = dict.fromkeys(("INSTANCES_NUM", "PORTS_NUM", "HOSTS_NUM", "0_PORT"), 5) | {
        "0_ADDRESS": address,
        "INSTANCES": spec.replicas * address,
        "PORTS": len(ports) * len("65535,"),
        "HOSTS": spec.replicas * len(ports) * (address + len(":65535")),
    }
    return {f"{prefix}_{word}": size for prefix in _env_prefixes(role) for word, size in sizes.items()}


def framework_in(job: AITrainingJob) -> Framework | None:
    """The framework that sets variables in the job: None if a role that needs a port publishes none."""
    found = framework_of(job.spec.framework_type)
    return found if found and not roles_without_port(job, found) else None


def roles_without_port(job: AITrainingJob, framework: Framework) -> list[str]:
    """The roles that the framework needs a port of and that publish none, or that do not exist."""
    specs = {role: job.spec.replica_specs[role] for role in ranked(job.spec.replica_specs)}
    has_port = {
        role.lower(): bool(_published(template.read(spec.template).spec.containers))
        for role, spec in specs.items()
        if spec.replicas
    }
    return [role for role in framework.listening(list(has_port)) if not has_port.get(role)]


def framework_sizes(job: AITrainingJob) -> dict[str, int]:
    """The long variable of the framework, if it has one, as in ``env_sizes``."""
    framework = framework_in(job)
    if not framework or not framework.shared:
        return {}
    size = _TASK_SIZE
    for role, spec in job.spec.replica_specs.items():
        endpoint = f'"{child_name(job, role, spec.replicas)}.{job.metadata.namespace}:65535",'
        size += len(f'"{role}":[],') + spec.replicas * len(endpoint)
    return {framework.shared.name: size}


def membership_size(job: AITrainingJob) -> int:
    """About how long the file with all members will be."""
    total = 0
    for role, spec in job.spec.replica_specs.items():
        ports = _published(template.read(spec.template).spec.containers)
        name = child_name(job, role, spec.replicas)
        words = 2 * len(name) + len(job.metadata.namespace) + len(role) + 6 * len(ports)
        total += spec.replicas * (words + _MEMBER_SIZE)
    return total


def slots_of(job: AITrainingJob) -> tuple[Slot, ...]:
    """All places that the spec asks for, roles by name."""
    return numbered(job.metadata.name, {role: s.replicas for role, s in sorted(job.spec.replica_specs.items())})


def replicas_of(job: AITrainingJob) -> int:
    """Of all roles together."""
    return sum(spec.replicas for spec in job.spec.replica_specs.values())


def shared_ports(job: AITrainingJob, *, shared_network: bool) -> dict[str, tuple[int, ...]]:
    """The ports of every slot that are given out, because the slot shares its network with other pods.

    On the network of a node only ports of the prefix are: a program may insist on any other.
    """
    found: dict[str, tuple[int, ...]] = {}
    for role, spec in sorted(job.spec.replica_specs.items()):
        containers = template.read(spec.template).spec.containers
        ports = _published(containers, only_prefixed=not shared_network)
        if ports and (shared_network or template.is_on_host(spec.template)):
            found |= {place_of(role, index): ports for index in range(spec.replicas)}
    return found


def declared_ports(job: AITrainingJob) -> frozenset[int]:
    """All ports that the templates name: those that are not published stay what they are."""
    parts = [template.read(spec.template).spec for spec in job.spec.replica_specs.values()]
    return frozenset(port.container_port for part in parts for c in part.containers for port in c.ports or ())


class Builder:
    """Builds the children of one job; what they share is worked out once."""

    def __init__(
        self,
        job: AITrainingJob,
        owner: Owner,
        *,
        shared_network: bool,
        gang: Gang | None = None,
        priority_class: str = "",
    ) -> None:
        self._job = job
        self._gang = gang
        self._priority_class = priority_class
        self._shared_network = shared_network
        self.owner = owner.reference(blocks=True)
        self._is_elastic = bool(elastic_roles(job))
        self._containers = {r: template.read(s.template).spec.containers for r, s in job.spec.replica_specs.items()}
        self._training = {r: _training(cs) for r, cs in self._containers.items()}
        self._ports = {role: _published(containers) for role, containers in self._containers.items()}
        self._framework = framework_in(job)

    @cached_property
    def environment(self) -> Environment:
        """Where the replicas of every role are."""
        values = {variable: value for role in sorted(self._ports) for variable, value in self._role_env(role).items()}
        if self._framework and (shared := self._framework.shared):
            values[shared.name] = shared.value(self._cluster)
        return environment_of(self._job.metadata.name, values, replicas_of(self._job))

    def address(self, slot: Slot) -> str:
        return f"{slot.name}.{self._job.metadata.namespace}"

    def ports(self, slot: Slot) -> tuple[int, ...]:
        """The published ports that a slot has."""
        return tuple(self._given(slot, self._ports[slot.role]))

    def pod(self, slot: Slot) -> Body:
        spec = self._job.spec.replica_specs[slot.role]
        of_framework = self._framework_env(slot)
        shared = {name: entry for name, entry in self.environment.entries.items() if name not in of_framework}
        env = {**shared, **template.env_of(self._slot_env(slot))}
        given = spec.template["spec"]
        pod: Body = {
            **given,
            "containers": [
                template.with_env(self._moved(container, slot), env | self._container_env(part, slot, of_framework))
                for container, part in zip(given["containers"], self._containers[slot.role], strict=True)
            ],
            "restartPolicy": "Never",  # a restart is the operator's decision, never the kubelet's
        }
        if given.get("initContainers"):
            pod["initContainers"] = [template.with_env(c, env) for c in given["initContainers"]]
        if self._job.spec.scheduler_name:
            pod["schedulerName"] = self._job.spec.scheduler_name
        if self._is_elastic:
            pod = _with_membership(pod, membership_name(self._job))
        set_class(pod, self._priority_class)
        template.resolve_on_host(pod)
        body = template.pod_body(
            self._with_job_labels(spec),
            name=slot.name,
            namespace=self._job.metadata.namespace,
            labels=self._pod_labels(slot),
            owner=self.owner,
            spec=pod,
        )
        return gangs.member(body, self._gang, slot.role.lower()) if self._gang else body

    def service(self, slot: Slot) -> Body:
        slot_labels = self._slot_labels(slot)
        declared = self._ports[slot.role]
        return template.headless_service_body(
            name=slot.name,
            namespace=self._job.metadata.namespace,
            labels=slot_labels,
            selector=slot_labels,
            owner=self.owner,
            ports=[
                (f"{labels.PREFIX}{port}", number)
                for port, number in zip(declared, self._given(slot, declared), strict=True)
            ],
        )

    def _given(self, slot: Slot, declared: Sequence[int]) -> Sequence[int]:
        """The ports that a slot has for those that its template declares: the same, unless it shares a network."""
        if not (allotted := self._job.status.ports):
            return declared
        given = allotted.get(slot.place, {})
        return [given.get(str(port), port) for port in declared]

    def _container_env(self, container: ContainerPart, slot: Slot, of_framework: Env) -> dict[str, Body]:
        """The variables that other containers of the pod do not have. Those of the framework give way to the user's."""
        ports = template.env_of({"TRAININGJOB_PORTS": _listed(self._given(slot, self._ports_in(container, slot)))})
        if container.name not in self._training[slot.role]:
            return ports
        taken = {variable.name for variable in container.env or ()}
        return ports | {name: entry for name, entry in of_framework.items() if name not in taken}

    def _ports_in(self, container: ContainerPart, slot: Slot) -> list[int]:
        """The published ports of one container; a side-car has none."""
        return _ports_of(container) if container.name in self._training[slot.role] else []

    def _moved(self, container: Body, slot: Slot) -> Body:
        if not (allotted := self._job.status.ports) or not (given := allotted.get(slot.place)):
            return container
        on_host = self._shared_network or template.is_on_host(self._job.spec.replica_specs[slot.role].template)
        names = [port.get("name") or "" for port in container.get("ports") or ()]
        ours = (_prefixed(names) or names) if container["name"] in self._training[slot.role] else ()
        return template.with_ports(container, given, lambda name: name in ours, on_host=on_host)

    def _own_ports(self, slot: Slot) -> dict[str, str]:
        """The variables with the ports of the pod itself, which differ from those of other pods of the role."""
        ports = _listed(self._given(slot, self._ports[slot.role]))
        return {f"{prefix}_PORTS": ports for prefix in _env_prefixes(slot.role)}

    def _with_job_labels(self, spec: ReplicaSpec) -> Mapping[str, object]:
        """The template; labels of the job fill the keys that it leaves free."""
        given = spec.template.get("metadata") or {}
        merged = {**self._job.metadata.labels, **(given.get("labels") or {})}
        return {**spec.template, "metadata": {**given, "labels": merged}}

    def _slot_labels(self, slot: Slot) -> dict[str, str]:
        return {
            labels.GROUP_NAME: labels.GROUP,
            labels.TRAINING_JOB_NAME: self._job.metadata.name,
            labels.REPLICA_NAME: slot.role.lower(),
            labels.REPLICA_INDEX: str(slot.index),
        }

    def _pod_labels(self, slot: Slot) -> dict[str, str]:
        own = self._slot_labels(slot) | {
            labels.JOB_NAME: self._job.metadata.name,
            labels.POD_ROLE: slot.role.lower(),
            labels.RESTART_COUNT: self._restart_count(slot),
            **self.environment.labels,
        }
        return own | {labels.PRIORITY: self._job.spec.priority} if self._job.spec.priority else own

    def _restart_count(self, slot: Slot) -> str:
        return str(self._job.status.restart_count.get(slot.role, 0))

    def _role_env(self, role: str) -> dict[str, str]:
        count = self._job.spec.replica_specs[role].replicas
        slots = numbered(self._job.metadata.name, {role: max(count, 1)})
        # The ancestors kept the case of the name here while the pods are named in lower case: such an
        # address could never resolve. Ours is the name that the service really has.
        instances = [self.address(slot) for slot in slots[:count]]
        ports = [self._given(slot, self._ports[role]) for slot in slots]
        hosts = [f"{instance}:{port}" for instance, of in zip(instances, ports, strict=False) for port in of]
        values: dict[str, str] = {}
        for prefix in _env_prefixes(role):
            for word, entries in (("INSTANCES", instances), ("PORTS", ports[0]), ("HOSTS", hosts)):
                values[f"{prefix}_{word}"] = _listed(entries)
                values[f"{prefix}_{word}_NUM"] = str(len(entries))
            values[f"{prefix}_0_ADDRESS"] = "".join(instances[:1])
            values[f"{prefix}_0_PORT"] = "".join(map(str, ports[0][:1]))
        return values

    @cached_property
    def _cluster(self) -> Cluster:
        """The replicas as the framework sees them."""
        name, specs = self._job.metadata.name, self._job.spec.replica_specs
        roles = {role: numbered(name, {role: specs[role].replicas}) for role in ranked(specs)}
        places = {
            role.lower(): [Place(self.address(slot), next(iter(self.ports(slot)), None)) for slot in slots]
            for role, slots in roles.items()
            if slots
        }
        return Cluster(name, places, size_bounds(self._job))

    def _framework_env(self, slot: Slot) -> Env:
        if not (framework := self._framework):
            return {}
        shared = framework.shared
        entries = {shared.name: self.environment.entries[shared.name]} if shared else {}
        return {**entries, **framework.own(self._cluster, slot.role.lower(), slot.index)}

    def _slot_env(self, slot: Slot) -> dict[str, str]:
        meta = self._job.metadata
        own = {
            "TRAININGJOB_REPLICA_NAME": slot.role.lower(),
            "TRAININGJOB_REPLICA_TYPE": slot.role.lower(),
            "TRAININGJOB_REPLICA_INDEX": str(slot.index),
            "TRAININGJOB_REPLICA_RESTARTCOUNT": self._restart_count(slot),
            "TRAININGJOB_SERVICE": self.address(slot),
            "TRAININGJOB_NAME": meta.name,
            "TRAININGJOB_NAMESPACE": meta.namespace,
        }
        if self._is_elastic:
            own["TRAININGJOB_MEMBERSHIP_FILE"] = f"{_MEMBERSHIP_FOLDER}/{MEMBERS}"
        return own | self._own_ports(slot) if self._job.status.ports else own


def _with_membership(pod: Body, config_map: str) -> Body:
    """The whole folder is mounted: of a single file a container would keep the first version for ever."""
    mount = {"name": _MEMBERSHIP_VOLUME, "mountPath": _MEMBERSHIP_FOLDER, "readOnly": True}
    mounted = {
        field: [{**c, "volumeMounts": [*(c.get("volumeMounts") or ()), mount]} for c in pod[field]]
        for field in ("initContainers", "containers")
        if pod.get(field)
    }
    volume = {"name": _MEMBERSHIP_VOLUME, "configMap": {"name": config_map}}
    return {**pod, **mounted, "volumes": [*(pod.get("volumes") or ()), volume]}


def _listed(entries: Iterable[object]) -> str:
    return ",".join(map(str, entries))


def _env_prefixes(role: str) -> tuple[str, ...]:
    """``MY-PS`` as it always was, and ``MY_PS`` beside it, which a shell can read."""
    raw = role.upper()
    return tuple(dict.fromkeys((raw, raw.replace("-", "_"))))


def _training(containers: Sequence[ContainerPart]) -> frozenset[str]:
    return Training(labels.MAIN).containers(container.name for container in containers)


def _published(containers: Sequence[ContainerPart], *, only_prefixed: bool = False) -> tuple[int, ...]:
    """The ports of a role that are published to its peers."""
    training = _training(containers)
    found = (_ports_of(c, only_prefixed=only_prefixed) for c in containers if c.name in training)
    return tuple(dict.fromkeys(port for ports in found for port in ports))


def _ports_of(container: ContainerPart, *, only_prefixed: bool = False) -> list[int]:
    """The published ports of a container that takes part in the training."""
    ports = container.ports or ()
    prefixed = _prefixed(port.name for port in ports)
    return [p.container_port for p in ports if p.name in prefixed or not (prefixed or only_prefixed)]


def _prefixed(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(labels.PREFIX)]
