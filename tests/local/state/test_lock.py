"""One process at a time, by a file that names it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.local.lock import Taken, holder_of, locked

HOLDS = """
import sys
from pathlib import Path
from trainmaster.local.lock import locked
with locked(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


def test_the_holder_is_known_while_it_holds_the_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    before = holder_of(file)
    with locked(file):
        during = holder_of(file)
        with pytest.raises(Taken) as taken, locked(file):
            pass
    after = holder_of(file)

    assert (before, during, after) == (None, os.getpid(), None)
    assert taken.value.holder == os.getpid()


def test_a_killed_process_releases_the_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        holder = holder_of(file)
        other.kill()
        other.wait()

        assert holder == other.pid
        with locked(file):
            assert holder_of(file) == os.getpid()


def test_an_impossible_lock_file_raises_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path / "absent" / "lock"):
        pass
