"""The shim alone: one program, its output, its end and everything that it started."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trainmaster.local.node.isolation import shim_command
from trainmaster.local.node.log import LogOptions, read_log
from trainmaster.local.node.process import CONTAINER, POD_UID, marked
from trainmaster.local.node.shim import Log, _last_lines

Object = dict[str, Any]
PATIENCE = 20.0

linux = pytest.mark.skipif(sys.platform != "linux", reason="namespaces and /proc are Linux")
pytestmark = linux


class Shim:
    """A spec, the shim that runs it, and what it left."""

    def __init__(self, folder: Path, argv: list[str], **fields: Any) -> None:
        self.folder = folder / "0"
        self.folder.mkdir()
        (self.folder / "message").touch()
        self.uid = f"uid-{folder.name}"
        marks = {POD_UID: self.uid, CONTAINER: "main"}
        spec = {
            "argv": argv,
            "env": {"PATH": os.environ["PATH"], **marks},
            "cwd": str(folder),
            "namespaces": "",
            "hostname": "pod-a",
            "staging": str(self.folder / "staging"),
            "mounts": [],
            "messageFile": str(self.folder / "message"),
        }
        (self.folder / "spec.json").write_text(json.dumps({**spec, **fields}))
        self.process = subprocess.Popen(
            [*shim_command(), "run", str(self.folder / "spec.json")],
            stdout=subprocess.PIPE,
            env=marks,
            start_new_session=True,
        )

    def started(self) -> Object:
        assert self.process.stdout is not None
        said: Object = json.loads(self.process.stdout.readline())
        return said

    def ended(self) -> Object:
        self.process.wait(PATIENCE)
        found: Object = json.loads((self.folder / "exit.json").read_text())
        return found

    def text(self) -> str:
        """What the program wrote, without the times."""
        file = self.folder / "log"
        lines = [line.split(" ", 3) for line in file.read_text().splitlines()] if file.exists() else []
        return "".join(text if tag == "P" else text + "\n" for _, _, tag, text in lines)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.text():
            assert time.monotonic() < deadline, f"{text!r} is not in {self.text()!r}"
            time.sleep(0.01)

    def wait_for_unfinished(self, text: str) -> None:
        file = self.folder / "unfinished"
        deadline = time.monotonic() + PATIENCE
        while not (file.exists() and file.read_text().endswith(text)):
            assert time.monotonic() < deadline, f"{text!r} is not in {file}"
            time.sleep(0.01)

    def send(self, number: int) -> None:
        self.process.send_signal(number)


@contextmanager
def shim(folder: Path, *argv: str, **fields: Any) -> Iterator[Shim]:
    found = Shim(folder, list(argv), **fields)
    try:
        yield found
    finally:
        found.send(signal.SIGUSR1)
        found.process.wait(PATIENCE)
        assert found.process.stdout is not None
        found.process.stdout.close()
        assert marked(found.uid) == []


def sh(folder: Path, script: str, **fields: Any) -> Any:
    return shim(folder, "sh", "-c", script, **fields)


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 0", 0, "Completed"),
        ("exit 3", 3, "Error"),
        ("kill -9 $$", 137, "Error"),
        ("kill -15 $$", 143, "Error"),
    ],
)
def test_end_is_recorded(tmp_path: Path, script: str, code: int, reason: str) -> None:
    with sh(tmp_path, script) as shim:
        ended = shim.ended()

    assert (ended["exitCode"], ended["reason"]) == (code, reason)
    assert ended["startedAt"] <= ended["finishedAt"]


@pytest.mark.parametrize(
    ("argv", "fields", "message"),
    [
        (
            ["no-such-program"],
            {"env": {"PATH": "/bin"}},
            'exec: "no-such-program": executable file not found in $PATH',
        ),
        (["/no/such"], {}, 'exec: "/no/such": no such file or directory on this machine'),
        (["/proc/version"], {}, 'exec: "/proc/version": Permission denied'),
        (["true"], {"cwd": "/no/such"}, 'cannot start in workingDir "/no/such": No such file or directory'),
    ],
)
def test_start_error_has_a_reason(tmp_path: Path, argv: list[str], fields: Object, message: str) -> None:
    with shim(tmp_path, *argv, **fields) as found:
        said, ended = found.started(), found.ended()

    assert said == {"error": message}
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (128, "StartError", message)


def test_output_is_logged_line_by_line_with_times(tmp_path: Path) -> None:
    with sh(tmp_path, "echo out; echo err >&2; printf unfinished") as shim:
        shim.ended()

    lines = [line.split(" ", 3) for line in (shim.folder / "log").read_text().splitlines()]
    assert [line[1:] for line in lines] == [
        ["stdout", "F", "out"],
        ["stdout", "F", "err"],
        ["stdout", "P", "unfinished"],
    ]
    assert all(len(line[0]) == len("2026-11-15T12:00:00.000000000Z") for line in lines)


def test_stdout_and_stderr_are_logged_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "for step in range(20_000):\n"
        "    os.write(1 + step % 2, b'%d a\\n%d b\\n%d c\\n' % (step, step, step))\n"
    )
    with shim(tmp_path, sys.executable, "-c", script) as found:
        found.ended()

    assert found.text() == "".join(f"{step} {part}\n" for step in range(20_000) for part in "abc")


@pytest.mark.parametrize("length", [0, 1, 16383, 16384, 16385, 40000, 100000])
def test_long_lines_are_cut_and_lose_nothing(tmp_path: Path, length: int) -> None:
    with shim(tmp_path, sys.executable, "-c", f"print('x' * {length}); print('next')") as found:
        found.ended()

    lines = [line.split(" ", 3) for line in (found.folder / "log").read_text().splitlines()]
    parts = lines[:-1]
    assert "".join(part[3] for part in parts) == "x" * length
    assert all(len(part[3]) <= 16384 for part in parts)
    assert [part[2] for part in parts] == ["P"] * (len(parts) - 1) + ["F"]


def test_unfinished_line_can_be_read_while_the_program_runs(tmp_path: Path) -> None:
    with sh(tmp_path, r"printf '\r10%%\r20%%'; exec sleep 1000") as shim:
        shim.wait_for_unfinished("20%")
        written = (shim.folder / "log").read_bytes()
        stored = (shim.folder / "unfinished").read_bytes()

    assert written == b"", "the line is not stored before its end, as by a container runtime"
    assert stored.split(b" ", 1)[1] == b"stdout P \r20%"


def test_log_of_a_bar_has_what_the_program_wrote(tmp_path: Path) -> None:
    bar = "".join(f"\r{number:5d} of 9000" for number in range(9000))
    script = r"print(*(f'\r{number:5d} of 9000' for number in range(9000)), sep=''); print('\rnext', end='')"
    with shim(tmp_path, sys.executable, "-c", script) as found:
        found.ended()

    async def read() -> bytes:
        return b"".join([piece async for piece in read_log(found.folder / "log", lambda: False, LogOptions())])

    assert asyncio.run(read()).decode() == f"{bar}\n\rnext"


@pytest.mark.parametrize(
    ("pieces", "unfinished"),
    [
        pytest.param([b"one\ntw"], b"tw", id="after a line"),
        pytest.param([b"tw", b"o"], b"two", id="in parts"),
        pytest.param([b"\r10%", b"\r20%"], b"\r20%", id="bar with the carriage return before each state"),
        pytest.param([b"10%\r", b"20%\r"], b"\r20%\r", id="bar with the carriage return after each state"),
        pytest.param([b"x" * 20000], b"x" * 3616, id="line that was stored in part"),
    ],
)
def test_newest_state_of_an_unfinished_line_is_kept(tmp_path: Path, pieces: list[bytes], unfinished: bytes) -> None:
    log = Log(str(tmp_path / "log"))
    for piece in pieces:
        log.write(piece)

    assert log.show(100.0) is None
    assert (tmp_path / "unfinished").read_bytes().split(b" ", 3)[1:] == [b"stdout", b"P", unfinished]


def test_line_that_ended_is_not_kept_as_an_unfinished_one(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    log.write(b"one")
    log.write(b" and two\n")

    assert log.show(100.0) is None
    assert not (tmp_path / "unfinished").exists()


def test_unfinished_line_is_kept_ten_times_a_second_at_most(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"))
    log.write(b"\r1")
    log.show(100.0)
    log.write(b"\r2")

    assert log.show(100.06) == pytest.approx(0.04)
    assert (tmp_path / "unfinished").read_bytes().endswith(b"\r1")
    assert log.show(100.1) is None
    assert (tmp_path / "unfinished").read_bytes().endswith(b"\r2")


def test_log_that_is_read_waits_for_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.local.node.shim.LOG_LIMIT", 100)
    log = Log(str(tmp_path / "log"), is_consumed=True)
    for number in range(9):
        log.write(f"{number} {'x' * 50}\n".encode())
        if log.is_full:
            break

    files = [tmp_path / name for name in ("log.2", "log.1", "log")]
    assert [line.split()[3] for file in files for line in file.read_text().splitlines()] == ["0", "1", "2", "3"]
    files[0].unlink()
    assert not log.is_full
    log.write(b"next\n")
    assert files[2].read_text().endswith("next\n")
    assert files[0].exists()


def test_log_is_rotated(tmp_path: Path) -> None:
    script = "import sys\nfor i in range(450_000): sys.stdout.write(f'{i:06d} ' + 'x' * 50 + chr(10))"
    with shim(tmp_path, sys.executable, "-c", script) as found:
        found.ended()

    sizes = [path.stat().st_size for path in sorted(found.folder.glob("log*"))]
    assert len(sizes) == 5
    assert all(size <= 10 * 1024 * 1024 for size in sizes)
    assert (found.folder / "log").read_text().splitlines()[-1].split(" ", 4)[3] == "449999"


def test_a_file_begins_with_the_number_of_lines_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.local.node.shim.LOG_LIMIT", 100)
    monkeypatch.setattr("trainmaster.local.node.shim.LOG_FILES", 3)
    log = Log(str(tmp_path / "log"))
    for number in range(5):
        log.write(f"{number} one {'x' * 50}\n{number} two\n".encode())

    assert {path.name: path.read_text().split("\n")[0].split()[1:] for path in tmp_path.iterdir()} == {
        "log.2": ["4"],
        "log.1": ["6"],
        "log": ["8"],
    }


def test_sigterm_reaches_the_children_of_a_shell(tmp_path: Path) -> None:
    with sh(tmp_path, "sleep 1000; echo not reached; sleep 1000") as shim:
        shim.started()
        shim.send(signal.SIGTERM)
        ended = shim.ended()

    assert ended["exitCode"] == 143


def test_program_that_handles_sigterm_has_its_own_exit_code(tmp_path: Path) -> None:
    with sh(tmp_path, "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done") as shim:
        shim.wait_for("up")
        shim.send(signal.SIGTERM)
        ended = shim.ended()

    assert ended["exitCode"] == 7
    assert {"up", "bye"} <= set(shim.text().splitlines())


def test_kill_ends_the_whole_tree_and_processes_in_other_sessions(tmp_path: Path) -> None:
    script = "trap '' TERM; setsid setsid sleep 1000 & (trap '' TERM; sleep 1000) & echo up; wait; sleep 1000"
    with sh(tmp_path, script) as shim:
        shim.wait_for("up")
        shim.send(signal.SIGTERM)
        shim.send(signal.SIGUSR1)
        ended = shim.ended()

        assert ended["exitCode"] == 137
        assert marked(shim.uid) == []


def test_descendants_end_with_the_program(tmp_path: Path) -> None:
    with sh(tmp_path, "setsid sleep 1000 & exit 4") as shim:
        ended = shim.ended()

        assert ended["exitCode"] == 4
        assert marked(shim.uid) == []


def test_program_is_killed_with_its_shim(tmp_path: Path) -> None:
    with shim(tmp_path, "sleep", "1000") as found:
        pid = found.started()["pid"]
        pidfd = os.pidfd_open(pid)
        found.send(signal.SIGKILL)
        found.process.wait(PATIENCE)

        assert select.select([pidfd], [], [], PATIENCE)[0]
        os.close(pidfd)


def test_memory_limit_is_kept(tmp_path: Path) -> None:
    script = "import time; x = b'x' * 200_000_000; time.sleep(1000)"
    with shim(tmp_path, sys.executable, "-c", script, memory=100_000_000) as found:
        ended = found.ended()

    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_memory_of_children_counts(tmp_path: Path) -> None:
    script = f"{sys.executable} -c 'import time; x = b\"x\" * 200_000_000; time.sleep(1000)' & wait"
    with sh(tmp_path, script, memory=100_000_000) as shim:
        assert shim.ended()["reason"] == "OOMKilled"


@pytest.mark.parametrize(
    ("script", "policy", "message"),
    [
        ("printf why > message; exit 1", "File", "why"),
        ("echo said; exit 1", "File", ""),
        ("echo said; exit 1", "FallbackToLogsOnError", "said"),
        (r"printf '\r1 of 2\r2 of 2\nsaid'; exit 1", "FallbackToLogsOnError", "\r1 of 2\r2 of 2\nsaid"),
        ("echo said; exit 0", "FallbackToLogsOnError", ""),
        ("printf why > message; echo said; exit 1", "FallbackToLogsOnError", "why"),
    ],
)
def test_termination_message(tmp_path: Path, script: str, policy: str, message: str) -> None:
    file = tmp_path / "message"
    with sh(tmp_path, script, messagePolicy=policy, messageFile=str(file)) as shim:
        assert shim.ended()["message"] == message


# --- namespaces --------------------------------------------------------------------------------


@pytest.fixture(params=["mount", "user"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both ways to a mount namespace; the first one only root has."""
    if request.param == "mount" and os.geteuid() != 0:
        pytest.skip("only root makes a mount namespace without a user namespace")
    mode: str = request.param
    return mode


