"""``trainmaster server``: di-server, where coordinators ask for collectors and learners."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import structlog

from trainmaster.cli.log import configure_logging
from trainmaster.cli.option import (
    COMMON_V1_1,
    CONTEXT,
    KUBECONFIG,
    LOG_FORMAT,
    MASTER,
    RUN_IN_CLUSTER,
    ZAP_FLAGS,
    Duration,
    GoCommand,
    Ignored,
    go_duration,
)
from trainmaster.kinds.dijob.declaration import MAX_MEMBERS
from trainmaster.settings import OPERATOR, SERVER, SYSTEM_NAMESPACE

if TYPE_CHECKING:
    import ssl

    from trainmaster.diserver.serve import ServerOptions
    from trainmaster.kube.config import Config

log = structlog.get_logger(__name__)

DURATION = Duration()

_IGNORED = Ignored(
    "lease-lock-name",
    "lease-lock-namespace",
    "di-server-url",
    "metric-addr",
    "probe-address",
    *COMMON_V1_1,
    flags=("leader-elect", *ZAP_FLAGS),
    letters={"probe-address": "p"},
)


@click.command(cls=GoCommand)
@KUBECONFIG
@CONTEXT
@MASTER
@RUN_IN_CLUSTER
@click.option("--namespace", default="", help="Serve the jobs of this namespace only. Default: all namespaces.")
@click.option(
    "--enable-scheme",
    "kinds",
    multiple=True,
    help="Serve jobs of this kind only, dijob or nervexjob; may be repeated. Default: both.",
)
@click.option(
    "--bind-address",
    "--server-bind-address",
    "-s",
    default=SERVER.bind_address,
    show_default=True,
    help="Address to listen on, host:port.",
)
@click.option(
    "--tls-cert-dir",
    default="",
    help="Serve HTTPS with tls.crt and tls.key of this folder, read again when they change. Default: plain HTTP, "
    "which is what DI-engine's client speaks.",
)
@click.option(
    "--agconfig-namespace",
    default="",
    help="Namespace of the AggregatorConfig of DIJobs, as at the operator. "
    f"Default: --namespace, else the namespace of the pod, else {SYSTEM_NAMESPACE}.",
)
@click.option(
    "--agconfig-name",
    default=SERVER.aggregator_config.name,
    show_default=True,
    help="Name of the AggregatorConfig of DIJobs.",
)
@click.option(
    "--service-domain-name",
    default=OPERATOR.jobs.service_domain,
    show_default=True,
    help="What follows the namespace in DNS names of pods (DI_NODES), as at the operator.",
)
@click.option(
    "--gpu-alloc-policy",
    type=click.Choice(["simple"]),
    default="simple",
    show_default=True,
    help="How the GPUs of a learner are split over pods; simple: as many for each pod as most GPU nodes have.",
)
@click.option(
    "--max-replicas-per-job",
    type=click.IntRange(1, MAX_MEMBERS),
    default=SERVER.max_replicas_per_job,
    show_default=True,
    help="Maximum number of replicas of one job.",
)
@click.option(
    "--max-replicas-per-namespace",
    type=click.IntRange(1),
    default=SERVER.max_replicas_per_namespace,
    show_default=True,
    help="Maximum number of replicas of all jobs in one namespace.",
)
@click.option(
    "--allow-unidentified/--no-allow-unidentified",
    default=False,
    help="Accept requests without a token from addresses that are not pods of the job. Without --namespace, only "
    "with a --bind-address of this machine alone.",
)
@click.option(
    "--shared-network/--no-shared-network", default=False, help="All pods share one network, as in local mode."
)
@click.option(
    "--shutdown-delay-duration",
    type=DURATION,
    default=go_duration(SERVER.shutdown_delay),
    show_default=True,
    help="How long to serve requests after SIGTERM, while /readyz fails.",
)
@click.option(
    "--request-timeout",
    type=DURATION,
    default=go_duration(SERVER.request_timeout),
    show_default=True,
    help="Timeout of a request to the API server.",
)
@LOG_FORMAT
@click.option("--v", "verbosity", type=int, default=0, show_default=True, help="Log level; 4 and more logs more.")
@_IGNORED
def server(log_format: str, verbosity: int, **given: Any) -> None:
    """Serve the coordinators of DIJobs and NerveXJobs (di-server). Several may run at once.

    \b
    Example:
      trainmaster server --kubeconfig ~/.kube/config --bind-address 127.0.0.1:8080
    """
    configure_logging(log_format, verbosity)
    _IGNORED.drop(given)
    from trainmaster.wiring.loop import run_loop

    run_loop(_serve(given))


def options_of(given: Mapping[str, Any], config: "Config") -> "ServerOptions":
    """The command line, as the server wants it."""
    from trainmaster.cli.template_namespace import template_namespace
    from trainmaster.core.ids import Key
    from trainmaster.diserver.limits import Rules
    from trainmaster.diserver.serve import ServerOptions

    return ServerOptions(
        bind_address=given["bind_address"],
        namespace=given["namespace"],
        kinds=given["kinds"],
        allow_unidentified=given["allow_unidentified"],
        drain=given["shutdown_delay_duration"],
        rules=Rules(
            max_per_job=given["max_replicas_per_job"],
            max_per_namespace=given["max_replicas_per_namespace"],
            aggregator_config=Key(
                template_namespace(given["agconfig_namespace"], given["namespace"], config), given["agconfig_name"]
            ),
            shared_network=given["shared_network"],
            service_domain=given["service_domain_name"],
        ),
    )


def check_open(options: "ServerOptions") -> None:
    """Warns if callers need not be known. Raises ``BadConfig`` if these are all callers of a network, for all jobs."""
    from trainmaster.core.errors import BadConfig
    from trainmaster.http_server import split_address

    if not options.allow_unidentified:
        return
    host, port = split_address(options.bind_address)
    if not options.namespace and not _is_loopback(host):
        raise BadConfig(
            "--allow-unidentified: every caller of the network could change the jobs of all namespaces; "
            f"give --bind-address=127.0.0.1:{port}, or the --namespace of these jobs"
        )
    log.warning(
        "callers without a token need not be known (--allow-unidentified): they can change every job",
        namespace=options.namespace or "all",
        address=options.bind_address,
    )


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


async def _serve(given: dict[str, Any]) -> None:
    # Imported here: the HTTP stack takes longer to load than --help should take to answer.
    from trainmaster.core.errors import BadConfig
    from trainmaster.diserver.serve import run_server
    from trainmaster.kube.client import KubeCluster
    from trainmaster.kube.incluster import in_cluster_config
    from trainmaster.kube.kubeconfig import load_config
    from trainmaster.runtime import metrics

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if given["request_timeout"] <= 0:
        raise BadConfig("--request-timeout must be more than 0: every call needs an end")
    if given["run_in_cluster"]:
        config = in_cluster_config()
    else:
        config = load_config(kubeconfig=given["kubeconfig"], context=given["context"], master=given["master"])
    options = options_of(given, config)
    check_open(options)
    observe = metrics.RequestMetrics().observe
    async with (
        KubeCluster(config, timeout=given["request_timeout"], observe=observe) as cluster,
        _certificate(given["tls_cert_dir"], stop) as tls,
    ):
        await run_server(cluster, cluster, options, stop, now=_now, tls=tls)
    log.info("stopped")


@asynccontextmanager
async def _certificate(folder: str, stop: asyncio.Event) -> "AsyncIterator[ssl.SSLContext | None]":
    """Keeps the certificate up to date while the block runs; None without a folder."""
    if not folder:
        yield None
        return
    from trainmaster.core.errors import BadConfig
    from trainmaster.diserver.metrics import CERTIFICATE_END
    from trainmaster.webhook.folder import FolderKeeper
    from trainmaster.webhook.served import Served

    served = Served(CERTIFICATE_END)
    keeper = FolderKeeper(Path(folder), served, now=_now)
    await keeper.look()
    if keeper.trouble:
        raise BadConfig(f"--tls-cert-dir: {keeper.trouble}")
    following = asyncio.create_task(keeper.run(stop))
    try:
        yield served.context
    finally:
        following.cancel()
        await asyncio.wait([following])


def _now() -> datetime:
    return datetime.now(UTC)
