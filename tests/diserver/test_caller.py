"""Which callers may act on a job: its own pods by address, tokens by the reviews of the API server."""

import asyncio
from typing import Any

import pytest

from testbed.admin import eventually
from tests.build import Json
from tests.diserver.bench import NAMESPACE, Bench, serving
from tests.diserver.client import Client
from trainmaster.core.errors import Unreachable
from trainmaster.core.ids import POD
from trainmaster.diserver.limits import Rules

REPLICAS = "/v1alpha1/replicas"
BODY = {"namespace": NAMESPACE, "coordinator": "cart-coordinator", "collectors": {"replicas": 1}}
KEY = {"Authorization": "Bearer secret"}


def a_pod_user(pod: str, namespace: str = NAMESPACE, *, uid: str = "") -> Json:
    """As a TokenReview names the holder of a token that is bound to a pod."""
    extra = {"authentication.kubernetes.io/pod-name": [pod]}
    if uid:
        extra["authentication.kubernetes.io/pod-uid"] = [uid]
    return {"username": f"system:serviceaccount:{namespace}:default", "extra": extra}


@pytest.mark.parametrize("pod", ["cart-coordinator", "cart-collector-xxxxx"])
async def test_any_pod_of_a_job_may_act_on_it(bench: Bench, client: Client, pod: str) -> None:
    address = bench.pod(pod)

    status, said = await bench.call("POST", REPLICAS, BODY, ip=address)

    assert (status, said["success"]) == (200, True)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_pods_of_other_jobs_may_not_act_on_it(bench: Bench, client: Client, phase: str) -> None:
    bench.job("other")
    address = bench.pod("other-coordinator", job="other")
    bench.pod("cart-collector-ended", ip="127.0.0.77", phase=phase)

    for ip, code, says in (
        (address, 404, "not exists in cache, or is of another job"),
        ("127.0.0.1", 403, "call from inside the job, or with a token"),
        ("127.0.0.77", 403, "call from inside the job, or with a token"),
    ):
        for method in ("POST", "DELETE"):
            status, said = await bench.call(method, REPLICAS, BODY, ip=ip)
            assert (status, says in said["message"]) == (code, True)
        status, _ = await bench.call("GET", f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator", ip=ip)
        assert status == code
    assert (await bench.call("GET", REPLICAS, ip="127.0.0.1"))[0] == 403
    assert bench.members() == {}


async def test_a_pod_of_another_namespace_that_claims_a_job_may_not_act_on_it(bench: Bench, client: Client) -> None:
    """A user who may create pods in any namespace can write any owner into them before the garbage collector runs."""
    address = bench.pod("cart-collector-xxxxx", namespace="elsewhere")
    bench.reviews.users["secret"] = a_pod_user("cart-collector-xxxxx", "elsewhere")
    of_cart = f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator"

    for options in ({"ip": address}, {"headers": KEY}):
        assert (await bench.call("POST", REPLICAS, BODY, **options))[0] == 404
        assert (await bench.call("GET", of_cart, **options))[0] == 404
        assert (await bench.call("GET", REPLICAS, **options))[1]["data"] in (None, [])
    assert bench.members() == {}


async def test_an_open_server_accepts_all_callers() -> None:
    async with serving(is_open=True) as bench:
        bench.job()
        bench.pod("cart-coordinator", ip="127.0.0.99")

        status, said = await bench.call("POST", REPLICAS, BODY)
        _, listed = await bench.call("GET", REPLICAS)

        assert (status, said["success"]) == (200, True)
        assert len(listed["data"]) == 1


async def test_a_request_waits_until_the_address_of_its_pod_is_known(bench: Bench) -> None:
    bench.pod("cart-coordinator", ip="")
    asking = asyncio.ensure_future(bench.client("127.0.0.55").start({"replicas": 1}, {}))
    await asyncio.sleep(0.3)
    assert not asking.done()

    bench.pod("cart-coordinator", ip="127.0.0.55")

    assert len((await asking)["collectors"]) == 1


@pytest.mark.parametrize("rules", [Rules(), Rules(shared_network=True)], ids=["hostNetwork", "a shared network"])
async def test_a_pod_that_starts_at_the_address_of_other_jobs_is_waited_for(rules: Rules) -> None:
    """On a node's network, and in local mode, pods of several jobs have the same address."""
    async with serving(rules=rules) as bench:
        is_on_host = not rules.shared_network
        bench.job()
        bench.job("other")
        node = bench.pod("other-coordinator", job="other", host_network=is_on_host)
        bench.pod("cart-coordinator", ip="", host_network=is_on_host)
        asking = asyncio.ensure_future(bench.client(node).get())

        async def is_looked_for() -> None:
            assert len(bench.cluster.asked("list", POD)) == 2  # the cache has listed pods, too

        await eventually(is_looked_for)
        assert not asking.done()

        bench.pod("cart-coordinator", ip=node, host_network=is_on_host)

        assert await asking is not None


async def test_an_unknown_address_is_answered_with_try_again(bench: Bench) -> None:
    bench.pod("cart-coordinator", ip="")

    status, said = await bench.call("POST", REPLICAS, BODY, ip="127.0.0.55")

    assert (status, said["success"]) == (200, False)
    assert said["message"] == "127.0.0.55 is not yet known as the address of a pod, try again"


# --- tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "may_update", "status"),
    [
        pytest.param(a_pod_user("cart-coordinator"), [], 200, id="a pod of the job"),
        pytest.param(
            a_pod_user("cart-coordinator", uid="uid-of-cart-coordinator"),
            [],
            200,
            id="with its uid",
        ),
        pytest.param(
            a_pod_user("cart-coordinator", uid="before"),
            [],
            403,
            id="a pod of before",
        ),
        pytest.param(a_pod_user("other-coordinator"), [], 404, id="a pod of another job"),
        pytest.param(a_pod_user("cart-coordinator", "elsewhere"), [], 403, id="a pod of that name elsewhere"),
        pytest.param({"username": "root"}, [("root", "rl")], 200, id="an administrator"),
        pytest.param({"username": "root"}, [("root", "elsewhere")], 403, id="an administrator elsewhere"),
        pytest.param({"username": "mallory"}, [("root", "rl")], 403, id="a user"),
        pytest.param(None, [], 401, id="nobody"),
    ],
)
async def test_a_token_acts_for_its_pods_job_or_its_user(
    bench: Bench, client: Client, user: Json | None, may_update: list[tuple[str, str]], status: int
) -> None:
    bench.job("other")
    bench.pod("other-coordinator", job="other")
    if user is not None:
        bench.reviews.users["secret"] = user
    bench.reviews.may_update = set(may_update)

    found, said = await bench.call("POST", REPLICAS, BODY, headers=KEY)

    assert (found, said["success"]) == (status, status == 200), said
    assert len(bench.members()) == (1 if status == 200 else 0)


