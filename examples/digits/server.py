"""The parameter server: keeps the parameters, averages what the trainers push, saves a checkpoint.

A step is made when every trainer has pushed its gradient, or when the slow ones have been waited for long enough.
The server never ends by itself: the job is over when the trainers are, and then the operator removes it.
"""

import ipaddress
import os
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

import numpy as np

from examples.digits.network import SIZE, STEPS, Vector, initial
from examples.digits.wire import Message, receive, send

SEED = 1
LEARNING_RATE = 0.1
MOMENTUM = 0.9
PATIENCE = 10.0  # seconds for which a step waits for a trainer; then it is left out until it pushes again
SILENCE = 60.0  # seconds without a word after which a connection is closed
SAVE_EVERY = 50  # steps


class Parameters:
    """What is learnt. Each trainer has a thread here, and waits in `exchange` for the step to be made."""

    def __init__(self, file: Path, trainers: int) -> None:
        self.step, self.vector, self._velocity = 0, initial(SEED), np.zeros(SIZE, np.float32)
        self._file = file
        self._trainers = trainers
        self._awaited = set(range(trainers))
        self._gradients: dict[int, Vector] = {}
        self._made = threading.Condition()
        if file.exists():
            self._load()

    def exchange(self, message: Message) -> Message:
        """Take the gradient of the present step, and answer with the next one.

        Whoever just comes, or comes too late, or knew a server that went further and died, only gets the present step.
        """
        rank, step, gradient = message
        if rank not in range(self._trainers) or gradient.size not in (0, SIZE) or not np.isfinite(gradient).all():
            raise ValueError(f"rank {rank} pushed {gradient.size} numbers: not a gradient of ours")
        with self._made:
            if gradient.size and step == self.step < STEPS:
                self._gradients[rank] = gradient
                self._awaited.add(rank)
                complete = self._awaited <= self._gradients.keys()
                if complete or not self._made.wait_for(lambda: self.step != step, PATIENCE):
                    self._make_step()
            return Message(rank, self.step, self.vector)

    def _make_step(self) -> None:
        ranks = sorted(self._gradients)  # always added in the same order: the same run gives the same numbers
        if missing := sorted(self._awaited.difference(ranks)):
            print(f"step {self.step} goes on without trainers {missing}", flush=True)
        gradient = np.mean([self._gradients[rank] for rank in ranks], axis=0)
        self._velocity = MOMENTUM * self._velocity - LEARNING_RATE * gradient
        self.vector = self.vector + self._velocity  # a new one, because the old one may just be on its way
        self.step += 1
        self._awaited = set(ranks)
        self._gradients.clear()
        if self.step % SAVE_EVERY == 0 or self.step == STEPS:
            self._save()  # before any trainer sees the step: what one of them saw as the end is never lost
        self._made.notify_all()

    def _save(self) -> None:
        """Replaced as a whole: whenever we are killed, there is a complete file."""
        new = self._file.with_suffix(".new")
        with new.open("wb") as file:
            np.savez(file, step=self.step, parameters=self.vector, velocity=self._velocity)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)
        print(f"step {self.step} is saved", flush=True)

    def _load(self) -> None:
        try:
            with np.load(self._file) as saved:
                self.step, parameters, velocity = int(saved["step"]), saved["parameters"], saved["velocity"]
            self.vector, self._velocity = parameters.reshape(SIZE), velocity.reshape(SIZE)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            sys.exit(f"{self._file} is no checkpoint of this network: {error}. Remove it, or change CHECKPOINT_DIR.")


class Connection(socketserver.StreamRequestHandler):
    """One trainer, as long as it stays."""

    timeout = SILENCE
    disable_nagle_algorithm = True  # an answer is short of a full packet, and somebody waits for it
    server: "Server"

    def handle(self) -> None:
        try:
            while True:
                send(self.wfile, self.server.parameters.exchange(receive(self.rfile)))
        except (OSError, ValueError) as error:
            print(f"{self.client_address[0]}:{self.client_address[1]} has left: {error}", flush=True)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True  # after a restart, at once
    daemon_threads = True

    def __init__(self, address: tuple[str, int], parameters: Parameters) -> None:
        self.parameters = parameters
        super().__init__(address, Connection)


def own_address() -> str:
    """Only this machine if our own name is of it, as in `trainmaster run`; in a pod of a cluster, all interfaces."""
    try:
        found = socket.getaddrinfo(os.environ["TRAININGJOB_SERVICE"], None, socket.AF_INET)
    except OSError:
        return ""  # a service may get its name only after its pod has started
    address = str(found[0][4][0])
    return address if ipaddress.ip_address(address).is_loopback else ""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container must say so
    port = int(os.environ["TRAININGJOB_PORTS"].split(",")[0])
    trainers = int(os.environ["TRAINER_INSTANCES_NUM"])
    folder = Path(os.environ.get("CHECKPOINT_DIR") or tempfile.mkdtemp(prefix="digits-"))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "checkpoint.npz"
    parameters = Parameters(file, trainers)
    with Server((own_address(), port), parameters) as server:
        host, port = server.server_address[:2]
        begins = "goes on" if parameters.step else "begins"
        print(f"{begins} at step {parameters.step}, listens on {host!s}:{port}, saves to {file}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
