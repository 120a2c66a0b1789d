import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from tests.build import a_node, view_of_candidate, view_of_pod
from tests.odd import MARK, VALUES, with_value
from tests.runtime.cluster import Call, FakeCluster, raising, waiting
from tests.runtime.kind import (
    KEY,
    NOW,
    TOY,
    Decide,
    Toy,
    ToyKind,
    a_child,
    a_page,
    a_pod,
    a_service,
    a_toy,
    child_json,
    create_pod,
    create_pods,
    pod_json,
    toy_json,
)
from trainmaster.core.definition import outdated
from trainmaster.core.errors import (
    Conflict,
    Forbidden,
    NotFound,
    NotSynced,
    ServerError,
    Terminating,
    UnknownField,
    Unreachable,
)
from trainmaster.core.ids import CONFIG_MAP, JOB, LEASE, NAMESPACE, NODE, POD, SERVICE, Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import LAZY, Delete, Event, Patch, Plan, normal, warning
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import (
    JOB_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    CandidateView,
    ChildView,
    JobView,
    LeaseView,
    NodeView,
    PodView,
    ServiceView,
)
from trainmaster.kinds.base import Related
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.adopter import Adopter
from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.barrier import Barrier
from trainmaster.runtime.controller import BARRIER_POLL, RESERVED, Controller
from trainmaster.runtime.executor import TERMINATING_SECONDS, Executor
from trainmaster.runtime.host_ports import HostPorts
from trainmaster.runtime.node_index import POLL, NodeIndex
from trainmaster.runtime.other_operators import OtherOperators
from trainmaster.runtime.recorder import Recorder
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.status_writer import CONFLICT_SECONDS, CREATED_POLL
from trainmaster.runtime.store import Store

pytestmark = pytest.mark.looptime

OTHER = Key("ml", "other")


