"""A job of four tasks of eight replicas while everything changes, in virtual time.

Ranks are unique and stay, every pod finds its own address by its rank, also with DI-engine's own parser, and dials all
pods of lower ranks. In the end the job has the pods that it declares.
"""

import contextlib
import random
from collections.abc import Callable, Iterator

import pytest

from tests.build import Json, a_ditask, a_task
from tests.contract.k8s_parser import parsed
from tests.kinds.ditask.environment import created, environment_of, nodes_of, own_node
from tests.matrix.world import World
from trainmaster.core.ids import CONFIG_MAP, Key

TASKS = ("learner", "collector", "evaluator", "league")
EVENTS = 50


class Died(BaseException):
    """The operator's process."""


def a_job() -> Json:
    return a_ditask("job", *(a_task(name, 8) for name in TASKS), spec={"backoffLimit": -1})


def living(world: World) -> dict[Key, Json]:
    return {key: pod for key, pod in world.pods.items() if "deletionTimestamp" not in pod["metadata"]}


def check(world: World, ranks: dict[str, str]) -> None:
    """``ranks`` are those of all pods that there were, by uid."""
    pods = living(world)
    found = [pod["metadata"]["annotations"]["diengine/rank"] for pod in pods.values()]
    assert len(found) == len(set(found)), sorted(found)
    maps = {key.name: body for key, body in world.api.objects.get(CONFIG_MAP, {}).items()}
    addresses = {rank: address(key.name) for rank, key in zip(map(int, found), pods, strict=True)}
    for key, pod in pods.items():
        rank = pod["metadata"]["annotations"]["diengine/rank"]
        assert ranks.setdefault(pod["metadata"]["uid"], rank) == rank
        assert str(world.job["status"]["ranks"][key.name.removeprefix("job-")]) == rank
        environment = environment_of(pod, maps)
        assert environment["DI_RANK"] == rank
        assert own_node(environment) == address(key.name)
        dialled = dict(enumerate(nodes_of(environment)[: int(rank)]))
        lower = {number: name for number, name in addresses.items() if number < int(rank)}
        assert lower.items() <= dialled.items()  # else two pods that run do not know each other


def address(pod: str) -> str:
    return f"{pod}.di-job.rl.svc.cluster.local"


class Chaos:
    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, random.Random(seed)

    def happens(self) -> None:
        kinds: list[Callable[[], None]] = [self.scale, self.scale, self.kill, self.delete, self.lose_node, self.crash]
        self.chance.choice(kinds)()

    def scale(self) -> None:
        task = self.chance.randrange(len(TASKS))
        self.world.edit(("tasks", task, "replicas"), self.chance.randint(1, 12))

    def kill(self) -> None:
        for key in self.chance.sample(self._running(), min(2, len(self._running()))):
            self.world.end_container(key, self.chance.choice([1, 137, 143]), "Error")

    def delete(self) -> None:
        if running := self._running():
            self.world.delete_pod(self.chance.choice(running))

    def lose_node(self) -> None:
        """And that which was lost before comes back."""
        for name in list(self.world.cluster.away):
            self.world.cluster.bring_back(name)
        self.world.cluster.lose(f"node-{self.chance.randint(1, 8)}")

    def crash(self) -> None:
        """The operator dies at one of its next creates, and another process continues."""
        left = self.chance.randint(0, 3)

        def refuse(*_: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died

        self.scale()
        self.world.api.refuse = refuse
        with contextlib.suppress(Died):
            self.world.run(30)
        self.world.api.refuse = lambda *_: None
        self.world.restart()

    def _running(self) -> list[Key]:
        return sorted(key for key, pod in living(self.world).items() if pod["status"]["phase"] == "Running")


def declared(job: Json) -> set[str]:
    return set(_names(job))


def _names(job: Json) -> Iterator[str]:
    for task in job["spec"]["tasks"]:
        for index in range(task["replicas"]):
            yield f"job-{task.get('name') or task['type']}-{index}"


@pytest.mark.parametrize("seed", range(3))
def test_ranks_are_unique_and_stay_whatever_happens_to_the_job(seed: int) -> None:
    ranks: dict[str, str] = {}
    with World(a_job()) as world:
        chaos = Chaos(world, seed)
        world.create()
        world.run(60)
        check(world, ranks)
        for _ in range(EVENTS):
            chaos.happens()
            for _ in range(3):
                world.run(chaos.chance.choice([1, 5, 40]))
                check(world, ranks)
        for name in list(world.cluster.away):
            world.cluster.bring_back(name)
        world.run(1200)

        check(world, ranks)
        assert {key.name for key in world.pods} == declared(world.job)
        assert world.job["status"]["phase"] == "Running"
        assert len(ranks) > EVENTS
        for pod, environment in created(world):
            found = parsed(environment, topology="mesh", parallel_workers=1)
            assert found["address"] == address(pod["metadata"]["name"])
            assert str(found["node_ids"]) == pod["metadata"]["annotations"]["diengine/rank"]
