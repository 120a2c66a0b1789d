"""A fixture that starts `trainmaster`, and leaves nothing running."""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.network import Network
from tests.local.program import Program, containers_of
from trainmaster.local.node.process import send

Start = Callable[..., Program]
Up = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start("run", "job.yaml")`` in a folder of its own; options as those of ``Program``."""
    started: list[Program] = []

    def start(*args: str, **options: Any) -> Program:
        started.append(Program(*args, folder=tmp_path, **options))
        return started[-1]

    yield start
    for program in started:
        program.kill()
    for pid in containers_of(tmp_path):
        send(pid, signal.SIGUSR1)


@pytest.fixture
def network() -> Iterator[Network]:
    """A network namespace, where this system allows one."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        pytest.skip("there is no unshare, nsenter or ip here")
    made = Network()
    if not made.is_there:
        made.close()
        pytest.skip("this system does not let us make a network namespace")
    yield made
    made.close()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The folder of the test's local cluster."""
    return tmp_path / "state"


@pytest.fixture
def up(start: Start, state: Path) -> Up:
    """Starts the cluster; it takes jobs when this returns."""

    def up(*args: str, **options: Any) -> Program:
        program = start("up", "--state", str(state), *args, **options)
        program.until(lambda line: "export KUBECONFIG=" in line)
        return program

    return up
