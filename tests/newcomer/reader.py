"""Somebody with a new account and a fresh clone, who types what a document says."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from testbed.operator import REPOSITORY
from tests.newcomer.document import Command, SavedFile, difference

NEEDED = ("git", "make", "bash", "sh", "grep", "sed", "awk")
COREUTILS = (
    *("basename", "cat", "chmod", "cp", "cut", "date", "dirname", "echo", "env", "head", "id", "ln", "ls", "mkdir"),
    *("mktemp", "mv", "pwd", "readlink", "rm", "rmdir", "sleep", "sort", "tail", "touch", "tr", "true", "uname", "wc"),
)
OPTIONAL = ("kubectl",)
INHERITED = ("PIP_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
"""How packages are fetched here, which the documents cannot know."""

COMMAND_SECONDS = 600  # for `make setup`, which downloads all packages
END_SECONDS = 60
AS_IN_THE_DOCUMENTS = "/home/you"


class Reader:
    """One shell after the other; folder, variables and exit code go on from one to the next."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._environ = {"PATH": str(_tools(home)), "HOME": str(home), "LANG": "C.UTF-8"}
        self._environ |= {name: value for name, value in os.environ.items() if name.startswith(INHERITED)}
        self._environ.setdefault("PIP_CACHE_DIR", str(Path("~/.cache/pip").expanduser()))
        self._folder = home / "trainmaster"
        self._code = 0
        self._running: list[subprocess.Popen[str]] = []
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, self._folder], check=True)

    def follow(self, step: SavedFile | Command) -> None:
        """Do what the document says, and compare."""
        if isinstance(step, SavedFile):
            (self._folder / step.name).write_text(step.text.replace(AS_IN_THE_DOCUMENTS, str(self._home)))
            return
        printed = self._start(step) if step.keeps_running else self._type(step)
        if step.printed:
            assert not (found := difference(step.printed, self._as_in_the_documents(printed))), f"{step.text}: {found}"

    def close(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            _output(process, END_SECONDS)

    def _type(self, step: Command) -> str:
        state = self._home / ".shell-state"
        script = f"(exit {self._code})\n{step.text}\ncode=$?\nexport -p > {state}; pwd >> {state}; exit $code"
        process = self._popen(script)
        printed = _output(process, COMMAND_SECONDS)
        self._take_over(state)
        self._code = process.returncode
        assert self._code == 0 or step.printed, f"{step.text}: exit code {self._code}: {printed}"
        return printed

    def _take_over(self, state: Path) -> None:
        *variables, folder = state.read_text().splitlines()
        words = shlex.split("\n".join(variables))
        self._environ = dict(word.split("=", 1) for word in words if "=" in word)
        self._folder = Path(folder)

    def _start(self, step: Command) -> str:
        """In another terminal, which opens in the home folder. Returns what it printed, as far as expected."""
        process = self._popen(f"cd; exec {step.text}")
        self._running.append(process)
        printed = ""
        assert process.stdout is not None
        while step.printed and difference(step.printed, self._as_in_the_documents(printed)):
            line = process.stdout.readline()
            if not line:
                break
            printed += line
        return printed

    def _popen(self, script: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # to end it with all that it started
        )

    def _as_in_the_documents(self, printed: str) -> str:
        return printed.replace(str(self._home), AS_IN_THE_DOCUMENTS)


def _output(process: subprocess.Popen[str], seconds: float) -> str:
    """All that it prints until it ends; if it takes longer, it is killed with all that it started."""
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def _tools(home: Path) -> Path:
    """A PATH with the tools that a new machine has, and no others: neither pipx nor uv nor packages of Python."""
    folder = home / ".tools"
    folder.mkdir()
    for name in (*NEEDED, *COREUTILS, *OPTIONAL):
        found = shutil.which(name)
        assert found or name in OPTIONAL, f"there is no {name} here"
        if found:
            (folder / name).symlink_to(found)
    (folder / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    return folder
