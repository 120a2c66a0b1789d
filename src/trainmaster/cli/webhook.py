"""``trainmaster webhook``: defaults and checks jobs before the API server stores them."""

from typing import Any

import click

from trainmaster.cli.log import configure_logging
from trainmaster.cli.option import (
    CONTEXT,
    KUBECONFIG,
    LOG_FORMAT,
    MASTER,
    RUN_IN_CLUSTER,
    Duration,
    GoCommand,
    Ignored,
    go_duration,
)
from trainmaster.settings import SYSTEM_NAMESPACE, WEBHOOK

_IGNORED = Ignored(flags=("logtostderr", "leader-elect"))


@click.command(cls=GoCommand)
@KUBECONFIG
@CONTEXT
@MASTER
@RUN_IN_CLUSTER
@click.option(
    "--bind-address", default=WEBHOOK.bind_address, show_default=True, help="Address to listen on with TLS, host:port."
)
@click.option(
    "--cert-dir",
    default="",
    help="Folder with tls.crt and tls.key, for example of cert-manager. Default: create and rotate certificates.",
)
@click.option(
    "--client-ca-file",
    default="",
    help="Serve only clients with a certificate of this authority (PEM), such as API servers. Default: all clients.",
)
@click.option(
    "--namespace",
    default="",
    help=f"Namespace of the Service and the Secret. Default: the namespace of the pod, else {SYSTEM_NAMESPACE}.",
)
@click.option(
    "--service-name",
    default=WEBHOOK.service_name,
    show_default=True,
    help="Name of the Service, which the certificate is for.",
)
@click.option(
    "--certificate-host",
    "certificate_hosts",
    multiple=True,
    help="Another name or address in the certificate, for a configuration with a URL; may be repeated.",
)
@click.option(
    "--secret-name",
    default=WEBHOOK.secret_name,
    show_default=True,
    help="Secret with the certificate and its authority.",
)
@click.option(
    "--mutating-configuration",
    default=WEBHOOK.configuration,
    show_default=True,
    help="MutatingWebhookConfiguration whose caBundle is updated.",
)
@click.option(
    "--validating-configuration",
    default=WEBHOOK.configuration,
    show_default=True,
    help="ValidatingWebhookConfiguration whose caBundle is updated.",
)
@click.option(
    "--request-timeout",
    type=Duration(),
    default=go_duration(WEBHOOK.request_timeout),
    show_default=True,
    help="Timeout of a request to the API server.",
)
@click.option(
    "--metrics-bind-address",
    default=WEBHOOK.metrics_bind_address,
    show_default=True,
    help="Address of Prometheus metrics; 0 to disable.",
)
@click.option(
    "--health-probe-bind-address",
    default=WEBHOOK.health_probe_bind_address,
    show_default=True,
    help="Address of /healthz and /readyz; 0 to disable.",
)
@LOG_FORMAT
@click.option("--v", "verbosity", type=int, default=0, show_default=True, help="Log level; 4 and more logs more.")
@_IGNORED
def webhook(log_format: str, verbosity: int, **given: Any) -> None:
    """Default and check jobs before the API server stores them.

    \b
    Example:
      trainmaster webhook --run-in-cluster
    """
    configure_logging(log_format, verbosity)
    _IGNORED.drop(given)
    # Imported here: the HTTP stack takes longer to load than --help should take to answer.
    from trainmaster.cli.admission import WebhookOptions, run_webhook

    run_webhook(WebhookOptions(**given))