class Notebook(Recorder):
    """A recorder that sends nothing."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster, lambda: NOW)
        self.events: list[Event] = []

    def record(self, resource: Resource, job: JobView, component: str, event: Event) -> None:
        assert (resource, component) == (TOY, "toy-operator")
        self.events.append(event)


class Rig:
    """A controller of toys on a cluster that has some, and stores that have read it."""

    def __init__(
        self,
        decide: Decide = lambda job, observed: Plan(),
        jobs: tuple[str, ...] = ("mnist",),
        is_free: Callable[[int], bool] = lambda port: True,
        related: Related | None = None,
        children: tuple[Resource, ...] = (),
        has_nodes: bool = False,
    ) -> None:
        self.cluster = FakeCluster(*((TOY, toy_json(name)) for name in jobs))
        self.kind = ToyKind(decide, related, children)
        self.children = {resource: Store[ChildView](resource) for resource in children}
        self.related = Store[JobView](related.resource) if related else None
        self.jobs, self.pods, self.services = Store[JobView](TOY), Store[PodView](POD), Store[ServiceView](SERVICE)
        self.barrier = Barrier({TOY: self.jobs, POD: self.pods, SERVICE: self.services, **self.children})
        self.recorder = Notebook(self.cluster)
        self.ports = HostPorts(is_free)
        self.ports.follow(self.jobs, self.pods)
        self.nodes = Store[NodeView](NODE)
        self.candidates = Store[CandidateView](POD)
        self.leases = Store[LeaseView](LEASE)
        self.controller = Controller(
            ResourceKinds(self.kind),
            jobs=self.jobs,
            pods=self.pods,
            services=self.services,
            barrier=self.barrier,
            executor=Executor(self.cluster, self.barrier),
            recorder=self.recorder,
            ports=self.ports,
            now=lambda: NOW,
            workers=2,
            related={related: self.related} if related and self.related else None,
            children=self.children,
            nodes=NodeIndex(self.nodes, self.pods) if has_nodes else None,
            adopter=Adopter(ResourceKinds(self.kind), {(None, POD): self.candidates}, {POD: self.pods}),
            others=OtherOperators(self.cluster, self.leases, {"ml"}, lambda: 0.0),
            backoff=Backoff(1.0, 120.0, jitter=lambda: 0.0),
        )
        self.queue = self.controller.queue
        self.jobs.replace([self.stored(name) for name in jobs], 1000 + len(jobs))
        self.pods.replace([], 1000)
        self.candidates.replace([], 1000)
        self.services.replace([], 1000)
        for store in self.children.values():
            store.replace([], 1000)

    def stored(self, name: str = "mnist") -> JobView:
        """The job as the cluster has it now."""
        body = self.cluster.find(TOY, Key("ml", name))
        assert body is not None
        return a_toy(name, version=int(body["metadata"]["resourceVersion"]), status=body.get("status"))

    async def reconcile(self, key: Key = KEY) -> str:
        """One pass, as a worker makes it."""
        try:
            return await self.controller.reconcile(key)
        finally:
            self.queue.done(key)

    @asynccontextmanager
    async def working(self, seconds: float = 0.0) -> AsyncIterator[None]:
        """Workers and reflectors run; the block begins after so many seconds."""
        reads: tuple[Reflector[Any], ...] = (
            Reflector(self.cluster, self.jobs, JOB_CODEC),
            Reflector(self.cluster, self.pods, POD_CODEC),
            Reflector(self.cluster, self.services, SERVICE_CODEC),
        )
        tasks = [asyncio.create_task(reflector.run()) for reflector in reads]
        tasks += [asyncio.create_task(self.controller.work()) for _ in range(self.controller.workers)]
        await asyncio.sleep(seconds)
        yield
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, asyncio.CancelledError | None), result

    def passes(self, name: str = "mnist") -> list[float]:
        """When the job was planned, from the first time on."""
        times = [at for of, at in self.kind.passes if of == name]
        return [round(at - times[0], 3) for at in times]


def a_delete(name: str = "mnist-worker-0") -> Delete:
    return Delete(POD, Key("ml", name), f"uid-of-{name}", "because")


def always(plan: Plan) -> Decide:
    return lambda job, observed: plan


def in_turn(*plans: Plan) -> Decide:
    """These plans, then the empty one for ever."""
    left = iter(plans)
    return lambda job, observed: next(left, Plan())


# --- one pass ---


async def test_a_settled_job_costs_nothing() -> None:
    rig = Rig()

    assert await rig.reconcile() == "success"
    assert rig.cluster.calls == []
    assert rig.recorder.events == []


async def test_a_plan_is_made_from_what_the_job_owns_and_nothing_else() -> None:
    found: list[Observed] = []

    def look(job: Toy, observed: Observed) -> Plan:
        found.append(observed)
        return Plan()

    rig = Rig(look)
    rig.pods.put(mine := a_pod("mnist-worker-0"))
    rig.pods.put(a_pod("other-worker-0", owner=toy_json("other")))
    rig.pods.put(a_pod("mnist-worker-1", owner=toy_json(uid="an-earlier-mnist")))
    stranger = a_pod("a-worker-0")  # of another namespace, and claims to be ours
    rig.pods.put(msgspec.structs.replace(stranger, key=Key("elsewhere", "a-worker-0")))
    rig.services.put(service := a_service("mnist-worker-0"))
    await rig.reconcile()

    assert found == [Observed({"worker": {0: mine}}, (), {"mnist-worker-0": service})]


async def test_children_of_another_operator_are_adopted_before_anything_is_planned() -> None:
    rig = Rig()
    rig.candidates.put(view_of_candidate(rig.cluster.put(POD, pod_json())))

    assert await rig.reconcile() == "requeue_after"
    assert rig.kind.passes == []
    stored = rig.cluster.find(POD, Key("ml", "mnist-worker-0"))
    assert stored is not None
    assert stored["metadata"]["labels"].items() >= MANAGED_BY.items()
    assert await rig.reconcile() == "requeue_after"  # the store does not show it yet
    assert rig.kind.passes == []
    rig.pods.put(view_of_pod(stored))
    assert await rig.reconcile() == "success"
    assert len(rig.kind.passes) == 1


async def test_a_child_of_another_operator_that_changed_meanwhile_is_read_again() -> None:
    rig = Rig()
    seen = view_of_candidate(rig.cluster.put(POD, pod_json()))
    rig.candidates.put(seen)
    rig.cluster.put(POD, pod_json())

    with pytest.raises(Conflict):
        await rig.reconcile()


async def test_a_child_of_another_operator_that_comes_late_wakes_its_job() -> None:
    rig = Rig()
    async with rig.working(1.0):
        rig.candidates.put(view_of_candidate(pod_json()))
        await asyncio.sleep(0.1)

        assert [call.key.name for call in rig.cluster.asked("patch", POD)] == ["mnist-worker-0"]


async def test_deletes_come_before_creates() -> None:
    rig = Rig(always(Plan(deletes=(a_delete(),), creates=(create_pod("mnist-worker-1"),))))
    rig.cluster.put(POD, pod_json())
    await rig.reconcile()

    assert [call.verb for call in rig.cluster.calls] == ["delete", "create"]


async def test_the_status_comes_after_the_deletes() -> None:
    rig = Rig(always(Plan(deletes=(a_delete(),), status={"phase": "Running"})))
    rig.cluster.put(POD, pod_json())
    await rig.reconcile()

    assert [call.verb for call in rig.cluster.calls] == ["delete", "patch"]


async def test_the_status_waits_for_the_pass_that_sees_what_was_created() -> None:
    rig = Rig(always(Plan(creates=create_pods(1), status={"phase": "Running"})))
    await rig.reconcile()

    assert [call.verb for call in rig.cluster.calls] == ["create"]
    assert rig.queue._entries[KEY].due == asyncio.get_running_loop().time() + CREATED_POLL


async def test_a_status_is_put_off_once_and_not_for_ever() -> None:
    numbers = iter(range(9))
    rig = Rig(lambda job, observed: Plan(creates=(create_pod(f"w-{next(numbers)}"),), status={"phase": "Running"}))
    await rig.reconcile()
    rig.pods.advance(10_000)
    await rig.reconcile()

    assert [call.verb for call in rig.cluster.calls] == ["create", "create", "patch"]


async def test_status_first_stores_the_status_and_acts_on_nothing_else() -> None:
    plan = Plan(
        deletes=(a_delete(),),
        creates=create_pods(1),
        status={"phase": "Ended"},
        status_first=True,
        events=(normal("Ended", "done"),),
    )
    rig = Rig(always(plan))
    rig.cluster.put(POD, pod_json())
    await rig.reconcile()

    assert [call.verb for call in rig.cluster.calls] == ["patch"]
    assert rig.recorder.events == [normal("Ended", "done")]


async def test_what_was_kept_back_for_the_status_follows_in_the_next_pass() -> None:
    def decide(job: Toy, observed: Observed) -> Plan:
        if job.status.phase == "Ended":
            return Plan(deletes=(a_delete(),) if observed.pods else ())
        return Plan(deletes=(a_delete(),), status={"phase": "Ended"}, status_first=True)

    rig = Rig(decide)
    rig.cluster.put(POD, pod_json())
    async with rig.working(5):
        assert rig.cluster.find(POD, Key("ml", "mnist-worker-0")) is None
    assert [call.verb for call in rig.cluster.calls if call.verb not in ("list", "watch")] == ["patch", "delete"]


async def test_a_status_that_pods_wait_for_gives_way_to_nobody() -> None:
    def decide(job: Toy, observed: Observed) -> Plan:
        if job.metadata.name == "mnist":
            return Plan(creates=create_pods(1))
        return Plan(status={"phase": "Created"}, status_first=True)

    rig = Rig(decide, jobs=("mnist", "other"))
    rig.cluster.before = waiting("create", 60.0)
    creating = asyncio.create_task(rig.reconcile())
    await asyncio.sleep(1)
    await rig.reconcile(OTHER)

    assert [call.verb for call in rig.cluster.calls] == ["create", "patch"]
    await creating


# --- ports ---


def drawing(*wanted: int) -> Decide:
    """Plans to store the first so many of 1, 2, 3, … that are not taken, unless ports are stored."""

    def decide(job: Toy, observed: Observed) -> Plan:
        if job.status.phase:
            return Plan()
        ports = tuple(itertools.islice((n for n in itertools.count(1) if n not in observed.taken), *wanted))
        stored = {"mine": {str(n): n for n in ports}}
        return Plan(status={"phase": "Created", "ports": stored}, status_first=True, ports=ports)

    return decide


def ports_of(rig: Rig, name: str = "mnist") -> list[int]:
    body = rig.cluster.find(TOY, Key("ml", name))
    assert body is not None
    return list(body["status"]["ports"]["mine"].values())


async def test_two_jobs_that_are_planned_before_the_watch_tells_get_different_ports() -> None:
    rig = Rig(drawing(2), jobs=("mnist", "other"))
    rig.cluster.before = waiting("patch", 10.0)
    await asyncio.gather(rig.reconcile(KEY), rig.reconcile(OTHER))

    assert (ports_of(rig), ports_of(rig, "other")) == ([1, 2], [3, 4])


async def test_ports_whose_status_was_not_stored_are_drawn_again() -> None:
    rig = Rig(drawing(2))
    rig.cluster.before = raising("patch", ServerError("etcd is busy"))
    with pytest.raises(ServerError):
        await rig.reconcile()
    await rig.reconcile()

    assert ports_of(rig) == [1, 2]


async def test_ports_of_strangers_are_passed_over_however_many_they_are() -> None:
    asked: list[int] = []

    def is_free(port: int) -> bool:
        asked.append(port)
        return port > 40

    rig = Rig(drawing(2), is_free=is_free)
    await rig.reconcile()

    assert ports_of(rig) == [41, 42]
    assert len(asked) == 42  # each of them once


async def test_who_draws_no_port_asks_nobody() -> None:
    rig = Rig(always(Plan(creates=create_pods(1))), is_free=lambda port: pytest.fail("nobody wants a port"))

    assert await rig.reconcile() == "success"


# --- events ---


async def test_events_of_a_plan_are_recorded_after_the_status_was_stored() -> None:
    plan = Plan(status={"phase": "Running"}, events=(normal("Running", "all pods run"),))
    rig = Rig(always(plan))
    rig.cluster.before = raising("patch", ServerError("etcd is busy"))
    with pytest.raises(ServerError):
        await rig.reconcile()
    assert rig.recorder.events == []

    await rig.reconcile()
    assert rig.recorder.events == [normal("Running", "all pods run")]


async def test_events_are_not_repeated_for_a_status_that_is_stored_already() -> None:
    rig = Rig(always(Plan(status={"phase": "Running"}, events=(normal("Running", "all pods run"),))))
    rig.jobs.put(a_toy(version=2000, status={"phase": "Running"}))
    await rig.reconcile()

    assert rig.recorder.events == []


async def test_what_was_done_is_recorded_once_for_each_verb_and_resource() -> None:
    deletes = (a_delete("old-0"), a_delete("old-1"), a_delete("gone"))
    rig = Rig(always(Plan(deletes=deletes, creates=create_pods(2))))
    for name in ("old-0", "old-1"):
        rig.cluster.put(POD, pod_json(name))
    await rig.reconcile()

    assert rig.recorder.events == [
        normal("Delete", "delete pod old-0, old-1: because"),
        normal("Create", "create pod mnist-worker-0, mnist-worker-1"),
    ]


async def test_an_error_of_the_api_server_is_told_when_it_stays() -> None:
    rig = Rig(always(Plan(creates=create_pods(1))))
    rig.cluster.before = raising("create", *[ServerError("failed calling webhook", code=500)] * 3)

    for _ in range(2):
        with pytest.raises(ServerError):
            await rig.reconcile()
        rig.controller.queue.retry(a_toy().key)
    before = list(rig.recorder.events)
    await rig.reconcile()

    assert before == []
    assert rig.recorder.events == [warning("FailedCreate", "create pod mnist-worker-0: failed calling webhook")]


async def test_refusals_are_recorded_as_warnings_but_not_a_thousand_of_them() -> None:
    names = [f"old-{n}" for n in range(5)]
    rig = Rig(always(Plan(deletes=tuple(map(a_delete, names)))))
    for name in names:
        rig.cluster.put(POD, pod_json(name))
    rig.cluster.before = raising("delete", *[Forbidden("no right")] * 5)
    await rig.reconcile()

    assert rig.recorder.events == [warning("FailedDelete", f"delete pod {name}: no right") for name in names[:3]]


# --- read your own writes ---


async def test_a_job_whose_writes_the_store_has_not_seen_is_not_planned() -> None:
    rig = Rig()
    rig.barrier.wrote("uid-of-mnist", POD, 5000)

    assert await rig.reconcile() == "requeue_after"
    assert rig.kind.passes == []


async def test_a_job_that_waits_for_the_store_is_looked_at_again_without_an_event() -> None:
    rig = Rig()
    async with rig.working(1):
        rig.barrier.wrote("uid-of-mnist", POD, 5000)
        rig.kind.passes.clear()
        rig.queue.add(KEY)
        await asyncio.sleep(10)
        assert rig.kind.passes == []

        rig.pods.advance(5000)  # a bookmark: nobody is told
        await asyncio.sleep(BARRIER_POLL + 0.01)
        assert len(rig.kind.passes) == 1


async def test_nothing_is_created_twice_however_late_the_store_is() -> None:
    rig = Rig(lambda job, observed: Plan(creates=() if observed.pods else create_pods(3)))

    async def late(call: Call) -> None:
        if (call.verb, call.resource) == ("watch", POD):
            await asyncio.sleep(5)

    rig.cluster.before = late
    async with rig.working():
        for _ in range(100):
            rig.queue.add(KEY)
            await asyncio.sleep(0.1)
    assert len(rig.cluster.asked("create", POD)) == 3
    assert len(rig.passes()) > 10


async def test_a_new_incarnation_does_not_wait_for_the_writes_of_the_old() -> None:
    rig = Rig()
    rig.barrier.wrote("uid-of-mnist", POD, 5000)
    rig.jobs.put(a_toy(uid="second", version=2000))
    await rig.reconcile()

    assert len(rig.kind.passes) == 1
    assert rig.barrier._written == {}


# --- counters may wait ---

COUNTED = Plan(status={"active": 1}, lazy=LAZY)


async def test_a_lazy_status_waits_for_company_but_not_for_ever() -> None:
    rig = Rig(lambda job, observed: Plan() if job.status.active else COUNTED)
    async with rig.working(LAZY - 0.1):
        assert rig.cluster.asked("patch") == []
        await asyncio.sleep(0.2)
        assert rig.stored().raw.endswith(b'"status":{"active":1}}')
    assert rig.passes()[1] == LAZY


async def test_events_do_not_prolong_the_wait_of_a_lazy_status() -> None:
    rig = Rig(lambda job, observed: Plan() if job.status.active else COUNTED)
    async with rig.working():
        for _ in range(70):
            rig.queue.add(KEY)
            await asyncio.sleep(0.1)
    (patch,) = rig.cluster.asked("patch")
    assert patch.at - rig.kind.passes[0][1] == pytest.approx(LAZY, abs=0.2)


async def test_a_lazy_status_travels_with_the_next_change() -> None:
    rig = Rig(in_turn(COUNTED, Plan(status={"active": 2, "phase": "Running"})))
    async with rig.working(1):
        rig.queue.add(KEY)
        await asyncio.sleep(20)
    assert [call.body["status"] for call in rig.cluster.asked("patch")] == [{"active": 2, "phase": "Running"}]


async def test_each_lazy_status_has_its_own_wait() -> None:
    rig = Rig(lambda job, observed: Plan(status={"active": job.status.active + 1}, lazy=LAZY))
    async with rig.working(3 * LAZY + 1):
        pass
    times = [call.at for call in rig.cluster.asked("patch")]
    assert len(times) == 3
    assert all(later - sooner >= LAZY for sooner, later in itertools.pairwise(times))


async def test_a_status_that_took_itself_back_leaves_no_wait_behind() -> None:
    rig = Rig(in_turn(COUNTED, Plan(), COUNTED))
    await rig.reconcile()
    await asyncio.sleep(LAZY - 1)
    await rig.reconcile()
    await asyncio.sleep(2)
    await rig.reconcile()

    assert rig.cluster.asked("patch") == []


# --- what goes wrong ---


async def test_a_refusal_is_told_in_the_status_and_tried_again() -> None:
    rig = Rig(always(Plan(creates=create_pods(1))))
    rig.cluster.before = raising("create", *[Forbidden("exceeded quota: gpu")] * 100)

    assert await rig.reconcile() == "requeue"
    (patch,) = rig.cluster.asked("patch")
    (condition,) = patch.body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodCreateFailed", "True")
    assert "pod ml/mnist-worker-0: exceeded quota: gpu" in condition["message"]
    assert rig.queue.failures(KEY) == 1


async def test_a_refusal_is_told_at_once_even_when_the_status_could_wait() -> None:
    rig = Rig(always(Plan(creates=create_pods(1), status={"active": 1}, lazy=LAZY)))
    rig.cluster.before = raising("create", Forbidden("exceeded quota: gpu"))
    await rig.reconcile()

    assert len(rig.cluster.asked("patch")) == 1


async def test_refusals_come_later_each_time_and_end_when_the_cause_does() -> None:
    rig = Rig(lambda job, observed: Plan(creates=() if observed.pods else create_pods(1)))
    rig.cluster.before = raising("create", *[Forbidden("exceeded quota: gpu")] * 4)
    async with rig.working(100):
        assert rig.queue.failures(KEY) == 0
    tries = [round(call.at - rig.cluster.asked("create")[0].at) for call in rig.cluster.asked("create")]
    # The status patch of the first refusal is an event: the second try comes after the floor of one second.
    assert tries == [0, 1, 3, 7, 15]


async def test_a_passing_error_is_tried_again_later_each_time() -> None:
    rig = Rig(lambda job, observed: Plan(deletes=(a_delete(),) if observed.pods else ()))
    rig.cluster.put(POD, pod_json())
    rig.cluster.before = raising("delete", *[Unreachable("refused")] * 4)
    async with rig.working(60):
        assert rig.queue.failures(KEY) == 0
    assert [round(at) for at in rig.passes()][:5] == [0, 1, 3, 7, 15]


async def test_after_an_outage_a_job_that_failed_is_looked_at_as_soon_as_jobs_are_read_again() -> None:
    """The API server is away for a minute; by then the job's own back-off has grown to a minute, too."""
    rig = Rig(lambda job, observed: Plan(creates=() if observed.pods else create_pods(1)))
    is_away = False

    async def outage(call: Call) -> None:
        if is_away:
            raise Unreachable("refused")

    rig.cluster.before = outage
    rig.cluster.watches.extend([[1.0], [1.0], [1.0]])
    is_away = True
    async with rig.working(64):
        away = len(rig.passes())
        is_away = False
        await asyncio.sleep(11)
        assert len(rig.passes()) > away


