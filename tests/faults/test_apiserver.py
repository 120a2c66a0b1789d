"""The API server itself dies in the middle of the work and comes back: nothing is lost, nothing is done twice."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from testbed.admin import Admin
from testbed.operator import OperatorProcess
from testbed.plane import APISERVER, ControlPlane
from tests.faults.life import SUBJECTS, Life
from tests.faults.world import World

JOBS = 20
MOMENT = 0.2
AWAY = 2.0


async def test_jobs_in_flight_end_right_when_the_api_server_is_killed_and_comes_back(binaries: Path) -> None:
    plane = await asyncio.to_thread(ControlPlane(binaries=binaries).start)  # its own: others need theirs alive
    try:
        async with OperatorProcess(plane) as operator, Admin.of(plane) as admin, World(plane) as world:
            lives = [Life(SUBJECTS[i % len(SUBJECTS)], f"crash-{i}", admin, world) for i in range(JOBS)]
            ending, starting, newborn = lives[:6], lives[6:12], lives[12:]
            await _prepare(admin, ending, starting, newborn)

            async with asyncio.TaskGroup() as group:
                for life in ending:
                    group.create_task(life.end())
                for life in starting:
                    group.create_task(_start_and_end(life))
                for life in newborn:
                    group.create_task(life.live())
                await asyncio.sleep(MOMENT)
                in_flight = [life for life in lives if life.status.get("phase") != life.subject.ended]
                await asyncio.to_thread(plane.kill, APISERVER)
                await asyncio.sleep(AWAY)
                await asyncio.to_thread(plane.start_apiserver)

            assert operator.is_running()
            assert len(in_flight) > JOBS / 2
            for life in lives:
                life.assert_ended_right()
    finally:
        await asyncio.to_thread(plane.stop)


async def _prepare(admin: Admin, ending: Sequence[Life], starting: Sequence[Life], newborn: Sequence[Life]) -> None:
    """Those that are about to end run; those that are about to start have been created; the newborn are not there."""
    for life in (*ending, *starting, *newborn):
        await admin.create("namespaces", {"metadata": {"name": life.namespace}})
    for life in (*ending, *starting):
        await life.create()
    async with asyncio.TaskGroup() as group:
        for life in ending:
            group.create_task(life.start())


async def _start_and_end(life: Life) -> None:
    await life.start()
    await life.end()