def test_probe_finds_namespaces() -> None:
    said = subprocess.run([*shim_command(), "probe"], capture_output=True, check=True).stdout

    assert json.loads(said)["mode"] == ("mount" if os.geteuid() == 0 else "user")


@pytest.mark.parametrize(
    "target", ["/data", "/data/deep/er", "/etc/app", "/dev/place", "/var/lib/x/y", "/tmp/{name}/z"]
)
def test_mount_path_is_real_and_nothing_is_left_on_the_machine(tmp_path: Path, mode: str, target: str) -> None:
    target = target.format(name=tmp_path.name)
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "in").write_text("hello")
    mounts = [{"source": str(volume), "target": target}]
    with sh(tmp_path, f"cat {target}/in && echo back > {target}/out", namespaces=mode, mounts=mounts) as shim:
        ended = shim.ended()

    assert (ended["exitCode"], shim.text()) == (0, "hello"), shim.text()
    assert (volume / "out").read_text() == "back\n"
    if not target.startswith("/tmp"):
        assert not Path(target).exists()


def test_read_only_mount_refuses_writes(tmp_path: Path, mode: str) -> None:
    (tmp_path / "volume").mkdir()
    mounts = [{"source": str(tmp_path / "volume"), "target": "/data", "readOnly": True}]
    with sh(tmp_path, "touch /data/x 2>/dev/null || exit 9", namespaces=mode, mounts=mounts) as shim:
        assert shim.ended()["exitCode"] == 9