@pytest.mark.parametrize("levels", ["1500 levels", "9000 levels"])
async def test_a_job_that_is_nested_too_deeply_is_told_so_and_the_others_are_driven(
    levels: str, logs: list[MutableMapping[str, Any]]
) -> None:
    rig = Rig(lambda job, observed: Plan(requeue_after=1.0), jobs=("mnist", "other"))
    async with rig.working(0.5):
        rig.cluster.put_raw(TOY, with_value({**toy_json(version=0), "spec": {"a": MARK}}, VALUES[levels]))
        before = len(rig.passes("other"))
        await asyncio.sleep(10)
        assert len(rig.passes("other")) == before + 10

    stored = rig.cluster.asked("patch", TOY)[0].body["status"]
    assert [(c["type"], c["status"], c["reason"]) for c in stored["conditions"]] == [
        ("Accepted", "False", "InvalidSpec")
    ]
    assert [line for line in logs if line["log_level"] == "error"] == []


async def test_a_defect_that_one_job_brings_out_does_not_stop_the_others(logs: list[MutableMapping[str, Any]]) -> None:
    def decide(job: Toy, observed: Observed) -> Plan:
        if job.metadata.name == "mnist":
            raise ZeroDivisionError
        return Plan(requeue_after=1.0)

    rig = Rig(decide, jobs=("mnist", "other"))
    async with rig.working(20.5):
        pass

    assert len(rig.passes("other")) == 21
    assert rig.passes("mnist") == [0, 1, 3, 7, 15]
    defects = [line for line in logs if line["log_level"] == "error"]
    assert {(line["event"], line["job"]) for line in defects} == {
        ("pass failed by a defect in trainmaster", "ml/mnist")
    }
    (patch,) = rig.cluster.asked("patch", TOY)
    (condition,) = patch.body["status"]["conditions"]
    assert (patch.key.name, condition["type"], condition["status"]) == ("mnist", "Accepted", "False")
    assert "a defect in trainmaster: ZeroDivisionError" in condition["message"]


