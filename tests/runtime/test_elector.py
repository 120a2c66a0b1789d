import asyncio
import itertools
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import looptime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from tests.runtime.cluster import Call, FakeCluster, Json, raising, waiting
from tests.runtime.kind import NOW
from trainmaster.core.errors import BadConfig, Conflict, Forbidden, NotFound, NotLeading, ServerError, Unreachable
from trainmaster.core.ids import LEASE, Key
from trainmaster.runtime.elector import Elector
from trainmaster.settings import ElectionTimes

pytestmark = pytest.mark.looptime

KEY = Key("system", "operator")
TIMES = ElectionTimes(lease=15.0, renew_deadline=10.0, retry=2.0)


def clock() -> float:
    return asyncio.get_running_loop().time()


def wall_clock() -> datetime:
    return NOW + timedelta(seconds=clock())


def an_elector(cluster: FakeCluster, identity: str = "me", *, offset: timedelta = timedelta()) -> Elector:
    """``offset``: how wrong its wall clock is."""
    return Elector(cluster, KEY, identity, TIMES, now=lambda: wall_clock() + offset, monotonic=clock)


def a_lease(**spec: Any) -> Json:
    return {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": spec}


def held_by(holder: str, **spec: Any) -> Json:
    stamp = "2026-11-15T12:00:00.000000Z"
    fields = {"leaseDurationSeconds": 15, "acquireTime": stamp, "renewTime": stamp, "leaseTransitions": 4}
    return a_lease(holderIdentity=holder, **(fields | spec))


def stored(cluster: FakeCluster) -> Json:
    lease = cluster.find(LEASE, KEY)
    assert lease is not None
    spec: Json = lease["spec"]
    return spec


def a_cluster(lease: Json | None = None) -> FakeCluster:
    return FakeCluster((LEASE, lease)) if lease else FakeCluster()


async def time_to_lead(elector: Elector, within: float = 100.0) -> float | None:
    """The seconds until it leads, rounded; None when it does not."""
    start = clock()
    try:
        async with asyncio.timeout(within):
            await elector.acquire()
    except TimeoutError:
        return None
    return round(clock() - start, 3)


async def time_to_lose(elector: Elector, within: float = 100.0) -> float | None:
    start = clock()
    try:
        async with asyncio.timeout(within):
            await elector.hold()
    except NotLeading:
        return round(clock() - start, 3)
    except TimeoutError:
        pass
    return None


@asynccontextmanager
async def holding(elector: Elector) -> AsyncIterator[None]:
    task = asyncio.create_task(elector.hold())
    yield
    task.cancel()


# --- who may lead ---


async def test_nobody_has_the_lease_so_it_is_made() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)

    assert await time_to_lead(elector) == 0
    assert elector.is_leading
    assert stored(cluster) == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-15T12:00:00.000000Z",
        "renewTime": "2026-11-15T12:00:00.000000Z",
        "leaseTransitions": 0,
    }


async def test_a_lease_that_was_given_back_is_taken_at_once() -> None:
    cluster = a_cluster(held_by(""))

    assert await time_to_lead(an_elector(cluster)) == 0
    assert (stored(cluster)["holderIdentity"], stored(cluster)["leaseTransitions"]) == ("me", 5)


async def test_our_own_lease_is_taken_at_once_and_that_is_no_transition() -> None:
    cluster = a_cluster(held_by("me"))

    assert await time_to_lead(an_elector(cluster, offset=timedelta(hours=1))) == 0
    assert stored(cluster) == held_by("me", renewTime="2026-11-15T13:00:00.000000Z")["spec"]


