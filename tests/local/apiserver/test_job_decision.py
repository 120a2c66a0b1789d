"""The decisions of the Job controller, with the clock of the test; after a crash no pod is counted twice."""

import asyncio
import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.ids import JOB, POD
from trainmaster.local.apiserver.controllers.job import JobController
from trainmaster.local.apiserver.controllers.job_decision import Moment, Streak, decide
from trainmaster.local.apiserver.controllers.job_pod import FINALIZER, JobPod
from trainmaster.local.apiserver.controllers.namespace import create_initial
from trainmaster.local.apiserver.objects.catalog import Catalog
from trainmaster.local.apiserver.objects.delete import delete
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.objects.write import WriteOptions, create
from trainmaster.local.apiserver.store.store import Place, Store

Object = dict[str, Any]

START = "2020-01-01T00:00:00Z"
NOW = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC).timestamp()


def a_job(status: Object | None = None, *, policy: str = "Never", **spec: Any) -> Object:
    whole = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "suspend": False,
        "template": {"metadata": {}, "spec": {"restartPolicy": policy}},
        **spec,
    }
    return {"metadata": {"name": "a", "uid": "u"}, "spec": whole, "status": {"startTime": START, **(status or {})}}


def a_pod(phase: str = "Running", *, name: str = "p", **fields: Any) -> JobPod:
    plain = {
        "is_deleting": False,
        "is_tracked": True,
        "is_bound": True,
        "is_ready": False,
        "restarts": 0,
        "created_at": NOW,
        "finished_at": 0.0,
    }
    return JobPod(name=name, uid=name, phase=phase, **{**plain, **fields})


def at(seconds: float) -> Moment:
    moment = datetime.datetime.fromtimestamp(NOW + seconds, datetime.UTC)
    return Moment(NOW + seconds, moment.strftime("%Y-%m-%dT%H:%M:%SZ"))


@pytest.mark.parametrize(
    ("failures", "delay"), [(0, 0.0), (1, 10.0), (2, 20.0), (3, 40.0), (6, 320.0), (7, 600.0), (99, 600.0)]
)
def test_a_new_pod_waits_longer_after_every_failure_but_never_longer_than_ten_minutes(
    failures: int, delay: float
) -> None:
    streak = Streak().after([a_pod("Failed", finished_at=NOW)] * failures, NOW)
    early = decide(a_job(backoffLimit=1000), [], at(delay - 1), streak)
    due = decide(a_job(backoffLimit=1000), [], at(delay), streak)

    assert due.created == 1
    if failures:
        assert (early.created, early.wake_at) == (0, NOW + delay)


def test_a_success_ends_the_streak() -> None:
    ends = [a_pod("Failed", finished_at=NOW), a_pod("Succeeded", finished_at=NOW + 1)]
    assert Streak(3, NOW - 100).after(ends, NOW) == Streak()


@pytest.mark.parametrize(
    ("limit", "restarts", "fails"), [(0, 0, False), (0, 1, True), (2, 1, False), (2, 2, True), (1, 1, True)]
)
def test_restarts_of_containers_count_against_the_limit(limit: int, restarts: int, fails: bool) -> None:
    job = a_job(policy="OnFailure", backoffLimit=limit)
    found = decide(job, [a_pod(restarts=restarts)], at(0), Streak())
    assert [news.reason for news in found.events] == (["BackoffLimitExceeded"] if fails else [])


def test_the_interim_condition_is_stored_before_any_pod_is_deleted() -> None:
    job = a_job({"failed": 1}, backoffLimit=0, parallelism=2, completions=2)
    first = decide(job, [a_pod()], at(0), Streak())
    second = decide({**job, "status": first.status}, [a_pod()], at(0), Streak())

    assert (first.status["conditions"][0]["type"], first.deleted) == ("FailureTarget", ())
    assert second.deleted == (a_pod(),)


def test_a_deadline_is_waited_for() -> None:
    job = a_job(activeDeadlineSeconds=60)
    early = decide(job, [a_pod()], at(59), Streak())
    due = decide(job, [a_pod()], at(60), Streak())

    assert early.wake_at == NOW + 60
    assert [news.reason for news in due.events] == ["DeadlineExceeded"]


def test_surplus_pods_are_deleted_by_rank() -> None:
    pods = [
        a_pod(name="ready", is_ready=True),
        a_pod(name="running"),
        a_pod("Pending", name="bound"),
        a_pod("Pending", name="waiting", is_bound=False),
    ]
    surplus = [
        [pod.name for pod in decide(a_job(parallelism=wanted, completions=9), pods, at(0), Streak()).surplus]
        for wanted in (4, 3, 2, 1)
    ]
    assert surplus == [[], ["waiting"], ["waiting", "bound"], ["waiting", "bound", "running"]]


def test_many_pods_are_created_in_batches() -> None:
    assert decide(a_job(parallelism=10**9, completions=10**9), [], at(0), Streak()).created == 50


# -- crashes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def state() -> Iterator[State]:
    store = Store.open(":memory:")
    state = State(store, Catalog(store))
    create_initial(state)
    yield state
    store.close()


