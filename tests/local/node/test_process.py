"""Waiting for the end of processes, and finding those of a pod."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainmaster.local.node.process import CONTAINER, POD_UID, marked, running_shims, sweep, when_ended

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


def start(*argv: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(argv)


async def test_end_is_reported_once() -> None:
    told = asyncio.Event()
    process = start("sleep", "0.05")

    when_ended(process.pid, told.set)

    async with asyncio.timeout(20):
        await told.wait()
    process.returncode = 0  # it was collected


async def test_missing_process_has_ended() -> None:
    told = asyncio.Event()
    process = start("true")
    process.wait()

    when_ended(process.pid, told.set)

    async with asyncio.timeout(20):
        await told.wait()


async def test_cancelling_twice_leaves_other_files_alone() -> None:
    """The number of a closed file is given to the next one that is opened."""
    process = start("sleep", "1000")
    try:
        cancel = when_ended(process.pid, lambda: None)
        cancel()
        receiver, sender = os.pipe()
        cancel()

        assert os.fstat(receiver).st_ino == os.fstat(sender).st_ino
        os.close(receiver)
        os.close(sender)
    finally:
        process.kill()
        process.wait()


def test_a_program_that_is_called_run_is_no_shim() -> None:
    process = subprocess.Popen(["run", "1000"], executable="/bin/sleep")
    try:
        assert process.pid not in running_shims(Path("/")).values()
    finally:
        process.kill()
        process.wait()


NOBODY = 65534
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@contextmanager
def posing(spec: Path, user: int) -> Iterator[int]:
    """The pid of a program with the command line of a shim."""
    ready, sender = os.pipe()
    script = f"import os, signal; os.setuid({user}); os.write({sender}, b'.'); signal.pause()"
    argv = [sys.executable, "-c", script, "/x/shim.pyc", "run", str(spec)]
    process = subprocess.Popen(argv, pass_fds=(sender,))
    os.close(sender)
    try:
        assert os.read(ready, 1) == b"."
        yield process.pid
    finally:
        os.close(ready)
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("user", "folder", "is_found"),
    [
        pytest.param(os.geteuid(), "", True, id="of this node"),
        pytest.param(os.geteuid(), "other", False, id="of another node"),
        pytest.param(NOBODY, "", False, id="of another user", marks=ONLY_ROOT),
    ],
)
def test_shims_are_processes_of_this_user_with_a_spec_in_the_nodes_folder(
    tmp_path: Path, user: int, folder: str, is_found: bool
) -> None:
    spec = tmp_path / "pods" / "uid" / "containers" / "main" / "0" / "spec.json"

    with posing(spec, user) as pid:
        assert running_shims(tmp_path / folder) == ({str(spec): pid} if is_found else {})


@ONLY_ROOT
def test_a_signal_to_a_process_of_another_user_is_no_error() -> None:
    """`trainmaster down` ends its other processes all the same."""
    script = f"import os; from trainmaster.local.node.process import send; os.setuid({NOBODY}); send({os.getpid()}, 15)"

    subprocess.run([sys.executable, "-c", script], check=True)


def test_processes_are_found_and_ended_by_their_marks() -> None:
    def member(container: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sleep", "1000"], env={POD_UID: "uid-of-this-test", CONTAINER: container})

    a, b = member("a"), member("b")
    try:
        assert marked("uid-of-this-test", "a") == [a.pid]
        assert sorted(marked("uid-of-this-test")) == sorted([a.pid, b.pid])

        sweep("uid-of-this-test", "a")

        assert a.wait(20) == -9
        assert b.poll() is None
    finally:
        for process in (a, b):
            process.kill()
            process.wait()
