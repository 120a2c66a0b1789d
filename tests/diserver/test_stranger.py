"""Callers that nobody knows: they learn nothing, cost the API server next to nothing, and harm no other caller."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from testbed.admin import eventually
from tests.build import Json
from tests.diserver.bench import NAMESPACE, Bench, serving
from tests.diserver.client import Client
from tests.diserver.test_caller import KEY, a_pod_user
from tests.runtime.cluster import Call, raising
from trainmaster.core.errors import ServerError, Unreachable
from trainmaster.diserver import access
from trainmaster.settings import SERVER, Rate, ServerLimits

REPLICAS, FAILED = "/v1alpha1/replicas", "/v1alpha1/replicas/failed"
STRANGER = "127.0.0.77"
FLOOD = 200


def without_refill(limits: ServerLimits) -> ServerLimits:
    """Bursts alone: how fast this machine is does not matter."""
    rates = {name: getattr(limits, name) for name in limits.__struct_fields__}
    still = {name: Rate(0.0, rate.burst) for name, rate in rates.items() if isinstance(rate, Rate)}
    return msgspec.structs.replace(limits, **still)


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "ADDRESS_TIMEOUT", 0.05)
    monkeypatch.setattr(access, "REFUSED_SECONDS", 3600.0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving(limits=without_refill(SERVER.limits)) as bench:
        bench.job()
        yield bench


def asked_for(pod: str, namespace: str = NAMESPACE) -> list[tuple[str, str, Json | None]]:
    """Each request that names a pod: method, path and body."""
    body: Json = {"namespace": namespace, "coordinator": pod}
    return [
        ("GET", f"{REPLICAS}?namespace={namespace}&coordinator={pod}", None),
        ("GET", f"{REPLICAS}?namespace={namespace}&name={pod}", None),
        ("GET", f"{REPLICAS}?namespace={namespace}&aggregator={pod}", None),
        ("POST", REPLICAS, body | {"collectors": {"replicas": 1}}),
        ("DELETE", REPLICAS, body | {"collectors": {"replicas": 1}}),
        ("POST", FAILED, body | {"collectors": []}),
    ]


async def answers(bench: Bench, pod: str, **options: Any) -> list[tuple[int, str]]:
    """Status and body of each request, without the name that was asked for."""
    found = []
    for method, path, body in asked_for(pod):
        status, said = await bench.call(method, path, body, **options)
        found.append((status, str(said).replace(pod, "POD")))
    return found


# --- what a caller learns -----------------------------------------------------------------------


async def test_a_stranger_cannot_tell_a_job_that_exists_from_one_that_does_not(bench: Bench, client: Client) -> None:
    existing = await answers(bench, "cart-coordinator", ip=STRANGER)

    assert {status for status, _ in existing} == {403}
    for pod in ("nobody", "gone-coordinator"):
        assert await answers(bench, pod, ip=STRANGER) == existing


async def test_nor_can_it_while_pods_are_starting(bench: Bench, client: Client) -> None:
    bench.pod("cart-collector-start", ip="")

    existing = await answers(bench, "cart-coordinator", ip=STRANGER)

    assert {status for status, _ in existing} == {200}
    assert await answers(bench, "nobody", ip=STRANGER) == existing


async def test_a_pod_cannot_tell_another_job_from_one_that_does_not_exist(bench: Bench, client: Client) -> None:
    bench.job("other")
    address = bench.pod("other-coordinator", job="other")

    existing = await answers(bench, "cart-coordinator", ip=address)

    assert {status for status, _ in existing} == {404}
    assert await answers(bench, "nobody", ip=address) == existing


@pytest.mark.parametrize(
    ("user", "status"),
    [
        pytest.param({"username": "mallory"}, 403, id="a user without rights"),
        pytest.param(a_pod_user("other-coordinator"), 404, id="a pod of another job"),
        pytest.param(None, 401, id="nobody"),
    ],
)
async def test_nor_can_a_token_without_rights(bench: Bench, client: Client, user: Json | None, status: int) -> None:
    bench.job("other")
    bench.pod("other-coordinator", job="other")
    if user is not None:
        bench.reviews.users["secret"] = user

    existing = await answers(bench, "cart-coordinator", headers=KEY)

    assert {found for found, _ in existing} == {status}
    assert await answers(bench, "nobody", headers=KEY) == existing


async def test_an_administrator_is_told_that_a_job_does_not_exist(bench: Bench, client: Client) -> None:
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", NAMESPACE)}

    found = await answers(bench, "nobody", headers=KEY)

    assert {status for status, _ in found} == {404}
    assert all("not exists in cache" in said for _, said in found)


@pytest.mark.parametrize("error", [ServerError("etcd says no", code=500), Unreachable("10.0.0.1 says no")])
async def test_the_words_of_the_api_server_are_for_the_log_alone(
    bench: Bench, client: Client, logs: list[Any], error: Exception
) -> None:
    bench.cluster.before = raising("list", *[error] * 50)

    for method, path, body in asked_for("cart-coordinator"):
        status, said = await bench.call(method, path, body, ip=STRANGER)
        assert (status, said["success"], "says no" in str(said)) == (200, False, False)

    assert any("says no" in line.get("because", "") for line in logs if line["event"] == "request")


# --- what a caller costs ------------------------------------------------------------------------


async def test_a_flood_of_requests_for_a_job_costs_one_list(bench: Bench, client: Client) -> None:
    bench.cluster.calls.clear()

    for _ in range(FLOOD):
        await bench.call("GET", f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator", ip=STRANGER)

    assert len(bench.cluster.asked("list")) <= 1
    assert not bench.cluster.asked("get")


async def test_requests_at_the_same_instant_share_a_list(bench: Bench, client: Client) -> None:
    bench.cluster.calls.clear()
    path = f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator"
    arrived = asyncio.Event()

    async def held(call: Call) -> None:
        if call.verb == "list":
            await arrived.wait()

    bench.cluster.before = held
    asking = [asyncio.ensure_future(bench.call("GET", path, ip=f"127.0.1.{n}")) for n in range(10)]

    async def have_come() -> None:
        assert REGISTRY.get_sample_value("trainmaster_di_requests_in_flight") == 10

    await eventually(have_come)
    for _ in range(20):
        await asyncio.sleep(0)  # the last one has joined the list
    arrived.set()

    assert {status for status, _ in await asyncio.gather(*asking)} == {403}
    assert len(bench.cluster.asked("list")) == 1


@pytest.mark.parametrize("is_same", [True, False], ids=["the same name", "names of their own"])
async def test_a_flood_of_requests_for_nothing_costs_little(bench: Bench, client: Client, *, is_same: bool) -> None:
    bench.cluster.calls.clear()

    for number in range(FLOOD):
        name = "nobody" if is_same else f"nobody-{number}-coordinator"
        await bench.call("GET", f"{REPLICAS}?namespace=rl&coordinator={name}", ip=STRANGER)

    assert len(bench.cluster.calls) <= (3 if is_same else FLOOD // 2)


async def test_a_pod_that_asks_for_many_names_costs_little_and_does_not_die(bench: Bench, client: Client) -> None:
    address = bench.pod("cart-collector-xxxxx")
    bench.cluster.calls.clear()

    for number in range(FLOOD):
        status, said = await bench.call(
            "GET", f"{REPLICAS}?namespace=rl&coordinator=nobody-{number}-coordinator", ip=address
        )
        assert status == 404 or (status == 200 and "try again" in said["message"])

    assert len(bench.cluster.calls) <= FLOOD // 2


async def test_a_flood_of_tokens_costs_few_reviews_and_forgets_no_good_one(bench: Bench, client: Client) -> None:
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", NAMESPACE)}
    path = f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator"
    await bench.call("GET", path, headers=KEY)
    before = bench.reviews.asked

    for number in range(FLOOD):
        status, _ = await bench.call("GET", path, ip=STRANGER, headers={"Authorization": f"Bearer junk-{number}"})
        assert status in (401, 429)
    of_junk = bench.reviews.asked - before
    status, _ = await bench.call("GET", path, headers=KEY)

    assert of_junk <= FLOOD // 4
    assert (status, bench.reviews.asked - before) == (200, of_junk)


async def test_requests_with_a_new_token_at_the_same_instant_share_a_review(bench: Bench, client: Client) -> None:
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", "*")}

    found = await asyncio.gather(*(bench.call("GET", REPLICAS, headers=KEY) for _ in range(30)))

    assert {status for status, _ in found} == {200}
    assert bench.reviews.tokens == 1


async def test_a_token_that_is_refused_is_not_reviewed_again_at_once(bench: Bench, client: Client) -> None:
    for _ in range(5):
        assert (await bench.call("GET", REPLICAS, ip=STRANGER, headers=KEY))[0] == 401

    assert bench.reviews.asked <= 2


# --- limits -------------------------------------------------------------------------------------


async def test_a_stranger_that_sends_too_many_requests_is_told_when_to_come_again(
    bench: Bench, client: Client, logs: list[Any]
) -> None:
    for _ in range(FLOOD):
        async with bench.session(STRANGER).get(f"{bench.url}{REPLICAS}") as response:
            said = await response.json()
            if response.status == 429:
                break
            assert response.status == 403

    assert (response.status, response.headers["Retry-After"], said["success"]) == (429, "1", False)
    assert f"{STRANGER} sends too many requests" in said["message"]
    assert {line["status"] for line in logs if line["event"] == "request"} == {403}  # a flood does not fill the log


async def test_a_flood_of_a_stranger_does_not_limit_others(bench: Bench, client: Client) -> None:
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", NAMESPACE)}
    path = f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator"
    await bench.call("GET", path, ip=STRANGER, headers=KEY)
    for _ in range(FLOOD):
        await bench.call("GET", path, ip=STRANGER)

    assert await client.get() is not None
    # a user is known by the token, whatever address is shared with others
    assert (await bench.call("GET", path, ip=STRANGER, headers=KEY))[0] == 200


async def test_while_pods_are_starting_nobody_is_answered_with_429(bench: Bench, client: Client) -> None:
    """DI-engine's client exits after a 429, and any of them may be one whose address is not known yet."""
    bench.pod("cart-collector-start", ip="")

    for _ in range(40):
        status, said = await bench.call("GET", f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator", ip=STRANGER)
        assert (status, said["success"]) == (200, False)


async def test_a_pod_that_sends_too_many_requests_is_told_to_try_again(bench: Bench, client: Client) -> None:
    address = bench.pod("cart-collector-xxxxx")
    path = f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator"

    found = [await bench.call("GET", path, ip=address) for _ in range(800)]

    assert {status for status, _ in found} == {200}
    assert "too many requests" in next(said["message"] for _, said in found if not said["success"])


async def test_a_user_that_sends_too_many_requests_is_limited_by_name(bench: Bench, client: Client) -> None:
    bench.reviews.users |= {"secret": {"username": "root"}, "other": {"username": "root"}}
    bench.reviews.may_update = {("root", NAMESPACE)}
    path = f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator"

    found = set()
    for number in range(600):
        token = ("secret", "other")[number % 2]
        headers = {"Authorization": f"Bearer {token}"}
        found.add((await bench.call("GET", path, ip=f"127.0.2.{number % 4 + 1}", headers=headers))[0])

    assert found == {200, 429}


# --- addresses that may be out of date ----------------------------------------------------------


async def test_an_address_is_not_trusted_while_the_watch_of_pods_is_cut(bench: Bench, client: Client) -> None:
    """The pod is gone and another one may have its address: the API server is asked."""
    gone = bench.pod("cart-collector-xxxxx")
    path = f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator"
    assert (await bench.call("GET", path, ip=gone))[0] == 200

    await bench.cut_watches()
    bench.take_pod("cart-collector-xxxxx")

    assert (await bench.call("GET", path, ip=gone))[0] == 403
    assert (await bench.call("GET", REPLICAS, ip=gone))[0] == 403
    assert await client.get() is not None


async def test_without_an_api_server_nobody_is_trusted_by_address(bench: Bench, client: Client) -> None:
    await bench.cut_watches()
    bench.cluster.before = raising("get", *[Unreachable("away")] * 50)

    assert await client.get() is None  # "try again"
