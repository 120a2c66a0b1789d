"""How trainers and server talk: one message is rank, step and a vector of numbers, and so is its answer.

On the wire: three integers of 32 bits (rank, step, how many numbers follow), then the numbers as little-endian
floats of 32 bits. Nothing in a message is code, and no message is longer than LIMIT.
"""

import struct
from io import BufferedIOBase
from typing import NamedTuple

import numpy as np

from examples.digits.network import Vector

NUMBER = np.dtype("<f4")
LIMIT = 1_000_000  # numbers in a message
NOTHING: Vector = np.zeros(0, NUMBER)

_HEADER = struct.Struct("!iiI")


class Message(NamedTuple):
    rank: int
    step: int
    vector: Vector


def send(stream: BufferedIOBase, message: Message) -> None:
    numbers = message.vector.astype(NUMBER, copy=False)
    stream.write(_HEADER.pack(message.rank, message.step, numbers.size) + numbers.tobytes())
    stream.flush()


def receive(stream: BufferedIOBase) -> Message:
    """The next message. OSError when the other side has gone, ValueError when it does not speak our language."""
    rank, step, count = _HEADER.unpack(_read(stream, _HEADER.size))
    if count > LIMIT:
        raise ValueError(f"a message of {count} numbers is longer than {LIMIT}")
    return Message(rank, step, np.frombuffer(_read(stream, count * NUMBER.itemsize), NUMBER))


def _read(stream: BufferedIOBase, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionError("the connection was closed")
    return data
