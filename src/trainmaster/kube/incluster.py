"""The API server of the cluster that this pod runs in, from the environment and the service account."""

import os
from pathlib import Path

from trainmaster.core.errors import BadConfig
from trainmaster.kube.address import server_url
from trainmaster.kube.config import Config, Material, Tls, User
from trainmaster.kube.proxy import proxy_from

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def is_in_cluster() -> bool:
    return all(_service())


def in_cluster_config(service_account: Path = SERVICE_ACCOUNT) -> Config:
    """The token stays a path and is read again: the kubelet replaces the file before the token expires."""
    host, port = _service()
    if not host or not port:
        raise BadConfig(
            "not inside a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; give --kubeconfig"
        )
    todo = "does the pod set automountServiceAccountToken: false?"
    token = Material(f"service account token ({todo})", path=service_account / "token")
    ca = Material(f"service account CA ({todo})", path=service_account / "ca.crt")
    token.read()
    ca.read()
    bracketed = f"[{host}]" if ":" in host else host
    server = server_url(f"https://{bracketed}:{port}", tls=True, where="KUBERNETES_SERVICE_HOST")
    namespace = _namespace(service_account)
    return Config(
        server=server,
        source=f"service account in {service_account}",
        namespace=namespace or "default",
        pod_namespace=namespace,
        tls=Tls(ca=ca),
        user=User(token=token),
        proxy=proxy_from(os.environ, server),
    )


def _service() -> tuple[str, str]:
    return os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")


def _namespace(service_account: Path) -> str:
    try:
        return (service_account / "namespace").read_text().strip()
    except OSError:
        return ""