def test_mounts_inside_each_other(tmp_path: Path, mode: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    mounts = [
        {"source": str(tmp_path / "b"), "target": "/data/inner"},
        {"source": str(tmp_path / "a"), "target": "/data"},
    ]
    with sh(tmp_path, "cat /data/a /data/inner/b", namespaces=mode, mounts=mounts) as shim:
        ended = shim.ended()

    assert (ended["exitCode"], shim.text()) == (0, "ab"), ended


def test_files_are_mounted_over_files_and_the_machine_keeps_its_own(tmp_path: Path, mode: str) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 some-name\n")
    message = tmp_path / "message"
    message.touch()
    mounts = [
        {"source": str(hosts), "target": "/etc/hosts"},
        {"source": str(message), "target": "/dev/termination-log"},
    ]
    script = "getent hosts some-name; hostname; printf why > /dev/termination-log; echo x > /dev/null; id -u"
    with sh(tmp_path, script, namespaces=mode, mounts=mounts, messageFile=str(message)) as shim:
        ended = shim.ended()

    assert shim.text().split() == ["127.0.0.1", "some-name", "pod-a", str(os.getuid())]
    assert ended["message"] == "why"
    assert "some-name" not in Path("/etc/hosts").read_text()


def test_impossible_mount_has_a_message(tmp_path: Path, mode: str) -> None:
    mounts = [{"source": str(tmp_path / "nothing"), "target": "/data"}]
    with sh(tmp_path, "true", namespaces=mode, mounts=mounts) as shim:
        ended = shim.ended()

    assert ended["exitCode"] == 128
    assert ended["message"].startswith(f"cannot mount {tmp_path}/nothing at /data: ")


def test_command_is_run_inside_of_a_container(tmp_path: Path, mode: str) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "x").write_text("inside")
    mounts = [{"source": str(tmp_path / "volume"), "target": "/data"}]
    with sh(tmp_path, "sleep 1000", namespaces=mode, mounts=mounts) as shim:
        spec = {
            "pid": shim.started()["pid"],
            "argv": ["sh", "-c", "cat /data/x; pwd; hostname"],
            "env": {"PATH": os.environ["PATH"]},
            "cwd": "/data",
        }
        (tmp_path / "exec.json").write_text(json.dumps(spec))
        done = subprocess.run([*shim_command(), "exec", str(tmp_path / "exec.json")], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("inside/data\npod-a\n", "")


NOTHING = "0000000000000000"
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to drop")


@pytest.mark.parametrize(
    ("limits", "rights"),
    [
        pytest.param({"noNewPrivileges": True, "noCapabilities": False}, {"NoNewPrivs": "1"}, id="no new privileges"),
        pytest.param(
            {"noNewPrivileges": True, "noCapabilities": True},
            {"CapPrm": NOTHING, "CapEff": NOTHING, "CapBnd": NOTHING, "NoNewPrivs": "1"},
            id="no capabilities",
            marks=ONLY_ROOT,
        ),
    ],
)
def test_program_and_commands_inside_have_given_up_their_rights(
    tmp_path: Path, mode: str, limits: dict[str, bool], rights: dict[str, str]
) -> None:
    show = ["cat", "/proc/self/status"]
    script = "cat /proc/self/status; echo shown; exec sleep 1000"
    with sh(tmp_path, script, namespaces=mode, mounts=[], limits=limits) as shim:
        pid = shim.started()["pid"]
        shim.wait_for("shown")
        spec = {"pid": pid, "argv": show, "env": {"PATH": os.environ["PATH"]}, "cwd": "/", "limits": limits}
        (tmp_path / "exec.json").write_text(json.dumps(spec))
        done = subprocess.run([*shim_command(), "exec", str(tmp_path / "exec.json")], capture_output=True, text=True)

    for text in (shim.text(), done.stdout):
        status = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert {name: status[name] for name in rights} == rights


def test_lines_are_given_up_for_the_record_of_the_end(tmp_path: Path) -> None:
    """On a full disk."""
    for name in ("log.1", "log.2"):
        (tmp_path / name).write_text("old")
    log = Log(str(tmp_path / "log"))
    log.write(b"new\n")

    log.drop()

    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {"log": 0}


def test_the_last_lines_of_a_log_that_was_just_begun_anew_are_in_the_file_before_it(tmp_path: Path) -> None:
    (tmp_path / "log.1").write_bytes(b"t stdout F one\nt stdout F two\n")
    (tmp_path / "log").write_bytes(b"t stderr P three\n")

    assert _last_lines(str(tmp_path / "log")) == b"one\ntwo\nthree"
