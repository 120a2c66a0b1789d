"""Ends processes of pods. They outlive the process that started them, so a final stop must end them explicitly."""

import asyncio
import signal
from pathlib import Path

from trainmaster.local.node.process import pod_of, running_shims, send, sweep

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL; Kubernetes' default."""
_KILL_SECONDS = 5.0
_POLL = 0.05


async def end_leftovers(folder: Path, *, grace: float = 0.0, kill_now: asyncio.Event | None = None) -> None:
    """Sends SIGTERM, waits ``grace`` seconds or until ``kill_now`` is set, then kills. Returns when all have ended."""
    if grace:
        _send(folder, signal.SIGTERM)
        await _gone(folder, grace, kill_now)
    _send(folder, signal.SIGUSR1)  # the shim kills all processes of its container
    if not await _gone(folder, _KILL_SECONDS):
        for spec, pid in running_shims(folder).items():
            send(pid, signal.SIGKILL)
            await asyncio.to_thread(sweep, pod_of(spec))


def _send(folder: Path, number: int) -> None:
    for pid in running_shims(folder).values():
        send(pid, number)


async def _gone(folder: Path, seconds: float, kill_now: asyncio.Event | None = None) -> bool:
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while running_shims(folder):
        if clock() > deadline or (kill_now is not None and kill_now.is_set()):
            return False
        await asyncio.sleep(_POLL)
    return True
