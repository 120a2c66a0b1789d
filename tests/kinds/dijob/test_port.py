"""The port of a coordinator that shares a network."""

from typing import Any

import pytest

from tests.build import SETTINGS, Json, a_container, a_dijob, a_pod, a_service, a_template, plan_of, with_status
from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.plan import Plan
from trainmaster.kinds.base import Settings
from trainmaster.lifecycle.port import FIRST, LAST

LOCAL = Settings(shared_network=True)


def a_host_job(*containers: Json, **pod_spec: Any) -> Json:
    return a_dijob(
        coordinator=a_template(*(containers or (a_container("di-container"),)), hostNetwork=True, **pod_spec)
    )


def numbers(plan: Plan) -> dict[str, dict[str, int]]:
    assert plan.status is not None
    found: dict[str, dict[str, int]] = plan.status["ports"]
    return found


def body_of(plan: Plan, resource: Any = POD) -> Json:
    (body,) = [create.body for create in plan.creates if create.resource == resource]
    return body


@pytest.mark.parametrize(
    ("job", "settings", "declared"),
    [
        pytest.param(a_host_job(), SETTINGS, "22273", id="hostNetwork"),
        pytest.param(a_dijob(), LOCAL, "22273", id="one machine"),
        pytest.param(a_host_job(a_container("di-container", ports={"di-port": 8080})), SETTINGS, "8080", id="its own"),
    ],
)
def test_the_port_is_stored_before_the_coordinator_is_created(job: Json, settings: Settings, declared: str) -> None:
    plan = plan_of(job, settings=settings)

    (number,) = plan.ports
    assert numbers(plan) == {"coordinator": {declared: number}}
    assert FIRST <= number <= LAST
    assert (plan.creates, plan.status_first) == ((), True)
    assert [event.reason for event in plan.events] == ["DIJobCreated"]

    then = plan_of(with_status(job, plan), settings=settings)
    assert [create.resource for create in then.creates] == [SERVICE, POD]
    assert (then.status_first, then.ports) == (False, ())


def test_a_coordinator_with_a_network_of_its_own_has_its_declared_port() -> None:
    plan = plan_of(a_dijob())

    assert plan.creates
    assert plan.status is not None
    assert ("ports" in plan.status, plan.ports) == (False, ())


def test_pod_service_and_environment_agree() -> None:
    job = with_status(a_host_job(), {"phase": "Created", "ports": {"coordinator": {"22273": 20001}}})

    plan = plan_of(job)

    (main,) = body_of(plan)["spec"]["containers"]
    env = {entry["name"]: entry["value"] for entry in main["env"]}
    assert main["ports"] == [{"name": "di-port", "containerPort": 20001, "hostPort": 20001}]
    assert env["COORDINATOR_PORT"] == "20001"
    assert env["KUBERNETES_COORDINATOR_URL"] == "cartpole-coordinator.rl:20001"
    assert body_of(plan, SERVICE)["spec"]["ports"] == [{"name": "di-port", "port": 20001}]


def test_other_ports_and_other_containers_stay_as_they_are() -> None:
    job = a_host_job(
        a_container("di-container", ports={"web": 80, "di-port": 8080}), a_container("shell", ports={"di-port": 8080})
    )
    job = with_status(job, {"phase": "Created", "ports": {"coordinator": {"8080": 20001}}})

    main, shell = body_of(plan_of(job))["spec"]["containers"]

    assert main["ports"] == [
        {"name": "web", "containerPort": 80},
        {"name": "di-port", "containerPort": 20001, "hostPort": 20001},
    ]
    assert shell["ports"] == [{"name": "di-port", "containerPort": 8080}]


def test_in_local_mode_the_port_is_one_of_the_machine_too() -> None:
    job = with_status(a_dijob(), {"phase": "Created", "ports": {"coordinator": {"22273": 20001}}})

    (main,) = body_of(plan_of(job, settings=LOCAL))["spec"]["containers"]

    assert main["ports"] == [{"name": "di-port", "containerPort": 20001, "hostPort": 20001}]


def test_what_is_taken_and_what_the_coordinator_itself_declares_is_not_given() -> None:
    (first,) = plan_of(a_host_job()).ports
    main, side = a_container("di-container"), a_container("side-car", ports={"web": first + 1})

    assert plan_of(a_host_job(main, side), taken=[first]).ports == (first + 2,)


def test_a_port_once_stored_stays() -> None:
    job = with_status(a_host_job(), plan_of(a_host_job()))

    plan = plan_of(job, [a_pod(job, "coordinator"), a_service(job, "coordinator")], taken=range(FIRST, LAST + 1))

    assert numbers(plan) == job["status"]["ports"]
    assert plan.ports == ()


def test_on_one_machine_a_job_without_a_free_port_waits_and_says_why() -> None:
    plan = plan_of(a_dijob(), settings=LOCAL, taken=range(FIRST, LAST + 1))

    assert plan.status is not None
    (condition,) = [c for c in plan.status["conditions"] if c["type"] == "PodCreateFailed"]
    assert (condition["status"], condition["reason"]) == ("True", "NoFreePort")
    assert "is free for port 22273 of coordinator" in condition["message"]
    assert (plan.creates, plan.status_first, plan.requeue_after) == ((), False, 30.0)


def test_an_ended_job_has_no_port_any_more() -> None:
    job = with_status(a_host_job(), {"phase": "Running", "ports": {"coordinator": {"22273": 20001}}})

    plan = plan_of(job, [a_pod(job, "coordinator", exit_code=0)])

    assert plan.status is not None
    assert (plan.status["phase"], plan.status.get("ports")) == ("Succeeded", None)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, None, id="its own network"),
        pytest.param({"hostNetwork": True}, "ClusterFirstWithHostNet", id="the host's network"),
        pytest.param({"hostNetwork": True, "dnsPolicy": "Default"}, "Default", id="the user's own choice"),
    ],
)
def test_a_coordinator_on_the_hosts_network_still_resolves_services(given: Json, expected: str | None) -> None:
    job = a_dijob(coordinator=a_template(a_container("di-container"), **given))
    job = with_status(job, {"phase": "Created", "ports": {"coordinator": {"22273": 20001}}})

    assert body_of(plan_of(job))["spec"].get("dnsPolicy") == expected
