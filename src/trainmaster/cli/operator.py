"""``trainmaster operator``: reconciles the jobs of a cluster, or of one namespace."""

import os
from collections.abc import Mapping
from typing import Any

import click
import structlog

from trainmaster.cli.log import configure_logging
from trainmaster.cli.option import (
    COMMON_V1_1,
    CONTEXT,
    LOG_FORMAT,
    MASTER,
    RUN_IN_CLUSTER,
    ZAP_FLAGS,
    Duration,
    GoCommand,
    Ignored,
    go_duration,
)
from trainmaster.lifecycle.port import FIRST, LAST
from trainmaster.settings import OPERATOR, SYSTEM_NAMESPACE

log = structlog.get_logger(__name__)

DURATION = Duration()
_NO_EFFECT = "variable has no effect and is ignored"

_IGNORED = Ignored(
    "resync-period",
    "leader-elect-resource-lock",
    "gc-interval",
    "chaos-level",
    "sync-period",
    *COMMON_V1_1,
    flags=("logtostderr", "alsologtostderr", *ZAP_FLAGS),
)


@click.command(cls=GoCommand)
@click.option(
    "--kubeconfig",
    default="",
    envvar="USE_KUBE_CONFIG",
    help="Path of the kubeconfig. Default: $USE_KUBE_CONFIG, then $KUBECONFIG, then ~/.kube/config.",
)
@CONTEXT
@MASTER
@RUN_IN_CLUSTER
@click.option("--namespace", default="", help="Reconcile the jobs of this namespace only. Default: all namespaces.")
@click.option(
    "--enable-scheme",
    "kinds",
    multiple=True,
    help="Reconcile jobs of this kind only, for example dijob or mxjob.kubeflow.org; may be repeated. Default: all "
    "kinds.",
)
@click.option(
    "--install-crds", is_flag=True, help="Create the definitions of the kinds that the API server does not have."
)
@click.option(
    "--server-url",
    "--server-address",
    "--di-server-url",
    default=OPERATOR.jobs.server_url,
    show_default=True,
    help="Address of di-server for pods (KUBERNETES_SERVER_URL, DI_SERVER_URL).",
)
@click.option(
    "--service-domain-name",
    default=OPERATOR.jobs.service_domain,
    show_default=True,
    help="What follows the namespace in DNS names of pods (DI_NODES).",
)
@click.option(
    "--agconfig-namespace",
    default="",
    help="Namespace of the AggregatorConfig. Whoever may write there chooses pods of all jobs. "
    f"Default: --namespace, else the namespace of the pod, else {SYSTEM_NAMESPACE}.",
)
@click.option(
    "--agconfig-name",
    default=OPERATOR.jobs.aggregator_config.name,
    show_default=True,
    help="Name of the AggregatorConfig.",
)
@click.option(
    "--controller-config-file",
    "--controller_config_file",
    default="",
    help="YAML file with the volumes and variables of pods that request an accelerator (docs/mxjob.md).",
)
@click.option(
    "--gang-scheduler-name",
    default=OPERATOR.jobs.gang_scheduler,
    help="Scheduler for gang scheduling: volcano, or one with the scheduler-plugins. Default: no gang scheduling.",
)
@click.option(
    "--creating-duration-period",
    type=DURATION,
    default=go_duration(OPERATOR.jobs.creating_duration_period),
    show_default=True,
    help="How long a pod may try to create its containers before it fails, for example without its image.",
)
@click.option(
    "--creating-restart-period",
    type=DURATION,
    default=go_duration(OPERATOR.jobs.creating_restart_period),
    show_default=True,
    help="How long pods that cannot create their containers are replaced before the job fails.",
)
@click.option(
    "--enable-creating-failed/--no-enable-creating-failed",
    default=OPERATOR.jobs.enable_creating_failed,
    show_default=True,
    help="Fail pods that cannot create their containers.",
)
@click.option(
    "--node-fail-grace-period",
    type=DURATION,
    default=go_duration(OPERATOR.jobs.node_fail_grace_period),
    show_default=True,
    help="How long a node may be not ready before its pods count as lost.",
)
@click.option(
    "--device-fail-grace-period",
    type=DURATION,
    default=go_duration(OPERATOR.jobs.device_fail_grace_period),
    show_default=True,
    help="How long devices of pods may be missing on their node, as while its device plug-in is upgraded.",
)
@click.option(
    "--bad-node-condition",
    "bad_node_conditions",
    multiple=True,
    help="Condition of a node, for example GPUUnhealthy, under which it has failed; may be repeated.",
)
@click.option(
    "--max-host-ports-per-job",
    type=click.IntRange(1, LAST - FIRST + 1),
    default=OPERATOR.jobs.max_host_ports_per_job,
    show_default=True,
    help="Maximum number of ports of one job whose pods use the network of their nodes (hostNetwork).",
)
@click.option(
    "--max-host-ports-per-namespace",
    type=click.IntRange(1),
    default=OPERATOR.jobs.max_host_ports_per_namespace,
    show_default=True,
    help="Maximum number of such ports of all jobs in one namespace.",
)
@click.option(
    "--thread-num",
    type=click.IntRange(1, 1000),
    default=OPERATOR.workers,
    show_default=True,
    help="Number of jobs of each kind that are reconciled concurrently.",
)
@click.option(
    "--request-timeout",
    type=DURATION,
    default=go_duration(OPERATOR.request_timeout),
    show_default=True,
    help="Timeout of a request to the API server.",
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=OPERATOR.leader_elect,
    show_default=True,
    help="Reconcile the jobs of a kind only while holding its Lease.",
)
@click.option(
    "--leader-elect-lease-duration",
    type=DURATION,
    default=go_duration(OPERATOR.election.lease),
    show_default=True,
    help="How long other operators wait for the leader to renew its lease.",
)
@click.option(
    "--leader-elect-renew-deadline",
    type=DURATION,
    default=go_duration(OPERATOR.election.renew_deadline),
    show_default=True,
    help="How long the leader tries to renew its lease before it stops.",
)
@click.option(
    "--leader-elect-retry-period",
    type=DURATION,
    default=go_duration(OPERATOR.election.retry),
    show_default=True,
    help="Time between two attempts to acquire or renew the lease.",
)
@click.option(
    "--leader-elect-resource-name",
    default=OPERATOR.lease_name,
    help="Name of one Lease for all kinds. Default: one for each kind, for example dijobs.diengine.opendilab.org.",
)
@click.option(
    "--leader-elect-resource-namespace",
    default="",
    help=f"Namespace of the Leases. Default: --namespace, else {OPERATOR.lease_namespace}.",
)
@click.option(
    "--delegated-namespace",
    "delegated_namespaces",
    multiple=True,
    help="Namespace with an operator of its own; may be repeated. Its jobs are left to that operator while it holds "
    "the Lease there. Leases of other namespaces are ignored: everybody with the role edit can write one.",
)
@click.option(
    "--metrics-bind-address",
    "--metric-addr",
    default=OPERATOR.metrics_bind_address,
    show_default=True,
    help="Address of Prometheus metrics; 0 to disable.",
)
@click.option(
    "--health-probe-bind-address",
    "--probe-addr",
    default=OPERATOR.health_probe_bind_address,
    show_default=True,
    help="Address of /healthz and /readyz; 0 to disable.",
)
@LOG_FORMAT
@click.option(
    "--v",
    "verbosity",
    type=int,
    default=0,
    show_default=True,
    help="Log level; 4 and more logs every action with its reason.",
)
@_IGNORED
@click.version_option(package_name="trainmaster")
def operator(log_format: str, verbosity: int, **given: Any) -> None:
    """Reconcile the training jobs of a cluster.

    \b
    Example:
      trainmaster operator --kubeconfig ~/.kube/config
    """
    configure_logging(log_format, verbosity)
    _IGNORED.drop(given)
    _warn_of_variables(os.environ, given["namespace"])
    # Imported here: the HTTP stack takes longer to load than --help should take to answer.
    from trainmaster.cli.operator_process import OperatorOptions, run_operator

    run_operator(OperatorOptions(**given))


def _warn_of_variables(environ: Mapping[str, str], namespace: str) -> None:
    """The mxnet-operator did not start without these. To read the first as --namespace would silently leave out the
    jobs of other namespaces, which that operator reconciled, too."""
    own = environ.get("MY_POD_NAMESPACE")
    if own and not namespace:
        limit = f"--namespace={own} limits the operator to that namespace"
        log.warning(_NO_EFFECT, variable="MY_POD_NAMESPACE", hint=f"jobs of all namespaces are reconciled; {limit}")
    if environ.get("MY_POD_NAME"):
        holder = "the holder of the Leases is named after the host, and POD_UID or the process"
        log.warning(_NO_EFFECT, variable="MY_POD_NAME", hint=holder)
