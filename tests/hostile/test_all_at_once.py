"""All attacks at once, and jobs of other tenants in between: all of these run to their end.

``make hostile`` runs it for five minutes and prints the figures; ``make test`` runs a short version.
"""

import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import Mapping, Sequence

import pytest

from testbed.admin import Admin
from tests.hostile import attack
from tests.hostile.attack import MB, Attack, Target
from tests.hostile.honest import Life, run_jobs
from tests.hostile.installation import LIMITS, Installation

SECONDS = float(os.environ.get("TRAINMASTER_HOSTILE_SECONDS", "20"))
JOBS = int(os.environ.get("TRAINMASTER_HOSTILE_JOBS", "7"))
ATTACKERS = ("BY_JOBS_USER", "BY_EDIT_USER", "BY_ANYBODY")


def repeat(attacks: str, target: Target, seconds: float) -> None:
    """The process of one attacker. All attacks of the attacker run side by side until the time is over."""
    os.nice(10)  # on a cluster the attacker does not share the CPU with the control plane
    asyncio.run(_repeat_all(getattr(attack, attacks), target, seconds))


async def _repeat_all(attacks: Mapping[str, Attack], target: Target, seconds: float) -> None:
    ends = time.monotonic() + seconds

    async def one(call: Attack) -> None:
        while time.monotonic() < ends:
            await call(target)
            await asyncio.sleep(0.1)

    await asyncio.wait([asyncio.ensure_future(one(call)) for call in attacks.values()], timeout=seconds)


async def test_jobs_of_others_run_to_their_end_while_all_attack(
    installed: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    idle: list[Life] = []
    attacked: list[Life] = []
    async with Admin.of(installed.plane) as admin:
        await installed.during(run_jobs(admin, "idle", JOBS, pause=1, lives=idle))
        spawn = multiprocessing.get_context("spawn")
        attackers = [spawn.Process(target=repeat, args=(name, installed.target, SECONDS)) for name in ATTACKERS]
        for each in attackers:
            each.start()
        try:
            await installed.during(run_jobs(admin, "honest", JOBS, pause=SECONDS / JOBS, lives=attacked))
        finally:
            for each in attackers:
                each.kill()
                await asyncio.to_thread(each.join)

    with capsys.disabled():
        print(_report(idle, attacked, installed))
    installed.assert_unharmed()
    assert len(attacked) == JOBS


def _report(idle: Sequence[Life], attacked: Sequence[Life], installed: Installation) -> str:
    """Times are shown and not asserted: machines differ."""
    lines = [f"\nall attacks at once for {SECONDS:.0f} s, {JOBS} jobs of others"]
    for name, lives in (("idle", idle), ("attacked", attacked)):
        times, plain = sorted(life.created_after for life in lives), sorted(life.plain for life in lives)
        lines.append(
            f"  {name:9} all pods created: median {statistics.median(times):.2f} s, last {times[-1]:.2f} s;"
            f" by a plain client: median {statistics.median(plain):.2f} s, last {plain[-1]:.2f} s"
        )
    ratio = max(life.created_after for life in attacked) / max(life.created_after for life in idle)
    lines.append(f"  ratio of the last ones: {ratio:.1f}")
    slowest = sorted(attacked, key=lambda life: -life.created_after)[:3]
    lines.append("  slowest: " + ", ".join(f"{life.row.name} {life.created_after:.2f} s" for life in slowest))
    for name, used in installed.memory.peak.items():
        lines.append(f"  {name:9} {used / MB:.0f} MB at most (limit {LIMITS[name] / MB:.0f} MB)")
    return "\n".join(lines)