@pytest.mark.parametrize(
    "error", [pytest.param(ServerError("boom"), id="passing"), pytest.param(Forbidden("quota"), id="refusal")]
)
async def test_a_failing_job_is_not_planned_more_than_once_a_second_in_an_event_storm(error: Exception) -> None:
    rig = Rig(always(Plan(creates=(create_pod("mnist-worker-9"),))))
    rig.cluster.before = raising("create", *[error] * 1000)
    async with rig.working():
        for n in range(300):
            rig.cluster.put(POD, pod_json(phase="Running" if n % 2 else "Pending"))
            await asyncio.sleep(0.1)

    assert 15 < len(rig.passes()) <= 31
    assert all(later - sooner >= 0.999 for sooner, later in itertools.pairwise(rig.passes()))


async def test_a_hanging_job_does_not_stop_the_others() -> None:
    rig = Rig(
        lambda job, observed: Plan(requeue_after=1.0) if job.metadata.name == "other" else Plan(creates=create_pods(1)),
        jobs=("mnist", "other"),
    )
    rig.cluster.before = waiting("create", 1000)
    async with rig.working(10.5):
        assert len(rig.passes("other")) == 11


@pytest.mark.parametrize(
    ("pods", "least", "most"),
    [pytest.param(2, 90, 102, id="of few pods, at once"), pytest.param(500, 8, 12, id="of many, ten times a second")],
)
async def test_a_job_is_planned_for_the_events_of_its_pods(pods: int, least: int, most: int) -> None:
    rig = Rig()
    for n in range(pods):
        rig.cluster.put(POD, pod_json(f"mnist-worker-{n}", phase="Running"))
    async with rig.working(1.0):
        before = len(rig.passes())
        for n in range(100):
            rig.cluster.put(POD, pod_json(phase="Pending" if n % 2 else "Running"))
            await asyncio.sleep(0.01)
        assert least <= len(rig.passes()) - before <= most


# --- timers ---


async def test_a_job_is_looked_at_again_when_its_plan_asked_for_it() -> None:
    rig = Rig(always(Plan(requeue_after=30.0)))
    async with rig.working(100):
        assert rig.passes() == [0, 30, 60, 90]


async def test_requeue_after_zero_is_now_and_none_is_never() -> None:
    rig = Rig(in_turn(Plan(requeue_after=0.0), Plan()))
    async with rig.working(100):
        assert rig.passes() == [0, 0]


# --- which events matter ---


@pytest.fixture
async def quiet() -> Rig:
    return await a_quiet_rig()


async def a_quiet_rig() -> Rig:
    """A rig of two settled jobs whose first passes are over; its queue fills when something matters."""
    rig = Rig(jobs=("mnist", "other"))
    rig.pods.put(a_pod(version=1500))
    worker = asyncio.create_task(rig.controller.work())
    while rig.queue._entries or rig.queue._working or not rig.kind.passes:  # noqa: ASYNC110 nobody tells
        await asyncio.sleep(0)
    worker.cancel()
    await asyncio.wait({worker})
    return rig


def waiting_keys(rig: Rig) -> set[Key]:
    return set(rig.queue._entries)


READY = [{"type": "Ready", "status": "True"}]
FOREIGN = toy_json() | {"kind": "Puppet"}
FOREIGN_GROUP = toy_json() | {"apiVersion": "elsewhere.example/v1"}


@pytest.mark.parametrize(
    ("pod", "keys"),
    [
        pytest.param(a_pod("mnist-worker-1", version=2000), {KEY}, id="new"),
        pytest.param(a_pod(version=2000, phase="Failed"), {KEY}, id="phase"),
        pytest.param(a_pod(version=2000, deleting=True), {KEY}, id="on its way out"),
        pytest.param(a_pod(version=2000, uid="second"), {KEY}, id="another incarnation"),
        pytest.param(a_pod(version=2000, owner=toy_json("other")), {KEY, OTHER}, id="given to another job"),
        pytest.param(a_pod(version=2000), set(), id="heartbeat"),
        pytest.param(a_pod(version=2000, hostIP="10.0.0.1"), set(), id="a field that no plan looks at"),
        pytest.param(a_pod(version=2000, conditions=READY), set(), id="readiness"),
        pytest.param(a_pod("p-0", owner=FOREIGN), set(), id="child of another kind"),
        pytest.param(a_pod("p-0", owner=FOREIGN_GROUP), set(), id="child of a kind of another group"),
    ],
)
async def test_a_pod_event_enqueues_the_jobs_it_matters_to(quiet: Rig, pod: PodView, keys: set[Key]) -> None:
    quiet.pods.put(pod)

    assert waiting_keys(quiet) == keys


async def test_a_pod_that_becomes_ready_matters_to_a_kind_that_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyKind, "looks_at_readiness", True)
    rig = await a_quiet_rig()

    rig.pods.put(a_pod(version=2000, conditions=READY))

    assert waiting_keys(rig) == {KEY}


NEW = Key("ml", "new")


@pytest.mark.parametrize(
    ("pod", "order"),
    [
        pytest.param(a_pod(version=2000, phase="Failed"), [KEY, NEW], id="a new phase goes ahead"),
        pytest.param(a_pod(version=2000, reason="Evicted"), [NEW, KEY], id="another field does not"),
        pytest.param(a_pod("mnist-worker-1", version=2000), [NEW, KEY], id="a new pod does not"),
    ],
)
async def test_a_phase_that_changed_goes_ahead_of_the_backlog(quiet: Rig, pod: PodView, order: list[Key]) -> None:
    quiet.jobs.put(a_toy("new", version=2000))
    quiet.pods.put(pod)

    assert [await quiet.queue.get(), await quiet.queue.get()] == order


async def test_a_job_that_changed_goes_ahead_of_new_ones(quiet: Rig) -> None:
    quiet.jobs.put(a_toy("new", version=2000))
    quiet.jobs.put(a_toy(version=2001))

    assert [await quiet.queue.get(), await quiet.queue.get()] == [KEY, NEW]


async def test_a_phase_that_changed_alone_is_for_the_workers_that_are_reserved(quiet: Rig) -> None:
    quiet.jobs.put(a_toy(version=2000))  # our own status, mostly: the creates that follow it may be held up
    reserved = asyncio.create_task(quiet.queue.get(only_urgent=True))
    await asyncio.sleep(1)
    assert not reserved.done()

    quiet.pods.put(a_pod(version=2001, phase="Failed"))

    assert await asyncio.wait_for(reserved, 1) == KEY


async def test_a_pod_that_is_gone_enqueues_its_job(quiet: Rig) -> None:
    quiet.pods.remove(a_pod(version=2000))

    assert waiting_keys(quiet) == {KEY}


async def test_a_service_enqueues_its_job(quiet: Rig) -> None:
    quiet.services.put(a_service(version=2000))

    assert waiting_keys(quiet) == {KEY}


