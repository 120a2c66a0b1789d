"""The operator is killed at random moments of the lives of many jobs: then nothing is missing and nothing is twice.

A moment is a number of things that have happened, not a time: however slow the machine, a kill comes in the middle.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from testbed.admin import eventually
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import PATIENCE, Object
from tests.integration.metric import Metrics
from tests.integration.scene import ENDED, Job, Scene
from tests.integration.stage import stage_on
from tests.manifests.build import Manifest, aitrainingjob, dijob, replica

JOBS = 50
KILLS_A_STAGE = 2
NAMESPACE = "kill"

# How far a job has come; no job may ever take a step back.
ORDER = ["", "Created", "Pending", "Creating", "Running", "Terminating", "Succeed", "Succeeded"]


def manifests() -> list[Manifest]:
    """Both kinds in turns."""
    trainer, ps = replica(replicas=2), replica(completePolicy="None")
    kinds: list[Callable[[str], Manifest]] = [
        lambda name: dijob(name, cleanPodPolicy="All"),
        lambda name: aitrainingjob(name, completePolicy="Any", replicaSpecs={"trainer": trainer, "ps": ps}),
    ]
    return [kinds[number % 2](f"job-{number:02}") for number in range(JOBS)]


@dataclass
class Story:
    """What was seen of a burst of jobs. ``moments`` are for the message of a failure."""

    moments: list[str] = field(default_factory=list)
    running: dict[str, Object] = field(default_factory=dict)
    """The status of every job when all of them were Running."""
    ended: dict[str, Object] = field(default_factory=dict)
    phases: dict[str, list[str]] = field(default_factory=dict)
    made: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many incarnations of each pod and service there have been."""
    wanted: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    changed_by_a_restart: list[str] = field(default_factory=list)


class Victim:
    """The operator of the moment."""

    def __init__(self, plane: ControlPlane, scene: Scene, chance: random.Random, story: Story) -> None:
        self._plane = plane
        self._scene = scene
        self._chance = chance
        self._story = story
        self._operator: OperatorProcess | None = None

    async def start(self) -> None:
        self._operator = await asyncio.to_thread(OperatorProcess(self._plane).start)

    def kill(self) -> None:
        if self._operator is not None:
            self._operator.stop()
            self._operator = None

    async def die_on_the_way(self, what: str, count: Callable[[], int], total: int) -> None:
        """Some kills while the count grows to the total; the last operator lives on."""
        for moment in sorted(self._chance.sample(range(1, total), KILLS_A_STAGE)):
            await self._scene.until(partial(_has_come, count, moment), f"{moment} {what}")
            self.kill()
            self._story.moments.append(f"{count()} of {total} {what}")
            await self.start()

    async def looked_at_everything(self) -> None:
        """The jobs that were there at its start do not wait in the order of their arrival: its metrics tell."""
        operator = self._operator
        assert operator is not None

        async def look() -> None:
            metrics = Metrics(await asyncio.to_thread(operator.metrics))
            assert metrics.total("controller_runtime_reconcile_total") >= JOBS
            assert metrics.total("workqueue_depth") == metrics.total("controller_runtime_active_workers") == 0

        await eventually(look, timeout=PATIENCE)


def _has_come(count: Callable[[], int], moment: int) -> bool:
    return count() >= moment


async def tell(plane: ControlPlane, seed: int) -> Story:
    story = Story()
    async with stage_on(plane) as stage:
        scene = await stage.scene(NAMESPACE)
        victim = Victim(plane, scene, random.Random(seed), story)
        try:
            async with scene.kubelet():
                await burst(scene, victim, story)
        finally:
            victim.kill()
    return story


