"""``trainmaster webhook``: defaults and checks jobs before the API server stores them."""

from typing import Any

import click
import structlog

from trainmaster.cli.log import configure_logging
from trainmaster.cli.option import CONTEXT, KUBECONFIG, LOG_FORMAT, MASTER, RUN_IN_CLUSTER, Duration, GoCommand

log = structlog.get_logger(__name__)

_IGNORED = ("logtostderr", "leader_elect")


@click.command(cls=GoCommand)
@KUBECONFIG
@CONTEXT
@MASTER
@RUN_IN_CLUSTER
@click.option("--bind-address", default=":9443", show_default=True, help="Where the API server asks, over TLS.")
@click.option(
    "--cert-dir",
    default="",
    help="Serve tls.crt and tls.key of this folder, say cert-manager's; default: make and rotate certificates.",
)
@click.option(
    "--namespace", default="", help="Of the Service and of the Secret; default the pod's own, else trainmaster-system."
)
@click.option("--service-name", default="trainmaster-webhook", show_default=True, help="Name in the certificate.")
@click.option(
    "--certificate-host",
    "certificate_hosts",
    multiple=True,
    help="Another name or address in it, for a configuration by URL; may be repeated.",
)
@click.option(
    "--secret-name",
    default="trainmaster-webhook-certificate",
    show_default=True,
    help="Secret that holds authority and certificate.",
)
@click.option(
    "--mutating-configuration",
    default="trainmaster",
    show_default=True,
    help="MutatingWebhookConfiguration whose caBundle is kept.",
)
@click.option(
    "--validating-configuration",
    default="trainmaster",
    show_default=True,
    help="ValidatingWebhookConfiguration whose caBundle is kept.",
)
@click.option(
    "--request-timeout",
    type=Duration(),
    default="10s",
    show_default=True,
    help="Longest wait for one answer of the API server.",
)
@click.option("--metrics-bind-address", default=":8080", show_default=True, help="Prometheus metrics; 0 for none.")
@click.option(
    "--health-probe-bind-address", default=":8081", show_default=True, help="/healthz and /readyz; 0 for none."
)
@LOG_FORMAT
@click.option("--v", "verbosity", type=int, default=0, show_default=True, help="4 and more logs more.")
@click.option("--logtostderr/--no-logtostderr", default=None, hidden=True)
@click.option("--leader-elect/--no-leader-elect", default=None, hidden=True)
def webhook(log_format: str, verbosity: int, **given: Any) -> None:
    """Default and check jobs before the API server stores them.

    \b
    Example:
      trainmaster webhook --run-in-cluster
    """
    configure_logging(log_format, verbosity)
    for name in _IGNORED:
        if given.pop(name) is not None:
            log.warning("option has no meaning any more and is ignored", option=f"--{name.replace('_', '-')}")
    # Imported here: the HTTP stack takes longer to load than --help should take to answer.
    from trainmaster.cli.admission import WebhookOptions, run_webhook

    run_webhook(WebhookOptions(**given))
