"""Temporary errors never end a client: di-server waits, then answers with ``success: false``."""

import asyncio
import itertools

import pytest

from tests.diserver.bench import NAMESPACE, Bench, serving
from tests.runtime.cluster import Call, FakeCluster, raising, waiting
from trainmaster.core.definition import outdated
from trainmaster.core.errors import (
    Conflict,
    Forbidden,
    Invalid,
    ServerError,
    TooManyRequests,
    Trainmaster,
    UnknownField,
    Unreachable,
)
from trainmaster.core.ids import POD, Key
from trainmaster.diserver import routes
from trainmaster.diserver.limits import Rules
from trainmaster.kinds.dijob.types import RESOURCE

REPLICAS = "/v1alpha1/replicas"
BODY = {"namespace": NAMESPACE, "coordinator": "cart-coordinator", "collectors": {"replicas": 1}}


async def test_a_job_that_the_watch_has_not_shown_is_found(bench: Bench) -> None:
    """The watches of this server are silent; the API server is asked."""
    silent = FakeCluster()
    silent.watches.extend([[3600.0], [3600.0]])
    async with serving(silent) as other:
        other.job()
        client = other.client(other.pod("cart-coordinator"))

        found = await client.start({"replicas": 2}, {"replicas": 1})

        assert len(found["collectors"]) == 2
        listed = await client.get()
        assert listed is not None
        assert sorted(listed["collectors"]) == sorted(found["collectors"])


async def test_a_coordinator_that_is_about_to_have_a_pod_is_waited_for(bench: Bench) -> None:
    address = bench.pod("cart-collector-xxxxx")
    asking = asyncio.ensure_future(bench.client(address).start({"replicas": 1}, {}))
    await asyncio.sleep(0.3)
    assert not asking.done()

    bench.pod("cart-coordinator")

    assert len((await asking)["collectors"]) == 1


async def test_a_job_that_was_made_anew_is_found_behind_a_late_watch(bench: Bench) -> None:
    """Of the pods the second server has only seen the coordinator of the job that had the name before."""

    async def late(call: Call) -> None:
        if call.verb == "watch" and call.resource == POD:
            await asyncio.sleep(3600)

    bench.job(uid="before")
    bench.pod("cart-coordinator", uid="before", owner={"uid": "before"})
    bench.cluster.before = late
    async with serving(bench.cluster) as other:
        other.job(uid="uid-of-cart")
        client = other.client(other.pod("cart-coordinator"))

        assert len((await client.start({"replicas": 1}, {}))["collectors"]) == 1


@pytest.mark.parametrize("verb", ["DELETE", "failed", "POST"])
async def test_a_change_of_another_server_is_seen_before_the_watch_shows_it(bench: Bench, verb: str) -> None:
    """The second server's watch of jobs is silent: by what it shows there is nothing to do, and no room for more."""

    async def late(call: Call) -> None:
        if call.verb == "watch" and call.resource == RESOURCE:
            await asyncio.sleep(3600)

    client = bench.client(bench.pod("cart-coordinator"))
    behind = bench.cluster.line()
    behind.before = late
    async with serving(behind, rules=Rules(max_per_job=2)) as other:
        made = await client.start({"replicas": 2}, {})
        client.url = other.url
        match verb:
            case "DELETE":
                found = await client.delete(collectors={"replicas": 1})
                assert found is not None
                assert len(found["collectors"]) == 1
            case "failed":
                found = await client.report(collectors=made["collectors"])
                assert len({*found["collectors"], *made["collectors"]}) == 4
            case "POST":
                await client.report(collectors=made["collectors"])
                client.url = bench.url
                await client.delete(collectors={"replicas": 2})
                client.url = other.url
                assert await client.add(collectors={"replicas": 2, "memory": 2}) is not None


async def test_a_name_that_no_pod_can_have_is_not_there(bench: Bench) -> None:
    address = bench.pod("cart-coordinator")

    async def picky(call: Call) -> None:
        if call.key.name == "..":
            raise Invalid("no such name")

    bench.cluster.before = picky
    status, _ = await bench.call("POST", REPLICAS, BODY | {"coordinator": ".."}, ip=address)

    assert status == 404


async def test_a_declaration_that_the_definition_has_no_field_for_is_not_lost_in_silence(bench: Bench) -> None:
    address = bench.pod("cart-coordinator")
    bench.cluster.before = raising("patch", UnknownField('unknown field "status.declared"', code=422))

    status, said = await bench.call("POST", REPLICAS, BODY, ip=address)

    assert (status, said["success"]) == (200, False)
    assert said["message"] == outdated(RESOURCE, ["status.declared"])
    [call] = bench.cluster.asked("patch", RESOURCE)
    assert call.options == {"subresource": "status", "strict": True}


