"""What a user sees who types `trainmaster run` in a terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.cluster import AITJ, client_of, create, until_ended
from tests.local.conftest import Start, Up
from tests.local.program import PROGRAM, containers_of, environ_of, job, role, script, written

WIDTH = 80
_MOVES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Terminal:
    """A command in a window of its own; ``text`` is all that was drawn in it, one picture after the other."""

    def __init__(self, *args: str, folder: Path, **environ: str) -> None:
        self._master, window = pty.openpty()
        self.resize(WIDTH)
        self._process = subprocess.Popen(
            [*PROGRAM, *args],
            cwd=folder,
            env=environ_of(folder) | environ,
            stdin=window,
            stdout=window,
            stderr=window,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # as in a shell, for the keys
        )
        os.close(window)
        self.text = ""

    def until(self, words: str, start: int = 0) -> None:
        while words not in self.text[start:]:
            self.text += os.read(self._master, 65536).decode()

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def press_ctrl_c(self) -> None:
        self.press("\x03")

    def resize(self, width: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))

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
    """What stays on the screen: all that is not on the alternate one."""
    before, _, rest = text.partition("\x1b[?1049h")
    return [line.rstrip() for line in _MOVES.sub("", before + rest.rpartition("\x1b[?1049l")[2]).splitlines()]


def test_the_replicas_are_drawn_and_the_summary_ends_with_the_verdict(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    file = written(tmp_path, job(trainer=role(script("echo epoch 1; exit 3"), 2, failPolicy="All")))
    terminals.append(terminal := Terminal("run", file, folder=tmp_path))
    code = terminal.end()
    lines = conclusion(terminal.text)

    assert code == 1
    # Either of the two is the first failure, whose lines come first.
    first, place = sorted(lines.index(f"the last lines of trainer-{i} (exit code 3):") for i in (0, 1))
    assert [line.split()[:2] for line in lines[:first] if line.startswith("trainer-")] == [
        ["trainer-0", "Failed"],
        ["trainer-1", "Failed"],
    ]
    assert lines[place + 1] == "  epoch 1"
    assert re.fullmatch(r"AITrainingJob job  Failed  \d+s  0/2 running, 2 ended", lines[place + 2])
    assert "failed" in " ".join(lines[place + 3 : -1])
    assert lines[-1].startswith(f"logs: {tmp_path}")
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
    lines = conclusion(terminal.text)
    assert any(line.split()[:2] == ["trainer-0", "Stopped"] for line in lines)
    assert lines[-2] == "stopped by Ctrl-C"


def test_a_timeout_is_the_verdict(terminals: list[Terminal], tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("exec sleep 600"))))
    terminals.append(terminal := Terminal("run", file, "--timeout", "3s", folder=tmp_path))

    assert terminal.end() == 124
    assert "stopped, because --timeout was reached after 3 s" in conclusion(terminal.text)


def test_keys_show_the_log_of_a_replica(terminals: list[Terminal], tmp_path: Path) -> None:
    says = script("echo first of $TRAININGJOB_REPLICA_INDEX; echo ready; exec sleep 600")
    terminals.append(terminal := Terminal("run", written(tmp_path, job(trainer=role(says, 2))), folder=tmp_path))
    terminal.until("2/2 running")
    for key, words in (("\x1b[B", "first of 0"), ("j", "first of 1")):
        terminal.press(key)
        terminal.until(words)  # not the last line
    terminal.press_ctrl_c()

    assert terminal.end() == 130
    assert "the last 2 of 2 lines" in terminal.text


def test_a_new_size_of_the_window_leaves_nothing_behind(terminals: list[Terminal], tmp_path: Path) -> None:
    file = written(tmp_path, job(trainer=role(script("echo epoch 1; exec sleep 600"), 5)))
    terminals.append(terminal := Terminal("run", file, folder=tmp_path))
    terminal.until("5/5 running")
    for width in (40, 120):
        terminal.resize(width)
        terminal.text += "\n"
        drawn = len(terminal.text)
        terminal.until("trainer-4", drawn)
    terminal.press_ctrl_c()
    terminal.end()

    assert terminal.text.count("\x1b[?1049h") == 1
    assert [line.split()[0] for line in conclusion(terminal.text)[:6]] == [
        "replica",
        *(f"trainer-{i}" for i in range(5)),
    ]


def test_why_a_pod_does_not_start_is_drawn(terminals: list[Terminal], tmp_path: Path) -> None:
    body = role(script("exit"))
    items = {"name": "settings", "items": [{"key": "nope", "path": "nope"}]}
    body["template"]["spec"]["volumes"] = [{"name": "data", "configMap": items}]
    body["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    terminals.append(terminal := Terminal("run", written(tmp_path, settings, job(trainer=body)), folder=tmp_path))
    terminal.until("FailedMount")
    terminal.press_ctrl_c()

    assert terminal.end() == 130
    assert "references non-existent config" in " ".join(conclusion(terminal.text))


@pytest.mark.parametrize(("environ", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_can_be_refused(
    terminals: list[Terminal], tmp_path: Path, environ: dict[str, str], is_coloured: bool
) -> None:
    file = written(tmp_path, job(trainer=role(script("exit"))))
    terminals.append(terminal := Terminal("run", file, folder=tmp_path, **environ))

    assert terminal.end() == 0
    assert bool(re.search(r"\x1b\[3[0-7]m", terminal.text)) == is_coloured


HOSTILE = r"\033]0;title\007\033]52;c;cm0=\007\033[2J\302\2332J\342\200\256"
"""Title, clipboard, two ways to clear the screen, and text from right to left, as printf of a shell takes them."""


async def test_logs_reach_a_terminal_with_colours_and_without_other_sequences(
    up: Up, state: Path, terminals: list[Terminal], start: Start, tmp_path: Path
) -> None:
    up()
    async with client_of(state) as cluster:
        await create(cluster, job("odd", worker=role(script(rf"printf '0%%\ra{HOSTILE}\033[31mred\377\n'"))))
        await until_ended(cluster, AITJ, "odd")
    terminals.append(Terminal("logs", "odd", "--state", str(state), folder=tmp_path))
    assert terminals[-1].end() == 0
    assert terminals[-1].text == "worker-0 | a\x1b[31mred\ufffd\x1b[0m\r\n"

    assert start("logs", "odd", "--state", str(state)).end() == (0, "worker-0 | ared\ufffd\n", "")
    raw = "0%\ra\x1b]0;title\x07\x1b]52;c;cm0=\x07\x1b[2J\x9b2J\u202e\x1b[31mred"
    bytes_ = subprocess.check_output(  # noqa: ASYNC221  nothing else runs in this loop
        [*PROGRAM, "logs", "odd", "--raw", "--state", state], env=environ_of(tmp_path), cwd=tmp_path
    )
    assert bytes_ == f"worker-0 | {raw}".encode() + b"\xff\n"


def test_the_view_of_a_run_has_no_sequences_of_its_programs(terminals: list[Terminal], tmp_path: Path) -> None:
    file = written(tmp_path, job(worker=role(script(rf"printf 'a{HOSTILE}b\n'; exit 3"))))
    terminals.append(Terminal("run", file, folder=tmp_path))
    assert terminals[-1].end() == 1
    text = terminals[-1].text
    assert [word for word in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "cm0") if word in text] == []
    assert "exited with code 3: ab" in " ".join(conclusion(text))
