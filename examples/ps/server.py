"""A server: keeps a share of the parameters, and changes it by the mean of what the workers push.

A step is made when every worker that is here has pushed its gradient, or when the slow ones have been waited for long
enough. A worker that leaves is not waited for; one that comes, or comes back, only has to push.
"""

import socket
import socketserver
import sys
import threading

import numpy as np

from examples.digits.network import SIZE, STEPS, Vector, initial
from examples.ps.setting import Setting
from examples.ps.wire import connect, receive, send
from examples.rl.say import say

SEED = 1
LEARNING_RATE = 0.1
MOMENTUM = 0.9
PATIENCE = 10.0  # seconds for which a step waits for a worker; then it is left out until it pushes again
SILENCE = 60.0  # seconds without a word after which a connection is closed
MEET = 120.0  # seconds in which the scheduler must be there
GATHER = 300.0  # seconds in which all servers must be there


def bounds(servers: int) -> list[int]:
    """Where the shares of all servers begin, and where the last one ends."""
    return [SIZE * each // servers for each in range(servers + 1)]


class Shard:
    """One share. Each worker has a thread here, and waits in `exchange` for the step to be made."""

    def __init__(self, vector: Vector, workers: int) -> None:
        self.step, self.vector, self._velocity = 0, vector, np.zeros_like(vector)
        self._workers = workers
        self._awaited = set(range(workers))
        self._gradients: dict[int, Vector] = {}
        self._made = threading.Condition()

    def exchange(self, rank: int, step: int, gradient: Vector) -> tuple[int, Vector]:
        """Take the gradient of the present step, and answer with the next one.

        Whoever just comes, or comes too late, only gets the present step.
        """
        is_gradient = gradient.size in (0, self.vector.size) and np.isfinite(gradient).all()
        if rank not in range(self._workers) or not is_gradient:
            raise ValueError(f"worker {rank} pushed {gradient.size} numbers: not a gradient of ours")
        with self._made:
            if gradient.size and step == self.step < STEPS:
                self._gradients[rank] = gradient
                self._awaited.add(rank)
                self._step_if_complete()
                if not self._made.wait_for(lambda: self.step != step, PATIENCE):
                    self._make_step()
            return self.step, self.vector

    def leave(self, rank: int) -> None:
        """Nobody waits for this worker any more."""
        with self._made:
            self._awaited.discard(rank)
            self._step_if_complete()

    def _step_if_complete(self) -> None:
        if self._gradients and self._awaited <= self._gradients.keys():
            self._make_step()

    def _make_step(self) -> None:
        ranks = sorted(self._gradients)  # always added in the same order: the same run gives the same numbers
        if missing := sorted(self._awaited.difference(ranks)):
            say(f"step {self.step} goes on without workers {missing}")
        gradient = np.mean([self._gradients[rank] for rank in ranks], axis=0)
        self._velocity = MOMENTUM * self._velocity - LEARNING_RATE * gradient
        self.vector = self.vector + self._velocity  # a new one, because the old one may just be on its way
        self.step += 1
        self._awaited = set(ranks)
        self._gradients.clear()
        self._made.notify_all()


class Connection(socketserver.StreamRequestHandler):
    """One worker, as long as it stays."""

    timeout = SILENCE
    disable_nagle_algorithm = True
    server: "Listener"

    def handle(self) -> None:
        shard = self.server.shard
        rank = -1
        try:
            while True:
                words, gradient = receive(self.rfile)
                rank = int(words["rank"])
                step, vector = shard.exchange(rank, int(words["step"]), gradient)
                send(self.wfile, {"step": step}, vector)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if shard.step < STEPS:
                say(f"worker {rank} has left: {error}")
        finally:
            shard.leave(rank)


class Listener(socketserver.ThreadingTCPServer):
    """``shard`` is set when the scheduler has said which one it is; nobody knows of us before."""

    daemon_threads = True
    shard: Shard

    def __init__(self, host: str) -> None:
        super().__init__((host, 0), Connection)


def run(setting: Setting) -> int:
    try:
        with connect(setting.root, patience=MEET, silence=GATHER) as scheduler:
            return _serve(setting, scheduler)
    except OSError as error:
        sys.exit(f"the scheduler at {setting.root[0]}:{setting.root[1]} is lost: {error}")


def _serve(setting: Setting, scheduler: socket.socket) -> int:
    """Listen where the scheduler is reached from: there the workers are, too."""
    host, stream = str(scheduler.getsockname()[0]), scheduler.makefile("rwb")
    with Listener(host) as listener:
        port = listener.server_address[1]
        send(stream, {"role": "server", "address": f"{setting.host or host}:{port}"})
        rank = int(receive(stream).words["rank"])
        begin, end = bounds(setting.servers)[rank : rank + 2]
        listener.shard = Shard(initial(SEED)[begin:end], setting.workers)
        say(f"server {rank} of {setting.servers} listens on {host}:{port} with {end - begin} of {SIZE} parameters")
        threading.Thread(target=listener.serve_forever, args=(0.1,), daemon=True).start()
        scheduler.settimeout(None)  # its next word is its last
        receive(stream)
        listener.shutdown()
    say(f"all is over at step {listener.shard.step}")
    return 0
