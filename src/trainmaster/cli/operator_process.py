"""An operator as a process: how it starts, leads and stops."""

import asyncio
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import structlog

from trainmaster.cli.accelerator import accelerators_in
from trainmaster.cli.exit_code import FAILED
from trainmaster.cli.template_namespace import template_namespace
from trainmaster.core.definition import UPDATE_COMMAND
from trainmaster.core.errors import AlreadyExists, BadConfig, Forbidden, NotLeading
from trainmaster.core.ids import Key
from trainmaster.kinds.crd import crds_of
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.kube.client import KubeCluster, Observe
from trainmaster.kube.config import Config
from trainmaster.kube.incluster import in_cluster_config
from trainmaster.kube.kubeconfig import load_config
from trainmaster.monitoring import serve_health, serve_metrics
from trainmaster.runtime import metrics
from trainmaster.runtime.clock import Clock
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.definition_check import DEFINITION
from trainmaster.runtime.elector import Elector, lease_name
from trainmaster.settings import OPERATOR, ElectionTimes, JobSettings
from trainmaster.wiring.loop import run_loop
from trainmaster.wiring.manager import build_manager, chosen, utc_now

log = structlog.get_logger(__name__)

LEASE_CONNECTIONS = 2
"""For each lease. When the API server is slow, passes use all the others for longer than a lease can wait."""


def _elapsed() -> float:
    """Seconds that also pass while the machine sleeps: a lease does not wait for a lid to open."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


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
    device_fail_grace_period: float
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
    delegated_namespaces: tuple[str, ...]
    metrics_bind_address: str
    health_probe_bind_address: str


def run_operator(options: OperatorOptions) -> None:
    try:
        run_loop(_operate(options))
    except NotLeading as error:
        log.error("ending: this process does not lead any more", because=str(error))  # noqa: TRY400 one line is enough
        raise SystemExit(FAILED) from None


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
    kinds = chosen(all_resource_kinds(_job_settings(options, config)), options.kinds)
    clock = Clock(utc_now, _elapsed)
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
            lease_namespace=_lease_namespace(options) if electors else "",
            delegated=_delegated(options),
            checks_definitions=True,
            now=clock.now,
            monotonic=_elapsed,
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


def _job_settings(options: OperatorOptions, config: Config) -> JobSettings:
    aggregators = Key(template_namespace(options.agconfig_namespace, options.namespace, config), options.agconfig_name)
    return JobSettings(
        server_url=options.server_url,
        service_domain=options.service_domain_name,
        aggregator_config=aggregators,
        dijob_aggregator_config=aggregators,
        accelerators=accelerators_in(options.controller_config_file),
        gang_scheduler=options.gang_scheduler_name,
        max_host_ports_per_job=options.max_host_ports_per_job,
        max_host_ports_per_namespace=options.max_host_ports_per_namespace,
        creating_duration_period=options.creating_duration_period,
        creating_restart_period=options.creating_restart_period,
        enable_creating_failed=options.enable_creating_failed,
        node_fail_grace_period=options.node_fail_grace_period,
        device_fail_grace_period=options.device_fail_grace_period,
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


@asynccontextmanager
async def _electing(
    options: OperatorOptions, kinds: Sequence[ResourceKinds], config: Config, observe: Observe
) -> AsyncIterator[Mapping[str, Elector]]:
    """Electors with connections of their own, by the names of controllers; none for an operator that always leads."""
    if not options.leader_elect:
        yield {}
        return
    times = _election_times(options)
    namespace = _lease_namespace(options)
    leases = {each.name: options.leader_elect_resource_name or lease_name(each.resource) for each in kinds}
    names = set(leases.values())
    identity = identity_of(os.environ)
    connections = LEASE_CONNECTIONS * len(names)
    async with KubeCluster(config, timeout=times.renew_deadline, connections=connections, observe=observe) as cluster:
        electors = {
            name: Elector(cluster, Key(namespace, name), identity, times, now=utc_now, monotonic=_elapsed)
            for name in names
        }
        yield {controller: electors[name] for controller, name in leases.items()}


def _lease_namespace(options: OperatorOptions) -> str:
    """An operator of one namespace has no rights elsewhere."""
    return options.leader_elect_resource_namespace or options.namespace or OPERATOR.lease_namespace


def _delegated(options: OperatorOptions) -> tuple[str, ...]:
    for name in options.delegated_namespaces:
        if options.namespace:
            raise BadConfig(f"--delegated-namespace {name}: it is for an operator of all namespaces; leave it out")
        if name == _lease_namespace(options):
            raise BadConfig(f"--delegated-namespace {name}: this operator has its own Leases there; leave it out")
    return options.delegated_namespaces


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