async def test_a_job_that_changed_is_enqueued(quiet: Rig) -> None:
    quiet.jobs.put(a_toy(version=2000))

    assert waiting_keys(quiet) == {KEY}


async def test_a_thousand_pod_events_are_a_handful_of_passes() -> None:
    rig = Rig()
    async with rig.working(1):
        rig.kind.passes.clear()
        for n in range(1000):
            rig.pods.put(a_pod(f"mnist-worker-{n}", version=3000 + n))
        await asyncio.sleep(1)
        assert len(rig.kind.passes) == 1


# --- start and end ---


async def test_work_found_at_start_comes_after_new_work() -> None:
    rig = Rig(jobs=tuple(f"old-{n}" for n in range(50)))
    rig.controller.workers = 1
    rig.cluster.before = waiting("patch", 1.0)
    rig.kind.decided_by = lambda job, observed: Plan() if job.status.phase else Plan(status={"phase": "Running"})
    async with rig.working(5.5):
        rig.cluster.put(TOY, toy_json("new"))
        await asyncio.sleep(2)

    order = [name for name, _ in rig.kind.passes]
    assert "new" in order[:20]


async def test_a_standby_does_not_pile_up_the_keys_of_jobs_that_are_gone() -> None:
    """It may wait for the lease for months."""
    rig = Rig(jobs=("mnist", "other"))
    for n in range(100):
        rig.jobs.put(a_toy(f"job-{n}", version=2000 + n))
        rig.pods.put(a_pod(f"job-{n}-worker-0", owner=toy_json(f"job-{n}"), version=2000 + n))
        rig.jobs.remove(a_toy(f"job-{n}", version=3000 + n))
        rig.pods.remove(a_pod(f"job-{n}-worker-0", owner=toy_json(f"job-{n}"), version=3000 + n))

    assert len(rig.queue) <= 2
    async with rig.working(1):
        assert {name for name, _ in rig.kind.passes} == {"mnist", "other"}


async def test_a_job_that_disappears_is_forgotten() -> None:
    rig = Rig(always(Plan(creates=create_pods(1), status={"active": 1}, lazy=LAZY)))
    await rig.reconcile()
    rig.queue.retry(KEY)
    rig.jobs.remove(a_toy(version=2000))

    assert await rig.reconcile() == "success"
    assert (rig.queue.failures(KEY), rig.barrier._written, rig.controller._statuses._deferred_since) == (0, {}, {})


async def test_a_job_that_disappears_during_its_pass_leaves_nothing_behind() -> None:
    rig = Rig(always(Plan(creates=create_pods(1), status={"active": 1}, lazy=LAZY)))
    rig.cluster.before = waiting("create", 1.0)
    going = asyncio.create_task(rig.reconcile())
    await asyncio.sleep(0.5)
    rig.jobs.remove(a_toy(version=2000))
    await going
    await rig.reconcile()

    assert (rig.queue.failures(KEY), rig.barrier._written, rig.controller._statuses._deferred_since) == (0, {}, {})


async def test_the_pass_in_hand_is_finished_when_the_queue_is_closed() -> None:
    rig = Rig(always(Plan(creates=create_pods(1), status={"phase": "Running"})))
    rig.cluster.before = waiting("create", 5.0)
    worker = asyncio.create_task(rig.controller.work())
    await asyncio.sleep(1)
    rig.queue.close()
    await asyncio.wait_for(worker, 10)

    assert [call.verb for call in rig.cluster.calls] == ["create"]


# --- what is counted ---


def passes(result: str) -> float:
    labels = {"controller": "toy", "result": result}
    return REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) or 0.0


@pytest.mark.parametrize(
    ("plan", "error", "result"),
    [
        pytest.param(Plan(), None, "success", id="settled"),
        pytest.param(Plan(requeue_after=5000.0), None, "requeue_after", id="timer"),
        pytest.param(Plan(creates=create_pods(1)), Forbidden("quota"), "requeue", id="refusal"),
        pytest.param(Plan(creates=create_pods(1)), Unreachable("cut"), "error", id="passing error"),
    ],
)
async def test_a_pass_is_counted_by_its_result(plan: Plan, error: Exception | None, result: str) -> None:
    rig = Rig(always(plan))
    if error:
        rig.cluster.before = raising("create", error)
    words = ("success", "requeue", "requeue_after", "error")
    before = {word: passes(word) for word in words}
    errors = REGISTRY.get_sample_value("controller_runtime_reconcile_errors_total", {"controller": "toy"}) or 0.0
    worker = asyncio.create_task(rig.controller.work())
    await asyncio.sleep(0.5)
    worker.cancel()

    assert {word: passes(word) - before[word] for word in words} == {word: float(word == result) for word in words}
    more = REGISTRY.get_sample_value("controller_runtime_reconcile_errors_total", {"controller": "toy"}) or 0.0
    assert more - errors == float(result == "error")


async def test_a_pass_in_hand_shows_as_an_active_worker() -> None:
    rig = Rig(in_turn(Plan(creates=create_pods(1))))
    rig.cluster.before = waiting("create", 5.0)
    shown = []
    async with rig.working(1):
        shown.append(REGISTRY.get_sample_value("controller_runtime_active_workers", {"controller": "toy"}))
        await asyncio.sleep(6)
        shown.append(REGISTRY.get_sample_value("controller_runtime_active_workers", {"controller": "toy"}))
    assert shown == [1.0, 0.0]
    assert (
        REGISTRY.get_sample_value("controller_runtime_max_concurrent_reconciles", {"controller": "toy"}) == 2 + RESERVED
    )


def shown(phase: str) -> float:
    return REGISTRY.get_sample_value("trainmaster_jobs", {"kind": "toy", "phase": phase}) or 0.0


def jobs_counted(word: str) -> float:
    labels = {"job_namespace": "ml", "framework": "toy"}
    return REGISTRY.get_sample_value(f"training_operator_jobs_{word}_total", labels) or 0.0


async def test_jobs_are_shown_by_their_phase_from_the_first_worker_on() -> None:
    before = {phase: shown(phase) for phase in ("New", "Running")}
    rig = Rig(in_turn(Plan(status={"phase": "Running"})), jobs=("mnist", "other"))
    rig.jobs.put(rig.stored())
    while_standing_by = {phase: shown(phase) - before[phase] for phase in before}
    async with rig.working(1):
        while_working = {phase: shown(phase) - before[phase] for phase in before}
        for name in ("mnist", "other"):
            rig.jobs.remove(rig.stored(name))
        at_the_end = {phase: shown(phase) - before[phase] for phase in before}

    assert while_standing_by == {"New": 0, "Running": 0}
    assert while_working == {"New": 1, "Running": 1}
    assert at_the_end == {"New": 0, "Running": 0}


async def test_a_job_that_came_again_under_its_name_is_shown_anew() -> None:
    rig = Rig()
    deleted, new = jobs_counted("deleted"), shown("New")
    async with rig.working(1):
        rig.jobs.put(msgspec.structs.replace(rig.stored(), uid="another"))
        assert (jobs_counted("deleted") - deleted, shown("New") - new) == (1, 1)
        rig.jobs.remove(rig.stored())


async def test_a_status_that_could_not_be_stored_counts_for_nothing() -> None:
    rig = Rig(always(Plan(status={"phase": "Running"})))
    created, calm = jobs_counted("created"), rig.cluster.before
    rig.cluster.before = raising("patch", ServerError("etcd is busy"))
    with pytest.raises(ServerError):
        await rig.reconcile()
    assert jobs_counted("created") == created

    rig.cluster.before = calm
    await rig.reconcile()
    assert jobs_counted("created") == created + 1


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_status_whose_answer_got_lost_is_told_when_it_is_seen(is_stored: bool) -> None:
    finished = {"type": "Finished", "status": "True", "reason": "Failed"}
    ending = Plan(
        status={"phase": "Ended", "conditions": [finished]}, status_first=True, events=(normal("Ended", "done"),)
    )
    rig = Rig(lambda job, observed: Plan() if job.status.phase == "Ended" else ending)
    failed = jobs_counted("failed")
    lost = itertools.count()

    async def lose(call: Call) -> None:
        if call.verb == "patch" and next(lost) == 0:
            raise Unreachable("the connection was cut")

    if is_stored:
        rig.cluster.after = lose
    else:
        rig.cluster.before = lose
    async with rig.working(60):
        pass

    assert rig.recorder.events == [normal("Ended", "done")]
    assert jobs_counted("failed") == failed + 1


