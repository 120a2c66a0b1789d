"""A real Kueue on a control plane: its manager, built from its pinned Go module, with its definitions and webhooks.

    with Kueue(plane):
        plane.apply(QUEUES)

`python -m testbed.kueue` builds it if it is missing, into the user's cache. It is no part of the control plane: most
tests do not need it. It is installed as by its own manifests: it makes its certificates and writes their CA into
its webhooks. What the kubelet and the service network do elsewhere is done here: its Secret is written into files, and
its Service leads to loopback.
"""

import base64
import http.client
import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from testbed.answer import Refused
from testbed.build import PLAIN, Binary, Builder, BuildFailed, Site, user_site
from testbed.plane import free_port
from testbed.process import Process, StartFailed, Watchdog

if TYPE_CHECKING:
    from testbed.plane import ControlPlane

MODULE = "sigs.k8s.io/kueue"
BINARY = Binary("kueue", "kueue", f"{MODULE}/cmd/kueue", PLAIN, "5 min")
NAMESPACE, SERVICE, SECRET = "kueue-system", "kueue-webhook-service", "kueue-webhook-server-cert"
START_TIMEOUT = 120.0

_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Definitions whose versions differ. Kueue writes its CA into each of them."""
_HOOKED = ("pods", "jobs", "clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads")
"""Resources whose webhooks are installed: those of other integrations are off."""
_MANIFESTS = ("crd/bases", "webhook/manifests.yaml")


def site() -> Site:
    modules = Path(__file__).with_name("queues")
    return Site(user_site().cache, modules, binaries=(BINARY,), target="kueue")


def build() -> Path:
    """The folder with the program and its manifests, which come with its module."""
    builder = Builder(site())
    folder = builder.build()
    for name in _MANIFESTS:
        if not (target := folder / Path(name).name).exists():
            source = builder.source(BINARY.module, MODULE) / "config" / "components" / name
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    return folder


class Kueue:
    """One manager. It admits pods and batch Jobs; start it after the objects that it does not concern."""

    def __init__(self, plane: "ControlPlane") -> None:
        self._plane = plane

    def __enter__(self) -> Self:
        self._folder = build()
        self.home = Path(tempfile.mkdtemp(prefix="trainmaster-kueue-"))
        self._watchdog = Watchdog(self.home)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if process := getattr(self, "_process", None):
            process.kill()
        self._watchdog.close(keep=False)

    @property
    def log(self) -> str:
        """All that it said so far."""
        return (self.home / "kueue.log").read_text(errors="replace")

    def _start(self) -> None:
        port, health = free_port(), free_port()
        self._install(port)
        certificates = self.home / "certificates"
        certificates.mkdir()
        config = self.home / "config.yaml"
        config.write_text(yaml.safe_dump(_config(port, health, certificates)))
        self._process = Process(
            [self._folder / BINARY.name, f"--config={config}", "--zap-log-level=2"],
            log=self.home / "kueue.log",
            environ={"HOME": str(self.home), "KUBECONFIG": str(self._plane.kubeconfig())},
            watchdog=self._watchdog,
        )
        self._process.wait_ready(lambda: self._mounted(certificates), within=START_TIMEOUT)
        self._process.wait_ready(lambda: _is_ready(health), within=START_TIMEOUT)
        self._process.wait_ready(self._answers, within=START_TIMEOUT)

    def _install(self, port: int) -> None:
        plane = self._plane
        plane.apply(yaml.safe_dump_all(self._definitions(port)))
        bodies: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": SERVICE, "namespace": NAMESPACE},
                "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
            },
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}},
        ]
        for body in bodies:
            plane.apply(yaml.safe_dump(body))
        plane.apply(yaml.safe_dump_all(self._webhooks(port)))

    def _definitions(self, port: int) -> list[dict[str, Any]]:
        found = [yaml.safe_load(file.read_text()) for file in sorted((self._folder / "bases").glob("*.yaml"))]
        for body in found:
            if body["spec"]["names"]["plural"] in _CONVERTED:
                client = {"service": _service(port, "/convert")}
                webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
                body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        return found

    def _webhooks(self, port: int) -> list[dict[str, Any]]:
        found = list(yaml.safe_load_all((self._folder / "manifests.yaml").read_text()))
        system = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
        for body in found:
            body["metadata"]["name"] = f"kueue-{body['metadata']['name']}"
            hooks = [hook for hook in body["webhooks"] if hook["rules"][0]["resources"][0].partition("/")[0] in _HOOKED]
            for hook in hooks:
                hook["clientConfig"]["service"] = _service(port, hook["clientConfig"]["service"]["path"])
                hook["namespaceSelector"] = {"matchExpressions": [system]}
            body["webhooks"] = hooks
        return found

    def _mounted(self, target: Path) -> bool:
        """Writes the Secret into files, as a kubelet does for a volume, when Kueue has filled it."""
        data = self._plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}").get("data") or {}
        for name, text in data.items():
            (target / name).write_bytes(base64.b64decode(text))
        return "tls.key" in data

    def _answers(self) -> bool:
        """Its webhooks are reached: a pod is refused whose group has no size."""
        pod = {
            "metadata": {"name": "probe", "labels": {"kueue.x-k8s.io/pod-group-name": "probe"}},
            "spec": {"containers": [{"name": "main", "image": "none"}]},
        }
        try:
            self._plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
        except Refused as refused:
            return "pod-group-total-count" in str(refused)
        raise StartFailed("Kueue accepts a pod whose group has no size")


def _service(port: int, path: str) -> dict[str, Any]:
    return {"name": SERVICE, "namespace": NAMESPACE, "port": port, "path": path}


def _config(port: int, health: int, certificates: Path) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True, "webhookServiceName": SERVICE, "webhookSecretName": SECRET},
        "clientConnection": {"qps": 500, "burst": 500},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        # It would serve an API of its own, on a fixed port.
        "featureGates": {"VisibilityOnDemand": False},
    }


def _is_ready(port: int) -> bool:
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/readyz")
            with connection.getresponse() as response:
                return response.status == 200
    except (OSError, http.client.HTTPException):
        return False


if __name__ == "__main__":
    try:
        print(build() / BINARY.name)
    except BuildFailed as error:
        sys.exit(f"kueue: {error}")
