"""Waiting for the end of processes, and finding those of a pod."""

import asyncio
import os
import subprocess
import sys

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
        assert process.pid not in running_shims().values()
    finally:
        process.kill()
        process.wait()


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
