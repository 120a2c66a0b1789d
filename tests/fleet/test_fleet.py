"""Jobs of every kind arrive while the operator that leads is killed again and again: every job ends as its policy
says, and nothing is counted twice.

``make fleet`` runs 250 jobs of each kind in ten minutes, with a kill each minute; ``make test`` runs a short version.
"""

import asyncio
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from testbed.admin import Admin
from testbed.operator import install
from testbed.plane import CONTROLLERS, ControlPlane
from tests.fleet.life import Life
from tests.fleet.operators import Operators
from tests.fleet.record import Record
from tests.fleet.story import Story, stories_of
from tests.integration.scene import give_aggregators
from tests.manifests.build import resource_of
from tests.matrix.kinds import BY_JOB, Row

SECONDS = float(os.environ.get("TRAINMASTER_FLEET_SECONDS", "18"))
"""In which jobs arrive and operators are killed."""
JOBS = int(os.environ.get("TRAINMASTER_FLEET_JOBS", "8"))
"""Of each kind."""
KILLS = int(os.environ.get("TRAINMASTER_FLEET_KILLS", "3"))
AT_ONCE = 120
"""Jobs that live at the same time, at most."""
AWAY = 3.0
"""Seconds until a killed operator is started again."""
NODES = 10
SEED = 20261118

SHORT_LEASES = (
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
)
"""For the short version: by default another operator takes over after 15 seconds."""


class Fleet:
    """What was seen."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.seconds: list[float] = []
        self.kills: list[tuple[str, int]] = []
        self.defects: list[str] = []
        self.ended_alone = 0
        self.changes = 0

    @property
    def report(self) -> str:
        ends = Counter(f"{life.story.row.name} {life.story.result or 'Deleted'}" for life in self.lives)
        faults = sum(life.story.faults for life in self.lives)
        restarts = sum(life.story.charged(life.job) for life in self.lives)
        times = sorted(self.seconds)
        last = f"99 of 100 within {times[int(len(times) * 0.99) - 1]:.1f} s, the last in {times[-1]:.1f} s"
        lines = [
            f"\n{len(self.lives)} jobs in {SECONDS:.0f} s, {self.changes} changes seen",
            f"  ends: {', '.join(f'{number} {end}' for end, number in sorted(ends.items()))}",
            f"  faults injected: {faults}; restarts counted: {restarts}",
            f"  operators killed, with the Leases that they held: {self.kills}",
            f"  operators that ended by themselves: {self.ended_alone}",
            f"  life of a job: median {statistics.median(times):.1f} s, {last}",
        ]
        return "\n".join(lines)


def fleet_of(rows: Sequence[Row], jobs: int) -> Iterator[tuple[str, Story]]:
    """Names and stories, the kinds in turns. Each kind begins with another story, so that a small fleet has most."""
    tables = [list(stories_of(row)) for row in rows]
    for number in range(jobs):
        for start, table in enumerate(tables):
            yield f"job-{number:04}", table[(number + start * jobs) % len(table)]


def namespace_of(row: Row) -> str:
    return row.name.replace(".", "-")


async def sail(plane: ControlPlane) -> Fleet:
    fleet, chance = Fleet(), random.Random(SEED)
    resources = [resource_of(next(stories_of(row)).manifest("job")) for row in BY_JOB]
    contracts = {namespace_of(row): row.name for row in BY_JOB}
    args = SHORT_LEASES if SECONDS < 60 else ()
    async with Admin.of(plane) as admin:
        for namespace in contracts:
            await admin.create("namespaces", {"metadata": {"name": namespace}})
        async with Record(plane, resources, contracts) as record, Operators(plane, admin, args) as operators:
            killing = asyncio.ensure_future(operators.kill_leaders(KILLS, SECONDS / (KILLS + 1), AWAY))
            await live(admin, record, fleet, chance)
            await killing
            fleet.changes = record.changes
        fleet.kills, fleet.defects, fleet.ended_alone = operators.kills, operators.defects, operators.ended_alone
    return fleet


async def live(admin: Admin, record: Record, fleet: Fleet, chance: random.Random) -> None:
    """All lives, which begin one after the other."""
    room, began = asyncio.Semaphore(AT_ONCE), time.monotonic()
    pause = SECONDS / (JOBS * len(BY_JOB))

    async def one(life: Life) -> None:
        created = time.monotonic()
        try:
            await life.run()
        finally:
            room.release()
            fleet.seconds.append(time.monotonic() - created)

    async with asyncio.TaskGroup() as group:
        for number, (name, story) in enumerate(fleet_of(BY_JOB, JOBS)):
            await asyncio.sleep(max(0.0, began + number * pause - time.monotonic()))
            await room.acquire()
            life = Life(admin, story, namespace_of(story.row), name, chance)
            record.lives[life.namespace, name] = life
            fleet.lives.append(life)
            group.create_task(one(life))


@pytest.fixture(scope="module")
def fleet(binaries: Path) -> Iterator[Fleet]:
    with ControlPlane(binaries=binaries) as plane:
        install(plane)
        give_aggregators(plane)
        plane.start_controller_manager(
            ("job-controller", *CONTROLLERS), arguments=("--kube-api-qps=1000", "--kube-api-burst=1000")
        )
        plane.start_scheduler()
        plane.start_kwok(completes_jobs=False)
        plane.add_nodes(NODES)
        yield asyncio.run(sail(plane))


def test_every_job_ends_as_its_policy_says_and_nothing_is_counted_twice(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [f"{life}: {what}" for life in fleet.lives for what in life.wrong()]
    with capsys.disabled():
        print(fleet.report)

    assert not wrong, "\n".join(wrong)
    assert len(fleet.lives) == JOBS * len(BY_JOB)


def test_each_kill_hits_an_operator_that_leads(fleet: Fleet) -> None:
    assert len(fleet.kills) == KILLS
    assert all(leases > 0 for _, leases in fleet.kills), fleet.kills


def test_no_operator_meets_a_defect(fleet: Fleet) -> None:
    assert not fleet.defects, "\n".join(fleet.defects)
