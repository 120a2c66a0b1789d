"""di-server under the load that it is made for: no client dies, and nothing is lost, twice, or left over.

The clients are DI-engine's, with its weaknesses: of any 4xx or 5xx, and of five seconds without a server, they die.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from testbed.server import ServerProcess
from tests.diserver.client import Client
from tests.faults.world import Object
from tests.integration.crew import Team, names, team
from tests.integration.scene import Scene

REPLICAS = "/v1alpha1/replicas"
JOBS = 50
DEATH_EVERY = 5.0
"""Seconds. A server is there again before the other one dies: without any for five seconds, clients die rightly."""
DEATHS = 5
FOLLOW_EVERY = 1.0
COORDINATORS = 20
REQUESTS = ["add"] * 14 + ["delete"] * 9 + ["failed"] * 7
SEED = 20261115


@asynccontextmanager
async def teams(scene: Scene, number: int, urls: Sequence[str]) -> AsyncIterator[list[Team]]:
    """So many jobs, all made at the same instant."""
    async with AsyncExitStack() as stack:
        making = (stack.enter_async_context(team(scene, f"job-{n}", urls)) for n in range(number))
        yield list(await asyncio.gather(*making))


@asynccontextmanager
async def two_servers(plane: ControlPlane) -> AsyncIterator[list[ServerProcess]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(ServerProcess(plane)) for _ in range(2)]


@asynccontextmanager
async def meanwhile(trouble: Callable[[int], None]) -> AsyncIterator[Callable[[], int]]:
    """Trouble comes again and again, until the end; answers how often it came so far."""
    count, over = 0, asyncio.Event()

    async def come() -> None:
        nonlocal count
        while not over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), DEATH_EVERY)
                return
            await asyncio.to_thread(trouble, count)
            count += 1

    coming = asyncio.ensure_future(come())
    try:
        yield lambda: count
    finally:
        over.set()
        await coming


# --- jobs that all begin at once ---------------------------------------------------------------


@pytest.mark.usefixtures("operator")
async def test_fifty_coordinators_that_ask_as_soon_as_they_exist_all_get_their_replicas(
    plane: ControlPlane, scene: Scene
) -> None:
    async with ServerProcess(plane) as server, teams(scene, JOBS, [server.url]) as all_teams:
        await asyncio.gather(*(begin(each) for each in all_teams))


@pytest.mark.usefixtures("operator")
async def test_fifty_coordinators_do_not_notice_that_a_server_dies_every_five_seconds(
    plane: ControlPlane, scene: Scene
) -> None:
    async with two_servers(plane) as servers, teams(scene, JOBS, [each.url for each in servers]) as all_teams:
        async with meanwhile(lambda number: servers[number % 2].come_again()) as deaths:

            async def live(each: Team) -> int:
                client, got = await begin(each)
                while deaths() < DEATHS:
                    if (listed := await client.get()) is not None:
                        assert names(client, listed) == got
                    await asyncio.sleep(FOLLOW_EVERY)
                return client.retries

            retries = sum(await asyncio.gather(*(live(each) for each in all_teams)))
            print(f"{JOBS} clients lived through {deaths()} deaths of servers by {retries} retries")


async def begin(each: Team) -> tuple[Client, set[str]]:
    """A coordinator asks for two collectors and two learners; exactly those that it is told of are there."""
    client = await each.appear()
    found = await client.start({"replicas": 2}, {"replicas": 2})
    assert [len(found[role]) for role in ("collectors", "learners")] == [2, 2]
    await each.complete(4)
    assert each.declared == names(client, found)
    return client, each.declared


# --- anything at any time ----------------------------------------------------------------------


async def test_whatever_is_asked_and_whoever_crashes_in_the_end_there_is_what_was_declared(
    plane: ControlPlane, scene: Scene, operator: OperatorProcess
) -> None:
    bystanders = await stand_by(scene)
    async with two_servers(plane) as servers, scene.kubelet():
        victims: list[OperatorProcess] = [servers[0], operator, servers[1], operator]
        async with teams(scene, COORDINATORS, [each.url for each in servers]) as all_teams:
            async with meanwhile(lambda number: victims[number % len(victims)].come_again()) as deaths:
                told = await asyncio.gather(*(ask(each, SEED + n) for n, each in enumerate(all_teams)))
                assert deaths() > 0
            for each, expected in zip(all_teams, told, strict=True):
                await each.complete(len(expected))
                assert each.declared == expected

            wanted = {name for each in all_teams for name in (*each.job.slots, *each.declared)} | set(bystanders)
            await scene.until(lambda: set(scene.pods()) == set(scene.services()) == wanted, "nothing is left over")
            assert {name: scene.pods()[name]["metadata"]["uid"] for name in bystanders} == bystanders
            # Nobody ever came a second time under the same name.
            again = {name for kind in ("pods", "services") for name, n in scene.incarnations(kind).items() if n > 1}
            assert not again
            print(f"{len(wanted)} of {len(scene.incarnations('pods'))} pods are left after {deaths()} deaths")


async def stand_by(scene: Scene) -> dict[str, str]:
    """Pods and services that look like replicas and are nobody's; answers the pods' uids by name."""
    found: dict[str, str] = {}
    for name in ("job-0-collector-zzzzz", "job-1-learner-zzzzz"):
        labels = {"dijob-name": name[:5], "replica-type": "collector", "controller-name": "di-operator"}
        pod: Object = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "di-container", "image": "x"}]},
        }
        service: Object = {"metadata": {"name": name, "labels": labels}, "spec": {"clusterIP": "None"}}
        await scene.admin.create("services", service, scene.namespace)
        found[name] = (await scene.admin.create("pods", pod, scene.namespace))["metadata"]["uid"]
    return found


async def ask(each: Team, seed: int) -> set[str]:
    """More, fewer, others in place of the failed, in any order; answers who is there, by what the client was told."""
    chance = random.Random(seed)
    client = await each.appear()
    own = names(client, await client.start({"replicas": 2}, {"replicas": 1}))
    for number, request in enumerate(chance.sample(REQUESTS, len(REQUESTS))):
        role = chance.choice(["collector", "learner"])
        size = chance.randint(1, 2)
        match request:
            case "add":
                # No two of them are the same, so that the second is not taken for the first one again.
                body = {f"{role}s": {"replicas": size, "memory": f"{number + 1}Mi"}}
                own |= names(client, await persist(client, "POST", REPLICAS, body))
            case "delete":
                own -= names(client, await persist(client, "DELETE", REPLICAS, {f"{role}s": {"replicas": size}}))
            case "failed":
                lost = chance.sample(candidates, 1) if (candidates := sorted(n for n in own if role in n)) else []
                found = await persist(client, "POST", f"{REPLICAS}/failed", {f"{role}s": lost})
                own = own - set(lost) | names(client, found)
    return own


async def persist(client: Client, method: str, path: str, body: Object) -> Object:
    """Ask until it is given; a server that has just started only says wait."""
    identity = {"namespace": client.namespace, "coordinator": client.name}
    while True:
        success, _, _, found = await client.request(method, path, identity | body)
        if success:
            return client.checked(found)
