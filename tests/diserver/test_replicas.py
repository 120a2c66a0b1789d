"""Requests of coordinators, sent by a client that exits after any error (docs/di-server.md)."""

import asyncio
import re
from typing import Any

import pytest
from prometheus_client import REGISTRY

from testbed.admin import eventually
from tests.build import STAMP, Json, a_container, a_template
from tests.diserver.bench import NAMESPACE, Bench, serving
from tests.diserver.client import Client
from tests.runtime.cluster import raising
from trainmaster.core.errors import Conflict, Forbidden, Unreachable
from trainmaster.core.ids import EVENT, POD, Key
from trainmaster.diserver import handlers
from trainmaster.diserver.limits import Rules
from trainmaster.kinds.dijob.types import RESOURCE

TWO_AND_ONE: Json = {"collectors": {"replicas": 2}, "learners": {"replicas": 1}}


async def data(client: Client, **wanted: Any) -> Json:
    found = await client.add(**wanted)
    assert found is not None
    return found


# --- POST --------------------------------------------------------------------------------------


async def test_replicas_are_declared_and_answered_with_their_urls(bench: Bench, client: Client) -> None:
    found = await client.start({"replicas": 2, "cpus": 0.5, "memory": "200Mi"}, {"replicas": 1, "gpus": "1"})

    assert (found["namespace"], found["coordinator"]) == (NAMESPACE, "cart-coordinator")
    assert [len(found["collectors"]), len(found["learners"])] == [2, 1]
    assert all(re.fullmatch(r"cart-collector-[a-z0-9]{5}\.rl:22270", url) for url in found["collectors"])
    assert re.fullmatch(r"cart-learner-[a-z0-9]{5}\.rl:22271", found["learners"][0])
    members = bench.members()
    assert {client.pod_of(url) for url in found["collectors"] + found["learners"]} == set(members)
    assert sorted((m["role"], m.get("cpus"), m.get("gpus"), m.get("memory")) for m in members.values()) == [
        ("collector", "0.5", None, "200Mi"),
        ("collector", "0.5", None, "200Mi"),
        ("learner", None, 1, None),
    ]


async def test_the_port_is_that_of_the_template(bench: Bench, client: Client) -> None:
    template = a_template(a_container("di-container", ports={"di-port": 80}))
    bench.job(collector={"template": template})

    found = await client.start({"replicas": 1}, {})

    assert found["collectors"][0].endswith(":80")


async def test_unknown_keys_have_no_effect(bench: Bench, client: Client) -> None:
    """The mock and DI-engine's own test write cpu and gpu."""
    await client.start({"replicas": 1, "cpu": "7", "gpu": "8"}, {"replicas": 0})

    (member,) = bench.members().values()
    assert set(member) == {"role", "at"}


async def test_a_further_request_adds(bench: Bench, client: Client) -> None:
    await client.start({"replicas": 2}, {"replicas": 1})
    await bench.answered()

    added = await data(client, collectors={"replicas": 2})
    await bench.answered()
    again = await data(client, collectors={"replicas": 2})

    assert len(bench.members()) == 7
    assert not set(added["collectors"]) & set(again["collectors"])
    assert added["learners"] == []


async def test_an_equal_request_right_after_its_answer_is_a_new_one(bench: Bench, client: Client) -> None:
    first = await data(client, collectors={"replicas": 1})
    second = await data(client, collectors={"replicas": 1})

    assert first["collectors"] != second["collectors"]
    assert len(bench.members()) == 2


@pytest.mark.parametrize("restart", [{"uid": "another"}, {"restarts": 1}], ids=["a new pod", "a new process"])
async def test_a_restarted_coordinator_finds_its_replicas(bench: Bench, client: Client, restart: Json) -> None:
    first = await client.start({"replicas": 2}, {"replicas": 1})
    await bench.answered()

    address = bench.pod("cart-coordinator", **restart)
    second = await bench.client(address).start({"replicas": 2}, {"replicas": 1})

    assert sorted(second["collectors"]) == sorted(first["collectors"])
    assert second["learners"] == first["learners"]
    assert len(bench.members()) == 3


