"""A trainer: gets the parameters, finds on its share of the images how they should change, pushes that; and again.

The trainer of rank 0 also says how good the network is on images that nobody has trained with, and fails if it is not.
"""

import os
import signal
import socket
import sys
import time
from io import BufferedIOBase
from typing import NoReturn

import numpy as np
from sklearn.datasets import load_digits

from examples.digits.network import STEPS, Labels, Vector, accuracy, loss_and_gradient
from examples.digits.wire import NOTHING, Message, receive, send

SEED = 2
BATCH = 32
GOOD = 0.95
REPORT_EVERY = 50  # steps
PATIENCE = 60.0  # seconds in which a server that is away must be back
ANSWER = 30.0  # seconds for one answer: longer than the server waits for slow trainers
PAUSE = 0.2  # seconds between two attempts to connect


def digits() -> tuple[Vector, Labels]:
    """1797 images of 8 × 8 pixels between 0 and 1, and the digits that they show."""
    images, labels = load_digits(return_X_y=True)
    return images.astype(np.float32) / 16, labels.astype(np.int64)


class Server:
    """The parameter server, seen from here. It may go away and come back."""

    def __init__(self, address: str, rank: int) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._rank = rank
        self._stream: BufferedIOBase | None = None

    def exchange(self, step: int, vector: Vector) -> tuple[int, Vector]:
        """Push a gradient (or nothing), and get the present step and its parameters."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                stream = self._stream = self._stream or self._connect()
                send(stream, Message(self._rank, step, vector))
                answer = receive(stream)
            except OSError as error:
                self._stream = None
                if time.monotonic() > deadline:
                    self._give_up(error)
                time.sleep(PAUSE)
            else:
                return answer.step, answer.vector

    def _connect(self) -> BufferedIOBase:
        with socket.create_connection((self._host, int(self._port)), timeout=ANSWER) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection.makefile("rwb")  # keeps the connection open when the block is left

    def _give_up(self, error: OSError) -> NoReturn:
        sys.exit(f"no parameter server at {self._host}:{self._port} for {PATIENCE:g} seconds: {error}")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the first process of a container must say so
    rank, trainers = int(os.environ["TRAININGJOB_REPLICA_INDEX"]), int(os.environ["TRAINER_INSTANCES_NUM"])
    server = Server(os.environ["PS_HOSTS"].split(",")[0], rank)
    images, labels = digits()
    unseen = np.arange(len(labels)) % 5 == 0  # every fifth image only tests
    share = np.flatnonzero(~unseen)[rank::trainers]

    step, parameters = server.exchange(-1, NOTHING)
    print(f"trainer {rank} of {trainers} begins at step {step} with {len(share)} images", flush=True)
    while step < STEPS:
        # The batch follows from rank and step alone, so that a trainer that was restarted goes on the same way.
        batch = np.random.default_rng((SEED, rank, step)).choice(share, BATCH, replace=False)
        loss, gradient = loss_and_gradient(parameters, images[batch], labels[batch])
        if step % REPORT_EVERY == 0:
            tested = f" accuracy {accuracy(parameters, images[unseen], labels[unseen]):.3f}" if rank == 0 else ""
            print(f"step {step} loss {loss:.3f}{tested}", flush=True)
        step, parameters = server.exchange(step, gradient)

    if rank != 0:
        return 0
    reached = accuracy(parameters, images[unseen], labels[unseen])
    print(f"test accuracy {reached:.3f}", flush=True)
    return 0 if reached >= GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
