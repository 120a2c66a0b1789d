"""Limits the requests that are in flight for one namespace: the connections, and what the API server can do at a time,
are for the jobs of all tenants."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NamespaceLimit:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight: dict[str, int] = {}
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def request(self, namespace: str, *, first: bool = False) -> AsyncIterator[None]:
        """For the time of one request. Waits while the namespace has its limit in flight; with ``first`` before all
        others of the namespace."""
        await self._enter(namespace, first=first)
        try:
            yield
        finally:
            self._leave(namespace)

    async def _enter(self, namespace: str, *, first: bool) -> None:
        in_flight = self._in_flight.get(namespace, 0)
        if in_flight < self._limit:
            self._in_flight[namespace] = in_flight + 1
            return
        waiter = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(namespace, deque())
        if first:
            waiters.appendleft(waiter)
        else:
            waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._leave(namespace)  # its turn had come already
            raise

    def _leave(self, namespace: str) -> None:
        """The next waiter takes over the place, if there is one."""
        waiters = self._waiters.get(namespace)
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._waiters.pop(namespace, None)
        self._in_flight[namespace] -= 1
        if not self._in_flight[namespace]:
            del self._in_flight[namespace]
