"""Shares a question to the API server among the requests that ask it at the same time."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Flights(Generic[K, V]):
    def __init__(self) -> None:
        self._flights: dict[K, asyncio.Task[V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._flights

    async def join(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The answer to the question in flight, or to a new one. A request that goes does not end the question."""
        if (flight := self._flights.get(key)) is None:
            flight = self._flights[key] = asyncio.create_task(ask())
            flight.add_done_callback(partial(self._land, key))
        return await asyncio.shield(flight)

    def _land(self, key: K, flight: asyncio.Task[V]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # every request that waited for it may have gone
