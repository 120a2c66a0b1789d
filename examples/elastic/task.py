"""What is learnt: on which side of a hidden plane a point lies. Everybody can make the points; nobody has to send them.

The loss has one lowest place and the steps are short, so it falls with every step, however many workers share it.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]

POINTS, SIZE = 4096, 32
SEED = 3
LEARNING_RATE = 0.5
_RANDOM = np.random.default_rng(SEED)

points: Vector = _RANDOM.normal(size=(POINTS, SIZE)).astype(np.float32)
sides: Vector = np.sign(points @ _RANDOM.normal(size=SIZE)).astype(np.float32)


def share(place: int, of: int) -> slice:
    """The points of one worker. All workers together have every point once."""
    return slice(POINTS * place // of, POINTS * (place + 1) // of)


def loss(vector: Vector) -> float:
    return float(np.logaddexp(0, -sides * (points @ vector)).mean())


def slope(vector: Vector, of: slice) -> Vector:
    """How the loss rises with each parameter, summed over some points."""
    wrong = sides[of] / (1 + np.exp(sides[of] * (points[of] @ vector)))
    summed: Vector = -(wrong @ points[of])
    return summed
