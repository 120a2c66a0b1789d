"""The program of examples/ps: its processes find each other by DMLC_* alone, learn, and take a lost worker back."""

import io
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from examples.ps import server, wire
from examples.ps.scheduler import Meeting, Refused
from examples.ps.server import Shard, bounds
from examples.ps.setting import Setting
from testbed.operator import COMMAND, REPOSITORY

MANIFEST = "examples/mxjob-digits.yaml"
SIZE = 64 * 64 + 64 + 64 * 10 + 10
STEPS = 600
DEADLINE = 120.0  # seconds for a whole training, also while the machine does other things
SERVERS, WORKERS = 2, 3

Array = NDArray[Any]


class Programs:
    """The job's processes, in the environment that the operator would give them."""

    def __init__(self, port: int) -> None:
        self._started: list[subprocess.Popen[str]] = []
        self.port = port

    def start(self, role: str, **more: str) -> subprocess.Popen[str]:
        env = {
            "PATH": os.environ["PATH"],
            "OMP_NUM_THREADS": "1",
            "DMLC_ROLE": role,
            "DMLC_PS_ROOT_URI": "localhost",
            "DMLC_PS_ROOT_PORT": str(self.port),
            "DMLC_NUM_SERVER": str(SERVERS),
            "DMLC_NUM_WORKER": str(WORKERS),
            **more,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "examples.ps"],
            cwd=REPOSITORY,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            with process:
                process.kill()


@pytest.fixture
def programs() -> Iterator[Programs]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    programs = Programs(port)
    yield programs
    programs.end()


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Exit code and lines of a process that ends by itself."""
    output, _ = process.communicate(timeout=DEADLINE)
    return process.returncode, output.splitlines()


def line_of(process: subprocess.Popen[str], pattern: str) -> str:
    """The next line that looks like this."""
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(pattern, line):
            return line
    raise AssertionError(f"it never said {pattern!r}")


class Puppet:
    """A worker that does what the test says. It speaks by the words of wire.py's first lines, not by its code."""

    def __init__(self, port: int) -> None:
        self._scheduler = self._connect("127.0.0.1", port)
        self._say(self._scheduler, {"role": "worker"})
        greeting, _ = self._hear(self._scheduler)
        self._rank = greeting["rank"]
        self._servers = [self._connect(*address.rsplit(":", 1)) for address in greeting["servers"]]
        self._steps = [-1] * len(self._servers)
        self._shares = [np.zeros(0)] * len(self._servers)
        self._exchange()

    def idle_until(self, step: int) -> None:
        """Push nothing of any weight, and so let the others go on."""
        while min(self._steps) < step:
            self._shares = [np.zeros_like(share) for share in self._shares]
            self._exchange()

    def die(self) -> None:
        for stream in (self._scheduler, *self._servers):
            stream.close()

    def _exchange(self) -> None:
        for stream, step, share in zip(self._servers, self._steps, self._shares, strict=True):
            self._say(stream, {"rank": self._rank, "step": step}, share)
        heard = [self._hear(stream) for stream in self._servers]
        self._steps = [words["step"] for words, _ in heard]
        self._shares = [numbers for _, numbers in heard]

    @staticmethod
    def _connect(host: str, port: int | str) -> Any:
        connection = socket.create_connection((host, int(port)), timeout=DEADLINE)
        with connection:
            return connection.makefile("rwb")

    @staticmethod
    def _say(stream: Any, words: Mapping[str, Any], numbers: Array | None = None) -> None:
        body = json.dumps({**words, "count": numbers.size} if numbers is not None else words).encode()
        stream.write(struct.pack("!I", len(body)) + body)
        stream.write(b"" if numbers is None else numbers.astype("<f4").tobytes())
        stream.flush()

    @staticmethod
    def _hear(stream: Any) -> tuple[Any, Array]:
        (length,) = struct.unpack("!I", stream.read(4))
        words = json.loads(stream.read(length))
        return words, np.frombuffer(stream.read(4 * words.get("count", 0)), "<f4")


