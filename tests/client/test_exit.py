"""Programs that end without closing their client."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.program import containers_of, environ_of

OPENS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores SIGINT
from trainmaster import Client, Job
client = Client()
job = client.submit(Job("long", command=["sh", "-c", "echo ready; exec sleep 600"]))
print(next(job.logs(follow=True)), flush=True)
"""


def started(folder: Path, program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env=environ_of(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_program_that_ends_leaves_nothing_and_prints_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, OPENS)
    out, err = process.communicate()

    assert (process.returncode, out, err) == (0, "worker-0 | ready\n", "")
    assert not containers_of(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_fails_leaves_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, OPENS + "raise SystemExit(job.wait(timeout=0.01))")
    _, err = process.communicate()

    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("trainmaster.client.errors.TimedOut: aitrainingjob/long has not ended")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_wait_and_the_cluster(tmp_path: Path) -> None:
    process = started(tmp_path, OPENS + "job.wait()")
    assert process.stdout is not None
    assert process.stdout.readline() == "worker-0 | ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()

    assert process.returncode == -signal.SIGINT
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="containers watch their node by /proc")
def test_containers_of_a_killed_program_end(tmp_path: Path) -> None:
    process = started(tmp_path, OPENS)
    assert process.stdout is not None
    process.stdout.readline()
    (container,) = containers_of(tmp_path)
    watch = os.pidfd_open(container)
    process.kill()
    process.communicate()

    ended, _, _ = select.select([watch], [], [], 60.0)
    os.close(watch)
    assert ended
