"""A learner: gets what was learnt so far and what was seen, and answers with what is to be learnt from it.

It keeps nothing. Behind an aggregator it may stand for several ranks, each with a port of its own.
"""

import os

from examples.cartpole.ppo import improve
from examples.cartpole.wire import learnt_of, number_of, pack, trajectory_of, unpack
from examples.rl.web import Call, serve


def learn(call: Call) -> bytes:
    asked = unpack(call.body)
    seed = [number_of(asked, name) for name in ("seed", "step", "rank")]
    return pack(**improve(learnt_of(asked), trajectory_of(asked), seed)._asdict())


def main() -> None:
    first = int(os.environ["LEARNER_PORT"]) + int(os.environ.get("START_RANK", "0"))
    ports = range(first, first + int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    serve("learner", {port: {("GET", "/ping"): lambda _: b"learner", ("POST", "/improve"): learn} for port in ports})


if __name__ == "__main__":
    main()
