"""Our operator finds what another one left, at every recorded stage of a job's life."""

import re

import pytest

from tests.build import Json
from tests.laws.memory import Object
from tests.matrix.kinds import AITJ, BY_JOB, KUBEFLOW, MLKUBE, Row, is_true
from tests.matrix.world import World
from tests.takeover.load import world_of
from tests.takeover.stages import RUNNING, STAGES, SUCCEEDED, Stage

ROWS: dict[str, Row] = {
    "aitrainingjob-148db3b": AITJ,
    "kubeflow-1.7": KUBEFLOW,
    "mxjob-mlkube-c377703": MLKUBE[0],
    "di-v0.2.2": next(row for row in BY_JOB if row.name == "dijob"),
}
TIMES = ("startTime", "startRunningTime", "completionTime", "endTime")


def _row(stage: Stage) -> Row:
    return ROWS[stage.path.partition("/")[0]]


def _param(stage: Stage) -> object:
    marks = [pytest.mark.xfail(reason=stage.red, raises=AssertionError, strict=True)] if stage.red else []
    return pytest.param(stage, id=stage.path, marks=marks)


@pytest.mark.parametrize("stage", [_param(stage) for stage in STAGES])
def test_a_job_goes_on_under_our_operator(stage: Stage) -> None:
    with world_of(stage.path) as world:
        before, status, services = _pods(world), world.job.get("status", {}), len(world.services)
        world.operate()
        if stage.waits:
            assert _names(world, _pods(world)) <= _names(world, before), "created while old pods are terminating"
        world.run(120)

        _check_state(stage, world)
        _check_pods(stage, world, before)
        assert len(world.services) == (services if stage.services is None else stage.services)
        _check_memory(stage, world.job["status"], status)
        if stage.then == RUNNING and "replicaStatus" in status:
            collectors = sum("-collector-" in name for name in world.running.values())
            assert world.job["status"]["replicaStatus"]["Collector"].get("active", 0) == collectors


def _check_state(stage: Stage, world: World) -> None:
    job, row = world.job, _row(stage)
    assert not is_true(job, "PodCreateFailed"), job["status"]["conditions"]
    match stage.then:
        case "Running":
            assert not row.result(job)
            assert row.is_running(job), job["status"]
        case "Suspended":
            assert is_true(job, "Suspended")
            assert not world.pods
        case _:
            assert row.result(job) == stage.then, job["status"]


def _check_pods(stage: Stage, world: World, before: dict[str, Object]) -> None:
    after = _pods(world)
    made = {uid: pod for uid, pod in after.items() if uid not in before}
    allowed = {_role(name) for name in stage.may_replace}
    created = {name for name in _names(world, made) if _role(name) not in allowed}
    assert created == set(stage.new), f"created: {created}"
    assert len(_names(world, after)) == len(after), f"twice: {sorted(_names(world, after))}"
    for role in allowed:
        assert _number(world, after, role) <= _number(world, before, role), f"too many of {role}"
    for uid, pod in before.items():
        name = _name(world, pod)
        if name in stage.gone:
            assert uid not in after, f"{name} is still there"
        elif name not in stage.new and name not in stage.may_replace:
            assert uid in after, f"{name} is gone"


def _check_memory(stage: Stage, after: Json, before: Json) -> None:
    """Times, counts and conditions that were found are kept."""
    for time in TIMES:
        assert time not in before or after.get(time) == before[time], f"{time} has changed"
    for role, number in stage.counted:
        assert after["RestartCount"][role] == number
    if stage.has_ended:
        assert after.get("phase") in (before.get("phase"), stage.then)
        assert [c for c in before.get("conditions", ()) if c not in after["conditions"]] == []
        assert not after.get("restarts")


@pytest.mark.parametrize(
    "path",
    [
        "aitrainingjob-148db3b/ps-trainer/running",
        "kubeflow-1.7/train/running",
        "di-v0.2.2/parallel/running",
        "mxjob-mlkube-c377703/dist/running",
    ],
)
def test_a_job_that_was_taken_over_succeeds_when_its_pods_do(path: str) -> None:
    row = ROWS[path.partition("/")[0]]
    with world_of(path) as world:
        world.run(60)
        for key in list(world.pods):
            if row is not ROWS["di-v0.2.2"] or key.name.endswith("coordinator"):
                world.end_container(key, 0, "Completed")
        world.run(120)

        assert row.result(world.job) == SUCCEEDED
        assert not world.running


def _pods(world: World) -> dict[str, Object]:
    return {pod["metadata"]["uid"]: pod for pod in world.pods.values()}


def _names(world: World, pods: dict[str, Object]) -> set[str]:
    return {_name(world, pod) for pod in pods.values()}


def _name(world: World, pod: Object) -> str:
    """Without the job; of a pod of a batch Job, that of the Job."""
    owner = pod["metadata"]["ownerReferences"][0]
    name = owner["name"] if owner["kind"] == "Job" else pod["metadata"]["name"]
    return str(name).removeprefix(f"{world.key.name}-")


def _number(world: World, pods: dict[str, Object], role: str) -> int:
    return sum(_role(_name(world, pod)) == role for pod in pods.values())


def _role(name: str) -> str:
    """Without the suffix by which di-server told replicas apart."""
    return re.sub("-[a-z0-9]{5}$", "", name)
