"""The server: keeps the parameters, adds up what the workers find, saves a checkpoint.

A step is made when everybody has pushed who is connected and takes part. Who leaves, or dies, is not waited for; who
comes gets the present step and is waited for from then on. The server never ends by itself: the job is over when the
workers are, and then the operator removes it.
"""

import ipaddress
import os
import signal
import socket
import socketserver
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

from examples.elastic.members import Members
from examples.elastic.task import LEARNING_RATE, SIZE, loss
from examples.elastic.wire import Message, receive, send

PATIENCE = 10.0  # seconds for which a step waits for somebody who is connected and silent
SILENCE = 60.0  # seconds without a word after which a connection is closed
SAVE_EVERY = 10  # steps


class Training:
    """What is learnt. Each worker has a thread here, and waits in `exchange` for the step to be made."""

    def __init__(self, file: Path, members: Members, steps: int) -> None:
        self.step, self.vector = 0, np.zeros(SIZE, np.float32)
        self._file = file
        self._members = members
        self._steps = steps
        self._connected: dict[str, object] = {}
        self._pushed: dict[str, Message] = {}
        self._changed = threading.Condition()

    def resume(self) -> None:
        with np.load(self._file) as saved:
            self.step, self.vector = int(saved["step"]), saved["vector"].reshape(SIZE)

    def join(self, name: str, connection: object) -> None:
        with self._changed:
            self._connected[name] = connection

    def leave(self, name: str, connection: object) -> None:
        """One that was silent for long may have come again by another connection."""
        with self._changed:
            if self._connected.get(name) is connection:
                del self._connected[name]
                self._pushed.pop(name, None)
                self._changed.notify_all()

    def exchange(self, message: Message) -> Message:
        """Take the slope of the present step, and answer with the next one. Whoever just comes only gets it."""
        if message.vector.size not in (0, SIZE) or not np.isfinite(message.vector).all():
            raise ValueError(f"{message.name} pushed {message.vector.size} numbers: not a slope of ours")
        with self._changed:
            if message.vector.size and message.step == self.step < self._steps:
                self._pushed[message.name] = message
                self._changed.notify_all()
                is_made = self._changed.wait_for(lambda: self._is_made(message.step), PATIENCE)
                if not is_made and message.name in self._pushed:
                    self._make_step()
            return Message("", self.step, self._steps, self.vector)

    def _is_made(self, step: int) -> bool:
        """Whoever sees that nobody is missing makes the step."""
        if self.step == step and self._awaited() <= self._pushed.keys():
            self._make_step()
        return self.step != step

    def _awaited(self) -> set[str]:
        return self._connected.keys() & set(self._members.role("worker"))

    def _make_step(self) -> None:
        pushed = [self._pushed[name] for name in sorted(self._pushed)]
        slope = np.sum([m.vector for m in pushed], axis=0) / sum(m.points for m in pushed)
        self.vector = (self.vector - LEARNING_RATE * slope).astype(np.float32)
        self.step += 1
        if self.step % SAVE_EVERY == 0 or self.step == self._steps:
            self._save()  # before any worker sees the step
        told = f"{len(pushed)} workers, membership {self._members.generation}"
        say(f"step {self.step} of {self._steps}: loss {loss(self.vector):.5f}, {told}")
        self._pushed.clear()
        self._changed.notify_all()

    def _save(self) -> None:
        """Replaced as a whole: whenever we are killed, there is a complete file."""
        new = self._file.with_suffix(".new")
        with new.open("wb") as file:
            np.savez(file, step=self.step, vector=self.vector)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file)


class Connection(socketserver.StreamRequestHandler):
    """One worker, as long as it stays."""

    timeout = SILENCE
    disable_nagle_algorithm = True
    server: "Server"

    def handle(self) -> None:
        training, name = self.server.training, ""
        try:
            while True:
                message = receive(self.rfile)
                name = name or self._welcome(message.name)
                send(self.wfile, training.exchange(message._replace(name=name)))
        except (OSError, ValueError) as error:
            say(f"{name or 'a stranger'} has left: {error}")
        finally:
            training.leave(name, self)

    def _welcome(self, name: str) -> str:
        self.server.training.join(name, self)
        say(f"{name} is here")
        return name


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True  # after a restart, at once
    daemon_threads = True

    def __init__(self, address: tuple[str, int], training: Training) -> None:
        self.training = training
        super().__init__(address, Connection)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def own_address() -> str:
    """Only this machine if our own name is of it, as in `trainmaster run`; in a pod of a cluster, all interfaces."""
    try:
        found = socket.getaddrinfo(os.environ["TRAININGJOB_SERVICE"], None, socket.AF_INET)
    except OSError:
        return ""  # a service may get its name only after its pod has started
    address = str(found[0][4][0])
    return address if ipaddress.ip_address(address).is_loopback else ""


def begun(file: Path, members: Members, steps: int) -> Training:
    """From the checkpoint if this is a restart. What another job of our name left behind is none of ours."""
    training = Training(file, members, steps)
    if os.environ["TRAININGJOB_REPLICA_RESTARTCOUNT"] == "0":
        file.unlink(missing_ok=True)
    elif file.exists():
        training.resume()
    return training


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container must say so
    folder = Path(os.environ.get("CHECKPOINT_DIR") or f"{tempfile.gettempdir()}/{os.environ['TRAININGJOB_NAME']}")
    folder.mkdir(parents=True, exist_ok=True)
    training = begun(folder / "checkpoint.npz", Members.of_this_job(), int(os.environ.get("STEPS", "200")))
    port = int(os.environ["TRAININGJOB_PORTS"].split(",")[0])
    with Server((own_address(), port), training) as server:
        host, port = server.server_address[:2]
        say(f"begins at step {training.step}, listens on {host!s}:{port}, saves to {folder}")
        server.serve_forever()


if __name__ == "__main__":
    main()
