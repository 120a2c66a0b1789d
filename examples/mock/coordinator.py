"""The mock of a coordinator: it plays a whole training, with everybody who has a part in one, but nothing is learnt.

It asks di-server for two collectors and two learners, connects to them, has them work on tasks, gives one collector
back, and after some evaluations it says that the agent has converged. With KUBERNETES_AGGREGATOR_URL, an aggregator
is connected first and gets the learners; else the coordinator connects to the learners by itself.
"""

import os
import queue
import random
import sys
import threading
import time
from pathlib import Path
from typing import TypeAlias

from examples.mock.master import FAULTS, Master
from examples.mock.pace import pause, seconds
from examples.mock.roster import Roster
from examples.mock.task import Queue, Task, new_id
from examples.rl.diserver import TROUBLE, DiServer
from examples.rl.say import say
from examples.rl.web import Listener, end_on_sigterm

COLLECTORS, LEARNERS = 2, 2
TICK = 1.0  # seconds between two looks into the queue
EVALUATE_EVERY = 5.0  # seconds
CHANCE = 0.2  # that an evaluation finds the agent converged
PATIENCE = 120.0  # seconds for data to come, or for room in the buffer
LONGEST = 600.0  # seconds of a whole training
MOST = 100  # pieces of data in a batch

Buffer: TypeAlias = "queue.Queue[float]"


class Coordinator:
    def __init__(self, server: DiServer, aggregator: str, seed: str, until: str = "") -> None:
        self.master = Master()
        self._roster = Roster(server, self.master, aggregator)
        self._has_aggregator = bool(aggregator)
        self._until = Path(until) if until else None
        self._random = random.Random(seed)  # noqa: S311 - no secret comes of it
        self._queue = Queue(f"Coordinator({new_id()})")
        self._working: set[str] = set()
        self._buffer_id = new_id("buffer_")
        self._buffer: Buffer | None = None
        self._has_learnt = threading.Event()
        self._is_over = False

    def run(self) -> int:
        if self._has_aggregator and not self._roster.meet_aggregator():
            return 1
        self._roster.begin(COLLECTORS, LEARNERS)
        if not self._roster.wait():
            return 1
        say("Start...")
        threading.Thread(target=self._roster.give_one_back, daemon=True).start()
        is_converged = self._train()
        self._is_over = True  # what is still at work now is meant to be interrupted
        for role in ("collector", "learner"):
            for address in self.master.connected(role):
                self.master.disconnect(address)
        if is_converged:
            say("[DI parallel pipeline]Your RL agent is converged, the training is over")
        return 0 if is_converged else 1

    def _train(self) -> bool:
        """Assign what is in the queue, evaluate now and then; True when that finds an agent that has converged."""
        deadline, evaluated = time.monotonic() + LONGEST, time.monotonic()
        while time.monotonic() < deadline:
            for kind in ("learner", "collector"):
                for _ in range(len(self.master.connected(kind)) - self._queue.count(kind) - self._at_work(kind)):
                    self._queue.put(kind)
            for kind in ("collector", "learner"):
                for task in self._queue.take(kind):
                    self._assign(task)
            if self._has_learnt.is_set() and time.monotonic() - evaluated > seconds(EVALUATE_EVERY):
                evaluated = time.monotonic()
                self._has_learnt.clear()  # the next one only after there is something new to evaluate
                if self._random.random() < CHANCE and (self._until is None or self._until.exists()):
                    return True
            pause(TICK)
        return False

    def _assign(self, task: Task) -> None:
        """To somebody who is free and who then works in a thread of ours; else the task goes back."""
        if task.kind == "collector" and self._buffer is None:
            self._queue.say(f"collector_task({task.id}) can't find proper buffer_id({self._buffer_id})")
            self._queue.put_back(task)
            return
        address = self.master.take(task.kind)
        if not address or not self._starts(task, address):
            self.master.give_back(address)
            self._queue.put_back(task)
            return
        if task.kind == "collector":
            say(f"collector task({task.id}) is assigned to collector({address})")
        elif self._buffer is None:
            self._buffer = queue.Queue(maxsize=1000)
            self._queue.say(f"replay_buffer({self._buffer_id}) is created")
        self._queue.assigned(task)
        self._working.add(task.id)
        threading.Thread(target=self._work, args=(task, address, self._buffer), daemon=True).start()

    def _at_work(self, kind: str) -> int:
        return sum(task.startswith(kind) for task in list(self._working))

    def _starts(self, task: Task, address: str) -> bool:
        try:
            self.master.perform(address, f"{task.kind}_start_task", {"task_id": task.id})
        except FAULTS:
            return False
        return True

    def _work(self, task: Task, address: str, buffer: Buffer) -> None:
        try:
            (self._collect if task.kind == "collector" else self._learn)(task, address, buffer)
            self.master.perform(address, f"{task.kind}_close_task", {})
        except (*FAULTS, KeyError, queue.Empty, queue.Full) as error:
            if not self._is_over:
                self._queue.say(f"{task.kind} task({task.id}) failed: {error!r}")
        self._working.discard(task.id)
        self.master.give_back(address)

    def _collect(self, task: Task, address: str, buffer: Buffer) -> None:
        is_last = False
        while not is_last:
            piece = self.master.perform(address, "collector_data_task", {})
            self._queue.say(f"collector task({task.id}) send data({piece['id']})")
            buffer.put(float(piece["value"]), timeout=PATIENCE)
            is_last = bool(piece["is_last"])

    def _learn(self, task: Task, address: str, buffer: Buffer) -> None:
        """The learner wants more data, and more, and is never done."""
        is_done = False
        while not is_done:
            demand = self.master.perform(address, "learner_get_data_task", {})
            values = [buffer.get(timeout=PATIENCE) for _ in range(min(int(demand["batch_size"]), MOST))]
            result = self.master.perform(address, "learner_learn_task", {"values": values})
            self._has_learnt.set()
            is_done = bool(result["is_done"])


def main() -> int:
    end_on_sigterm(1)
    coordinator = Coordinator(
        DiServer(os.environ),
        os.environ.get("KUBERNETES_AGGREGATOR_URL", ""),
        seed=os.environ.get("MOCK_SEED", "0"),
        until=os.environ.get("MOCK_UNTIL", ""),
    )
    listener = Listener(int(os.environ["COORDINATOR_PORT"]), coordinator.master.routes)
    coordinator.master.port = listener.port
    listener.start()
    try:
        return coordinator.run()
    except TROUBLE as error:
        sys.exit(f"di-server gave us no replicas: {error}")


if __name__ == "__main__":
    sys.exit(main())
