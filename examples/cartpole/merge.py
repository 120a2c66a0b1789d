"""One update by several learners: each gets a share of what was seen, and the mean of their answers is what counts."""

import time

import numpy as np

from examples.cartpole.crew import Crew
from examples.cartpole.ppo import Learnt, Trajectory, merged
from examples.cartpole.wire import learnt_of, pack, unpack


def improve_by(
    crew: Crew, learnt: Learnt, seen: Trajectory, seed: tuple[int, int], patience: float
) -> tuple[Learnt, int]:
    """The next state, and of how many learners it is the mean. TimeoutError when there is none for that long.

    Who dies meanwhile takes only its share along; when nobody is left, all wait for the next one and begin again.
    """
    deadline = time.monotonic() + patience
    while True:
        members = crew.present(deadline)[: seen.rewards.shape[1]]  # nobody gets less than a cart
        shares = dict(zip(members, _split(seen, len(members)), strict=True))
        bodies = {
            one: pack(**learnt._asdict(), **share._asdict(), seed=seed[0], step=seed[1], rank=rank)
            for rank, (one, share) in enumerate(shares.items())
        }
        found: dict[str, Learnt] = {}
        for one, answer in crew.ask("/improve", bodies).items():
            try:
                found[one] = learnt_of(unpack(answer))
            except (ValueError, KeyError) as error:
                crew.drop(one, error)
        if found:
            return merged(list(found.values()), [shares[one].rewards.shape[1] for one in found]), len(found)


def _split(seen: Trajectory, number: int) -> list[Trajectory]:
    columns = [np.array_split(part, number, axis=1) for part in seen]
    return [Trajectory(*parts) for parts in zip(*columns, strict=True)]
