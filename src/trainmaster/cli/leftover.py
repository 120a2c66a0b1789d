"""Processes of pods outlive the process that started them; whoever stops for good ends them here."""

import asyncio
import os
import signal
from pathlib import Path

from trainmaster.local.node.process import running_shims, send, sweep

GRACE = 30.0
"""Seconds between the polite signal and the other one; Kubernetes' default."""
_KILL_SECONDS = 5.0
_POLL = 0.05


def leftovers(folder: Path) -> dict[str, int]:
    """The processes that watch over containers of this node's folder, by the file that describes the container."""
    place = f"{folder.resolve()}{os.sep}"  # as the node writes it
    return {spec: pid for spec, pid in running_shims().items() if spec.startswith(place)}


async def end_leftovers(folder: Path, *, grace: float = 0.0, hurry: asyncio.Event | None = None) -> None:
    """Ask, wait for ``grace`` seconds or until somebody is in a ``hurry``, then kill. Returns when nobody is left."""
    if grace:
        _send(folder, signal.SIGTERM)
        await _gone(folder, grace, hurry)
    _send(folder, signal.SIGUSR1)  # the watcher ends everything that its container has started
    if not await _gone(folder, _KILL_SECONDS):
        for spec, pid in leftovers(folder).items():
            send(pid, signal.SIGKILL)
            sweep(Path(spec).parts[-5])  # pods/<uid>/containers/<name>/<attempt>/spec.json


def _send(folder: Path, number: int) -> None:
    for pid in leftovers(folder).values():
        send(pid, number)


async def _gone(folder: Path, seconds: float, hurry: asyncio.Event | None = None) -> bool:
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while leftovers(folder):
        if clock() > deadline or (hurry is not None and hurry.is_set()):
            return False
        await asyncio.sleep(_POLL)
    return True
