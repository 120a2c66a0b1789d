"""Pods and services of both kinds around a coordinator, side by side: words, names, environment (docs/dijob.md)."""

from typing import NamedTuple

import pytest

from tests.build import (
    STAMP,
    Json,
    a_container,
    a_dijob,
    a_nervexjob,
    a_template,
    an_agconfig,
    plan_of,
    with_aggregator,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE

COLLECTOR = {"cartpole-collector-x7k2p": {"role": "collector", "at": STAMP}}
SERVER = "di-server.di-system:8080"


class Row(NamedTuple):
    """One pod of a job, and what is known of it."""

    job: Json
    pod: str
    labels: dict[str, str]
    container: str
    port: tuple[str, int]
    env: dict[str, str]


def declared(job: Json) -> Json:
    """With a collector that di-server has asked for."""
    status = job.get("status", {})
    return with_status(job, {"phase": "Running", "declared": status.get("declared", {}) | {"members": COLLECTOR}})


def collected(container: str) -> Json:
    return {"collector": {"template": a_template(a_container(container))}}


DI = declared(a_dijob(spec=collected("di-container")))
NERVEX = declared(with_aggregator(a_nervexjob(spec=collected("collector"))))

DI_LABELS = {"group-name": "diengine.opendilab.org", "dijob-name": "cartpole", "controller-name": "di-operator"}
NERVEX_LABELS = {
    "group-name": "nervex.sensetime.com",
    "nervexjob-name": "cartpole",
    "controller-name": "nervex-operator",
}
NERVEX_URLS = {
    "KUBERNETES_COORDINATOR_URL": "cartpole-coordinator.rl:22273",
    "KUBERNETES_AGGREGATOR_URL": "cartpole-aggregator.rl:80",
}

ROWS = [
    pytest.param(
        Row(
            DI,
            "cartpole-coordinator",
            DI_LABELS | {"replica-type": "coordinator"},
            "di-container",
            ("di-port", 22273),
            {"COORDINATOR_PORT": "22273", "KUBERNETES_COORDINATOR_URL": "cartpole-coordinator.rl:22273"},
        ),
        id="DIJob's coordinator",
    ),
    pytest.param(
        Row(
            DI,
            "cartpole-collector-x7k2p",
            DI_LABELS | {"replica-type": "collector"},
            "di-container",
            ("di-port", 22270),
            {"COLLECTOR_PORT": "22270"},
        ),
        id="DIJob's collector",
    ),
    pytest.param(
        Row(
            NERVEX,
            "cartpole-coordinator",
            NERVEX_LABELS | {"replica-type": "coordinator"},
            "coordinator",
            ("coordinator", 22273),
            {"COORDINATOR_PORT": "22273", **NERVEX_URLS},
        ),
        id="NerveXJob's coordinator",
    ),
    pytest.param(
        Row(
            NERVEX,
            "cartpole-aggregator",
            NERVEX_LABELS | {"replica-type": "aggregator"},
            "aggregator",
            ("aggregator", 80),
            {"AGGREGATOR_PORT": "80", **NERVEX_URLS},
        ),
        id="NerveXJob's aggregator",
    ),
    pytest.param(
        Row(
            NERVEX,
            "cartpole-collector-x7k2p",
            NERVEX_LABELS | {"replica-type": "collector"},
            "collector",
            ("collector", 22270),
            {"COLLECTOR_PORT": "22270"},
        ),
        id="NerveXJob's collector",
    ),
]

each_pod = pytest.mark.parametrize("row", ROWS)


def created(job: Json, name: str, agconfig: Json | None = None) -> tuple[Json, Json]:
    """The pod and the service of this name."""
    plan = plan_of(job, agconfig=agconfig)
    bodies = {(create.resource, create.key.name): create.body for create in plan.creates}
    return bodies[POD, name], bodies[SERVICE, name]


@each_pod
def test_a_pod_has_the_labels_of_its_kind_and_its_service_finds_it_by_them(row: Row) -> None:
    pod, service = created(row.job, row.pod)

    managed = {"app.kubernetes.io/managed-by": "trainmaster"}
    assert pod["metadata"]["labels"] == row.labels | {"pod-name": row.pod} | managed
    assert service["spec"]["selector"] == row.labels | {"pod-name": row.pod}
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"]) == (row.job["apiVersion"], row.job["kind"])
    assert service["metadata"]["ownerReferences"] == [owner]


@each_pod
def test_the_main_container_and_its_port_are_called_as_in_its_kind(row: Row) -> None:
    pod, service = created(row.job, row.pod)

    (container,) = pod["spec"]["containers"]
    name, number = row.port
    assert container["name"] == row.container
    assert container["ports"] == [{"name": name, "containerPort": number}]
    assert service["spec"]["ports"] == [{"name": name, "port": number}]


@each_pod
def test_the_environment_says_where_the_others_are(row: Row) -> None:
    pod, _ = created(row.job, row.pod)

    (container,) = pod["spec"]["containers"]
    who = {"KUBERNETES_POD_NAMESPACE": "rl", "KUBERNETES_POD_NAME": row.pod, "KUBERNETES_SERVER_URL": SERVER}
    assert {entry["name"]: entry["value"] for entry in container["env"]} == row.env | who


# --- what the aggregator of a NerveXJob has of its own ------------------------------------------


def aggregator_of(job: Json, agconfig: Json | None = None) -> Json:
    recorded = with_status(job, plan_of(job, agconfig=agconfig))
    return created(recorded, "cartpole-aggregator", agconfig)[0]


def test_the_aggregator_listens_where_it_always_did_when_its_template_names_no_port() -> None:
    config = an_agconfig(a_template(a_container("aggregator")))

    coordinator, _ = created(with_aggregator(a_nervexjob(), config), "cartpole-coordinator")

    env = {entry["name"]: entry["value"] for entry in coordinator["spec"]["containers"][0]["env"]}
    assert env["KUBERNETES_AGGREGATOR_URL"] == "cartpole-aggregator.rl:22272"


def test_a_port_of_another_name_is_not_taken_for_the_aggregators() -> None:
    config = an_agconfig(a_template(a_container("aggregator", ports={"di-port": 81})))

    (container,) = aggregator_of(a_nervexjob(), config)["spec"]["containers"]

    assert container["ports"] == [
        {"name": "di-port", "containerPort": 81},
        {"name": "aggregator", "containerPort": 22272},
    ]


def test_the_aggregator_gets_the_priority_of_the_job_but_not_its_volumes() -> None:
    job = a_nervexjob(spec={"volumes": [{"name": "data", "emptyDir": {}}], "priorityClassName": "high"})

    spec = aggregator_of(job)["spec"]

    assert "volumes" not in spec
    assert spec["priorityClassName"] == "high"


@pytest.mark.parametrize(("given", "policy"), [(None, None), ("OnFailure", "OnFailure")])
def test_the_aggregator_is_restarted_as_its_template_says(given: str | None, policy: str | None) -> None:
    fields: Json = {"restartPolicy": given} if given else {}
    config = an_agconfig(a_template(a_container("aggregator"), **fields))

    assert aggregator_of(a_nervexjob(), config)["spec"].get("restartPolicy") == policy
