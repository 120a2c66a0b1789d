"""Local mode: how long it takes until the processes of a job run, and what a local cluster costs that does nothing.

Every process writes the moment of its start into a file; a moment is the wall clock's, which all of them share.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bench import machine
from bench.load import Loader, Request
from bench.progress import Progress
from bench.work import TRAINING_JOBS
from testbed.admin import path_of

Object = dict[str, Any]

FEW = 8
MANY = 200
IDLE_SECONDS = 20.0
PATIENCE = 120.0
POLL = 0.02

COMMAND = Path(sys.executable).with_name("trainmaster")
_STAMP = 'date +%s%N > "$0/$1.new" && mv "$0/$1.new" "$0/$1"; exec sleep 600'


class TooSlow(Exception):
    """Something did not happen in all the time that there was."""


class Local(msgspec.Struct):
    """Seconds from the command to the start of the last process; ``script`` is a shell script that starts the same."""

    run: list[float] = []
    script: list[float] = []
    many: float | None = None
    idle_cores: float | None = None
    idle_memory: machine.Memory | None = None


def measure(progress: Progress, rounds: int) -> Local:
    found = Local()
    for _ in range(rounds):
        found.script.append(_script(FEW))
        found.run.append(_run(FEW))
        progress(f"{FEW} processes after {found.run[-1]:.2f} s; by a shell script after {found.script[-1]:.3f} s")
    with _folder() as folder, _up(folder / "state") as (process, loader):
        progress("a local cluster is up; it has nothing to do now")
        machine.wait_idle([process.pid])
        before = machine.cpu_of(process.pid)
        time.sleep(IDLE_SECONDS)
        found.idle_cores = round((machine.cpu_of(process.pid) - before) / IDLE_SECONDS, 4)
        found.idle_memory = machine.memory_of(process.pid)
        stamps = _stamps(folder)
        started = time.time()
        loader.send([Request("POST", path_of(TRAINING_JOBS, "default"), _job(MANY, stamps))])
        found.many = _last(stamps, MANY) - started
        progress(f"{MANY} processes after {found.many:.2f} s")
    return found


def _run(count: int) -> float:
    with _folder() as folder:
        stamps, manifest = _stamps(folder), folder / "job.yaml"
        manifest.write_text(yaml.safe_dump(_job(count, stamps)))
        started = time.time()
        with _ended(subprocess.Popen([COMMAND, "run", manifest], stdout=subprocess.DEVNULL, cwd=folder)):
            return _last(stamps, count) - started


def _script(count: int) -> float:
    with _folder() as folder:
        stamps = _stamps(folder)
        lines = [f"sh -c {_quoted(_STAMP)} {stamps} {index} &" for index in range(count)]
        started = time.time()
        with _ended(subprocess.Popen(["sh", "-c", "\n".join([*lines, "wait"])], start_new_session=True)) as process:
            found = _last(stamps, count) - started
            os.killpg(process.pid, signal.SIGKILL)
        return found


@contextmanager
def _up(state: Path) -> Iterator[tuple[subprocess.Popen[bytes], Loader]]:
    with _ended(subprocess.Popen([COMMAND, "up", "--state", state], stdout=subprocess.DEVNULL)) as process:
        kubeconfig = state / "kubeconfig"
        _until(kubeconfig.exists, "trainmaster up is ready")
        config = yaml.safe_load(kubeconfig.read_text())
        token = config["users"][0]["user"]["token"]
        with Loader(config["clusters"][0]["cluster"]["server"], token, state / "certificate.pem") as loader:
            yield process, loader


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """It and what it started have ended when the context is left."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(POLL)
            process.send_signal(signal.SIGINT)  # the second one means: at once
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="trainmaster-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stamps(folder: Path) -> Path:
    stamps = folder / "stamps"
    stamps.mkdir()
    return stamps


def _last(stamps: Path, count: int) -> float:
    """When the last of the processes started."""
    files = [stamps / str(index) for index in range(count)]
    _until(lambda: all(file.exists() for file in files), f"{count} processes started")
    return max(int(file.read_text()) for file in files) / 1e9


def _until(is_met: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_met():
        if time.monotonic() > deadline:
            raise TooSlow(f"not within {PATIENCE:g} s: {what}")
        time.sleep(POLL)


def _job(count: int, stamps: Path) -> Object:
    container = {
        "name": "aitj-worker",
        "image": "none",
        "command": ["sh", "-c", _STAMP, str(stamps), "$(TRAININGJOB_REPLICA_INDEX)"],
        "ports": [{"name": "aitj-7000", "containerPort": 7000}],
    }
    worker = {"replicas": count, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "elasticdeeplearning.ai/v1",
        "kind": "AITrainingJob",
        "metadata": {"name": "bench"},
        "spec": {"replicaSpecs": {"worker": worker}},
    }


def _quoted(text: str) -> str:
    return "'" + text + "'"
