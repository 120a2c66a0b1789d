"""Writes a run as JSON, one object in each line, for scripts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TextIO

import msgspec

from trainmaster.client.run_model import Job, Notice
from trainmaster.client.text import escaped


class JsonLines:
    """Each object has ``time`` and ``type``: phase, event, message, verdict, end. Output of programs is in the logs."""

    most_lines = 0
    has_keys = False

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._phases: dict[str, tuple[str, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Every object is flushed when it is written."""

    def line(self, label: str, text: str) -> None:
        """Does nothing: lines are in the logs."""

    def progress(self, label: str, text: str, now: float) -> None:
        """Does nothing: see ``line``."""

    def press(self, key: str) -> None:
        """Does nothing: there are no keys."""

    def notice(self, notice: Notice) -> None:
        what, _, replica = notice.what.partition(" ")
        fields = {"job": what, "level": notice.type, "reason": notice.reason, "message": notice.message}
        self._write("event", **fields, **({"replica": replica} if replica else {}))

    def show(self, jobs: Sequence[Job], now: datetime, *, is_last: bool = False) -> None:
        for job in jobs:
            state = (job.phase, job.message)
            if job.phase and self._phases.get(str(job)) != state:
                self._phases[str(job)] = state
                self._write("phase", job=str(job), phase=job.phase, message=job.message)
            if is_last:
                self._write("verdict", **_verdict(job))

    def message(self, text: str) -> None:
        self._write("message", message=text)

    def end(self, code: int, logs: str) -> None:
        self._write("end", exitCode=code, logs=logs)

    def _write(self, kind: str, **fields: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._out.write(escaped(msgspec.json.encode({"time": time, "type": kind, **fields}).decode()) + "\n")
        self._out.flush()


def _verdict(job: Job) -> dict[str, Any]:
    fields = ("name", "pod", "state", "why", "restarts")
    replicas = [{field: getattr(replica, field) for field in fields} for replica in job.replicas]
    is_stopped = job.outcome == "deleted" or job.phase in ("Stopping", "Stopped")
    outcome = "stopped" if is_stopped else job.outcome or "running"
    failure = {"failure": job.failure} if job.failure else {}
    verdict = {"job": str(job), "outcome": outcome, "phase": job.phase, "message": job.message}
    return {**verdict, "replicas": replicas, **failure}
