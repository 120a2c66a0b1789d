"""The first process of a node: mounts, containerd, images, kubelet, kube-proxy; starts again what ends.

It runs in namespaces of its own (see `node`): when it is killed, every process of the node ends with it.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RESTART_PAUSE = 1.0
START_TIMEOUT = 60.0
IMPORT_TIMEOUT = 300.0
POLL = 0.1

# kubelet writes these for the whole machine and does not start where it cannot. It finds files with its values instead.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def prepare(name: str, folder: Path) -> None:
    """Give the node its own name, /var, /run and resolver."""
    socket.sethostname(name)
    _mount("--make-rshared", "/")
    var = folder / "var"
    for part in ("lib", "log", "tmp", "cache"):
        (var / part).mkdir(parents=True, exist_ok=True)
    if not (var / "run").is_symlink():
        (var / "run").symlink_to("/run")
    _mount("--bind", var, "/var")
    _mount("-t", "tmpfs", "tmpfs", "/run")
    Path("/run/netns").mkdir()
    # No resolver: an image that was not imported fails at once, not after the timeouts of a registry's name.
    nowhere = folder / "node-resolv.conf"
    nowhere.write_text("nameserver 127.0.0.1\n")
    _mount("--bind", nowhere, "/etc/resolv.conf")
    for key, value in SYSCTLS.items():
        file = folder / "sysctl" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        _mount("--bind", file, Path("/proc/sys") / key)


class Supervisor:
    """Starts programs, and starts them again when they end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._commands: dict[str, Sequence[str]] = {}
        self._pids: dict[int, str] = {}

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a program."""
        self._commands[name] = command
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        process.returncode = 0  # `run` waits for it
        self._pids[process.pid] = name
        pids = {name: pid for pid, name in self._pids.items()}
        (self._folder / "pids.json").write_text(json.dumps(pids))

    def run(self) -> None:
        """Wait for the end of whatever process, as the first process of a system must."""
        while True:
            pid, status = os.wait()
            if name := self._pids.pop(pid, None):
                print(f"{name} ended with {os.waitstatus_to_exitcode(status)}; starting it again", flush=True)
                time.sleep(RESTART_PAUSE)
                self.start(name, self._commands[name])


def import_images(ctr: Path, archives: Sequence[str], done: Path) -> None:
    """Import what is not imported yet; `done` remembers it over a restart of the node."""
    imported = set(done.read_text().splitlines()) if done.exists() else set()
    for archive in archives:
        mark = f"{archive} {Path(archive).stat().st_mtime_ns}"
        if mark in imported:
            continue
        subprocess.run([ctr, "-n", "k8s.io", "images", "import", archive], timeout=IMPORT_TIMEOUT, check=True)
        with done.open("a") as file:
            file.write(f"{mark}\n")


def main() -> None:
    """Run the node that the file of the first argument describes."""
    node = json.loads(Path(sys.argv[1]).read_text())
    folder, binaries = Path(node["folder"]), Path(node["binaries"])
    os.environ["PATH"] = f"{binaries}:/usr/sbin:/usr/bin:/sbin:/bin"
    prepare(node["name"], folder)
    supervisor = Supervisor(folder)
    supervisor.start("containerd", [str(binaries / "containerd"), f"--config={folder / 'containerd.toml'}"])
    _wait_for_containerd(binaries / "ctr")
    import_images(binaries / "ctr", node["archives"], folder / "imported")
    for program in ("kubelet", "kube-proxy"):
        supervisor.start(program, [str(binaries / program), *node[program]])
    supervisor.run()


def _wait_for_containerd(ctr: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while subprocess.run([ctr, "version"], capture_output=True, check=False, timeout=START_TIMEOUT).returncode:
        if time.monotonic() > deadline:
            sys.exit(f"containerd does not answer after {START_TIMEOUT:.0f} s")
        time.sleep(POLL)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True, timeout=START_TIMEOUT)


if __name__ == "__main__":
    main()
