"""The coordinator's pod and service, as DI-engine and users of v0.2.2 know them (docs/dijob.md)."""

from typing import Any

import pytest

from tests.build import Json, a_container, a_dijob, a_template, plan_of
from trainmaster.core.ids import POD, SERVICE
from trainmaster.kinds.base import Settings

MANAGED_BY = {"app.kubernetes.io/managed-by": "trainmaster"}
LABELS = {
    "group-name": "diengine.opendilab.org",
    "dijob-name": "cartpole",
    "controller-name": "di-operator",
    "replica-type": "coordinator",
    "pod-name": "cartpole-coordinator",
}
OWNER = {
    "apiVersion": "diengine.opendilab.org/v1alpha1",
    "kind": "DIJob",
    "name": "cartpole",
    "uid": "uid-of-cartpole",
    "controller": True,
}


def pod_of(job: Json) -> Json:
    return next(create.body for create in plan_of(job).creates if create.resource == POD)


def service_of(job: Json) -> Json:
    return next(create.body for create in plan_of(job).creates if create.resource == SERVICE)


def env_of(container: Json) -> dict[str, Any]:
    assert len({entry["name"] for entry in container["env"]}) == len(container["env"])
    return {entry["name"]: entry["value"] for entry in container["env"]}


def test_the_coordinator_is_named_labelled_and_owned_as_ever() -> None:
    body = pod_of(a_dijob())

    assert (body["apiVersion"], body["kind"]) == ("v1", "Pod")
    assert body["metadata"] == {
        "name": "cartpole-coordinator",
        "namespace": "rl",
        "labels": LABELS | MANAGED_BY,
        "ownerReferences": [OWNER],
    }


def test_labels_and_annotations_of_the_template_reach_the_pod_and_ours_win() -> None:
    template = a_template(
        a_container("di-container"), labels={"team": "rl", "replica-type": "mine"}, annotations={"note": "kept"}
    )

    metadata = pod_of(a_dijob(coordinator=template))["metadata"]

    assert metadata["labels"] == {"team": "rl"} | LABELS | MANAGED_BY
    assert metadata["annotations"] == {"note": "kept"}


# --- environment -------------------------------------------------------------------------------


def test_the_environment_names_the_port_the_pod_the_server_and_the_coordinator() -> None:
    (container,) = pod_of(a_dijob())["spec"]["containers"]

    assert env_of(container) == {
        "COORDINATOR_PORT": "22273",
        "KUBERNETES_POD_NAMESPACE": "rl",
        "KUBERNETES_POD_NAME": "cartpole-coordinator",
        "KUBERNETES_SERVER_URL": "di-server.di-system:8080",
        "KUBERNETES_COORDINATOR_URL": "cartpole-coordinator.rl:22273",
    }


def test_the_server_is_where_it_always_was_unless_the_operator_is_told() -> None:
    assert Settings().server_url == "di-server.di-system:8080"


def test_the_server_url_is_what_the_operator_was_started_with() -> None:
    job = a_dijob()
    plan = plan_of(job, settings=Settings(server_url="http://elsewhere:80"))
    pod = next(create.body for create in plan.creates if create.resource == POD)

    assert env_of(pod["spec"]["containers"][0])["KUBERNETES_SERVER_URL"] == "http://elsewhere:80"


def test_every_container_gets_the_environment_and_init_containers_do_not() -> None:
    prepare = a_container("prepare", env=[{"name": "A", "value": "1"}], terminationMessagePolicy="File")
    template = a_template(a_container("di-container"), a_container("shell"), initContainers=[prepare])

    spec = pod_of(a_dijob(coordinator=template))["spec"]

    main, shell = spec["containers"]
    assert env_of(main) == env_of(shell)
    assert spec["initContainers"] == [prepare]


def test_the_injected_value_wins_over_the_users() -> None:
    template = a_template(
        a_container("di-container", env=[{"name": "COORDINATOR_PORT", "value": "1"}, {"name": "MINE", "value": "2"}])
    )

    (container,) = pod_of(a_dijob(coordinator=template))["spec"]["containers"]

    assert env_of(container)["COORDINATOR_PORT"] == "22273"
    assert container["env"][-1] == {"name": "MINE", "value": "2"}


