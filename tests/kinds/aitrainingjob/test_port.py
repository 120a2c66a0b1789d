"""Ports of an AITrainingJob whose pods share a network: where they come from, and that everybody says the same."""

from typing import Any

import msgspec
import pytest

from tests.build import (
    SETTINGS,
    Child,
    Json,
    a_container,
    a_pod,
    a_replica,
    a_template,
    an_aitj,
    names_of,
    plan_of,
    pod_json,
    services_of,
    view_of_pod,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.plan import Plan
from trainmaster.kinds.base import Settings
from trainmaster.lifecycle.port import FIRST, LAST

LOCAL = Settings(shared_network=True)
RANGE = range(FIRST, LAST + 1)


def a_host_replica(replicas: int = 1, *containers: Json, **pod_spec: Any) -> Json:
    main = containers or (a_container("aitj-main", ports={"aitj-24446": 24446}),)
    return a_replica(replicas, a_template(*main, hostNetwork=True, **pod_spec))


def numbers(plan_or_job: Plan | Json) -> dict[str, dict[str, int]]:
    status = plan_or_job.status if isinstance(plan_or_job, Plan) else plan_or_job["status"]
    assert status is not None
    found: dict[str, dict[str, int]] = status["ports"]
    return found


def ported(job: Json, ports: dict[str, dict[str, int]], settings: Settings = SETTINGS) -> Plan:
    """The plan for the job that has these ports on record."""
    return plan_of(with_status(job, {"phase": "Pending", "ports": ports}), settings=settings)


def body_of(plan: Plan, name: str, resource: Any = POD) -> Json:
    (body,) = [c.body for c in plan.creates if c.resource == resource and c.key.name == name]
    return body


def env_of(plan: Plan, name: str, container: int = 0) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in body_of(plan, name)["spec"]["containers"][container]["env"]}


TWO = {"ps-0": {"7000": 20001}, "trainer-0": {"24446": 20002}, "trainer-1": {"24446": 20003}}


def two_roles() -> Json:
    return an_aitj(ps=a_host_replica(1, a_container("aitj-ps", ports={"aitj-7000": 7000})), trainer=a_host_replica(2))


# --- first the status, then the pods -------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        pytest.param(an_aitj(trainer=a_host_replica(3)), SETTINGS, id="hostNetwork"),
        pytest.param(an_aitj(trainer=3), LOCAL, id="one machine"),
    ],
)
def test_ports_are_stored_before_any_pod_is_created(job: Json, settings: Settings) -> None:
    plan = plan_of(job, settings=settings)

    assert (plan.creates, plan.status_first) == ((), True)
    assert sorted(numbers(plan)) == ["trainer-0", "trainer-1", "trainer-2"]
    assert sorted(plan.ports) == sorted(given["24446"] for given in numbers(plan).values())
    assert len(set(plan.ports)) == 3

    then = plan_of(with_status(job, plan), settings=settings)
    assert names_of(then.creates, POD) == ["mnist-trainer-0", "mnist-trainer-1", "mnist-trainer-2"]
    assert (then.status_first, then.ports) == (False, ())


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        pytest.param(an_aitj(trainer=3), SETTINGS, id="a network for each pod"),
        pytest.param(an_aitj(trainer=a_host_replica(1, a_container("aitj-main"))), SETTINGS, id="no port"),
        pytest.param(
            an_aitj(trainer=a_host_replica(1, a_container("main", ports={"web": 1}))), SETTINGS, id="not of the prefix"
        ),
        pytest.param(an_aitj(trainer=a_replica(1, a_template(a_container("aitj-main")))), LOCAL, id="no port here"),
    ],
)
def test_who_needs_no_port_is_created_at_once(job: Json, settings: Settings) -> None:
    plan = plan_of(job, settings=settings)

    assert plan.creates
    assert plan.status is not None
    assert ("ports" in plan.status, plan.status_first, plan.ports) == (False, False, ())


def test_only_the_roles_on_the_host_get_ports() -> None:
    plan = plan_of(an_aitj(ps=2, trainer=a_host_replica(1)))

    assert list(numbers(plan)) == ["trainer-0"]


def test_what_is_taken_and_what_the_job_itself_declares_is_not_given() -> None:
    first = plan_of(an_aitj(trainer=a_host_replica(2))).ports
    side = a_container("side-car", ports={"web": first[1]})
    job = an_aitj(trainer=a_host_replica(2, a_container("aitj-main", ports={"aitj-1": 1}), side))

    assert not set(plan_of(job, taken=[first[0]]).ports) & set(first)


def test_a_job_that_grows_keeps_its_ports_and_gets_the_missing_one_before_its_pod() -> None:
    job = with_status(an_aitj(trainer=a_host_replica(1)), plan_of(an_aitj(trainer=a_host_replica(1))))
    before = numbers(job)
    children = [a_pod(job, "trainer"), *services_of(job)]

    grown = with_spec(job, replicaSpecs={"trainer": a_host_replica(2)})
    plan = plan_of(grown, children, taken=[before["trainer-0"]["24446"]])

    assert numbers(plan)["trainer-0"] == before["trainer-0"]
    assert plan.ports == (numbers(plan)["trainer-1"]["24446"],)
    assert (plan.creates, plan.status_first) == ((), True)


