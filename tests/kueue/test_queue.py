"""Jobs of every kind in a queue of a real Kueue: they wait together, run together, and leave nothing behind."""

import asyncio
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from testbed.answer import Refused
from testbed.operator import COMMAND
from testbed.plane import ControlPlane
from tests.faults.world import PATIENCE, Object, is_deleting
from tests.integration.scene import Job, Scene, uid_of
from tests.kueue.conftest import API, FLAVOR, HIGH
from tests.matrix.kinds import AITJ, BY_POD, DITASK, KUBEFLOW, MLKUBE, NEVER, Options, Row
from trainmaster.lifecycle import queue

WORKLOADS = f"{API}/workloads"
QUEUE = "main"

DI = tuple(row for row in BY_POD if row.name in ("dijob-collector", "nervexjob-collector"))
each_kind = pytest.mark.parametrize("row", [AITJ, KUBEFLOW, DITASK, MLKUBE[0], *DI], ids=lambda row: row.name)


@dataclass
class Play:
    """One namespace with a queue that has room for so many pods."""

    scene: Scene
    row: Row

    async def give_queue(self, room: int | None = None) -> None:
        """Room for one job, if no number is given. The aggregator of a NerveXJob asks for no CPU."""
        room = self.row.size - bool(self.row.related) if room is None else room
        admin, name = self.scene.admin, self.scene.namespace
        flavor = {"name": FLAVOR, "resources": [{"name": "cpu", "nominalQuota": room}]}
        spec = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
        }
        cluster = {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
        await admin.create(f"{API}/clusterqueues", cluster)
        local = {"apiVersion": API, "kind": "LocalQueue", "metadata": {"name": QUEUE}, "spec": {"clusterQueue": name}}
        await admin.create(f"{API}/localqueues", local, name)

    async def create(self, name: str = "job", *, high: bool = False, options: Options | None = None) -> "Queued":
        manifest = self.row.build(options or Options())
        labels = {queue.QUEUE: QUEUE} | ({queue.PRIORITY: HIGH} if high else {})
        body = {key: manifest[key] for key in ("apiVersion", "kind", "spec")}
        job = await self.scene.create(_with_requests(body) | {"metadata": {"name": name, "labels": labels}})
        if (status := manifest.get("status")) and name == "job":
            await self.scene.admin.set_status(job.resource, self.scene.namespace, name, status)
        return Queued(self, job)

    async def workloads(self) -> dict[str, Object]:
        return {w["metadata"]["name"]: w for w in await self.scene.admin.list(WORKLOADS, self.scene.namespace)}

    async def leaves_nothing(self) -> None:
        """No pod, with a finalizer or without, and no Workload."""
        await self.scene.until(lambda: not self.scene.pods(), "no pod is left")
        await self.scene.admin.wait_list(WORKLOADS, self.scene.namespace, lambda found: not found, timeout=PATIENCE)


@dataclass
class Queued:
    """One job of it."""

    play: Play
    job: Job

    @property
    def pods(self) -> dict[str, Object]:
        return self.job.children("pods")

    @property
    def running(self) -> dict[str, str]:
        found = self.pods.items()
        return {uid_of(p): name for name, p in found if p["status"].get("phase") == "Running" and not is_deleting(p)}

    async def until(self, is_met: Callable[[], object], what: str) -> None:
        await self.job.until(is_met, what)

    async def runs(self, pods: int | None = None, *, without: frozenset[str] = frozenset()) -> None:
        """So many pods run, none of them of the uids ``without``, and the job says so."""
        row = self.play.row
        wanted = row.size if pods is None else pods
        await self.until(lambda: len(self.running.keys() - without) == wanted, f"{wanted} pods run")
        await self.until(lambda: row.is_running(self.job.stored), "the job says that it runs")
        await self.until(lambda: self.job.condition("PodsWaiting").get("status") != "True", "it waits no more")

    async def waits(self) -> str:
        """Until the job says that it waits for Kueue; its sentence in ``kubectl get``."""
        await self.until(lambda: self.job.condition("PodsWaiting").get("reason") == "Queued", "it is queued")
        assert not self.running
        await self.until(lambda: "Kueue" in self.job.status["summary"]["message"], "the summary says so")
        return str(self.job.status["summary"]["message"])

    async def end(self, code: int = 0, *, only: str = "") -> None:
        """The pods that decide end with this code, or one alone."""
        deciding = tuple(prefix.replace("job", self.job.name, 1) for prefix in self.play.row.deciding)
        for name in self.running.values():
            if only == name or (not only and name.startswith(deciding or "")):
                with suppress(Refused):  # the job has its result, and the pod is deleted
                    await self.play.scene.end(name, code)

    async def has_ended(self, result: str) -> None:
        await self.until(lambda: self.play.row.result(self.job.stored) == result, f"it has {result}")

    def restarts(self) -> int:
        return self.play.row.counted(self.job.stored) if self.play.row.counted else 0


def _with_requests(value: Any) -> Any:
    """Every container needs one CPU."""
    if isinstance(value, list):
        return [_with_requests(each) for each in value]
    if not isinstance(value, dict):
        return value
    given = {"resources": {"requests": {"cpu": "1"}}} if "image" in value else {}
    return {key: _with_requests(each) for key, each in value.items()} | given


def first_size(row: Row) -> int:
    """Pods that the job starts with. Collectors of a DIJob come later."""
    return row.size - 2 if row in DI else row.size


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    found: Row = request.param
    return found


@each_kind
async def test_a_job_runs_to_its_end_and_the_next_one_says_that_it_waits(
    scene: Scene, row: Row, plane: ControlPlane
) -> None:
    play = Play(scene, row)
    await play.give_queue()
    first = await play.create()
    await first.runs()
    groups = {pod["metadata"]["labels"].get(queue.GROUP) for pod in first.pods.values()} - {None}
    (group,) = groups
    assert sum(s["count"] for s in (await play.workloads())[group]["spec"]["podSets"]) == first_size(row)
    assert not any(p["metadata"].get("finalizers", []) == [queue.MANAGED] for p in first.pods.values())

    second = await play.create("other")
    assert f"for Kueue to admit them to queue {QUEUE}" in (await second.waits()).replace(" it ", " them ")

    await first.end()
    await first.has_ended("Succeeded")
    await second.runs(first_size(row))
    assert set(scene.incarnations("pods").values()) == {1}
    for each in (first, second):
        await each.job.delete()
    await play.leaves_nothing()


@each_kind
async def test_a_preempted_job_is_queued_again_and_nothing_is_counted(scene: Scene, row: Row) -> None:
    play = Play(scene, row)
    await play.give_queue()
    low = await play.create(options=Options(policy=NEVER))
    await low.runs()
    before = frozenset(low.running)

    high = await play.create("other", high=True)
    await high.runs(first_size(row))
    if row not in DI:
        await low.waits()
    await high.end()
    await high.has_ended("Succeeded")

    await low.until(lambda: len(low.running) == row.size, "all pods run")
    if row not in DI:
        assert not before & low.running.keys()
    assert low.restarts() == 0
    await low.end()
    await low.has_ended("Succeeded")


@each_kind
async def test_failed_pods_are_replaced_in_the_queue(scene: Scene, row: Row) -> None:
    play = Play(scene, row)
    await play.give_queue()
    job = await play.create()
    await job.runs()
    victims = {uid: name for uid, name in job.running.items() if name.startswith(row.victim)}
    uid, name = max(victims.items(), key=lambda found: found[1])
    others = frozenset(job.running) - {uid}

    await job.end(137, only=name)

    gone = frozenset({uid}) | (others if row.restarts_all else frozenset())
    await job.runs(row.size, without=gone)
    assert (others <= job.running.keys()) != row.restarts_all
    await job.job.delete()
    await play.leaves_nothing()


@each_kind
async def test_a_suspended_job_gives_its_quota_back(scene: Scene, row: Row) -> None:
    play = Play(scene, row)
    await play.give_queue()
    job = await play.create()
    await job.runs()
    before = frozenset(job.running)

    await job.job.edit(_at(row.suspend, value=True))
    await play.leaves_nothing()
    await job.job.edit(_at(row.suspend, value=False))
    await job.until(lambda: len(job.running) >= first_size(row) and not before & job.running.keys(), "it runs again")
    await job.job.delete()
    await play.leaves_nothing()


@each_kind
async def test_a_job_that_is_resumed_at_once_does_not_wait_for_the_group_that_goes(scene: Scene, row: Row) -> None:
    """Kueue may still be removing the Workload of the last group when the pods of the next one are created."""
    play = Play(scene, row)
    await play.give_queue()
    job = await play.create()
    await job.runs()
    seen: set[str] = set()
    for _ in range(3):
        seen |= {name for pod in job.pods.values() if (name := pod["metadata"]["labels"].get(queue.GROUP, ""))}
        before = frozenset(job.running)
        await job.job.edit(_at(row.suspend, value=True))
        await job.until(lambda was=before: not was & job.running.keys(), "its pods go")  # type: ignore[misc]  # mypy infers no lambda with a default
        await job.job.edit(_at(row.suspend, value=False))
        await job.until(
            lambda was=before: len(job.running) >= first_size(row) and not was & job.running.keys(),  # type: ignore[misc]  # the same
            "it runs again",
        )
        assert not seen & {pod["metadata"]["labels"].get(queue.GROUP, "") for pod in job.pods.values()}
    await job.job.delete()
    await play.leaves_nothing()


def _at(path: tuple[str | int, ...], *, value: object) -> Object:
    body: Any = value
    for step in reversed(path):
        body = {step: body}
    found: Object = body
    return found


@pytest.mark.parametrize("row", [AITJ, KUBEFLOW], ids=lambda row: row.name)
async def test_a_failed_job_that_keeps_its_pods_gives_its_quota_back(scene: Scene, row: Row) -> None:
    play = Play(scene, row)
    await play.give_queue()
    failing = await play.create(options=Options(policy=NEVER, spec=((row.clean, "None"),)))
    await failing.runs()
    second = await play.create("other")
    await second.waits()

    await failing.end(1)
    await failing.has_ended("Failed")

    await second.runs()
    assert len(failing.pods) == row.size


async def test_an_elastic_job_runs_with_the_pods_that_are_admitted(scene: Scene) -> None:
    elastic = (
        (("replicaSpecs", "trainer", "edlPolicy"), "Auto"),
        (("replicaSpecs", "trainer", "minReplicas"), 1),
        (("replicaSpecs", "trainer", "maxReplicas"), 3),
    )
    play = Play(scene, AITJ)
    await play.give_queue(3)
    job = await play.create(options=Options(spec=elastic))

    await job.until(lambda: len(job.running) == 3, "three of four pods run")
    await job.until(lambda: AITJ.is_running(job.job.stored), "the job says that it runs")
    sizes = sorted(len(w["metadata"]["ownerReferences"]) for w in (await play.workloads()).values())
    assert sizes == [1, 1, 2]
    said = "waits for Kueue to admit it to queue main"
    await job.until(lambda: said in job.job.condition("PodsWaiting").get("message", ""), "the fourth pod waits")


async def test_why_says_that_a_job_waits_for_its_queue(scene: Scene, plane: ControlPlane) -> None:
    play = Play(scene, KUBEFLOW)
    await play.give_queue(1)
    job = await play.create()
    await job.waits()

    said = await _typed(plane, "why", "job", "--namespace", scene.namespace)

    assert said[0].startswith("mxjob/job is waiting: 4 pods wait for Kueue to admit them to queue main"), said
    assert " describe workload job-" in said[-1], said
    plane.kubectl("describe", *said[-1].split(" describe ")[1].split())


async def _typed(plane: ControlPlane, *words: str) -> list[str]:
    command = [str(COMMAND), *words, "--kubeconfig", str(plane.kubeconfig())]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
