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
from types import TracebackType
from typing import Self

PATIENCE = 5.0
"""Seconds. DI-engine's client asks again one second after its connection broke."""
POLLS = (0.001, 0.005, 0.02, 0.05)
"""Seconds between looks; the last one again and again."""


class Delivery:
    """An answer that was written to a connection, from then on until it is closed.

    It keeps a descriptor of its own, which can be asked after either side has closed the connection.
    """

    def __init__(self, transport: BaseTransport | None) -> None:
        socket = None if transport is None else transport.get_extra_info("socket")
        number = -1 if socket is None else socket.fileno()
        self._descriptor = os.dup(number) if number >= 0 else None

    @property
    def has_arrived(self) -> bool:
        """True when the other side has acknowledged all that was written to this connection."""
        return self._descriptor is not None and not _unacknowledged(self._descriptor)

    async def arrives(self, patience: float = PATIENCE) -> bool:
        """False when it has not arrived in time, or its connection is gone."""
        deadline = asyncio.get_running_loop().time() + patience
        looks = 0
        while not (found := self.has_arrived) and self._descriptor is not None:
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(POLLS[min(looks, len(POLLS) - 1)])
            looks += 1
        return found

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()


def _unacknowledged(descriptor: int) -> int:
    """Bytes; 0 where the system does not say: then what is written counts as received."""
    try:
        number: int = unpack("i", ioctl(descriptor, TIOCOUTQ, bytes(4)))[0]
    except OSError:
        return 0
    return number
