"""A collector: plays CartPole with the policy that it is given, and answers with all that it saw."""

import os
import threading

import numpy as np

from examples.cartpole.pole import Poles
from examples.cartpole.wire import number_of, pack, unpack, vector_of
from examples.rl.web import Call, serve

CARTS = 4
MOMENTS = 128  # of one rollout


class Collector:
    def __init__(self) -> None:
        self._poles: Poles | None = None
        self._turn = threading.Lock()

    def rollout(self, call: Call) -> bytes:
        """The dice follow from what the coordinator says, so that the same run gives the same numbers."""
        asked = unpack(call.body)
        vector, seed = vector_of(asked, "vector"), [number_of(asked, name) for name in ("seed", "step", "rank")]
        with self._turn:
            if self._poles is None:
                self._poles = Poles(CARTS, int(np.random.default_rng(seed).integers(2**31)))
            return pack(**self._poles.rollout(vector, MOMENTS, seed)._asdict())


def main() -> None:
    routes = {("GET", "/ping"): lambda _: b"collector", ("POST", "/rollout"): Collector().rollout}
    serve("collector", {int(os.environ["COLLECTOR_PORT"]): routes})


if __name__ == "__main__":
    main()
