"""Pods and services of a job, and the environment that DI-engine reads."""

from collections.abc import Mapping
from typing import Any

from trainmaster.core import template
from trainmaster.core.ids import POD
from trainmaster.core.plan import Body
from trainmaster.core.slot import Slot
from trainmaster.core.template import Owner
from trainmaster.core.view import PodView
from trainmaster.core.wire import Template
from trainmaster.kinds.base import Settings
from trainmaster.kinds.dijob import address, labels
from trainmaster.kinds.dijob.config import Templates
from trainmaster.kinds.dijob.declaration import Member
from trainmaster.kinds.dijob.profile import AGGREGATOR, COORDINATOR, profile_of
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.lifecycle import environment, gang
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.gang import Gang
from trainmaster.lifecycle.restart import NONE

_PORT_VARIABLES = {
    "coordinator": "COORDINATOR_PORT",
    "collector": "COLLECTOR_PORT",
    "learner": "LEARNER_PORT",
    "ddp-learner": "LEARNER_PORT",
    "aggregator": "AGGREGATOR_PORT",
}


ENVIRONMENT = {
    "COORDINATOR_PORT": "Of a coordinator: its port.",
    "COLLECTOR_PORT": "Of a collector: its port.",
    "LEARNER_PORT": "Of a learner or DDP learner: its port.",
    "AGGREGATOR_PORT": "Of an aggregator: its port.",
    "KUBERNETES_POD_NAMESPACE": "The namespace of the pod.",
    "KUBERNETES_POD_NAME": "The name of the pod.",
    "KUBERNETES_SERVER_URL": "Where di-server is.",
    "KUBERNETES_COORDINATOR_URL": "Of the pods that the operator creates by itself: URL of the coordinator.",
}
"""Of all containers of a pod."""
NERVEX_ENVIRONMENT = {"KUBERNETES_AGGREGATOR_URL": "Of coordinator and aggregator: URL of the aggregator."}
DDP_ENVIRONMENT = {
    "WORLD_SIZE": "Of a DDP learner: the number of processes in the group.",
    "LOCAL_WORLD_SIZE": "Of a DDP learner: the number of processes in the pod.",
    "START_RANK": "Of a DDP learner: the rank of the first process in the pod.",
    "MASTER_ADDR": "Of a DDP learner: the address of rank 0.",
    "MASTER_PORT": "Of a DDP learner: the port of rank 0.",
}
"""Of DIJobs: NerveXJobs have no DDP learners."""