def test_a_pod_that_comes_again_has_the_port_that_it_had() -> None:
    job = with_status(an_aitj(trainer=a_host_replica(2)), plan_of(an_aitj(trainer=a_host_replica(2))))
    children: list[Child] = [a_pod(job, "trainer", 0), *services_of(job)]

    plan = plan_of(job, children)

    (given,) = body_of(plan, "mnist-trainer-1")["spec"]["containers"][0]["ports"]
    assert given["containerPort"] == numbers(job)["trainer-1"]["24446"]


def test_pods_that_another_operator_made_keep_the_ports_that_they_listen_on() -> None:
    job = an_aitj(trainer=a_host_replica(2))
    pod = pod_json(job, "trainer", 0)
    pod["spec"]["containers"] = [{"name": "aitj-main", "ports": [{"containerPort": 24446, "hostPort": 24446}]}]

    plan = plan_of(job, [view_of_pod(pod)])

    assert numbers(plan)["trainer-0"] == {"24446": 24446}
    assert len(plan.ports) == 1


@pytest.mark.parametrize("clean", ["None", "All"])
def test_an_ended_job_has_no_ports_any_more(clean: str) -> None:
    status = {"phase": "Running", "ports": {"trainer-0": {"24446": 20001}}}
    job = an_aitj(trainer=a_host_replica(1), clean=clean, status=status)
    plan = plan_of(job, [a_pod(job, "trainer", exit_code=0)])
    if clean == "All":
        assert numbers(plan) == status["ports"]  # until the pods are gone
        plan = plan_of(with_status(job, plan))

    assert plan.status is not None
    assert (plan.status["phase"], plan.status.get("ports")) == ("Succeed", None)


# --- when nothing is left ------------------------------------------------------------------------


def lack_of(plan: Plan) -> tuple[str, str, str]:
    """Status, reason and message of the condition about pods that could not be created."""
    assert plan.status is not None
    (condition,) = [c for c in plan.status["conditions"] if c["type"] == "PodCreateFailed"]
    return condition["status"], condition["reason"], condition["message"]


def test_on_one_machine_a_job_without_a_free_port_waits_and_says_why() -> None:
    plan = plan_of(an_aitj(trainer=2), taken=RANGE, settings=LOCAL)

    status, reason, message = lack_of(plan)
    assert (status, reason) == ("True", "NoFreePort")
    assert "is free for port 24446 of trainer-0" in message
    assert (plan.creates, plan.ports, plan.status_first, plan.requeue_after) == ((), (), False, 30.0)


def test_on_a_cluster_a_job_gets_ports_although_other_jobs_have_all_of_them() -> None:
    plan = plan_of(an_aitj(trainer=a_host_replica(2)), taken=RANGE)

    assert len(set(plan.ports)) == 2
    assert set(plan.ports) <= set(RANGE)
    assert plan.status_first


@pytest.mark.parametrize(
    ("replicas", "others", "says"),
    [
        pytest.param(5000, 0, "the job needs 10000 host ports, and a job may have 1000 ", id="of-a-job"),
        pytest.param(500, 1001, "other jobs of its namespace have 1001, and a namespace may have 2000 ", id="of-both"),
    ],
)
def test_a_job_beyond_its_quota_of_ports_takes_none_and_says_why(replicas: int, others: int, says: str) -> None:
    job = an_aitj("j", namespace="n", roles={"a": a_host_replica(replicas), "b": a_host_replica(replicas)})

    plan = plan_of(job, namespace_ports=others)

    status, reason, message = lack_of(plan)
    assert (status, reason) == ("True", "PortQuotaExceeded")
    assert says in message
    assert plan.status is not None
    assert (plan.creates, plan.ports, plan.status.get("ports")) == ((), (), None)


def test_a_job_that_has_its_ports_keeps_them_whatever_the_quota_is() -> None:
    strict = msgspec.structs.replace(SETTINGS, max_host_ports_per_job=1, max_host_ports_per_namespace=1)

    plan = ported(two_roles(), TWO, strict)

    assert names_of(plan.creates, POD) == ["mnist-ps-0", "mnist-trainer-0", "mnist-trainer-1"]


def test_the_complaint_is_taken_back_when_the_pods_are_there() -> None:
    job = an_aitj(trainer=a_host_replica(1))
    waiting = with_status(job, plan_of(job, namespace_ports=2000))
    assert plan_of(waiting, namespace_ports=2000).status is None  # said once

    given = with_status(waiting, plan_of(waiting))
    plan = plan_of(given, [a_pod(job, "trainer"), *services_of(job)])

    assert plan.status is not None
    (condition,) = [c for c in plan.status["conditions"] if c["type"] == "PodCreateFailed"]
    assert condition["status"] == "False"


