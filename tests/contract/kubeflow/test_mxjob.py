"""Kubeflow's own client creates, waits for, reads and deletes an MXJob, and notices nothing.

The client is the package kubeflow-training 1.8.1. `make contract` makes an environment for it, whose Python
`TRAINMASTER_KUBEFLOW_PYTHON` names. Nothing is downloaded here.
"""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import MXJOBS
from tests.integration.scene import Scene

SCRIPT = Path(__file__).parent / "client.py"
NAME = "mxjob-mnist-ci-test"
PODS = {f"{NAME}-{place}" for place in ("scheduler-0", "server-0", "worker-0", "worker-1")}
PATIENCE = 180.0


@pytest.fixture(scope="session")
def kubeflow_python() -> str:
    """A Python that has the client."""
    named = os.environ.get("TRAINMASTER_KUBEFLOW_PYTHON", "")
    python = named or sys.executable
    if not named and importlib.util.find_spec("kubeflow") is None:
        pytest.skip("no kubeflow-training here: set TRAINMASTER_KUBEFLOW_PYTHON to a Python that has 1.8 of it")
    code = "import kubeflow.training"
    if found := subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stderr:
        pytest.skip(f"{python} cannot import kubeflow.training: {found.strip().splitlines()[-1]}")
    return python


class Client:
    """The client's process, and what it tells."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def tells(self, step: str) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        line = await asyncio.wait_for(stdout.readline(), PATIENCE)
        if not line:
            assert self._process.stderr is not None
            raise AssertionError((await self._process.stderr.read()).decode())
        seen: dict[str, Any] = json.loads(line)
        assert seen.pop("step") == step
        return seen


@asynccontextmanager
async def client_of(python: str, plane: ControlPlane, namespace: str) -> AsyncIterator[Client]:
    process = await asyncio.create_subprocess_exec(
        python, SCRIPT, plane.kubeconfig(), namespace, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield Client(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_training_client_lives_with_an_mxjob(
    kubeflow_python: str, plane: ControlPlane, scene: Scene, operator: OperatorProcess
) -> None:
    async with client_of(kubeflow_python, plane, scene.namespace) as client:
        created = await client.tells("created")
        await scene.until(lambda: set(scene.pods()) == PODS, "the pods are there")
        await scene.report("Running", *PODS)
        running = await client.tells("running")
        for pod in sorted(PODS, reverse=True):  # the scheduler last
            await scene.end(pod, 0)
        succeeded = await client.tells("succeeded")
        deleted = await client.tells("deleted")

    assert created == {"jobs": [NAME]}
    assert running == {
        "created": True,
        "running": True,
        "succeeded": False,
        "workers": [f"{NAME}-worker-0", f"{NAME}-worker-1"],
        "second": [f"{NAME}-worker-1"],
        "master": [f"{NAME}-server-0"],
    }
    assert succeeded.pop("started") < succeeded.pop("completed")
    conditions = {type_: (status, reason) for type_, status, reason in succeeded.pop("conditions")}
    assert conditions | {"Finished": ()} == {
        "Created": ("True", "MXJobCreated"),
        "Running": ("False", "MXJobSucceeded"),
        "Succeeded": ("True", "MXJobSucceeded"),
        "Finished": (),
    }
    assert succeeded == {
        "running": False,
        "succeeded": True,
        "failed": False,
        "replicas": {"Scheduler": 1, "Server": 1, "Worker": 2},
    }
    assert deleted == {"jobs": []}
    await scene.until(lambda: not scene.world.find(MXJOBS, scene.namespace, NAME), "the job is gone")
