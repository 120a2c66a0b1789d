"""PyTorch: DistributedDataParallel, and torchrun with a number of workers that changes."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import build
from tests.contract.framework.example import ACCURACY, EXAMPLES, assert_trains, prepare, python_with
from tests.local.conftest import Start, Up
from tests.local.program import containers_of

KUBECTL_SECONDS = 60

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(python_with("torch", "TRAINMASTER_TORCH_PYTHON"), tmp_path, monkeypatch)


def test_three_workers_train_one_network(start: Start, tmp_path: Path) -> None:
    assert_trains(start, tmp_path, "torch", 3)


class Kubectl:
    """kubectl with the kubeconfig of a local cluster."""

    def __init__(self, state: Path) -> None:
        built = build.folder() / "kubectl"
        found = str(built) if built.exists() else shutil.which("kubectl")
        if found is None:
            pytest.skip("there is no kubectl: make testbed builds one")
        self.command = [found, f"--kubeconfig={state}/kubeconfig"]

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self.command, *words], capture_output=True, text=True, timeout=KUBECTL_SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def follow(self, pod: str) -> Iterator[subprocess.Popen[str]]:
        """The log of a pod."""
        with subprocess.Popen([*self.command, "logs", pod, "--follow"], stdout=subprocess.PIPE, text=True) as log:
            yield log
            log.kill()


def until(log: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The next line of the log in which this is found; the time limit of the test is the limit."""
    lines: list[str] = []
    assert log.stdout is not None
    for line in log.stdout:
        lines.append(line)
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"{pattern!r} does not come:\n" + "".join(lines))


@pytest.mark.timeout(600)  # torchrun waits half a minute for more nodes whenever it has fewer than it may have
def test_torchrun_goes_on_with_more_and_with_fewer_workers(up: Up, state: Path, tmp_path: Path) -> None:
    up()
    kubectl, job = Kubectl(state), "aitj/torch-elastic"
    kubectl("apply", "-f", str(EXAMPLES / "aitrainingjob-torch-elastic.yaml"))
    kubectl("wait", job, "--for=jsonpath={.status.phase}=Running", "--timeout=50s")

    with kubectl.follow("torch-elastic-worker-0") as log:
        until(log, r"^step \d+ of 300: loss [\d.]+, 2 processes$")
        kubectl("scale", job, "--replicas=3")
        grown = int(until(log, r"of 3 begins at step (\d+)$")[1])
        until(log, r"^step \d+ of 300: loss [\d.]+, 3 processes$")
        kubectl("scale", job, "--replicas=2")
        shrunk = int(until(log, r"of 2 begins at step (\d+)$")[1])
        until(log, rf"of 2: {ACCURACY}")
    kubectl("wait", job, "--for=condition=Finished", "--timeout=50s")
    status = json.loads(kubectl("get", job, "-o", "jsonpath={.status}"))

    assert 10 <= grown < shrunk
    assert status["phase"] == "Succeed"
    assert "RestartCount" not in status
    assert containers_of(tmp_path) == []