@pytest.mark.parametrize("state", ["missing", "deleting"])
async def test_a_coordinator_without_a_pod_is_answered_with_try_again(bench: Bench, state: str) -> None:
    address = bench.pod("cart-collector-xxxxx")
    if state == "deleting":
        bench.pod("cart-coordinator", deleting=True)

    status, said = await bench.call("POST", REPLICAS, BODY, ip=address)

    assert (status, said["success"]) == (200, False)
    assert "does not run at the moment, try again" in said["message"]
    assert bench.members() == {}


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("away"),
        ServerError("etcd", code=500),
        TooManyRequests("busy"),
        Conflict("always", code=409),
        Forbidden("not yet", code=403),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_of_the_api_server_are_answered_with_try_again(bench: Bench, error: Trainmaster) -> None:
    address = bench.pod("cart-coordinator")
    await bench.client(address).get()

    async def broken(call: Call) -> None:
        if call.verb == "patch" or (call.verb == "get" and not isinstance(error, Conflict)):
            raise error

    bench.cluster.before = broken
    status, said = await bench.call("POST", REPLICAS, BODY, ip=address)

    assert (status, said["success"], said["code"]) == (200, False, 1)
    assert "try again" in said["message"]
    assert bench.members() == {}


async def test_an_api_server_that_does_not_answer_is_not_waited_for_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "REQUEST_TIMEOUT", 0.2)
    address = bench.pod("cart-coordinator")
    await bench.client(address).get()
    bench.cluster.before = waiting("patch", 60.0)

    status, said = await bench.call("POST", REPLICAS, BODY, ip=address)

    assert (status, said["success"]) == (200, False)


async def test_before_the_cache_is_synced_requests_are_answered_with_try_again() -> None:
    cluster = FakeCluster()
    cluster.pages.extend(itertools.repeat(Unreachable("away"), 100))
    async with serving(cluster, synced=False) as bench:
        async with bench.session().get(f"{bench.url}/readyz") as response:
            assert response.status == 503
        async with bench.session().get(f"{bench.url}/healthz") as response:
            assert response.status == 200

        for method, path in (("POST", REPLICAS), ("GET", f"{REPLICAS}?namespace=rl"), ("DELETE", REPLICAS)):
            status, said = await bench.call(method, path, BODY)
            assert (status, said["success"]) == (200, False), said


async def test_a_defect_of_ours_does_not_end_a_client(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise KeyError("a defect")

    address = bench.pod("cart-coordinator")
    monkeypatch.setattr(routes, "parameters", broken)

    status, said = await bench.call("GET", REPLICAS, ip=address)

    assert (status, said["success"], said["message"]) == (200, False, "di-server failed; its log says why")


async def test_too_many_requests_at_once_are_answered_with_try_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = bench.pod("cart-coordinator")
    monkeypatch.setattr(routes, "MAX_IN_FLIGHT", 0)

    status, said = await bench.call("POST", REPLICAS, BODY, ip=address)

    assert (status, said["success"], said["message"]) == (200, False, "too many requests at once, try again")
    assert bench.members() == {}


async def test_a_failed_list_of_nodes_is_answered_with_try_again(bench: Bench) -> None:
    bench.aggregator_config()
    address = bench.pod("cart-coordinator")
    bench.cluster.before = raising("list", Unreachable("away"))

    status, said = await bench.call("POST", REPLICAS, BODY | {"learners": {"replicas": 1, "gpus": 2}}, ip=address)

    assert (status, said["success"]) == (200, False)


async def test_requests_at_the_same_instant_all_count(bench: Bench) -> None:
    client = bench.client(bench.pod("cart-coordinator"))
    await client.start({"replicas": 0}, {})
    await bench.answered()

    found = await asyncio.gather(*(client.add(collectors={"replicas": 1, "memory": n + 1}) for n in range(20)))

    assert len({url for each in found if each for url in each["collectors"]}) == 20
    assert len(bench.members()) == 20


async def test_the_address_of_a_deleted_pod_is_forgotten(bench: Bench) -> None:
    address = bench.pod("cart-collector-xxxxx")
    bench.pod("cart-coordinator")
    assert await bench.client(address).get() is not None

    bench.cluster.take(POD, Key(NAMESPACE, "cart-collector-xxxxx"))

    for _ in range(50):
        status, _ = await bench.call("GET", f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator", ip=address)
        if status == 403:
            break
        await asyncio.sleep(0.02)
    assert status == 403


async def test_the_metrics_count_requests(bench: Bench) -> None:
    client = bench.client(bench.pod("cart-coordinator"))
    await client.get()

    async with bench.session().get(f"{bench.url}/metrics") as response:
        text = await response.text()

    assert 'trainmaster_di_requests_total{code="200",method="GET",route="/v1alpha1/replicas",success="true"}' in text
    assert "trainmaster_di_request_duration_seconds_bucket" in text
