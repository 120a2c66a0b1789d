"""What is learnt: an actor that pushes the cart left or right, and a critic that says how well things stand.

Both have one hidden layer of 64 units. All their parameters are one flat vector, because that is what travels between
the programs. A vector has an actor of its own and a critic of its own: they share no weights.
"""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.floating[Any]]  # of 32 bits, always
Actions: TypeAlias = NDArray[np.int8]
Flags: TypeAlias = NDArray[np.bool_]

SHAPES = ((4, 64), (64,), (64, 2), (2,), (4, 64), (64,), (64, 1), (1,))
SIZE = sum(math.prod(shape) for shape in SHAPES)

_ENDS = np.cumsum([math.prod(shape) for shape in SHAPES])


class Layers(NamedTuple):
    """Weights and biases: first those of the actor, then those of the critic."""

    actor_in: Vector
    actor_in_bias: Vector
    actor_out: Vector
    actor_out_bias: Vector
    critic_in: Vector
    critic_in_bias: Vector
    critic_out: Vector
    critic_out_bias: Vector


def layers(vector: Vector) -> Layers:
    """Views into the vector."""
    return Layers(*(part.reshape(shape) for part, shape in zip(np.split(vector, _ENDS[:-1]), SHAPES, strict=True)))


def initial(seed: int) -> Vector:
    """Random weights and no bias; the actor's last layer is small, so that at first both actions are as likely."""
    vector = np.zeros(SIZE, np.float32)
    random = np.random.default_rng(seed)
    net = layers(vector)
    for layer in (net.actor_in, net.actor_out, net.critic_in, net.critic_out):
        layer[:] = random.normal(0.0, 1 / math.sqrt(len(layer)), layer.shape)
    net.actor_out[:] *= 0.01
    return vector


def log_chances(vector: Vector, observations: Vector) -> Vector:
    """The logarithm of how likely each action is, a row for each observation."""
    net = layers(vector)
    hidden = np.tanh(observations @ net.actor_in + net.actor_in_bias)
    return _log_softmax(hidden @ net.actor_out + net.actor_out_bias)


def values(vector: Vector, observations: Vector) -> Vector:
    """How much reward the critic still expects from each observation on."""
    net = layers(vector)
    hidden = np.tanh(observations @ net.critic_in + net.critic_in_bias)
    found: Vector = (hidden @ net.critic_out + net.critic_out_bias)[..., 0]
    return found


def backward(vector: Vector, observations: Vector, by_score: Vector, by_value: Vector) -> Vector:
    """The gradient of a loss of which is known how it changes with the actor's scores and with the critic's values."""
    net = layers(vector)
    actor = np.tanh(observations @ net.actor_in + net.actor_in_bias)
    critic = np.tanh(observations @ net.critic_in + net.critic_in_bias)
    column = by_value[:, None]
    to_actor = (by_score @ net.actor_out.T) * (1 - actor**2)
    to_critic = (column @ net.critic_out.T) * (1 - critic**2)
    parts = Layers(
        observations.T @ to_actor,
        to_actor.sum(axis=0),
        actor.T @ by_score,
        by_score.sum(axis=0),
        observations.T @ to_critic,
        to_critic.sum(axis=0),
        critic.T @ column,
        column.sum(axis=0),
    )
    return np.concatenate([part.ravel() for part in parts])


def _log_softmax(scores: Vector) -> Vector:
    shifted = scores - scores.max(axis=-1, keepdims=True)
    found: Vector = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
