"""DI_NODES and DI_RANK, as DI-engine's own parser reads them: what it makes of given values, and of those that the pods
of a DIJob with tasks have after each kind of change. tests/kinds/ditask/test_chaos.py has random changes.
"""

from collections.abc import Callable

import pytest

from tests.build import a_ditask, a_task
from tests.contract.k8s_parser import parsed
from tests.kinds.ditask.environment import created
from tests.matrix.world import World
from trainmaster.core.ids import Key

NODES = "job-learner-0.di-job,job-collector-0.di-job,job-collector-1.di-job"


@pytest.mark.parametrize(
    ("rank", "address", "attached"),
    [
        (0, "job-learner-0.di-job", ""),
        (1, "job-collector-0.di-job", "tcp://job-learner-0.di-job:50515"),
        (2, "job-collector-1.di-job", "tcp://job-learner-0.di-job:50515,tcp://job-collector-0.di-job:50515"),
    ],
)
def test_a_node_listens_at_its_rank_and_dials_all_lower_ranks(rank: int, address: str, attached: str) -> None:
    found = parsed({"DI_NODES": NODES, "DI_RANK": str(rank)}, topology="mesh", parallel_workers=1)

    assert (found["address"], found["node_ids"], found["ports"]) == (address, rank, 50515)
    assert found["attach_to"] == attached


def test_in_a_star_all_nodes_dial_rank_0() -> None:
    found = parsed({"DI_NODES": NODES, "DI_RANK": "2"}, topology="star", parallel_workers=2)

    assert found["attach_to"] == "tcp://job-learner-0.di-job:50515,tcp://job-learner-0.di-job:50516"
    assert found["node_ids"] == 4


def test_a_rank_beyond_the_nodes_ends_ditask() -> None:
    with pytest.raises(IndexError):
        parsed({"DI_NODES": NODES, "DI_RANK": "3"}, topology="mesh", parallel_workers=1)


# --- our own pods ---


def address(place: str) -> str:
    return f"cartpole-{place}.di-cartpole.rl.svc.cluster.local"


def pod(place: str) -> Key:
    return Key("rl", f"cartpole-{place}")


COLLECTORS = ("tasks", 1, "replicas")


def start(world: World) -> None:
    """The pods that the job starts with are the new ones."""
    world.create()


def restart(world: World) -> None:
    world.end_container(pod("collector-1"), 1, "Error")


def reschedule(world: World) -> None:
    world.delete_pod(pod("evaluator-0"))


def lose_node(world: World) -> None:
    world.cluster.lose(world.pods[pod("collector-0")]["spec"]["nodeName"])


def scale_up(world: World) -> None:
    world.edit(COLLECTORS, 3)


def scale_down(world: World) -> None:
    """The evaluator restarts, too: otherwise no pod would be created."""
    world.edit(COLLECTORS, 1)
    world.run(60)
    world.end_container(pod("evaluator-0"), 1, "Error")


def scale_down_and_up(world: World) -> None:
    world.edit(COLLECTORS, 1)
    world.run(60)
    world.edit(COLLECTORS, 3)


def scale_down_restart_and_scale_up(world: World) -> None:
    """The evaluator of rank 3 does not know the collector of rank 2 any more."""
    scale_down(world)
    world.run(60)
    world.edit(COLLECTORS, 2)


def succeed_and_restart(world: World) -> None:
    world.end_container(pod("learner-0"), 0, "Completed")
    world.run(60)
    world.end_container(pod("evaluator-0"), 1, "Error")


LEARNER, COLLECTOR, COLLECTOR_1, EVALUATOR = map(address, ("learner-0", "collector-0", "collector-1", "evaluator-0"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            start,
            {
                "learner-0": [],
                "collector-0": [LEARNER],
                "collector-1": [LEARNER, COLLECTOR],
                "evaluator-0": [LEARNER, COLLECTOR, COLLECTOR_1],
            },
            id="start",
        ),
        pytest.param(restart, {"collector-1": [LEARNER, COLLECTOR]}, id="restart"),
        pytest.param(reschedule, {"evaluator-0": [LEARNER, COLLECTOR, COLLECTOR_1]}, id="a pod is deleted"),
        pytest.param(lose_node, {"collector-0": [LEARNER]}, id="a node is lost"),
        pytest.param(scale_up, {"collector-2": [LEARNER, COLLECTOR, COLLECTOR_1, EVALUATOR]}, id="scale up"),
        pytest.param(scale_down, {"evaluator-0": [LEARNER, COLLECTOR, "localhost"]}, id="scale down"),
        pytest.param(
            scale_down_and_up,
            {"collector-1": [LEARNER, COLLECTOR], "collector-2": [LEARNER, COLLECTOR, COLLECTOR_1, EVALUATOR]},
            id="scale down and up",
        ),
        pytest.param(
            scale_down_restart_and_scale_up,
            {
                "evaluator-0": [LEARNER, COLLECTOR, "localhost"],
                "collector-1": [LEARNER, COLLECTOR, "localhost", EVALUATOR],
            },
            id="scale down, a restart, scale up",
        ),
        pytest.param(
            succeed_and_restart, {"evaluator-0": ["localhost", COLLECTOR, COLLECTOR_1]}, id="a success before"
        ),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_new_pod_listens_at_its_own_name_and_dials_all_lower_ranks(
    change: Callable[[World], None], expected: dict[str, list[str]], workers: int
) -> None:
    job = a_ditask("cartpole", a_task("learner"), a_task("collector", 2), a_task("evaluator"))
    with World(job) as world:
        if change is not start:
            world.create()
            world.run(60)
        before = len(created(world))
        change(world)
        world.run(600)
        new = created(world)[before:]

    assert {body["metadata"]["name"] for body, _ in new} == {pod(place).name for place in expected}
    for place, peers in expected.items():
        (environment,) = (own for body, own in new if body["metadata"]["name"] == pod(place).name)
        found = parsed(environment, topology="mesh", parallel_workers=workers)
        assert (found["address"], found["node_ids"]) == (address(place), len(peers) * workers)
        assert found["attach_to"] == ",".join(f"tcp://{peer}:{50515 + i}" for peer in peers for i in range(workers))
