"""The lines of one log response."""

import aiohttp

from trainmaster.core.errors import Unreachable
from trainmaster.kube.transport import explain, safe_cause

LONGEST_LINE = 64 * 1024
"""Bytes; a longer line is returned in parts."""


class LogLines:
    """The lines of a container, without their ends; the last one may be incomplete. Ends when the server ends the
    log: at its end, or when the container has ended."""

    def __init__(self, response: aiohttp.ClientResponse, *, what: object, idle: float) -> None:
        self._content = response.content
        self._what = what
        self._idle = idle
        self._ready: list[bytes] = []
        self._rest = b""
        self._is_over = False

    def __aiter__(self) -> "LogLines":
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            await self._read()
        return self._ready.pop()

    async def _read(self) -> None:
        try:
            chunk = await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{self._what}: {explain(error, self._idle)}") from safe_cause(error)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk or len(self._rest) >= LONGEST_LINE:
            lines += [self._rest] if self._rest else []
            self._rest = b""
        self._is_over = not chunk
        self._ready = lines[::-1]