@pytest.mark.parametrize(
    ("lease", "seconds"),
    [
        pytest.param(held_by("other"), 15, id="a full duration from when we first saw it"),
        pytest.param(held_by("other", leaseDurationSeconds=40), 40, id="the holder's duration counts, not ours"),
        pytest.param(held_by("other", leaseDurationSeconds=3), 3, id="a short one"),
        pytest.param(held_by("other", renewTime="2001-01-01T00:00:00.000000Z"), 15, id="renewed long ago, they say"),
        pytest.param(held_by("other", renewTime="2099-01-01T00:00:00.000000Z"), 15, id="renewed in the future"),
    ],
)
async def test_a_lease_that_is_not_renewed_ends_by_our_own_clock(lease: Json, seconds: float) -> None:
    cluster = a_cluster(lease)

    assert await time_to_lead(an_elector(cluster)) == seconds
    assert stored(cluster)["leaseTransitions"] == 5


@pytest.mark.parametrize(
    ("lease", "seconds"),
    [
        pytest.param(a_lease(), 0, id="empty"),
        pytest.param({"metadata": a_lease()["metadata"]}, 0, id="no spec"),
        pytest.param(a_lease(holderIdentity=None, leaseDurationSeconds=None), 0, id="nulls"),
        pytest.param(a_lease(holderIdentity="other"), 15, id="only a holder"),
        pytest.param(a_lease(holderIdentity="other", leaseDurationSeconds=5), 5, id="no times"),
        pytest.param(a_lease(holderIdentity="other", strategy="OldestEmulationVersion"), 15, id="a newer field"),
    ],
)
async def test_a_lease_of_another_implementation_may_lack_any_field(lease: Json, seconds: float) -> None:
    cluster = a_cluster(lease)

    assert await time_to_lead(an_elector(cluster)) == seconds
    assert (stored(cluster)["holderIdentity"], stored(cluster)["leaseTransitions"]) == ("me", 1)


async def test_a_lease_that_is_renewed_is_never_taken() -> None:
    cluster = a_cluster()
    leader, standby = an_elector(cluster, "first"), an_elector(cluster, "second")
    await leader.acquire()
    async with holding(leader):
        assert await time_to_lead(standby, within=1000) is None
        assert leader.is_leading
        assert not standby.is_leading


async def test_of_two_who_start_together_one_leads() -> None:
    cluster = a_cluster()
    cluster.before = waiting("create", 0.5)
    electors = [an_elector(cluster, name) for name in ("first", "second")]
    await asyncio.wait([asyncio.create_task(elector.acquire()) for elector in electors], timeout=1)

    assert [elector.is_leading for elector in electors] == [True, False]


async def test_who_loses_the_race_for_an_ended_lease_does_not_lead() -> None:
    cluster = a_cluster(held_by(""))

    async def faster(call: Call) -> None:
        if call.verb == "replace":
            cluster.put(LEASE, held_by("other"))

    cluster.before = faster
    elector = an_elector(cluster)

    assert await time_to_lead(elector, within=1) is None
    assert stored(cluster)["holderIdentity"] == "other"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("refused"), id="no answer"),
        pytest.param(ServerError("boom"), id="server error"),
        pytest.param(Forbidden("leases is forbidden"), id="forbidden"),
    ],
)
async def test_who_waits_to_lead_outlives_any_error(error: Exception) -> None:
    cluster = a_cluster()
    cluster.before = raising("get", *[error] * 5)

    assert await time_to_lead(an_elector(cluster)) == 10


async def test_who_waits_to_lead_outlives_a_server_that_hangs() -> None:
    cluster = a_cluster()
    hanging = True

    async def hook(_: Call) -> None:
        if hanging:
            await asyncio.sleep(10_000)

    cluster.before = hook
    task = asyncio.create_task(time_to_lead(an_elector(cluster)))
    await asyncio.sleep(30)
    hanging = False
    taken = await task

    assert taken is not None
    assert taken <= 30 + TIMES.renew_deadline + TIMES.retry


class Garbling(FakeCluster):
    """Its first answers come from a broken proxy."""

    left = 2

    async def get(self, resource: Any, key: Key) -> bytes:
        if self.left:
            self.left -= 1
            return b"<html>Bad Gateway</html>"
        return await super().get(resource, key)


