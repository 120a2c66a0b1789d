"""di-server serves NerveXJobs as well: in their words, beside DIJobs of the same name, without groups."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from tests.build import NOW, Json, a_container, a_nervexjob, a_template, an_agconfig, with_aggregator, with_status
from tests.diserver.bench import NAMESPACE, Bench, serving
from tests.diserver.client import Client, Died
from trainmaster.core.errors import BadConfig
from trainmaster.core.ids import POD, Key
from trainmaster.diserver.serve import ServerOptions, run_server
from trainmaster.kinds.dijob.nervexjob import RESOURCE
from trainmaster.runtime.cluster import Cluster

COORDINATOR, AGGREGATOR = "vex-coordinator", "vex-aggregator"


def role(name: str, port: int) -> Json:
    return {"template": a_template(a_container(name, ports={name: port}))}


def put_job(bench: Bench, name: str = "vex") -> None:
    job = a_nervexjob(
        name, namespace=NAMESPACE, spec={"collector": role("collector", 80), "learner": role("learner", 81)}
    )
    status = with_aggregator(job, an_agconfig())["status"] | {"phase": "Running"}
    bench.cluster.put(RESOURCE, with_status(job, status))


def put_pod(
    bench: Bench, name: str, ip: str, *, job: str = "vex", restarts: int = 0, exit_code: int | None = None
) -> None:
    kind = name.removeprefix(f"{job}-").partition("-")[0]
    owner = {"apiVersion": RESOURCE.api_version, "kind": "NerveXJob", "name": job, "uid": f"uid-of-{job}"}
    labels = {"nervexjob-name": job, "app.kubernetes.io/managed-by": "trainmaster", "replica-type": kind}
    state = {} if exit_code is None else {"terminated": {"exitCode": exit_code}}
    body = {
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-of-{name}",
            "labels": labels,
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {"restartPolicy": "Never"},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": ip}] if ip else [],
            "containerStatuses": [{"name": kind, "restartCount": restarts, "state": state}],
        },
    }
    bench.cluster.put(POD, body)


def members(bench: Bench, name: str = "vex") -> Json:
    found: Json = bench.cluster.find(RESOURCE, Key(NAMESPACE, name)) or {}
    declared: Json = found["status"]["declared"].get("members", {})
    return declared


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with serving() as bench:
        put_job(bench)
        put_pod(bench, COORDINATOR, "127.0.2.1")
        put_pod(bench, AGGREGATOR, "127.0.2.2")
        yield bench


@pytest.fixture
async def client(bench: Bench) -> Client:
    return bench.client("127.0.2.1", COORDINATOR)


async def test_replicas_are_declared_on_the_nervexjob_with_the_ports_of_their_roles(
    bench: Bench, client: Client
) -> None:
    found = await client.start({"replicas": 2}, {"replicas": 2})

    assert all(re.fullmatch(r"vex-collector-[a-z0-9]{5}\.rl:80", url) for url in found["collectors"])
    assert all(re.fullmatch(r"vex-learner-[a-z0-9]{5}\.rl:81", url) for url in found["learners"])
    assert {client.pod_of(url) for url in found["collectors"] + found["learners"]} == set(members(bench))


async def test_the_aggregator_that_the_operator_makes_is_no_learner_in_any_answer(bench: Bench, client: Client) -> None:
    asked = await client.start({"replicas": 1}, {"replicas": 2})
    listed = await client.get()
    gone = await client.delete(learners={"replicas": 9})

    assert listed is not None
    assert gone is not None
    for found in (asked, listed, gone):
        assert len(found["learners"]) == 2
        assert not any("aggregator" in url for url in found["learners"])
    assert [member["role"] for member in members(bench).values()] == ["collector"]


async def test_the_aggregator_may_ask_too_and_has_no_learners_of_its_own(bench: Bench, client: Client) -> None:
    await client.start({"replicas": 1}, {"replicas": 1})
    aggregator = bench.client("127.0.2.2", AGGREGATOR)

    listed = await aggregator.get()
    _, behind = await bench.call(
        "GET", "/v1alpha1/replicas", params={"namespace": NAMESPACE, "aggregator": AGGREGATOR}, ip="127.0.2.2"
    )

    assert listed is not None
    assert len(listed["learners"]) == 1
    assert behind["data"]["learners"] == []


async def test_a_learner_of_several_gpus_is_one_pod_and_needs_no_aggregatorconfig(bench: Bench, client: Client) -> None:
    await client.start({"replicas": 0}, {"replicas": 1, "gpus": 4})

    ((name, member),) = members(bench).items()
    assert name.startswith("vex-learner-")
    assert (member["role"], member["gpus"]) == ("learner", 4)
    assert {call.resource.plural for call in bench.cluster.calls} & {"aggregatorconfigs", "nodes"} == set()


async def test_a_coordinator_that_was_restarted_in_its_pod_states_its_number_anew(bench: Bench, client: Client) -> None:
    """The incarnation is that of the container with the name of the role."""
    first = await client.start({"replicas": 1}, {"replicas": 1})
    put_pod(bench, COORDINATOR, "127.0.2.1", restarts=1)
    again = await client.start({"replicas": 1}, {"replicas": 1})

    assert again["collectors"] == first["collectors"]
    assert len(members(bench)) == 2


async def test_a_failed_replica_is_deleted_first(bench: Bench, client: Client) -> None:
    """The state is that of the container with the name of the role."""
    found = await client.start({"replicas": 3}, {"replicas": 0})
    names = sorted(client.pod_of(url) for url in found["collectors"])
    for name in names:
        put_pod(bench, name, "", exit_code=1 if name == names[1] else None)

    gone = await client.delete(collectors={"replicas": 1})

    assert gone is not None
    assert [client.pod_of(url) for url in gone["collectors"]] == [names[1]]


async def test_jobs_of_both_kinds_may_have_the_same_name(bench: Bench) -> None:
    """They cannot both have a coordinator of that name, but what is declared on one is not declared on the other."""
    bench.job("vex")
    client = bench.client("127.0.2.1", COORDINATOR)

    await client.start({"replicas": 1}, {"replicas": 0})

    assert len(members(bench)) == 1
    assert bench.members("vex") == {}


async def test_a_job_of_the_other_kind_is_out_of_reach(bench: Bench) -> None:
    bench.job("cart")
    bench.pod("cart-coordinator", ip="127.0.2.9")

    with pytest.raises(Died, match="cart-coordinator not exists in cache, or is of another job"):
        await bench.client("127.0.2.1", "cart-coordinator").get()
    with pytest.raises(Died, match=f"{COORDINATOR} not exists in cache, or is of another job"):
        await bench.client("127.0.2.9", COORDINATOR).get()


async def test_an_administrator_sees_the_kinds_that_they_may_update(bench: Bench) -> None:
    bench.job("cart")
    bench.pod("cart-coordinator")
    bench.reviews.users["root"] = {"username": "root"}
    bench.reviews.may_update = {("root", "*")}

    _, everything = await bench.call(
        "GET", "/v1alpha1/replicas", params={"namespace": NAMESPACE}, headers={"Authorization": "Bearer root"}
    )

    assert {found["coordinator"] for found in everything["data"]} == {"cart-coordinator", COORDINATOR}


async def test_an_aggregator_that_has_no_pod_at_the_moment_is_known_by_its_name() -> None:
    async with serving(is_open=True) as bench:
        put_job(bench)

        listed = await bench.client("127.0.0.1", AGGREGATOR).get()

    assert listed is not None
    assert listed["coordinator"] == AGGREGATOR


async def test_an_ended_job_is_refused_with_the_name_of_its_kind(bench: Bench, client: Client) -> None:
    job = bench.cluster.find(RESOURCE, Key(NAMESPACE, "vex")) or {}
    bench.cluster.put(RESOURCE, {**job, "status": {**job["status"], "phase": "Succeeded"}})

    with pytest.raises(Died, match=r"NerveXJob rl/vex has ended \(Succeeded\)"):
        await client.add(collectors={"replicas": 1})


async def test_a_server_of_one_kind_reads_no_other_and_lists_the_kinds(bench: Bench) -> None:
    cluster: Cluster = bench.cluster
    options = ServerOptions(bind_address="127.0.0.1:1", kinds=("mxjob",))

    with pytest.raises(BadConfig, match="--enable-scheme mxjob: there is no such kind; there are dijob, nervexjob"):
        await run_server(cluster, bench.reviews, options, asyncio.Event(), now=lambda: NOW)
    async with serving(kinds=("DIJob",)) as alone:
        alone.job()
        await alone.client(alone.pod("cart-coordinator")).start({"replicas": 1}, {"replicas": 0})

        assert {call.resource.kind for call in alone.cluster.calls} & {"NerveXJob"} == set()
