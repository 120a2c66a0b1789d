"""Two operators and one lease: whatever happens to the leader, never do both act.

Each has a proxy of its own, whose record says when it wrote what. A write counts from the moment at which the API
server could see it.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest

from testbed.admin import Admin, eventually
from testbed.operator import REPOSITORY, OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import Call, FaultProxy, hang
from tests.faults.conftest import NewLife
from tests.faults.life import AITRAININGJOB, DIJOB, SUBJECTS, Life
from tests.faults.world import PATIENCE, Object
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kube.transport import CONNECTIONS
from trainmaster.runtime.elector import lease_name
from trainmaster.settings import OPERATOR

LEASES = "coordination.k8s.io/v1/leases"
NAMES = [lease_name(each.resource) for each in all_resource_kinds(OPERATOR.jobs)]

LEASE, RENEW, RETRY = 6.0, 4.5, 0.5
# So long that nobody can wait for it: the lease must be given back, the renewal must not wait for an answer.
ENDLESS = 3 * PATIENCE


@dataclass
class Candidate:
    """An operator and the record of what it asked for."""

    proxy: FaultProxy
    operator: OperatorProcess

    def acts(self) -> list[Call]:
        """Writes that reached the API server, other than of leases and events."""
        return [call for call in self.proxy.writes() if call.forwarded is not None]

    def began(self) -> float:
        return min(_sent(call) for call in self.acts())

    def renewed(self) -> float:
        """When it sent the last renewal that the API server took; of several Leases the first that was not renewed."""
        last = {call.name: _sent(call) for call in _renewals(self) if _is_taken(call)}
        return min(last.values())


@dataclass
class Election:
    """Candidates for one lease; the first to be started leads."""

    plane: ControlPlane
    admin: Admin
    namespace: str
    """Of the Leases."""
    stack: AsyncExitStack
    candidates: list[Candidate] = field(default_factory=list)

    async def start(self, *, lease: float = LEASE, renew: float = RENEW) -> Candidate:
        args = [
            f"--leader-elect-lease-duration={lease:g}s",
            f"--leader-elect-renew-deadline={renew:g}s",
            f"--leader-elect-retry-period={RETRY:g}s",
            f"--request-timeout={ENDLESS:g}s",
        ]
        proxy = self.stack.enter_context(FaultProxy(self.plane))
        operator = await self.stack.enter_async_context(
            OperatorProcess(self.plane, server=proxy.url, args=args, election=self.namespace)
        )
        candidate = Candidate(proxy, operator)
        self.candidates.append(candidate)
        return candidate

    async def lease(self) -> Object:
        found = await self.admin.get(LEASES, self.namespace, NAMES[0])
        spec: Object = found["spec"]
        return spec

    async def led_by(self, candidate: Candidate) -> None:
        """Wait until this one holds all Leases."""

        async def look() -> None:
            for name in NAMES:
                found = await self.admin.find(LEASES, self.namespace, name)
                holder = (found or {"spec": {}})["spec"].get("holderIdentity") or "nobody"
                assert f"_{candidate.operator.pid}_" in holder, f"{holder} leads"

        await eventually(look, timeout=PATIENCE)


@pytest.fixture
async def election(plane: ControlPlane, admin: Admin, namespace: str) -> AsyncIterator[Election]:
    async with AsyncExitStack() as stack:
        yield Election(plane, admin, namespace, stack)


@pytest.fixture
def lives(new_life: NewLife) -> list[Life]:
    """Jobs that run when the leader is lost."""
    return [new_life(subject) for subject in SUBJECTS]


@pytest.fixture
def newborn(new_life: NewLife) -> list[Life]:
    """Jobs that are created when the leader is lost."""
    return [new_life(subject) for subject in SUBJECTS]


async def test_another_leads_when_the_leader_is_killed_and_not_before_its_lease_has_ended(
    election: Election, lives: Sequence[Life], newborn: Sequence[Life]
) -> None:
    first, second = await _first_leads(election, lives)

    async with _going_on(lives, newborn):
        await asyncio.to_thread(first.operator.kill)
        await election.led_by(second)

    for life in (*lives, *newborn):
        life.assert_ended_right()
    assert second.began() >= first.renewed() + LEASE
    _assert_one_after_the_other(first, second)


async def test_a_leader_that_was_paused_for_longer_than_its_lease_writes_nothing_more_and_ends(
    election: Election, lives: Sequence[Life], newborn: Sequence[Life]
) -> None:
    first, second = await _first_leads(election, lives)

    await asyncio.to_thread(first.operator.pause)
    async with _going_on(lives, newborn):
        await election.led_by(second)
        await asyncio.gather(*(life.until(life.has_made_all_pods, "all pods were made") for life in newborn))
        resumed = time.monotonic()
        first.operator.resume()
        assert await asyncio.to_thread(first.operator.wait) != 0

    for life in (*lives, *newborn):
        life.assert_ended_right()
    # An event that was waiting to be sent may still come: it tells what was done while leading.
    assert [str(call) for call in first.proxy.writes() if call.at > resumed] == []
    _assert_ended_with_one_line(first)
    _assert_one_after_the_other(first, second)


async def test_a_container_that_is_killed_leads_again_at_once_when_its_pod_restarts_it(
    plane: ControlPlane, election: Election, new_life: NewLife
) -> None:
    times = [f"--leader-elect-lease-duration={ENDLESS:g}s", f"--leader-elect-renew-deadline={ENDLESS / 2:g}s"]
    before, after = new_life(AITRAININGJOB), new_life(AITRAININGJOB)
    async with OperatorProcess(plane, args=times, election=election.namespace, pod_uid="1-2-3") as operator:
        await before.create()
        await before.until(before.has_all_pods, "all pods are there")
        await asyncio.to_thread(operator.come_again)
        await after.create()
        await after.until(after.has_all_pods, "all pods are there")
    for life in (before, after):
        await election.admin.delete(life.subject.resource, life.namespace, "job")


async def test_a_leader_that_gets_no_answers_stops_before_its_lease_ends(
    election: Election, lives: Sequence[Life], newborn: Sequence[Life]
) -> None:
    first, second = await _first_leads(election, lives)

    first.proxy.freeze()
    async with _going_on(lives, newborn):
        assert await asyncio.to_thread(first.operator.wait) != 0
        first.proxy.thaw()
        await election.led_by(second)

    for life in (*lives, *newborn):
        life.assert_ended_right()
    _assert_ended_with_one_line(first)
    assert second.began() >= first.renewed() + LEASE
    _assert_one_after_the_other(first, second)


async def test_a_leader_that_is_told_to_stop_gives_its_lease_away(
    election: Election, lives: Sequence[Life], newborn: Sequence[Life]
) -> None:
    first, second = await _first_leads(election, lives, lease=ENDLESS, renew=ENDLESS / 2)

    async with _going_on(lives, newborn):
        assert await asyncio.to_thread(first.operator.terminate) == 0
        await election.led_by(second)

    for life in (*lives, *newborn):
        life.assert_ended_right()
    _assert_one_after_the_other(first, second)
    lease = await election.lease()
    assert lease["leaseTransitions"] == 1


async def test_a_leader_goes_on_leading_while_the_api_server_holds_up_all_its_pods(
    election: Election, new_life: NewLife
) -> None:
    leader = await election.start()
    await election.led_by(leader)
    held = leader.proxy.inject(hang, method="POST", resource="pods", count=None)
    lives = [new_life(subject) for subject in (AITRAININGJOB, DIJOB) for _ in range(OPERATOR.workers)]
    await asyncio.gather(*(life.create() for life in lives))

    async def all_wait() -> None:
        watches = [call for call in list(leader.proxy.calls) if call.is_watch and call.ended is None]
        assert len(held.hit) >= CONNECTIONS - len(watches) - 6, f"{len(held.hit)} held, {len(watches)} watches"

    async def many_renewals() -> None:
        assert leader.operator.is_running(), leader.operator.log[-2000:]
        assert len(_renewals(leader)) > before + 3 * RENEW / RETRY

    await eventually(all_wait, timeout=PATIENCE)
    before = len(_renewals(leader))
    await eventually(many_renewals, timeout=PATIENCE)
    for life in lives:  # the operators of other tests need not drive them
        await election.admin.delete(life.subject.resource, life.namespace, "job")


@pytest.mark.parametrize("path", ["/metrics", "/healthz"])
async def test_a_leader_goes_on_leading_and_answers_its_kubelet_during_a_flood_of_connections(
    election: Election, path: str
) -> None:
    leader = await election.start()
    await election.led_by(leader)
    port = leader.operator.metrics_port if path == "/metrics" else leader.operator.health_port
    before = len(_renewals(leader))

    with _flooded(port, path, connections=1000):
        while len(_renewals(leader)) < before + len(NAMES) * 1.5 * RENEW / RETRY:
            assert leader.operator.is_running(), leader.operator.log[-2000:]
            assert await asyncio.to_thread(leader.operator.is_ready)

    assert "lease not renewed" not in leader.operator.log


@contextmanager
def _flooded(port: int, path: str, *, connections: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.faults.flood", str(port), path, str(connections)]
    with subprocess.Popen(command, cwd=REPOSITORY) as flood:
        try:
            yield
        finally:
            flood.kill()


def _renewals(candidate: Candidate) -> list[Call]:
    return [call for call in list(candidate.proxy.calls) if call.resource == "leases" and call.method == "PUT"]


def _assert_ended_with_one_line(candidate: Candidate) -> None:
    log = candidate.operator.log
    assert "Traceback" not in log
    last = json.loads(log.strip().rpartition("\n")[2])
    assert (last["level"], "does not lead any more" in last["event"]) == ("error", True)
    assert "could not be renewed" in last["because"]


async def _first_leads(
    election: Election, lives: Sequence[Life], *, lease: float = LEASE, renew: float = RENEW
) -> tuple[Candidate, Candidate]:
    """Two candidates; the first leads, jobs run, and the second has written nothing."""
    first = await election.start(lease=lease, renew=renew)
    await election.led_by(first)
    second = await election.start(lease=lease, renew=renew)
    for life in lives:
        await life.create()
        await life.start()
    assert second.operator.is_ready()
    assert second.acts() == []
    return first, second


@asynccontextmanager
async def _going_on(lives: Sequence[Life], newborn: Sequence[Life]) -> AsyncIterator[None]:
    """While the block runs and after it, jobs end and others live all their lives."""
    async with asyncio.TaskGroup() as group:
        for life in lives:
            group.create_task(life.end())
        for life in newborn:
            group.create_task(life.live())
        yield


def _sent(call: Call) -> float:
    assert call.forwarded is not None
    return call.forwarded


def _is_taken(call: Call) -> bool:
    return call.is_write and call.is_done


def _assert_one_after_the_other(first: Candidate, second: Candidate) -> None:
    """No write of the second came before the last one of the first had ended."""
    ended = max(call.ended or float("inf") for call in first.acts())
    assert second.began() > ended
