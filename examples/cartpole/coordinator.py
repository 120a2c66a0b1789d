"""The coordinator: asks di-server for collectors and learners, has them play and learn, and tests what came of it.

What is learnt is kept here. Collectors and learners may die at any time: each is left out until it, or another one in
its place, is there. The job ends well when the pole stands for 475 of 500 moments in the mean over 20 episodes.
"""

import os
import sys
import threading
import time
from typing import Any

import numpy as np

from examples.cartpole.collector import MOMENTS
from examples.cartpole.crew import Crew
from examples.cartpole.merge import improve_by
from examples.cartpole.pole import mean_return
from examples.cartpole.policy import Vector
from examples.cartpole.ppo import Trajectory, untaught
from examples.cartpole.wire import pack, trajectory_of, unpack
from examples.rl.diserver import TROUBLE, DiServer, Replicas
from examples.rl.say import say
from examples.rl.web import end_on_sigterm

SEED = 1
GOOD = 475.0
EPISODES = 20
STEPS = 1000  # and if the pole does not stand then, the job fails
LOOK_EVERY = 1.0  # seconds: so often di-server is asked who is there
PATIENCE = 120.0  # seconds for a first collector or learner


class Job:
    def __init__(self, server: DiServer) -> None:
        self._server = server
        self.collectors = Crew("collector")
        self.learners = Crew("learner")

    def look(self) -> None:
        """Again and again, whatever happens: replicas come and go, and di-server may be away for a while."""
        while True:
            try:
                found = self._server.replicas()
                self.learners.meet(found.learners)
                self.collectors.meet(found.collectors)
                lost = Replicas(self.collectors.lost(), self.learners.lost())
                if any(lost):
                    self._server.report_failed(lost)
            except TROUBLE as error:
                say(f"di-server: {error}")
            time.sleep(LOOK_EVERY)

    def collect(self, vector: Vector, step: int) -> tuple[Trajectory, int]:
        """What the collectors who are here see with this policy, and how many they are."""
        deadline = time.monotonic() + PATIENCE
        while True:
            members = self.collectors.present(deadline)
            bodies = {one: pack(vector=vector, seed=SEED, step=step, rank=rank) for rank, one in enumerate(members)}
            seen: list[Trajectory] = []
            for one, answer in self.collectors.ask("/rollout", bodies).items():
                try:
                    seen.append(trajectory_of(unpack(answer), MOMENTS))
                except (ValueError, KeyError) as error:
                    self.collectors.drop(one, error)
            if seen:
                parts: list[Any] = [np.concatenate(column, axis=1) for column in zip(*seen, strict=True)]
                return Trajectory(*parts), len(seen)


def train(job: Job, pace: float) -> int:
    learnt = untaught(SEED)
    for step in range(1, STEPS + 1):
        begun = time.monotonic()
        seen, collectors = job.collect(learnt.vector, step)
        learnt, learners = improve_by(job.learners, learnt, seen, (SEED, step), PATIENCE)
        reached = mean_return(learnt.vector, EPISODES, step)
        say(f"step {step}  return {reached:.1f}  collectors {collectors}  learners {learners}")
        if reached >= GOOD:
            say(f"solved: the pole stood for {reached:.1f} moments in the mean of {EPISODES} episodes")
            return 0
        time.sleep(max(0.0, begun + pace - time.monotonic()))
    say(f"not solved in {STEPS} steps")
    return 1


def main() -> int:
    end_on_sigterm(1)
    server = DiServer(os.environ)
    wanted = int(os.environ.get("COLLECTORS", "1")), int(os.environ.get("LEARNERS", "1"))
    try:
        asked = server.ask(*wanted)
    except TROUBLE as error:
        sys.exit(f"di-server gave us no replicas: {error}")
    say(f"di-server at {os.environ['KUBERNETES_SERVER_URL']} gave us {asked['collectors']} and {asked['learners']}")
    job = Job(server)
    threading.Thread(target=job.look, daemon=True).start()
    try:
        return train(job, pace=float(os.environ.get("SECONDS_PER_STEP", "0")))
    except TimeoutError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())
