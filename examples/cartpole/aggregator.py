"""An aggregator: a learner for the coordinator, but it has the work done by the learners that di-server gave it."""

import os
import threading
import time

from examples.cartpole.crew import Crew
from examples.cartpole.merge import improve_by
from examples.cartpole.wire import learnt_of, number_of, pack, trajectory_of, unpack
from examples.rl.diserver import TROUBLE, DiServer, Replicas
from examples.rl.say import say
from examples.rl.web import Call, Refused, serve

LOOK_EVERY = 1.0  # seconds
PATIENCE = 10.0  # seconds for a first learner; shorter than the coordinator waits for us


class Aggregator:
    def __init__(self, server: DiServer) -> None:
        self._server = server
        self._learners = Crew("learner")

    def improve(self, call: Call) -> bytes:
        asked = unpack(call.body)
        seed = number_of(asked, "seed"), number_of(asked, "step")
        try:
            learnt, _ = improve_by(self._learners, learnt_of(asked), trajectory_of(asked), seed, PATIENCE)
        except TimeoutError as error:
            raise Refused(503, str(error).encode()) from error
        return pack(**learnt._asdict())

    def look(self) -> None:
        """Again and again: learners come and go."""
        while True:
            try:
                self._learners.meet(self._server.replicas(of="aggregator").learners)
                if lost := self._learners.lost():
                    self._server.report_failed(Replicas([], lost))
            except TROUBLE as error:
                say(f"di-server: {error}")
            time.sleep(LOOK_EVERY)


def main() -> None:
    aggregator = Aggregator(DiServer(os.environ))
    threading.Thread(target=aggregator.look, daemon=True).start()
    routes = {("GET", "/ping"): lambda _: b"aggregator", ("POST", "/improve"): aggregator.improve}
    serve("aggregator", {int(os.environ["AGGREGATOR_PORT"]): routes})


if __name__ == "__main__":
    main()
