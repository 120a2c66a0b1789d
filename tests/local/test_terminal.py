"""What a user sees who types `trainmaster run` in a terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.program import PROGRAM, containers_of, environ_of, job, role, script, written

WIDTH = 80
_MOVES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Terminal:
    """A command in a window of its own; ``text`` is all that was drawn in it, one picture after the other."""

    def __init__(self, *args: str, folder: Path, **environ: str) -> None:
        self._master, window = pty.openpty()
        fcntl.ioctl(window, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        self._process = subprocess.Popen(
            [*PROGRAM, *args],
            cwd=folder,
            env=environ_of(folder) | environ,
            stdin=window,
            stdout=window,
            stderr=window,
            start_new_session=True,
        )
        os.close(window)
        self.text = ""

    def until(self, words: str) -> None:
        while words not in self.text:
            self.text += os.read(self._master, 65536).decode()

    def press_ctrl_c(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        while True:
            try:
                self.text += os.read(self._master, 65536).decode()
            except OSError:  # the window is closed
                return self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def conclusion(text: str) -> list[str]:
    """What stays on the screen after the last picture."""
    return [line.rstrip() for line in _MOVES.sub("", text.rpartition("\x1b[?25h")[2]).splitlines()]


def test_the_replicas_are_drawn_and_the_summary_has_the_outcome(terminals: list[Terminal], tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("echo epoch 1; exit 3"), 2, failPolicy="All")))
    terminals.append(terminal := Terminal("run", file, folder=tmp_path))
    code = terminal.end()
    header, *lines = conclusion(terminal.text)

    assert code == 1
    assert re.fullmatch(r"AITrainingJob job  Failed  \d+s  0/2 running, 2 ended", header)
    assert [line.split()[:2] for line in lines if line.startswith("trainer-")] == [
        ["trainer-0", "Failed"],
        ["trainer-1", "Failed"],
    ]
    place = lines.index("the last lines of trainer-1 (exit code 3):")
    assert lines[place + 1] == "  epoch 1"
    assert containers_of(tmp_path) == []


@pytest.mark.parametrize(
    "text", [r"\r 9 of 60\r10 of 60", r" 9 of 60\r10 of 60\r", "10 of 60"], ids=["bar", "bar with an end", "no bar"]
)
def test_a_line_that_has_not_ended_is_drawn(terminals: list[Terminal], tmp_path: Path, text: str) -> None:
    file = written(tmp_path, job(trainer=role(script(f"printf '{text}' >&2; exec sleep 600"))))
    terminals.append(terminal := Terminal("run", file, folder=tmp_path))
    terminal.until("10 of 60")
    terminal.press_ctrl_c()

    assert terminal.end() == 130


def test_ctrl_c_is_answered_on_the_screen(terminals: list[Terminal], tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("echo epoch 1; exec sleep 600"))))
    terminals.append(terminal := Terminal("run", file, folder=tmp_path))
    terminal.until("epoch 1")
    terminal.press_ctrl_c()
    code = terminal.end()

    assert code == 130
    assert "Ctrl-C again kills them at once" in terminal.text
    assert any(line.split()[:2] == ["trainer-0", "Stopped"] for line in conclusion(terminal.text))


@pytest.mark.parametrize(("environ", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_can_be_refused(
    terminals: list[Terminal], tmp_path: Path, environ: dict[str, str], is_coloured: bool
) -> None:
    file = written(tmp_path, job(trainer=role(script("exit"))))
    terminals.append(terminal := Terminal("run", file, folder=tmp_path, **environ))

    assert terminal.end() == 0
    assert bool(re.search(r"\x1b\[3[0-7]m", terminal.text)) == is_coloured
