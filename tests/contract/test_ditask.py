"""`ditask` of DI-engine 0.5.3: processes find each other by DI_NODES and DI_RANK, and train as a DIJob in local mode.

`make contract` makes a Python that has DI-engine and torch, and TRAINMASTER_DITASK_PYTHON names it.
"""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from testbed.plane import free_port
from tests.local.conftest import Start
from tests.local.program import containers_of, written
from tests.manifests.build import Manifest, container, task
from tests.manifests.build import ditask as job

pytestmark = pytest.mark.long

NODES = ("127.23.5.1", "127.23.5.2")
STOP_VALUE = 195
"""The mean return at which DI-engine's configuration of CartPole ends the training."""

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


def a_task(ditask: Path, type_: str, replicas: int = 1, *, after: str = "true") -> Manifest:
    """A task that runs DI-engine's own example, as it is shipped, when the command ``after`` has ended."""
    options = "--package . --main ding.example.dqn.main --parallel-workers 1 --topology mesh --platform k8s"
    env = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    command = ["bash", "-c", f'{after} && exec "{ditask}" {options}']
    return task(type_, container(command=command, env=env), replicas=replicas)


LEARNER_LISTENS = "until (: > /dev/tcp/${DI_NODES%%,*}/50515) 2> /dev/null; do sleep 0.1; done"
"""What is sent to a learner before it listens is lost, and DI-engine's collectors wait two minutes for its answer."""


def test_a_job_of_ditask_trains_cartpole_to_its_end(ditask: Path, start: Start, tmp_path: Path) -> None:
    """The example is a learner at rank 0, an evaluator at rank 1, and collectors at all others."""
    manifest = job(
        "job",
        a_task(ditask, "learner"),
        a_task(ditask, "evaluator", after=LEARNER_LISTENS),
        a_task(ditask, "collector", 2, after=LEARNER_LISTENS),
    )

    code, said, errors = start("run", written(tmp_path, manifest), "--timeout", "4m").end()

    assert code == 0, said + errors
    returns = [float(value) for value in re.findall(r"^evaluator-0 .*Episode Return\((.*?)\)", said, re.MULTILINE)]
    assert returns[-1] >= STOP_VALUE
    for rank, pod in enumerate(("learner-0", "evaluator-0", "collector-0", "collector-1")):
        assert re.search(rf"^{pod} .*Stopping parallel worker on node: {rank}\b", said, re.MULTILINE)
    assert "dijob/job Succeeded" in said
    assert containers_of(tmp_path) == []
