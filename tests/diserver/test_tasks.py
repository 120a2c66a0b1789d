"""Requests of v2alpha1: the replicas of a DIJob with tasks by rank, scaling, and reports."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yarl

from testbed.admin import eventually
from tests.build import Json, a_container, a_dijob, a_task, a_template
from tests.diserver.bench import NAMESPACE, Bench, serving
from tests.diserver.test_caller import KEY, a_pod_user
from tests.runtime.cluster import raising
from trainmaster.core.errors import Conflict, Unreachable
from trainmaster.core.ids import EVENT, POD
from trainmaster.diserver import access, profiling
from trainmaster.diserver.limits import Rules
from trainmaster.kinds.dijob.types import RESOURCE

JOB = "/v2alpha1/job/rl.mesh"
REPLICAS, PROFILINGS = f"{JOB}/replicas", f"{JOB}/profilings"
STRANGER = "127.0.0.77"


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "ADDRESS_TIMEOUT", 0.05)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as bench:
        bench.task_job()
        yield bench


@pytest.fixture
def learner(bench: Bench) -> str:
    """Its address."""
    return bench.pod("mesh-learner-0", job="mesh")


def asked(bench: Bench, job: str = "mesh") -> Json:
    found: Json = bench.status(job).get("requestedReplicas", {})
    return found


async def scaled(bench: Bench, ip: str, method: str, replicas: int, **more: Any) -> tuple[int, Json]:
    return await bench.call(method, REPLICAS, {"replicas": replicas, **more}, ip=ip)


# --- GET ----------------------------------------------------------------------------------------


async def test_addresses_are_in_the_order_of_ranks_and_empty_where_there_is_none(bench: Bench, learner: str) -> None:
    second = bench.pod("mesh-collector-1", job="mesh")
    bench.pod("mesh-collector-0", job="mesh", ip="")

    status, said = await bench.call("GET", REPLICAS, ip=learner)

    assert (status, said) == (
        200,
        {
            "success": True,
            "code": 0,
            "message": "successfully get replicas",
            "data": [f"{learner}:22270", "", f"{second}:22270"],
        },
    )


async def test_the_answer_follows_the_pods(bench: Bench, learner: str) -> None:
    assert (await bench.call("GET", REPLICAS, ip=learner))[1]["data"] == [f"{learner}:22270", "", ""]

    first = bench.pod("mesh-collector-0", job="mesh")

    async def shows_it() -> None:
        assert (await bench.call("GET", REPLICAS, ip=learner))[1]["data"] == [f"{learner}:22270", f"{first}:22270", ""]

    await eventually(shows_it)
    bench.take_pod("mesh-collector-0")

    async def shows_it_no_more() -> None:
        assert (await bench.call("GET", REPLICAS, ip=learner))[1]["data"] == [f"{learner}:22270", "", ""]

    await eventually(shows_it_no_more)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"deleting": True}, id="deleted"),
        pytest.param({"phase": "Succeeded"}, id="succeeded"),
        pytest.param({"phase": "Failed"}, id="failed"),
        pytest.param({"owner": {"uid": "another"}}, id="of an earlier job of this name"),
    ],
)
async def test_a_pod_that_does_not_serve_has_no_address(bench: Bench, learner: str, fields: Json) -> None:
    bench.pod("mesh-collector-0", job="mesh", **fields)

    _, said = await bench.call("GET", REPLICAS, ip=learner)

    assert said["data"] == [f"{learner}:22270", "", ""]


async def test_a_gap_between_ranks_is_empty(bench: Bench, learner: str) -> None:
    bench.task_job("mesh", a_task("learner"), a_task("collector", 1), ranks={"learner-0": 0, "collector-0": 3})
    first = bench.pod("mesh-collector-0", job="mesh")

    async def has_gap() -> None:
        data = (await bench.call("GET", REPLICAS, ip=learner))[1]["data"]
        assert data == [f"{learner}:22270", "", "", f"{first}:22270"]

    await eventually(has_gap)


@pytest.mark.parametrize("rank", [13_107, 2**31 - 1])
async def test_a_rank_that_no_replica_can_have_costs_nothing(bench: Bench, learner: str, rank: int) -> None:
    bench.task_job("mesh", a_task("learner"), a_task("collector", 1), ranks={"learner-0": 0, "collector-0": rank})

    async def is_left_out() -> None:
        assert (await bench.call("GET", REPLICAS, ip=learner))[1]["data"] == [f"{learner}:22270"]

    await eventually(is_left_out)


async def test_a_job_without_pods_has_an_empty_list(bench: Bench) -> None:
    async with serving(bench.cluster, is_open=True) as other:
        other.task_job("new", ranks={})

        assert (await other.call("GET", "/v2alpha1/job/rl.new/replicas"))[1]["data"] == []


async def test_the_port_is_that_of_the_template_and_ipv6_has_brackets(bench: Bench, learner: str) -> None:
    template = a_template(a_container("di-container", ports={"di-port": 80}), a_container("shell", ports={"x": 90}))
    bench.task_job("mesh", a_task("learner"), a_task("collector", 1, template))
    bench.pod("mesh-collector-0", job="mesh", ip="fd00::7")

    async def has_port() -> None:
        data = (await bench.call("GET", REPLICAS, ip=learner))[1]["data"]
        assert data == [f"{learner}:22270", "[fd00::7]:80"]

    await eventually(has_port)


# --- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ["rl.mesh", "rl/mesh", "rl%2Fmesh", "rl%2fmesh"])
async def test_a_job_is_named_with_a_dot_or_with_a_slash_as_in_its_environment(
    bench: Bench, learner: str, id_: str
) -> None:
    url = yarl.URL(f"{bench.url}/v2alpha1/job/{id_}/replicas", encoded=True)
    async with bench.session(learner).get(url) as response:
        assert (response.status, len((await response.json())["data"])) == (200, 3)


@pytest.mark.parametrize("id_", ["rl.mesh.1", "rl.mesh.7", "rl.mesh", "rl%2Fmesh"])
async def test_the_path_of_the_ancestors_page_leads_to_the_job_whatever_its_generation(
    bench: Bench, learner: str, id_: str
) -> None:
    """docs/architecture.md of DI-orchestrator v1.x: /v2alpha1/[job_id]/replicas, with namespace.name.generation."""

    async def status(method: str, what: str, body: Json | None = None) -> int:
        url = yarl.URL(f"{bench.url}/v2alpha1/{id_}/{what}", encoded=True)
        async with bench.session(learner).request(method, url, json=body) as response:
            return response.status

    assert await status("GET", "replicas") == 200
    assert await status("POST", "replicas", {"replicas": 1}) == 200
    assert await status("DELETE", "replicas", {"replicas": 1}) == 200
    assert await status("POST", "profilings", {"data": {}}) == 200


@pytest.mark.parametrize("id_", ["mesh", "rl.", "rl..1", ".mesh.1"])
async def test_a_bad_id_on_that_path_is_answered_with_what_it_must_be(bench: Bench, learner: str, id_: str) -> None:
    status, said = await bench.call("GET", f"/v2alpha1/{id_}/replicas", ip=learner)

    assert (status, said["message"]) == (400, f"job id {id_} must be in namespace.name.generation format")


async def test_a_name_may_have_dots(bench: Bench) -> None:
    bench.task_job("me.sh")
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", NAMESPACE)}

    for id_ in ("rl.me.sh", "rl/me.sh"):
        assert (await bench.call("GET", f"/v2alpha1/job/{id_}/replicas", headers=KEY))[0] == 200


@pytest.mark.parametrize("id_", ["mesh", ".mesh", "rl.", "a.b/c", "a%2Fb%2Fc", "..."])
@pytest.mark.parametrize(("method", "what"), [("GET", "replicas"), ("POST", "replicas"), ("POST", "profilings")])
async def test_a_bad_id_is_answered_with_the_known_sentence(
    bench: Bench, learner: str, id_: str, method: str, what: str
) -> None:
    url = yarl.URL(f"{bench.url}/v2alpha1/job/{id_}/{what}", encoded=True)
    async with bench.session(learner).request(method, url, data=b'{"replicas": 1}') as response:
        said = await response.json()

    text = id_.replace("%2F", "/")
    assert (response.status, said["message"]) == (400, f"job id {text} must be in namespace.name format")
    assert (said["success"], said["code"], said["data"]) == (False, 1, None)


@pytest.mark.parametrize(
    ("method", "what"), [("GET", "replicas"), ("POST", "replicas"), ("DELETE", "replicas"), ("POST", "profilings")]
)
async def test_an_unknown_job_is_404_with_every_method(bench: Bench, method: str, what: str) -> None:
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", NAMESPACE)}

    status, said = await bench.call(method, f"/v2alpha1/job/rl.none/{what}", {"replicas": 1}, headers=KEY)

    assert (status, said["message"]) == (404, "DIJob: rl/none not exists in cache, nor on the API server")


# --- the other version --------------------------------------------------------------------------


async def test_a_job_with_a_coordinator_is_named_the_other_path(bench: Bench) -> None:
    bench.job()
    address = bench.pod("cart-coordinator")
    for method, what in (("GET", "replicas"), ("POST", "replicas"), ("DELETE", "replicas"), ("POST", "profilings")):
        status, said = await bench.call(method, f"/v2alpha1/job/rl.cart/{what}", {"replicas": 1}, ip=address)

        message = "DIJob rl/cart has a coordinator, and no tasks: use /v1alpha1/replicas"
        assert (status, said["message"]) == (400, message)


async def test_a_job_with_tasks_is_named_the_other_path(bench: Bench, learner: str) -> None:
    name = {"namespace": NAMESPACE, "coordinator": "mesh-learner-0"}
    for method, path, body in (
        ("GET", "/v1alpha1/replicas?namespace=rl&coordinator=mesh-learner-0", None),
        ("GET", "/v1alpha1/replicas?namespace=rl&name=mesh-learner-0", None),
        ("POST", "/v1alpha1/replicas", name | {"collectors": {"replicas": 1}}),
        ("DELETE", "/v1alpha1/replicas", name | {"collectors": {"replicas": 1}}),
        ("POST", "/v1alpha1/replicas/failed", name | {"collectors": []}),
    ):
        status, said = await bench.call(method, path, body, ip=learner)

        message = "DIJob rl/mesh has tasks, and no coordinator: use /v2alpha1/job/rl.mesh/replicas"
        assert (status, said["message"]) == (400, message)


async def test_a_list_of_all_jobs_has_none_with_tasks(bench: Bench, learner: str) -> None:
    bench.job()
    bench.pod("cart-coordinator")
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", NAMESPACE)}

    _, said = await bench.call("GET", "/v1alpha1/replicas?namespace=rl", headers=KEY)

    assert [each["coordinator"] for each in said["data"]] == ["cart-coordinator"]


# --- POST and DELETE ----------------------------------------------------------------------------


async def test_replicas_are_added_to_the_collector_and_removed_from_it(bench: Bench, learner: str) -> None:
    status, said = await scaled(bench, learner, "POST", 3)

    assert (status, said) == (
        200,
        {"success": True, "code": 0, "message": "successfully add replicas", "data": None},
    )
    assert asked(bench) == {"collector": {"replicas": 5, "specReplicas": 2}}

    _, said = await scaled(bench, learner, "DELETE", 4)

    assert said["message"] == "successfully delete replicas"
    assert asked(bench) == {"collector": {"replicas": 1, "specReplicas": 2}}

    async def events_are_sent() -> None:
        sent = [call.body["message"] for call in bench.cluster.asked("create", EVENT)]
        assert sent == [f"task collector was scaled through di-server from {change}" for change in ("2 to 5", "5 to 1")]

    await eventually(events_are_sent)


async def test_another_task_can_be_named(bench: Bench, learner: str) -> None:
    await scaled(bench, learner, "POST", 1, task="learner")

    assert asked(bench) == {"learner": {"replicas": 2, "specReplicas": 1}}


async def test_the_task_that_kubectl_scales_is_scaled(bench: Bench, learner: str) -> None:
    bench.task_job(spec={"scaledTask": "learner", "replicas": 4})

    async def counts_from_there() -> None:
        await scaled(bench, learner, "POST", 1)
        assert asked(bench) == {"learner": {"replicas": 5, "specReplicas": 4}}

    await eventually(counts_from_there)


async def test_a_request_counts_from_the_spec_after_that_was_changed(bench: Bench, learner: str) -> None:
    bench.task_job(requestedReplicas={"collector": {"replicas": 9, "specReplicas": 7}})

    await scaled(bench, learner, "POST", 1)

    assert asked(bench)["collector"] == {"replicas": 3, "specReplicas": 2}


async def test_no_replicas_more_is_no_change(bench: Bench, learner: str) -> None:
    status, said = await scaled(bench, learner, "POST", 0)

    assert (status, said["success"], asked(bench)) == (200, True, {})
    assert "lastRequest" not in bench.status("mesh")


@pytest.mark.parametrize(
    ("method", "body", "message"),
    [
        pytest.param("POST", {"replicas": 4}, "would have 6 replicas: maxReplicas is 5", id="over the bound"),
        pytest.param("DELETE", {"replicas": 1}, "would have 1 replicas: minReplicas is 2", id="under the bound"),
        pytest.param("DELETE", {"replicas": 1, "task": "learner"}, "a task has at least 1", id="none left"),
        pytest.param("POST", {"replicas": 11, "task": "learner"}, "a job may have 10", id="over the limit of a job"),
        pytest.param("POST", {"replicas": 10**30, "task": "learner"}, "a job may have 10", id="absurd"),
        pytest.param("POST", {"replicas": -1}, "it must be 0 or more; POST adds and DELETE removes", id="negative"),
        pytest.param("POST", {"replica": 1}, "replicas is missing", id="nothing"),
        pytest.param("POST", {"replicas": 1.5}, "Expected `int", id="a fraction"),
        pytest.param("POST", {"replicas": "1"}, "Expected `int", id="a text"),
        pytest.param("POST", b"", "failed to decode request body: EOF", id="no body"),
        pytest.param("POST", {"replicas": 1, "task": "x"}, "has no task 'x'; there are learner, collector", id="task"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_and_changes_nothing(method: str, body: Any, message: str) -> None:
    async with serving(rules=Rules(max_per_job=10)) as bench:
        bench.task_job("mesh", a_task("learner"), a_task("collector", 2, minReplicas=2, maxReplicas=5))
        address = bench.pod("mesh-learner-0", job="mesh")

        status, said = await bench.call(method, REPLICAS, body, ip=address)

        assert (status, said["success"], said["data"]) == (400, False, None)
        assert message.replace("'", '"') in said["message"]
        assert asked(bench) == {}


async def test_a_job_without_a_collector_wants_a_name(bench: Bench, learner: str) -> None:
    bench.task_job("mesh", a_task("learner"), a_task("actor"))

    status, said = await scaled(bench, learner, "POST", 1)

    assert status == 400
    assert said["message"] == "DIJob rl/mesh has no collector: add the name of a task, learner, actor, as task"


async def test_a_job_that_the_operator_could_not_run_is_not_made(bench: Bench) -> None:
    """The names of pods have at most 63 characters, and the addresses of all pods fit into one variable."""
    name = "m" * 52
    bench.task_job(name, a_task("collector", 9))
    address = bench.pod(f"{name}-collector-0", job=name)

    status, said = await bench.call("POST", f"/v2alpha1/job/rl.{name}/replicas", {"replicas": 2}, ip=address)

    assert (status, "is too long" in said["message"]) == (400, True)
    async with serving(bench.cluster, rules=Rules(max_per_job=2000)) as other:
        name = "m" * 46
        other.task_job(name, a_task("collector", 9))
        address = other.pod(f"{name}-collector-0", job=name)
        status, said = await other.call("POST", f"/v2alpha1/job/rl.{name}/replicas", {"replicas": 1900}, ip=address)
        assert (status, "DI_NODES do not fit" in said["message"]) == (400, True)
        assert asked(other, name) == {}


async def test_jobs_of_both_shapes_share_the_limit_of_their_namespace() -> None:
    async with serving(rules=Rules(max_per_namespace=6)) as bench:
        bench.job()
        bench.task_job()
        coordinator = bench.client(bench.pod("cart-coordinator"))
        learner = bench.pod("mesh-learner-0", job="mesh")
        assert await coordinator.add(collectors={"replicas": 2}) is not None

        status, said = await scaled(bench, learner, "POST", 2)
        assert (status, said["success"]) == (200, False)
        assert "namespace rl would have 7 replicas, and may have 6" in said["message"]
        assert (await scaled(bench, learner, "POST", 1))[1]["success"]
        assert await coordinator.add(collectors={"replicas": 1}) is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_job_that_has_ended_is_not_scaled(bench: Bench, learner: str, phase: str) -> None:
    bench.task_job(phase=phase)

    status, said = await scaled(bench, learner, "POST", 1)

    assert (status, f"has ended ({phase})" in said["message"]) == (409, True)


# --- conflicts and lost answers -----------------------------------------------------------------


async def test_requests_to_two_servers_at_the_same_time_all_count(bench: Bench) -> None:
    async with serving(bench.cluster) as other:
        pods = [bench.pod(f"mesh-collector-{n}", job="mesh") for n in range(8)]
        servers = (bench, other) * 4
        found = await asyncio.gather(*(scaled(each, ip, "POST", 1) for each, ip in zip(servers, pods, strict=True)))

    assert [said["success"] for _, said in found] == [True] * 8
    assert asked(bench)["collector"]["replicas"] == 10


async def test_a_conflict_is_decided_again(bench: Bench, learner: str) -> None:
    bench.cluster.before = raising("patch", Conflict("changed"), Conflict("changed"))

    assert (await scaled(bench, learner, "POST", 1))[1]["success"]
    assert asked(bench)["collector"]["replicas"] == 3


async def test_a_write_whose_answer_is_lost_counts_once(bench: Bench, learner: str) -> None:
    bench.cluster.after = raising("patch", Unreachable("lost"))

    assert (await scaled(bench, learner, "POST", 1))[1]["success"]
    assert asked(bench)["collector"]["replicas"] == 3


async def test_equal_requests_count_twice_after_the_answer(bench: Bench, learner: str) -> None:
    for _ in range(3):
        assert (await scaled(bench, learner, "POST", 1))[1]["success"]

    assert asked(bench)["collector"]["replicas"] == 5


async def test_a_request_whose_answer_was_lost_counts_once(bench: Bench, learner: str) -> None:
    """Another server gets it again: the status says that it was done and not answered."""
    await scaled(bench, learner, "POST", 1)

    async def is_answered() -> None:
        assert bench.status("mesh")["lastRequest"]["answered"]

    await eventually(is_answered)
    last = bench.status("mesh")["lastRequest"]
    bench.set_status("mesh", lastRequest=last | {"answered": False})
    async with serving(bench.cluster) as other:
        assert (await scaled(other, learner, "POST", 1))[1]["success"]
        assert asked(other)["collector"]["replicas"] == 3
        # the same request of another caller is another one
        assert (await scaled(other, other.pod("mesh-collector-0", job="mesh"), "POST", 1))[1]["success"]
        assert asked(other)["collector"]["replicas"] == 4


# --- profilings ---------------------------------------------------------------------------------


async def test_a_report_replaces_the_one_before(bench: Bench, learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "PAUSE", 0.0)
    first = {"data": {"fps": 1.5, "tasks": [1, {"a": "b"}]}, "old": {"x": 1}}

    status, said = await bench.call("POST", PROFILINGS, first, ip=learner)

    assert (status, said) == (
        200,
        {"success": True, "code": 0, "message": "successfully report profilings", "data": None},
    )
    assert bench.status("mesh")["profilings"] == first

    second = {"data": {"fps": 2.5}}

    async def is_replaced() -> None:
        await bench.call("POST", PROFILINGS, second, ip=learner)
        assert bench.status("mesh")["profilings"] == second

    await eventually(is_replaced)
    assert bench.status("mesh")["phase"] == "Running"


async def test_many_reports_are_few_writes_and_the_last_one_stays(
    bench: Bench, learner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "PAUSE", 0.2)

    for number in range(50):
        status, said = await bench.call("POST", PROFILINGS, {"number": number}, ip=learner)
        assert (status, said["success"]) == (200, True)

    async def last_one_is_stored() -> None:
        assert bench.status("mesh")["profilings"] == {"number": 49}

    await eventually(last_one_is_stored)
    assert len(bench.cluster.asked("patch", RESOURCE)) < 25


async def test_the_last_report_is_stored_when_the_server_stops(bench: Bench, learner: str) -> None:
    async with serving(bench.cluster) as other:
        for number in range(3):
            await other.call("POST", PROFILINGS, {"number": number}, ip=learner)
        assert bench.status("mesh")["profilings"] == {"number": 0}

    assert bench.status("mesh")["profilings"] == {"number": 2}


async def test_a_report_that_meets_another_change_is_stored(bench: Bench, learner: str) -> None:
    bench.cluster.before = raising("patch", Conflict("changed"))

    await bench.call("POST", PROFILINGS, {"a": 1}, ip=learner)

    assert bench.status("mesh")["profilings"] == {"a": 1}


async def test_a_report_that_cannot_be_stored_is_to_be_sent_again(bench: Bench, learner: str) -> None:
    bench.cluster.before = raising("patch", Unreachable("away"))

    status, said = await bench.call("POST", PROFILINGS, {"a": 1}, ip=learner)

    assert (status, said["success"], "try again" in said["message"]) == (200, False, True)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        pytest.param(b"", 400, "EOF", id="nothing"),
        pytest.param([1], 400, "Expected `object`", id="a list"),
        pytest.param(b"{", 400, "truncated", id="half of it"),
        pytest.param(b'{"a":' * 40 + b"1" + b"}" * 40, 400, "nested deeper than 32 levels", id="deep"),
        pytest.param(b'{"a":' * 9000 + b"1" + b"}" * 9000, 400, "failed to decode request body", id="very deep"),
        pytest.param({"a": "x" * 65_536}, 413, "larger than 65536 bytes", id="large"),
    ],
)
async def test_a_report_that_cannot_be_read_is_refused(
    bench: Bench, learner: str, body: Any, status: int, message: str
) -> None:
    code, said = await bench.call("POST", PROFILINGS, body, ip=learner)

    assert (code, said["success"], message in said["message"]) == (status, False, True)
    assert "profilings" not in bench.status("mesh")


# --- callers ------------------------------------------------------------------------------------


async def answers(bench: Bench, job: str, **options: Any) -> list[tuple[int, str]]:
    """Status and body of each request, without the name that was asked for."""
    found = []
    for method, what in (("GET", "replicas"), ("POST", "replicas"), ("DELETE", "replicas"), ("POST", "profilings")):
        path = f"/v2alpha1/job/rl.{job}/{what}"
        status, said = await bench.call(method, path, {"replicas": 1}, **options)
        found.append((status, str(said).replace(job, "JOB")))
    return found


@pytest.mark.parametrize("is_starting", [False, True])
async def test_a_stranger_cannot_tell_a_job_that_exists_from_one_that_does_not(
    bench: Bench, learner: str, *, is_starting: bool
) -> None:
    if is_starting:
        bench.pod("mesh-collector-0", job="mesh", ip="")

    existing = await answers(bench, "mesh", ip=STRANGER)

    assert {status for status, _ in existing} == {200 if is_starting else 403}
    assert await answers(bench, "none", ip=STRANGER) == existing
    assert asked(bench) == {}


async def test_a_pod_cannot_tell_another_job_from_one_that_does_not_exist(bench: Bench, learner: str) -> None:
    bench.task_job("other")
    address = bench.pod("other-learner-0", job="other")

    existing = await answers(bench, "mesh", ip=address)

    assert {status for status, _ in existing} == {404}
    assert await answers(bench, "none", ip=address) == existing


@pytest.mark.parametrize(
    ("user", "status"),
    [
        pytest.param({"username": "mallory"}, 403, id="a user without rights"),
        pytest.param(a_pod_user("other-learner-0"), 404, id="a pod of another job"),
        pytest.param(None, 401, id="nobody"),
    ],
)
async def test_nor_can_a_token_without_rights(bench: Bench, learner: str, user: Json | None, status: int) -> None:
    bench.task_job("other")
    bench.pod("other-learner-0", job="other")
    if user is not None:
        bench.reviews.users["secret"] = user

    existing = await answers(bench, "mesh", headers=KEY)

    assert {found for found, _ in existing} == {status}
    assert await answers(bench, "none", headers=KEY) == existing


async def test_a_pod_whose_address_the_watch_does_not_show_yet_is_served(bench: Bench, learner: str) -> None:
    await bench.cut_watches()
    late = bench.pod("mesh-collector-1", job="mesh")

    assert (await bench.call("GET", REPLICAS, ip=late))[0] == 200
    assert bench.cluster.asked("list", POD)[-1].options["selector"] == "diengine/job=mesh"


async def test_a_server_of_other_kinds_has_no_such_job() -> None:
    async with serving(kinds=("nervexjob",), is_open=True) as bench:
        bench.cluster.put(RESOURCE, a_dijob("mesh", namespace=NAMESPACE))

        status, said = await bench.call("GET", REPLICAS)

        assert (status, said["message"]) == (404, "DIJob: rl/mesh not exists in cache: this server serves other kinds")


async def test_a_method_that_there_is_not_is_not_implemented(bench: Bench, learner: str) -> None:
    for method, path in (("PATCH", REPLICAS), ("GET", PROFILINGS)):
        status, said = await bench.call(method, path, ip=learner)
        assert (status, said["message"]) == (501, f"{method} not implemented")
