"""The cluster as a whole: up, down, and what can happen to it in between."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from testbed import build as testbed_build
from testbed.cluster import build, cgroup, dns, image, network
from testbed.cluster.control import Control
from testbed.cluster.daemon import Daemon
from testbed.cluster.network import Place
from testbed.cluster.node import Node

NODES = 3
POLL = 0.2
READY_TIMEOUT = 180.0


class ClusterFailed(Exception):
    """Something did not become ready in time."""


class IsUp(Exception):
    """There is one cluster at a time on a machine."""


class NotUp(Exception):
    """There is no cluster."""


def folder() -> Path:
    """Where everything of the cluster is while it is up."""
    return testbed_build.user_site().cache / "cluster-state"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Cluster:
    """The one cluster of this machine; any process of root can use it while it is up."""

    def __init__(self, say: Callable[[str], None] = _say) -> None:
        self.folder = folder()
        self._say = say
        self.plane_binaries = testbed_build.folder()
        self.node_binaries = testbed_build.folder(build.site())
        self.control = Control(self.folder, self.plane_binaries)
        self.nodes = {
            place.name: Node(self.folder, place, self.node_binaries) for place in map(Place, range(1, NODES + 1))
        }

    @property
    def is_up(self) -> bool:
        """Was it started, and not taken down?"""
        return self.folder.exists()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
        return self.control.kubeconfig

    # -- life ----------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Build what is missing, start everything and wait until it is ready.

        Our image and those of the examples are on every node.
        """
        if self.is_up:
            raise IsUp(f"a cluster is up already: {self.kubeconfig}; make cluster-down ends it")
        build.require()
        testbed_build.Builder(testbed_build.user_site()).build()
        build.binaries()
        self.folder.mkdir(parents=True, mode=0o700)
        try:
            self._start()
        except BaseException:
            self.down()
            raise

    def _start(self) -> None:
        self._say("cluster: building images …")
        archives = image.write_all(self.node_binaries, self.folder / "images")
        (self.folder / "archives.json").write_text(json.dumps([str(each) for each in archives]))
        started = time.monotonic()
        network.create_bridge()
        authority = self.control.write_credentials()
        self.control.start_api()
        places = [node.place for node in self.nodes.values()]
        for node in self.nodes.values():
            network.connect(node.place, places)
            node.write_files(self.control, authority)
        daemons = list(self.control.daemons.values())
        self._wait_started("the API server answers", self.control.is_ready, daemons[:2])
        self.control.start_controllers()
        self._say(f"cluster: the control plane is ready ({time.monotonic() - started:.1f} s)")
        for node in self.nodes.values():
            node.start(self._archives())
        nodes = [node.daemon for node in self.nodes.values()]
        self._wait_started("all nodes are ready", lambda: self.ready_nodes() == set(self.nodes), nodes)
        self._say(f"cluster: {len(self.nodes)} nodes are ready ({time.monotonic() - started:.1f} s)")
        self.kubectl("apply", "--filename=-", stdin=dns.manifest(next(iter(self.nodes))))
        self.kubectl("rollout", "status", "deployment/coredns", f"--namespace={dns.NAMESPACE}", "--timeout=120s")
        self._say(f"cluster: names are resolved ({time.monotonic() - started:.1f} s)")

    def down(self) -> None:
        """End every process and remove everything that `up` has created."""
        for node in self.nodes.values():
            node.kill()
        for daemon in reversed(self.control.daemons.values()):
            daemon.kill()
        network.remove([node.place for node in self.nodes.values()])
        cgroup.remove()
        if self.folder.exists():
            shutil.rmtree(self.folder)

    # -- what can happen ----------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """A node by its name."""
        if not self.is_up:
            raise NotUp("no cluster is up: make cluster starts one")
        if name not in self.nodes:
            raise ValueError(f"there is no {name}; the nodes are {', '.join(self.nodes)}")
        return self.nodes[name]

    def kill(self, name: str) -> None:
        """Power a node off."""
        self.node(name).kill()

    def start(self, name: str) -> None:
        """Power a node on."""
        node = self.node(name)
        if not node.is_running:
            node.start(self._archives())

    def partition(self, name: str) -> None:
        """Cut a node off the network; its pods go on."""
        network.partition(self.node(name).place)

    def heal(self, name: str) -> None:
        """Connect it again."""
        network.heal(self.node(name).place)

    # -- use -----------------------------------------------------------------------------------------------

    def kubectl(self, *arguments: str | Path, stdin: str = "", timeout: float = 150) -> str:
        """Run kubectl as the administrator and answer what it printed."""
        command = [self.plane_binaries / "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        environ = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            command, input=stdin, env=environ, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode != 0:
            raise ClusterFailed(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def ready_nodes(self) -> set[str]:
        """The names of the nodes that are Ready."""
        return {
            node["metadata"]["name"]
            for node in self.control.get("/api/v1/nodes")["items"]
            for condition in node["status"]["conditions"]
            if condition["type"] == "Ready" and condition["status"] == "True"
        }

    def wait(self, what: str, is_so: Callable[[], bool], timeout: float = READY_TIMEOUT) -> float:
        """Ask until it is so; answers how many seconds that took."""
        started = time.monotonic()
        while not is_so():
            if time.monotonic() - started > timeout:
                raise ClusterFailed(f"not within {timeout:.0f} s: {what}")
            time.sleep(POLL)
        return time.monotonic() - started

    def _wait_started(self, what: str, is_so: Callable[[], bool], daemons: Sequence[Daemon]) -> None:
        """Wait for what these have to do; says the end of their logs when one ends, or takes too long."""

        def is_so_or_never() -> bool:
            return is_so() or not all(daemon.pid for daemon in daemons)

        try:
            self.wait(what, is_so_or_never)
        except ClusterFailed as error:
            raise ClusterFailed("\n".join([str(error), *(daemon.tail() for daemon in daemons)])) from error
        for daemon in daemons:
            if not daemon.pid:
                raise ClusterFailed(f"{daemon.name} has ended; {daemon.tail()}")

    def _archives(self) -> list[Path]:
        return [Path(each) for each in json.loads((self.folder / "archives.json").read_text())]
