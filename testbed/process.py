"""Processes that never outlive the test run, however it ends. `plane` runs its programs as these."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

POLL = 0.03
TAIL_LINES = 15
PAUSE_TIMEOUT = 10.0

# Reads "+pid", "-pid" and "keep" until its input ends, which happens when the process that started it
# ends, even by SIGKILL: then it ends the pids that are left and removes the folder.
#
# PR_SET_PDEATHSIG would be shorter, but it fires when the *thread* that started the child ends. A plane that
# is restarted from a worker thread (asyncio.to_thread) would lose its API server together with that thread.
_WATCHDOG = """
import os, shutil, signal, sys, time
pids, keep = [], False
for line in sys.stdin:
    word = line.strip()
    if word == "keep":
        keep = True
    elif word[0] == "+":
        pids.append(int(word[1:]))
    else:
        pids.remove(int(word[1:]))
for pid in reversed(pids):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
for _ in range(50):
    # A process that was just killed may still be writing into the folder.
    shutil.rmtree(sys.argv[1], ignore_errors=True) if not keep else None
    if keep or not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""

# The program starts only after the watchdog knows its pid; if we die in between, `read` ends and so does it.
_GATE = 'read -r go && exec "$@"'


class StartFailed(Exception):
    """A program did not become ready; the message ends with the last lines of its log."""


class Died(Exception):
    """A program ended before it was stopped."""


class StillRunning(Exception):
    """A program did not stop."""


class PortTaken(StartFailed):
    """Somebody took the port between its choice and its use; another try with another port may work."""


class Watchdog:
    """Outlives this process by a moment: ends what is left of a plane and removes its folder."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCHDOG, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            # Ctrl-C in a terminal goes to the whole foreground group; the watchdog must see our end instead.
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        """From now on this pid ends with us."""
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """This pid has ended; the system may give it to somebody else."""
        # Somebody may have ended the watchdog: the processes are then still to be ended one by one.
        with suppress(BrokenPipeError):
            self._tell(f"-{pid}")

    def close(self, *, keep: bool) -> None:
        """End; remove the folder unless it is to be kept. Closing twice is closing once."""
        if self._process.returncode is not None:
            return
        if keep:
            with suppress(BrokenPipeError):
                self._tell("keep")
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


class Process:
    """One running program with its log."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        environ: Mapping[str, str],
        watchdog: Watchdog,
    ) -> None:
        self.name = Path(command[0]).name
        self.log = log
        self._watchdog = watchdog
        self._is_forgotten = False
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GATE, self.name, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env=environ,
                start_new_session=True,
            )
        watchdog.watch(self.pid)
        assert self._process.stdin is not None
        with self._process.stdin as gate:
            gate.write(b"go\n")

    @property
    def pid(self) -> int:
        """The pid of the program itself: the gate replaces itself by exec."""
        return self._process.pid

    def is_running(self) -> bool:
        """Has not ended yet."""
        return self._process.poll() is None

    def wait_ready(self, is_ready: Callable[[], bool], *, within: float) -> None:
        """Poll until ready; says the end of the log when the program ends or takes too long."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if not self.is_running():
                kind = PortTaken if "address already in use" in self._log_text().lower() else StartFailed
                raise kind(self.obituary("before it was ready"))
            if is_ready():
                return
            time.sleep(POLL)
        raise StartFailed(f"{self.name} was not ready after {within:.0f} s; {self._tail()}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the program has ended."""
        if self.is_running():
            os.kill(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP; the signal takes a moment, so wait until the program stands still."""
        self.send(signal.SIGSTOP)
        deadline = time.monotonic() + PAUSE_TIMEOUT
        while self.is_running() and not self.is_stopped():
            if time.monotonic() > deadline:
                raise StillRunning(f"{self.name} goes on {PAUSE_TIMEOUT:.0f} s after SIGSTOP")
            time.sleep(POLL)

    def is_stopped(self) -> bool:
        """Stands still after SIGSTOP; where the system has no /proc, this is taken on trust."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except FileNotFoundError:
            return True
        return stat.rpartition(")")[2].split()[0] == "T"

    def wait(self, timeout: float) -> int | None:
        """Wait for the end; answers the exit code, or None when it is still running."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        self._forget()
        return code

    def kill(self) -> None:
        """End it now. SIGKILL, because kube-apiserver takes up to 15 s over SIGTERM and keeps its port."""
        self.send(signal.SIGKILL)
        self._process.wait()
        self._forget()

    def _forget(self) -> None:
        if not self._is_forgotten:
            self._is_forgotten = True
            self._watchdog.forget(self.pid)

    def obituary(self, when: str) -> str:
        """How a program that is not running any more has ended."""
        return f"{self.name} ended with {self._process.returncode} {when}; {self._tail()}"

    def _log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def _tail(self) -> str:
        lines = self._log_text().splitlines()[-TAIL_LINES:]
        return "\n".join([f"the end of {self.log}:", *lines])