def test_three_workers_and_two_servers_learn_to_read_digits(programs: Programs) -> None:
    scheduler = programs.start("scheduler")
    servers = [programs.start("server") for _ in range(SERVERS)]
    workers = [programs.start("worker", DMLC_WORKER_ID=str(rank)) for rank in range(WORKERS)]

    codes, outputs = zip(*map(ended, [scheduler, *servers, *workers]), strict=True)

    assert codes == (0,) * 6
    assert outputs[0][-1] == "all workers are done"
    assert [line for line in outputs[3] if re.fullmatch(r"step 50 loss 0\.\d{3} accuracy 0\.\d{3}", line)]
    reached = re.fullmatch(r"test accuracy (0\.\d{3})", outputs[3][-1])
    assert reached
    assert float(reached[1]) >= 0.95


def test_a_worker_that_was_killed_is_replaced_by_one_that_goes_on_where_the_others_are(programs: Programs) -> None:
    scheduler = programs.start("scheduler")
    servers = [programs.start("server") for _ in range(SERVERS)]
    line_of(scheduler, "waits on 127.0.0.1")
    puppet = Puppet(programs.port)
    workers = [programs.start("worker") for _ in range(WORKERS - 1)]
    for worker in workers:
        line_of(worker, "begins at step 0")
    puppet.idle_until(60)  # and then it holds the others back
    workers[0].kill()
    code, _ = ended(workers[0])
    line_of(scheduler, r"worker \d has left")
    replacement = programs.start("worker")
    begun = line_of(replacement, "begins at step")
    puppet.die()
    last = programs.start("worker")

    codes, outputs = zip(*map(ended, [scheduler, *servers, workers[1], replacement, last]), strict=True)

    assert code == -signal.SIGKILL
    step = re.search(r"begins at step (\d+)", begun)
    assert step
    assert 60 <= int(step[1]) < STEPS
    assert codes == (0,) * 6
    said = [line for output in outputs for line in output if line.startswith("test accuracy")]
    assert len(said) == 1
    assert float(said[0].removeprefix("test accuracy ")) >= 0.95


def test_without_one_of_its_servers_the_job_must_begin_anew(programs: Programs) -> None:
    scheduler = programs.start("scheduler")
    servers = [programs.start("server") for _ in range(SERVERS)]
    for process in servers:
        line_of(process, "listens on 127.0.0.1")
    servers[0].kill()

    code, output = ended(scheduler)

    assert code == 1
    assert re.fullmatch(r"server \d is lost, and its share of the parameters with it: .* begin anew", output[-1])


def test_who_speaks_another_language_is_sent_away_and_the_others_still_meet(programs: Programs) -> None:
    scheduler = programs.start("scheduler")
    line_of(scheduler, "waits on")
    with socket.create_connection(("127.0.0.1", programs.port), timeout=DEADLINE) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = stranger.recv(1)
    servers = [programs.start("server") for _ in range(SERVERS)]

    assert answer == b""
    assert [line_of(process, "server . of 2 listens on") for process in servers]


# -- the scheduler -----------------------------------------------------------------------------------------------


def complete(workers: int = 2) -> Meeting:
    """With its only server, so that nobody has to wait."""
    meeting = Meeting(servers=1, workers=workers)
    assert meeting.join("server", "s", address="h:1") == (0, ["h:1"])
    return meeting


def test_a_worker_gets_the_lowest_number_that_is_free() -> None:
    meeting = complete()
    first, second = (meeting.join("worker", origin)[0] for origin in ("a", "b"))
    meeting.leave("worker", first, "a")
    assert (first, second, meeting.join("worker", "c")[0]) == (0, 1, 0)


def test_a_number_of_somebody_who_is_done_is_not_given_again() -> None:
    meeting = complete()
    meeting.join("worker", "a")
    meeting.finish(0)
    meeting.leave("worker", 0, "a")
    assert meeting.join("worker", "b")[0] == 1


def test_a_worker_with_a_number_takes_the_place_of_its_old_self() -> None:
    meeting = complete()
    assert meeting.join("worker", "old", wanted=1)[0] == 1
    assert meeting.join("worker", "new", wanted=1)[0] == 1
    meeting.leave("worker", 1, "old")  # is missed only now
    assert meeting.join("worker", "other")[0] == 0


