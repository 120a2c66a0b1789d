"""MXNet as a job of every kind on this machine: scheduler, server and workers find each other by the environment that
the operator sets.

Each job runs twice: with a stand-in for MXNet, wherever the tests run, and with the real MXNet 1.9.1. That one is
abandoned and wants Python 3.8 (and numpy before 1.24). `make contract` makes an environment for it, whose Python
`TRAINMASTER_MXNET_PYTHON` names; otherwise `python3.8` is asked. Nothing is downloaded here.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.local.conftest import Start
from tests.local.program import containers_of, job, role, written
from tests.local.test_run import lines_of
from tests.manifests.build import MXNET, Manifest, container, crew, mlkubejob, mx_replica, mxjob

JOINS = "import mxnet"
"""All that a scheduler and a server do: the import does not come back before the training is over, and then it ends
the process."""

TRAINS = """
import mxnet
store = mxnet.kv.create("dist_sync")
store.init(3, mxnet.nd.zeros((2, 3)))
store.push(3, mxnet.nd.ones((2, 3)) * (store.rank + 1))
pulled = mxnet.nd.zeros((2, 3))
store.pull(3, out=pulled)
print("workers", store.num_workers, "sum", pulled.asnumpy().min(), pulled.asnumpy().max(), flush=True)
"""


STAND_IN = Path(__file__).with_name("stand_in")


@pytest.fixture(scope="session", params=["stand-in", "mxnet-1.9.1"])
def interpreter(request: pytest.FixtureRequest) -> list[str]:
    """The command of a Python that can import mxnet."""
    if request.param == "stand-in":
        return ["env", f"PYTHONPATH={STAND_IN}", sys.executable]
    return [mxnet_python()]


def mxnet_python() -> str:
    python = os.environ.get("TRAINMASTER_MXNET_PYTHON") or shutil.which("python3.8")
    if not python:
        pytest.skip("no Python 3.8 here: set TRAINMASTER_MXNET_PYTHON to a Python that has mxnet 1.9.1")
    found = subprocess.run([python, "-c", "import mxnet"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"{python} cannot import mxnet: set TRAINMASTER_MXNET_PYTHON to a Python that has 1.9.1")
    return python


def training(python: list[str], program: str) -> Manifest:
    return container(MXNET, command=[*python, "-c", program])


def kubeflow_job(python: list[str]) -> Manifest:
    joins, trains = training(python, JOINS), training(python, TRAINS)
    roles = {"Scheduler": mx_replica(joins), "Server": mx_replica(joins), "Worker": mx_replica(trains, replicas=2)}
    return mxjob(mxReplicaSpecs=roles)


def mlkube_job(python: list[str]) -> Manifest:
    joins, trains = training(python, JOINS), training(python, TRAINS)
    specs = [crew("SCHEDULER", 1, joins), crew("SERVER", 1, joins), crew("WORKER", 2, trains)]
    return mlkubejob(jobMode="dist", replicaSpecs=specs)


def trainingjob(python: list[str]) -> Manifest:
    """The scheduler and the server end with the workers."""
    joins, trains = [*python, "-c", JOINS], [*python, "-c", TRAINS]
    scheduler = role(joins, ports=(9091,))
    return job(spec={"frameworkType": "mxnet"}, scheduler=scheduler, server=role(joins), worker=role(trains, 2))


@pytest.mark.parametrize(
    ("manifest", "end"),
    [
        pytest.param(kubeflow_job, "mxjob/job Succeeded: succeeded in ", id="MXJob"),
        pytest.param(mlkube_job, "mxjob.mxnet.mlkube.io/job Succeeded: succeeded in ", id="MxJob"),
        pytest.param(trainingjob, "aitrainingjob/job Succeed", id="AITrainingJob"),
    ],
)
def test_mxnet_trains_with_one_scheduler_one_server_and_two_workers(
    interpreter: list[str], start: Start, tmp_path: Path, manifest: Callable[[list[str]], Manifest], end: str
) -> None:
    file = written(tmp_path, manifest(interpreter))

    code, said, errors = start("run", file, "--timeout", "3m").end()

    assert code == 0, said + errors
    # In dist_sync a key holds the sum of what all workers pushed: 1 and 2.
    for worker in ("worker-0", "worker-1"):
        assert lines_of(said, worker) == ["workers 2 sum 3.0 3.0"]
    assert end in said
    assert containers_of(tmp_path) == []
