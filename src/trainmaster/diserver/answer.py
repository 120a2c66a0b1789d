"""Response bodies, with the envelope and the messages that DI-engine's client reads."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from trainmaster.diserver.types import Envelope, Replicas
from trainmaster.diserver.view import CallerPod
from trainmaster.kinds.dijob import address, labels
from trainmaster.kinds.dijob.address import coordinator_name
from trainmaster.kinds.dijob.declaration import Members, Role
from trainmaster.kinds.dijob.declare import COLLECTOR, LEARNER, counted, group_of
from trainmaster.kinds.dijob.status import ENDED
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.kinds.ditask.rank import GAP
from trainmaster.kinds.ditask.role import port_of, slots_of, tasks_of
from trainmaster.kinds.ditask.types import DITaskJob
from trainmaster.lifecycle.environment import MAX_VARIABLE

GOT = "successfully get replicas"
CREATED = "successfully create replicas"
DELETED = "successfully delete replicas"
RECREATED = "successfully recreate replicas"
ADDED = "successfully add replicas"
REPORTED = "successfully report profilings"

MAX_RANKS = MAX_VARIABLE // len(f"{GAP},")
"""DI_NODES cannot name more."""

NOTHING = Replicas()


def success(message: str, data: Any) -> bytes:
    return msgspec.json.encode(Envelope(True, 0, message, data))


def failure(message: str, data: Any = None) -> bytes:
    # Some clients pass the body through a shell's command line: a single quote would end it.
    return msgspec.json.encode(Envelope(False, 1, message.replace("'", '"'), data))


def members_of(job: DIJob) -> Members:
    """The replicas of a job; one that has ended has none."""
    return {} if job.status.phase in ENDED else job.status.declared.members


def replicas_of(job: DIJob, is_included: Callable[[str], bool]) -> Replicas:
    """The replicas of a job's coordinator that pass the filter. Aggregators come after the learners without one."""
    members = members_of(job)
    collectors, learners = (filter(is_included, counted(members, role)) for role in (COLLECTOR, LEARNER))
    return named(job, coordinator_name(job), collectors, learners)


def learners_of(job: DIJob, aggregator: str, is_included: Callable[[str], bool]) -> Replicas:
    """The processes of the DDP learners of an aggregator: each listens on a port of its own."""
    members = members_of(job)
    urls = (
        address.url(job, name, port)
        for name in filter(is_included, group_of(members, aggregator))
        for port_name, port in address.ports_of(job, name, members[name]).items()
        if port_name != labels.MASTER_PORT_NAME
    )
    return Replicas(job.metadata.namespace, aggregator, (), tuple(urls))


def addresses_of(job: DITaskJob, pods: Iterable[CallerPod]) -> tuple[str, ...]:
    """``<address of the pod>:<port>`` of each replica, by rank. Empty for ranks without a pod that has an address."""
    present = {pod.key.name: pod.ips[0] for pod in pods if pod.ips and not pod.deleting and not pod.is_ended}
    tasks, found = tasks_of(job), dict[int, str]()
    ports = {name: port_of(task) for name, task in tasks.items()}
    for slot in slots_of(job.metadata.name, tasks):
        rank, ip = job.status.ranks.get(slot.place, MAX_RANKS), present.get(slot.name, "")
        if rank < MAX_RANKS:
            host = f"[{ip}]" if ":" in ip else ip
            found[rank] = f"{host}:{ports[slot.role]}" if ip else ""
    return tuple(found.get(rank, "") for rank in range(max(found, default=-1) + 1))


def named(job: DIJob, coordinator: str, collectors: Iterable[str], learners: Iterable[str]) -> Replicas:
    """These replicas, also those that are no longer declared."""
    return Replicas(job.metadata.namespace, coordinator, _urls(job, collectors), _urls(job, learners))


def shown(requested: Mapping[Role, int]) -> str:
    """For an Event: ``2 collectors and 1 learners``."""
    return " and ".join(f"{number} {role}s" for role, number in requested.items()) or "nothing"


def _urls(job: DIJob, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(address.url_of(job, address.role_of(job, name) or LEARNER, name) for name in names)
