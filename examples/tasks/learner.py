"""The learner: sends what was learnt to all others, and improves it by what the collectors saw.

It keeps nothing on disk. After a restart it continues with the newest state that another process has.
"""

import os
import sys
import time
from typing import Any

import numpy as np

from examples.cartpole.collector import MOMENTS
from examples.cartpole.ppo import Trajectory, improve, untaught
from examples.cartpole.wire import number_of, trajectory_of, unpack
from examples.rl.say import say
from examples.tasks.job import PATIENCE, State, join, message_of, newer, received
from examples.tasks.mesh import LEARNT, SEEN, Mesh, Message

SEED = 1
STEPS = 1000  # and if the pole does not stand then, the job fails
ROLLOUTS = 2  # of each step, of whichever collectors
RESUME_SECONDS = 1.0  # in which others connect, if they know more


def rollouts(mesh: Mesh, step: int) -> list[Trajectory]:
    """What the collectors saw with this policy, or with the one before."""
    found: list[Trajectory] = []
    while len(found) < ROLLOUTS:
        message = received(mesh, PATIENCE)
        if message is None:
            sys.exit(f"no collector has sent anything for {PATIENCE:.0f} seconds")
        if message.kind == SEEN and (seen := _seen(message, step)):
            found.append(seen)
    return found


def _seen(message: Message, step: int) -> Trajectory | None:
    try:
        arrays = unpack(message.body)
        return trajectory_of(arrays, MOMENTS) if number_of(arrays, "step") >= step - 1 else None
    except (ValueError, KeyError) as error:
        say(f"ignored a message: {error}")
        return None


def main() -> int:
    mesh = join("learner", {LEARNT, SEEN})
    pace = float(os.environ.get("SECONDS_PER_STEP", "0"))
    state = newer(mesh, None, RESUME_SECONDS) or State(untaught(SEED), 0)
    if state.step:
        say(f"continue after step {state.step}")
    while state.step < STEPS:
        begun = time.monotonic()
        message = message_of(state)
        mesh.keep(message)
        mesh.send(message)
        parts: list[Any] = [np.concatenate(column, axis=1) for column in zip(*rollouts(mesh, state.step), strict=True)]
        state = State(improve(state.learnt, Trajectory(*parts), (SEED, state.step)), state.step + 1)
        say(f"step {state.step}  connected ranks {mesh.peers}")
        time.sleep(max(0.0, begun + pace - time.monotonic()))
    say(f"not solved in {STEPS} steps")
    return 1


if __name__ == "__main__":
    sys.exit(main())