def test_a_job_that_waits_for_a_port_still_ends() -> None:
    job = an_aitj(trainer=a_host_replica(2), complete="Any", status={"phase": "Running"})

    plan = plan_of(job, [a_pod(job, "trainer", 0, exit_code=1)], namespace_ports=2000)

    assert plan.status is not None
    assert plan.status["phase"] == "Terminating"


# --- everybody says the same ---------------------------------------------------------------------


def test_the_container_has_the_port_under_the_users_name() -> None:
    pod = body_of(ported(two_roles(), TWO), "mnist-trainer-1")

    assert pod["spec"]["containers"][0]["ports"] == [{"name": "aitj-24446", "containerPort": 20003, "hostPort": 20003}]


def test_in_local_mode_the_port_is_one_of_the_machine_too() -> None:
    pod = body_of(ported(an_aitj(), {"trainer-0": {"24446": 20003}}, LOCAL), "mnist-trainer-0")

    assert pod["spec"]["containers"][0]["ports"] == [{"name": "aitj-24446", "containerPort": 20003, "hostPort": 20003}]
    assert "hostNetwork" not in pod["spec"]


def test_a_role_that_left_the_host_keeps_its_number_and_no_more() -> None:
    pod = body_of(ported(an_aitj(), {"trainer-0": {"24446": 20003}}), "mnist-trainer-0")

    assert pod["spec"]["containers"][0]["ports"] == [{"name": "aitj-24446", "containerPort": 20003}]


def test_the_service_publishes_the_port_that_the_pod_has() -> None:
    service = body_of(ported(two_roles(), TWO), "mnist-trainer-1", SERVICE)

    assert service["spec"]["ports"] == [{"name": "aitj-24446", "port": 20003}]


def test_the_environment_names_the_port_of_every_instance() -> None:
    env = env_of(ported(two_roles(), TWO), "mnist-trainer-0")

    assert env["TRAINER_HOSTS"] == "mnist-trainer-0.ml:20002,mnist-trainer-1.ml:20003"
    assert env["PS_HOSTS"] == "mnist-ps-0.ml:20001"
    assert (env["TRAINER_HOSTS_NUM"], env["TRAINER_PORTS_NUM"]) == ("2", "1")


@pytest.mark.parametrize(
    ("pod", "trainer", "ps", "own"),
    [
        pytest.param("mnist-trainer-0", "20002", "20001", "20002", id="trainer-0"),
        pytest.param("mnist-trainer-1", "20003", "20001", "20003", id="its own, not that of instance 0"),
        pytest.param("mnist-ps-0", "20002", "20001", "20001", id="of another role that of instance 0"),
    ],
)
def test_a_pod_is_told_its_own_ports(pod: str, trainer: str, ps: str, own: str) -> None:
    env = env_of(ported(two_roles(), TWO), pod)

    assert (env["TRAINER_PORTS"], env["PS_PORTS"], env["TRAININGJOB_PORTS"]) == (trainer, ps, own)
    assert (env["TRAINER_0_PORT"], env["PS_0_PORT"]) == ("20002", "20001")


def test_a_name_with_a_dash_has_its_own_ports_in_both_spellings() -> None:
    job = an_aitj(roles={"my-ps": a_host_replica(2)})
    ports = {"my-ps-0": {"24446": 20001}, "my-ps-1": {"24446": 20002}}

    env = env_of(ported(job, ports), "mnist-my-ps-1")

    assert env["MY-PS_PORTS"] == env["MY_PS_PORTS"] == "20002"


def test_other_ports_and_other_containers_stay_as_they_are() -> None:
    containers = [
        a_container("aitj-main", ports={"aitj-1": 1001, "web": 80}),
        a_container("proxy", ports={"aitj-2": 1001}),
        a_container("bare"),
    ]
    job = an_aitj(trainer=a_host_replica(1, *containers))

    main, proxy, bare = body_of(ported(job, {"trainer-0": {"1001": 20001}}), "mnist-trainer-0")["spec"]["containers"]

    assert main["ports"] == [
        {"name": "aitj-1", "containerPort": 20001, "hostPort": 20001},
        {"name": "web", "containerPort": 80},
    ]
    assert proxy["ports"] == [{"name": "aitj-2", "containerPort": 1001}]
    assert "ports" not in bare


def test_a_host_port_that_the_user_wrote_follows() -> None:
    port = {"name": "aitj-1", "containerPort": 1001, "hostPort": 1001, "protocol": "TCP"}
    job = an_aitj(trainer=a_host_replica(1, {**a_container("aitj-main"), "ports": [port]}))

    (main,) = body_of(ported(job, {"trainer-0": {"1001": 20001}}), "mnist-trainer-0")["spec"]["containers"]

    assert main["ports"] == [{"name": "aitj-1", "containerPort": 20001, "hostPort": 20001, "protocol": "TCP"}]
