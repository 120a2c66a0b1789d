"""Poles on carts (Gymnasium's CartPole-v1): to learn from, and to test on.

An episode gives 1 for every moment in which the pole stands, and is cut off after 500.
"""

from typing import Any

import gymnasium
import numpy as np

from examples.cartpole.policy import Actions, Vector, log_chances
from examples.cartpole.ppo import Trajectory

LONGEST = 500


class Poles:
    """Some carts at once. What one rollout leaves standing, the next one goes on with."""

    def __init__(self, number: int, seed: int) -> None:
        self._carts: Any = gymnasium.make_vec("CartPole-v1", num_envs=number, vectorization_mode="vector_entry_point")
        self._observed, _ = self._carts.reset(seed=seed)
        self._is_over = np.zeros(number, np.bool_)

    def rollout(self, vector: Vector, moments: int, seed: list[int]) -> Trajectory:
        """Play by the policy's chances."""
        dice = np.random.default_rng(seed).random((moments, len(self._is_over)))
        observed, rows = [self._observed], []
        for draw in dice:
            logs = log_chances(vector, observed[-1])
            actions: Actions = (draw < np.exp(logs[:, 1])).astype(np.int8)
            chosen = np.take_along_axis(logs, actions[:, None].astype(np.intp), axis=1)[:, 0]
            valid = ~self._is_over  # the carts begin anew by themselves, in the moment after the end
            self._observed, rewards, fallen, cut, _ = self._carts.step(actions.astype(np.int64))
            observed.append(self._observed)
            rows.append((actions, chosen, rewards, fallen, cut, valid))
            self._is_over = fallen | cut
        return Trajectory(np.stack(observed), *map(np.stack, zip(*rows, strict=True)))


def mean_return(vector: Vector, episodes: int, seed: int) -> float:
    """How long the pole stands, by the policy's chances: a policy that is sure by luck alone does not pass."""
    carts = Poles(episodes, seed)
    played = carts.rollout(vector, LONGEST, [seed])
    is_first = np.cumsum(~played.valid, axis=0) == 0  # until the first cart of each place begins anew
    return float((played.rewards * is_first).sum()) / episodes