async def burst(scene: Scene, victim: Victim, story: Story) -> None:
    def made(resource: str) -> int:
        return sum(scene.incarnations(resource).values())

    def in_phase(*phases: str) -> int:
        return sum(job.phase in phases for job in jobs)

    await victim.start()
    jobs: list[Job] = list(await asyncio.gather(*(scene.create(manifest) for manifest in manifests())))
    story.wanted = sorted(slot for job in jobs for slot in job.slots)
    objects = 2 * len(story.wanted)
    await victim.die_on_the_way("pods and services made", lambda: made("pods") + made("services"), objects)
    await scene.until(lambda: made("pods") >= len(story.wanted), "all pods are made")

    starting = asyncio.gather(*(scene.report("Running", slot) for slot in story.wanted))
    await victim.die_on_the_way("jobs running", lambda: in_phase("Running"), JOBS)
    await starting
    await scene.until(lambda: in_phase("Running") == JOBS, "all jobs are running")
    story.running = {job.name: job.status for job in jobs}

    ending = asyncio.gather(*(scene.end(slot, 0) for slot in story.wanted if "-ps-" not in slot))
    await victim.die_on_the_way("jobs ended", lambda: in_phase(*ENDED), JOBS)
    await ending
    await scene.until(lambda: in_phase(*ENDED) == JOBS, "all jobs have ended")
    await scene.until(lambda: not leftovers(scene), "nothing is left of them")
    story.ended = {job.name: job.status for job in jobs}

    before = {job.name: job.stored for job in jobs}
    victim.kill()
    await victim.start()
    await victim.looked_at_everything()
    story.changed_by_a_restart = [job.name for job in jobs if job.stored != before[job.name]]
    story.phases = {job.name: job.phases for job in jobs}
    story.made = {resource: scene.incarnations(resource) for resource in ("pods", "services")}
    story.left = leftovers(scene)


def leftovers(scene: Scene) -> list[str]:
    return sorted([*scene.pods(), *scene.services()])


@pytest.fixture(scope="module")
def story(plane: ControlPlane) -> Story:
    return asyncio.run(tell(plane, seed=20261115))


def test_six_operators_died_in_the_middle_of_their_work(story: Story) -> None:
    assert len(story.moments) == 3 * KILLS_A_STAGE, story.moments


def test_every_pod_and_service_was_made_exactly_once(story: Story) -> None:
    once = dict.fromkeys(story.wanted, 1)

    assert story.made == {"pods": once, "services": once}, story.moments


def test_every_running_job_counted_all_of_its_pods(story: Story) -> None:
    dijob = {"Coordinator": {"active": 1}, "Aggregator": {}, "Collector": {}, "Learner": {}}
    aitrainingjob = {"ps": {"active": 1}, "trainer": {"active": 2}}

    counters = [story.running[name] for name in sorted(story.running)]
    assert [status["replicaStatus"] for status in counters[0::2]] == [dijob] * (JOBS // 2)
    assert [status["replicaStatuses"] for status in counters[1::2]] == [aitrainingjob] * (JOBS // 2)


def test_every_job_ended_well_with_the_counters_of_its_end(story: Story) -> None:
    dijob = {"Coordinator": {"succeeded": 1}, "Aggregator": {}, "Collector": {}, "Learner": {}}
    aitrainingjob = {"ps": {}, "trainer": {"succeeded": 2}}

    statuses = [story.ended[name] for name in sorted(story.ended)]
    assert [status["phase"] for status in statuses] == ["Succeeded", "Succeed"] * (JOBS // 2)
    assert [status["replicaStatus"] for status in statuses[0::2]] == [dijob] * (JOBS // 2)
    assert [status["replicaStatuses"] for status in statuses[1::2]] == [aitrainingjob] * (JOBS // 2)


def test_no_job_took_a_step_back(story: Story) -> None:
    backwards = {name: phases for name, phases in story.phases.items() if phases != sorted(phases, key=ORDER.index)}

    assert not backwards, story.moments


def test_nothing_is_left_of_ended_jobs(story: Story) -> None:
    assert not story.left


def test_a_restart_leaves_finished_jobs_finished_and_untouched(story: Story) -> None:
    assert not story.changed_by_a_restart
