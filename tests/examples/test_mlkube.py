"""examples/mx_job_dist.yaml as `trainmaster run` runs it: real operator, real Job controller, real processes."""

import os
import re
import signal
import subprocess
from pathlib import Path

from testbed.operator import COMMAND, REPOSITORY

DEADLINE = 120


def test_the_crew_trains_and_survives_the_kill_of_a_worker(tmp_path: Path) -> None:
    env = {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command: list[str | Path] = [COMMAND, "run", "examples/mx_job_dist.yaml", "--timeout", f"{DEADLINE}s"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        said = ""
        for line in run.stdout:
            said += line
            if re.search(r"worker-1 +\| step 50 ", line):
                os.kill(worker_one(tmp_path), signal.SIGKILL)

    assert run.returncode == 0, said[-4000:]
    accuracy = re.search(r"worker-\d +\| test accuracy (0\.\d+)", said)
    assert accuracy is not None, said[-4000:]
    assert float(accuracy[1]) >= 0.95
    assert said.count("mxjob.mxnet.mlkube.io/example-dist-job Succeeded: succeeded in ") == 1


def worker_one(folder: Path) -> int:
    """The process of worker 1 of the run in this folder."""
    for process in Path("/proc").iterdir():
        try:
            variables = (process / "environ").read_bytes()
        except OSError:
            continue  # it is none, has ended, or is somebody else's
        if str(folder).encode() in variables and re.search(rb"\0HOSTNAME=example-dist-job-worker-\w+-1-", variables):
            return int(process.name)
    raise AssertionError("worker 1 is not there")
