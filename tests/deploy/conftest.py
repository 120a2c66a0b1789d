"""A cluster on which Deployments run: real controllers and scheduler, and this machine as its only node.

The node shares its network with everybody: what a Deployment listens on is moved to free ports. There is no Service
network either: a Service's name is this machine, and its port is that of the pod behind it.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from deploy.manager import HERE
from testbed.answer import Refused
from testbed.certificate import Authority
from testbed.operator import COMMAND, REPOSITORY, _environ
from testbed.plane import ACCOUNT_CONTROLLERS, CONTROLLERS, ControlPlane, free_port
from testbed.process import Process, Watchdog
from trainmaster.kinds.crd import all_crds
from trainmaster.local.node.process import sweep

Object = dict[str, Any]

NODE = "machine"
WORKLOADS = ("deployment-controller", "replicaset-controller", "job-controller")
START_TIMEOUT = 60.0
TAIL = 4000


class NodeProcess:
    """A real `trainmaster node`. Its pods would outlive it: they end with it here."""

    def __init__(self, plane: ControlPlane, client_ca: Path) -> None:
        self._plane = plane
        self._client_ca = client_ca

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="trainmaster-node-"))
        self._watchdog = Watchdog(self.folder)
        # Containers find `trainmaster` as they do in the image: in their PATH.
        environ = {**_environ(self.folder), "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"}
        self._process = Process(self._command(), log=self.folder / "log", environ=environ, watchdog=self._watchdog)
        self._process.wait_ready(self._is_registered, within=START_TIMEOUT)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._show()
        self._process.kill()
        for pod in (self.folder / "state" / "pods").glob("*"):
            sweep(pod.name)
        self._watchdog.close(keep=False)

    def _command(self) -> list[str | Path]:
        kubeconfig = self._plane.kubeconfig()
        return [
            *(COMMAND, "node", "--name", NODE, "--kubeconfig", kubeconfig, "--client-ca", self._client_ca),
            *("--folder", self.folder / "state", "--workdir", REPOSITORY),
            *("--allow-root", "--let-every-tenant-run-programs-here"),
        ]

    def _is_registered(self) -> bool:
        try:
            self._plane.request("GET", f"/api/v1/nodes/{NODE}")
        except Refused as refused:
            if refused.code != 404:
                raise
            return False
        return True

    def _show(self) -> None:
        """What node and containers said: pytest shows it with a failure."""
        for log in [self.folder / "log", *sorted((self.folder / "state" / "pods").glob("*/containers/*/*/log"))]:
            print(f"--- {log} ---\n{log.read_text(errors='replace')[-TAIL:]}", file=sys.stderr)


@pytest.fixture(scope="package")
def kubelet_client(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom the node shows logs to: the API server."""
    return Authority(tmp_path_factory.mktemp("kubelet-client"))


@pytest.fixture(scope="package")
def plane(binaries: Path, kubelet_client: Authority) -> Iterator[ControlPlane]:
    pair = kubelet_client.client("kube-apiserver-kubelet-client", "system:masters")
    arguments = (f"--kubelet-client-certificate={pair.certificate}", f"--kubelet-client-key={pair.key}")
    with ControlPlane(binaries=binaries, apiserver_arguments=arguments, has_accounts=True) as plane:
        plane.start_controller_manager([*CONTROLLERS, *ACCOUNT_CONTROLLERS, *WORKLOADS])
        plane.start_scheduler()
        yield plane


@pytest.fixture(scope="package")
def node(plane: ControlPlane, kubelet_client: Authority) -> Iterator[NodeProcess]:
    with NodeProcess(plane, kubelet_client.ca_file) as node:
        yield node


def serve_all(plane: ControlPlane) -> None:
    for definition in all_crds():
        plane.wait_served(definition)


def delete_definitions(plane: ControlPlane) -> None:
    """Once the objects of all definitions were read, as an operator does.

    Before it deletes a definition, the API server lists its objects. If they were never read, it gets 429, tries again
    after 5 ms, gets a conflict if it does not see its own last write by then, and waits for its next resync, up to
    five minutes.
    """
    serve_all(plane)
    plane.kubectl("delete", f"--filename={HERE / 'crds.yaml'}", timeout=120)


def on_this_machine(manifest: str) -> str:
    """A manifest whose programs listen on free ports, and whose webhooks the API server reaches without a Service."""
    bodies = list(yaml.safe_load_all(manifest))
    moved = {body["metadata"]["name"]: _moved(body) for body in bodies if body["kind"] == "Deployment"}
    server = next(ports["http"] for ports in moved.values() if "http" in ports)
    webhook = next(ports["webhook"] for ports in moved.values() if "webhook" in ports)
    for body in bodies:
        if body["kind"] == "Namespace":
            body["metadata"].pop("labels", None)  # which enforce what is taken from the pods here
        if body["kind"] == "Deployment":
            _tell(body["spec"]["template"]["spec"]["containers"][0], server)
            _as_processes(body["spec"]["template"]["spec"])
        for entry in body.get("webhooks", ()):
            entry["clientConfig"] = {"url": f"https://127.0.0.1:{webhook}{entry['clientConfig']['service']['path']}"}
    return yaml.safe_dump_all(bodies)


def _moved(deployment: Object) -> dict[str, int]:
    """Give the container other ports; answers them by name. A second replica would find them taken."""
    deployment["spec"]["replicas"] = 1
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    for port in container["ports"]:
        old, port["containerPort"] = port["containerPort"], free_port()
        container["args"] = [
            arg.replace(f"=:{old}", f"=:{port['containerPort']}") if "bind-address" in arg else arg
            for arg in container["args"]
        ]
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def _as_processes(pod: Object) -> None:
    """Without what only containers have: where the tests run as root, the node refuses a pod that must not be."""
    pod.pop("securityContext", None)
    for container in pod["containers"]:
        container.pop("securityContext", None)


def _tell(container: Object, server: int) -> None:
    """The operator where the server is now, the webhook by which name it is asked."""
    container["args"] = [
        f"{arg.rpartition(':')[0]}:{server}" if arg.startswith("--server-url=") else arg for arg in container["args"]
    ]
    if container["args"][0] == "webhook":
        container["args"].append("--certificate-host=127.0.0.1")
