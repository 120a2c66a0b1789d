"""The composition root of ``trainmaster webhook``: which parts it is made of, how it starts and stops."""

import asyncio
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import Key
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Config
from trainmaster.kube.incluster import in_cluster_config
from trainmaster.kube.kubeconfig import load_config
from trainmaster.monitoring import serve_health, serve_metrics
from trainmaster.runtime.metrics import RequestMetrics
from trainmaster.settings import SYSTEM_NAMESPACE
from trainmaster.webhook.folder import FolderKeeper
from trainmaster.webhook.keeper import Keeper, Place
from trainmaster.webhook.served import Served
from trainmaster.webhook.server import serve_admission
from trainmaster.wiring.loop import run_loop

log = structlog.get_logger(__name__)

LEAVE = 5.0
"""Seconds in which it says that it is not ready any more and still answers: so long a Service may send requests."""


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line, decoded; the names are those of the options."""

    kubeconfig: str
    context: str
    master: str
    run_in_cluster: bool
    bind_address: str
    cert_dir: str
    client_ca_file: str
    namespace: str
    service_name: str
    certificate_hosts: tuple[str, ...]
    secret_name: str
    mutating_configuration: str
    validating_configuration: str
    request_timeout: float
    metrics_bind_address: str
    health_probe_bind_address: str


class _Certificates(Protocol):
    """Keeps the served certificate up to date."""

    @property
    def trouble(self) -> str: ...

    async def run(self, stop: asyncio.Event) -> None: ...


def run_webhook(options: WebhookOptions) -> None:
    run_loop(_run(options))


async def _run(options: WebhookOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    served = Served(client_ca=_client_ca(options.client_ca_file))
    if options.cert_dir:  # then there is nothing to ask the API server for
        await _serve(options, served, FolderKeeper(Path(options.cert_dir), served, now=_now), stop)
        return
    if options.request_timeout <= 0:
        raise BadConfig("--request-timeout must be more than 0: every call needs an end")
    config = _config(options)
    async with KubeCluster(config, timeout=options.request_timeout, observe=RequestMetrics().observe) as cluster:
        keeper = Keeper(cluster, _place(options, config), served, now=_now, monotonic=time.monotonic)
        await _serve(options, served, keeper, stop)


async def _serve(options: WebhookOptions, served: Served, certificates: _Certificates, stop: asyncio.Event) -> None:
    def trouble() -> str:
        return "it is about to end" if stop.is_set() else certificates.trouble

    async with (
        serve_metrics(options.metrics_bind_address),
        serve_health(options.health_probe_bind_address, lambda: not trouble(), trouble),
        serve_admission(options.bind_address, all_resource_kinds(Settings()), served.context, stop.is_set),
    ):
        log.info("starting", address=options.bind_address, certificates=options.cert_dir or options.secret_name)
        await certificates.run(stop)
        log.info("leaving", seconds=LEAVE)
        await asyncio.sleep(LEAVE)
    log.info("stopped")


def _client_ca(path: str) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise BadConfig(f"--client-ca-file {path}: {error.strerror}; write a file with certificates") from error


def _config(options: WebhookOptions) -> Config:
    if options.run_in_cluster:
        return in_cluster_config()
    return load_config(kubeconfig=options.kubeconfig, context=options.context, master=options.master)


def _place(options: WebhookOptions, config: Config) -> Place:
    own = config.namespace if config.namespace not in ("", "default") else SYSTEM_NAMESPACE
    namespace = options.namespace or own
    service = f"{options.service_name}.{namespace}"
    names = (service, f"{service}.svc", f"{service}.svc.cluster.local", *options.certificate_hosts)
    if bad := [name for name in names if not name or not name.isascii()]:
        raise BadConfig(f"{bad[0]!r} cannot stand in a certificate; write a DNS name or an IP address")
    return Place(
        secret=Key(namespace, options.secret_name),
        hosts=frozenset(names),
        mutating=options.mutating_configuration,
        validating=options.validating_configuration,
    )


def _now() -> datetime:
    return datetime.now(UTC)
