"""Watches that break, lag, forget or fall silent: the operator is late at most, and does nothing twice."""

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from testbed.admin import Admin, eventually
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import (
    GAVE_UP,
    Call,
    Fault,
    FaultProxy,
    answer,
    cut_after,
    cut_before,
    hang,
    watch_cut,
    watch_gone,
    watch_lag,
    watch_silence,
)
from tests.faults.conftest import NewLife
from tests.faults.life import AITRAININGJOB, DIJOB, SUBJECTS, Life, Subject
from tests.faults.scenario import Outcome, Scenario, Step, Trouble, run_all
from tests.faults.world import World
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.kubeconfig import load_config
from trainmaster.wiring.manager import build_manager

JOBS = ("dijobs", "aitrainingjobs", "nervexjobs")
RESOURCES = ("pods", "services", *JOBS)

CUTS = 6
POD_LAG = 10.0
SERVICE_LAG = 6.0
JOB_LAG = 3.0
IDLE = 2.0


async def test_jobs_end_right_while_all_watches_break_again_and_again(
    plane: ControlPlane, proxy: FaultProxy, new_life: NewLife
) -> None:
    rules = [proxy.inject(watch_cut(after=0.3), resource=each, watch=True, count=CUTS) for each in RESOURCES]
    lives = [new_life(subject) for subject in (*SUBJECTS, *SUBJECTS)]

    async def all_broke_twice() -> None:
        assert all(len(rule.hit) > 1 for rule in rules)

    async with OperatorProcess(plane, server=proxy.url):
        await _live_all(lives)
        await eventually(all_broke_twice)  # on a fast machine the lives end before the second cut

    for life in lives:
        life.assert_ended_right()


# The first child of its sort was created, but the operator neither heard of it nor sees it: it has to look whose
# object has the name, and that goes wrong, too.
LOOKS: dict[str, Fault] = {
    "429": answer(429, retry_after=1),
    "500": answer(500),
    "hang": hang,
    "cut-before": cut_before,
}
FIRST = {DIJOB: "job-coordinator", AITRAININGJOB: "job-ps-0"}


def _lost(resource: str) -> list[Scenario]:
    return [
        Scenario(
            subject,
            f"{resource}-lost-then-{word}",
            [Trouble(Step("POST", resource, name), cut_after), Trouble(Step("GET", resource, name), fault)],
        )
        for subject, name in FIRST.items()
        for word, fault in LOOKS.items()
    ]


LATE = {subject: Scenario(subject, "seen-late") for subject in SUBJECTS}
LOST = [scenario for resource in ("services", "pods") for scenario in _lost(resource)]


@pytest.fixture(scope="module")
def late(plane: ControlPlane) -> dict[str, Outcome]:
    """What became of jobs whose children the operator saw late: by the ids of LATE and LOST."""

    async def play(proxy: FaultProxy) -> dict[str, Outcome]:
        args = ["--request-timeout=3s"]
        async with OperatorProcess(plane, server=proxy.url, args=args), Admin.of(plane) as admin, World(plane) as world:
            playing = asyncio.ensure_future(run_all([*LATE.values(), *LOST], admin, world, proxy))
            await asyncio.sleep(1.5 * POD_LAG)  # time for one phase; the others would show the same
            for rule in lagging:
                proxy.remove(rule)
            proxy.cut_watches()
            return await playing

    with FaultProxy(plane) as proxy:
        lags = {"pods": POD_LAG, "services": SERVICE_LAG}
        lagging = [proxy.inject(watch_lag(lag), resource=each, watch=True, count=None) for each, lag in lags.items()]
        return asyncio.run(play(proxy))


@pytest.mark.parametrize("subject", [pytest.param(subject, id=subject.word) for subject in SUBJECTS])
def test_an_operator_that_sees_its_children_late_does_not_even_try_to_create_them_again(
    late: dict[str, Outcome], subject: Subject
) -> None:
    outcome = late[LATE[subject].id]

    assert not outcome.error, outcome
    # Their names would make a second try harmless; in a kind with random names nothing would.
    for resource in ("pods", "services"):
        tried = [call.name for call in outcome.calls if call.method == "POST" and call.resource == resource]
        assert sorted(tried) == sorted(subject.pods)


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.id) for scenario in LOST])
def test_an_operator_finds_the_child_of_which_it_neither_heard_nor_sees_despite(
    late: dict[str, Outcome], scenario: Scenario
) -> None:
    outcome = late[scenario.id]

    assert not outcome.error, outcome
    assert not outcome.missed, outcome
    assert outcome.incarnations == outcome.once_each, outcome