@pytest.mark.parametrize(
    "main",
    [
        pytest.param({"state": {"terminated": {"exitCode": 1}}}, id="ended"),
        pytest.param(
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}},
            id="waits for its next turn",
        ),
    ],
)
async def test_a_request_waits_until_the_kubelet_reports_the_restart(bench: Bench, client: Client, main: Json) -> None:
    """A fast coordinator sends its request before the pod's status shows the restart."""
    first = await client.start({"replicas": 2}, {"replicas": 1})
    await bench.answered()
    address = bench.pod("cart-coordinator", main=main)
    asking = asyncio.ensure_future(bench.client(address).start({"replicas": 2}, {"replicas": 1}))
    await asyncio.sleep(0.2)
    assert not asking.done()

    bench.pod("cart-coordinator", ip=address, restarts=1)

    assert sorted((await asking)["collectors"]) == sorted(first["collectors"])
    assert len(bench.members()) == 3


async def test_an_administrator_adds_and_states_nothing(bench: Bench, client: Client) -> None:
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", NAMESPACE)}
    body = {"namespace": NAMESPACE, "coordinator": "cart-coordinator", "collectors": {"replicas": 1}}

    status, said = await bench.call("POST", "/v1alpha1/replicas", body, headers={"Authorization": "Bearer secret"})
    await client.start({"replicas": 2}, {})

    assert (status, said["success"]) == (200, True)
    assert len(bench.members()) == 2


async def test_a_learner_of_several_gpus_is_an_aggregator(bench: Bench, client: Client) -> None:
    bench.aggregator_config(a_template(a_container("di-container", ports={"di-port": 90})))
    for name, gpus in (("a", 8), ("b", 8), ("c", 4), ("d", 0), ("e", 0), ("f", 0)):
        bench.node(name, gpus)
    for name in ("g", "h", "i"):
        bench.node(name, 2, unschedulable=True)
        bench.node(f"{name}{name}", 2, ready=False)

    found = await client.start({}, {"replicas": 1, "gpus": 12})

    (url,) = found["learners"]
    assert re.fullmatch(r"cart-aggregator-[a-z0-9]{5}\.rl:90", url)
    ddp = [m for m in bench.members().values() if m["role"] == "ddp-learner"]
    assert sorted((m["gpus"], m.get("startRank", 0), m["worldSize"]) for m in ddp) == [(4, 8, 12), (8, 0, 12)]
    listed = await client.get()
    assert listed is not None
    assert listed["learners"] == [url]
    name = client.pod_of(url)
    bench.pod(name, ip="127.0.0.9")
    _, said = await bench.call("GET", f"/v1alpha1/replicas?namespace=rl&aggregator={name}", ip="127.0.0.9")
    assert said["data"]["coordinator"] == name
    assert said["data"]["collectors"] == []
    assert sorted(int(u.split(":")[1]) for u in said["data"]["learners"]) == list(range(22271, 22283))


async def test_the_status_has_the_port_of_aggregators_and_nothing_of_their_template(
    bench: Bench, client: Client
) -> None:
    """The port of the first request stays: aggregators of the job listen there."""
    for port in (90, 91):
        bench.aggregator_config(a_template(a_container("di-container", ports={"di-port": port}), hostPID=True))
        found = await client.start({}, {"replicas": 1, "gpus": 2})

        assert [url.rpartition(":")[2] for url in found["learners"]] == ["90"]
        declared = bench.status()["declared"]
        assert declared["aggregator"] == {"port": 90}
        assert "aggregatorTemplate" not in declared


async def test_without_gpu_nodes_a_group_has_one_pod(bench: Bench, client: Client) -> None:
    bench.aggregator_config()

    await client.start({}, {"replicas": 2, "gpus": 4})

    assert sorted(m["role"] for m in bench.members().values()) == ["aggregator"] * 2 + ["ddp-learner"] * 2


async def test_a_server_that_may_not_list_nodes_splits_no_group(bench: Bench, client: Client) -> None:
    bench.aggregator_config()
    bench.node("a", 2)
    bench.cluster.before = raising("list", Forbidden("not yours", code=403))

    await client.start({}, {"replicas": 1, "gpus": 4})

    assert sorted(m["role"] for m in bench.members().values()) == ["aggregator", "ddp-learner"]


async def test_only_needed_requests_are_sent(bench: Bench, client: Client) -> None:
    await client.start({"replicas": 1}, {"replicas": 1, "gpus": 1})

    assert {call.resource.plural for call in bench.cluster.calls if call.verb in ("get", "list")} == {
        "pods",
        "dijobs",
        "nervexjobs",
        "customresourcedefinitions",
    }
    assert not [call for call in bench.cluster.asked("get") if call.resource == RESOURCE]


