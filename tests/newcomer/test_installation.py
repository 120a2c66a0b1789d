"""Installing takes minutes: before each long step a line says what it does and how long that takes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from testbed.operator import REPOSITORY

STUB = """#!/bin/sh
case "$1 $2" in
    "-m venv") for last in "$@"; do :; done; mkdir -p "$last/bin"; cp "$0" "$last/bin/python"; echo VENV ;;
    "-m pip") echo "PIP" ;;
esac
"""
"""A Python that only says what it was asked for."""
TIME = re.compile(r"\b\d+ (s|minutes?)\b")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    _write(folder / "python3", STUB)
    return folder


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def printed(home: Path, tools: Path, *command: str) -> list[str]:
    path = f"{tools}:/usr/bin:/bin"
    environ = {**os.environ, "PATH": path, "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    found = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


def test_install_announces_each_step_that_downloads(tmp_path: Path, tools: Path) -> None:
    lines = printed(tmp_path, tools, "sh", "tools/install.sh", "install")
    steps = [place for place, line in enumerate(lines) if line == "PIP"]

    assert len(steps) == 2
    assert all(lines[place - 1].startswith("trainmaster: ") for place in steps)
    assert TIME.search(lines[0])
    assert lines[-1].startswith("trainmaster: installed as ")


@pytest.mark.parametrize("tool", ["pipx", "uv"])
def test_install_announces_what_another_tool_does(tmp_path: Path, tools: Path, tool: str) -> None:
    _write(tools / tool, f'#!/bin/sh\ncase "$*" in *install*) echo TOOL ;; *) echo {tmp_path} ;; esac\n')
    lines = printed(tmp_path, tools, "sh", "tools/install.sh", "install")

    assert lines[1] == "TOOL"
    assert tool in lines[0]
    assert TIME.search(lines[0])


def test_setup_announces_each_step_that_downloads(tmp_path: Path, tools: Path) -> None:
    lines = printed(
        tmp_path, tools, "make", "--silent", f"VENV={tmp_path / 'venv'}", f"PYTHON={tools / 'python3'}", "setup"
    )
    steps = [place for place, line in enumerate(lines) if line == "PIP"]

    assert len(steps) == 3
    assert all(lines[place - 1].startswith("setup: ") and TIME.search(lines[place - 1]) for place in steps)
    assert lines[-1].startswith("setup: done")
