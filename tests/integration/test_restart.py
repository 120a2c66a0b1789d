"""Which pods come again, and what the job says meanwhile: policy by scope by fault, all rows played at once.

A row is a job of two workers and one server, all running. Then pods end, one after the other, each after the job runs
again. What the policies mean is in docs/aitrainingjob.md, Restart policies.
"""

from collections.abc import Mapping
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
POD, REPLICA, ALL = {"worker-1"}, {"worker-0", "worker-1"}, {"server-0", "worker-0", "worker-1"}

PATH = ["Running", "Terminating", "Restarting", "Running"]
END = ["Running", "Terminating", "Failed"]


class Row(NamedTuple):
    """``faults`` are the exit codes with which worker 1 ends, again and again; ``again`` the pods that come a second
    time, ``counts`` what the job counts, ``path`` its phases from the first Running on."""

    id: str
    spec: Manifest
    faults: list[int]
    again: set[str]
    counts: Mapping[str, int]
    path: list[str]


def workers(policy: str, scope: str = "All", **fields: Any) -> Manifest:
    role = replica(replicas=2, restartPolicy=policy, restartScope=scope, restartBackoffSeconds=0, **fields)
    return {"replicaSpecs": {"worker": role, "server": replica()}, "restartingExitCode": " 137, 140-143,SIGSEGV"}


def again(id_: str, policy: str, scope: str, code: int) -> Row:
    """A row whose worker comes again."""
    pods = {"Pod": POD, "Replica": REPLICA, "All": ALL}[scope]
    count = {"worker": 1, "server": 1} if scope == "All" else {"worker": 1}
    return Row(id_, workers(policy, scope), [code], pods, count, PATH)


def ends(id_: str, policy: str, code: int, **fields: Any) -> Row:
    return Row(id_, workers(policy, **fields), [code], set(), {}, END)


ROWS = [
    *(again(f"always-{scope.lower()}", "Always", scope, 1) for scope in ("Pod", "Replica", "All")),
    *(again(f"on-failure-{scope.lower()}", "OnFailure", scope, 1) for scope in ("Pod", "Replica", "All")),
    *(again(f"exit-code-{scope.lower()}", "ExitCode", scope, 137) for scope in ("Pod", "Replica", "All")),
    *(again(f"exit-code-{code}", "ExitCode", "Pod", code) for code in (140, 143, 139)),
    again("on-node-fail-with-exit-code", "OnNodeFailWithExitCode", "Pod", 137),
    ends("never", "Never", 137),
    ends("on-node-fail", "OnNodeFail", 137),
    ends("exit-code-that-is-not-listed", "ExitCode", 1),
    ends("exit-code-beside-a-range", "ExitCode", 144),
    ends("on-node-fail-with-another-exit-code", "OnNodeFailWithExitCode", 1),
    ends("no-restart-allowed", "Always", 1, restartLimit=0),
    Row("twice", workers("Always", "Pod"), [1, 2], POD, {"worker": 2}, PATH + PATH[1:]),
    Row("limit-of-one", workers("Always", "Pod", restartLimit=1), [1, 2], POD, {"worker": 1}, PATH + END[1:]),
    Row(
        "limit-of-one-for-all",
        workers("Always", "All", restartLimit=1),
        [1, 2],
        ALL,
        {"worker": 1, "server": 1},
        PATH + END[1:],
    ),
]


class Outcome(NamedTuple):
    """What became of a job."""

    status: Object
    phases: list[str]
    incarnations: dict[str, int]
    labels: dict[str, str]


Outcomes = dict[str, Outcome | str]


async def fall(job: Job, code: int) -> None:
    """Worker 1 fails; what comes again runs, one step after the other. Until the job runs again, or has ended."""
    scene, before = job.scene, len(job.phases)
    await scene.end("job-worker-1", code)
    await job.until(lambda: job.phase in ENDED or job.phases[before:] == PATH[1:3], "it restarts or ends")
    if job.phase in ENDED:
        return
    await job.runs_again()


async def play(scene: Scene, row: Row) -> Outcome:
    job = await scene.create(aitrainingjob("job", **row.spec))
    async with scene.kubelet():
        await job.start()
        for code in row.faults:
            await fall(job, code)
    phases = job.phases[job.phases.index(RUNNING) :]
    labels = {name: pod["metadata"]["labels"]["RestartCount"] for name, pod in job.children("pods").items()}
    return Outcome(job.status, phases, scene.incarnations("pods"), labels)


@pytest.fixture(scope="module")
def outcomes(plane: ControlPlane, operator: OperatorProcess) -> Outcomes:
    return play_all(plane, "restart", {row.id: partial(play, row=row) for row in ROWS})


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
def test_pods_come_again_as_their_policy_says(row: Row, outcomes: Outcomes) -> None:
    outcome = outcomes[row.id]

    assert isinstance(outcome, Outcome), outcome
    status, phases, incarnations, labels = outcome
    assert phases == row.path
    assert status.get("RestartCount", {}) == row.counts
    restarts = row.path.count("Restarting")
    assert {name.removeprefix("job-") for name, number in incarnations.items() if number > 1} == row.again
    assert [entry["replica"] for entry in status.get("restartHistory", ())] == ["worker-1"] * restarts
    if row.path[-1] == RUNNING:
        assert {name.removeprefix("job-") for name, label in labels.items() if label == str(restarts)} == row.again