async def test_an_operator_that_sees_its_jobs_late_stores_no_status_on_an_old_version(
    plane: ControlPlane, proxy: FaultProxy, new_life: NewLife
) -> None:
    lagging = [proxy.inject(watch_lag(JOB_LAG), resource=each, watch=True, count=None) for each in JOBS]
    lives = [new_life(subject) for subject in SUBJECTS]
    unheard = [new_life(subject) for subject in SUBJECTS]
    for life in unheard:
        proxy.inject(cut_after, method="PATCH", namespace=life.namespace, subresource="status")

    async with OperatorProcess(plane, server=proxy.url):
        living = asyncio.ensure_future(_live_all([*lives, *unheard]))
        await asyncio.sleep(3.5 * JOB_LAG)
        for rule in lagging:
            proxy.remove(rule)
        proxy.cut_watches()
        await living

    for life in (*lives, *unheard):
        life.assert_ended_right()
        assert len(life.first_times) == 1
    # An operator that heard of its write waits until it sees it; one that did not is refused.
    assert {call.code for life in lives for call in _statuses(proxy, life)} == {200}
    assert {call.code for life in unheard for call in _statuses(proxy, life)} == {200, 409}


@pytest.mark.parametrize("fault", [pytest.param(watch_gone, id="in-a-line"), pytest.param(answer(410), id="by-http")])
async def test_an_operator_that_is_told_410_lists_again_and_misses_nothing(
    plane: ControlPlane, proxy: FaultProxy, new_life: NewLife, fault: Fault
) -> None:
    lives = [new_life(subject) for subject in SUBJECTS]
    newborn = [new_life(subject) for subject in SUBJECTS]

    async with OperatorProcess(plane, server=proxy.url):
        for life in lives:
            await life.create()
            await life.start()
        rules = [proxy.inject(fault, resource=each, watch=True, count=2) for each in RESOURCES]
        before = len(proxy.calls)
        proxy.cut_watches()
        async with asyncio.TaskGroup() as group:
            for life in lives:
                group.create_task(life.end())
            for life in newborn:
                group.create_task(life.live())

    assert [len(rule.hit) for rule in rules] == [2] * len(rules)
    listed = [call.resource for call in proxy.calls[before:] if call.method == "GET" and not call.is_watch]
    assert set(RESOURCES) <= set(listed)
    for life in (*lives, *newborn):
        life.assert_ended_right()


async def test_an_operator_notices_a_silent_watch_and_opens_another(
    plane: ControlPlane, proxy: FaultProxy, new_life: NewLife
) -> None:
    lives = [new_life(subject) for subject in SUBJECTS]

    async with _manager(plane, proxy):
        for life in lives:
            await life.create()
            await life.start()
        rules = [proxy.inject(watch_silence, resource=each, watch=True) for each in RESOURCES]
        proxy.cut_watches()
        async with asyncio.TaskGroup() as group:
            for life in lives:
                group.create_task(life.end())

    for life in lives:
        life.assert_ended_right()
    for rule in rules:
        (silent,) = rule.hit
        assert silent.outcome == GAVE_UP


@asynccontextmanager
async def _manager(plane: ControlPlane, proxy: FaultProxy) -> AsyncIterator[None]:
    """An operator in this process: no option says how long a watch may be silent."""
    config = load_config(kubeconfig=str(plane.kubeconfig("operator")), master=proxy.url)
    stop = asyncio.Event()
    async with KubeCluster(config, watch_idle=IDLE) as cluster:
        running = asyncio.ensure_future(build_manager(cluster, all_resource_kinds(Settings()), workers=8).run(stop))
        try:
            yield
        finally:
            stop.set()
            await running
            gc.unfreeze()  # an operator freezes what it holds after its start, for it has its process to itself


async def _live_all(lives: Sequence[Life]) -> None:
    async with asyncio.TaskGroup() as group:
        for life in lives:
            group.create_task(life.live())


def _statuses(proxy: FaultProxy, life: Life) -> list[Call]:
    return [call for call in proxy.writes(life.namespace) if call.subresource == "status"]
