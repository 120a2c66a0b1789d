"""trainmaster.kube.incluster"""

from pathlib import Path

import pytest

from tests.kube.build import a_kubeconfig, write_yaml
from trainmaster.core.errors import BadConfig
from trainmaster.kube.incluster import in_cluster_config
from trainmaster.kube.kubeconfig import load_config


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("sa-token\n")
    (tmp_path / "ca.crt").write_text("the ca")
    (tmp_path / "namespace").write_text("operators")
    return tmp_path


@pytest.fixture
def in_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")


@pytest.mark.parametrize(
    ("host", "port", "server"),
    [
        pytest.param("10.96.0.1", "6443", "https://10.96.0.1:6443", id="IPv4"),
        pytest.param("fd00::1", "6443", "https://[fd00::1]:6443", id="IPv6"),
    ],
)
def test_server_is_the_kubernetes_service(
    host: str, port: str, server: str, service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)

    assert in_cluster_config(service_account).server == server


@pytest.mark.usefixtures("in_cluster")
def test_service_account_has_token_and_namespace(service_account: Path) -> None:
    config = in_cluster_config(service_account)

    assert config.user.token is not None
    assert config.tls.ca is not None
    assert (config.user.token.read(), config.tls.ca.read(), config.namespace) == (b"sa-token", b"the ca", "operators")


@pytest.mark.usefixtures("in_cluster")
def test_cluster_we_run_in_wins_over_home_but_not_over_a_named_file(service_account: Path, tmp_path: Path) -> None:
    home = write_yaml(Path.home() / ".kube" / "config", a_kubeconfig(cluster={"server": "https://home"}))

    assert load_config(service_account=service_account).server.startswith("https://10.96.0.1")
    assert load_config(kubeconfig=str(home), service_account=service_account).server == "https://home"
    assert load_config(context="dev", service_account=service_account).server == "https://home"


@pytest.mark.usefixtures("in_cluster")
@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_missing_service_account_file_is_explained(name: str, service_account: Path) -> None:
    (service_account / name).unlink()

    with pytest.raises(BadConfig, match=rf"service account .*automountServiceAccountToken.*cannot read .*/{name}"):
        in_cluster_config(service_account)


@pytest.mark.usefixtures("in_cluster")
def test_the_pods_own_namespace_is_known(service_account: Path) -> None:
    assert in_cluster_config(service_account).pod_namespace == "operators"


@pytest.mark.usefixtures("in_cluster")
def test_missing_namespace_is_default(service_account: Path) -> None:
    (service_account / "namespace").unlink()

    assert in_cluster_config(service_account).namespace == "default"


def test_outside_a_cluster_there_is_an_error(service_account: Path) -> None:
    with pytest.raises(BadConfig, match="not inside a cluster: KUBERNETES_SERVICE_HOST"):
        in_cluster_config(service_account)