async def test_on_a_shared_network_the_answer_waits_for_the_ports() -> None:
    async with serving(rules=Rules(shared_network=True)) as bench:
        bench.job()
        client = bench.client(bench.pod("cart-coordinator"))

        async def operator(call: Any) -> None:
            """Gives ports to all declared replicas."""
            if call.verb == "patch" and (members := bench.members()) and "ports" not in bench.status():
                bench.set_status(ports={name: {"22270": 20_007} for name in members})

        bench.cluster.after = operator
        found = await client.start({"replicas": 1}, {})

        assert found["collectors"][0].endswith(":20007")


async def test_on_a_shared_network_missing_ports_are_answered_with_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "WAIT_TIMEOUT", 0.05)
    async with serving(rules=Rules(shared_network=True)) as bench:
        bench.job()
        client = bench.client(bench.pod("cart-coordinator"))

        assert await client.add(collectors={"replicas": 1}) is None
        (name,) = bench.members()
        bench.set_status(ports={name: {"22270": 20_007}})

        # The same request again is the same one: its answer never came.
        assert (await data(client, collectors={"replicas": 1}))["collectors"] == [f"{name}.rl:20007"]


async def test_on_a_shared_network_a_replica_and_its_successor_change_places_in_one_answer() -> None:
    """DI-engine's client connects to new replicas before it disconnects those that are gone."""
    async with serving(rules=Rules(shared_network=True)) as bench:
        bench.job()
        client = bench.client(bench.pod("cart-coordinator"))
        old, new, member = "cart-collector-bbbbb", "cart-collector-ccccc", {"role": "collector", "at": STAMP}
        bench.set_status(declared={"members": {old: member}}, ports={old: {"22270": 20_007}})
        answers = [(await client.get() or {})["collectors"]]

        # The operator stores the new name, and in its next pass the port.
        bench.set_status(declared={"members": {new: member}}, ports={})
        asyncio.get_running_loop().call_later(0.1, lambda: bench.set_status(ports={new: {"22270": 20_008}}))
        while [f"{new}.rl:20008"] not in answers:
            answers.append((await client.get() or {})["collectors"])

        assert {url for urls in answers for url in urls} <= {f"{old}.rl:20007", f"{new}.rl:20008"}
        assert all(len(urls) == 1 for urls in answers)


async def test_on_a_shared_network_replicas_without_a_port_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "WAIT_TIMEOUT", 0.05)
    async with serving(rules=Rules(shared_network=True)) as bench:
        bench.job()
        client = bench.client(bench.pod("cart-coordinator"))
        members = {f"cart-collector-{name}": {"role": "collector", "at": STAMP} for name in ("bbbbb", "ccccc")}
        bench.set_status(declared={"members": members}, ports={"cart-collector-ccccc": {"22270": 20_007}})

        async def told() -> Json:
            found = await client.get()
            assert found
            assert found["collectors"]
            return found

        assert (await eventually(told))["collectors"] == ["cart-collector-ccccc.rl:20007"]


# --- GET ---------------------------------------------------------------------------------------


async def test_a_coordinator_sees_its_new_replicas_at_once(bench: Bench, client: Client) -> None:
    assert await client.get() == {
        "namespace": "rl",
        "coordinator": "cart-coordinator",
        "collectors": [],
        "learners": [],
    }

    made = await client.start({"replicas": 2}, {"replicas": 1})

    found = await client.get()
    assert found is not None
    assert sorted(found["collectors"]) == sorted(made["collectors"])
    assert found["learners"] == made["learners"]


async def test_the_coordinator_is_answered_while_it_has_no_pod(bench: Bench, client: Client) -> None:
    """Its successor is on its way, and others of the job ask."""
    address = bench.pod("cart-learner-xxxxx")

    bench.cluster.take(POD, Key(NAMESPACE, "cart-coordinator"))

    assert await bench.client(address).get() is not None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("namespace=rl&name={collector}", ("cart-coordinator", 1, 0), id="a replica"),
        pytest.param("namespace=rl&name=cart-coordinator", ("cart-coordinator", 2, 1), id="the coordinator"),
        pytest.param(
            "namespace=rl&name={collector}&coordinator=cart-coordinator", ("cart-coordinator", 1, 0), id="both"
        ),
        pytest.param("NameSpace=rl&COORDINATOR=cart-coordinator", ("cart-coordinator", 2, 1), id="any case"),
        pytest.param(
            "namespace=rl&coordinator=cart-coordinator&coordinator=x", ("cart-coordinator", 2, 1), id="the first value"
        ),
    ],
)
async def test_filters_choose(bench: Bench, client: Client, query: str, expected: tuple[str, int, int]) -> None:
    made = await client.start({"replicas": 2}, {"replicas": 1})
    collector = client.pod_of(made["collectors"][0])
    address = bench.pod("cart-learner-yyyyy")

    status, said = await bench.call("GET", f"/v1alpha1/replicas?{query.format(collector=collector)}", ip=address)

    assert status == 200
    found = said["data"]
    assert (found["coordinator"], len(found["collectors"]), len(found["learners"])) == expected
    assert said["message"] == "successfully get replicas"


