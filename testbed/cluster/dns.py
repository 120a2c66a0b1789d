"""CoreDNS in the cluster: the names of services and pods, and no others."""

from typing import Any

import yaml

from testbed.cluster.network import DNS_ADDRESS

NAMESPACE = "kube-system"
IMAGE = "docker.io/trainmaster-test/coredns:1"
_COREFILE = """.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    cache 5
}
"""
_NAME = "coredns"
_LABELS = {"k8s-app": "kube-dns"}


def manifest(node: str) -> str:
    """The objects of CoreDNS. It runs on one node, which tests leave alone: without names every kind stands still."""
    return yaml.safe_dump_all([*_account(), _config(), _deployment(node), _service()])


def _account() -> list[dict[str, Any]]:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    core = ["endpoints", "services", "pods", "namespaces"]
    rules = [
        {"apiGroups": [""], "resources": core, "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    version, metadata = "rbac.authorization.k8s.io/v1", {"name": "system:coredns"}
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        {"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def _config() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(), "data": {"Corefile": _COREFILE}}


def _deployment(node: str) -> dict[str, Any]:
    container = {
        "name": _NAME,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    pod = {
        "serviceAccountName": _NAME,
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": _NAME}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(),
        "spec": {
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _service() -> dict[str, Any]:
    ports = [{"name": name, "port": 53, "protocol": name.upper()} for name in ("udp", "tcp")]
    spec = {"clusterIP": DNS_ADDRESS, "selector": _LABELS, "ports": ports}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": NAMESPACE},
        "spec": spec,
    }


def _metadata() -> dict[str, Any]:
    return {"name": _NAME, "namespace": NAMESPACE}
