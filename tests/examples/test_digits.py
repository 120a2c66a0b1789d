"""The programs of examples/digits: they learn, they survive each other's death, and they run as their manifest says."""

import importlib
import io
import math
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from testbed.operator import COMMAND, REPOSITORY

MANIFEST = "examples/aitrainingjob-digits.yaml"
MODULES = ("network", "wire", "server", "trainer")
SIZE = 64 * 64 + 64 + 64 * 10 + 10
STEPS = 600
DEADLINE = 30.0  # seconds for a whole training

Array = NDArray[Any]


def accuracy_of(parameters: Array) -> float:
    """Of a network of 64, 64 and 10 units on every fifth image; nothing here is the example's own code."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    images, labels = load_digits(return_X_y=True)
    w1, b1, w2, b2 = np.split(parameters.astype(float), np.cumsum([64 * 64, 64, 64 * 10]))
    hidden = (images[::5] / 16) @ w1.reshape(64, 64) + b1
    scores = hidden.clip(min=0) @ w2.reshape(64, 10) + b2
    return float(np.mean(scores.argmax(axis=1) == labels[::5]))


def saved_in(folder: Path) -> dict[str, Array]:
    with np.load(folder / "checkpoint.npz") as file:
        return dict(file)


class Programs:
    """The job's processes, in the environment that the operator would give them."""

    def __init__(self, checkpoints: Path) -> None:
        self._started: list[subprocess.Popen[str]] = []
        self._checkpoints = checkpoints
        self.port = 0  # of the server that was started last, and of the next; 0: any free one

    def server(self) -> tuple[subprocess.Popen[str], str]:
        """A server that listens, and its first line."""
        process = self.start_server()
        assert process.stdout is not None
        line = process.stdout.readline()
        listens = re.search(r"listens on 127\.0\.0\.1:(\d+)", line)
        assert listens, line
        self.port = int(listens[1])
        return process, line

    def start_server(self) -> subprocess.Popen[str]:
        return self._start("server", {"CHECKPOINT_DIR": str(self._checkpoints)})

    def trainer(self, rank: int) -> subprocess.Popen[str]:
        return self._start("trainer", {"TRAININGJOB_REPLICA_INDEX": str(rank)})

    def _start(self, program: str, env: Mapping[str, str]) -> subprocess.Popen[str]:
        shared = {
            "PATH": os.environ["PATH"],
            "OMP_NUM_THREADS": "1",
            "TRAININGJOB_SERVICE": "localhost",
            "TRAININGJOB_PORTS": str(self.port),
            "PS_HOSTS": f"localhost:{self.port}",
            "TRAINER_INSTANCES_NUM": "3",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", f"examples.digits.{program}"],
            cwd=REPOSITORY,
            env={**shared, **env},
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


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Exit code and lines of a process that ends by itself."""
    output, _ = process.communicate(timeout=DEADLINE)
    return process.returncode, output.splitlines()


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def programs(checkpoints: Path) -> Iterator[Programs]:
    programs = Programs(checkpoints)
    yield programs
    programs.end()


@pytest.fixture
def module() -> dict[str, ModuleType]:
    """The example's modules."""
    return {name: importlib.import_module(f"examples.digits.{name}") for name in MODULES}


class Puppet:
    """A trainer that does what the test says. It speaks by the words of wire.py's first lines, not by its code."""

    def __init__(self, port: int, rank: int) -> None:
        self._rank = rank
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        self._stream = self._connection.makefile("rwb")

    def exchange(self, step: int, numbers: Array) -> tuple[int, Array]:
        self._stream.write(struct.pack("!iiI", self._rank, step, numbers.size) + numbers.astype("<f4").tobytes())
        self._stream.flush()
        _, present, count = struct.unpack("!iiI", self._stream.read(12))
        return present, np.frombuffer(self._stream.read(4 * count), "<f4")

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


def test_three_trainers_and_a_server_learn_to_read_digits(programs: Programs, checkpoints: Path) -> None:
    programs.server()
    trainers = [programs.trainer(rank) for rank in range(3)]

    codes, outputs = zip(*map(ended, trainers), strict=True)

    saved = saved_in(checkpoints)
    reached = accuracy_of(saved["parameters"])
    assert codes == (0, 0, 0)
    assert saved["step"] == STEPS
    assert reached >= 0.95
    assert outputs[0][-1] == f"test accuracy {reached:.3f}"
    assert [line for line in outputs[0] if re.fullmatch(r"step 50 loss 0\.\d{3} accuracy 0\.\d{3}", line)]
    assert [path.name for path in checkpoints.iterdir()] == ["checkpoint.npz"]


def test_a_server_that_is_killed_goes_on_from_its_checkpoint_and_the_trainers_find_it_again(
    programs: Programs, checkpoints: Path
) -> None:
    server, begun = programs.server()
    trainers = [programs.trainer(rank) for rank in (0, 1)]
    puppet = Puppet(programs.port, rank=2)
    step, parameters = puppet.exchange(-1, np.zeros(0))
    while step < 60:  # and then it holds the others back, until the server is dead
        step, parameters = puppet.exchange(step, np.zeros(parameters.size))
    server.kill()
    server.communicate()
    puppet.close()

    server, again = programs.server()
    last = programs.trainer(2)
    codes, outputs = zip(*map(ended, [*trainers, last]), strict=True)
    server.send_signal(signal.SIGTERM)

    assert begun.startswith("begins at step 0,")
    assert again.startswith("goes on at step 50,")
    assert codes == (0, 0, 0)
    assert int(outputs[2][0].removeprefix("trainer 2 of 3 begins at step ").split()[0]) >= 50
    assert all(re.match(r"trainer |step |test accuracy ", line) for output in outputs for line in output), outputs
    assert saved_in(checkpoints)["step"] == STEPS
    assert outputs[0][-1] == f"test accuracy {accuracy_of(saved_in(checkpoints)['parameters']):.3f}"
    assert ended(server)[0] == 0


def test_the_job_fails_when_the_network_reads_badly(programs: Programs, checkpoints: Path) -> None:
    checkpoints.mkdir()
    np.savez(checkpoints / "checkpoint.npz", step=STEPS, parameters=np.zeros(SIZE), velocity=np.zeros(SIZE))
    programs.server()

    code, output = ended(programs.trainer(0))

    assert code == 1
    assert re.fullmatch(r"test accuracy 0\.[01]\d\d", output[-1])


def test_a_server_does_not_begin_anew_over_a_file_that_it_cannot_read(programs: Programs, checkpoints: Path) -> None:
    checkpoints.mkdir()
    (checkpoints / "checkpoint.npz").write_bytes(b"PK\x03\x04 and then nothing")

    code, (line,) = ended(programs.start_server())

    assert code == 1
    assert re.search(r"checkpoint\.npz is no checkpoint of this network: .+\. Remove it, or change", line)


def test_a_server_lives_on_when_somebody_speaks_another_language(programs: Programs) -> None:
    programs.server()
    with socket.create_connection(("127.0.0.1", programs.port), timeout=DEADLINE) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = stranger.recv(1)
    puppet = Puppet(programs.port, rank=0)
    step, parameters = puppet.exchange(-1, np.zeros(0))
    puppet.close()

    assert answer == b""
    assert (step, parameters.size) == (0, SIZE)


def test_a_step_moves_against_the_gradient_and_has_momentum(module: dict[str, ModuleType], tmp_path: Path) -> None:
    parameters, message = module["server"].Parameters(tmp_path / "file", trainers=1), module["wire"].Message
    before = parameters.vector
    gradient = np.linspace(-1, 1, SIZE, dtype=np.float32)

    first = parameters.exchange(message(0, 0, gradient))
    second = parameters.exchange(message(0, 1, gradient))

    assert (first.step, second.step) == (1, 2)
    np.testing.assert_allclose(first.vector, before - 0.1 * gradient, atol=1e-6)
    np.testing.assert_allclose(second.vector, before - (0.1 + 0.19) * gradient, atol=1e-6)


@pytest.mark.parametrize("step", [pytest.param(0, id="too-late"), pytest.param(7, id="of-a-server-that-died")])
def test_a_gradient_of_another_step_is_not_used_and_its_trainer_gets_the_present_one(
    module: dict[str, ModuleType], tmp_path: Path, step: int
) -> None:
    parameters, message = module["server"].Parameters(tmp_path / "file", trainers=1), module["wire"].Message
    present = parameters.exchange(message(0, 0, np.ones(SIZE, np.float32)))

    answer = parameters.exchange(message(0, step, np.ones(SIZE, np.float32)))

    assert answer.step == present.step == 1
    assert np.array_equal(answer.vector, present.vector)


def test_a_trainer_that_is_too_slow_is_left_out_until_it_pushes_again(
    module: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module["server"], "PATIENCE", 0.0)
    parameters, message = module["server"].Parameters(tmp_path / "file", trainers=2), module["wire"].Message
    gradient = np.ones(SIZE, np.float32)

    steps = [
        parameters.exchange(message(rank, step, gradient)).step
        for rank, step in ((0, 0), (0, 1), (1, 0), (1, 2), (0, 2), (0, 3))
    ]

    # Without 1; nobody waits for it; its gradient is of the past; without 0, which has not pushed yet; too late; ...
    assert steps == [1, 2, 2, 3, 3, 4]
    assert re.findall(r"step (\d) goes on without trainers (.+)", capsys.readouterr().out) == [
        ("0", "[1]"),
        ("2", "[0]"),
        ("3", "[1]"),
    ]


@pytest.mark.parametrize(
    ("rank", "gradient"),
    [
        pytest.param(2, np.ones(SIZE), id="rank-of-nobody"),
        pytest.param(-1, np.ones(SIZE), id="negative-rank"),
        pytest.param(0, np.ones(SIZE - 1), id="another-network"),
        pytest.param(0, np.full(SIZE, math.nan), id="not-a-number"),
    ],
)
def test_what_is_not_a_gradient_changes_nothing(
    module: dict[str, ModuleType], tmp_path: Path, rank: int, gradient: Array
) -> None:
    parameters = module["server"].Parameters(tmp_path / "file", trainers=2)

    with pytest.raises(ValueError, match="not a gradient of ours"):
        parameters.exchange(module["wire"].Message(rank, 0, gradient))
    assert parameters.step == 0


def test_a_step_is_made_by_the_mean_of_what_was_pushed(module: dict[str, ModuleType], tmp_path: Path) -> None:
    parameters, message = module["server"].Parameters(tmp_path / "file", trainers=2), module["wire"].Message
    before = parameters.vector
    with ThreadPoolExecutor(max_workers=2) as pool:
        pushes = [message(rank, 0, np.full(SIZE, rank, np.float32)) for rank in (0, 1)]
        first, second = pool.map(parameters.exchange, pushes)

    assert (first.step, second.step) == (1, 1)
    np.testing.assert_allclose(first.vector, before - 0.1 * 0.5, atol=1e-6)


def test_the_gradient_is_the_slope_of_the_loss(module: dict[str, ModuleType]) -> None:
    loss_and_gradient = module["network"].loss_and_gradient
    random = np.random.default_rng(7)
    vector = module["network"].initial(seed=3).astype(float) + random.normal(0, 0.01, SIZE)
    images, labels = random.random((5, 64)), np.arange(5)
    _, gradient = loss_and_gradient(vector, images, labels)

    for place in random.choice(SIZE, 50, replace=False):
        nudge = np.zeros(SIZE)
        nudge[place] = 1e-6
        rise = (
            loss_and_gradient(vector + nudge, images, labels)[0] - loss_and_gradient(vector - nudge, images, labels)[0]
        )
        assert gradient[place] == pytest.approx(rise / 2e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        pytest.param(b"", OSError, "closed", id="nothing"),
        pytest.param(struct.pack("!iiI", 0, 0, 2) + b"\0" * 7, OSError, "closed", id="cut-off"),
        pytest.param(struct.pack("!iiI", 0, 0, 2**32 - 1), ValueError, "longer than", id="too-long"),
    ],
)
def test_a_message_that_is_none_is_refused(
    module: dict[str, ModuleType], data: bytes, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        module["wire"].receive(io.BytesIO(data))


def test_a_trainer_gives_up_when_the_server_stays_away(
    module: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module["trainer"], "PATIENCE", 0.0)
    with socket.socket() as silent:  # bound, but nobody listens
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SystemExit, match=f"no parameter server at {address} for 0 seconds: .*refused"):
            module["trainer"].Server(address, rank=0).exchange(-1, np.zeros(0))


