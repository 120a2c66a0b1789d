"""The parts of an operator."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import LEASE, NODE, POD, SERVICE, Resource
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import (
    CANDIDATE_CODEC,
    CHILD_CODEC,
    JOB_CODEC,
    LEASE_CODEC,
    NODE_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    WHOLE_CANDIDATE_CODEC,
    CandidateView,
    ChildView,
    Codec,
    JobView,
    LeaseView,
    NodeView,
    PodView,
    ServiceView,
    owned_by,
)
from trainmaster.kinds.adoption import Predecessor
from trainmaster.kinds.crd import crds_of
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.adopter import Adopter
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.controller import Controller
from trainmaster.runtime.definition_check import DefinitionCheck
from trainmaster.runtime.elector import Elector, lease_name
from trainmaster.runtime.executor import Executor
from trainmaster.runtime.host_ports import HostPorts, is_free_here
from trainmaster.runtime.manager import Manager
from trainmaster.runtime.node_index import NodeIndex
from trainmaster.runtime.other_operators import OtherOperators
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store
from trainmaster.settings import OPERATOR


def utc_now() -> datetime:
    return datetime.now(UTC)


def build_manager(
    cluster: Cluster,
    kinds: Sequence[ResourceKinds],
    *,
    shared_network: bool = False,
    namespace: str = "",
    workers: int = OPERATOR.workers,
    electors: Mapping[str, Elector] | None = None,
    lease_namespace: str = "",
    delegated: Collection[str] = (),
    checks_definitions: bool = False,
    now: Callable[[], datetime] = utc_now,
    monotonic: Callable[[], float] = time.monotonic,
) -> Manager:
    """Stores, reflectors and one controller for each resource that jobs have, wired. ``lease_namespace`` is that of the
    electors' Leases; an operator of all namespaces looks for Leases in the others, and leaves the jobs of ``delegated``
    namespaces to the holders of theirs. ``checks_definitions`` is for a cluster whose definitions are installed apart
    from this program."""
    pods, services = Store[PodView](POD), Store[ServiceView](SERVICE)
    jobs: dict[Resource, Store[JobView]] = {each.resource: Store[JobView](each.resource) for each in kinds}
    related = {wanted: Store[JobView](wanted.resource) for each in kinds for wanted in each.related}
    children = {resource: Store[ChildView](resource) for each in kinds for resource in each.children}
    candidates = {
        (predecessor, resource): Store[CandidateView](resource)
        for each in kinds
        for predecessor in each.predecessors
        for resource in predecessor.resources
    }
    nodes = Store[NodeView](NODE)
    book = NodeIndex(nodes, pods) if any(each.looks_at_nodes for each in kinds) else None
    barrier = Barrier({POD: pods, SERVICE: services, **children, **jobs})
    executor = Executor(cluster, barrier)
    ports = HostPorts(is_free_here) if shared_network else HostPorts()
    ports.follow(pods, *jobs.values())
    controllers: list[Controller] = []
    recorder = Recorder(cluster, now, is_busy=lambda: any(controller.queue.is_busy for controller in controllers))
    selector = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
    # Labels are free for all: somebody else's objects may have ours.
    is_ours = owned_by((*jobs, *children))
    reflectors: list[Reflector[Any]] = [
        Reflector(cluster, pods, POD_CODEC.only(is_ours), namespace=namespace, selector=selector),
        Reflector(cluster, services, SERVICE_CODEC.only(is_ours), namespace=namespace, selector=selector),
        *(
            Reflector(cluster, store, CHILD_CODEC.only(is_ours), namespace=namespace, selector=selector)
            for store in children.values()
        ),
        *(Reflector(cluster, store, JOB_CODEC, namespace=namespace) for store in jobs.values()),
        *(
            Reflector(cluster, store, JOB_CODEC, namespace=key.namespace, fields=f"metadata.name={key.name}")
            for (_, key), store in related.items()
        ),
    ]
    reflectors += [
        Reflector(
            cluster,
            store,
            _candidate_codec(predecessor, resource, is_ours),
            namespace=namespace,
            selector=predecessor.selector,
        )
        for (predecessor, resource), store in candidates.items()
    ]
    if book is not None:
        reflectors.append(Reflector(cluster, nodes, NODE_CODEC, without="faults of nodes are not noticed"))
    leases = {each: Store[LeaseView](LEASE) for each in kinds if (lease_namespace or delegated) and not namespace}
    reflectors += [
        Reflector(
            cluster,
            store,
            LEASE_CODEC,
            fields=f"metadata.name={lease_name(each.resource)}",
            without="jobs of delegated namespaces are reconciled twice",
        )
        for each, store in leases.items()
    ]
    controllers += [
        Controller(
            each,
            jobs=jobs[each.resource],
            pods=pods,
            services=services,
            barrier=barrier,
            executor=executor,
            recorder=recorder,
            ports=ports,
            now=now,
            workers=workers,
            related={wanted: related[wanted] for wanted in each.related},
            children={resource: children[resource] for resource in each.children},
            nodes=book if each.looks_at_nodes else None,
            adopter=Adopter(
                each,
                {place: store for place, store in candidates.items() if place[0] in each.predecessors},
                {POD: pods, SERVICE: services, **children},
            ),
            others=(
                OtherOperators(cluster, leases[each], delegated, monotonic, lease_namespace) if each in leases else None
            ),
        )
        for each in kinds
    ]

    def retry_all() -> None:
        for controller in controllers:
            controller.queue.retry_all()

    resources = {*jobs, *(store.resource for store in related.values())}
    definitions = DefinitionCheck(cluster, crds_of(resources), retry_all) if checks_definitions else None
    return Manager(reflectors, controllers, recorder, electors or {}, definitions)


def _candidate_codec(
    predecessor: Predecessor, resource: Resource, is_ours: Callable[[CandidateView], bool]
) -> Codec[CandidateView]:
    """Of children that another operator created. Some operators set no owner references."""
    codec = WHOLE_CANDIDATE_CODEC if resource == POD and predecessor.reads_pods else CANDIDATE_CODEC
    if predecessor.sets_owners:
        return codec.only(is_ours)
    return codec.only(lambda view: not view.has_owners or is_ours(view))


def chosen(kinds: Sequence[ResourceKinds], names: Sequence[str]) -> Sequence[ResourceKinds]:
    """The kinds of these names, in any case; none for all. A name that two kinds have means both, and kinds that share
    a resource are chosen together."""
    known = {spelling for each in kinds for spelling in each.spellings}
    wanted = {name.lower() for name in names} or known
    if unknown := sorted(wanted - known):
        raise BadConfig(f"--enable-scheme {unknown[0]}: there is no such kind; there are {', '.join(sorted(known))}")
    return [each for each in kinds if not wanted.isdisjoint(each.spellings)]