async def test_who_waits_to_lead_outlives_an_answer_that_is_no_lease() -> None:
    assert await time_to_lead(an_elector(Garbling())) == 4


async def test_who_leads_outlives_an_answer_that_is_no_lease() -> None:
    cluster = Garbling()
    cluster.left = 0
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.left = 2

    assert await time_to_lose(elector, within=60) is None


# --- how long it leads ---


async def test_who_leads_renews_in_every_period() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()

    assert await time_to_lose(elector, within=20.5) is None
    assert [round(call.at) for call in cluster.asked("replace")] == list(range(2, 21, 2))


async def test_renewals_move_the_renew_time_alone() -> None:
    cluster = a_cluster(held_by("me"))
    elector = an_elector(cluster, offset=timedelta(minutes=5))
    await elector.acquire()

    assert stored(cluster) == held_by("me", renewTime="2026-11-15T12:05:00.000000Z")["spec"]


TROUBLES: list[Any] = [
    pytest.param(raising("get", *[ServerError("boom")] * 1000), id="errors"),
    pytest.param(raising("replace", *[Conflict("conflict")] * 1000), id="conflicts"),
    pytest.param(waiting("get", 10_000), id="reads hang"),
    pytest.param(waiting("replace", 10_000), id="writes hang"),
]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_leader_that_cannot_renew_stops_before_the_lease_ends(trouble: Any) -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.before = trouble

    assert await time_to_lose(elector) == TIMES.renew_deadline < TIMES.lease
    assert not elector.is_leading


async def test_losing_the_lease_is_told_in_a_sentence() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.before = waiting("get", 10_000)

    with pytest.raises(NotLeading, match="lease system/operator could not be renewed within 10 s"):
        await elector.hold()


async def test_a_leader_may_fail_to_renew_for_a_while() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.before = raising("get", *[ServerError("boom")] * 3)

    assert await time_to_lose(elector, within=60) is None


def losing(verb: str, answers: int) -> Any:
    """The first calls of that verb never get an answer."""
    left = [None] * answers

    async def hook(call: Call) -> None:
        if left and call.verb == verb:
            left.pop()
            await asyncio.sleep(10_000)

    return hook


@pytest.mark.parametrize("answers", [1, 2])
@pytest.mark.parametrize("verb", ["get", "replace"])
async def test_a_leader_outlives_answers_that_get_lost(verb: str, answers: int) -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.before = losing(verb, answers)

    assert await time_to_lose(elector, within=60) is None


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_who_waits_to_lead_asks_again_when_an_answer_gets_lost(verb: str) -> None:
    cluster = a_cluster()
    cluster.before = losing(verb, 1)

    assert await time_to_lead(an_elector(cluster), within=TIMES.renew_deadline / 2 + TIMES.retry) is not None


async def test_renewals_that_fail_at_once_come_in_every_period() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.before = raising("get", *[ServerError("boom")] * 1000)
    await time_to_lose(elector)

    assert [round(call.at, 3) for call in cluster.asked("get")[1:]] == [2, 4, 6, 8]


async def test_leading_counts_from_when_the_renewal_was_sent_not_from_its_answer() -> None:
    cluster = a_cluster()
    cluster.after = waiting("create", 3.0)
    elector = an_elector(cluster)
    await elector.acquire()

    cluster.before = waiting("get", 10_000)
    await asyncio.sleep(6.999)
    assert elector.is_leading
    await asyncio.sleep(0.002)
    assert not elector.is_leading


async def test_an_answer_that_comes_too_late_makes_no_leader() -> None:
    cluster = a_cluster()
    cluster.after = waiting("create", 11.0)
    elector = an_elector(cluster)

    assert await time_to_lead(elector, within=TIMES.renew_deadline / 3 + TIMES.retry - 0.1) is None
    assert not elector.is_leading