def settle(jobs: JobController) -> None:
    """Do all the work that is there."""
    while jobs.worker._items:
        jobs.worker._work()


def new_job(state: State, **spec: int) -> Place:
    served = state.catalog.of_resource(str(JOB))
    assert served is not None
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
    body = {"metadata": {"name": "a"}, "spec": {"template": template, **spec}}
    return create(state, Target(served, "default"), body, WriteOptions()).stored.place


def made(state: State) -> tuple[Place, Object]:
    """A Job whose controller has made its pod, which has failed since; and the pod."""
    place = new_job(state, backoffLimit=0)
    settle(JobController(state))
    (pod,) = state.store.select(str(POD))
    failed = {**pod.decode(), "status": {"phase": "Failed"}}
    return place, failed


@pytest.mark.parametrize(
    ("is_noted", "is_tracked"),
    [
        pytest.param(False, True, id="before-the-note"),
        pytest.param(True, True, id="before-the-pod-was-let-go"),
        pytest.param(True, False, id="before-it-was-counted"),
    ],
)
def test_after_any_crash_the_next_controller_counts_a_pod_once(state: State, is_noted: bool, is_tracked: bool) -> None:
    place, pod = made(state)
    job = state.store.get(place)
    assert job is not None
    obj = job.decode()
    if is_noted:
        obj["status"]["uncountedTerminatedPods"] = {"failed": [pod["metadata"]["uid"]]}
        state.store.put(place, obj)
    pod["metadata"]["finalizers"] = [FINALIZER] if is_tracked else []
    state.store.put(Place(str(POD), "default", pod["metadata"]["name"]), pod)

    settle(JobController(state))

    after = state.store.get(place)
    assert after is not None
    status = after.decode()["status"]
    assert status["failed"] == 1
    assert status["uncountedTerminatedPods"] == {}
    assert [each["type"] for each in status["conditions"]] == ["FailureTarget", "Failed"]


# -- any life ----------------------------------------------------------------------------------------------------

ENDS = ("Succeeded", "Failed", "deleted")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(ENDS), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from([1, 10, 700])),
        st.just(("restart", 0)),
    ),
    max_size=12,
)


class Life:
    """A Job in a store of its own. The test ends its pods, restarts its controller and advances the clock."""

    def __init__(self, *, completions: int, parallelism: int, limit: int) -> None:
        self.seconds = NOW
        self.ended = {"Succeeded": 0, "Failed": 0}
        store = Store.open(":memory:")
        self.state = State(store, Catalog(store), lambda: datetime.datetime.fromtimestamp(self.seconds, datetime.UTC))
        create_initial(self.state)
        spec = {"completions": completions, "parallelism": parallelism, "backoffLimit": limit}
        self.place = new_job(self.state, **spec)
        self.jobs = JobController(self.state)
        settle(self.jobs)

    def play(self, what: str, number: int) -> None:
        if what == "restart":
            self.jobs = JobController(self.state)
        elif what == "wait":
            self.seconds += number
            self.jobs.worker.add(self.place)
        elif active := self.active():
            self._end(active[number % len(active)], what)
        settle(self.jobs)

    def active(self) -> list[Object]:
        pods = [stored.decode() for stored in self.state.store.select(str(POD))]
        return [pod for pod in pods if pod["status"]["phase"] == "Pending"]

    def _end(self, pod: Object, how: str) -> None:
        place = Place(str(POD), "default", pod["metadata"]["name"])
        self.ended["Succeeded" if how == "Succeeded" else "Failed"] += 1
        if how == "deleted":
            served = self.state.catalog.of_resource(str(POD))
            assert served is not None
            delete(self.state, Target(served, "default", pod["metadata"]["name"]))
        else:
            self.state.store.put(place, {**pod, "status": {"phase": how}})

    @property
    def status(self) -> Object:
        stored = self.state.store.get(self.place)
        assert stored is not None
        found: Object = stored.decode()["status"]
        return found


@settings(deadline=None, max_examples=60)
@given(steps=STEPS, completions=st.integers(1, 3), parallelism=st.integers(1, 3), limit=st.integers(0, 2))
def test_in_any_history_every_pod_is_counted_once_and_the_job_ends_correctly(
    steps: list[tuple[str, int]], completions: int, parallelism: int, limit: int
) -> None:
    async def live() -> None:
        life = Life(completions=completions, parallelism=parallelism, limit=limit)
        for step in steps:
            life.play(*step)
            status, active = life.status, len(life.active())
            over = {each["type"] for each in status.get("conditions", ())} & {"Complete", "Failed"}

            assert status.get("active", 0) == active <= parallelism
            assert status.get("succeeded", 0) == life.ended["Succeeded"] <= completions
            assert status["uncountedTerminatedPods"] == {}
            assert ("Complete" in over) == (life.ended["Succeeded"] == completions and "Failed" not in over)
            assert ("Failed" in over) == (status.get("failed", 0) > limit)
            assert not (over and active)
            if "Failed" not in over:
                assert status.get("failed", 0) == life.ended["Failed"]

        life.state.store.close()

    asyncio.run(live())
