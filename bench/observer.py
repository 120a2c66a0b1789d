"""Listens to an observer process (`watch`) and shows how far it is."""

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from bench.progress import Progress
from bench.watch import Scope
from testbed.operator import OperatorProcess
from testbed.process import Process

POLL = 0.1
PATIENCE = 90.0
"""Seconds without anything new, after which something is broken."""


class Stuck(Exception):
    """What was waited for does not come; the message says how far it got."""


class Observer:
    """One running observer, of what the operator does if there is one."""

    def __init__(self, scope: Scope, process: Process, progress: Progress, operator: OperatorProcess | None) -> None:
        self.scope = scope
        self._process = process
        self._progress = progress
        self._operator = operator
        self._log = process.log.open("rb")
        self._said: dict[str, dict[str, Any]] = {}
        self._counts: dict[str, int] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End the process."""
        self._log.close()
        self._process.kill()

    def wait(self, word: str) -> dict[str, Any]:
        """Wait until it says this word, for as long as there is progress."""
        deadline = time.monotonic() + PATIENCE
        while word not in self._said:
            if self._listen():
                deadline = time.monotonic() + PATIENCE
            self._check(word, deadline)
            time.sleep(POLL)
        return self._said[word]

    def _check(self, word: str, deadline: float) -> None:
        if not self._process.is_running():
            raise Stuck(f"the observer ended before {word!r}: {self._process.log.read_text()[-2000:]}")
        if self._operator is not None and not self._operator.is_running():
            raise Stuck(f"the operator ended before {word!r}")
        if time.monotonic() > deadline:
            raise Stuck(f"nothing new for {PATIENCE:.0f} s before {word!r}; there are {self._counts}")

    def _listen(self) -> bool:
        """Take in what was said since; True when that is news."""
        before = self._counts
        words = [self._take(line) for line in self._lines()]
        if self._counts != before:
            self._progress(", ".join(f"{count} {what}" for what, count in self._counts.items()))
        return self._counts != before or any(word != "progress" for word in words)

    def _lines(self) -> Iterator[bytes]:
        while line := self._log.readline():
            if not line.endswith(b"\n"):
                self._log.seek(-len(line), 1)  # the rest is still being written
                return
            yield line

    def _take(self, line: bytes) -> str:
        try:
            said = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            return ""  # a traceback: the process is about to end, and `wait` shows its log
        word: str = said["said"]
        match word:
            case "progress":
                self._counts = said["counts"]
            case "resumed":
                self._progress(f"the API server cut a watch of the observer, which goes on: {said['resource']}")
            case _:
                self._said[word] = said
        return word
