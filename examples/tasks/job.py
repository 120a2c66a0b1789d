"""What the three programs have in common: how the job begins, and how it ends.

The learner has rank 0. It ends when the evaluator says that the pole stands; so do all others. A process that was
restarted after that finds the learner gone, and has nothing to do.
"""

import os
import sys
import time
from collections.abc import Collection
from typing import NamedTuple, NoReturn

from examples.cartpole.ppo import Learnt
from examples.cartpole.wire import learnt_of, number_of, pack, unpack
from examples.rl.say import say
from examples.rl.web import end_on_sigterm
from examples.tasks.mesh import GAP, LEARNT, SOLVED, Mesh, Message

LEARNER = 0
TERMINATED = 143  # the exit code of a program that SIGTERM ended
PATIENCE = 60.0  # seconds without a message, after which a process ends and is restarted
FAREWELL = 2.0  # seconds in which a process that connects late still learns that the job is over


class State(NamedTuple):
    """What was learnt, and after how many steps."""

    learnt: Learnt
    step: int


def join(role: str, wanted: Collection[int]) -> Mesh:
    end_on_sigterm(TERMINATED)
    nodes, rank = os.environ["DI_NODES"].split(","), int(os.environ["DI_RANK"])
    if rank != LEARNER and nodes[LEARNER] == GAP:
        say("the learner has succeeded: there is nothing left to do")
        sys.exit(0)
    mesh = Mesh.joined(os.environ, {*wanted, SOLVED})
    say(f"{role} listens as rank {rank} of {len(nodes)} at {nodes[rank]}")
    return mesh


def received(mesh: Mesh, seconds: float) -> Message | None:
    """The next message; None if none comes in this time. The process ends when the job is solved."""
    message = mesh.next(seconds)
    if message is not None and message.kind == SOLVED:
        leave(mesh, message)
    return message


def leave(mesh: Mesh, solved: Message) -> NoReturn:
    mesh.keep(solved)
    mesh.send(solved)
    time.sleep(FAREWELL)
    sys.exit(0)


def newer(mesh: Mesh, known: State | None, seconds: float) -> State | None:
    """The newest state that comes in this time, if there is one that is newer. Messages that wait are read at once."""
    deadline, found = time.monotonic() + seconds, known
    while True:
        message = received(mesh, 0.0 if found is not known else deadline - time.monotonic())
        if message is None:
            return found if found is not known else None
        if message.kind == LEARNT and (state := state_of(message)) and (found is None or state.step > found.step):
            found = state
            mesh.keep(message)  # for a learner that was restarted


def state_of(message: Message) -> State | None:
    try:
        arrays = unpack(message.body)
        return State(learnt_of(arrays), number_of(arrays, "step"))
    except (ValueError, KeyError) as error:
        say(f"ignored a message: {error}")
        return None


def message_of(state: State) -> Message:
    return Message(LEARNT, pack(**state.learnt._asdict(), step=state.step))
