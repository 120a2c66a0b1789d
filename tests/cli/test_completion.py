"""The completion that real shells do with `trainmaster completion`."""

import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.operator import COMMAND

PROMPT = "ready> "


class Bash:
    """An interactive bash in a terminal of its own. The limit of a test ends a wait for what never comes."""

    def __init__(self, folder: Path) -> None:
        self._master, window = pty.openpty()
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            cwd=folder,
            env={"PATH": f"{COMMAND.parent}:{os.defpath}", "HOME": str(folder), "PS1": PROMPT, "TERM": "dumb"},
            stdin=window,
            stdout=window,
            stderr=window,
            start_new_session=True,
        )
        os.close(window)
        self._unread = ""
        self._until(PROMPT)
        self.type('eval "$(trainmaster completion bash)"\n')
        self._until(PROMPT)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def completed(self, typed: str, wanted: str) -> str:
        """The line after Tab, once it has what is wanted."""
        self.type(f"{typed}\t")
        return self._until(wanted)

    def listed(self, typed: str) -> list[str]:
        """What is offered after two Tabs."""
        self.type(f"{typed}\t\t")
        self._until("\n")
        return self._until(PROMPT).removesuffix(PROMPT).split()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _until(self, words: str) -> str:
        """What is printed up to these words. What was read beyond them is kept."""
        while words not in self._unread:
            self._unread += os.read(self._master, 65536).decode()
        text, _, self._unread = self._unread.partition(words)
        return text + words


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    bash = Bash(tmp_path)
    yield bash
    bash.close()


def test_bash_completes_commands_options_and_values(bash: Bash) -> None:
    assert bash.completed("trainmaster comp", "letion ")
    assert bash.completed("\x15trainmaster run --fram", "ework ")
    assert bash.completed("ten", "sorflow ")
    assert bash.completed("\x15trainmaster init aitr", "ainingjob ")


def test_bash_offers_all_kinds_to_init(bash: Bash) -> None:
    assert set(bash.listed("trainmaster init ")) >= {"aitrainingjob", "dijob", "dijob-v1alpha1", "mxjob", "nervexjob"}


def test_bash_completes_manifests_of_run_and_files_of_its_program(bash: Bash, tmp_path: Path) -> None:
    (tmp_path / "my-job.yaml").touch()
    (tmp_path / "train.py").touch()

    assert bash.completed("trainmaster run my", "-job.yaml ")
    assert bash.completed("\x15trainmaster run --replicas 2 -- python3 tr", "ain.py ")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_is_one_that_it_can_read(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    script = tmp_path / "script"
    script.write_bytes(subprocess.run([COMMAND, "completion", shell], capture_output=True, check=True).stdout)

    subprocess.run([shell, "-n", script], check=True)
