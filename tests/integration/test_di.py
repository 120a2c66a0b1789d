"""di-server and operator as processes on a real API server, with clients that die of any error."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp
import pytest

from deploy import rights
from testbed.admin import eventually, path_of
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from testbed.proxy import FaultProxy
from testbed.server import ServerProcess
from tests.integration.conftest import TENANT
from tests.integration.crew import names, roles, team
from tests.integration.scene import Scene
from tests.integration.test_permission import granted, used
from tests.manifests.build import ditask, nervexjob, template
from trainmaster.settings import SYSTEM_NAMESPACE

REPLICAS = "/v1alpha1/replicas"


@pytest.fixture(scope="module")
def server(plane: ControlPlane) -> Iterator[ServerProcess]:
    with ServerProcess(plane) as server:
        yield server
        assert server.is_running()
        assert "defect in trainmaster" not in server.log
        assert "Traceback" not in server.log


@pytest.mark.usefixtures("operator")
async def test_a_coordinator_that_comes_again_finds_its_replicas(scene: Scene, server: ServerProcess) -> None:
    async with team(scene, "job", [server.url]) as each:
        client = await each.appear()
        first = names(client, await client.start({"replicas": 2}, {"replicas": 1}))
        await each.complete(3)

        await scene.let_go(each.coordinator)
        await scene.until(lambda: scene.incarnations("pods")[each.coordinator] == 2, "it is there again")
        again = await each.appear()
        second = names(again, await again.start({"replicas": 2}, {"replicas": 1}))

        assert second == first
        await each.complete(3)
        added = names(again, await again.add(collectors={"replicas": 1}))
        await each.complete(4)
        assert each.declared == first | added


@pytest.mark.usefixtures("operator")
async def test_whoever_asks_again_in_the_same_words_after_the_answer_gets_more(
    scene: Scene, server: ServerProcess
) -> None:
    async with team(scene, "job", [server.url]) as each:
        client = await each.appear()
        await client.start({"replicas": 1}, {"replicas": 1})

        for _ in range(5):
            assert await client.add(collectors={"replicas": 1}) is not None

        await each.complete(7)


@pytest.mark.usefixtures("operator")
async def test_whoever_fails_is_evicted_or_deleted_comes_back(scene: Scene, server: ServerProcess) -> None:
    async with team(scene, "job", [server.url]) as each:
        client = await each.appear()
        found = names(client, await client.start({"replicas": 3}, {"replicas": 1}))
        await each.complete(4)
        failed, evicted, deleted = sorted(name for name in found if "collector" in name)
        await scene.end(failed, 1)
        await scene.admin.set_pod(scene.namespace, evicted, phase="Failed", reason="Evicted")
        await scene.let_go(deleted)

        await scene.until(lambda: not {failed, evicted} & each.declared, "they have other names")
        await scene.until(lambda: scene.incarnations("pods").get(deleted) == 2, "it is there again")

        await each.complete(4)
        listed = await client.get()
        assert names(client, listed) == each.declared


@pytest.mark.usefixtures("operator")
async def test_the_end_of_the_job_is_the_end_of_its_replicas(scene: Scene, server: ServerProcess) -> None:
    async with team(scene, "job", [server.url]) as each:
        client = await each.appear()
        found = names(client, await client.start({"replicas": 2}, {"replicas": 1}))
        await each.complete(3)
        await each.job.reach("Running")
        for name in found:
            await each.run(name)
        await scene.end(each.coordinator, 0)
        async with scene.kubelet():
            await each.job.reach("Succeeded")
            await each.job.until(lambda: not each.job.children("services"), "its services are gone")
            await each.job.until(lambda: set(each.job.children("pods")) == {each.coordinator}, "its workers are gone")

        assert each.job.status["replicaStatus"]["Collector"] in ({"succeeded": 2}, {"succeeded": 1}, {})
        assert each.job.status["completionTime"] >= each.job.status["startTime"]


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("loss", ["failed", "deleted"])
async def test_a_learner_of_several_gpus_is_a_group_that_lives_and_dies_as_one(
    scene: Scene, server: ServerProcess, loss: str
) -> None:
    config = {"metadata": {"name": "aggregator-config"}, "spec": {"aggregator": {"template": template()}}}
    if await scene.admin.find("namespaces", None, SYSTEM_NAMESPACE) is None:
        await scene.admin.create("namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
    kind = "diengine.opendilab.org/v1alpha1/aggregatorconfigs"
    body = {"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "AggregatorConfig", **config}
    await scene.admin.create(kind, body, SYSTEM_NAMESPACE)
    async with team(scene, "job", [server.url]) as each:
        client = await each.appear()
        found = await client.start({"replicas": 0}, {"replicas": 1, "gpus": "4"})
        (aggregator,) = names(client, found)
        await each.complete(2)
        (learner,) = each.declared - {aggregator}
        owners = each.job.children("pods")[learner]["metadata"]["ownerReferences"]
        assert [(owner["kind"], owner["name"]) for owner in owners] == [("DIJob", "job"), ("Pod", aggregator)]

        await each.job.until(lambda: each.job.status["declared"]["members"][aggregator].get("formed"), "it is whole")
        await (scene.end(learner, 1) if loss == "failed" else scene.let_go(learner))
        async with scene.kubelet():
            await scene.until(lambda: not {aggregator, learner} & each.declared, "the group has other names")
            await each.complete(2)
            assert scene.incarnations("pods")[learner] == 1
    await scene.admin.delete(kind, SYSTEM_NAMESPACE, "aggregator-config")


# --- who may -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("operator")
async def test_tokens_speak_for_users_and_for_pods(plane: ControlPlane, scene: Scene, server: ServerProcess) -> None:
    await scene.admin.create("serviceaccounts", {"metadata": {"name": "default"}}, scene.namespace)
    coordinator = {"template": template(serviceAccountName="default")}
    async with (
        team(scene, "job", [server.url], coordinator=coordinator) as each,
        team(scene, "other", [server.url], coordinator=coordinator) as other,
    ):
        await each.appear()
        await other.appear()

        async def bound(pod: str, *audiences: str) -> str:
            ref = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": scene.pods()[pod]["metadata"]["uid"]}
            return await token_of(scene, boundObjectRef=ref, audiences=audiences)

        async def add(token: str) -> int:
            body = {"namespace": scene.namespace, "coordinator": "job-coordinator", "collectors": {"replicas": 1}}
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with aiohttp.ClientSession() as session:
                async with session.post(server.url + REPLICAS, json=body, headers=headers) as response:
                    return response.status

        async def get(token: str) -> int:
            query = {"namespace": scene.namespace, "coordinator": "job-coordinator"}
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with aiohttp.ClientSession(headers=headers) as session:
                async with session.get(server.url + REPLICAS, params=query) as response:
                    return response.status

        async def is_refused() -> None:
            assert await get("") == 403

        both = ("job-coordinator", "other-coordinator")
        await scene.until(lambda: all(scene.pods()[pod]["status"].get("podIP") for pod in both), "addresses are known")
        await eventually(is_refused)  # the watch of the server may be behind ours
        assert await add("") == 403
        assert await add("no-such-token") == 401
        assert await add(plane.token(TENANT)) == 403
        assert await add(await bound("other-coordinator")) == 404
        assert await add(await bound("job-coordinator", "vault")) == 401
        assert not each.declared
        assert await add(plane.token("admin")) == 200
        assert await add(await bound("job-coordinator")) == 200
        await each.complete(1)
        assert await get(await bound("job-coordinator", "di-server")) == 200
    assert server.log.count("accepted a token for the API server") == 1


async def token_of(scene: Scene, *, audiences: Sequence[str] = (), **spec: Any) -> str:
    """A token of the default ServiceAccount; without audiences for the API server."""
    spec |= {"audiences": audiences} if audiences else {}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = path_of("serviceaccounts", scene.namespace, "default", "token")
    token: str = (await scene.admin.request("POST", path, body))["status"]["token"]
    return token


FLOOD = 200


async def test_a_flood_of_strangers_costs_the_api_server_next_to_nothing(
    plane: ControlPlane, scene: Scene, operator: OperatorProcess
) -> None:
    with FaultProxy(plane) as proxy:
        async with ServerProcess(plane, server=proxy.url) as server, team(scene, "job", [server.url]) as each:
            client = await each.appear()
            await client.start({"replicas": 0}, {})
            before = len(proxy.calls)

            async def flood(name: str, token: str = "") -> None:
                path = f"{server.url}{REPLICAS}?namespace={scene.namespace}&coordinator={name}"
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.get(path, headers=headers) as response:
                    # "try again" beyond the limit: pods of other tests have no address
                    assert response.status in (200, 401, 403, 429)
                    assert not (await response.json())["success"]

            async with aiohttp.ClientSession() as session:
                for _ in range(FLOOD):
                    await flood("job-coordinator")
                lists = [call for call in proxy.calls[before:] if call.method == "GET" and not call.is_watch]
                for number in range(FLOOD):
                    await flood("job-coordinator", f"junk-{number}")
            reviews = [call for call in proxy.calls[before:] if call.resource == "tokenreviews"]
            assert await client.get() is not None

    print(f"{FLOOD} requests: {len(lists)} lists; {FLOOD} tokens: {len(reviews)} reviews")
    assert len(lists) <= 3  # one in two seconds
    assert len(reviews) <= FLOOD // 4


async def test_the_server_may_do_what_it_does_and_nothing_else(
    plane: ControlPlane, scene: Scene, operator: OperatorProcess
) -> None:
    with FaultProxy(plane) as proxy:
        async with ServerProcess(plane, server=proxy.url, args=["--agconfig-name=none"]) as server:
            async with team(scene, "job", [server.url]) as each:
                client = await each.appear()
                await client.start({"replicas": 1}, {"replicas": 1})
                await each.complete(2)
                await client.report(collectors=[(await client.get() or {})["collectors"][0]])
                await each.complete(2)
                await client.add(collectors={"replicas": 1})
            async with team(scene, nervexjob("vex", **roles("collector", "learner")), [server.url]) as each:
                client = await each.appear()
                await client.start({"replicas": 1}, {"replicas": 1})
                await each.complete(2)
            await ask_for_gpus(plane, scene, server)
            await scale_and_report(plane, scene, server)
            assert await asyncio.to_thread(server.terminate) == 0

    assert [str(call) for call in proxy.calls if call.code in (401, 403)] == []
    allowed = granted(rights.server(), rights.READ_DEFINITIONS)
    unused = allowed - used(proxy.calls)
    assert used(proxy.calls) - allowed == set()
    # The same Event again is a patch; a config that is there, and nodes for it, are asked for only together.
    assert {(p.resource, p.verb) for p in unused} <= {
        ("events", "patch"),
        ("nodes", "list"),
        ("nervexjobs", "get"),
    }


async def ask_for_gpus(plane: ControlPlane, scene: Scene, server: ServerProcess) -> None:
    """With an administrator's token; the config is not there."""
    body = {"namespace": scene.namespace, "coordinator": "job-coordinator", "learners": {"replicas": 1, "gpus": 2}}
    headers = {"Authorization": f"Bearer {plane.token('admin')}"}
    async with aiohttp.ClientSession() as session:
        async with session.post(server.url + REPLICAS, json=body, headers=headers) as response:
            assert (response.status, "AGConfig" in await response.text()) == (404, True)


async def scale_and_report(plane: ControlPlane, scene: Scene, server: ServerProcess) -> None:
    """A job with tasks, with an administrator's token."""
    await scene.create(ditask("mesh"))
    path = f"{server.url}/v2alpha1/job/{scene.namespace}.mesh"
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {plane.token('admin')}"}) as session:
        for what in ("replicas", "profilings"):
            async with session.post(f"{path}/{what}", json={"replicas": 1}) as response:
                assert (await response.json())["success"]