@pytest.mark.parametrize(
    ("resolved", "bound"),
    [
        pytest.param("127.0.0.1", "127.0.0.1", id="local"),
        pytest.param("127.1.2.3", "127.1.2.3", id="local-of-its-own"),
        pytest.param("10.0.0.7", "", id="cluster"),
        pytest.param("", "", id="cluster-before-the-name-is-known"),
    ],
)
def test_a_server_listens_only_on_loopback_when_its_name_is_there(
    module: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, resolved: str, bound: str
) -> None:
    def getaddrinfo(host: str, *_: object) -> list[tuple[object, ...]]:
        if not resolved:
            raise socket.gaierror(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (resolved, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setenv("TRAININGJOB_SERVICE", "digits-ps-0.default")

    assert module["server"].own_address() == bound


def test_trainmaster_runs_the_manifest_to_its_good_end(tmp_path: Path) -> None:
    env = {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    run = subprocess.run(
        [COMMAND, "run", MANIFEST], cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=DEADLINE
    )

    assert run.returncode == 0, run.stdout + run.stderr
    (checkpoint,) = tmp_path.glob("digits-*/checkpoint.npz")
    reached = accuracy_of(saved_in(checkpoint.parent)["parameters"])
    assert reached >= 0.95
    assert f"test accuracy {reached:.3f}" in run.stdout