@pytest.mark.parametrize(
    ("role", "why"), [("server", "all 1 places for a server"), ("worker", "all 1 places"), ("cook", "nobody knows")]
)
def test_who_is_one_too_many_is_refused(role: str, why: str) -> None:
    meeting = complete(workers=1)
    meeting.join("worker", "a")
    with pytest.raises(Refused, match=why):
        meeting.join(role, "b")


def test_it_is_over_when_every_worker_is_done_and_then_servers_may_go() -> None:
    meeting = complete()
    meeting.finish(0)
    meeting.finish(1)
    meeting.leave("server", 0, "s")
    assert meeting.until_over() == ""


# -- a server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_the_shares_of_all_servers_are_the_whole(servers: int) -> None:
    ends = bounds(servers)
    assert (ends[0], ends[-1], len(ends)) == (0, SIZE, servers + 1)
    assert ends == sorted(set(ends))


def test_a_step_is_made_by_the_mean_of_what_was_pushed_and_has_momentum() -> None:
    shard = Shard(np.zeros(4, np.float32), workers=2)
    other = threading.Thread(target=shard.exchange, args=(1, 0, np.full(4, 3, np.float32)))
    other.start()
    step, vector = shard.exchange(0, 0, np.ones(4, np.float32))
    other.join()
    shard.leave(1)
    _, after = shard.exchange(0, 1, np.full(4, 2, np.float32))

    assert step == 1
    np.testing.assert_allclose(vector, np.full(4, -0.1 * 2), atol=1e-6)
    np.testing.assert_allclose(after, np.full(4, -(0.1 + 0.19) * 2), atol=1e-6)


def test_a_step_that_only_waited_for_the_one_who_left_is_made() -> None:
    shard = Shard(np.zeros(4, np.float32), workers=2)
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(shard.exchange(0, 0, np.ones(4, np.float32))[0]))
    waiting.start()
    shard.leave(1)
    waiting.join(DEADLINE)

    assert answers == [1]


def test_a_worker_that_is_too_slow_is_left_out_until_it_pushes_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "PATIENCE", 0.0)
    shard, gradient = Shard(np.zeros(4, np.float32), workers=2), np.ones(4, np.float32)

    steps = [shard.exchange(rank, step, gradient)[0] for rank, step in ((0, 0), (0, 1), (1, 0), (1, 2), (0, 3))]

    # Without 1; nobody waits for it; its gradient is of the past; without 0, which has not pushed yet; without 1.
    assert steps == [1, 2, 2, 3, 4]
    assert re.findall(r"step (\d) goes on without workers (.+)", capsys.readouterr().out) == [
        ("0", "[1]"),
        ("2", "[0]"),
        ("3", "[1]"),
    ]


@pytest.mark.parametrize(
    ("rank", "gradient"),
    [
        pytest.param(2, np.ones(4), id="rank-of-nobody"),
        pytest.param(-1, np.ones(4), id="negative-rank"),
        pytest.param(0, np.ones(3), id="another-share"),
        pytest.param(0, np.full(4, np.nan), id="not-a-number"),
    ],
)
def test_what_is_not_a_gradient_changes_nothing(rank: int, gradient: Array) -> None:
    shard = Shard(np.zeros(4, np.float32), workers=2)
    with pytest.raises(ValueError, match="not a gradient of ours"):
        shard.exchange(rank, 0, gradient)
    assert shard.step == 0


# -- words -------------------------------------------------------------------------------------------------------


