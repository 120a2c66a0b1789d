"""The end of an attempt whose shim was killed."""

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from trainmaster.local.node import attempt as module
from trainmaster.local.node.attempt import Attempt
from trainmaster.local.node.isolation import shim_command
from trainmaster.local.node.process import parent_of, send

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

SECONDS = 20.0


async def test_other_pods_are_served_while_processes_of_a_killed_shim_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork bomb may keep that busy for a second."""
    over, loop, served = asyncio.Event(), asyncio.get_running_loop(), threading.Event()
    saw: list[bool] = []

    def sweep(uid: str, container: str) -> None:
        loop.call_soon_threadsafe(served.set)  # as the event of another pod
        saw.append(served.wait(SECONDS))

    monkeypatch.setattr(module, "sweep", sweep)
    attempt = Attempt(tmp_path / "0", over.set)
    spec = {
        "uid": "uid-of-this-test",
        "container": "main",
        "argv": ["sleep", "1000"],
        "env": {"PATH": os.environ["PATH"]},
        "cwd": "/",
        "namespaces": "",
        "messageFile": str(tmp_path / "message"),
    }
    await attempt.start(spec, {}, shim_command())

    send(parent_of(attempt.pid), signal.SIGKILL)
    async with asyncio.timeout(2 * SECONDS):
        await over.wait()

    assert saw == [True]
    assert attempt.ended is not None
    assert attempt.ended.exit_code == 137
    assert json.loads((tmp_path / "0" / "exit.json").read_text())["exitCode"] == 137
