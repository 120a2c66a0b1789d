"""Two operators with leader election, of which the one that leads is killed again and again."""

import asyncio
import time
from collections.abc import Sequence
from typing import Self

from testbed.admin import Admin
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.runtime.elector import lease_name
from trainmaster.settings import OPERATOR

LEASES = "coordination.k8s.io/v1/leases"
LEASE_NAMES = tuple(lease_name(kinds.resource) for kinds in all_resource_kinds(OPERATOR.jobs))
DEFECTS = ("defect in trainmaster", "Traceback")
POLL = 0.2


class Operators:
    def __init__(self, plane: ControlPlane, admin: Admin, args: Sequence[str]) -> None:
        self.kills: list[tuple[str, int]] = []
        """Which process was killed, and how many Leases it held."""
        self.ended_alone = 0
        self.defects: list[str] = []
        self._admin = admin
        self._processes = {
            name: OperatorProcess(plane, args=args, election=OPERATOR.lease_namespace, verbosity=0)
            for name in ("first", "second")
        }

    async def __aenter__(self) -> Self:
        for process in self._processes.values():
            await asyncio.to_thread(process.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes.values():
            await asyncio.to_thread(process.kill)
            self._read_log(process)
            await asyncio.to_thread(process.stop)

    async def kill_leaders(self, times: int, every: float, away: float) -> None:
        """Each victim is away for some seconds."""
        began = time.monotonic()
        for number in range(1, times + 1):
            while time.monotonic() < began + number * every:
                await self._start_ended()
                await asyncio.sleep(POLL)
            await self._kill_leader(away)

    async def _start_ended(self) -> None:
        """An operator that loses a Lease ends by itself."""
        for process in self._processes.values():
            if not process.is_running():
                self.ended_alone += 1
                await self._start(process)

    async def _start(self, process: OperatorProcess) -> None:
        self._read_log(process)
        await asyncio.to_thread(process.come_again)

    async def _kill_leader(self, away: float) -> None:
        while not any((held := await self._held()).values()):  # noqa: ASYNC110 another process holds the Lease
            await asyncio.sleep(POLL)
        leader = max(held, key=lambda name: held[name])
        self.kills.append((leader, held[leader]))
        process = self._processes[leader]
        await asyncio.to_thread(process.kill)
        await asyncio.sleep(away)
        await self._start(process)

    async def _held(self) -> dict[str, int]:
        """How many Leases each process holds."""
        space = OPERATOR.lease_namespace
        leases = await asyncio.gather(*(self._admin.find(LEASES, space, name) for name in LEASE_NAMES))
        holders = [lease["spec"].get("holderIdentity", "") for lease in leases if lease]
        return {
            name: sum(f"_{process.pid}_" in holder for holder in holders) if process.is_running() else 0
            for name, process in self._processes.items()
        }

    def _read_log(self, process: OperatorProcess) -> None:
        """Before it is started again, with an empty log."""
        for word in DEFECTS:
            before, found, after = process.log.partition(word)
            if found:
                self.defects.append(f"{before[-500:]}{word}{after[:3000]}")
