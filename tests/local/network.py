"""A network of its own for commands of a test: ports and loopback addresses that no other test uses."""

import subprocess
import sys


class Network:
    """Commands ``inside`` are in this network namespace."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "-rn", "sh", "-c", "ip link set lo up && echo up && read -r line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._programs: list[subprocess.Popen[str]] = []
        assert self._holder.stdout is not None
        self.is_there = self._holder.stdout.readline() == "up\n"
        self.inside = ["nsenter", "-t", str(self._holder.pid), "-U", "-n", "--preserve-credentials", "--"]

    def run(self, *command: str) -> str:
        return subprocess.run([*self.inside, *command], check=True, capture_output=True, text=True, timeout=60).stdout

    def background(self, script: str, line: str) -> None:
        """Starts a Python program and waits until it writes this line."""
        command = [*self.inside, sys.executable, "-c", script]
        self._programs.append(program := subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert program.stdout is not None
        assert program.stdout.readline() == f"{line}\n"

    def close(self) -> None:
        for program in self._programs:
            program.kill()
            program.communicate()
        self._holder.communicate("\n")
