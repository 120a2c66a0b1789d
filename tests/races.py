"""A plug-in for pytest (`-p tests.races`, `make races`): every request of a test takes its time, and so does every
watch by which it looks, each by chance and at its own pace.

Nothing is wrong with such a world: a busy machine is one. A test that fails here counts on somebody being faster than
somebody else, and fails some day without it, too.
"""

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from testbed.admin import Admin
from tests.faults.world import Object, World

REQUEST = 0.2
"""Seconds before a request and after it, in the mean."""
WATCH = 0.4
"""By which a watch falls behind, in the mean, when it does."""
HOW_OFTEN = 0.4
LONGEST = 1.5


def a_while(mean: float) -> float:
    return min(random.expovariate(1 / mean), LONGEST)


def pytest_configure(config: pytest.Config) -> None:
    _slow_down_requests()
    _slow_down_watches()


def _slow_down_requests() -> None:
    request = Admin.request

    async def late(self: Admin, *args: Any, **options: Any) -> Object:
        await asyncio.sleep(a_while(REQUEST))
        answer = await request(self, *args, **options)
        await asyncio.sleep(a_while(REQUEST))
        return answer

    Admin.request = late  # type: ignore[method-assign]  # of every client, whoever made it


def _slow_down_watches() -> None:
    """What one watch tells stays in its order; of two watches either may be ahead."""
    hear = World.hear
    told: defaultdict[tuple[int, str], float] = defaultdict(float)

    def late(self: World, resource: str, kind: str, found: Object) -> None:
        loop = asyncio.get_running_loop()
        lag = a_while(WATCH) if random.random() < HOW_OFTEN else 0.0
        due = max(loop.time() + lag, told[id(self), resource] + 1e-6)
        told[id(self), resource] = due
        loop.call_at(due, hear, self, resource, kind, found)

    World.hear = late  # type: ignore[method-assign]  # of every world, also of those that inherit it
