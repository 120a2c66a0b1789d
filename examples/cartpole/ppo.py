"""How the policy gets better: proximal policy optimisation with Adam, on what the collectors have seen.

Everything that is carried from one update to the next is in `Learnt`, which belongs to the coordinator: a learner
gets it together with the trajectories and answers with the next one. Whoever dies takes nothing along.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from examples.cartpole.policy import SIZE, Actions, Flags, Vector, backward, initial, log_chances, values

DISCOUNT = 0.98
SMOOTHING = 0.9  # of advantages, the λ of GAE
CLIP = 0.2
LEARNING_RATE = 1e-3
EPOCHS = 10
MINIBATCH = 256
VALUE_WEIGHT = 0.5
LONGEST_STEP = 0.5  # of a gradient

_DECAY, _DECAY_OF_SQUARES, _TINY = 0.9, 0.999, 1e-8


class Learnt(NamedTuple):
    """The parameters, Adam's two moments of their gradient, and how many minibatches went into them."""

    vector: Vector
    mean: Vector
    square: Vector
    minibatches: int


class Trajectory(NamedTuple):
    """T moments of N carts. There are T + 1 observations: the last one is what the last action led to."""

    observations: Vector  # T + 1, N, 4
    actions: Actions  # T, N
    log_chances: Vector  # T, N: of these actions, when they were taken
    rewards: Vector  # T, N
    fallen: Flags  # T, N: the episode is over, there is nothing more to expect
    cut: Flags  # T, N: the episode was ended by the clock; the pole still stands
    valid: Flags  # T, N: a moment in which the environment only begins anew teaches nothing


class Samples(NamedTuple):
    """Moments whose order does not matter any more."""

    observations: Vector
    actions: Actions
    log_chances: Vector
    advantages: Vector
    returns: Vector

    def take(self, rows: NDArray[np.intp] | Flags) -> "Samples":
        parts: list[Any] = [part[rows] for part in self]
        return Samples(*parts)


def untaught(seed: int) -> Learnt:
    return Learnt(initial(seed), np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32), 0)


def improve(learnt: Learnt, seen: Trajectory, seed: Sequence[int]) -> Learnt:
    """One update: some epochs over all samples, a minibatch at a time. The same input gives the same numbers."""
    random = np.random.default_rng(seed)
    samples = samples_of(learnt.vector, seen)
    spread = samples.advantages.std() + _TINY
    samples = samples._replace(advantages=(samples.advantages - samples.advantages.mean()) / spread)
    for _ in range(EPOCHS):
        order = random.permutation(len(samples.actions))
        for start in range(0, len(order), MINIBATCH):
            learnt = descend(learnt, gradient(learnt.vector, samples.take(order[start : start + MINIBATCH])))
    return learnt


def merged(parts: Sequence[Learnt], weights: Sequence[int]) -> Learnt:
    """The weighted mean of what several learners made of the same beginning, each with its share of the samples."""
    share = np.asarray(weights, np.float32) / sum(weights)
    vector, mean, square = (np.tensordot(share, np.stack(column), 1) for column in list(zip(*parts, strict=True))[:3])
    return Learnt(vector, mean, square, max(part.minibatches for part in parts))


def samples_of(vector: Vector, seen: Trajectory) -> Samples:
    """With advantages by GAE: how much better than expected did it go on?"""
    expected = values(vector, seen.observations)
    advantages = np.zeros_like(seen.rewards)
    later = np.zeros_like(seen.rewards[0])
    for moment in reversed(range(len(seen.rewards))):
        following = np.where(seen.fallen[moment], 0, expected[moment + 1])
        surprise = seen.rewards[moment] + DISCOUNT * following - expected[moment]
        goes_on = ~(seen.fallen[moment] | seen.cut[moment])
        later = surprise + DISCOUNT * SMOOTHING * goes_on * later
        advantages[moment] = later
    return Samples(seen.observations[:-1], seen.actions, seen.log_chances, advantages, advantages + expected[:-1]).take(
        seen.valid
    )


def gradient(vector: Vector, batch: Samples) -> Vector:
    """Of PPO's clipped loss and of the critic's mean squared error, where they rise."""
    count = len(batch.actions)
    rows = np.arange(count)
    logs = log_chances(vector, batch.observations)
    ratio = np.exp(logs[rows, batch.actions] - batch.log_chances)
    # Beyond the clip the loss is flat, but only on the side where going further would seem to pay.
    is_flat = np.where(batch.advantages > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
    by_log = -(batch.advantages * ratio * ~is_flat) / count
    by_score = -np.exp(logs) * by_log[:, None]
    by_score[rows, batch.actions] += by_log
    by_value = 2 * VALUE_WEIGHT * (values(vector, batch.observations) - batch.returns) / count
    found = backward(vector, batch.observations, by_score, by_value)
    return found * min(1.0, LONGEST_STEP / (float(np.linalg.norm(found)) + _TINY))


def descend(learnt: Learnt, slope: Vector) -> Learnt:
    """One step of Adam."""
    count = learnt.minibatches + 1
    mean = _DECAY * learnt.mean + (1 - _DECAY) * slope
    square = _DECAY_OF_SQUARES * learnt.square + (1 - _DECAY_OF_SQUARES) * slope**2
    step = (mean / (1 - _DECAY**count)) / (np.sqrt(square / (1 - _DECAY_OF_SQUARES**count)) + _TINY)
    return Learnt(learnt.vector - LEARNING_RATE * step, mean, square, count)
