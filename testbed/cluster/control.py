"""The control plane of the cluster: the test bed's binaries, on the address of the bridge, with all controllers."""

import http.client
import json
import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from testbed.certificate import Authority, Pair, signing_key
from testbed.cluster.config import LEASE_SECONDS
from testbed.cluster.daemon import Daemon
from testbed.cluster.network import API_ADDRESS, GATEWAY, SERVICES

# Below the range that systems give to outgoing connections.
PORT = 16443
ETCD_PORT = 16444
PEER_PORT = 16445
MANAGER_PORT = 16446
SCHEDULER_PORT = 16447
URL = f"https://{GATEWAY}:{PORT}"

REQUEST_TIMEOUT = 10.0

EVICTION_SECONDS = 30
"""How long pods stay on a node that is lost. Kubernetes' default is 300 s, which makes tests long."""

AUDIT_MEGABYTES = 256
"""The longest audit log; there is one older file of that size at most. A run of `make e2e` writes about 50 MB."""

ETCD, APISERVER = "etcd", "kube-apiserver"
MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"


class Control:
    """The four programs; their files are in the folder."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder = folder
        self.pki = folder / "pki"
        self.kubeconfig = folder / "kubeconfig"
        self.ca = self.pki / "ca.crt"
        self.audit = folder / "audit.log"
        self._binaries = binaries
        self.daemons = {name: Daemon(folder, name) for name in (ETCD, APISERVER, MANAGER, SCHEDULER)}

    def write_credentials(self) -> Authority:
        """Create the certificates of the control plane; the authority signs those of the nodes, too."""
        self.pki.mkdir(mode=0o700)
        (self.pki / "front").mkdir()
        authority = Authority(self.pki)
        Authority(self.pki / "front")
        signing_key(self.pki / "accounts.key")
        service = "kubernetes.default.svc"
        authority.server(
            "apiserver",
            addresses=(GATEWAY, API_ADDRESS, "127.0.0.1"),
            names=("kubernetes", "kubernetes.default", service, f"{service}.cluster.local"),
        )
        authority.client("kubelet-client", "system:masters", name="kubelet-client")
        for name, user, groups in (
            ("admin", "admin", ("system:masters",)),
            (MANAGER, "system:kube-controller-manager", ()),
            (SCHEDULER, "system:kube-scheduler", ()),
            ("kube-proxy", "system:kube-proxy", ()),
        ):
            self.write_kubeconfig(name, authority.client(user, *groups, name=name))
        (self.folder / "admin.kubeconfig").rename(self.kubeconfig)
        return authority

    def write_kubeconfig(self, name: str, pair: Pair) -> Path:
        """A kubeconfig that names the files of a certificate."""
        file = self.folder / f"{name}.kubeconfig"
        cluster = {"server": URL, "certificate-authority": str(self.ca)}
        user = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": name}}],
            "current-context": "cluster",
        }
        file.write_text(yaml.safe_dump(body))
        return file

    def start_api(self) -> None:
        """Start etcd and the API server."""
        client, peer = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{PEER_PORT}"
        self._start(
            ETCD,
            "--name=cluster",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=cluster={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._start(
            APISERVER,
            f"--etcd-servers={client}",
            f"--bind-address={GATEWAY}",
            f"--advertise-address={GATEWAY}",
            f"--secure-port={PORT}",
            f"--tls-cert-file={self.pki / 'apiserver.crt'}",
            f"--tls-private-key-file={self.pki / 'apiserver.key'}",
            f"--client-ca-file={self.ca}",
            f"--requestheader-client-ca-file={self.pki / 'front' / 'ca.crt'}",
            f"--kubelet-client-certificate={self.pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={self.pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={self.pki / 'accounts.key'}",
            f"--service-account-signing-key-file={self.pki / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
            f"--default-not-ready-toleration-seconds={EVICTION_SECONDS}",
            f"--default-unreachable-toleration-seconds={EVICTION_SECONDS}",
            f"--service-cluster-ip-range={SERVICES}",
            # Webhooks are called by the addresses of their pods: this machine has no kube-proxy.
            "--enable-aggregator-routing",
            "--allow-privileged",
            f"--audit-policy-file={self._write_audit_policy()}",
            f"--audit-log-path={self.audit}",
            f"--audit-log-maxsize={AUDIT_MEGABYTES}",
            "--audit-log-maxbackup=1",
        )

    def _write_audit_policy(self) -> Path:
        """What service accounts outside of Kubernetes itself ask for, without bodies."""
        kubernetes = {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]}
        others = {"level": "Metadata", "userGroups": ["system:serviceaccounts"]}
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [kubernetes, others, {"level": "None"}],
        }
        file = self.folder / "audit.yaml"
        file.write_text(yaml.safe_dump(policy))
        return file

    def start_controllers(self) -> None:
        """Start the controller manager, with all controllers, and the scheduler."""
        self._keep(
            MANAGER,
            *self._component(MANAGER, MANAGER_PORT),
            f"--service-account-private-key-file={self.pki / 'accounts.key'}",
            f"--root-ca-file={self.ca}",
            "--use-service-account-credentials",
            f"--node-monitor-grace-period={LEASE_SECONDS}s",
            "--node-monitor-period=1s",
        )
        self._keep(SCHEDULER, *self._component(SCHEDULER, SCHEDULER_PORT))

    def stop_api(self) -> None:
        """Crash the API server and etcd; the data stays."""
        for name in (APISERVER, ETCD):
            self.daemons[name].kill()

    def is_ready(self) -> bool:
        """Does the API server answer?"""
        try:
            self.get("/readyz")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def get(self, path: str) -> Any:
        """What the API server answers the administrator, None where it is no JSON; for polls, as kubectl is slow."""
        return self.send("GET", path)

    def send(self, method: str, path: str, content: Any = None) -> Any:
        """The same with any method, and with content."""
        tls = ssl.create_default_context(cafile=self.ca)
        tls.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        connection = http.client.HTTPSConnection(GATEWAY, PORT, timeout=REQUEST_TIMEOUT, context=tls)
        with closing(connection):
            data = None if content is None else json.dumps(content)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
        if answer.status not in (200, 201):
            raise OSError(f"{method} {path}: {answer.status} {body[:200]!r}")
        return json.loads(body) if body.startswith(b"{") else None

    def _component(self, name: str, port: int) -> list[str]:
        kubeconfig = self.folder / f"{name}.kubeconfig"
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / name}",
        ]

    def _keep(self, name: str, *arguments: str) -> None:
        """Start it again when it ends, as a kubelet does: the scheduler ends by itself when it finds another pod under
        the name of one that it missed the end of."""
        self._launch(name, "/bin/sh", "-c", 'while :; do "$@"; sleep 1; done', name, self._binaries / name, *arguments)

    def _start(self, name: str, *arguments: str) -> None:
        self._launch(name, self._binaries / name, *arguments)

    def _launch(self, name: str, *command: str | Path) -> None:
        environ = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder)}
        self.daemons[name].start(command, cwd=self.folder, environ=environ)
