"""What the machine and the containers use, from /proc: the endpoint ``/stats/summary`` in the form of a kubelet's."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainmaster.core.ids import Key
from trainmaster.local.node.process import pids

WINDOW = 0.5
"""Seconds between two looks at the times of processes."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_PARENT, _TIMES = 1, slice(11, 15)
"""Fields of /proc/PID/stat after the name: the parent; the times of the process and of its reaped children."""
_IDLE = (3, 4)
"""Columns of /proc/stat: idle, and idle for a disk."""


class Usage(NamedTuple):
    """``cpu`` in seconds since the start, ``memory`` in bytes."""

    cpu: float = 0.0
    memory: int = 0


class Running(NamedTuple):
    """A container, and the pid of its shim."""

    pod: Key
    uid: str
    container: str
    shim: int


async def summary(node: str, containers: Iterable[Running]) -> dict[str, Any]:
    """The use of CPUs is that of the last half a second. Raises OSError where there is no /proc."""
    running = list(containers)
    shims = [each.shim for each in running]
    first = await asyncio.to_thread(_sample, shims)
    await asyncio.sleep(WINDOW)
    second = await asyncio.to_thread(_sample, shims)
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    shown = {shim: _shown(first[shim], second[shim], moment) for shim in (0, *shims)}
    pods: dict[str, dict[str, Any]] = {}
    for each in running:
        reference = {"name": each.pod.name, "namespace": each.pod.namespace, "uid": each.uid}
        pod = pods.setdefault(each.uid, {"podRef": reference, "containers": []})
        pod["containers"].append({"name": each.container, **shown[each.shim]})
    return {"node": {"nodeName": node, **shown[0]}, "pods": list(pods.values())}


def _shown(first: Usage, second: Usage, moment: str) -> dict[str, Any]:
    cores = max(0.0, second.cpu - first.cpu) / WINDOW
    return {
        "cpu": {"time": moment, "usageNanoCores": round(cores * 1e9), "usageCoreNanoSeconds": round(second.cpu * 1e9)},
        "memory": {"time": moment, "workingSetBytes": second.memory},
    }


def _sample(shims: Iterable[int]) -> dict[int, Usage]:
    """The use of each shim with its descendants; 0 is the machine."""
    parents, usages = {}, {}
    for pid in pids():
        if (found := _process(pid)) is not None:
            parents[pid], usages[pid] = found
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    return {0: _machine(), **{shim: _tree(shim, children, usages) for shim in shims}}


def _tree(shim: int, children: Mapping[int, list[int]], usages: Mapping[int, Usage]) -> Usage:
    """The times of ended processes are in those of the shim, which reaps them; its memory is not the container's."""
    cpu, memory, pending = usages.get(shim, Usage()).cpu, 0, list(children.get(shim, ()))
    while pending:
        pid = pending.pop()
        pending += children.get(pid, ())
        cpu += usages[pid].cpu
        memory += usages[pid].memory
    return Usage(cpu, memory)


def _process(pid: int) -> tuple[int, Usage] | None:
    """Parent and use of a process; None if it has ended. Memory is counted as for limits: without file pages."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()
    except OSError:
        return None
    cpu = sum(map(int, fields[_TIMES])) / _TICK
    return int(fields[_PARENT]), Usage(cpu, (int(pages[1]) - int(pages[2])) * _PAGE)


def _machine() -> Usage:
    times = [int(each) for each in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    busy = sum(each for column, each in enumerate(times) if column not in _IDLE)
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return Usage(busy / _TICK, (total - available) * 1024)
