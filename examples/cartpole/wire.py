"""How numbers travel between the programs: named arrays as an .npz file in the body of a request or an answer.

Nothing in it is code: arrays of objects are refused. What does not have the shape that it should have is refused, too.
"""

import io
import zipfile
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from examples.cartpole.policy import SIZE, Vector
from examples.cartpole.ppo import Learnt, Trajectory
from examples.rl.web import LIMIT

Arrays: TypeAlias = dict[str, NDArray[Any]]

_TYPES = {"observations": "f4", "actions": "i1", "log_chances": "f4", "rewards": "f4"}


def pack(**arrays: Any) -> bytes:
    """Numbers and arrays of numbers by name."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack(data: bytes) -> Arrays:
    """ValueError when it is not what `pack` makes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            if sum(member.file_size for member in members.infolist()) > LIMIT:
                raise ValueError(f"more than {LIMIT} bytes of numbers")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return dict(file)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError) as error:
        raise ValueError(f"no arrays: {error}") from error


def learnt_of(arrays: Arrays) -> Learnt:
    """What was learnt, if it is of our network."""
    vector, mean, square = (vector_of(arrays, name) for name in ("vector", "mean", "square"))
    learnt = Learnt(vector, mean, square, number_of(arrays, "minibatches"))
    if (square < 0).any():
        raise ValueError("a mean of squares is not negative")
    return learnt


def vector_of(arrays: Arrays, name: str) -> Vector:
    vector = arrays[name]
    if vector.shape != (SIZE,) or vector.dtype != np.float32 or not np.isfinite(vector).all():
        raise ValueError(f"{name} is no vector of {SIZE} finite numbers")
    return vector


def number_of(arrays: Arrays, name: str) -> int:
    number = arrays[name]
    if number.shape != () or number.dtype.kind != "i" or number < 0:
        raise ValueError(f"{name} is no number from 0 on")
    return int(number)


def trajectory_of(arrays: Arrays, moments: int | None = None) -> Trajectory:
    """What collectors have seen, if all its parts fit together, and it is that long."""
    seen = Trajectory(*(arrays[name] for name in Trajectory._fields))
    if seen.rewards.ndim != 2:
        raise ValueError("rewards have moments and carts")
    if moments not in (None, len(seen.rewards)):
        raise ValueError(f"{len(seen.rewards)} moments instead of {moments}")
    moments, carts = seen.rewards.shape
    for name, part in zip(Trajectory._fields, seen, strict=True):
        shape = (moments + 1, carts, 4) if name == "observations" else (moments, carts)
        if part.shape != shape or part.dtype != np.dtype(_TYPES.get(name, "?")) or not np.isfinite(part).all():
            raise ValueError(
                f"{name} of {moments} moments and {carts} carts should be {shape}: {part.dtype}{part.shape}"
            )
    if not seen.valid.any() or not np.isin(seen.actions, (0, 1)).all():
        raise ValueError("there is nothing to learn from it")
    return seen
