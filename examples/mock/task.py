"""The tasks of the mock's coordinator: they are put into a queue, assigned when somebody can do them, or time out."""

import os
import time
import uuid
from typing import NamedTuple

from examples.mock.pace import seconds
from examples.rl.say import say

TIMEOUT = 5.0  # seconds until a task that nobody could do is given up
AGAIN = {"collector": 0.3, "learner": 0.1}  # after this share of the timeout it is tried again


def new_id(kind: str = "") -> str:
    """Of this process, and unlike any other."""
    return f"{kind}PID{os.getpid()}UUID{uuid.uuid1()}_{time.time()}"


class Task(NamedTuple):
    kind: str
    id: str
    put: float
    due: float

    @property
    def is_due(self) -> bool:
        return time.time() >= self.due


class Queue:
    """The tasks that nobody does yet. What happens to them is told under the name of who owns the queue."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: list[Task] = []

    def say(self, text: str) -> None:
        say(f"[{self._owner}]: {text}")

    def put(self, kind: str) -> None:
        now = time.time()
        task = Task(kind, new_id(f"{kind}_task_"), now, now)
        self._tasks.append(task)
        self.say(f"{kind} task({task.id}) put into queue")

    def count(self, kind: str) -> int:
        return sum(task.kind == kind for task in self._tasks)

    def take(self, kind: str) -> list[Task]:
        """The tasks of a kind that are due; they are not in the queue any more."""
        due = [task for task in self._tasks if task.kind == kind and task.is_due]
        self._tasks = [task for task in self._tasks if task not in due]
        return due

    def assigned(self, task: Task) -> None:
        self.say(f"{task.kind}_task({task.id}) is successful to be assigned")

    def put_back(self, task: Task) -> None:
        """Nobody could do it now: later, unless it has waited for too long."""
        now = time.time()
        elapsed, timeout = now - task.put, seconds(TIMEOUT)
        if elapsed > timeout:
            self.say(f"{task.kind} task({task.id}) timeout: [{now}, {task.put}, {elapsed}/{timeout:g}]")
        else:
            self._tasks.append(task._replace(due=now + AGAIN[task.kind] * timeout))
            self.say(f"{task.kind} task({task.id}) reput into queue")
