"""Runs an example of docs/frameworks.md with the real framework in local mode."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.local.conftest import Start
from tests.local.program import containers_of

EXAMPLES = Path(__file__).parents[3] / "examples"
ACCURACY = r"accuracy (0\.9[5-9]\d|1\.000)$"


def python_with(module: str, variable: str) -> Path:
    """The Python that a variable names. `make contract` makes one that has the module."""
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no Python with {module}: run make contract")
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    if subprocess.run([python, "-c", code, module], check=False, timeout=60).returncode:
        pytest.skip(f"{python} does not have {module}: set {variable} to a Python that has it")
    return Path(python)


def prepare(python: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this Python the ``python3`` of jobs, and the examples a part of the folder in which jobs start."""
    monkeypatch.setenv("PATH", f"{python.parent}:{os.environ['PATH']}")
    (folder / "examples").symlink_to(EXAMPLES)


def assert_trains(start: Start, folder: Path, example: str, size: int) -> None:
    """So many processes end well, and with the same network."""
    code, said, errors = start("run", f"examples/aitrainingjob-{example}.yaml", "--timeout", "4m").end()

    assert code == 0, said + errors
    ends = re.findall(rf"process (\d) of {size}: {ACCURACY}", said, re.MULTILINE)
    assert sorted(rank for rank, _ in ends) == [str(rank) for rank in range(size)]
    assert len({accuracy for _, accuracy in ends}) == 1
    assert containers_of(folder) == []
