"""Many plays side by side on one control plane, each in a namespace of its own; none of them hides how another went.

outcomes = play_all(plane, "end", {row.id: partial(play, row=row) for row in ROWS})
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

from testbed.admin import Admin
from testbed.embedded import EmbeddedPlane
from testbed.operator import OperatorProcess, install
from testbed.plane import ControlPlane
from tests.integration.scene import Chronicle, Scene, give_aggregators, give_node

T = TypeVar("T")

AT_ONCE = 48
"""Plays at a time: with more of them each one only takes longer."""


class Stage:
    def __init__(self, admin: Admin, world: Chronicle) -> None:
        self._admin = admin
        self._world = world

    async def scene(self, namespace: str) -> Scene:
        """A namespace that is not there yet."""
        await self._admin.create("namespaces", {"metadata": {"name": namespace}})
        return Scene(self._admin, self._world, namespace)

    async def play(self, prefix: str, plays: Mapping[str, Callable[[Scene], Awaitable[T]]]) -> dict[str, T | str]:
        """What every play came to, or the sentence that says why it came to nothing."""
        room = asyncio.Semaphore(AT_ONCE)

        async def one(name: str, play: Callable[[Scene], Awaitable[T]]) -> T | str:
            async with room:
                scene = await self.scene(f"{prefix}-{name.lower()}")
                return await scene.outcome(play(scene))

        found = await asyncio.gather(*(one(name, play) for name, play in plays.items()))
        return dict(zip(plays, found, strict=True))


@asynccontextmanager
async def stage_on(plane: ControlPlane) -> AsyncIterator[Stage]:
    async with Admin.of(plane) as admin, Chronicle(plane) as world:
        yield Stage(admin, world)


def play_all(
    plane: ControlPlane, prefix: str, plays: Mapping[str, Callable[[Scene], Awaitable[T]]]
) -> dict[str, T | str]:
    async def play() -> dict[str, T | str]:
        async with stage_on(plane) as stage:
            return await stage.play(prefix, plays)

    return asyncio.run(play())


@contextmanager
def embedded_plane(binaries: Path) -> Iterator[ControlPlane]:
    """The embedded control plane with all that the suite's real one has, and an operator that drives its jobs."""
    with EmbeddedPlane(binaries=binaries) as plane:
        install(plane)
        give_aggregators(plane)
        give_node(plane)
        with OperatorProcess(plane):
            yield plane
