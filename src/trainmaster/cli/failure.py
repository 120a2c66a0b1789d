"""A container that failed, as data and as a sentence."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from trainmaster.cli.text import age
from trainmaster.core.slot import Slot
from trainmaster.lifecycle.fault import SIGNALLED, SIGNALS, START_ERRORS
from trainmaster.lifecycle.restart import Restart

_SIGNAL_NAMES = {number: name for name, number in SIGNALS.items()}
_EXIT = re.compile(
    r"pod (?P<pod>\S+) failed: container (?P<container>\S+) on node (?P<node>\S*) "
    r"exited with reason (?P<reason>\S*) exitcode (?P<code>\d+)"
)
"""How ``lifecycle.fault`` describes a failed container."""


class ContainerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A container that failed."""

    pod: str
    container: str
    code: int
    replica: str = ""
    role: str = ""
    reason: str = ""
    message: str = ""
    node: str = ""
    memory: str = ""
    """Its memory limit."""
    time: datetime | None = None

    @property
    def is_start_error(self) -> bool:
        return self.reason in START_ERRORS

    def __str__(self) -> str:
        where = f", node {self.node}" if self.node else ""
        return f"{self.replica or 'a replica'} (pod {self.pod}{where}) {self._how()}"

    def _how(self) -> str:
        if self.reason == "OOMKilled":
            limit = f" at its limit of {self.memory}" if self.memory else ""
            return f"ran out of memory (OOMKilled, exit code {self.code}){limit}"
        if self.is_start_error:
            return f"could not start ({self.reason}): {self.message or 'its command is wrong'}"
        signal = _SIGNAL_NAMES.get(self.code - SIGNALLED, "")
        return f"exited with code {self.code}{f' ({signal})' if signal else ''}"


def first_failure(ends: Sequence[ContainerEnd]) -> ContainerEnd | None:
    """The container that failed first: others often fail because of it."""
    return min(ends, key=lambda end: (end.time is None, end.time, end.pod)) if ends else None


def stored_failure(message: str, slots: Sequence[Slot], spec: Any) -> ContainerEnd | None:
    """The failed container that a stored message is about: its pod may be deleted."""
    found = _EXIT.search(message)
    if found is None:
        return None
    slot = next((slot for slot in slots if slot.name == found["pod"]), None)
    return ContainerEnd(
        pod=found["pod"],
        container=found["container"],
        code=int(found["code"]),
        reason=found["reason"],
        node=found["node"],
        replica=slot.place if slot else "",
        role=slot.role if slot else "",
        memory=_memory_limit(spec, found["container"]),
    )


def restart_sentence(entry: Restart, now: datetime) -> str:
    """An entry of the restart history."""
    has_code = entry.exit_code is not None
    how = f"exited with code {entry.exit_code}" if has_code else entry.reason or "failed"
    detail = ", ".join(word for word in (entry.signal, entry.reason if has_code else "") if word not in ("", "Error"))
    where = f" on node {entry.node}" if entry.node else ""
    line = f": {entry.line}" if entry.line else ""
    return f"{entry.replica} {how}{f' ({detail})' if detail else ''}{where} {age(entry.time, now)} ago{line}"


def _memory_limit(spec: Any, container: str) -> str:
    """From the templates, if they agree."""
    limits = {
        str(each.get("resources", {}).get("limits", {}).get("memory", ""))
        for each in _containers(spec)
        if each.get("name") == container
    }
    return limits.pop() if len(limits) == 1 else ""


def _containers(value: Any) -> Iterator[dict[str, Any]]:
    """The containers of all templates in a spec."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "containers" and isinstance(inner, list):
                yield from (each for each in inner if isinstance(each, dict))
            else:
                yield from _containers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _containers(inner)