async def test_a_status_whose_answer_got_lost_is_told_also_when_the_watch_is_late() -> None:
    numbers = itertools.count(1)

    def end(job: Toy, _: Observed) -> Plan:
        """Each try says another time."""
        ended = {"phase": "Ended", "active": next(numbers)}
        return Plan() if job.status.phase == "Ended" else Plan(status=ended, events=(normal("Ended", "done"),))

    rig = Rig(end)
    rig.cluster.after = raising("patch", Unreachable("the connection was cut"))
    with pytest.raises(Unreachable):
        await rig.reconcile()
    await rig.reconcile()  # a conflict: what is stored is not seen yet
    assert rig.recorder.events == []
    rig.jobs.put(rig.stored())
    await rig.reconcile()

    assert rig.recorder.events == [normal("Ended", "done")]


async def test_a_job_of_somebody_else_is_neither_shown_nor_counted() -> None:
    rig = Rig(jobs=())
    deleted, new = jobs_counted("deleted"), shown("New")
    async with rig.working(1):
        rig.cluster.put(TOY, {**toy_json(), "spec": {"managedBy": "kueue.x-k8s.io/multikueue"}})
        await asyncio.sleep(1)
        assert shown("New") == new
        rig.jobs.remove(rig.stored())
    assert jobs_counted("deleted") == deleted


async def test_a_refusal_that_names_another_number_each_time_is_tried_with_back_off() -> None:
    rig = Rig(lambda job, observed: Plan(creates=create_pods(1)))
    used = itertools.count()

    async def refuse(call: Call) -> None:
        if call.verb == "create":
            raise Forbidden(f"exceeded quota, used: pods={next(used)}")

    rig.cluster.before = refuse
    async with rig.working(600):
        verbs = [call.verb for call in rig.cluster.calls]

    assert verbs.count("create") < 15
    assert verbs.count("patch") == 1


# --- an object that all jobs are planned with ---------------------------------------------------

CONFIG = Related(Resource("test.example", "v1", "configs", "Config"), Key("system", "config"))


def a_config(name: str = "config") -> JobView:
    return msgspec.structs.replace(a_toy(name), key=Key("system", name))


async def test_a_plan_sees_the_related_object_as_it_stands_on_the_wire() -> None:
    seen: list[bytes | None] = []

    def look(_job: Any, observed: Observed) -> Plan:
        seen.append(observed.related)
        return Plan()

    rig = Rig(look, related=CONFIG)
    assert rig.related is not None
    rig.related.replace([], 1000)
    await rig.reconcile()
    rig.related.put(a_config("another"))
    await rig.reconcile()
    rig.related.put(a_config())
    await rig.reconcile()

    assert seen == [None, None, a_config().raw]


async def test_before_the_related_object_was_looked_for_nothing_is_planned() -> None:
    rig = Rig(related=CONFIG)

    with pytest.raises(NotSynced):
        await rig.reconcile()
    assert rig.kind.passes == []


async def test_all_jobs_are_looked_at_when_the_related_object_comes_changes_and_goes() -> None:
    rig = Rig(jobs=("mnist", "other"), related=CONFIG)
    assert rig.related is not None
    rig.related.replace([], 1000)
    async with rig.working(1):
        rig.related.put(a_config())
        await asyncio.sleep(1)
        rig.related.put(a_config())
        await asyncio.sleep(1)
        rig.related.remove(a_config())
        await asyncio.sleep(1)

    assert [len(rig.passes(name)) for name in ("mnist", "other")] == [4, 4]


# --- what a job owns besides pods and services --------------------------------------------------

MEMBERS = Key("ml", "mnist-members")


async def test_a_plan_sees_what_else_the_job_owns_and_the_pods_of_that() -> None:
    found: list[Observed] = []

    def look(job: Toy, observed: Observed) -> Plan:
        found.append(observed)
        return Plan()

    rig = Rig(look, children=(CONFIG_MAP, JOB))
    rig.children[CONFIG_MAP].put(members := a_child(CONFIG_MAP, "mnist-members"))
    rig.children[CONFIG_MAP].put(a_child(CONFIG_MAP, "other-members", owner=toy_json("other")))
    rig.children[JOB].put(batch := a_child(JOB, "mnist-batch"))
    rig.pods.put(pod := a_pod("mnist-worker-0", owner=child_json(JOB, "mnist-batch")))
    await rig.reconcile()

    (observed,) = found
    assert observed.children == {CONFIG_MAP: {"mnist-members": members}, JOB: {"mnist-batch": batch}}
    assert observed.pods == {"worker": {0: pod}}


async def test_a_child_and_the_pods_of_a_child_enqueue_the_job(quiet_with_batch: Rig) -> None:
    rig = quiet_with_batch
    rig.children[JOB].put(a_child(JOB, "mnist-batch"))
    assert await drained(rig) == {KEY}
    rig.pods.put(a_pod("mnist-worker-0", owner=child_json(JOB, "mnist-batch")))
    assert await drained(rig) == {KEY}
    rig.pods.put(a_pod("foreign-0", owner=child_json(JOB, "somebody-elses")))
    assert await drained(rig) == set()


@pytest.fixture
async def quiet_with_batch() -> Rig:
    rig = Rig(children=(JOB,))
    rig.controller._start()
    await drained(rig)
    return rig


async def drained(rig: Rig) -> set[Key]:
    """The keys that are in the queue; afterwards it is empty."""
    keys = set()
    while rig.queue.is_busy:
        keys.add(key := await rig.queue.get())
        rig.queue.done(key)
    return keys


async def test_patches_come_last_are_told_and_the_store_has_to_catch_up() -> None:
    patch = Patch(CONFIG_MAP, MEMBERS, "uid-of-mnist-members", 1002, {"data": {"n": "2"}}, "a worker came")
    rig = Rig(always(Plan(creates=create_pods(1), patches=(patch,))), children=(CONFIG_MAP,))
    stored = rig.cluster.put(CONFIG_MAP, child_json(CONFIG_MAP, "mnist-members"))
    rig.children[CONFIG_MAP].put(a_child(CONFIG_MAP, "mnist-members", version=1002))
    assert stored["metadata"]["resourceVersion"] == "1002"
    await rig.reconcile()

    assert [call.verb for call in rig.cluster.calls] == ["create", "patch"]
    assert rig.cluster.calls[1].body == {
        "metadata": {"uid": "uid-of-mnist-members", "resourceVersion": "1002"},
        "data": {"n": "2"},
    }
    assert normal("Update", "update configmap mnist-members: a worker came") in rig.recorder.events
    assert not rig.barrier.is_open(a_toy().uid)


async def test_a_patch_that_is_refused_is_told_and_tried_again() -> None:
    patch = Patch(CONFIG_MAP, MEMBERS, "uid-of-mnist-members", 1002, {"data": {"n": "2"}}, "a worker came")
    rig = Rig(always(Plan(patches=(patch,))), children=(CONFIG_MAP,))
    rig.cluster.put(CONFIG_MAP, child_json(CONFIG_MAP, "mnist-members"))
    rig.cluster.before = raising("patch", Forbidden("configmaps is forbidden", code=403))

    assert await rig.reconcile() == "requeue"
    assert rig.recorder.events == [warning("FailedUpdate", "update configmap mnist-members: configmaps is forbidden")]