async def test_a_job_that_lists_sees_itself_and_an_administrator_sees_all(bench: Bench, client: Client) -> None:
    bench.job("other")
    bench.pod("other-coordinator", job="other")
    bench.job("without-a-coordinator")
    own = bench.pod("cart-collector-zzzzz")
    bench.reviews.users["secret"] = {"username": "root"}
    bench.reviews.may_update = {("root", "*")}
    key = {"Authorization": "Bearer secret"}

    _, mine = await bench.call("GET", "/v1alpha1/replicas", ip=own)
    _, all_of_them = await bench.call("GET", "/v1alpha1/replicas", headers=key)
    _, here = await bench.call("GET", "/v1alpha1/replicas?namespace=rl", headers=key)
    _, elsewhere = await bench.call("GET", "/v1alpha1/replicas?namespace=empty", headers=key)

    assert [entry["coordinator"] for entry in mine["data"]] == ["cart-coordinator"]
    assert [entry["coordinator"] for entry in all_of_them["data"]] == ["cart-coordinator", "other-coordinator"]
    assert here["data"] == all_of_them["data"]
    assert elsewhere["data"] == []


async def test_an_ended_job_has_no_replicas(bench: Bench, client: Client) -> None:
    await client.start({"replicas": 2}, {})
    bench.set_status(phase="Succeeded")
    await bench.answered()

    found = await client.get()

    assert found is not None
    assert found["collectors"] == []


# --- DELETE ------------------------------------------------------------------------------------


async def test_failed_replicas_are_deleted_first_then_those_that_do_not_run(bench: Bench, client: Client) -> None:
    made = await client.start({"replicas": 3}, {"replicas": 1})
    names = [client.pod_of(url) for url in made["collectors"]]
    for name, phase in zip(names, ("Running", "Pending", "Failed"), strict=True):
        bench.pod(name, phase=phase)

    first = await client.delete(collectors={"replicas": 1}, learners={"replicas": 0})
    await bench.answered()
    second = await client.delete(collectors={"replicas": 1})

    assert first is not None
    assert second is not None
    assert first["collectors"] == [made["collectors"][2]]
    assert second["collectors"] == [made["collectors"][1]]
    assert set(bench.members()) == {names[0], client.pod_of(made["learners"][0])}


async def test_deleting_more_replicas_than_there_are_deletes_all(bench: Bench, client: Client) -> None:
    await client.start({"replicas": 2}, {"replicas": 1})

    found = await client.delete(collectors={"replicas": 99}, learners={"replicas": 99})

    assert found is not None
    assert [len(found["collectors"]), len(found["learners"])] == [2, 1]
    assert bench.members() == {}


# --- failed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{pod}", "{pod}.rl", "{pod}.rl:22270", "http://{pod}.rl:22270/x"])
async def test_a_failed_replica_is_replaced_by_name_or_url(bench: Bench, client: Client, form: str) -> None:
    made = await client.start({"replicas": 2}, {})
    failed, kept = (client.pod_of(url) for url in made["collectors"])
    body = {"namespace": "rl", "coordinator": "cart-coordinator", "collectors": [form.format(pod=failed)] * 2}

    success, _, message, found = await client.request("POST", "/v1alpha1/replicas/failed", body)

    assert (success, message) == (True, "successfully recreate replicas")
    (new,) = client.checked(found)["collectors"]
    assert set(bench.members()) == {kept, client.pod_of(new)}
    assert found["learners"] == []


async def test_every_answer_has_the_message_that_clients_know(bench: Bench, client: Client) -> None:
    """Real clients are asked by tests/contract/test_di_engine.py; the words are checked here, too."""

    async def message(method: str, path: str, **wanted: Json) -> str:
        body = {"namespace": "rl", "coordinator": "cart-coordinator", **wanted}
        return (await client.request(method, path, body))[2]

    assert await message("POST", "/v1alpha1/replicas", collectors={"replicas": 1}) == "successfully create replicas"
    assert await message("GET", "/v1alpha1/replicas") == "successfully get replicas"
    assert await message("POST", "/v1alpha1/replicas/failed") == "successfully recreate replicas"
    assert await message("DELETE", "/v1alpha1/replicas", collectors={"replicas": 1}) == "successfully delete replicas"


