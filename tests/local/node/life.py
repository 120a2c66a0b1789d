"""A node on a real API server, and the pods that a test gives it.

async with scene.node():
    await scene.pod("a", "exit 3")
    pod = await scene.ended("a")
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from testbed.admin import Admin, eventually
from testbed.certificate import Pair
from testbed.plane import ControlPlane
from trainmaster.cli.node import _access
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.kubeconfig import load_config
from trainmaster.local.node.agent import NodeOptions, run_node
from trainmaster.local.node.process import marked, running_shims, send, sweep
from trainmaster.local.node.taint import TAINT

Object = dict[str, Any]

PYTHON = sys.executable
TOKEN = "node-token"


def container(script: str = "", *, name: str = "main", **fields: Any) -> Object:
    command = {"command": ["sh", "-c", script]} if script else {}
    return {"name": name, "image": "none", **command, **fields}


def body(name: str, *containers: Object, node: str, policy: str = "Never", **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": policy,
            "tolerations": [{"key": TAINT["key"], "operator": "Exists"}],
            "containers": list(containers),
            **spec,
        },
    }


class Scene:
    """One namespace, and one node of its own name."""

    def __init__(
        self,
        plane: ControlPlane,
        admin: Admin,
        namespace: str,
        folder: Path,
        pair: Pair,
        *,
        client_ca: Path | None = None,
    ) -> None:
        self.plane = plane
        self.admin = admin
        self.namespace = namespace
        self.name = f"node-{namespace}"
        self.folder = folder / "state"
        self.workdir = folder / "work"
        self.workdir.mkdir()
        self.pair = pair
        self.client_ca = client_ca

    def options(self, **fields: Any) -> NodeOptions:
        wanted = {
            "name": self.name,
            "folder": self.folder,
            "workdir": self.workdir,
            "certificate": self.pair.certificate,
            "key": self.pair.key,
            "token": TOKEN,
            "client_ca": self.client_ca,
            "restart_backoff": 0.05,
        }
        return NodeOptions(**{**wanted, **fields})

    @asynccontextmanager
    async def node(
        self, *, has_accounts: bool = False, kubeconfig: Path | None = None, **fields: Any
    ) -> AsyncIterator[None]:
        """The node runs while the block does; with accounts as the command `trainmaster node` runs it."""
        stop, ready = asyncio.Event(), asyncio.Event()
        config = load_config(kubeconfig=str(kubeconfig or self.plane.kubeconfig()))
        async with KubeCluster(config) as cluster:
            access = _access(config, cluster) if has_accounts else None
            running = asyncio.ensure_future(run_node(cluster, self.options(**fields), stop, ready, access=access))
            waiting = asyncio.ensure_future(ready.wait())
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if running.done():
                running.result()
            try:
                yield
            finally:
                stop.set()
                await running

    async def pod(self, name: str, *containers: Object | str, **spec: Any) -> Object:
        """Create a pod on the node; a string is a shell script."""
        wanted = [container(each) if isinstance(each, str) else each for each in containers]
        return await self.admin.create("pods", body(name, *wanted, node=self.name, **spec), self.namespace)

    async def until(self, name: str, is_met: Callable[[Object], object], *, timeout: float = 15.0) -> Object:
        return await self.admin.wait_for("pods", self.namespace, name, is_met, timeout=timeout)

    async def running(self, name: str) -> Object:
        return await self.until(name, lambda pod: pod["status"]["phase"] == "Running")

    async def ended(self, name: str) -> Object:
        return await self.until(name, lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"))

    async def delete(self, name: str, **options: Any) -> None:
        await self.admin.delete("pods", self.namespace, name, **options)
        await self.admin.wait_gone("pods", self.namespace, name)

    async def forgotten(self, pod: Object) -> None:
        """Nothing of the pod is on disk any more."""
        folder = self.folder / "pods" / pod["metadata"]["uid"]

        async def look() -> None:
            assert not folder.exists(), f"{folder} is still there"

        await eventually(look)

    async def appears(self, name: str) -> None:
        """A program made this file in its folder."""

        async def look() -> None:
            assert (self.workdir / name).exists(), f"{name} did not appear"

        await eventually(look)

    async def kill(self, pod: Object) -> None:
        """Kills all processes of a pod, its shims first, so that no exit record is written."""
        for spec, pid in running_shims(self.folder).items():
            if pod["metadata"]["uid"] in spec:
                send(pid, signal.SIGKILL)
        self.sweep()

        async def look() -> None:
            assert self.processes(pod) == []

        await eventually(look)

    def processes(self, pod: Object) -> list[int]:
        """All that run for this pod, its shims included."""
        return marked(pod["metadata"]["uid"])

    def sweep(self) -> None:
        """End whatever the test left running."""
        for folder in (self.folder / "pods").glob("*"):
            sweep(folder.name)

    def kubectl(self, *arguments: str) -> list[str]:
        kubeconfig = f"--kubeconfig={self.plane.kubeconfig()}"
        return [str(self.plane.binary("kubectl")), kubeconfig, f"--namespace={self.namespace}", *arguments]

    async def logs(self, name: str, *arguments: str) -> str:
        """kubectl logs, through the API server."""
        where = f"--namespace={self.namespace}"
        return await asyncio.to_thread(self.plane.kubectl, "logs", where, name, *arguments)


def state_of(pod: Object, name: str = "main", field: str = "state") -> Object:
    statuses = [*pod["status"].get("initContainerStatuses", ()), *pod["status"]["containerStatuses"]]
    found: Object = next(each for each in statuses if each["name"] == name)[field]
    return found


def terminated(pod: Object, name: str = "main") -> Object:
    found: Object = state_of(pod, name)["terminated"]
    return found