async def test_a_patch_of_what_is_gone_or_has_changed_is_planned_anew() -> None:
    patch = Patch(CONFIG_MAP, MEMBERS, "uid-of-mnist-members", 7, {"data": {"n": "2"}}, "a worker came")
    rig = Rig(always(Plan(patches=(patch,))), children=(CONFIG_MAP,))
    with pytest.raises(Conflict):
        await rig.reconcile()
    rig.cluster.put(CONFIG_MAP, child_json(CONFIG_MAP, "mnist-members"))
    with pytest.raises(Conflict):
        await rig.reconcile()


# --- a status that is not stored ---


def running(job: Toy, observed: Observed) -> Plan:
    is_stored = job.status.phase == "Running"
    return Plan() if is_stored else Plan(status={"phase": "Running", "active": job.status.active})


def warnings_of(logs: list[MutableMapping[str, Any]]) -> list[str]:
    return [line["because"] for line in logs if line["event"] == "pass failed"]


async def test_a_status_that_lost_a_race_is_planned_again_on_the_version_that_won(
    logs: list[MutableMapping[str, Any]],
) -> None:
    rig = Rig(running)
    rig.cluster.put(TOY, toy_json(status={"active": 3}))

    await rig.reconcile()
    assert len(rig.passes()) == 1
    assert await rig.reconcile() == "requeue_after"  # the store does not show that version yet
    assert len(rig.passes()) == 1
    rig.jobs.put(rig.stored())
    assert await rig.reconcile() == "success"
    assert rig.cluster.find(TOY, KEY)["status"] == {"active": 3, "phase": "Running"}  # type: ignore[index]
    assert logs == []


async def test_a_busy_job_of_two_writers_is_stored_without_a_warning_or_a_pause(
    logs: list[MutableMapping[str, Any]],
) -> None:
    rig = Rig(running)
    rivals = itertools.count(1)

    async def interfere(call: Call) -> None:
        if call.verb == "patch" and (number := next(rivals)) == 1:
            rig.cluster.put(TOY, toy_json(status={"active": number}))

    rig.cluster.before = interfere
    async with rig.working(0.1):
        assert rig.cluster.find(TOY, KEY)["status"] == {"active": 1, "phase": "Running"}  # type: ignore[index]
    assert warnings_of(logs) == []


async def test_the_second_conflict_in_a_row_is_a_failure_with_back_off(logs: list[MutableMapping[str, Any]]) -> None:
    rig = Rig(running)
    rig.cluster.before = raising("patch", *[Conflict("somebody was faster")] * 2)
    async with rig.working(60):
        pass

    again = CONFLICT_SECONDS + 1.0
    assert rig.passes() == [0.0, CONFLICT_SECONDS, again, again]  # the last one sees what was stored
    assert warnings_of(logs) == ["somebody was faster"]


def refusing(*fields: str) -> Callable[[Call], Any]:
    """A definition without these fields of the status."""

    async def hook(call: Call) -> None:
        unknown = [field for field in fields if call.verb == "patch" and field in call.body["status"]]
        if unknown:
            assert call.options["strict"]
            raise UnknownField(", ".join(f'unknown field "status.{field}"' for field in unknown), code=400)

    return hook


def recording(job: Toy, observed: Observed) -> Plan:
    """Records that the job ends in a field that the definition may lack; then deletes its pod."""
    if job.status.active:
        return Plan(deletes=(a_delete(),) if observed.pods else ())
    return Plan(deletes=(a_delete(),), status={"phase": "Ended", "active": 1}, status_first=True)


async def test_a_job_whose_definition_lacks_a_field_says_so_once_and_no_pod_is_deleted(
    logs: list[MutableMapping[str, Any]],
) -> None:
    rig = Rig(recording)
    rig.cluster.put(POD, pod_json())
    rig.cluster.before = refusing("active")
    refused = REGISTRY.get_sample_value("trainmaster_status_writes_refused_total", {"kind": "Toy"}) or 0.0
    async with rig.working(600):
        pass

    sentence = outdated(TOY, ["status.active"])
    status = rig.cluster.find(TOY, KEY)["status"]  # type: ignore[index]
    assert status.keys() == {"conditions"}
    [found] = status["conditions"]
    assert (found["type"], found["status"], found["message"]) == ("DefinitionOutdated", "True", sentence)
    assert rig.cluster.find(POD, Key("ml", "mnist-worker-0")) is not None
    assert rig.recorder.events == [warning("DefinitionOutdated", sentence)]
    assert {*warnings_of(logs)} == {sentence}
    assert len(warnings_of(logs)) < 15  # by the back-off: 1, 2, 4, … 120 s
    tries = len(warnings_of(logs))
    assert REGISTRY.get_sample_value("trainmaster_status_writes_refused_total", {"kind": "Toy"}) == refused + tries


async def test_a_definition_that_lacks_the_condition_too_is_reported_in_the_log(
    logs: list[MutableMapping[str, Any]],
) -> None:
    rig = Rig(recording)
    rig.cluster.before = refusing("active", "conditions")
    async with rig.working(5):
        pass

    assert "status" not in rig.cluster.find(TOY, KEY)  # type: ignore[operator]
    assert warnings_of(logs)[0] == outdated(TOY, ["status.active"])
    assert not [line for line in logs if line["log_level"] == "error"]


async def test_a_job_goes_on_as_soon_as_its_definition_was_updated() -> None:
    rig = Rig(recording)
    rig.cluster.put(POD, pod_json())
    rig.cluster.before = refusing("active")
    async with rig.working(300):
        rig.cluster.before = refusing()
        rig.queue.retry_all()
        await asyncio.sleep(2)
        assert rig.cluster.find(POD, Key("ml", "mnist-worker-0")) is None


async def test_a_status_that_the_api_server_has_and_the_store_does_not_show_is_listed_again() -> None:
    """While a definition is replaced, a watch may still show jobs without the fields that were added."""
    rig = Rig(recording)
    rig.cluster.put(POD, pod_json())
    stored = rig.cluster.put(TOY, toy_json(status={"phase": "Ended", "active": 1}))
    pruned = {**stored, "status": {"phase": "Ended"}}
    version = int(stored["metadata"]["resourceVersion"])
    rig.cluster.pages.extend([a_page(pruned, version=version)])
    rig.cluster.watches.append([3600.0])
    async with rig.working(CONFLICT_SECONDS + 2):
        assert rig.cluster.find(POD, Key("ml", "mnist-worker-0")) is None


# --- nodes ---


def on_node(name: str = "mnist-worker-0") -> PodView:
    body = pod_json(name, version=1001)
    return view_of_pod({**body, "spec": {**body["spec"], "nodeName": "node-1"}})


async def test_nothing_is_planned_while_a_pod_of_a_lost_node_is_not_as_the_api_server_has_it() -> None:
    plans: list[str] = []

    def look(job: Toy, observed: Observed) -> Plan:
        plans.extend(pod.phase for pod in observed.all_pods)
        return Plan()

    rig = Rig(look, has_nodes=True)
    async with rig.working():
        await asyncio.sleep(1)
        rig.nodes.replace([a_node("node-1", ready="False", version=1002)], 1002)
        rig.pods.put(on_node())
        await asyncio.sleep(1)
        assert not plans

        rig.pods.put(msgspec.structs.replace(on_node(), phase="Succeeded", resource_version=1003))
        await asyncio.sleep(1)

    assert plans[-1] == "Succeeded"


@pytest.mark.parametrize(
    ("deleted", "error", "is_stored"),
    [
        pytest.param({}, None, True, id="namespace that stays"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, None, False, id="namespace that terminates"),
        pytest.param({}, NotFound("no such namespace"), True, id="no namespace"),
        pytest.param({}, Forbidden("no right"), True, id="no right to read the namespace"),
    ],
)
async def test_no_failure_is_counted_while_the_namespace_terminates(
    deleted: dict[str, str], error: Exception | None, is_stored: bool
) -> None:
    rig = Rig(lambda job, observed: Plan(status={"phase": "Failed"}, status_first=True, counts_failure=True))
    rig.cluster.put(NAMESPACE, {"metadata": {"name": "ml", "namespace": "", **deleted}})
    rig.cluster.before = raising("get", *([error] if error else []))

    assert await rig.reconcile() == ("success" if is_stored else "requeue_after")

    assert len(rig.cluster.asked("get", NAMESPACE)) == 1
    assert len(rig.cluster.asked("patch", TOY)) == is_stored


