"""The composition root: which parts an operator is made of, and how it starts and stops."""

import asyncio
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import structlog

from trainmaster.cli.accelerator import accelerators_in
from trainmaster.cli.exit_code import FAILED
from trainmaster.core.definition import UPDATE_COMMAND
from trainmaster.core.errors import AlreadyExists, BadConfig, Forbidden, NotLeading, Trainmaster
from trainmaster.core.ids import NODE, POD, SERVICE, Key, Resource
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import (
    CANDIDATE_CODEC,
    CHILD_CODEC,
    JOB_CODEC,
    NODE_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    WHOLE_CANDIDATE_CODEC,
    CandidateView,
    ChildView,
    Codec,
    JobView,
    NodeView,
    PodView,
    ServiceView,
    owned_by,
)
from trainmaster.kinds.adoption import Predecessor
from trainmaster.kinds.crd import crds_of
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.kube.client import KubeCluster, Observe
from trainmaster.kube.config import Config
from trainmaster.kube.incluster import in_cluster_config
from trainmaster.kube.kubeconfig import load_config
from trainmaster.monitoring import serve_health, serve_metrics
from trainmaster.runtime import metrics
from trainmaster.runtime.adopter import Adopter
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.clock import Clock
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.controller import Controller
from trainmaster.runtime.definition_check import DEFINITION, DefinitionCheck
from trainmaster.runtime.elector import Elector, lease_name
from trainmaster.runtime.executor import Executor
from trainmaster.runtime.host_ports import HostPorts, is_free_here
from trainmaster.runtime.manager import Manager
from trainmaster.runtime.node_index import NodeIndex
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store
from trainmaster.settings import OPERATOR, ElectionTimes, JobSettings

log = structlog.get_logger(__name__)

LEASE_CONNECTIONS = 2
"""For each lease. When the API server is slow, passes use all the others for longer than a lease can wait."""

T = TypeVar("T")


def _elapsed() -> float:
    """Seconds that also pass while the machine sleeps: a lease does not wait for a lid to open."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _now() -> datetime:
    return datetime.now(UTC)


class OperatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line, decoded; the names are those of the options."""

    kubeconfig: str
    context: str
    master: str
    run_in_cluster: bool
    namespace: str
    kinds: tuple[str, ...]
    install_crds: bool
    server_url: str
    service_domain_name: str
    agconfig_namespace: str
    agconfig_name: str
    controller_config_file: str
    gang_scheduler_name: str
    creating_duration_period: float
    creating_restart_period: float
    enable_creating_failed: bool
    node_fail_grace_period: float
    bad_node_conditions: tuple[str, ...]
    max_host_ports_per_job: int
    max_host_ports_per_namespace: int
    thread_num: int
    request_timeout: float
    leader_elect: bool
    leader_elect_lease_duration: float
    leader_elect_renew_deadline: float
    leader_elect_retry_period: float
    leader_elect_resource_name: str
    leader_elect_resource_namespace: str
    metrics_bind_address: str
    health_probe_bind_address: str


