import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.runtime.cluster import Call, FakeCluster, waiting
from tests.runtime.kind import KEY, NOW, TOY, Decide, Toy, ToyKind, create_pods, pod_json, toy_json
from trainmaster.core.errors import NotLeading, Unreachable
from trainmaster.core.ids import EVENT, LEASE, POD, SERVICE, Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Plan, normal
from trainmaster.core.view import JOB_CODEC, POD_CODEC, SERVICE_CODEC, JobView, PodView, ServiceView
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime import manager as module
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.controller import Controller
from trainmaster.runtime.definition_check import CHECK_SECONDS, DEFINITION, DefinitionCheck
from trainmaster.runtime.elector import Elector
from trainmaster.runtime.executor import Executor
from trainmaster.runtime.host_ports import HostPorts
from trainmaster.runtime.manager import BEHIND_SECONDS, DRAIN_SECONDS, FLUSH_SECONDS, Manager
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store
from trainmaster.settings import ElectionTimes

pytestmark = pytest.mark.looptime

LEASE_KEY = Key("system", "operator")
OTHER_KEY = Key("system", "other")
TIMES = ElectionTimes()


class Collector:
    """In the place of the module gc: freezing the real one would keep the garbage of all other tests."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def collect(self) -> None:
        self.calls.append("collect")

    def freeze(self) -> None:
        self.calls.append("freeze")

    def set_threshold(self, *_: int) -> None:
        self.calls.append("set_threshold")


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    monkeypatch.setattr(module, "gc", collector := Collector())
    return collector


def clock() -> float:
    return asyncio.get_running_loop().time()


def an_elector(cluster: FakeCluster, identity: str = "me", key: Key = LEASE_KEY) -> Elector:
    return Elector(cluster, key, identity, TIMES, now=lambda: NOW + timedelta(seconds=clock()), monotonic=clock)


def work_once(job: Toy, observed: Observed) -> Plan:
    """One pod, then one status with one event, then nothing."""
    if not observed.pods:
        return Plan(creates=create_pods(1))
    if not job.status.phase:
        return Plan(status={"phase": "Running"}, events=(normal("Running", "all pods run"),))
    return Plan()


class OtherKind(ToyKind):
    resource = Resource("test.example", "v1", "others", "Other")


class Rig:
    """A manager of one controller with two workers for each kind, and its whole runtime, on a cluster with one job of
    each kind. Each controller has a Lease of its own; that of the first has the key LEASE_KEY."""

    def __init__(self, decide: Decide = work_once, *, elects: bool = True, also: Sequence[ToyKind] = ()) -> None:
        self.kind = ToyKind(decide)
        kinds = [self.kind, *also]
        self.cluster = FakeCluster(*((kind.resource, toy_json()) for kind in kinds))
        self.line = self.cluster.line()
        pods, services = Store[PodView](POD), Store[ServiceView](SERVICE)
        jobs = {kind.resource: Store[JobView](kind.resource) for kind in kinds}
        reflectors: list[Reflector[Any]] = [
            *(Reflector(self.line, store, JOB_CODEC) for store in jobs.values()),
            Reflector(self.line, pods, POD_CODEC),
            Reflector(self.line, services, SERVICE_CODEC),
        ]
        barrier = Barrier({**jobs, POD: pods, SERVICE: services})
        recorder = Recorder(self.line, lambda: NOW)
        controllers = [
            Controller(
                ResourceKinds(kind),
                jobs=jobs[kind.resource],
                pods=pods,
                services=services,
                barrier=barrier,
                executor=Executor(self.line, barrier),
                recorder=recorder,
                ports=HostPorts(),
                now=lambda: NOW,
                workers=2,
            )
            for kind in kinds
        ]
        keys = {kind.name: LEASE_KEY if kind is self.kind else Key("system", kind.name) for kind in kinds}
        electors = {name: an_elector(self.line, key=key) for name, key in keys.items()} if elects else {}
        self.electors = electors
        self.manager = Manager(reflectors, controllers, recorder, electors)
        self.stop = asyncio.Event()

    @asynccontextmanager
    async def running(self, seconds: float = 0.0) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.manager.run(self.stop))
        await asyncio.sleep(seconds)
        yield task
        if not task.done():
            self.stop.set()
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def stopped(self, task: asyncio.Task[None]) -> float:
        """Stop it; how many seconds that took."""
        start = clock()
        self.stop.set()
        await task
        return clock() - start

    def is_ready(self) -> bool:
        return self.manager.is_ready

    @property
    def holder(self) -> str | None:
        lease = self.cluster.find(LEASE, LEASE_KEY)
        return lease["spec"].get("holderIdentity", "") if lease else None

    def writes(self) -> list[tuple[str, str]]:
        """Except of leases."""
        verbs = ("create", "replace", "patch", "delete")
        return [(c.verb, c.resource.plural) for c in self.cluster.calls if c.verb in verbs and c.resource != LEASE]


# --- start ---


async def test_it_is_ready_when_every_store_is_complete_and_nothing_is_planned_before(collector: Collector) -> None:
    rig = Rig()

    async def late(call: Call) -> None:
        if (call.verb, call.resource) == ("list", SERVICE):
            await asyncio.sleep(5)

    rig.line.before = late
    async with rig.running(4.9):
        assert not rig.is_ready()
        assert (rig.kind.passes, rig.holder, collector.calls) == ([], None, [])
        await asyncio.sleep(0.2)
        assert rig.is_ready()
        assert collector.calls == ["collect", "freeze", "set_threshold"]
        assert rig.kind.passes != []


async def test_it_is_not_ready_while_a_cache_is_behind_and_names_the_cache() -> None:
    rig, is_away = Rig(), True

    async def away(call: Call) -> None:
        if is_away and (call.verb, call.resource) == ("watch", SERVICE):
            raise Unreachable("connection refused")

    rig.line.before = away
    async with rig.running(BEHIND_SECONDS - 1):
        assert rig.is_ready()

        await asyncio.sleep(2)
        assert rig.manager.problem == (
            f"the cache of services has been behind for {BEHIND_SECONDS + 1:.0f} s:"
            " the API server cannot be read, see the log"
        )

        is_away = False
        await asyncio.sleep(15)
        assert rig.is_ready()


async def test_it_is_not_ready_after_a_definition_was_deleted_and_names_the_definition() -> None:
    rig = Rig()
    wanted = {"metadata": {"name": "toys.test.example"}, "spec": {"versions": []}}
    rig.cluster.put(DEFINITION, {**wanted, "metadata": {"name": "toys.test.example", "namespace": ""}})
    check = DefinitionCheck(rig.cluster, [wanted])
    manager = Manager([], [], Recorder(rig.cluster, lambda: NOW), {}, check)
    task = asyncio.create_task(check.run())
    await asyncio.sleep(1)
    before = manager.problem
    rig.cluster.take(DEFINITION, Key("", "toys.test.example"))
    await asyncio.sleep(CHECK_SECONDS)
    after = manager.problem
    task.cancel()

    assert before == ""
    assert after.startswith("the definition of toys.test.example was deleted")


async def test_without_election_it_works_as_soon_as_it_is_ready() -> None:
    rig = Rig(elects=False)
    async with rig.running(1):
        assert sorted(rig.writes()) == [("create", "events")] * 2 + [("create", "pods"), ("patch", "toys")]
        assert rig.cluster.asked("get", LEASE) == []


async def test_a_standby_is_ready_and_does_nothing_until_it_leads() -> None:
    rig = Rig()
    leader = an_elector(rig.cluster, "other")
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    async with rig.running(100) as task:
        assert rig.is_ready()
        assert (rig.kind.passes, rig.writes(), rig.holder) == ([], [], "other")

        holding.cancel()
        await asyncio.sleep(TIMES.lease + TIMES.retry)
        assert rig.holder == "me"
        assert ("create", "pods") in rig.writes()
        assert not task.done()


async def test_a_controller_works_while_its_own_lease_is_held_whoever_has_the_others() -> None:
    other = OtherKind(work_once)
    rig = Rig(also=[other])
    leader = an_elector(rig.cluster, "other")
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    async with rig.running(100):
        assert rig.kind.passes == []
        assert other.passes != []
        assert ("patch", "others") in rig.writes()
        assert ("patch", "toys") not in rig.writes()

        holding.cancel()
        await asyncio.sleep(TIMES.lease + TIMES.retry)
        assert ("patch", "toys") in rig.writes()


async def test_stop_gives_every_lease_back_that_is_held_and_no_other() -> None:
    rig = Rig(also=[OtherKind(work_once)])
    leader = an_elector(rig.cluster, "other")
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    async with rig.running(5) as task:
        await rig.stopped(task)
        holding.cancel()
        await asyncio.wait([holding])

    holders = {key: (rig.cluster.find(LEASE, key) or {})["spec"]["holderIdentity"] for key in (LEASE_KEY, OTHER_KEY)}
    assert holders == {LEASE_KEY: "other", OTHER_KEY: ""}


async def test_one_lease_that_is_lost_ends_the_work_of_all() -> None:
    rig = Rig(also=[OtherKind(work_once)])

    async def unanswered(call: Call) -> None:
        if clock() > 20 and call.key == OTHER_KEY:
            await asyncio.sleep(1000)

    rig.line.before = unanswered
    with pytest.raises(ExceptionGroup) as raised:
        await rig.manager.run(rig.stop)

    assert raised.group_contains(NotLeading, match=f"lease {OTHER_KEY} could not be renewed")


# --- work ---


async def test_a_pod_that_runs_is_seen_on_its_job_while_the_requests_of_all_others_are_held_up() -> None:
    def decide(job: Toy, observed: Observed) -> Plan:
        if not observed.pods:
            return Plan(creates=create_pods(1))
        is_running = all(pod.phase == "Running" for pod in observed.all_pods)
        return Plan(status={"phase": "Running"}) if is_running and not job.status.phase else Plan()

    rig = Rig(decide, elects=False)
    rig.cluster.put(TOY, started := toy_json("started"))
    rig.cluster.put(POD, pod_json("started-worker-0", owner=started, phase="Pending"))
    rig.cluster.put(TOY, toy_json("other"))
    rig.line.before = _hanging_pods
    async with rig.running(1):
        held_up = [("create", "pods")] * 2  # of mnist and of other: as many as there are workers
        assert rig.writes() == held_up

        rig.cluster.put(POD, pod_json("started-worker-0", owner=started, phase="Running"))
        await asyncio.sleep(1)

        assert rig.writes() == [*held_up, ("patch", "toys")]


# --- stop ---


async def test_stop_finishes_the_pass_in_hand_and_begins_no_other() -> None:
    rig = Rig(lambda job, observed: Plan(creates=create_pods(1), status={"phase": "Running"}))
    rig.cluster.put(TOY, toy_json("other"))
    rig.cluster.put(TOY, toy_json("third"))
    rig.line.before = waiting("create", 3.0)
    async with rig.running(4) as task:  # the lease takes 3 s, too
        assert rig.writes() == [("create", "pods")] * 2
        await rig.stopped(task)

    assert rig.writes().count(("create", "pods")) == 2
    assert {name for name, _ in rig.kind.passes} == {"mnist", "other"}


async def test_stop_gives_a_pass_that_hangs_a_bounded_time() -> None:
    rig = Rig()
    rig.line.before = _hanging_pods
    async with rig.running(1) as task:
        assert await rig.stopped(task) == pytest.approx(DRAIN_SECONDS, abs=0.1)

    assert rig.holder == ""


async def _hanging_pods(call: Call) -> None:
    if (call.verb, call.resource) == ("create", POD):
        await asyncio.sleep(10_000)


async def test_stop_sends_the_events_that_are_left() -> None:
    events = tuple(normal("Running", f"step {n}") for n in range(20))
    rig = Rig(lambda job, observed: Plan() if job.status.phase else Plan(status={"phase": "Running"}, events=events))
    async with rig.running(0.05) as task:
        sent = len(rig.cluster.asked("create", EVENT))
        assert sent < 20
        await rig.stopped(task)

    assert len(rig.cluster.asked("create", EVENT)) == 20


async def test_stop_does_not_wait_for_events_for_ever() -> None:
    rig = Rig()

    async def hanging_events(call: Call) -> None:
        if call.resource == EVENT:
            await asyncio.sleep(10_000)

    rig.line.before = hanging_events
    async with rig.running(1) as task:
        assert await rig.stopped(task) == pytest.approx(FLUSH_SECONDS, abs=0.1)


async def test_stop_gives_the_lease_back_after_the_last_write() -> None:
    rig = Rig()
    async with rig.running(1) as task:
        assert rig.holder == "me"
        await rig.stopped(task)

    assert rig.holder == ""
    last = rig.cluster.calls[-1]
    assert (last.verb, last.resource, last.body["spec"].get("holderIdentity")) == ("replace", LEASE, "")


async def test_while_it_stops_the_lease_is_renewed() -> None:
    rig = Rig()
    rig.line.before = _slow_pods
    async with rig.running(1) as task:
        stopping = asyncio.create_task(rig.stopped(task))
        await asyncio.sleep(TIMES.renew_deadline + 2)
        assert rig.electors["toy"] is not None
        assert rig.electors["toy"].is_leading
        await stopping

    assert ("patch", "toys") not in rig.writes()  # one pass, not two
    assert rig.cluster.find(POD, Key("ml", "mnist-worker-0")) is not None


async def _slow_pods(call: Call) -> None:
    if (call.verb, call.resource) == ("create", POD):
        await asyncio.sleep(15)


async def test_a_standby_stops_at_once_and_leaves_the_lease_alone() -> None:
    rig = Rig()
    await an_elector(rig.cluster, "other").acquire()
    async with rig.running(5) as task:
        assert await rig.stopped(task) == 0

    assert rig.holder == "other"
    assert rig.cluster.asked("replace", LEASE) == []


async def test_it_stops_at_once_while_it_cannot_read() -> None:
    rig = Rig()
    rig.line.before = waiting("list", 10_000)
    async with rig.running(5) as task:
        assert not rig.is_ready()
        assert await rig.stopped(task) == 0


# --- what ends it ---


async def test_losing_the_lease_ends_it_and_the_pass_in_hand_with_it() -> None:
    rig = Rig(lambda job, observed: Plan(creates=create_pods(1), status={"phase": "Running"}))

    async def cut_off(call: Call) -> None:
        if clock() > 1 and call.resource == LEASE:
            await asyncio.sleep(10_000)
        if call.resource == POD and call.verb == "create":
            await asyncio.sleep(15)

    rig.line.before = cut_off
    async with rig.running() as task:
        with pytest.RaisesGroup(NotLeading, flatten_subgroups=True):
            await task
        assert clock() == pytest.approx(TIMES.renew_deadline, abs=0.1)

    assert rig.writes() == [("create", "pods")]
    assert rig.cluster.find(POD, Key("ml", "mnist-worker-0")) is None
    assert rig.holder == "me"  # it is not ours to give back any more: it ends by itself


async def test_a_defect_of_a_reflector_ends_neither_the_process_nor_the_lease() -> None:
    rig = Rig()

    async def broken(call: Call) -> None:
        if call.verb == "watch" and call.resource == SERVICE and clock() < 60:
            await asyncio.sleep(3)
            raise ZeroDivisionError

    rig.line.before = broken
    async with rig.running(100) as task:
        assert not task.done()
        assert rig.holder == "me"
        assert rig.cluster.asked("list", SERVICE)[-1].at >= 60


async def test_a_defect_of_the_lease_ends_it_and_the_lease_is_given_back() -> None:
    rig = Rig()

    async def broken(call: Call) -> None:
        if call.verb == "replace" and call.resource == LEASE and clock() >= 3:
            rig.line.before = rig.cluster.before
            raise ZeroDivisionError

    rig.line.before = broken
    async with rig.running() as task:
        with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
            await task

    assert rig.holder == ""


async def test_the_job_is_driven_to_its_end_by_all_of_it_together() -> None:
    rig = Rig()
    async with rig.running(10):
        found = rig.cluster.find(TOY, KEY)
        assert found is not None
        assert found["status"] == {"phase": "Running"}
        messages = [call.body["message"] for call in rig.cluster.asked("create", EVENT)]
        assert messages == ["create pod mnist-worker-0", "all pods run"]
        # quiet: nothing more is written but the lease
        before = rig.writes()
        await asyncio.sleep(600)
        assert rig.writes() == before
