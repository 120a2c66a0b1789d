"""How workers and server talk: a line of JSON that says who, which step, and how many points and numbers; then the
numbers as little-endian floats of 32 bits. Nothing in it is code, and no message is longer than LIMIT."""

import json
from io import BufferedIOBase
from typing import NamedTuple

import numpy as np

from examples.elastic.task import Vector

NUMBER = np.dtype("<f4")
LIMIT = 4096  # bytes of the line, and numbers behind it
NOTHING: Vector = np.zeros(0, NUMBER)


class Message(NamedTuple):
    """A slope over so many points, or the parameters of a step."""

    name: str
    step: int
    points: int
    vector: Vector


def send(stream: BufferedIOBase, message: Message) -> None:
    numbers = message.vector.astype(NUMBER, copy=False)
    line = json.dumps([message.name, message.step, message.points, numbers.size])
    stream.write(line.encode() + b"\n" + numbers.tobytes())
    stream.flush()


def receive(stream: BufferedIOBase) -> Message:
    """The next message. OSError when the other side has gone, ValueError when it does not speak our language."""
    line = stream.readline(LIMIT)
    if not line:
        raise ConnectionError("the connection was closed")
    match json.loads(line):
        case [str() as name, int() as step, int() as points, int() as size] if 0 <= size <= LIMIT:
            data = stream.read(size * NUMBER.itemsize)
            if len(data) < size * NUMBER.itemsize:
                raise ConnectionError("the connection was closed")
            return Message(name, step, points, np.frombuffer(data, NUMBER))
    raise ValueError(f"{line!r} is not the beginning of a message")