async def test_a_process_that_stood_still_while_it_became_leader_does_not_lead() -> None:
    cluster = a_cluster()

    async def stand_still(call: Call) -> None:
        while call.verb == "create" and clock() < 11:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(11 - clock())

    cluster.after = stand_still
    elector = an_elector(cluster)
    acquiring = asyncio.create_task(elector.acquire())
    await asyncio.sleep(11.5)

    assert not acquiring.done()
    acquiring.cancel()


async def test_a_lease_that_was_deleted_is_made_again() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    async with holding(elector):
        await asyncio.sleep(1)
        cluster.take(LEASE, KEY)
        await asyncio.sleep(TIMES.retry)
        assert stored(cluster)["holderIdentity"] == "me"
        assert elector.is_leading


@pytest.mark.parametrize("days", [pytest.param(-400, id="back"), pytest.param(400, id="ahead")])
async def test_wall_clocks_may_jump(days: int) -> None:
    cluster = a_cluster()
    leader, standby = an_elector(cluster, "first"), an_elector(cluster, "second")
    await leader.acquire()
    async with holding(leader):
        waiting_to_lead = asyncio.create_task(standby.acquire())
        await asyncio.sleep(20)
        leader._now = lambda: wall_clock() + timedelta(days=days)
        await asyncio.sleep(100)
        standby._now = lambda: wall_clock() - timedelta(days=days)
        await asyncio.sleep(100)
        assert leader.is_leading
        assert not standby.is_leading
        waiting_to_lead.cancel()


# --- waiting ---


async def test_a_standby_reports_who_holds_the_lease_once(logs: list[MutableMapping[str, Any]]) -> None:
    cluster = a_cluster()
    leader, standby = an_elector(cluster, "first"), an_elector(cluster, "second")
    await leader.acquire()
    async with holding(leader):
        assert await time_to_lead(standby, within=60) is None

    waits = [line for line in logs if line["event"] == "waiting for the lease"]
    assert waits == [
        {
            "event": "waiting for the lease",
            "log_level": "info",
            "lease": "system/operator",
            "holder": "first",
            "identity": "second",
        }
    ]


async def test_a_lease_in_a_namespace_that_does_not_exist_is_an_error_that_says_what_to_do() -> None:
    cluster = a_cluster()
    cluster.before = raising("create", NotFound('namespaces "system" not found'))

    with pytest.raises(BadConfig) as raised:
        await an_elector(cluster).acquire()

    assert str(raised.value) == (
        "lease system/operator: the namespace system does not exist; create it, or "
        "choose another namespace with --leader-elect-resource-namespace"
    )


async def test_a_lease_that_may_not_be_read_is_reported_with_what_to_do(logs: list[MutableMapping[str, Any]]) -> None:
    cluster = a_cluster()
    cluster.before = raising("get", Forbidden("you cannot get leases"))

    assert await time_to_lead(an_elector(cluster)) == TIMES.retry
    assert logs[0]["because"] == (
        "you cannot get leases; grant it as deploy/rbac.yaml does, or "
        "choose another namespace with --leader-elect-resource-namespace"
    )


# --- asking ---


async def test_check_lets_nobody_write_but_the_leader() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    with pytest.raises(NotLeading, match="lease system/operator is not held by me; nothing is written"):
        elector.check()

    await elector.acquire()
    elector.check()

    await asyncio.sleep(TIMES.renew_deadline)
    with pytest.raises(NotLeading):
        elector.check()


async def test_the_metric_says_who_leads() -> None:
    def shown() -> float | None:
        return REGISTRY.get_sample_value("leader_election_master_status", {"name": "operator"})

    cluster = a_cluster()
    elector = an_elector(cluster)
    values = [shown()]
    await elector.acquire()
    values.append(shown())
    cluster.before = waiting("get", 10_000)
    await time_to_lose(elector)
    values.append(shown())

    assert values == [0, 1, 0]


# --- giving it back ---


