"""A part of the matrix on the real API server and on that of local mode: what a job does and says is the same.

tests/matrix plays every situation of every kind on the pure core. Here the situations are those in which the API server
has a part: it stores what we write, deletes gracefully, runs batch Jobs, and sends Events.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import PATIENCE, Object, is_deleting
from tests.integration.scene import Job, Scene, give_aggregators, uid_of
from tests.integration.stage import embedded_plane, play_all
from tests.matrix.kinds import Row, is_true
from tests.matrix.outcome import ALL, NO_POD, SCOPE, VICTIM, Fails, GoesOn, Outcome, Suspended, Waits
from tests.matrix.table import EVICTED, TABLE, Situation


class Case:
    """One cell: a job in a namespace of its own, whose pods are run by the test."""

    def __init__(self, scene: Scene, row: Row, situation: Situation) -> None:
        self.scene, self.row, self.situation = scene, row, situation
        self.is_held: Callable[[Object], bool] = lambda pod: False
        """Pods that the test does not run."""
        self.pods: dict[str, str] = {}
        """Names of the pods that ran before the situation, by uid."""
        self.victim = ""

    async def create(self) -> None:
        manifest = self.row.build(self.situation.manifest(self.row))
        body = {key: manifest[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "job"}}
        self.job = await self.scene.create(body)
        if status := manifest.get("status"):
            await self.scene.admin.set_status(self.job.resource, self.scene.namespace, "job", status)

    async def run(self) -> None:
        """Until all pods run."""
        await self.until(lambda: len(self.running) == self.row.size, f"{self.row.size} pods run")
        await self.until(lambda: self.row.is_running(self.job.stored), "the job says that it runs")
        self.pods = dict(self.running)
        self.victim = max(name for name in self.pods.values() if name.startswith(self.row.victim))

    @property
    def running(self) -> dict[str, str]:
        pods = self.job.children("pods")
        return {uid_of(pod): name for name, pod in pods.items() if _phase(pod) == "Running" and not is_deleting(pod)}

    async def until(self, is_met: Callable[[], object], what: str) -> None:
        await self.job.until(is_met, what)

    async def event_says(self, pattern: str) -> None:
        filled = pattern.replace("{pod}", re.escape(self.victim)).replace("{node}", "n1")

        def is_said(events: list[Object]) -> bool:
            own = [event for event in events if event["involvedObject"].get("uid") == self.job.uid]
            return any(re.search(filled, f"{event['reason']}: {event['message']}") for event in own)

        await self.scene.admin.wait_list("events", self.scene.namespace, is_said, timeout=PATIENCE)

    def status_says(self, pattern: str) -> bool:
        conditions = self.job.status.get("conditions", ())
        return any(re.search(pattern, f"{c.get('reason', '')}: {c.get('message', '')}") for c in conditions)

    # --- the scheduler and the kubelet ---

    @asynccontextmanager
    async def nodes(self) -> AsyncIterator[None]:
        """Meanwhile pending pods run, and deleted pods are gone."""
        async with self.scene.kubelet():
            running = asyncio.ensure_future(self._run_pods())
            try:
                yield
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    async def _run_pods(self) -> None:
        seen: set[str] = set()

        def pending() -> list[Object]:
            pods = self.scene.pods().values()
            return [p for p in pods if _phase(p) == "Pending" and uid_of(p) not in seen and not self.is_held(p)]

        while True:
            for pod in await self.scene.until(pending, "a pod is pending", timeout=3600):
                seen.add(uid_of(pod))
                await self.scene.report("Running", pod["metadata"]["name"])


def _phase(pod: Object) -> str:
    phase: str = pod.get("status", {}).get("phase", "")
    return phase


# --- what happens ---


async def ended_by_node(case: Case) -> None:
    await case.scene.admin.set_pod(case.scene.namespace, case.victim, phase="Failed", reason="Shutdown", message="away")


async def drained(case: Case) -> None:
    """A drained pod has a grace period, in which the operator sees why the pod is deleted."""
    # The disruption controller takes a condition without a recent time back.
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    reason = "EvictionByEvictionAPI"
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at}
    case.scene.slow_to_end.add(case.victim)
    await case.scene.admin.set_status("pods", case.scene.namespace, case.victim, {"conditions": [target]})
    await case.scene.admin.delete("pods", case.scene.namespace, case.victim)
    await case.event_says(EVICTED)
    case.scene.slow_to_end.discard(case.victim)
    await case.scene.let_go(case.victim)


async def ended_by_signal(case: Case) -> None:
    await case.scene.end(case.victim, 137)


async def pod_deleted(case: Case) -> None:
    await case.scene.admin.delete("pods", case.scene.namespace, case.victim)


async def service_deleted(case: Case) -> None:
    await case.scene.admin.delete("services", case.scene.namespace, min(case.job.children("services")))


async def suspended(case: Case) -> None:
    await case.job.edit(_nested(case.row.suspend, True))
    await case.until(lambda: not case.job.children("pods"), "it has no pods")


async def suspended_and_resumed(case: Case) -> None:
    await suspended(case)
    await case.until(lambda: is_true(case.job.stored, "Suspended"), "it is suspended")
    await case.job.edit(_nested(case.row.suspend, False))


async def nothing(case: Case) -> None:
    """What matters is in the manifest."""


def _nested(path: tuple[str | int, ...], value: object) -> Object:
    for step in reversed(path):
        value = {step: value}
    assert isinstance(value, dict)
    return value


async def waiting_for_an_image(case: Case) -> None:
    await _held(case, {"containers": ["ImagePullBackOff"]}, {})


async def unschedulable(case: Case) -> None:
    message = "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."
    reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    await _held(case, {"node": None}, {"conditions": [reason]})


async def _held(case: Case, report: Object, status: Object) -> None:
    """The victim does not start, and reports this."""

    def victims() -> list[str]:
        return [name for name in case.scene.pods() if name.startswith(case.row.victim)]

    await case.scene.until(victims, "its pod is there")
    (case.victim,) = victims()
    await case.scene.admin.set_pod(case.scene.namespace, case.victim, phase="Pending", **report)
    if status:
        await case.scene.admin.set_status("pods", case.scene.namespace, case.victim, status)


ACTS: dict[str, Callable[[Case], Awaitable[None]]] = {
    "ended-by-node-Shutdown": ended_by_node,
    "drained": drained,
    "signal-137": ended_by_signal,
    "image-cannot-be-pulled": waiting_for_an_image,
    "unschedulable": unschedulable,
    "running-pod-deleted": pod_deleted,
    "service-deleted": service_deleted,
    "suspended": suspended,
    "suspended-and-resumed": suspended_and_resumed,
    "suspended-at-creation": nothing,
}
SITUATIONS = {situation.name: situation for situation in TABLE if situation.name in ACTS}
CELLS = {
    f"{name}-{row.name}".replace(".", "-"): (situation, row)
    for name, situation in SITUATIONS.items()
    for row in situation.rows
    if situation.cell(row) is not None
}


# --- what becomes of the job ---


async def check(case: Case, outcome: Outcome) -> None:
    match outcome:
        case GoesOn():
            await _goes_on(case, outcome)
        case Waits(says=says):
            await case.until(lambda: case.status_says(says), f"its conditions say {says}")
            await case.event_says(says)
            await case.scene.report("Running", case.victim)
            case.is_held = lambda pod: False  # only now: two that bind a pod at once are in conflict
            await case.run()
        case Fails(says=says):
            await case.until(lambda: case.row.result(case.job.stored) == "Failed", "it has failed")
            assert case.status_says(says), case.job.status
        case Suspended(conditions=conditions):
            await case.until(lambda: all(is_true(case.job.stored, c) for c in conditions), f"{conditions} are True")
            await case.event_says("(?i)suspend")
            assert not case.running
        case _:
            raise AssertionError(f"{outcome} is not checked here")


async def _goes_on(case: Case, outcome: GoesOn) -> None:
    before = set(case.pods.values())
    restarted = outcome.restarted
    if restarted == SCOPE:
        restarted = ALL if case.row.restarts_all else VICTIM
    kept = {NO_POD: before, VICTIM: before - {case.victim}, ALL: set[str]()}[restarted]

    def is_restarted() -> bool:
        return {name for uid, name in case.pods.items() if uid in case.running} == kept

    await case.until(lambda: len(case.running) == len(before) and is_restarted(), f"{restarted} restarted")
    await case.until(lambda: case.row.is_running(case.job.stored), "the job says that it runs")
    if outcome.event:
        await case.event_says(outcome.event)
    assert is_restarted(), f"{restarted} should be new: {case.pods} {case.running}"
    if outcome.counted is not None and case.row.counted is not None:
        assert case.row.counted(case.job.stored) == outcome.counted, case.job.status


async def play(scene: Scene, cell: str) -> Job:
    situation, row = CELLS[cell]
    case, outcome = Case(scene, row, situation), situation.cell(row)
    assert outcome is not None
    if isinstance(outcome, Waits):
        case.is_held = lambda pod: pod["metadata"]["name"].startswith(row.victim)
    async with case.nodes():
        await case.create()
        if not situation.at_creation:
            await case.run()
        await ACTS[situation.name](case)
        await check(case, outcome)
    return case.job


PLAYS = {cell: partial(play, cell=cell) for cell in CELLS}


@pytest.fixture(scope="module")
def real(plane: ControlPlane, operator: OperatorProcess) -> dict[str, Job | str]:
    give_aggregators(plane)
    return play_all(plane, "matrix", PLAYS)


@pytest.fixture(scope="module")
def local(binaries: Path) -> dict[str, Job | str]:
    with embedded_plane(binaries) as plane:
        return play_all(plane, "matrix", PLAYS)


@pytest.mark.parametrize("cell", CELLS)
def test_the_real_api_server_shows_what_the_table_says(cell: str, real: dict[str, Job | str]) -> None:
    assert isinstance(real[cell], Job), real[cell]


@pytest.mark.parametrize("cell", CELLS)
def test_local_mode_shows_what_the_table_says(cell: str, local: dict[str, Job | str]) -> None:
    assert isinstance(local[cell], Job), local[cell]
