"""Requests that are wrong: a status, a sentence, and nothing changed (docs/di-server.md)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testbed.admin import eventually
from tests.build import STAMP, Json, a_dijob
from tests.diserver.bench import NAMESPACE, Bench, serving
from tests.diserver.client import Client
from tests.odd import MARK, VALUES, with_value
from tests.runtime.cluster import Call, FakeCluster, raising
from trainmaster import body
from trainmaster.core.errors import NotFound
from trainmaster.core.ids import Key, Resource
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.job import JobId
from trainmaster.diserver.limits import Rules
from trainmaster.diserver.refusal import Refused
from trainmaster.kinds.dijob.profile import PROFILES
from trainmaster.kinds.dijob.types import RESOURCE

GOOD: Json = {
    "namespace": NAMESPACE,
    "coordinator": "cart-coordinator",
    "collectors": {"replicas": 1, "cpus": "1", "gpus": "0", "memory": "1Gi"},
    "learners": {"replicas": 1},
}
REPLICAS, FAILED = "/v1alpha1/replicas", "/v1alpha1/replicas/failed"


def good(**changes: Any) -> Json:
    return GOOD | changes


def collectors(**changes: Any) -> Json:
    return good(collectors=GOOD["collectors"] | changes)


def learners(**changes: Any) -> Json:
    return good(learners=GOOD["learners"] | changes)


@pytest.fixture
async def caller(bench: Bench, client: Client) -> str:
    """The address of the coordinator, which has two collectors; another job stands by."""
    await client.start({"replicas": 2}, {"replicas": 1})
    await bench.answered()
    bench.job("other")
    bench.pod("other-coordinator", job="other")
    bench.pod("other-collector-xxxxx", job="other")
    return bench.pod("cart-collector-aaaaa")


async def refused(bench: Bench, method: str, path: str, body: Any, ip: str) -> tuple[int, str]:
    """What is answered; the job must be as it was."""
    before = bench.cluster.find(RESOURCE, Key(NAMESPACE, "cart"))
    status, said = await bench.call(method, path, body, ip=ip)
    assert (said["success"], said["code"]) == (False, 1)
    assert "'" not in said["message"]
    empty = {"namespace": "", "coordinator": "", "collectors": [], "learners": []}
    assert said["data"] == (None if method == "GET" else empty)
    assert bench.cluster.find(RESOURCE, Key(NAMESPACE, "cart")) == before
    message: str = said["message"]
    return status, message


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        pytest.param(b"", 400, "failed to decode request body: EOF", id="empty"),
        pytest.param(b"{", 400, "failed to decode request body: ", id="cut"),
        pytest.param(b"hello", 400, "failed to decode request body: ", id="no JSON"),
        pytest.param(b"[]", 400, "failed to decode request body: Expected `object`, got `array`", id="a list"),
        pytest.param(b"null", 400, "failed to decode request body: ", id="null"),
        pytest.param(b'{"namespace": "\xff"}', 400, "failed to decode request body: ", id="no UTF-8"),
        pytest.param(b'{"x": ' + b"[" * 60_000, 400, "failed to decode request body: ", id="a deep one"),
        pytest.param(good(namespace=1), 400, "Expected `str | null`, got `int` - at `$.namespace`", id="namespace"),
        pytest.param(good(coordinator=[]), 400, "at `$.coordinator`", id="coordinator"),
        pytest.param(good(collectors=2), 400, "at `$.collectors`", id="collectors"),
        pytest.param(good(learners=[]), 400, "at `$.learners`", id="learners"),
        pytest.param(collectors(replicas="2"), 400, "at `$.collectors.replicas`", id="replicas in quotes"),
        pytest.param(collectors(replicas=2.0), 400, "at `$.collectors.replicas`", id="replicas with a point"),
        pytest.param(collectors(replicas=True), 400, "at `$.collectors.replicas`", id="replicas true"),
        pytest.param(collectors(replicas=-1), 400, "collectors.replicas is -1: it must be 0 or more", id="negative"),
        pytest.param(learners(replicas=-(10**30)), 400, "learners.replicas is -1000", id="very negative"),
        pytest.param(collectors(cpus=[]), 400, "at `$.collectors.cpus`", id="cpus"),
        pytest.param(good(namespace=None), 404, "pod: /cart-coordinator not exists in cache", id="no namespace"),
        pytest.param(good(coordinator=""), 404, "pod: rl/ not exists in cache", id="no coordinator"),
        pytest.param(good(coordinator="nobody"), 404, "pod: rl/nobody not exists in cache", id="unknown coordinator"),
        pytest.param(good(namespace="elsewhere"), 404, "pod: elsewhere/cart-coordinator not exists", id="elsewhere"),
        pytest.param(good(coordinator="a/../b"), 404, "pod: rl/a/../b not exists in cache", id="a path"),
        pytest.param(good(coordinator="other-coordinator"), 404, "or is of another job", id="foreign"),
    ],
)
async def test_a_bad_request_is_refused(
    bench: Bench, caller: str, method: str, body: Any, status: int, says: str
) -> None:
    found, message = await refused(bench, method, REPLICAS, body, caller)

    assert (found, says in message) == (status, True), message


NO_NUMBER: tuple[Any, ...] = ([], {}, True, "plenty", "1 Gi")
NO_AMOUNT = ("-1", -0.5, "1e99")


@pytest.mark.parametrize(
    ("role", "field", "value"),
    [
        (role, field, value)
        for role in ("collectors", "learners")
        for field, values in (
            ("replicas", (*NO_NUMBER, "2", 2.5, -1)),
            *((field, (*NO_NUMBER, *NO_AMOUNT)) for field in ("cpus", "gpus", "memory")),
        )
        for value in values
    ],
)
async def test_every_field_is_looked_at(bench: Bench, caller: str, role: str, field: str, value: Any) -> None:
    body = good(**{role: {"replicas": 1} | {field: value}})

    status, message = await refused(bench, "POST", REPLICAS, body, caller)

    assert (status, f"{role}.{field}" in message) == (400, True), message


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        pytest.param(collectors(replicas=10**9), 400, "a job may have 1000", id="huge"),
        pytest.param(collectors(replicas=10**30), 400, "a job may have 1000", id="beyond numbers"),
        pytest.param(collectors(replicas=998), 409, "would have 1002 replicas: a job may have 1000", id="in the sum"),
        pytest.param(collectors(cpus="plenty"), 400, 'collectors.cpus: "plenty" is not a quantity', id="cpus"),
        pytest.param(collectors(cpus="-1"), 400, "is negative", id="negative cpus"),
        pytest.param(collectors(memory="1e99"), 400, "is larger than Kubernetes supports", id="huge memory"),
        pytest.param(collectors(memory="1" * 1000), 400, "is not a quantity", id="long memory"),
        pytest.param(learners(gpus="two"), 400, "learners.gpus", id="gpus"),
        pytest.param(learners(gpus=10**6), 400, "a replica may have up to 1024", id="huge gpus"),
        pytest.param(learners(gpus=2), 404, "AGConfig: di-system/aggregator-config not exists", id="no config"),
    ],
)
async def test_a_request_for_impossible_replicas_is_refused(
    bench: Bench, caller: str, body: Json, status: int, says: str
) -> None:
    found, message = await refused(bench, "POST", REPLICAS, body, caller)

    assert (found, says in message) == (status, True), message


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        pytest.param({"collectors": ["other-collector-xxxxx"]}, 404, "is no replica of DIJob rl/cart", id="foreign"),
        pytest.param({"learners": ["other-collector-xxxxx.rl:1"]}, 404, "is no replica of DIJob", id="foreign URL"),
        pytest.param({"collectors": ["cart-coordinator"]}, 404, "is no replica of DIJob", id="the coordinator"),
        pytest.param({"collectors": ["cart-collector-xxxxx.other"]}, 404, "is no replica of namespace", id="elsewhere"),
        pytest.param({"collectors": [""]}, 404, "is no replica of namespace", id="empty"),
        pytest.param({"collectors": "cart-collector-xxxxx"}, 400, "at `$.collectors`", id="no list"),
        pytest.param({"collectors": [1]}, 400, "at `$.collectors[1]`", id="a number"),
        pytest.param({"learners": {}}, 400, "at `$.learners`", id="an object"),
        pytest.param({"namespace": 1}, 400, "at `$.namespace`", id="namespace"),
        pytest.param({"coordinator": {}}, 400, "at `$.coordinator`", id="coordinator"),
        pytest.param({"coordinator": "other-coordinator"}, 404, "or is of another job", id="other job"),
        pytest.param({"coordinator": "nobody"}, 404, "pod: rl/nobody not exists in cache", id="unknown coordinator"),
    ],
)
async def test_a_bad_report_is_refused(bench: Bench, caller: str, body: Json, status: int, says: str) -> None:
    own = next(name for name in bench.members() if "collector" in name)
    given: Json = {"namespace": NAMESPACE, "coordinator": "cart-coordinator"} | body
    if isinstance(body.get("collectors"), list):
        given["collectors"] = [own, *body["collectors"]]  # it, too, stays as it is

    found, message = await refused(bench, "POST", FAILED, given, caller)

    assert (found, says in message) == (status, True), message


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("namespace=rl&job=x", 400, "request param job is not supported"),
        ("namespace=rl&coordinator=nobody", 404, "pod: rl/nobody not exists in cache"),
        ("namespace=rl&aggregator=nobody", 404, "pod: rl/nobody not exists in cache"),
        ("namespace=rl&name=nobody", 404, "pod: rl/nobody not exists in cache"),
        ("namespace=rl&name=cart-collector-aaaaa&coordinator=x", 404, "does not belong to coordinator x"),
        ("namespace=rl&coordinator=other-coordinator", 404, "or is of another job"),
    ],
)
async def test_a_bad_question_is_refused(bench: Bench, caller: str, query: str, status: int, says: str) -> None:
    found, message = await refused(bench, "GET", f"{REPLICAS}?{query}", None, caller)

    assert (found, says in message) == (status, True), message


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(REPLICAS, good(namespace="x" * 60_000), id="namespace"),
        pytest.param(REPLICAS, good(coordinator="x" * 60_000), id="coordinator"),
        pytest.param(FAILED, good(collectors=["x" * 60_000], learners=[]), id="collectors"),
    ],
)
async def test_a_huge_name_is_neither_looked_up_nor_quoted(
    bench: Bench, caller: str, logs: list[Any], path: str, body: Json
) -> None:
    async def modest(call: Call) -> None:
        assert len(call.key.name) + len(call.key.namespace) < 1000

    bench.cluster.before = modest
    status, message = await refused(bench, "POST", path, body, caller)

    assert (status, len(message) <= 1000) == (404, True)
    assert len(str(logs)) < 10_000


@pytest.mark.parametrize(
    ("method", "path"),
    [("PATCH", REPLICAS), ("PUT", REPLICAS), ("GET", FAILED), ("DELETE", FAILED), ("OPTIONS", REPLICAS)],
)
async def test_other_methods_are_not_implemented(bench: Bench, method: str, path: str) -> None:
    status, said = await bench.call(method, path)

    assert (status, said["message"]) == (501, f"{method} not implemented")


@pytest.mark.parametrize("path", ["/", "/v1alpha1/replicas/", "/v1alpha1", "/v1alpha1/replicas/failed/", "/v2alpha1/x"])
async def test_unknown_paths_are_not_found(bench: Bench, path: str) -> None:
    async with bench.session().get(bench.url + path) as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")


async def _in_parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
@pytest.mark.parametrize("has_length", [True, False], ids=["with a length", "without a length"])
async def test_a_body_of_ten_megabytes_is_refused(bench: Bench, caller: str, has_length: bool) -> None:
    body = b'{"namespace": "' + b"x" * 10_000_000 + b'"}'
    data = body if has_length else _in_parts(body)

    async with bench.session(caller).post(bench.url + REPLICAS, data=data) as response:
        said = await response.json()

    assert (response.status, "larger than 65536 bytes" in said["message"]) == (413, True)


# --- jobs that take no requests ----------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize(("method", "path"), [("POST", REPLICAS), ("DELETE", REPLICAS), ("POST", FAILED)])
async def test_a_job_that_has_ended_takes_none(bench: Bench, caller: str, phase: str, method: str, path: str) -> None:
    bench.set_status(phase=phase)
    body = good() if path == REPLICAS else {"namespace": NAMESPACE, "coordinator": "cart-coordinator"}

    status, message = await refused(bench, method, path, body, caller)

    assert (status, f"has ended ({phase})" in message) == (409, True)


@pytest.mark.parametrize(("method", "path"), [("POST", REPLICAS), ("DELETE", REPLICAS), ("POST", FAILED)])
async def test_a_job_that_is_being_deleted_takes_none(bench: Bench, caller: str, method: str, path: str) -> None:
    job = bench.cluster.find(RESOURCE, Key(NAMESPACE, "cart")) or {}
    bench.cluster.put(RESOURCE, job | {"metadata": job["metadata"] | {"deletionTimestamp": STAMP}})
    body = good() if path == REPLICAS else {"namespace": NAMESPACE, "coordinator": "cart-coordinator"}

    status, message = await refused(bench, method, path, body, caller)

    assert (status, "is being deleted: its replicas cannot be changed any more" in message) == (409, True)


async def test_a_job_that_is_deleted_in_the_meantime_is_not_there(bench: Bench, caller: str) -> None:
    bench.cluster.before = raising("patch", NotFound("gone", code=404), name="cart")

    status, message = await refused(bench, "POST", REPLICAS, good(), caller)

    assert (status, "DIJob: rl/cart not exists in cache: it was deleted" in message) == (404, True)


async def test_an_undecodable_job_is_refused_and_left_out_of_lists(bench: Bench, caller: str) -> None:
    job = bench.cluster.find(RESOURCE, Key(NAMESPACE, "cart")) or {}
    bench.cluster.put(RESOURCE, job | {"spec": {"coordinator": "a word"}})
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", "*")}
    headers = {"Authorization": "Bearer secret"}

    async def is_seen() -> None:
        _, listed = await bench.call("GET", REPLICAS, headers=headers)
        assert [each["coordinator"] for each in listed["data"]] == ["other-coordinator"]

    await eventually(is_seen)
    status, message = await refused(bench, "POST", REPLICAS, good(), caller)
    assert (status, message.startswith("DIJob rl/cart cannot be read: ")) == (409, True)


def a_deep_job(levels: str) -> bytes:
    job = a_dijob("cart", namespace=NAMESPACE, spec={"other": MARK}, status={"phase": "Running"})
    job["metadata"] |= {"uid": "uid-of-cart", "resourceVersion": "0"}
    return with_value(job, VALUES[levels])


@pytest.mark.parametrize("levels", ["1500 levels", "9000 levels"])
async def test_a_job_that_is_nested_too_deeply_is_refused_and_others_are_served(
    bench: Bench, caller: str, levels: str
) -> None:
    bench.cluster.put_raw(RESOURCE, a_deep_job(levels))

    async def is_refused() -> None:
        status, message = await refused(bench, "POST", REPLICAS, good(), caller)
        assert (status, "nested too deeply" in message) == (409, True)

    await eventually(is_refused)
    other = bench.client(bench.pod("other-coordinator", job="other"), "other-coordinator")
    assert len((await other.start({"replicas": 2}, {}))["collectors"]) == 2


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(a_deep_job("1500 levels"), id="nested too deeply"),
        pytest.param(b'{"metadata":{"name":7}}', id="a name that is none"),
        pytest.param(b'{"metadata":{"name":"cart","resourceVersion":"seven"}}', id="a version that is none"),
    ],
)
async def test_a_job_that_the_api_server_has_and_cannot_be_decoded_is_refused(body: bytes) -> None:
    class Odd(FakeCluster):
        async def get(self, resource: Resource, key: Key) -> bytes:
            return body

    with pytest.raises(Refused, match="DIJob rl/cart cannot be read") as raised:
        await Cache(Odd()).fresh_job(JobId(PROFILES[0], Key(NAMESPACE, "cart")))
    assert raised.value.status == 409


@pytest.mark.parametrize(
    ("template", "says"),
    [
        pytest.param({"spec": {"containers": []}}, "spec.learner.template", id="no containers"),
        pytest.param({}, "spec.learner.template", id="no spec"),
    ],
)
async def test_an_invalid_template_is_refused(bench: Bench, client: Client, template: Json, says: str) -> None:
    bench.job(learner={"template": template})
    address = bench.pod("cart-collector-aaaaa")

    status, message = await refused(bench, "POST", REPLICAS, good(), address)

    assert (status, says in message) == (409, True), message


async def test_an_invalid_aggregatorconfig_is_refused(bench: Bench, caller: str) -> None:
    bench.aggregator_config({"spec": {"containers": []}})

    status, message = await refused(bench, "POST", REPLICAS, learners(gpus=2), caller)

    assert status == 409
    assert message.startswith("AGConfig: di-system/aggregator-config cannot be used: spec.aggregator.template")


async def test_a_role_without_a_template_is_refused(bench: Bench, client: Client) -> None:
    bench.job(collector=None)
    address = bench.pod("cart-learner-xxxxx")

    status, message = await refused(bench, "POST", REPLICAS, good(), address)

    assert (status, message) == (400, "DIJob cart has no template for collectors: add spec.collector to it")


async def test_a_job_name_that_is_too_long_for_replicas_is_refused(bench: Bench) -> None:
    name = "a" * 48
    bench.job(name)
    address = bench.pod(f"{name}-coordinator", job=name)

    status, said = await bench.call("POST", REPLICAS, good(coordinator=f"{name}-coordinator"), ip=address)

    assert (status, "would have 64 characters" in said["message"]) == (400, True)


@pytest.mark.parametrize(
    ("owner", "code", "says"),
    [
        pytest.param({"kind": "Job", "apiVersion": "batch/v1"}, 403, "not the address of a pod of", id="another kind"),
        pytest.param({"controller": False}, 403, "not the address of a pod of", id="nobody"),
        pytest.param({"uid": "old"}, 404, "is owned by stale DIJob", id="a job of before"),
        pytest.param({"name": "gone"}, 404, "DIJob: rl/gone not exists in cache", id="a job that is gone"),
    ],
)
async def test_a_pod_without_a_job_is_refused(bench: Bench, owner: Json, code: int, says: str) -> None:
    address = bench.pod("pod", owner=owner)

    status, said = await bench.call("POST", REPLICAS, good(coordinator="pod"), ip=address)

    assert (status, says in said["message"]) == (code, True), said


async def test_a_full_namespace_is_answered_with_try_again() -> None:
    """Other jobs may end. A 4xx would end the client."""
    async with serving(rules=Rules(max_per_namespace=3)) as bench:
        bench.job()
        bench.job("other")
        cart, other = bench.pod("cart-coordinator"), bench.pod("other-coordinator", job="other")
        await bench.client(cart).start({"replicas": 2}, {})

        _, said = await bench.call("POST", REPLICAS, good(coordinator="other-coordinator"), ip=other)
        assert "namespace rl would have 4 replicas, and may have 3" in said["message"]
        bench.set_status(phase="Succeeded")
        found = await bench.client(other, "other-coordinator").start({"replicas": 1}, {"replicas": 1})

        assert len(found["collectors"]) == 1


async def test_a_client_that_hangs_up_in_the_middle_of_a_body_is_no_defect(
    bench: Bench, caller: str, logs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can do it, and alerts look for defects."""
    reading, read = asyncio.Event(), body.read

    async def noted(*arguments: Any) -> bytes:
        reading.set()
        return await read(*arguments)

    monkeypatch.setattr(body, "read", noted)
    place = bench.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(place[0], int(place[1]), local_addr=(caller, 0))
    writer.write(b'POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"namespace"' % REPLICAS.encode())
    await writer.drain()
    await reading.wait()
    writer.transport.abort()

    async def is_told() -> None:
        assert "the client hung up before the end of its body" in [line.get("because") for line in logs]

    await eventually(is_told)
    assert not [line for line in logs if "defect" in line["event"]]
