"""Request bodies in bounded memory: the bytes of all bodies in flight come out of one budget."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


class NoRoom(Exception):
    """Other bodies have used up the budget for as long as a request may wait."""


class BodyBudget:
    """Requests wait in their order, for at most ``patience`` seconds."""

    def __init__(self, limit: int, *, patience: float) -> None:
        self._free = limit
        self._limit = limit
        self._patience = patience
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserved(self, size: int) -> AsyncIterator[None]:
        """Holds so many bytes while the block runs. A size above the limit counts as the limit."""
        size = min(size, self._limit)
        await self._take(size)
        try:
            yield
        finally:
            self._give(size)

    async def _take(self, size: int) -> None:
        if not self._waiting and size <= self._free:
            self._free -= size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._give(size)  # the turn came in the same moment
            else:
                self._admit()
            if isinstance(error, TimeoutError):
                raise NoRoom from None
            raise

    def _give(self, size: int) -> None:
        self._free += size
        self._admit()

    def _admit(self) -> None:
        self._waiting = deque((size, turn) for size, turn in self._waiting if not turn.done())  # done: it gave up
        while self._waiting and self._waiting[0][0] <= self._free:
            size, turn = self._waiting.popleft()
            self._free -= size
            turn.set_result(None)


class TooLarge(Exception):
    """The body is larger than its limit."""


async def read(request: web.Request, limit: int, budget: BodyBudget) -> bytes:
    """The body, at most ``limit`` bytes of it. Raises ``NoRoom`` and ``TooLarge``."""
    if (request.content_length or 0) > limit:
        raise TooLarge
    async with budget.reserved(_size_of(request, limit)):
        size, chunks = 0, list[bytes]()
        try:
            # aiohttp's own read() has the body in memory up to three times.
            while chunk := await request.content.readany():
                size += len(chunk)
                if size > limit:
                    raise TooLarge
                chunks.append(chunk)
            return b"".join(chunks)
        finally:
            chunks.clear()  # the traceback of an error would keep them until the next garbage collection


def _size_of(request: web.Request, limit: int) -> int:
    """The bytes that a body may take: the limit if the request does not say, or sends the body compressed."""
    if not request.body_exists:
        return 0
    is_known = request.content_length is not None and "Content-Encoding" not in request.headers
    return (request.content_length or 0) if is_known else limit
