"""Processes that outlive the command that started them; a file remembers each by pid and start time."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

POLL = 0.05
TIMEOUT = 20.0


class StillRunning(Exception):
    """A process does not end."""


class Daemon:
    """One process by its name; its log and its pid are in the folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._file = folder / f"{name}.pid"

    def start(
        self, command: Sequence[str | Path], *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        """Start it, detached from this process."""
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environ,
                start_new_session=True,
            )
        # Nobody waits for it: it belongs to init when we have ended.
        process.returncode = 0
        self._file.write_text(f"{process.pid} {_started(process.pid)}")

    @property
    def pid(self) -> int | None:
        """Its pid while it runs: the system may have given the number to another process since."""
        try:
            pid, started = self._file.read_text().split()
        except FileNotFoundError:
            return None
        with suppress(ChildProcessError):
            os.waitpid(int(pid), os.WNOHANG)
        return int(pid) if _started(int(pid)) == started else None

    def kill(self) -> None:
        """End it and what it started by SIGKILL; kube-apiserver, for one, takes up to a minute for SIGTERM."""
        if pid := self.pid:
            os.killpg(pid, signal.SIGKILL)
        deadline = time.monotonic() + TIMEOUT
        while self.pid:
            if time.monotonic() > deadline:
                raise StillRunning(f"{self.name} (pid {pid}) has not ended {TIMEOUT:.0f} s after SIGKILL")
            time.sleep(POLL)
        self._file.unlink(missing_ok=True)

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([f"the end of {self.log}:", *text.splitlines()[-lines:]])


def _started(pid: int) -> str:
    """When a process was started, in ticks; empty when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] == "Z" else fields[19]