def message(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        pytest.param(b"", OSError, "closed", id="nothing"),
        pytest.param(message(b"{}")[:-1], OSError, "closed", id="cut-off"),
        pytest.param(message(b'{"count":2}') + b"\0" * 7, OSError, "closed", id="numbers-cut-off"),
        pytest.param(struct.pack("!I", 2**32 - 1), ValueError, "more than", id="too-many-words"),
        pytest.param(message(b'{"count":1000001}'), ValueError, "not a message", id="too-many-numbers"),
        pytest.param(message(b'{"count":-1}'), ValueError, "not a message", id="less-than-nothing"),
        pytest.param(message(b"[1]"), ValueError, "not a message", id="no-object"),
        pytest.param(message(b"{"), ValueError, "Expecting", id="no-json"),
    ],
)
def test_a_message_that_is_none_is_refused(data: bytes, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        wire.receive(io.BytesIO(data))


WHOLE = {
    "DMLC_ROLE": "worker",
    "DMLC_PS_ROOT_URI": "job-scheduler-0",
    "DMLC_PS_ROOT_PORT": "9091",
    "DMLC_NUM_SERVER": "2",
    "DMLC_NUM_WORKER": "3",
}


def test_the_variables_are_those_of_ps_lite() -> None:
    given = {**WHOLE, "DMLC_NODE_HOST": "10.0.0.7", "DMLC_WORKER_ID": "0"}
    assert Setting.of(WHOLE) == Setting("worker", ("job-scheduler-0", 9091), 2, 3)
    assert Setting.of(given) == Setting("worker", ("job-scheduler-0", 9091), 2, 3, "10.0.0.7", 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DMLC_ROLE", "cook"),
        ("DMLC_ROLE", ""),
        ("DMLC_PS_ROOT_URI", ""),
        ("DMLC_PS_ROOT_PORT", "x"),
        ("DMLC_PS_ROOT_PORT", "0"),
        ("DMLC_NUM_SERVER", "0"),
        ("DMLC_NUM_WORKER", "-1"),
        ("DMLC_WORKER_ID", "one"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(SystemExit, match=name):
        Setting.of({**WHOLE, name: value})


@pytest.mark.parametrize(
    ("resolved", "bound"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", id="local"),
        pytest.param("10.0.0.7", "", id="cluster"),
        pytest.param("", "", id="cluster-before-the-name-is-known"),
    ],
)
def test_the_scheduler_listens_only_on_loopback_when_its_name_is_there(
    monkeypatch: pytest.MonkeyPatch, resolved: str, bound: str
) -> None:
    def getaddrinfo(host: str, *_: object) -> list[tuple[object, ...]]:
        if not resolved:
            raise socket.gaierror(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (resolved, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert Setting.of(WHOLE).root_address() == (bound, 9091)


# -- the job -----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`trainmaster run` of the manifest, by a user whose temporary files are in a folder of the test."""
    env = {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [str(COMMAND), "run", MANIFEST]
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        yield process
        process.terminate()


def process_of(folder: Path, **env: str) -> int:
    """The program that has this environment and belongs to a run in this folder."""
    wanted = {f"{name}={value}".encode() for name, value in {"TMPDIR": str(folder), **env}.items()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_it = wanted <= set((entry / "environ").read_bytes().split(b"\0"))
            is_program = b"examples.ps" in (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it went, or is somebody else's
        if is_it and is_program:
            return int(entry.name)
    raise AssertionError(f"there is no process with {env}")


def good_end(run: subprocess.Popen[str]) -> str:
    """What was said up to the good end of the job."""
    code, lines = ended(run)
    said = "\n".join(lines)
    reached = re.search(r"^worker-0 +\| test accuracy (0\.\d{3})$", said, re.MULTILINE)
    assert code == 0, said
    assert reached
    assert float(reached[1]) >= 0.95
    return said


def test_trainmaster_runs_the_manifest_to_its_good_end(run: subprocess.Popen[str]) -> None:
    said = good_end(run)

    assert "has left" not in said


def test_a_worker_that_is_killed_is_started_again_alone(run: subprocess.Popen[str], tmp_path: Path) -> None:
    line_of(run, r"^worker-1 +\| step 50 ")
    os.kill(process_of(tmp_path, DMLC_ROLE="worker", DMLC_WORKER_ID="1"), signal.SIGKILL)
    said = good_end(run)

    assert re.findall(r"scheduler-0 +\| (worker \d has (?:left|come))", said) == [
        "worker 1 has left",
        "worker 1 has come",
    ]
