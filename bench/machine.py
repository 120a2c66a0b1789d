"""What the system knows about processes and about this machine, out of /proc."""

import os
import platform
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from testbed import build

_TICKS = os.sysconf("SC_CLK_TCK")
_KIB = 1024
_MB = 1_000_000

OTHERS = "others"
_ALL = "all"

IDLE_SHARE = 0.08
IDLE_PERIOD = 0.5
IDLE_PATIENCE = 20.0


class Memory(msgspec.Struct, frozen=True):
    """Resident memory in MB (10⁶ bytes): now, and the most there ever was."""

    rss: float
    peak: float


def memory_of(pid: int) -> Memory:
    """VmRSS and VmHWM of a process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    rss, peak = (int(fields[name].split()[0]) * _KIB / _MB for name in ("VmRSS", "VmHWM"))
    return Memory(round(rss, 1), round(peak, 1))


def cpu_of(pid: int) -> float:
    """CPU seconds that a process used so far."""
    # The name in parentheses may hold anything; user and system time are the 12th and 13th field behind it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class CpuMeter:
    """CPU seconds of the given processes, and of all others together, since it was made."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self._start = self._now()

    def read(self) -> dict[str, float]:
        """Seconds by name; OTHERS tells how much the rest of the machine disturbed the measurement."""
        used = {name: now - self._start[name] for name, now in self._now().items()}
        others = used.pop(_ALL) - sum(used.values())
        return {name: round(seconds, 2) for name, seconds in (used | {OTHERS: max(others, 0.0)}).items()}

    def _now(self) -> dict[str, float]:
        return {name: cpu_of(pid) for name, pid in self._pids.items()} | {_ALL: _busy()}


def wait_idle(pids: Iterable[int]) -> None:
    """Wait until these processes together do next to nothing; no longer than a few seconds."""
    pids = tuple(pids)
    deadline = time.monotonic() + IDLE_PATIENCE
    while time.monotonic() < deadline:
        before = sum(map(cpu_of, pids))
        time.sleep(IDLE_PERIOD)
        if sum(map(cpu_of, pids)) - before < IDLE_SHARE * IDLE_PERIOD:
            return


def facts() -> dict[str, Any]:
    """Which machine and which versions the numbers belong to."""
    packages = ("trainmaster", "aiohttp", "msgspec", "uvloop")
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_mb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _MB),
        "system": platform.platform(),
        "python": platform.python_version(),
        "kubernetes": build.KUBERNETES,
        "load_average": os.getloadavg(),
        **{name: version(name) for name in packages},
    }


def _busy() -> float:
    user, nice, system, _, _, irq, soft_irq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + soft_irq + steal) / _TICKS


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