class Builder:
    """Builds the children of one job."""

    environment = environment.NONE

    def __init__(
        self, job: DIJob, owner: Owner, settings: Settings, gang: Gang | None, facts: Facts, templates: Templates
    ) -> None:
        self._templates = templates
        self._job, self._owner, self._settings, self._gang = job, owner.reference(blocks=False), settings, gang
        self._pods = {pod.key.name: pod for pod in facts.pods.values()}
        self._fixed = address.fixed_names(job)

    def pod(self, slot: Slot) -> Body | None:
        """None while the template of the role is missing, or for a DDP learner the pod of its aggregator."""
        if self._templates.of(slot.role) is None or not self._is_ready(slot):
            return None
        body = self._fixed_pod(slot) if slot.name in self._fixed else self._member_pod(slot)
        if attempt := self._job.status.restarts.get(slot.role, NONE).attempt_of(slot.index):
            body["metadata"]["labels"][labels.RESTART_COUNT] = str(attempt)
        return gang.member(body, self._gang, slot.role) if self._gang else body

    def service(self, slot: Slot) -> Body | None:
        """A replica that runs needs its service, also when its template is gone."""
        pod = self._pods.get(slot.name)
        if (pod is None and self._templates.of(slot.role) is None) or not self._is_ready(slot):
            return None
        job, role, name = self._job, slot.role, slot.name
        member = None if name in self._fixed else job.status.declared.members[name]
        ports = address.ports_of(job, name, member) if member else self._fixed_ports(role)
        pod_labels = _labels(job, role, name) | (_ddp_labels(member) if member else {})
        owners = [self._owner, *self._aggregator_reference(member)]
        return _service(job, self._templates.of(role) or {}, name, pod_labels, owners, ports, pod)

    def _is_ready(self, slot: Slot) -> bool:
        """All addresses that its pod and service need are known."""
        has_aggregator = AGGREGATOR in self._fixed.values() if slot.name in self._fixed else slot.role == AGGREGATOR
        if has_aggregator and address.aggregator_of(self._job) is None:
            return False
        if slot.name in self._fixed:  # each of them has the address of the others
            return True
        aggregator = self._job.status.declared.members[slot.name].aggregator
        return not aggregator or aggregator in self._pods

    def _fixed_pod(self, slot: Slot) -> Body:
        job, role, given = self._job, slot.role, self._templates.of(slot.role) or {}
        env = _env(job, role, slot.name, self._settings) | {
            f"KUBERNETES_{other.upper()}_URL": address.url_of(job, other, name) for name, other in self._fixed.items()
        }
        spec = _pod_spec(job, given, role, slot.name, self._settings, ports=self._fixed_ports(role), env=env)
        if role == COORDINATOR:
            spec["restartPolicy"] = given["spec"].get("restartPolicy") or "Never"
        return _pod(job, given, role, slot.name, self._owner, spec)

    def _fixed_ports(self, role: str) -> dict[str, int]:
        return {profile_of(self._job).port(role): address.port_of(self._job, role, address.fixed_name(self._job, role))}

    def _member_pod(self, slot: Slot) -> Body:
        job, name, given = self._job, slot.name, self._templates.of(slot.role) or {}
        member = job.status.declared.members[name]
        ports = address.ports_of(job, name, member)
        env = _env(job, slot.role, name, self._settings) | _ddp_env(job, name, member)
        resources = _resources(member)
        spec = _pod_spec(job, given, slot.role, name, self._settings, ports=ports, env=env, resources=resources)
        body = _pod(job, given, slot.role, name, self._owner, spec)
        body["metadata"]["labels"] |= _ddp_labels(member)
        body["metadata"]["ownerReferences"] += self._aggregator_reference(member)
        return body

    def _aggregator_reference(self, member: Member | None) -> list[Body]:
        """A second owner beside the job, for information. The garbage collector deletes only what has lost all of
        its owners, so the operator deletes a group itself."""
        if member is None or not member.aggregator:
            return []
        aggregator = self._pods[member.aggregator]
        reference = {"name": aggregator.key.name, "uid": aggregator.uid, "controller": False}
        return [{"apiVersion": POD.api_version, "kind": POD.kind, **reference}]


def _resources(member: Member) -> dict[str, str]:
    """The requested resources; an aggregator has those of its template, not of the request."""
    if member.role == "aggregator":
        return {}
    wanted = {"cpu": member.cpus, "memory": member.memory, labels.GPU: str(member.gpus or "")}
    return {name: amount for name, amount in wanted.items() if amount}


def _ddp_env(job: DIJob, name: str, member: Member) -> dict[str, str]:
    """What torch.distributed is started with; the master of a group reaches itself at localhost."""
    if member.role != "ddp-learner":
        return {}
    return {
        "WORLD_SIZE": str(member.world_size),
        "LOCAL_WORLD_SIZE": str(member.gpus),
        "START_RANK": str(member.start_rank),
        "MASTER_ADDR": member.master or "localhost",
        "MASTER_PORT": str(address.master_port_of(job, name)),
    }


def _ddp_labels(member: Member) -> dict[str, str]:
    if member.role != "ddp-learner" or not address.is_spread(member):
        return {}
    return {labels.DDP_TYPE: labels.DDP_WORKER if member.master else labels.DDP_MASTER}


def _env(job: DIJob, role: str, name: str, settings: Settings) -> dict[str, str]:
    return {
        _PORT_VARIABLES[role]: str(address.port_of(job, role, name)),
        "KUBERNETES_POD_NAMESPACE": job.metadata.namespace,
        "KUBERNETES_POD_NAME": name,
        "KUBERNETES_SERVER_URL": settings.server_url,
    }


