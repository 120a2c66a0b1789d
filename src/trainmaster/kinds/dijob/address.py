"""Where the replicas of a job listen, and the URLs by which their peers reach them."""

from collections.abc import Mapping

from trainmaster.core import template
from trainmaster.core.wire import Template
from trainmaster.kinds.dijob import labels
from trainmaster.kinds.dijob.declaration import Aggregator, Member
from trainmaster.kinds.dijob.profile import AGGREGATOR, COORDINATOR, Profile, profile_of
from trainmaster.kinds.dijob.types import DIJob

DEFAULT_PORTS: Mapping[str, int] = {
    "collector": 22270,
    "learner": 22271,
    "ddp-learner": 22271,
    "aggregator": 22272,
    "coordinator": 22273,
}
ROLES = ("collector", "learner", "aggregator", "ddp-learner")


def spec_template(job: DIJob, role: str) -> Template | None:
    """The pod template of a role in the job's spec; None when it has none. That of aggregators is not there."""
    spec = {COORDINATOR: job.spec.coordinator, "collector": job.spec.collector}.get(role, job.spec.learner)
    return None if spec is None else spec.template


def aggregator_of(job: DIJob) -> Aggregator | None:
    """What is known of the job's aggregators; None before the first one was asked for."""
    declared, older = job.status.declared, job.status.declared.aggregator_template
    if declared.aggregator or older is None or template.errors(older, "status.declared.aggregatorTemplate"):
        return declared.aggregator
    return described(profile_of(job), older)


def described(profile: Profile, aggregator: Template) -> Aggregator:
    """What a template says of the aggregators that are created from it."""
    return Aggregator(port_in(profile, AGGREGATOR, aggregator), template.is_on_host(aggregator))


def declared_port(job: DIJob, role: str) -> int:
    """The port of a role before the operator gives its replicas others."""
    if role != AGGREGATOR:
        return port_in(profile_of(job), role, spec_template(job, role))
    found = aggregator_of(job)
    return found.port if found else DEFAULT_PORTS[role]


def port_in(profile: Profile, role: str, given: Template | None) -> int:
    """The port that a template calls by the name that is ours, else the role's default."""
    for container in template.read(given).spec.containers if given is not None else ():
        for port in container.ports or ():
            if container.name == profile.container(role) and port.name == profile.port(role):
                return port.container_port
    return DEFAULT_PORTS[role]


def template_ports(given: Template | None) -> frozenset[int]:
    """All ports that a template names: those that are not called ours stay what they are."""
    containers = template.read(given).spec.containers if given is not None else ()
    return frozenset(port.container_port for container in containers for port in container.ports or ())


def port_of(job: DIJob, role: str, name: str) -> int:
    """The port of a replica: on a shared network it differs from the one that its template declares."""
    return _moved(job, role, name, declared_port(job, role))


def master_port_of(job: DIJob, name: str) -> int:
    """Where the processes of a DDP learner's group meet."""
    return _moved(job, "ddp-learner", name, labels.MASTER_PORT)


def _moved(job: DIJob, role: str, name: str, declared: int) -> int:
    return job.status.ports.get(slot_of(job, role, name), {}).get(str(declared), declared)


def declared_ports(job: DIJob, role: str, member: Member | None = None) -> tuple[int | range, ...]:
    """All that a replica listens on by itself, as its template has it; of a DDP group, its first learner for all.

    DI-engine's aggregator is the master of its learners at the next port; its DDP learners count theirs by rank.
    """
    port = declared_port(job, role)
    if role == AGGREGATOR:
        return (range(port, port + 2),)
    if member is None or role != "ddp-learner":
        return (port,)
    return range(port, port + member.world_size), labels.MASTER_PORT


def fixed_name(job: DIJob, role: str) -> str:
    """Of the one pod of a role that the operator creates by itself."""
    return f"{job.metadata.name}-{role}"


def coordinator_name(job: DIJob) -> str:
    return fixed_name(job, COORDINATOR)


def fixed_names(job: DIJob) -> dict[str, str]:
    """The roles of the pods that the operator creates by itself, by name."""
    return {fixed_name(job, role): role for role in profile_of(job).fixed_roles}


def slot_of(job: DIJob, role: str, name: str) -> str:
    """By which name ``status.ports`` knows a replica: a DDP group has one, that of its first learner."""
    member = job.status.declared.members.get(name)
    if member is not None and member.master:
        return member.master
    return role if name == fixed_name(job, role) else name


def is_placed(job: DIJob, name: str, *, shared_network: bool) -> bool:
    """False while a declared replica waits for a port: on a shared network the operator gives it one."""
    member = job.status.declared.members.get(name)
    if member is None or slot_of(job, member.role, name) in job.status.ports:
        return True
    return not shared_network and not _is_on_host(job, member.role)


def _is_on_host(job: DIJob, role: str) -> bool:
    if role == AGGREGATOR:
        found = aggregator_of(job)
        return found is not None and found.host_network
    given = spec_template(job, role)
    return given is not None and template.is_on_host(given)


def ports_of(job: DIJob, name: str, member: Member) -> dict[str, int]:
    """All ports of a replica, by their names.

    A DDP learner starts a process for each of its GPUs, and each listens on the learner's port plus its rank in the
    whole group. The master of a group of several pods is met at one more.
    """
    base, own = port_of(job, member.role, name), profile_of(job).port(member.role)
    if member.role != "ddp-learner":
        return {own: base}
    base += member.start_rank
    ports = {own: base} | {f"gpu-port-{i}": base + i for i in range(1, member.gpus)}
    if is_spread(member) and not member.master:
        ports[labels.MASTER_PORT_NAME] = master_port_of(job, name)
    return ports


def inner_ports(job: DIJob, role: str, name: str) -> dict[str, int]:
    """Ports that a replica on the network of its node listens on and does not publish. Its pod names them all the
    same: the scheduler puts pods with the same port on different nodes."""
    member = job.status.declared.members.get(name)
    if role == AGGREGATOR:
        return {labels.MASTER_PORT_NAME: port_of(job, role, name) + 1}
    if member is None or role != "ddp-learner" or is_spread(member):
        return {}
    return {labels.MASTER_PORT_NAME: master_port_of(job, name)}


def is_spread(member: Member) -> bool:
    """True of a DDP learner that is one of several pods."""
    return member.gpus < member.world_size


def url(job: DIJob, name: str, port: int) -> str:
    """DI-engine cuts the last label off the host's name to get the pod's: it must have exactly these two."""
    return f"{name}.{job.metadata.namespace}:{port}"


def url_of(job: DIJob, role: str, name: str) -> str:
    return url(job, name, port_of(job, role, name))


def role_of(job: DIJob, name: str) -> str:
    """The role in a replica's name, also of a removed replica; empty when it is not the name of a replica."""
    prefix, _, suffix = name.rpartition("-")
    role = prefix.removeprefix(f"{job.metadata.name}-")
    return role if suffix and prefix != role and role in ROLES else ""