def run_operator(options: OperatorOptions) -> None:
    try:
        run_loop(_operate(options))
    except NotLeading as error:
        log.error("ending: this process does not lead any more", because=str(error))  # noqa: TRY400 one line is enough
        raise SystemExit(FAILED) from None


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end in a loop of its own."""
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(work)
    except* Trainmaster as group:
        # Whatever else was cancelled with it, the first error is the reason.
        raise first_error(group) from None
    raise AssertionError("unreachable: the block above returned or raised")


def first_error(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None  # not made for this platform; the standard loop is slower and does the same
    return uvloop.new_event_loop


async def _operate(options: OperatorOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    config = _config(options)
    gate = _Gate()
    timeout = options.request_timeout
    if timeout <= 0:
        raise BadConfig("--request-timeout must be more than 0: every call needs an end")
    observe = metrics.RequestMetrics().observe
    kinds = chosen(all_resource_kinds(_job_settings(options)), options.kinds)
    clock = Clock(_now, _elapsed)
    async with (
        KubeCluster(config, timeout=timeout, observe=observe, on_date=clock.read, gate=gate.check) as cluster,
        _electing(options, kinds, config, observe) as electors,
    ):
        gate.electors = set(electors.values())
        if options.install_crds:
            await _install_crds(cluster, kinds)
        manager = build_manager(
            cluster,
            kinds,
            namespace=options.namespace,
            workers=options.thread_num,
            electors=electors,
            checks_definitions=True,
            now=clock.now,
        )
        async with (
            serve_metrics(options.metrics_bind_address),
            serve_health(options.health_probe_bind_address, lambda: manager.is_ready, lambda: manager.problem),
        ):
            log.info("starting", server=config.server, namespace=options.namespace or "all")
            await manager.run(stop)
    log.info("stopped")


async def _install_crds(cluster: Cluster, kinds: Sequence[ResourceKinds]) -> None:
    """Creates what is missing. An old definition is not changed: other programs may use it."""
    for body in crds_of({*(each.resource for each in kinds), *(r.resource for each in kinds for r in each.related)}):
        name = body["metadata"]["name"]
        try:
            await cluster.create(DEFINITION, "", msgspec.json.encode(body))
        except AlreadyExists:
            continue
        except Forbidden as error:
            raise BadConfig(
                f"--install-crds: {error}; leave the option out, and let somebody who may create definitions run: "
                f"{UPDATE_COMMAND}"
            ) from error
        log.info("created the definition", name=name)


def _job_settings(options: OperatorOptions) -> JobSettings:
    return JobSettings(
        server_url=options.server_url,
        service_domain=options.service_domain_name,
        aggregator_config=_aggregator_config(options, OPERATOR.jobs.aggregator_config),
        dijob_aggregator_config=_aggregator_config(options, OPERATOR.jobs.dijob_aggregator_config),
        accelerators=accelerators_in(options.controller_config_file),
        gang_scheduler=options.gang_scheduler_name,
        max_host_ports_per_job=options.max_host_ports_per_job,
        max_host_ports_per_namespace=options.max_host_ports_per_namespace,
        creating_duration_period=options.creating_duration_period,
        creating_restart_period=options.creating_restart_period,
        enable_creating_failed=options.enable_creating_failed,
        node_fail_grace_period=options.node_fail_grace_period,
        bad_node_conditions=frozenset(options.bad_node_conditions),
    )


class _Gate:
    """Between the transport, which asks before each write, and the electors, which need a transport. A controller works
    while its lease is held, and a lost lease ends the process: nothing is written after any lease has run out."""

    electors: Collection[Elector] = ()

    def check(self) -> None:
        for elector in self.electors:
            if elector.has_led:
                elector.check()


def _config(options: OperatorOptions) -> Config:
    if options.run_in_cluster:
        return in_cluster_config()
    return load_config(kubeconfig=options.kubeconfig, context=options.context, master=options.master)


def _aggregator_config(options: OperatorOptions, default: Key) -> Key:
    """Defaults to the operator's namespace: an operator of one namespace has no rights elsewhere."""
    return Key(options.agconfig_namespace or options.namespace or default.namespace, options.agconfig_name)


@asynccontextmanager
async def _electing(
    options: OperatorOptions, kinds: Sequence[ResourceKinds], config: Config, observe: Observe
) -> AsyncIterator[Mapping[str, Elector]]:
    """Electors with connections of their own, by the names of controllers; none for an operator that always leads."""
    if not options.leader_elect:
        yield {}
        return
    times = _election_times(options)
    # An operator of one namespace has no rights elsewhere.
    namespace = options.leader_elect_resource_namespace or options.namespace or OPERATOR.lease_namespace
    leases = {each.name: options.leader_elect_resource_name or lease_name(each.resource) for each in kinds}
    names = set(leases.values())
    identity = identity_of(os.environ)
    connections = LEASE_CONNECTIONS * len(names)
    async with KubeCluster(config, timeout=times.renew_deadline, connections=connections, observe=observe) as cluster:
        electors = {
            name: Elector(cluster, Key(namespace, name), identity, times, now=_now, monotonic=_elapsed)
            for name in names
        }
        yield {controller: electors[name] for controller, name in leases.items()}


def identity_of(environ: Mapping[str, str]) -> str:
    """A container that is restarted in its pod is the same candidate: the process before it has ended, so the Lease
    that the process held need not run out. Other processes have nothing that their successors share."""
    own = environ.get("POD_UID") or f"{os.getpid()}_{uuid.uuid4().hex[:8]}"
    return f"{socket.gethostname()}_{own}"


def _election_times(options: OperatorOptions) -> ElectionTimes:
    times = ElectionTimes(
        options.leader_elect_lease_duration, options.leader_elect_renew_deadline, options.leader_elect_retry_period
    )
    if not times.lease > times.renew_deadline > times.retry > 0:
        raise BadConfig(
            "leader election needs lease-duration > renew-deadline > retry-period > 0, "
            f"got {times.lease:g}s, {times.renew_deadline:g}s and {times.retry:g}s"
        )
    return times


def build_manager(
    cluster: Cluster,
    kinds: Sequence[ResourceKinds],
    *,
    shared_network: bool = False,
    namespace: str = "",
    workers: int = OPERATOR.workers,
    electors: Mapping[str, Elector] | None = None,
    checks_definitions: bool = False,
    now: Callable[[], datetime] = _now,
) -> Manager:
    """Stores, reflectors and one controller for each resource that jobs have, wired. ``checks_definitions`` is for a
    cluster whose definitions are installed apart from this program."""
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
        reflectors.append(Reflector(cluster, nodes, NODE_CODEC, is_optional=True))
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
