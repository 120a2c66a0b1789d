"""Jobs that DI-orchestrator v1.1 runs continue without a restart, with the ranks that their pods have."""

from copy import deepcopy

from tests.build import Json, a_ditask, a_task
from tests.matrix.world import World
from trainmaster.core.ids import POD, SERVICE

AT = "2025-12-31T23:00:00Z"
RANKS = {"learner-0": 0, "collector-0": 1, "collector-1": 4}
"""DI-orchestrator gives a pod that it replaces the next rank."""


def a_job() -> Json:
    status = {
        "phase": "Running",
        "replicas": 3,
        "readyReplicas": 3,
        "restarts": 1,
        "conditions": [
            {"type": type_, "status": status, "reason": f"Job{type_}", "lastUpdateTime": AT, "lastTransitionTime": AT}
            for type_, status in (("Pending", "False"), ("Starting", "False"), ("Running", "True"))
        ],
    }
    return a_ditask("job", a_task("learner"), a_task("collector", 2), status=status)


def orphaned(body: Json, place: str) -> Json:
    """A child of ours as DI-orchestrator creates it."""
    found = deepcopy(body)
    kept = ("diengine/job", "diengine/operator", "diengine/pod", "diengine/task-type", "diengine/task-name")
    found["metadata"]["labels"] = {k: v for k, v in found["metadata"]["labels"].items() if k in kept}
    if place:
        found["metadata"]["annotations"]["diengine/rank"] = str(RANKS[place])
    return found


def left_behind() -> World:
    """A world with the job and the children that DI-orchestrator created; no operator has run in it."""
    with World(a_job()) as before:
        before.create()
        before.run(60)
        pods = [orphaned(pod, key.name.removeprefix("job-")) for key, pod in before.pods.items()]
        services = [orphaned(body, "") for body in before.api.objects[SERVICE].values()]
        uid = before.job["metadata"]["uid"]
    job = a_job()
    job["metadata"]["uid"] = uid
    world = World(job)
    world.put(world.kind.resource, job)
    for resource, bodies in ((POD, pods), (SERVICE, services)):
        for body in bodies:
            world.put(resource, body)
    return world


def test_pods_go_on_with_their_ranks_and_new_ones_follow() -> None:
    with left_behind() as world:
        before = world.running
        world.run(60)

        assert world.running == before
        assert len(before) == 3
        assert world.job["status"]["ranks"] == RANKS
        assert world.job["status"]["phase"] == "Running"
        assert world.job["status"]["restarts"] == 1

        world.edit(("tasks", 1, "replicas"), 3)
        world.run(60)

        assert world.job["status"]["ranks"] == RANKS | {"collector-2": 5}
        assert before.items() <= world.running.items()
