"""`ditask` of DI-engine 0.5.3: processes find each other by DI_NODES and DI_RANK.

`make contract` makes a Python that has DI-engine and torch, and TRAINMASTER_DITASK_PYTHON names it.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from testbed.plane import free_port

pytestmark = pytest.mark.long

NODES = ("127.23.5.1", "127.23.5.2")

MEETS = """
import time
from ding.framework import task

def main():
    heard = set()
    with task.start(async_mode=True, n_async_workers=1):
        task.on("hello", heard.add)
        until = time.monotonic() + 120
        while time.monotonic() < until and not heard:
            task.emit("hello", task.router.node_id, only_remote=True)
            time.sleep(0.5)
        for _ in range(4):  # the other one may not have heard it yet
            task.emit("hello", task.router.node_id, only_remote=True)
            time.sleep(0.5)
        print("node", task.router.node_id, "met", sorted(heard), flush=True)
"""


@pytest.fixture(scope="session")
def ditask() -> Path:
    python = os.environ.get("TRAINMASTER_DITASK_PYTHON", "")
    if not python:
        pytest.skip("TRAINMASTER_DITASK_PYTHON names no Python with DI-engine 0.5.3 and torch: run make contract")
    return Path(python).with_name("ditask")


def test_two_nodes_meet_by_their_ranks(ditask: Path, tmp_path: Path) -> None:
    (tmp_path / "meets.py").write_text(MEETS)
    port = str(free_port())
    command = [str(ditask), "--package", ".", "--main", "meets.main", "--parallel-workers", "1", "--ports", port]
    command += ["--topology", "mesh", "--platform", "k8s"]
    own = {"DI_NODES": ",".join(NODES), "OMP_NUM_THREADS": "1"}
    nodes = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, **own, "DI_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for rank in range(len(NODES))
    ]
    try:
        said = [node.communicate(timeout=240)[0] for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
                node.communicate()

    assert "node 0 met [1]" in said[0], said[0]
    assert "node 1 met [0]" in said[1], said[1]