async def test_a_report_about_an_unknown_replica_replaces_nothing(bench: Bench, client: Client) -> None:
    made = await client.start({"replicas": 1}, {})
    before = bench.members()

    found = await client.report(collectors=["cart-collector-bbbbb.rl:1"])

    assert found["collectors"] == []
    assert bench.members() == before
    replaced = await client.report(collectors=made["collectors"])
    assert len(replaced["collectors"]) == 1


async def test_an_aggregator_that_reports_a_learner_gets_a_new_group(bench: Bench, client: Client) -> None:
    bench.aggregator_config()
    made = await client.start({}, {"replicas": 1, "gpus": 2})
    aggregator = client.pod_of(made["learners"][0])
    (ddp,) = [name for name, member in bench.members().items() if member["role"] == "ddp-learner"]
    caller = bench.client(bench.pod(aggregator), aggregator)

    found = await caller.report(learners=[f"{ddp}.rl:22271"])

    (url,) = found["learners"]
    assert client.pod_of(url) != aggregator
    assert not {aggregator, ddp} & set(bench.members())
    assert len(bench.members()) == 2


# --- retries -----------------------------------------------------------------------------------


async def test_a_write_that_was_stored_without_an_answer_is_found_again(bench: Bench, client: Client) -> None:
    bench.cluster.after = raising("patch", Unreachable("cut"), name="cart")

    found = await client.start({"replicas": 2}, {"replicas": 1})

    assert len(found["collectors"]) == 2
    assert len(bench.members()) == 3


@pytest.mark.parametrize("error", [Conflict("faster", code=409), Unreachable("cut")], ids=["conflict", "cut"])
async def test_a_write_that_was_not_stored_is_tried_again(bench: Bench, client: Client, error: Exception) -> None:
    bench.cluster.before = raising("patch", error, error, name="cart")

    found = await client.start({"replicas": 2}, {"replicas": 1})

    assert len(found["collectors"]) == 2
    assert len(bench.members()) == 3


@pytest.mark.parametrize("verb", ["POST", "DELETE", "failed"])
async def test_a_request_that_is_repeated_after_a_lost_answer_changes_nothing(
    bench: Bench, client: Client, verb: str
) -> None:
    """At another server, which knows only what is on record."""
    made = await client.start({"replicas": 4}, {})
    await bench.answered()
    body: Json = {"namespace": "rl", "coordinator": "cart-coordinator", "collectors": {"replicas": 2}}
    path = "/v1alpha1/replicas"
    if verb == "failed":
        body, path = body | {"collectors": [made["collectors"][0]]}, "/v1alpha1/replicas/failed"
    method = "DELETE" if verb == "DELETE" else "POST"
    _, _, _, first = await client.request(method, path, body)
    await bench.answered()
    last = bench.status()["declared"]["last"]
    bench.set_status(declared=bench.status()["declared"] | {"last": {k: v for k, v in last.items() if k != "answered"}})
    before, recognised = bench.members(), retries()

    async with serving(bench.cluster) as other:
        client.url = other.url
        success, _, _, second = await client.request(method, path, body)

    assert success
    assert second == first
    assert bench.members() == before
    assert retries() == recognised + 1


def retries() -> float:
    return REGISTRY.get_sample_value("trainmaster_di_recognised_retries_total") or 0.0


async def test_the_events_on_the_job_name_the_caller_and_the_request(bench: Bench, client: Client) -> None:
    made = await client.start({"replicas": 1}, {"replicas": 1})
    await bench.answered()
    await client.report(collectors=made["collectors"])
    await bench.answered()
    await client.delete(learners={"replicas": 1})

    async def told() -> list[Json]:
        found = [call.body for call in bench.cluster.asked("create", EVENT)]
        assert len(found) == 3
        return found

    events = await eventually(told)
    assert [event["reason"] for event in events] == ["ReplicasCreated", "ReplicasReplaced", "ReplicasDeleted"]
    assert {event["source"]["component"] for event in events} == {"di-server"}
    assert events[0]["message"].startswith("cart-coordinator requested 1 collectors and 1 learners: cart-collector-")


async def test_two_servers_serve_one_job(bench: Bench, client: Client) -> None:
    async with serving(bench.cluster) as other:
        await client.start({"replicas": 2}, {"replicas": 1})
        await bench.answered()
        client.url = other.url
        await data(client, collectors={"replicas": 1})

    assert len(bench.members()) == 4
