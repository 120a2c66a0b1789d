"""A small network that tells digits apart: 64 pixels, 64 hidden units, 10 digits.

All its parameters are one flat vector, because that is what trainers and server exchange and what is saved.
"""

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]

SHAPES = ((64, 64), (64,), (64, 10), (10,))
SIZE = sum(math.prod(shape) for shape in SHAPES)
STEPS = 600  # so often the parameters change, then the training is over

_ENDS = np.cumsum([math.prod(shape) for shape in SHAPES])


def layers(vector: Vector) -> list[Vector]:
    """Weights and biases of both layers: views into the vector."""
    return [part.reshape(shape) for part, shape in zip(np.split(vector, _ENDS[:-1]), SHAPES, strict=True)]


def initial(seed: int) -> Vector:
    """Random weights of a size that keeps the signal alive, and no bias."""
    vector = np.zeros(SIZE, np.float32)
    random = np.random.default_rng(seed)
    for layer in layers(vector):
        if layer.ndim == 2:
            layer[:] = random.normal(0.0, math.sqrt(2 / len(layer)), layer.shape)
    return vector


def loss_and_gradient(vector: Vector, images: Vector, labels: Labels) -> tuple[float, Vector]:
    """The mean cross entropy of a batch, and where it rises."""
    w1, b1, w2, b2 = layers(vector)
    hidden = np.maximum(images @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(-np.log(chances[rows, labels] + 1e-9).mean())

    chances[rows, labels] -= 1
    error = chances / len(labels)
    back = (error @ w2.T) * (hidden > 0)
    parts = (images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))
    return loss, np.concatenate([part.ravel() for part in parts])


def accuracy(vector: Vector, images: Vector, labels: Labels) -> float:
    """The share of the images that the network names rightly."""
    w1, b1, w2, b2 = layers(vector)
    scores = np.maximum(images @ w1 + b1, 0) @ w2 + b2
    return float((scores.argmax(axis=1) == labels).mean())