async def test_a_bad_token_is_refused_even_from_a_good_address(bench: Bench, client: Client) -> None:
    address = bench.pod("cart-collector-xxxxx")

    assert (await bench.call("POST", REPLICAS, BODY, ip=address, headers=KEY))[0] == 401


async def test_a_list_by_a_pods_token_is_of_its_own_job(bench: Bench, client: Client) -> None:
    bench.job("other")
    bench.pod("other-coordinator", job="other")
    bench.reviews.users["secret"] = a_pod_user("cart-coordinator")

    _, listed = await bench.call("GET", REPLICAS, headers=KEY)

    assert [each["coordinator"] for each in listed["data"]] == ["cart-coordinator"]


async def test_the_review_of_a_token_is_cached(bench: Bench, client: Client) -> None:
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", NAMESPACE)}

    for _ in range(5):
        await bench.call("GET", f"{REPLICAS}?namespace=rl&coordinator=cart-coordinator", headers=KEY)

    assert bench.reviews.asked == 3  # the token, and two kinds of jobs


async def test_a_token_for_the_api_server_is_accepted_with_a_warning_a_minute(
    bench: Bench, client: Client, logs: list[Any]
) -> None:
    bench.reviews.api_users = {f"token-{number}": {"username": "root"} for number in range(3)}
    bench.reviews.may_update = {("root", NAMESPACE)}

    for token in bench.reviews.api_users:
        headers = {"Authorization": f"Bearer {token}"}
        assert (await bench.call("POST", REPLICAS, BODY, headers=headers))[0] == 200

    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert [(line["user"], line["hint"]) for line in warnings] == [("root", "create it with --audience=di-server")]


async def test_a_token_for_di_server_is_reviewed_once_and_not_warned_of(
    bench: Bench, client: Client, logs: list[Any]
) -> None:
    bench.reviews.users["secret"] = a_pod_user("cart-coordinator")

    assert (await bench.call("POST", REPLICAS, BODY, headers=KEY))[0] == 200

    assert bench.reviews.asked == 1
    assert not [line for line in logs if line["log_level"] == "warning"]


async def test_a_token_is_never_logged(bench: Bench, client: Client, logs: list[Any]) -> None:
    await bench.call("POST", REPLICAS, BODY, headers=KEY)

    assert any(line["event"] == "request" for line in logs)
    assert "secret" not in str(logs)


async def test_a_failed_token_review_is_answered_with_try_again(bench: Bench) -> None:
    bench.pod("cart-coordinator")
    bench.reviews.error = Unreachable("away")

    status, said = await bench.call("POST", REPLICAS, BODY, headers=KEY)

    assert (status, said["success"]) == (200, False)
