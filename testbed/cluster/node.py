"""One node, seen from this machine: starts its first process in namespaces of its own, and kills it."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from testbed.certificate import Authority
from testbed.cluster import cgroup, config
from testbed.cluster.control import Control
from testbed.cluster.daemon import POLL, Daemon
from testbed.cluster.network import Place

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 120.0


class Node:
    """A node by its place; its files are in a folder of the cluster's folder."""

    def __init__(self, folder: Path, place: Place, binaries: Path) -> None:
        self.place = place
        self.name = place.name
        self.folder = folder / place.name
        self._binaries = binaries
        self.daemon = Daemon(folder, place.name)

    def write_files(self, control: Control, authority: Authority) -> None:
        """Create certificates and the configuration of its programs."""
        self.folder.mkdir()
        user = f"system:node:{self.name}"
        client = authority.client(user, "system:nodes", name=f"{self.name}-client")
        server = authority.server(self.name, addresses=(self.place.address,), names=(self.name,))
        kubeconfig = control.write_kubeconfig(f"{self.name}-kubelet", client)
        resolver = self.folder / "pod-resolv.conf"
        resolver.write_text("# names of the cluster only\n")
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "10-pods.conflist").write_text(config.cni(self.place))
        runc = shutil.which("runc", path="/usr/sbin:/usr/bin") or "runc"
        (self.folder / "containerd.toml").write_text(config.containerd(self.folder / "cni", runc))
        settings = self._write("kubelet.yaml", config.kubelet(self.place, control.ca, server, resolver))
        proxy = self._write("proxy.yaml", config.proxy(control.folder / "kube-proxy.kubeconfig"))
        described = {
            "name": self.name,
            "folder": str(self.folder),
            "binaries": str(self._binaries),
            "kubelet": [
                f"--config={settings}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.place.address}",
                f"--cert-dir={self.folder / 'kubelet-pki'}",
            ],
            "kube-proxy": [f"--config={proxy}", f"--hostname-override={self.name}"],
        }
        (self.folder / "node.json").write_text(json.dumps({**described, "archives": []}))

    def start(self, archives: Sequence[Path]) -> None:
        """Boot it; these images are imported first."""
        file = self.folder / "node.json"
        described = json.loads(file.read_text())
        file.write_text(json.dumps({**described, "archives": [str(each) for each in archives]}))
        (self.folder / "pids.json").unlink(missing_ok=True)
        cgroup.remove(self.name)
        cgroup.create(self.name)
        # Not `ip netns exec`: it mounts another /sys, without cgroups. The first process of the pid namespace is killed
        # with `unshare`, and all others with it.
        command = ["nsenter", f"--net={self.place.namespace_file}", "unshare", "--mount", "--propagation=private"]
        command += ["--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc"]
        command += [sys.executable, "-m", "testbed.cluster.init", str(file)]
        self.daemon.start(command, cwd=ROOT)

    def kill(self) -> None:
        """Power it off: every process ends, the disk stays."""
        self.daemon.kill()
        cgroup.remove(self.name)

    @property
    def is_running(self) -> bool:
        """Is it powered on?"""
        return self.daemon.pid is not None

    def run(self, *command: str | Path, timeout: float = TIMEOUT) -> str:
        """Run a command in the node's namespaces."""
        enter = ["nsenter", f"--target={self._first()}", "--mount", "--pid", "--net", "--uts", "--ipc"]
        done = subprocess.run([*enter, *command], capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise OSError(f"{' '.join(map(str, command))} on {self.name}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def load(self, archive: Path) -> None:
        """Import one more image."""
        self.run(self._binaries / "ctr", "-n", "k8s.io", "images", "import", str(archive))

    def kill_program(self, name: str) -> None:
        """Kill kubelet, containerd or kube-proxy; it is started again at once."""
        pids = json.loads((self.folder / "pids.json").read_text())
        self.run("/bin/kill", "-KILL", str(pids[name]))

    def _first(self) -> int:
        """The pid, here, of the node's first process: the only child of `unshare`."""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            pid = self.daemon.pid
            if pid is None:
                raise OSError(f"{self.name} is off")
            if children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                return int(children[0])
            time.sleep(POLL)
        raise OSError(f"{self.name} has no process")

    def _write(self, name: str, body: object) -> Path:
        file = self.folder / name
        file.write_text(yaml.safe_dump(body))
        return file
