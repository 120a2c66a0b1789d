"""Pods and services of a job, and the environment that DI-engine reads."""

from collections.abc import Mapping
from typing import Any

from trainmaster.core import template
from trainmaster.core.ids import POD
from trainmaster.core.plan import Body
from trainmaster.core.template import Owner
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Settings
from trainmaster.kinds.dijob import address, labels
from trainmaster.kinds.dijob.declaration import Member
from trainmaster.kinds.dijob.profile import COORDINATOR, profile_of
from trainmaster.kinds.dijob.types import DIJob

_PORT_VARIABLES = {
    "coordinator": "COORDINATOR_PORT",
    "collector": "COLLECTOR_PORT",
    "learner": "LEARNER_PORT",
    "ddp-learner": "LEARNER_PORT",
    "aggregator": "AGGREGATOR_PORT",
}


# --- those that the operator makes by itself ---------------------------------------------------


def standing_pod(job: DIJob, role: str, owner: Owner, settings: Settings) -> Body:
    """The template of its role is there, and those of all standing roles: they are told where the others are."""
    name, given = address.standing_name(job, role), address.template_of(job, role) or {}
    env = _env(job, role, name, settings) | {
        f"KUBERNETES_{other.upper()}_URL": address.url_of(job, other, address.standing_name(job, other))
        for other in profile_of(job).standing
    }
    spec = _pod_spec(job, given, role, name, settings, ports=_standing_ports(job, role), env=env)
    if role == COORDINATOR:
        spec["restartPolicy"] = given["spec"].get("restartPolicy") or "Never"
    return _pod(job, given, role, name, owner.reference(blocks=False), spec)


def standing_service(job: DIJob, role: str, owner: Owner) -> Body:
    name, given = address.standing_name(job, role), address.template_of(job, role) or {}
    pod_labels = _labels(job, role, name)
    return _service(job, given, name, pod_labels, [owner.reference(blocks=False)], _standing_ports(job, role))


def _standing_ports(job: DIJob, role: str) -> dict[str, int]:
    return {profile_of(job).port(role): address.port_of(job, role, address.standing_name(job, role))}


# --- replicas that were declared ---------------------------------------------------------------


def member_pod(
    job: DIJob, name: str, member: Member, owner: Owner, settings: Settings, aggregator: PodView | None
) -> Body:
    """The pod of a declared replica; the template of its role is there, and of a DDP learner the aggregator's pod."""
    given = address.template_of(job, member.role) or {}
    ports = address.ports_of(job, name, member)
    env = _env(job, member.role, name, settings) | _ddp_env(job, name, member)
    spec = _pod_spec(job, given, member.role, name, settings, ports=ports, env=env, resources=_resources(member))
    body = _pod(job, given, member.role, name, owner.reference(blocks=False), spec)
    body["metadata"]["labels"] |= _ddp_labels(member)
    body["metadata"]["ownerReferences"] += _aggregator_reference(aggregator)
    return body


def member_service(job: DIJob, name: str, member: Member, owner: Owner, aggregator: PodView | None) -> Body:
    given = address.template_of(job, member.role) or {}
    pod_labels = _labels(job, member.role, name) | _ddp_labels(member)
    owners = [owner.reference(blocks=False), *_aggregator_reference(aggregator)]
    return _service(job, given, name, pod_labels, owners, address.ports_of(job, name, member))


def _resources(member: Member) -> dict[str, str]:
    """What the request said; an aggregator's are those of its template, whatever its learners get."""
    if member.role == "aggregator":
        return {}
    wanted = {"cpu": member.cpus, "memory": member.memory, labels.GPU: str(member.gpus or "")}
    return {name: amount for name, amount in wanted.items() if amount}


def _ddp_env(job: DIJob, name: str, member: Member) -> dict[str, str]:
    """What torch.distributed is started with; the master of a group meets itself at home."""
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


def _aggregator_reference(aggregator: PodView | None) -> list[Body]:
    """A second owner beside the job, for who looks. The garbage collector deletes only what has lost all its owners,
    so the operator removes a group itself."""
    if aggregator is None:
        return []
    reference = {"name": aggregator.key.name, "uid": aggregator.uid, "controller": False}
    return [{"apiVersion": POD.api_version, "kind": POD.kind, **reference}]


# --- what all of them share --------------------------------------------------------------------


def _env(job: DIJob, role: str, name: str, settings: Settings) -> dict[str, str]:
    return {
        _PORT_VARIABLES[role]: str(address.port_of(job, role, name)),
        "KUBERNETES_POD_NAMESPACE": job.metadata.namespace,
        "KUBERNETES_POD_NAME": name,
        "KUBERNETES_SERVER_URL": settings.server_url,
    }


def _pod_spec(
    job: DIJob,
    given: Mapping[str, Any],
    role: str,
    name: str,
    settings: Settings,
    *,
    ports: Mapping[str, int],
    env: Mapping[str, str],
    resources: Mapping[str, str] | None = None,
) -> Body:
    declared, slot = address.declared_port(job, role), address.slot_of(job, role, name)
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
            body = _with_resources(_with_ports(body, ports), resources or {})
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
) -> Body:
    """Of the pod's name, with the pod's labels, for this one pod."""
    pod_labels = {**((given.get("metadata") or {}).get("labels") or {}), **own}
    body = template.headless_service_body(
        name=name,
        namespace=job.metadata.namespace,
        labels=pod_labels,
        selector=pod_labels,
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