async def test_who_stops_lets_the_next_one_in_quickly() -> None:
    cluster = a_cluster()
    leader, standby = an_elector(cluster, "first"), an_elector(cluster, "second")
    await leader.acquire()
    async with holding(leader):
        waiting_to_lead = asyncio.create_task(time_to_lead(standby))
        await asyncio.sleep(21)
    await leader.release()

    taken = await waiting_to_lead
    assert taken is not None
    assert taken <= 21 + TIMES.retry
    assert not leader.is_leading
    assert stored(cluster)["holderIdentity"] == "second"


async def test_while_it_gives_the_lease_back_it_does_not_lead() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.before = waiting("get", 1.0)
    releasing = asyncio.create_task(elector.release())
    await asyncio.sleep(0.5)

    assert not elector.is_leading
    await releasing
    assert stored(cluster)["holderIdentity"] == ""


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_giving_back_is_best_effort_and_takes_a_bounded_time(trouble: Any) -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.before = trouble
    start = clock()
    await elector.release()

    assert clock() - start <= TIMES.retry
    assert not elector.is_leading


async def test_who_sees_another_hold_the_lease_does_not_lead_any_more() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.put(LEASE, held_by("other"))

    with pytest.raises(NotLeading):
        await elector.hold()
    assert clock() < TIMES.renew_deadline


async def test_what_others_wrote_on_the_lease_stays() -> None:
    lease = held_by("")
    lease["metadata"]["labels"] = {"helm.sh/chart": "x"}
    lease["spec"]["strategy"] = "OldestEmulationVersion"
    cluster = a_cluster(lease)
    await an_elector(cluster).acquire()

    stored = cluster.find(LEASE, KEY)
    assert stored is not None
    assert stored["metadata"]["labels"] == {"helm.sh/chart": "x"}
    assert (stored["spec"]["strategy"], stored["spec"]["holderIdentity"]) == ("OldestEmulationVersion", "me")


async def test_who_does_not_lead_gives_nothing_back() -> None:
    cluster = a_cluster(held_by("other"))
    await an_elector(cluster).release()

    assert [call.verb for call in cluster.calls] == ["get"]


async def test_the_lease_of_another_is_not_given_back() -> None:
    cluster = a_cluster()
    elector = an_elector(cluster)
    await elector.acquire()
    cluster.put(LEASE, held_by("other"))
    await elector.release()

    assert stored(cluster)["holderIdentity"] == "other"


# --- never two at once ---

TIGHT = ElectionTimes(lease=4.0, renew_deadline=3.0, retry=0.5)
TROUBLE = 40.0
"""Seconds until nothing goes wrong any more."""


class Fault(NamedTuple):
    """What happens to one request: so many seconds pass before it takes effect and before its answer is seen."""

    before: float = 0.0
    after: float = 0.0
    fails: bool = False
    """It takes no effect."""
    is_lost: bool = False
    """It takes effect, and the answer is an error."""
    is_frozen: bool = False
    """The whole process stands still meanwhile: it does not even notice that its time is over."""


# Binary fractions: with others, the virtual clock would stand still a rounding error before the deadline.
WELL, FAILING, LOST = Fault(), Fault(fails=True), Fault(is_lost=True)
LATE, SLOW, HANGING = Fault(before=2.0), Fault(after=2.0), Fault(before=32.0)
FROZEN, THAWED = Fault(before=5.0, is_frozen=True), Fault(after=5.0, is_frozen=True)
FAULTS = st.lists(st.sampled_from([WELL, WELL, FAILING, LOST, LATE, SLOW, HANGING, FROZEN, THAWED]), max_size=25)
LIVES = st.lists(st.tuples(st.sampled_from([1.0, 4.0, 1000.0]), st.booleans(), st.sampled_from([0.0, 3.0])), max_size=4)
"""Each process: how long it leads at most, whether it gives the lease back then, when the next one starts."""
LEASES = st.sampled_from([None, held_by(""), held_by("ghost", leaseDurationSeconds=4)])


