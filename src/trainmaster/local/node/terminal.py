"""The outer end of a pseudo-terminal. uvloop's streams cannot read one, so this waits for its descriptor."""

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable

LARGEST_SIDE = 0xFFFF
"""In characters."""


class Terminal:
    def __init__(self) -> None:
        self._outer, self.inner = os.openpty()
        """``inner`` is for the program; ``started`` closes it here."""
        os.set_blocking(self._outer, False)

    def started(self) -> None:
        os.close(self.inner)

    async def read(self, limit: int) -> bytes:
        """Some bytes; empty when no program has the terminal open."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._outer, limit)
            except BlockingIOError:
                await self._until(loop.add_reader, loop.remove_reader)
            except OSError:
                return b""

    async def write(self, data: bytes) -> None:
        """What no program can read any more is dropped."""
        loop = asyncio.get_running_loop()
        while data:
            try:
                data = data[os.write(self._outer, data) :]
            except BlockingIOError:
                await self._until(loop.add_writer, loop.remove_writer)
            except OSError:
                return

    async def _until(self, add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], bool]) -> None:
        ready = asyncio.Event()
        add(self._outer, ready.set)
        try:
            await ready.wait()
        finally:
            remove(self._outer)

    def resize(self, width: int, height: int) -> None:
        if 0 <= width <= LARGEST_SIDE and 0 <= height <= LARGEST_SIDE:
            fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def close(self) -> None:
        """Programs that still have it open get SIGHUP."""
        os.close(self._outer)
