"""The README, read from the top by somebody who has just cloned the repository."""

import os
import re
import subprocess

import pytest

from testbed.operator import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
ACTIVATE = re.compile(r"^\$ make setup && (.+)$", re.MULTILINE)
"""The environment is there when a test runs: only what follows is typed, so that nothing is installed anew."""


def test_the_readme_says_how_to_get_the_command_before_it_uses_it() -> None:
    how = ACTIVATE.search(README)
    use = re.search(r"`trainmaster \w+|^\$ trainmaster", README, re.MULTILINE)

    assert how is not None
    assert use is not None
    assert how.start() < use.start()


@pytest.mark.skipif(not (REPOSITORY / ".venv").exists(), reason="the environment is elsewhere")
def test_what_the_readme_types_puts_the_command_and_packages_of_the_examples_into_the_path() -> None:
    how = ACTIVATE.search(README)
    assert how is not None
    script = f"{how[1]} && trainmaster --help && python3 -c 'import numpy'"
    environ = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG")}

    done = subprocess.run(
        ["bash", "-c", script],
        cwd=REPOSITORY,
        env={**environ, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert "Usage: trainmaster" in done.stdout
