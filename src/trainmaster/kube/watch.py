"""The lines of one watch response."""

from collections import deque

import aiohttp

from trainmaster.core.errors import Unreachable
from trainmaster.kube.line import LineBuffer
from trainmaster.kube.transport import explain, safe_cause

_LONGEST_LINE = 16 * 1024 * 1024


class WatchLines:
    """Ends when the server ends the watch, or after ``idle`` seconds of silence: the connection may be broken. That is
    no error, because an API server sends no bookmarks for a resource that has not changed since it started. It is a
    class and not a generator, so that a reader that stops early does not have to close it.

    If the connection breaks within a line, the incomplete line is dropped. The event is received again when the caller
    watches on from the last version that it has seen.
    """

    def __init__(self, response: aiohttp.ClientResponse, *, what: object, idle: float) -> None:
        self._content = response.content
        self._what = what
        self._idle = idle
        self._buffer = LineBuffer()
        self._ready: deque[bytes] = deque()

    def __aiter__(self) -> "WatchLines":
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            chunk = await self._chunk()
            if not chunk:
                if self._buffer.pending:
                    raise Unreachable(f"{self._what}: the connection was cut in the middle of a line")
                raise StopAsyncIteration
            self._ready.extend(self._buffer.feed(chunk))
            if self._buffer.pending > _LONGEST_LINE:
                raise Unreachable(f"{self._what}: a line is longer than {_LONGEST_LINE} bytes")
        return self._ready.popleft()

    async def _chunk(self) -> bytes:
        try:
            return await self._content.readany()
        except aiohttp.SocketTimeoutError:
            return b""
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{self._what}: {explain(error, self._idle)}") from safe_cause(error)
