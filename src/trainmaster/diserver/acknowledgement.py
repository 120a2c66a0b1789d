"""Waits until the client's machine has acknowledged an answer at TCP level.

DI-engine's client sends the same request again if its connection breaks before the answer. Bytes that were only written
to the socket may still be lost, so the kernel is asked for the number of unacknowledged bytes (TIOCOUTQ).
"""

import asyncio
import os
from asyncio import BaseTransport
from fcntl import ioctl
from struct import unpack
from termios import TIOCOUTQ
from types import TracebackType
from typing import Self

ACKNOWLEDGE_TIMEOUT = 5.0
"""Seconds. DI-engine's client sends its request again one second after the connection broke."""
POLLS = (0.001, 0.005, 0.02, 0.05)
"""Seconds between polls; the last value repeats."""


class SentAnswer:
    """An answer that was written to a connection.

    It has a duplicate of the socket's descriptor, which stays usable after either side has closed the connection.
    """

    def __init__(self, transport: BaseTransport | None) -> None:
        socket = None if transport is None else transport.get_extra_info("socket")
        number = -1 if socket is None else socket.fileno()
        self._descriptor = os.dup(number) if number >= 0 else None

    @property
    def is_acknowledged(self) -> bool:
        """True if the peer has acknowledged all bytes that were written to this connection."""
        return self._descriptor is not None and not _unacknowledged(self._descriptor)

    async def acknowledged(self, timeout: float = ACKNOWLEDGE_TIMEOUT) -> bool:
        """False if the answer was not acknowledged in time or the connection is gone."""
        deadline = asyncio.get_running_loop().time() + timeout
        looks = 0
        while not (is_acknowledged := self.is_acknowledged) and self._descriptor is not None:
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(POLLS[min(looks, len(POLLS) - 1)])
            looks += 1
        return is_acknowledged

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()


def _unacknowledged(descriptor: int) -> int:
    """Number of bytes. 0 if the system does not support the call: written bytes then count as received."""
    try:
        number: int = unpack("i", ioctl(descriptor, TIOCOUTQ, bytes(4)))[0]
    except OSError:
        return 0
    return number
