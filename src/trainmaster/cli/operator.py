"""``trainmaster operator``: drives all jobs of a cluster, or of one namespace."""

from typing import Any

import click
import structlog

from trainmaster.cli.log import configure_logging
from trainmaster.cli.option import CONTEXT, KUBECONFIG, LOG_FORMAT, MASTER, RUN_IN_CLUSTER, Duration, GoCommand
from trainmaster.kinds.base import Settings

log = structlog.get_logger(__name__)

DURATION = Duration()

_MEANINGLESS = (
    "logtostderr",
    "alsologtostderr",
    "resync_period",
    "leader_elect_resource_lock",
    "gc_interval",
    "chaos_level",
)
"""Options of the ancestors that nothing depends on any more."""


@click.command(cls=GoCommand)
@KUBECONFIG
@CONTEXT
@MASTER
@RUN_IN_CLUSTER
@click.option("--namespace", default="", help="Drive the jobs of this namespace alone; default all.")
@click.option(
    "--enable-scheme",
    "kinds",
    multiple=True,
    help="Drive the jobs of this kind alone, say dijob; may be repeated; default all.",
)
@click.option(
    "--server-url",
    "--server-address",
    default=Settings().server_url,
    show_default=True,
    help="Where pods reach di-server (KUBERNETES_SERVER_URL).",
)
@click.option(
    "--agconfig-namespace",
    default="",
    help=f"Of NerveXJobs' AggregatorConfig; default --namespace, else {Settings().aggregator_config.namespace}.",
)
@click.option(
    "--agconfig-name", default=Settings().aggregator_config.name, show_default=True, help="The AggregatorConfig's name."
)
@click.option(
    "--controller-config-file",
    "--controller_config_file",
    default="",
    help="A YAML file that says what pods with an accelerator get from their machine (docs/mxjob.md).",
)
@click.option(
    "--gang-scheduler-name",
    default="",
    help="The scheduler that places all pods of a job together: volcano, or one that runs the scheduler-plugins.",
)
@click.option(
    "--creating-duration-period",
    type=DURATION,
    default="15m",
    show_default=True,
    help="How long a pod may try to create its containers (an image that cannot be pulled, a missing Secret).",
)
@click.option(
    "--creating-restart-period",
    type=DURATION,
    default="0",
    show_default=True,
    help="How long such a pod is replaced by another one each time; afterwards it has failed.",
)
@click.option(
    "--enable-creating-failed/--no-enable-creating-failed",
    default=True,
    show_default=True,
    help="A pod whose containers cannot be created fails; otherwise it tries for ever.",
)
@click.option(
    "--node-fail-grace-period",
    type=DURATION,
    default="30s",
    show_default=True,
    help="How long a node that is not ready may take to come back before its pods are given up.",
)
@click.option(
    "--bad-node-condition",
    "bad_node_conditions",
    multiple=True,
    help="A condition of nodes, say GPUUnhealthy, under which they have failed; may be repeated.",
)
@click.option(
    "--thread-num",
    type=click.IntRange(1, 1000),
    default=32,
    show_default=True,
    help="Jobs worked on at once, per kind.",
)
@click.option(
    "--request-timeout",
    type=DURATION,
    default="30s",
    show_default=True,
    help="Longest wait for one answer of the API server.",
)
@click.option("--leader-elect/--no-leader-elect", default=False, help="Enable leader election.")
@click.option("--leader-elect-lease-duration", type=DURATION, default="15s", show_default=True)
@click.option("--leader-elect-renew-deadline", type=DURATION, default="10s", show_default=True)
@click.option("--leader-elect-retry-period", type=DURATION, default="2s", show_default=True)
@click.option(
    "--leader-elect-resource-name", default="trainmaster-operator", show_default=True, help="Name of the Lease."
)
@click.option(
    "--leader-elect-resource-namespace",
    default="",
    help="Its namespace; default the pod's own, else trainmaster-system.",
)
@click.option("--metrics-bind-address", default=":8080", show_default=True, help="Prometheus metrics; 0 for none.")
@click.option(
    "--health-probe-bind-address", default=":8081", show_default=True, help="/healthz and /readyz; 0 for none."
)
@LOG_FORMAT
@click.option("--v", "verbosity", type=int, default=0, show_default=True, help="4 and more logs every action and why.")
@click.option("--logtostderr/--no-logtostderr", default=None, hidden=True)
@click.option("--resync-period", default=None, hidden=True)
@click.option("--leader-elect-resource-lock", default=None, hidden=True)
@click.option("--gc-interval", default=None, hidden=True)
@click.option("--chaos-level", default=None, hidden=True)
@click.option("--alsologtostderr/--no-alsologtostderr", default=None, hidden=True)
def operator(log_format: str, verbosity: int, **given: Any) -> None:
    """Drive all training jobs of a cluster.

    \b
    Example:
      trainmaster operator --kubeconfig ~/.kube/config --namespace default
    """
    configure_logging(log_format, verbosity)
    for name in _MEANINGLESS:
        if given.pop(name) is not None:
            log.warning("option has no meaning any more and is ignored", option=f"--{name.replace('_', '-')}")
    # Imported here: the HTTP stack takes longer to load than --help should take to answer.
    from trainmaster.cli.wiring import OperatorOptions, run_operator

    run_operator(OperatorOptions(**given))