def _pod_spec(
    job: DIJob,
    given: Template,
    role: str,
    name: str,
    settings: Settings,
    *,
    ports: Mapping[str, int],
    env: Mapping[str, str],
    resources: Mapping[str, str] | None = None,
) -> Body:
    # The port of a job's aggregators stays, also when the AggregatorConfig has another one now.
    declared, slot = address.port_in(profile_of(job), role, given), address.slot_of(job, role, name)
    main, own = profile_of(job).container(role), profile_of(job).port(role)
    is_moved = slot in job.status.ports or ports[own] != declared
    on_host = settings.shared_network or template.is_on_host(given)
    containers, variables = [], template.env_of(env)
    for container in given["spec"]["containers"]:
        is_main = container["name"] == main
        body = _with_ports(container, {own: declared}) if is_main else container
        if is_moved:
            body = _moved(body, {str(declared): ports[own]}, own if is_main else None, on_host=on_host)
        if is_main:
            inner = address.inner_ports(job, role, name) if is_moved and template.is_on_host(given) else {}
            body = _with_resources(_with_ports(body, {**ports, **inner}), resources or {})
        containers.append(template.with_env(body, variables))
    spec: Body = {**given["spec"], "containers": containers}
    if job.spec.volumes and role != "aggregator":  # whose template is not the job's
        spec["volumes"] = [*(spec.get("volumes") or ()), *job.spec.volumes]
    if job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    template.resolve_on_host(spec)
    return spec


def _with_ports(container: dict[str, Any], ports: Mapping[str, int]) -> dict[str, Any]:
    """The main container with the ports that it does not name itself."""
    found = container.get("ports") or []
    names = {port.get("name") for port in found}
    new = [{"name": name, "containerPort": port} for name, port in ports.items() if name not in names]
    return {**container, "ports": [*found, *new]} if new else container


def _moved(container: dict[str, Any], moved: Mapping[str, int], own: str | None, *, on_host: bool) -> dict[str, Any]:
    """Of side-cars, whose ports are not ours, the probes alone follow."""
    return template.with_ports(container, moved, lambda name: name == own, on_host=on_host)


def _with_resources(container: dict[str, Any], resources: Mapping[str, str]) -> dict[str, Any]:
    """The main container with these as requests and as limits, whatever its template says of them."""
    if not resources:
        return container
    given = container.get("resources") or {}
    both = {kind: {**(given.get(kind) or {}), **resources} for kind in ("requests", "limits")}
    return {**container, "resources": {**given, **both}}


def _pod(job: DIJob, given: Mapping[str, Any], role: str, name: str, owner: Body, spec: Body) -> Body:
    return template.pod_body(
        given,
        name=name,
        namespace=job.metadata.namespace,
        labels=_labels(job, role, name),
        owner=owner,
        spec=spec,
    )


def _service(
    job: DIJob,
    given: Mapping[str, Any],
    name: str,
    own: Mapping[str, str],
    owners: list[Body],
    ports: Mapping[str, int],
    pod: PodView | None,
) -> Body:
    """Of the pod's name, with the pod's labels, for this one pod. A pod that was made by hand may lack some of them."""
    pod_labels = {**((given.get("metadata") or {}).get("labels") or {}), **own}
    selector = pod_labels if pod is None else {k: v for k, v in pod_labels.items() if pod.labels.get(k) == v}
    body = template.headless_service_body(
        name=name,
        namespace=job.metadata.namespace,
        labels=pod_labels,
        selector=selector,
        owner=owners[0],
        ports=ports.items(),
    )
    body["metadata"]["ownerReferences"] = owners
    return body


def _labels(job: DIJob, role: str, pod: str) -> dict[str, str]:
    profile = profile_of(job)
    return {
        labels.GROUP_NAME: profile.resource.group,
        profile.job_name: job.metadata.name,
        labels.CONTROLLER_NAME: profile.controller,
        labels.REPLICA_TYPE: role,
        labels.POD_NAME: pod,
    }
