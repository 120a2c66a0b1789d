"""Whether an answer has arrived: written is not yet received.

DI-engine's client asks again, in the same words, when its connection breaks before the answer came. What its machine
has acknowledged it has; what was only handed to this machine's kernel may still get lost on the way. So the kernel is
asked how much of it the other side has not acknowledged.
"""

import asyncio
import os
from asyncio import BaseTransport
from fcntl import ioctl
from struct import unpack
from termios import TIOCOUTQ

PATIENCE = 5.0
"""Seconds. DI-engine's client asks again one second after its connection broke."""
POLLS = (0.0, 0.001, 0.005, 0.02, 0.1)
"""Seconds between looks; the last one again and again."""


async def arrived(transport: BaseTransport | None, patience: float = PATIENCE) -> bool:
    """True when the other side has acknowledged all that was written to this connection."""
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return False  # it broke in the meantime
    # A descriptor of our own: it can be asked after either side has closed the connection.
    descriptor = os.dup(socket.fileno())
    try:
        return await _acknowledged(descriptor, patience)
    finally:
        os.close(descriptor)


async def _acknowledged(descriptor: int, patience: float) -> bool:
    deadline = asyncio.get_running_loop().time() + patience
    looks = 0
    while (left := _unacknowledged(descriptor)) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(POLLS[min(looks, len(POLLS) - 1)])
        looks += 1
    return not left


def _unacknowledged(descriptor: int) -> int:
    """Bytes; 0 where the system does not say: then what is written counts as received."""
    try:
        number: int = unpack("i", ioctl(descriptor, TIOCOUTQ, bytes(4)))[0]
    except OSError:
        return 0
    return number
