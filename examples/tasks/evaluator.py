"""The evaluator: tests each new policy, and tells all others when the pole stands."""

import sys

from examples.cartpole.coordinator import EPISODES, GOOD
from examples.cartpole.pole import mean_return
from examples.cartpole.wire import pack
from examples.rl.say import say
from examples.tasks.job import PATIENCE, join, leave, newer
from examples.tasks.mesh import LEARNT, SOLVED, Message


def main() -> None:
    mesh = join("evaluator", {LEARNT})
    state = None
    while state := newer(mesh, state, PATIENCE):
        reached = mean_return(state.learnt.vector, EPISODES, state.step)
        say(f"step {state.step}  return {reached:.1f}")
        if reached >= GOOD:
            say(f"solved: the pole stood for {reached:.1f} moments in the mean of {EPISODES} episodes")
            leave(mesh, Message(SOLVED, pack(step=state.step)))
    sys.exit(f"the learner has sent nothing for {PATIENCE:.0f} seconds")


if __name__ == "__main__":
    main()