class Exclusive(Elector):
    """Looks whether anybody else leads, each time that it begins to lead or leads on.

    That is enough: if two ever lead at once, the one that became or stayed leader last did so while the other led.
    """

    others: "list[Exclusive]"
    led_at = -1.0

    async def _attempt(self, timeout: float) -> bool:
        leads = await super()._attempt(timeout)
        if leads:
            self.led_at = clock()
            assert not any(other.is_leading for other in self.others if other is not self), "two lead at once"
        return leads


class Process:
    """Runs one elector after another on a connection of its own; the wall clock is different each time it is read."""

    def __init__(self, cluster: FakeCluster, name: str, faults: list[Fault], lives: list[Any]) -> None:
        self.line = cluster.line()
        self.line.before, self.line.after = self._before, self._after
        self.name = name
        self.faults = iter(faults)
        self.lives = iter(lives)
        self.fault = Fault()
        self.wall = itertools.cycle([timedelta(0), timedelta(days=400), timedelta(days=-400)])

    async def run(self, electors: list[Exclusive]) -> None:
        for number in itertools.count():
            identity = f"{self.name}-{number}"
            elector = Exclusive(
                self.line, KEY, identity, TIGHT, now=lambda: wall_clock() + next(self.wall), monotonic=clock
            )
            elector.others = electors
            electors.append(elector)
            lifetime, gives_back, pause = next(self.lives, (1e6, False, 0.0))
            await elector.acquire()
            with suppress(NotLeading, TimeoutError):
                async with asyncio.timeout(lifetime):
                    await elector.hold()
            if gives_back:
                await elector.release()
            # Else it was killed; to others it is as if it still led until the end of its time.
            await asyncio.sleep(pause)

    async def _before(self, _: Call) -> None:
        self.fault = fault = next(self.faults, Fault())
        await self._pass(fault.before)
        if fault.fails:
            raise ServerError("boom")

    async def _after(self, _: Call) -> None:
        fault = self.fault
        await self._pass(fault.after)
        if fault.is_lost:
            raise Unreachable("cut")

    async def _pass(self, seconds: float) -> None:
        end, cancelled = clock() + seconds, None
        while (left := end - clock()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError as error:
                if not self.fault.is_frozen:
                    raise
                cancelled = error
        if cancelled:
            raise cancelled


@settings(max_examples=40, deadline=None)
@example(None, ([WELL, SLOW, *[HANGING] * 9], []), ([], []))  # the answer is late, then nothing gets through
@example(held_by(""), ([WELL, LATE], [Fault(before=1.0)]), ([], []))  # both take the lease that was given back
@example(None, ([WELL, LATE], [WELL, Fault(before=1.0)]), ([], []))  # both make the lease
@example(None, ([WELL, WELL, *[FAILING] * 40], []), ([], []))  # nothing gets through
@example(None, ([], []), ([(4.0, True, 0.0)] * 4, [(4.0, False, 0.0)] * 4))  # they come and go
@given(LEASES, st.tuples(FAULTS, FAULTS), st.tuples(LIVES, LIVES))
def test_two_never_lead_at_the_same_time_and_one_leads_when_the_trouble_is_over(
    lease: Json | None, faults: tuple[list[Fault], list[Fault]], lives: tuple[list[Any], list[Any]]
) -> None:
    async def play() -> None:
        cluster, electors = a_cluster(lease), list[Exclusive]()
        processes = [Process(cluster, f"p{n}", faults[n], lives[n]) for n in (0, 1)]
        tasks = [asyncio.create_task(process.run(electors)) for process in processes]
        await asyncio.sleep(TROUBLE)
        # Everything is well from here on: a lease that is not renewed expires, and the next process holds it.
        for process in processes:
            process.faults, process.lives = iter(()), iter(())
        await asyncio.sleep(4 * TIGHT.lease)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError):
                raise result or AssertionError("a process ended")
        assert max(elector.led_at for elector in electors) > TROUBLE, "nobody leads"

    with asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=1)) as runner:
        runner.run(play())
