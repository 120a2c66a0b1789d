"""A collector: plays CartPole with the newest policy, and sends what it saw to the learner."""

import itertools
import sys
import time

import numpy as np

from examples.cartpole.collector import CARTS, MOMENTS
from examples.cartpole.pole import Poles
from examples.cartpole.wire import pack
from examples.tasks.job import LEARNER, PATIENCE, State, join, newer
from examples.tasks.mesh import LEARNT, SEEN, Mesh, Message

AGAIN = 0.3  # seconds without a newer policy, after which the same one is played again


def collect(mesh: Mesh, state: State) -> None:
    """Until the learner has been silent for too long."""
    poles = Poles(CARTS, int(np.random.default_rng([mesh.rank]).integers(2**31)))
    heard = time.monotonic()
    for turn in itertools.count():
        seen = poles.rollout(state.learnt.vector, MOMENTS, [mesh.rank, state.step, turn])
        mesh.send(Message(SEEN, pack(**seen._asdict(), step=state.step)), to=LEARNER)
        if found := newer(mesh, state, AGAIN):
            state, heard = found, time.monotonic()
        elif time.monotonic() > heard + PATIENCE:
            return


def main() -> None:
    mesh = join("collector", {LEARNT})
    if state := newer(mesh, None, PATIENCE):
        collect(mesh, state)
    sys.exit(f"the learner has sent nothing for {PATIENCE:.0f} seconds")


if __name__ == "__main__":
    main()
