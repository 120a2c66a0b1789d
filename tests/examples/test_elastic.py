"""The programs of examples/elastic: they train on while workers come and go, are killed, and are scaled by a real
kubectl on a local cluster."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.elastic import server, task, wire
from examples.elastic.members import Members
from testbed.operator import COMMAND, REPOSITORY
from trainmaster.local.node.process import pids

MANIFEST = REPOSITORY / "examples" / "aitrainingjob-elastic.yaml"
DEADLINE = 60.0
ENDLESS = "100000"

STEP = re.compile(r"step (\d+) of \d+: loss ([\d.]+), (\d+) workers, membership (\d+)")


class Lines:
    """What a pod says, line by line. A line that never comes is ended by the limit of the test."""

    def __init__(self, command: list[str | Path]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.seen: list[str] = []

    def until(self, pattern: str) -> re.Match[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.seen.append(line.rstrip())
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"{pattern} never came: {self.seen[-20:]}")

    def losses(self) -> list[float]:
        return [float(found[2]) for line in self.seen if (found := STEP.fullmatch(line))]

    def end(self) -> None:
        with self._process:
            self._process.kill()


class LocalCluster:
    """`trainmaster up`, and a kubectl that talks to it."""

    def __init__(self, kubectl: Path, folder: Path) -> None:
        self._kubeconfig = folder / "state" / "kubeconfig"
        self._kubectl = kubectl
        self._followed: list[Lines] = []
        self._folder = folder
        self._up = subprocess.Popen(
            [COMMAND, "up", "--state", folder / "state"],
            cwd=REPOSITORY,
            env=environ_of(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._up.stdout is not None
        assert any("export KUBECONFIG=" in line for line in self._up.stdout)

    def kubectl(self, *words: str) -> str:
        command: list[str | Path] = [self._kubectl, f"--kubeconfig={self._kubeconfig}", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE).stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def uids(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.get("pods")["items"]}

    def follow(self, pod: str) -> Lines:
        lines = Lines([self._kubectl, f"--kubeconfig={self._kubeconfig}", "logs", "--follow", pod])
        self._followed.append(lines)
        return lines

    def kill(self, pod: str) -> None:
        """As the kernel does when memory runs out."""
        (pid,) = [pid for pid in pids() if self._is_of(pid, pod)]
        os.kill(pid, signal.SIGKILL)

    def _is_of(self, pid: int, pod: str) -> bool:
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        wanted = (f"TRAININGJOB_SERVICE={pod}.default", f"HOME={self._folder}")
        return all(word.encode() in words for word in wanted)

    def end(self) -> None:
        for lines in self._followed:
            lines.end()
        self.kubectl("delete", "aitj", "--all", "--wait=false")
        self._up.send_signal(signal.SIGTERM)
        with self._up:
            self._up.communicate(timeout=DEADLINE)


def environ_of(folder: Path) -> dict[str, str]:
    return {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "HOME": str(folder), "TMPDIR": str(folder)}


def manifest(folder: Path, *, steps: str, seconds: str = "0.1") -> Path:
    """The example, of another length."""
    text = MANIFEST.read_text().replace('value: "200"', f'value: "{steps}"').replace('"0.2"', f'"{seconds}"')
    file = folder / "job.yaml"
    file.write_text(text)
    return file


@pytest.fixture
def cluster(binaries: Path, tmp_path: Path) -> Iterator[LocalCluster]:
    """With the example on it, which goes on until it is deleted, and with two workers at work."""
    cluster = LocalCluster(binaries / "kubectl", tmp_path)
    try:
        cluster.kubectl("apply", "-f", str(manifest(tmp_path, steps=ENDLESS)))
        cluster.kubectl("wait", "aitj/elastic", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
        yield cluster
    finally:
        cluster.end()


def falls(losses: list[float]) -> bool:
    return losses[-1] < losses[0] and all(later <= earlier for earlier, later in pairwise(losses))


# --- on a local cluster ---


@pytest.mark.timeout(150)
def test_a_job_is_scaled_up_and_down_while_its_loss_falls_and_nobody_is_restarted(cluster: LocalCluster) -> None:
    log = cluster.follow("elastic-server-0")
    log.until("2 workers")
    before = cluster.uids()

    assert (
        cluster.kubectl("scale", "aitj/elastic", "--replicas=4")
        == "aitrainingjob.elasticdeeplearning.ai/elastic scaled\n"
    )
    many = int(log.until(r"4 workers, membership (\d+)")[1])
    assert cluster.uids().items() >= before.items()
    cluster.kubectl("wait", "aitj/elastic", "--for=jsonpath={.status.elasticReplicas}=4", "--timeout=60s")

    cluster.kubectl("scale", "aitj/elastic", "--replicas=2")
    # two may have left before the server read that they did
    few = int(log.until(rf" 2 workers, membership (?!{many}\b)(\d+)")[1])
    cluster.kubectl("wait", "pod/elastic-worker-2", "pod/elastic-worker-3", "--for=delete", "--timeout=60s")

    job = cluster.get("aitj", "elastic")
    assert cluster.uids() == before
    assert few > many
    assert job["status"]["phase"] == "Running"
    assert "RestartCount" not in job["status"]
    assert falls(log.losses())


@pytest.mark.timeout(150)
def test_a_worker_that_is_killed_comes_again_while_the_others_go_on(cluster: LocalCluster) -> None:
    log = cluster.follow("elastic-server-0")
    log.until("2 workers")
    before = cluster.uids()

    cluster.kill("elastic-worker-1")
    log.until("elastic-worker-1 has left")
    log.until(" 1 workers")
    log.until(" 2 workers")

    after = cluster.uids()
    assert {name for name in before if after[name] != before[name]} == {"elastic-worker-1"}
    assert cluster.get("aitj", "elastic")["status"]["RestartCount"] == {"worker": 1}
    assert falls(log.losses())


@pytest.mark.timeout(150)
def test_when_the_server_is_killed_all_start_again_from_its_checkpoint(cluster: LocalCluster) -> None:
    log = cluster.follow("elastic-server-0")
    log.until(r"step 2\d of")
    before = cluster.uids()

    cluster.kill("elastic-server-0")
    cluster.kubectl("wait", "aitj/elastic", "--for=jsonpath={.status.RestartCount.server}=1", "--timeout=60s")
    cluster.kubectl("wait", "aitj/elastic", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
    again = cluster.follow("elastic-server-0")
    step = int(again.until(r"begins at step (\d+)")[1])
    again.until("2 workers")

    assert step >= 20
    assert not set(cluster.uids().values()) & set(before.values())
    assert falls([*log.losses()[:step], *again.losses()])


def test_trainmaster_runs_the_manifest_to_its_good_end(tmp_path: Path) -> None:
    command: list[str | Path] = [COMMAND, "run", manifest(tmp_path, steps="20", seconds="0.02")]

    run = subprocess.run(
        command, cwd=REPOSITORY, env=environ_of(tmp_path), capture_output=True, text=True, timeout=DEADLINE
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"server-0 \| step 20 of 20: loss 0\.\d+, \d workers", run.stdout)
    # twenty steps may be over before the second worker is there: the first to come has a share
    assert re.search(r"worker-(\d) \| elastic-worker-\1 has share \d of \d from step \d+ on", run.stdout)


# --- the programs ---


def members_file(folder: Path, generation: int, *names: str) -> Path:
    file = folder / "members.json"
    members = [{"name": name, "role": "worker", "index": int(name[-1])} for name in names]
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps({"generation": generation, "members": members}))
    fresh.replace(file)
    return file


def test_the_shares_of_all_workers_are_all_points_once() -> None:
    for count in (1, 2, 3, 4, 7):
        parts = [range(task.POINTS)[task.share(place, count)] for place in range(count)]
        assert [point for part in parts for point in part] == list(range(task.POINTS))


def test_the_slope_is_that_of_the_loss() -> None:
    vector = np.random.default_rng(1).normal(size=task.SIZE).astype(np.float32)
    whole = task.slope(vector, slice(None)) / task.POINTS

    for place in (0, 13, 31):
        nudge = np.zeros(task.SIZE, np.float32)
        nudge[place] = 0.01
        rise = (task.loss(vector + nudge) - task.loss(vector - nudge)) / 0.02
        assert whole[place] == pytest.approx(rise, abs=1e-3)


def test_members_are_read_again_when_their_file_was_replaced(tmp_path: Path) -> None:
    members = Members(members_file(tmp_path, 1, "w-1", "w-0"))
    before = members.role("worker"), members.generation
    members_file(tmp_path, 2, "w-1")

    assert before == (["w-0", "w-1"], 1)
    assert (members.role("worker"), members.generation) == (["w-1"], 2)
    assert members.role("server") == []


def test_a_step_waits_for_nobody_who_has_left(tmp_path: Path) -> None:
    training = server.Training(
        tmp_path / "checkpoint.npz", Members(members_file(tmp_path, 1, "w-0", "w-1", "w-2")), steps=2
    )
    training.join("w-0", "a")
    training.join("w-1", "b")
    training.leave("w-1", "an older connection")
    training.leave("w-1", "b")
    members_file(tmp_path, 2, "w-0", "w-2")

    answer = training.exchange(wire.Message("w-0", 0, 1, np.ones(task.SIZE, np.float32)))

    assert answer.step == 1
    assert np.allclose(answer.vector, -task.LEARNING_RATE)


@pytest.mark.parametrize("restarts", ["0", "1"])
def test_only_a_restart_goes_on_from_the_checkpoint(
    restarts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAININGJOB_REPLICA_RESTARTCOUNT", restarts)
    file = tmp_path / "checkpoint.npz"
    np.savez(file, step=7, vector=np.ones(task.SIZE, np.float32))

    training = server.begun(file, Members(members_file(tmp_path, 1)), steps=9)

    assert training.step == {"0": 0, "1": 7}[restarts]
    assert file.exists() == (restarts == "1")
