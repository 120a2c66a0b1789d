"""The reinforcement learning examples as `trainmaster run` runs them: real operator, real di-server, real processes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from testbed.operator import COMMAND, REPOSITORY

DEADLINE = 240


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        pytest.param("dijob-cartpole", r"coordinator +\| solved: the pole stood for (4[789]\d|500)", id="cartpole"),
        pytest.param("dijob-mock", r"coordinator +\| .*Your RL agent is converged", id="mock"),
    ],
)
def test_a_job_with_replicas_from_di_server_comes_to_its_good_end(manifest: str, says: str, tmp_path: Path) -> None:
    env = {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command: list[str | Path] = [COMMAND, "run", f"examples/{manifest}.yaml"]

    run = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=DEADLINE)

    assert run.returncode == 0, run.stdout[-4000:] + run.stderr
    assert re.search(says, run.stdout), run.stdout[-4000:]
    assert re.search(r"^collector-\w{5} ", run.stdout, re.MULTILINE)
