"""When and how an AITrainingJob ends, and what it leaves behind: the policies as tables, all rows played at once.

A row is a job whose pods all run; then some of them end. What the policies mean is in docs/aitrainingjob.md,
End policies.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import Object
from tests.integration.scene import ENDED, Job, Scene
from tests.integration.stage import play_all
from tests.manifests.build import Manifest, aitrainingjob, replica

RUNNING = "Running"


class Row(NamedTuple):
    """``exits`` are the pods that end, with their exit codes; ``says`` is in the message of the verdict."""

    id: str
    spec: Manifest
    exits: dict[str, int]
    phase: str
    says: str = ""


def workers(complete: str = "All", fail: str = "Any", *, job: Manifest | None = None) -> Manifest:
    """Two workers under these policies."""
    role = replica(replicas=2, completePolicy=complete, failPolicy=fail)
    return {"replicaSpecs": {"worker": role}, **(job or {})}


def two_roles(first: Manifest | None = None, second: Manifest | None = None, **job: Any) -> Manifest:
    """One pod of role a, one of role b."""
    return {"replicaSpecs": {"a": replica(**(first or {})), "b": replica(**(second or {}))}, **job}


PS = {"completePolicy": "None"}

ENDS = [
    Row("all-complete", workers("All"), {"worker-0": 0, "worker-1": 0}, "Succeed", "completed"),
    Row("one-of-all-completes", workers("All"), {"worker-0": 0}, RUNNING),
    Row("any-completes", workers("Any"), {"worker-1": 0}, "Succeed", "completed"),
    Row("rank-0-completes", workers("Rank0"), {"worker-0": 0}, "Succeed", "completed"),
    Row("rank-1-completes-under-rank-0", workers("Rank0"), {"worker-1": 0}, RUNNING),
    Row("one-completes-under-none", workers("None"), {"worker-0": 0}, RUNNING),
    Row("all-complete-under-none", workers("None"), {"worker-0": 0, "worker-1": 0}, "Succeed", "completed"),
    Row("any-fails", workers(fail="Any"), {"worker-1": 137}, "Failed", "worker-1 failed"),
    Row("rank-0-fails", workers(fail="Rank0"), {"worker-0": 2}, "Failed", "worker-0 failed"),
    Row("rank-1-fails-under-rank-0", workers(fail="Rank0"), {"worker-1": 2}, RUNNING),
    Row("one-of-all-fails", workers(fail="All"), {"worker-0": 2}, RUNNING),
    Row("all-fail", workers(fail="All"), {"worker-0": 2, "worker-1": 3}, "Failed", "exitcode 3"),
    Row("one-fails-under-none", workers(fail="None"), {"worker-0": 2}, RUNNING),
    Row("all-fail-under-none", workers(fail="None"), {"worker-0": 2, "worker-1": 2}, "Failed", "exitcode 2"),
    Row("mixed-under-all", workers("All", "All"), {"worker-0": 0, "worker-1": 9}, "Failed", "worker-1 failed"),
    Row("mixed-under-none", workers("None", "None"), {"worker-0": 9, "worker-1": 0}, "Failed", "exitcode 9"),
    Row(
        "exit-code-is-told", workers(), {"worker-0": 137}, "Failed", "on node n1 exited with reason Error exitcode 137"
    ),
    Row("ps-runs-on", two_roles(PS, completePolicy="Any"), {"b-0": 0}, "Succeed", "completed"),
    Row("ps-runs-on-under-all", two_roles(PS, completePolicy="All"), {"b-0": 0}, RUNNING),
    Row("one-role-of-all", two_roles(), {"a-0": 0}, RUNNING),
    Row("job-any-completes", two_roles(completePolicy="Any"), {"b-0": 0}, "Succeed", "completed"),
    Row("job-rank-0-completes", two_roles(completePolicy="Rank0"), {"a-0": 0}, "Succeed", "completed"),
    Row("job-rank-0-is-not-b", two_roles(completePolicy="Rank0"), {"b-0": 0}, RUNNING),
    Row("job-none-completes-when-all-did", two_roles(completePolicy="None"), {"a-0": 0, "b-0": 0}, "Succeed"),
    Row("job-any-fails", two_roles(failPolicy="Any"), {"b-0": 5}, "Failed", "exitcode 5"),
    Row("job-all-fail", two_roles(failPolicy="All"), {"a-0": 5, "b-0": 6}, "Failed", "exitcode 6"),
    Row("one-role-of-all-fails", two_roles(failPolicy="All"), {"a-0": 5}, RUNNING),
    Row("job-rank-0-fails", two_roles(failPolicy="Rank0"), {"a-0": 5}, "Failed", "exitcode 5"),
    Row("b-fails-under-rank-0", two_roles(failPolicy="Rank0"), {"b-0": 5}, RUNNING),
    Row("job-none-fails-when-nothing-runs", two_roles(failPolicy="None"), {"a-0": 0, "b-0": 5}, "Failed", "exitcode 5"),
    Row("failures-that-do-not-matter", two_roles({"failPolicy": "None"}), {"a-0": 5}, RUNNING),
    Row("role-without-pods-has-no-say", two_roles({"replicas": 0}), {"b-0": 0}, "Succeed", "completed"),
]


class Left(NamedTuple):
    """A row of the clean-up table: worker 0 has succeeded, worker 1 still runs, and the job has ended."""

    policy: str
    pods: list[str]
    services: list[str]


LEFT = [
    Left("All", [], []),
    Left("Running", ["worker-0"], []),
    Left("None", ["worker-0", "worker-1"], ["worker-0", "worker-1"]),
]


class Outcome(NamedTuple):
    """What became of a job."""

    status: Object
    left: dict[str, list[str]]


Outcomes = dict[str, Outcome | str]


async def play(scene: Scene, spec: Manifest, exits: dict[str, int]) -> Outcome:
    """Until the verdict is there, or it is sure that there is none: the counters of a pass are stored with it."""
    job = await scene.create(aitrainingjob("job", **spec))
    async with scene.kubelet():
        await job.start()
        for pod, code in exits.items():
            await scene.end(f"job-{pod}", code)
        await job.until(lambda: job.phase in ENDED or is_judged(job, len(exits)), f"{exits} were looked at")
        await scene.settled()
    return Outcome(job.status, {"pods": own(scene.pods()), "services": own(scene.services())})


def own(children: Iterable[str]) -> list[str]:
    """The children of the job, without its name; those of a probe are not its."""
    return sorted(child.removeprefix("job-") for child in children if child.startswith("job-"))


@pytest.fixture(scope="module")
def outcomes(plane: ControlPlane, operator: OperatorProcess) -> Outcomes:
    plays = {row.id: partial(play, spec=row.spec, exits=row.exits) for row in ENDS}
    plays |= {
        row.policy: partial(play, spec=workers("Any", job={"cleanPodPolicy": row.policy}), exits={"worker-0": 0})
        for row in LEFT
    }
    return play_all(plane, "end", plays)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ENDS])
def test_a_job_ends_as_its_policies_say(row: Row, outcomes: Outcomes) -> None:
    outcome = outcomes[row.id]

    assert isinstance(outcome, Outcome), outcome
    status = outcome.status
    assert status["phase"] == row.phase
    assert row.says in status["conditions"][-1]["message"]
    finished = [c["reason"] for c in status["conditions"] if (c["type"], c["status"]) == ("Finished", "True")]
    assert finished == ([] if row.phase == RUNNING else [row.phase])


@pytest.mark.parametrize("row", [pytest.param(row, id=row.policy) for row in LEFT])
def test_an_ended_job_leaves_behind_what_its_clean_pod_policy_says(row: Left, outcomes: Outcomes) -> None:
    outcome = outcomes[row.policy]

    assert isinstance(outcome, Outcome), outcome
    assert outcome.status["phase"] == "Succeed"
    assert outcome.left == {"pods": row.pods, "services": row.services}


def is_judged(job: Job, ended: int) -> bool:
    """It goes on, and knows that so many pods have ended."""
    counters = job.status.get("replicaStatuses", {}).values()
    counted = sum(counter.get("succeeded", 0) + counter.get("failed", 0) for counter in counters)
    return job.phase == RUNNING and counted == ended
