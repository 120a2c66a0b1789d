"""What others tell a job, and its deadlines, on a real API server: all rows played at once.

A row is a job of two workers that run. Then it is told something, or its time is over.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import Object
from tests.integration.scene import Job, Scene
from tests.integration.stage import play_all
from tests.manifests.build import Manifest, aitrainingjob, replica

ALL_ENDED = ("Succeed", "Failed", "Timeout", "Preempted", "NodeFail")
PREFIX = "elasticdeeplearning.ai/"


async def annotate(job: Job, key: str, value: str | None) -> None:
    patch = {"metadata": {"annotations": {key: value}}}
    await job.scene.admin.patch(job.resource, job.scene.namespace, job.name, patch)


class Row(NamedTuple):
    """``tells`` is what happens to the running job; ``path`` are its phases from then on."""

    id: str
    spec: Manifest
    tells: Callable[[Job], Awaitable[None]]
    path: list[str]
    says: str


def told(key: str, value: str = "said") -> Callable[[Job], Awaitable[None]]:
    return lambda job: annotate(job, key, value)


async def nothing(job: Job) -> None:
    """Its time passes."""


async def suspended(job: Job) -> None:
    await job.edit({"suspend": True})
    await job.until(lambda: not job.children("pods") and job.phase == "Pending", "it is stopped")
    await job.edit({"suspend": False})
    await runs_again(job)


async def preempted_and_back(job: Job) -> None:
    await annotate(job, "Preempted", "for bigger ones")
    await job.until(lambda: not job.children("pods") and job.phase == "Pending", "it is stopped")
    await annotate(job, "Preempted", None)
    await runs_again(job)


async def runs_again(job: Job) -> None:
    """Every step is said before the next one is taken."""
    await job.pods_are_there()
    await job.says("Suspended", "False")
    await job.scene.bind(*job.slots)
    await job.reach("Creating")
    await job.scene.report("Running", *job.slots)
    await job.until(lambda: job.phase == "Running", "it runs again")


def workers(**job: object) -> Manifest:
    return {"replicaSpecs": {"worker": replica(replicas=2, failPolicy="None")}, "failPolicy": "None", **job}


ROWS = [
    *(
        Row(f"{end.lower()}-{clean.lower()}", workers(cleanPodPolicy=clean), told(end), ["Terminating", end], "said")
        for end in ("Preempted", "Failed", "NodeFail")
        for clean in ("All", "None")
    ),
    Row("preempted-alias", workers(), told(f"{PREFIX}preempted"), ["Terminating", "Preempted"], "said"),
    Row("nodefailed-alias", workers(), told(f"{PREFIX}nodefailed"), ["Terminating", "NodeFail"], "said"),
    Row("time-limit", workers(timeLimit=3), nothing, ["Terminating", "Timeout"], "has run for 3 seconds"),
    Row("suspended", workers(), suspended, ["Terminating", "Pending", "Running"], "all pods are running"),
    Row(
        "preempted-and-back",
        workers(requeueOnPreemption=True),
        preempted_and_back,
        ["Terminating", "Pending", "Running"],
        "all pods are running",
    ),
]


class Outcome(NamedTuple):
    status: Object
    phases: list[str]
    pods: list[str]


async def play(scene: Scene, row: Row) -> Outcome:
    job = await scene.create(aitrainingjob("job", **row.spec))
    async with scene.kubelet():
        await job.start()
        await tell(job, row)
        await scene.catch_up()
    return Outcome(job.status, job.phases[job.phases.index("Running") + 1 :], sorted(job.children("pods")))


async def tell(job: Job, row: Row) -> None:
    """Until the running job is where its path ends."""
    await row.tells(job)
    await job.until(lambda: job.phase == row.path[-1] or job.phase in ALL_ENDED, f"it is {row.path[-1]}")


@pytest.fixture(scope="module")
def outcomes(plane: ControlPlane, operator: OperatorProcess) -> dict[str, Outcome | str]:
    return play_all(plane, "external", {row.id: partial(play, row=row) for row in ROWS})


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
def test_a_job_does_what_it_is_told(row: Row, outcomes: dict[str, Outcome | str]) -> None:
    outcome = outcomes[row.id]

    assert isinstance(outcome, Outcome), outcome
    status, phases, pods = outcome
    assert [phase for phase in phases if phase != "Creating"] == row.path
    assert row.says in status["conditions"][-1]["message"]
    assert ("endTime" in status) == (row.path[-1] in ALL_ENDED)
    assert bool(pods) == (row.path[-1] == "Running")


async def test_a_job_is_deleted_when_it_was_kept_long_enough(scene: Scene, operator: OperatorProcess) -> None:
    job = await scene.create(aitrainingjob("job", ttlSecondsAfterFinished=1))
    await job.live()

    await job.until(lambda: not job.stored, "it is gone")

    assert [status["phase"] for status in job.statuses][-1] == "Succeed"


async def test_a_job_that_another_operator_left_terminating_is_ended(scene: Scene, operator: OperatorProcess) -> None:
    job = await scene.create(aitrainingjob("job", metadata={"annotations": {"Timeout": "took too long"}}))
    await job.start()
    await scene.admin.set_status(job.resource, scene.namespace, job.name, {"phase": "Terminating"})

    async with scene.kubelet():
        await job.until(lambda: job.phase == "Timeout", "it is Timeout")

    await scene.catch_up()
    assert not job.children("pods")