TERMINATING = Terminating("create pods ml/mnist-worker-0: namespace ml is being terminated", code=403)


async def test_nothing_is_created_or_said_in_a_namespace_that_is_known_to_terminate() -> None:
    rig = Rig(always(Plan(creates=create_pods(9), status={"active": 9}, events=(normal("Started", "it runs"),))))
    rig.cluster.before = raising("create", *[TERMINATING] * 100)

    assert [await rig.reconcile() for _ in range(3)] == ["requeue_after"] * 3

    assert len(rig.cluster.asked("create")) == 1
    assert rig.cluster.asked("patch") == []
    assert rig.recorder.events == []
    assert rig.queue.failures(KEY) == 0


async def test_that_a_namespace_terminates_may_be_out_of_date_so_it_is_asked_again_later() -> None:
    rig = Rig(always(Plan(creates=create_pods(1))))
    rig.cluster.before = raising("create", TERMINATING)

    assert await rig.reconcile() == "requeue_after"
    await asyncio.sleep(TERMINATING_SECONDS)
    assert await rig.reconcile() == "success"

    assert len(rig.cluster.asked("create")) == 2


async def test_pods_are_deleted_while_their_namespace_terminates() -> None:
    creates = create_pods(1)
    rig = Rig(in_turn(Plan(creates=creates), Plan(creates=creates, deletes=(a_delete(),), requeue_after=30.0)))
    rig.cluster.put(POD, pod_json())
    rig.cluster.before = raising("create", *[TERMINATING] * 100)

    assert [await rig.reconcile() for _ in range(2)] == ["requeue_after"] * 2

    assert (len(rig.cluster.asked("create")), len(rig.cluster.asked("delete"))) == (1, 1)
    assert rig.recorder.events == []


async def test_no_namespace_is_read_that_is_known_to_terminate() -> None:
    plans = iter([Plan(creates=create_pods(1)), Plan(status={"phase": "Failed"}, counts_failure=True)])
    rig = Rig(lambda job, observed: next(plans))
    rig.cluster.before = raising("create", TERMINATING)

    await rig.reconcile()
    await rig.reconcile()

    assert rig.cluster.asked("get", NAMESPACE) == []
    assert rig.cluster.asked("patch") == []


async def test_a_new_job_shows_that_the_namespace_is_a_new_one() -> None:
    rig = Rig(always(Plan(creates=create_pods(1))))
    rig.cluster.before = raising("create", TERMINATING)
    await rig.reconcile()
    old = rig.stored()
    rig.jobs.put(msgspec.structs.replace(old, uid="of-the-next", resource_version=old.resource_version + 1))

    await rig.reconcile()

    assert len(rig.cluster.asked("create")) == 2


async def test_a_job_whose_namespace_has_its_own_operator_is_planned_when_that_has_ended() -> None:
    plans: list[str] = []

    def look(job: Toy, observed: Observed) -> Plan:
        plans.append(job.metadata.name)
        return Plan()

    rig = Rig(look)
    lease = LeaseView(Key("ml", "toys"), "uid", 1001, deleting=False, holder="another", seconds=15)
    rig.leases.replace([lease], 1001)
    async with rig.working():
        await asyncio.sleep(14)
        assert not plans

        rig.leases.put(msgspec.structs.replace(lease, resource_version=1002, holder=""))
        await asyncio.sleep(0.1)

    assert plans == ["mnist"]


async def test_a_job_that_is_left_to_another_operator_has_an_event_that_says_so_once() -> None:
    rig = Rig(lambda job, observed: Plan())
    lease = LeaseView(Key("ml", "toys"), "uid", 1001, deleting=False, holder="another", seconds=15)
    rig.leases.replace([lease], 1001)

    assert [await rig.reconcile(), await rig.reconcile()] == ["requeue_after", "requeue_after"]
    (event,) = rig.recorder.events
    assert (event.type, event.reason) == ("Normal", "LeftToOperator")
    assert event.message.startswith("the jobs of this namespace are left to its own operator, another")

    rig.leases.put(msgspec.structs.replace(lease, resource_version=1002, holder=""))
    await rig.reconcile()
    rig.leases.put(msgspec.structs.replace(lease, resource_version=1003))
    await rig.reconcile()
    assert [each.reason for each in rig.recorder.events] == ["LeftToOperator", "TakenBack", "LeftToOperator"]


async def test_a_namespace_is_not_read_for_a_plan_that_counts_no_failure() -> None:
    rig = Rig(lambda job, observed: Plan(status={"phase": "Running"}, status_first=True))

    await rig.reconcile()

    assert len(rig.cluster.asked("patch", TOY)) == 1
    assert not rig.cluster.asked("get", NAMESPACE)


async def test_a_plan_sees_the_nodes_of_its_pods_and_a_change_of_one_brings_a_pass() -> None:
    seen: list[Any] = []

    def look(job: Toy, observed: Observed) -> Plan:
        seen.append({name: view.ready for name, view in observed.nodes.items()} if observed.nodes else observed.nodes)
        return Plan()

    rig = Rig(look, jobs=("mnist", "other"), has_nodes=True)
    rig.pods.put(on_node())
    async with rig.working():
        await asyncio.sleep(1)
        rig.pods.put(on_node())
        rig.nodes.replace([a_node("node-1", version=1002), a_node("node-2", version=1002)], 1002)
        await asyncio.sleep(1)
        rig.nodes.put(a_node("node-1", ready="True", version=1003))
        rig.nodes.put(a_node("node-2", ready="False", version=1004))
        await asyncio.sleep(1)
        rig.pods.advance(1005)  # a bookmark: nothing became of its pods before
        rig.nodes.put(a_node("node-1", ready="False", version=1005))
        await asyncio.sleep(1)

    assert [told for told in seen if told] == [{"node-1": "True"}, {"node-1": "False"}]


async def test_a_job_is_looked_at_again_while_its_nodes_cannot_be_read() -> None:
    rig = Rig(has_nodes=True)
    rig.nodes.replace([a_node("node-1", version=1000)], 1000)
    rig.pods.put(on_node())
    assert await rig.reconcile() == "success"

    rig.nodes.is_current = False
    assert await rig.reconcile() == "requeue_after"
    started = asyncio.get_running_loop().time()
    assert await rig.queue.get() == KEY
    assert asyncio.get_running_loop().time() - started == pytest.approx(POLL)


async def test_a_kind_that_does_not_look_at_nodes_is_told_of_none() -> None:
    seen: list[Any] = []

    def look(job: Toy, observed: Observed) -> Plan:
        seen.append(observed.nodes)
        return Plan()

    rig = Rig(look)
    rig.nodes.replace([a_node("node-1")], 1000)
    rig.pods.put(on_node())
    await rig.reconcile()

    assert seen == [None]


async def test_a_pass_with_a_refused_create_still_looks_at_the_next_deadline() -> None:
    rig = Rig(lambda job, observed: Plan(creates=create_pods(1), requeue_after=5.0))
    rig.cluster.before = raising("create", Forbidden("quota"))
    for _ in range(6):  # the next try is half a minute away
        rig.queue.retry(a_toy().key)
        rig.queue.done(await rig.queue.get())

    await rig.reconcile()

    async with asyncio.timeout(5.1):
        await rig.queue.get()


async def test_what_was_created_before_a_temporary_error_is_recorded() -> None:
    rig = Rig(lambda job, observed: Plan(creates=create_pods(2)))
    numbers = itertools.count()

    async def fail_the_second(call: Call) -> None:
        if call.verb == "create" and next(numbers):
            raise ServerError("etcd is busy", code=500)

    rig.cluster.before = fail_the_second
    with pytest.raises(ServerError):
        await rig.reconcile()

    assert rig.recorder.events == [normal("Create", "create pod mnist-worker-0")]
