"""A worker: pulls the parameters from all servers, finds how they should change for its images, pushes that; and again.

The worker of rank 0 also says how good the network is on images that nobody has trained with, and fails if it is not.
"""

import socket
import sys
from contextlib import ExitStack
from io import BufferedIOBase

import numpy as np

from examples.digits.network import STEPS, Labels, Vector, accuracy, loss_and_gradient
from examples.ps.server import GATHER, MEET, bounds
from examples.ps.setting import Setting
from examples.ps.wire import NOTHING, connect, receive, send
from examples.rl.say import say

SEED = 2
BATCH = 32
GOOD = 0.95
REPORT_EVERY = 50  # steps
ANSWER = 30.0  # seconds for one answer: longer than a server waits for slow workers


def digits() -> tuple[Vector, Labels]:
    """1797 images of 8 × 8 pixels between 0 and 1, and the digits that they show."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # slow to load, and only workers need it

    images, labels = load_digits(return_X_y=True)
    return images.astype(np.float32) / 16, labels.astype(np.int64)


class Servers:
    """All servers, seen from here: one vector, each of its shares at its own step."""

    def __init__(self, rank: int, streams: list[BufferedIOBase]) -> None:
        self._rank = rank
        self._streams = streams
        self._ends = bounds(len(streams))[1:-1]
        self._steps = [-1] * len(streams)
        self.vector = self._exchange([NOTHING] * len(streams))

    @property
    def step(self) -> int:
        """Of the share that is least far; while a worker comes or goes, they may differ by one."""
        return min(self._steps)

    def push(self, gradient: Vector) -> None:
        """And pull the next step."""
        self.vector = self._exchange(np.split(gradient, self._ends))

    def _exchange(self, parts: list[Vector]) -> Vector:
        """Everybody is asked before anybody is waited for: no server waits for us while we wait for another."""
        for stream, step, part in zip(self._streams, self._steps, parts, strict=True):
            send(stream, {"rank": self._rank, "step": step}, part)
        answers = [receive(stream) for stream in self._streams]
        self._steps = [int(answer.words["step"]) for answer in answers]
        return np.concatenate([answer.vector for answer in answers])


def train(rank: int, workers: int, servers: Servers) -> float | None:
    """Until the last step; answers the accuracy on unseen images, from rank 0."""
    images, labels = digits()
    unseen = np.arange(len(labels)) % 5 == 0  # every fifth image only tests
    share = np.flatnonzero(~unseen)[rank::workers]
    say(f"worker {rank} of {workers} begins at step {servers.step} with {len(share)} images")
    while (step := servers.step) < STEPS:
        # The batch follows from rank and step alone, so that a worker that was restarted goes on the same way.
        batch = np.random.default_rng((SEED, rank, step)).choice(share, BATCH, replace=False)
        loss, gradient = loss_and_gradient(servers.vector, images[batch], labels[batch])
        if step % REPORT_EVERY == 0:
            tested = f" accuracy {accuracy(servers.vector, images[unseen], labels[unseen]):.3f}" if rank == 0 else ""
            say(f"step {step} loss {loss:.3f}{tested}")
        servers.push(gradient)
    return accuracy(servers.vector, images[unseen], labels[unseen]) if rank == 0 else None


def run(setting: Setting) -> int:
    with ExitStack() as stack:
        try:
            scheduler = stack.enter_context(connect(setting.root, patience=MEET, silence=GATHER))
            return _work(setting, scheduler, stack)
        except OSError as error:
            sys.exit(f"the scheduler at {setting.root[0]}:{setting.root[1]} or a server is lost: {error}")


def _work(setting: Setting, scheduler: socket.socket, stack: ExitStack) -> int:
    stream = scheduler.makefile("rwb")
    send(stream, {"role": "worker", "worker": setting.worker})
    greeting = receive(stream).words
    rank = int(greeting["rank"])
    streams: list[BufferedIOBase] = []
    for address in greeting["servers"]:
        host, _, port = str(address).rpartition(":")
        connection = stack.enter_context(connect((host, int(port)), patience=MEET, silence=ANSWER))
        streams.append(connection.makefile("rwb"))
    reached = train(rank, setting.workers, Servers(rank, streams))
    if reached is not None:
        say(f"test accuracy {reached:.3f}")
        if reached < GOOD:
            return 1
    send(stream, {"done": rank})
    receive(stream)
    return 0
