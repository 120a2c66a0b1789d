"""Token buckets and short memories of callers, each in a table of bounded size.

A full table forgets the caller that was seen least recently. That is in favour of the caller: it has a full bucket the
next time.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from trainmaster.settings import Rate

ENTRIES = 4096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Buckets(Generic[K]):
    """One bucket for each caller."""

    def __init__(self, rate: Rate, entries: int = ENTRIES) -> None:
        self._rate = rate
        self._entries = entries
        self._buckets: OrderedDict[K, tuple[float, float]] = OrderedDict()
        """Tokens, and when they were counted."""

    def take(self, caller: K, now: float) -> bool:
        """False if this caller has sent too many requests."""
        tokens, then = self._buckets.pop(caller, (float(self._rate.burst), now))
        tokens = min(tokens + (now - then) * self._rate.per_second, self._rate.burst)
        is_given = tokens >= 1.0
        self._buckets[caller] = (tokens - 1.0 if is_given else tokens, now)
        if len(self._buckets) > self._entries:
            self._buckets.popitem(last=False)
        return is_given


class Recent(Generic[K, V]):
    """What was found out in the last ``seconds``."""

    def __init__(self, seconds: float, entries: int = ENTRIES) -> None:
        self._seconds = seconds
        self._entries = entries
        self._found: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K, now: float) -> V | None:
        until, value = self._found.get(key, (now, None))
        return value if now < until else None

    def put(self, key: K, value: V, now: float) -> None:
        self._found.pop(key, None)
        self._found[key] = (now + self._seconds, value)
        if len(self._found) > self._entries:
            self._found.popitem(last=False)