# --- port --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("containers", "port", "ports"),
    [
        pytest.param(
            [a_container("di-container", ports={"di-port": 8080})],
            8080,
            [[{"name": "di-port", "containerPort": 8080}]],
            id="the template names it",
        ),
        pytest.param(
            [a_container("di-container")],
            22273,
            [[{"name": "di-port", "containerPort": 22273}]],
            id="the default is added",
        ),
        pytest.param(
            [a_container("di-container", ports={"web": 80})],
            22273,
            [[{"name": "web", "containerPort": 80}, {"name": "di-port", "containerPort": 22273}]],
            id="another port is no di-port",
        ),
        pytest.param(
            [a_container("shell", ports={"di-port": 1}), a_container("di-container")],
            22273,
            [[{"name": "di-port", "containerPort": 1}], [{"name": "di-port", "containerPort": 22273}]],
            id="a di-port of another container does not count",
        ),
        pytest.param([a_container("coordinator")], 22273, [None], id="without a di-container nothing is added"),
        pytest.param(
            [a_container("shell"), a_container("di-container", ports={"web": 80, "di-port": 8080})],
            8080,
            [None, [{"name": "web", "containerPort": 80}, {"name": "di-port", "containerPort": 8080}]],
            id="second container, second port",
        ),
    ],
)
def test_the_port_is_that_of_di_port_in_di_container(containers: list[Json], port: int, ports: list[Any]) -> None:
    job = a_dijob(coordinator=a_template(*containers))

    found = pod_of(job)["spec"]["containers"]

    assert [container.get("ports") for container in found] == ports
    assert env_of(found[0])["COORDINATOR_PORT"] == str(port)
    assert env_of(found[0])["KUBERNETES_COORDINATOR_URL"] == f"cartpole-coordinator.rl:{port}"
    assert service_of(job)["spec"]["ports"] == [{"name": "di-port", "port": port}]


# --- the rest of the pod -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, "Never", id="left out"),
        pytest.param({"restartPolicy": ""}, "Never", id="left empty"),
        pytest.param({"restartPolicy": None}, "Never", id="null"),
        pytest.param({"restartPolicy": "OnFailure"}, "OnFailure", id="OnFailure"),
        pytest.param({"restartPolicy": "Always"}, "Always", id="Always"),
    ],
)
def test_the_coordinator_is_not_restarted_unless_its_template_says_so(given: Json, expected: str) -> None:
    template = a_template(a_container("di-container"), **given)

    assert pod_of(a_dijob(coordinator=template))["spec"]["restartPolicy"] == expected


@pytest.mark.parametrize(
    ("of_template", "of_job", "expected"),
    [
        pytest.param("low", "high", "high", id="the job's wins"),
        pytest.param("low", "", "low", id="an empty one does not"),
        pytest.param(None, "high", "high", id="the job's alone"),
    ],
)
def test_the_priority_class_of_the_job_is_the_coordinators(of_template: str | None, of_job: str, expected: str) -> None:
    fields: Json = {} if of_template is None else {"priorityClassName": of_template}
    template = a_template(a_container("di-container"), **fields)

    job = a_dijob(coordinator=template, spec={"priorityClassName": of_job})

    assert pod_of(job)["spec"]["priorityClassName"] == expected


def test_a_job_without_a_priority_class_sets_none() -> None:
    assert "priorityClassName" not in pod_of(a_dijob())["spec"]


def test_volumes_of_the_job_come_after_those_of_the_template() -> None:
    mine, shared = {"name": "mine", "emptyDir": {}}, {"name": "shared", "hostPath": {"path": "/data"}}
    template = a_template(a_container("di-container"), volumes=[mine])

    assert pod_of(a_dijob(coordinator=template, spec={"volumes": [shared]}))["spec"]["volumes"] == [mine, shared]
    assert pod_of(a_dijob(spec={"volumes": [shared]}))["spec"]["volumes"] == [shared]
    assert "volumes" not in pod_of(a_dijob())["spec"]


# --- the service -------------------------------------------------------------------------------


def test_the_service_has_the_pods_name_labels_and_owner() -> None:
    template = a_template(a_container("di-container"), labels={"team": "rl"})
    job = a_dijob(coordinator=template)

    body = service_of(job)

    assert (body["apiVersion"], body["kind"]) == ("v1", "Service")
    assert body["metadata"] == {
        "name": "cartpole-coordinator",
        "namespace": "rl",
        "labels": pod_of(job)["metadata"]["labels"],
        "ownerReferences": [OWNER],
    }


def test_the_service_is_headless_and_finds_the_pod_before_it_is_ready() -> None:
    job = a_dijob(coordinator=a_template(a_container("di-container"), labels={"team": "rl"}))

    spec = service_of(job)["spec"]

    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert {"team": "rl"}.items() | LABELS.items() <= spec["selector"].items()
    assert spec["selector"].items() <= pod_of(job)["metadata"]["labels"].items()
