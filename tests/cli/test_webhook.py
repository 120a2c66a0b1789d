from typing import Any

import msgspec
import pytest
import structlog
from click.testing import CliRunner, Result

from trainmaster.cli import admission
from trainmaster.cli.admission import WebhookOptions
from trainmaster.cli.webhook import webhook
from trainmaster.core.errors import BadConfig
from trainmaster.kube.config import Config


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[WebhookOptions]:
    """What the webhook would have been started with; it is not."""
    started: list[WebhookOptions] = []
    monkeypatch.setattr("trainmaster.cli.admission.run_webhook", started.append)
    monkeypatch.setattr("trainmaster.cli.webhook.configure_logging", lambda style, verbosity: None)
    return started


def run(*args: str) -> Result:
    return CliRunner().invoke(webhook, args)


DEFAULTS = WebhookOptions(
    kubeconfig="",
    context="",
    master="",
    run_in_cluster=False,
    bind_address=":9443",
    cert_dir="",
    client_ca_file="",
    namespace="",
    service_name="trainmaster-webhook",
    certificate_hosts=(),
    secret_name="trainmaster-webhook-certificate",
    mutating_configuration="trainmaster",
    validating_configuration="trainmaster",
    request_timeout=10.0,
    metrics_bind_address=":8080",
    health_probe_bind_address=":8081",
)


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        pytest.param([], {}, id="defaults"),
        pytest.param(["--run-in-cluster=true"], {"run_in_cluster": True}, id="in cluster"),
        pytest.param(["--cert-dir=/certs"], {"cert_dir": "/certs"}, id="files"),
        pytest.param(["--client-ca-file=/ca.crt"], {"client_ca_file": "/ca.crt"}, id="clients"),
        pytest.param(
            ["--certificate-host=127.0.0.1", "--certificate-host", "a.example"],
            {"certificate_hosts": ("127.0.0.1", "a.example")},
            id="hosts",
        ),
        pytest.param(
            ["--service-name=di-webhook-service", "--namespace=di-system"],
            {"service_name": "di-webhook-service", "namespace": "di-system"},
            id="the ancestors' names",
        ),
    ],
)
def test_options_reach_the_webhook(given: list[WebhookOptions], args: list[str], fields: dict[str, Any]) -> None:
    result = run(*args)

    assert (result.exit_code, result.output) == (0, "")
    assert given == [msgspec.structs.replace(DEFAULTS, **fields)]


def test_an_option_without_meaning_is_accepted_with_a_warning(given: list[WebhookOptions]) -> None:
    with structlog.testing.capture_logs() as logs:
        result = run("--leader-elect=false")

    assert (result.exit_code, given) == (0, [DEFAULTS])
    assert [line["option"] for line in logs] == ["--leader-elect"]


# --- what the options mean ---


def a_config(namespace: str) -> Config:
    return Config(server="https://127.0.0.1:1", source="test", namespace=namespace)


@pytest.mark.parametrize(
    ("own", "namespace"),
    [
        pytest.param("default", "trainmaster-system", id="outside"),
        pytest.param("di-system", "di-system", id="in a pod"),
    ],
)
def test_the_certificate_is_for_the_service_by_all_of_its_names(own: str, namespace: str) -> None:
    options = msgspec.structs.replace(DEFAULTS, certificate_hosts=("127.0.0.1",))
    place = admission._place(options, a_config(own))

    assert place.secret == (namespace, "trainmaster-webhook-certificate")
    service = f"trainmaster-webhook.{namespace}"
    assert place.hosts == {service, f"{service}.svc", f"{service}.svc.cluster.local", "127.0.0.1"}


@pytest.mark.parametrize("host", ["", "größe.example"])
def test_a_host_that_cannot_stand_in_a_certificate_is_told(host: str) -> None:
    options = msgspec.structs.replace(DEFAULTS, certificate_hosts=(host,))

    with pytest.raises(BadConfig, match="cannot stand in a certificate"):
        admission._place(options, a_config("x"))


def test_every_call_needs_an_end() -> None:
    options = msgspec.structs.replace(DEFAULTS, request_timeout=0.0, master="http://127.0.0.1:1")

    with pytest.raises(BadConfig, match="--request-timeout must be more than 0"):
        admission.run_webhook(options)


def test_nothing_starts_on_an_address_that_is_none(tmp_path: object) -> None:
    options = msgspec.structs.replace(
        DEFAULTS, cert_dir=str(tmp_path), bind_address="9443", metrics_bind_address="0", health_probe_bind_address="0"
    )

    with pytest.raises(BadConfig, match="bad address '9443'"):
        admission.run_webhook(options)
