"""How the processes talk: a message is some words and numbers, and perhaps a vector.

On the wire: the length of what follows as an integer of 32 bits, then a JSON object of that length; if it has `count`,
so many little-endian floats of 32 bits follow. Nothing in a message is code, and no message is longer than the limits.
"""

import json
import socket
import struct
import time
from io import BufferedIOBase
from typing import Any, NamedTuple

import numpy as np

from examples.digits.network import Vector

NUMBER = np.dtype("<f4")
NOTHING: Vector = np.zeros(0, NUMBER)
LONGEST_WORDS = 64 * 1024
LONGEST_VECTOR = 1_000_000
PAUSE = 0.2  # seconds between two attempts to connect

_LENGTH = struct.Struct("!I")


class Message(NamedTuple):
    words: dict[str, Any]
    vector: Vector = NOTHING


def send(stream: BufferedIOBase, words: dict[str, Any], vector: Vector = NOTHING) -> None:
    numbers = vector.astype(NUMBER, copy=False)
    said = json.dumps({**words, "count": numbers.size} if numbers.size else words).encode()
    stream.write(_LENGTH.pack(len(said)) + said + numbers.tobytes())
    stream.flush()


def receive(stream: BufferedIOBase) -> Message:
    """The next message. OSError when the other side has gone, ValueError when it does not speak our language."""
    (length,) = _LENGTH.unpack(_read(stream, _LENGTH.size))
    if length > LONGEST_WORDS:
        raise ValueError(f"{length} bytes of words are more than {LONGEST_WORDS}")
    words = json.loads(_read(stream, length))
    count = words.pop("count", 0) if isinstance(words, dict) else None
    if not isinstance(count, int) or not 0 <= count <= LONGEST_VECTOR:
        raise ValueError(f"not a message of ours: {words!r:.100}")
    return Message(words, np.frombuffer(_read(stream, count * NUMBER.itemsize), NUMBER))


def _read(stream: BufferedIOBase, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionError("the connection was closed")
    return data


def connect(address: tuple[str, int], *, patience: float, silence: float | None) -> socket.socket:
    """Try until somebody listens there; OSError when nobody does in time. ``silence`` is how long a word may take."""
    deadline = time.monotonic() + patience
    while True:
        try:
            connection = socket.create_connection(address, timeout=patience)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)
        else:
            connection.settimeout(silence)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages are short, somebody waits
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection
