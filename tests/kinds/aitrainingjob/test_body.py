"""Pods, services and discovery of an AITrainingJob (docs/aitrainingjob.md, Environment)."""

from typing import Any

import pytest

from tests.build import Json, a_container, a_replica, a_template, an_aitj, plan_of
from trainmaster.core.ids import POD, SERVICE, Resource

MANAGED_BY = {"app.kubernetes.io/managed-by": "trainmaster"}
OWNER = {
    "apiVersion": "elasticdeeplearning.ai/v1",
    "kind": "AITrainingJob",
    "name": "mnist",
    "uid": "uid-of-mnist",
    "controller": True,
    "blockOwnerDeletion": True,
}


def body_of(job: Json, resource: Resource, name: str) -> Json:
    (body,) = [c.body for c in plan_of(job).creates if c.resource == resource and c.key.name == name]
    return body


def pod_of(job: Json, name: str = "mnist-trainer-0") -> Json:
    return body_of(job, POD, name)


def service_of(job: Json, name: str = "mnist-trainer-0") -> Json:
    return body_of(job, SERVICE, name)


def env_of(container: Json) -> dict[str, Any]:
    assert len({entry["name"] for entry in container["env"]}) == len(container["env"])
    return {entry["name"]: entry["value"] for entry in container["env"]}


def env_of_pod(job: Json, name: str = "mnist-trainer-0") -> dict[str, Any]:
    return env_of(pod_of(job, name)["spec"]["containers"][0])


def a_trainer(*containers: Json, **pod_spec: Any) -> Json:
    return an_aitj(trainer=a_replica(1, a_template(*(containers or (a_container("aitj-main"),)), **pod_spec)))


# --- names, labels, owners ---------------------------------------------------------------------


def test_a_pod_is_named_labelled_and_owned_as_ever() -> None:
    body = pod_of(an_aitj(trainer=2), "mnist-trainer-1")

    assert (body["apiVersion"], body["kind"]) == ("v1", "Pod")
    assert body["metadata"] == {
        "name": "mnist-trainer-1",
        "namespace": "ml",
        "labels": {
            "GroupName": "elasticdeeplearning.ai",
            "TrainingJobName": "mnist",
            "JobName": "mnist",
            "PodRole": "trainer",
            "RestartCount": "0",
            "TrainingJobReplicaName": "trainer",
            "TrainingJobReplicaIndex": "1",
            **MANAGED_BY,
        },
        "ownerReferences": [OWNER],
    }


def test_a_replica_name_in_capitals_is_lower_case_wherever_names_must_be() -> None:
    job = an_aitj(PServer=1)

    body = pod_of(job, "mnist-pserver-0")

    assert body["metadata"]["labels"]["PodRole"] == "pserver"
    assert body["metadata"]["labels"]["TrainingJobReplicaName"] == "pserver"
    assert env_of_pod(job, "mnist-pserver-0")["TRAININGJOB_REPLICA_NAME"] == "pserver"
    assert service_of(job, "mnist-pserver-0")["metadata"]["labels"]["TrainingJobReplicaName"] == "pserver"


def test_labels_are_ours_over_the_templates_over_the_jobs() -> None:
    template = a_template(
        a_container("aitj-main"),
        labels={"a": "template", "PodRole": "template", "b": "template"},
        annotations={"n": "1"},
    )
    labels = {"PodRole": "job", "b": "job", "c": "job"}

    metadata = pod_of(an_aitj(labels=labels, trainer=a_replica(1, template)))["metadata"]

    found = metadata["labels"]
    assert (found["PodRole"], found["a"], found["b"], found["c"]) == ("trainer", "template", "template", "job")
    assert metadata["annotations"] == {"n": "1"}


# --- environment -------------------------------------------------------------------------------


def test_every_pod_is_told_about_every_role_and_about_itself() -> None:
    two_ports = a_template(a_container("aitj-ps", ports={"aitj-a": 7000, "aitj-b": 7001}))
    job = an_aitj(trainer=2, ps=a_replica(2, two_ports))

    assert env_of_pod(job, "mnist-trainer-1") == {
        "PS_INSTANCES": "mnist-ps-0.ml,mnist-ps-1.ml",
        "PS_INSTANCES_NUM": "2",
        "PS_PORTS": "7000,7001",
        "PS_PORTS_NUM": "2",
        "PS_HOSTS": "mnist-ps-0.ml:7000,mnist-ps-0.ml:7001,mnist-ps-1.ml:7000,mnist-ps-1.ml:7001",
        "PS_HOSTS_NUM": "4",
        "PS_0_ADDRESS": "mnist-ps-0.ml",
        "PS_0_PORT": "7000",
        "TRAINER_INSTANCES": "mnist-trainer-0.ml,mnist-trainer-1.ml",
        "TRAINER_INSTANCES_NUM": "2",
        "TRAINER_PORTS": "24446",
        "TRAINER_PORTS_NUM": "1",
        "TRAINER_HOSTS": "mnist-trainer-0.ml:24446,mnist-trainer-1.ml:24446",
        "TRAINER_HOSTS_NUM": "2",
        "TRAINER_0_ADDRESS": "mnist-trainer-0.ml",
        "TRAINER_0_PORT": "24446",
        "TRAININGJOB_REPLICA_NAME": "trainer",
        "TRAININGJOB_REPLICA_TYPE": "trainer",
        "TRAININGJOB_REPLICA_INDEX": "1",
        "TRAININGJOB_REPLICA_RESTARTCOUNT": "0",
        "TRAININGJOB_SERVICE": "mnist-trainer-1.ml",
        "TRAININGJOB_NAME": "mnist",
        "TRAININGJOB_NAMESPACE": "ml",
        "TRAININGJOB_PORTS": "24446",
    }


def test_a_role_without_ports_has_empty_lists() -> None:
    env = env_of_pod(a_trainer())

    assert (env["TRAINER_PORTS"], env["TRAINER_PORTS_NUM"]) == ("", "0")
    assert (env["TRAINER_HOSTS"], env["TRAINER_HOSTS_NUM"]) == ("", "0")
    assert env["TRAINER_INSTANCES_NUM"] == "1"
    assert (env["TRAINER_0_ADDRESS"], env["TRAINER_0_PORT"]) == ("mnist-trainer-0.ml", "")


def test_a_role_without_replicas_has_no_instances() -> None:
    env = env_of_pod(an_aitj(trainer=1, ps=0))

    assert (env["PS_INSTANCES"], env["PS_INSTANCES_NUM"], env["PS_HOSTS_NUM"]) == ("", "0", "0")
    assert (env["PS_0_ADDRESS"], env["PS_0_PORT"]) == ("", "24446")


def test_instances_are_the_names_that_the_services_really_have() -> None:
    job = an_aitj(PServer=2)

    assert env_of_pod(job, "mnist-pserver-0")["PSERVER_INSTANCES"] == "mnist-pserver-0.ml,mnist-pserver-1.ml"


def test_a_name_with_a_dash_is_given_as_it_was_and_as_a_shell_can_read_it() -> None:
    env = env_of_pod(an_aitj(roles={"my-ps": 1}), "mnist-my-ps-0")

    for word in ("INSTANCES", "INSTANCES_NUM", "PORTS", "PORTS_NUM", "HOSTS", "HOSTS_NUM", "0_ADDRESS", "0_PORT"):
        assert env[f"MY-PS_{word}"] == env[f"MY_PS_{word}"] != ""


def test_ports_are_published_when_container_and_port_have_the_prefix() -> None:
    job = a_trainer(
        a_container("aitj-a", ports={"aitj-1": 1001, "web": 80}),
        a_container("proxy", ports={"aitj-2": 1002}),
        a_container("aitj-b", ports={"aitj-3": 1003, "aitj-4": 1004}),
    )

    a, proxy, b = (env_of(container) for container in pod_of(job)["spec"]["containers"])

    assert (a["TRAININGJOB_PORTS"], proxy["TRAININGJOB_PORTS"], b["TRAININGJOB_PORTS"]) == ("1001", "", "1003,1004")
    assert a["TRAINER_PORTS"] == proxy["TRAINER_PORTS"] == "1001,1003,1004"
    assert service_of(job)["spec"]["ports"] == [
        {"name": "aitj-1001", "port": 1001},
        {"name": "aitj-1003", "port": 1003},
        {"name": "aitj-1004", "port": 1004},
    ]


def test_init_containers_get_the_environment_without_ports_of_their_own() -> None:
    job = a_trainer(a_container("aitj-main", ports={"aitj-1": 1}), initContainers=[a_container("aitj-init")])

    spec = pod_of(job)["spec"]
    main, init = env_of(spec["containers"][0]), env_of(spec["initContainers"][0])

    assert init == {name: value for name, value in main.items() if name != "TRAININGJOB_PORTS"}


def test_our_variables_stand_before_the_users_which_may_refer_to_them() -> None:
    rank = {"name": "RANK", "value": "$(TRAININGJOB_REPLICA_INDEX)"}
    mine = [rank, {"name": "TRAININGJOB_NAME", "value": "mine"}]
    job = a_trainer(a_container("aitj-main", env=mine))

    (container,) = pod_of(job)["spec"]["containers"]

    assert container["env"][-1] == rank
    assert env_of(container)["TRAININGJOB_NAME"] == "mnist"


def test_the_order_of_the_environment_does_not_depend_on_the_order_of_the_roles() -> None:
    one, other = an_aitj(ps=1, trainer=1), an_aitj(trainer=1, ps=1)

    assert pod_of(one)["spec"]["containers"] == pod_of(other)["spec"]["containers"]


# --- the rest of the pod -----------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"restartPolicy": "Always"}, {"restartPolicy": "OnFailure"}], ids=str)
def test_the_kubelet_never_restarts_a_pod(given: Json) -> None:
    assert pod_of(a_trainer(**given))["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("of_job", "of_template", "expected"),
    [
        pytest.param("volcano", {}, "volcano", id="the job's"),
        pytest.param("volcano", {"schedulerName": "mine"}, "volcano", id="the job's over the template's"),
        pytest.param("", {"schedulerName": "mine"}, "mine", id="the template's"),
        pytest.param("", {}, None, id="none"),
    ],
)
def test_the_scheduler_of_the_job_is_that_of_its_pods(of_job: str, of_template: Json, expected: str | None) -> None:
    replica = a_replica(1, a_template(a_container("aitj-main"), **of_template))
    job = an_aitj(spec={"schedulerName": of_job}, trainer=replica)

    assert pod_of(job)["spec"].get("schedulerName") == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, None, id="its own network"),
        pytest.param({"hostNetwork": False}, None, id="not the host's network"),
        pytest.param({"hostNetwork": True}, "ClusterFirstWithHostNet", id="the host's network"),
        pytest.param({"hostNetwork": True, "dnsPolicy": ""}, "ClusterFirstWithHostNet", id="a policy left empty"),
        pytest.param({"hostNetwork": True, "dnsPolicy": "Default"}, "Default", id="the user's own choice"),
    ],
)
def test_a_pod_on_the_hosts_network_still_resolves_services(given: Json, expected: str | None) -> None:
    assert pod_of(a_trainer(**given))["spec"].get("dnsPolicy") == expected


def test_volumes_and_all_else_in_the_template_are_left_alone() -> None:
    fields = {"volumes": [{"name": "data", "emptyDir": {}}], "nodeSelector": {"gpu": "yes"}, "priorityClassName": "p"}

    spec = pod_of(a_trainer(**fields))["spec"]

    assert {key: spec[key] for key in fields} == fields


# --- services ----------------------------------------------------------------------------------


def test_the_service_of_a_pod_has_its_name_and_selects_its_slot() -> None:
    slot = {
        "GroupName": "elasticdeeplearning.ai",
        "TrainingJobName": "mnist",
        "TrainingJobReplicaName": "trainer",
        "TrainingJobReplicaIndex": "1",
    }

    assert service_of(an_aitj(trainer=2), "mnist-trainer-1") == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "mnist-trainer-1",
            "namespace": "ml",
            "labels": slot | MANAGED_BY,
            "ownerReferences": [OWNER],
        },
        "spec": {
            "clusterIP": "None",
            "selector": slot,
            "publishNotReadyAddresses": True,
            "ports": [{"name": "aitj-24446", "port": 24446}],
        },
    }


@pytest.mark.parametrize(
    ("containers", "published"),
    [
        pytest.param([a_container("aitj-main")], [], id="a training container needs no port"),
        pytest.param([a_container("main", ports={"aitj-1": 1})], [1], id="a container without the prefix"),
        pytest.param([a_container("main", ports={"": 1, "web": 2})], [1, 2], id="ports without the prefix"),
        pytest.param([a_container("aitj-main", ports={"web": 2})], [2], id="prefixed container, port without"),
        pytest.param([a_container("aitj-main", ports={"aitj-1": 1, "web": 2})], [1], id="one of the ports is prefixed"),
        pytest.param([a_container("a", ports={"x": 1}), a_container("b", ports={"y": 2})], [1, 2], id="two without"),
        pytest.param([a_container("aitj-a"), a_container("b", ports={"aitj-2": 2})], [], id="the port of a side-car"),
    ],
)
def test_every_replica_has_a_service_with_the_ports_that_are_published(
    containers: list[Json], published: list[int]
) -> None:
    job = a_trainer(*containers)

    assert [port["port"] for port in service_of(job)["spec"].get("ports", ())] == published
    assert env_of(pod_of(job)["spec"]["containers"][0])["TRAINER_PORTS"] == ",".join(map(str, published))


def test_a_side_car_is_told_no_ports_of_its_own() -> None:
    job = a_trainer(a_container("aitj-a", ports={"aitj-1": 1}), a_container("b", ports={"web": 2}))

    told = {c["name"]: env_of(c)["TRAININGJOB_PORTS"] for c in pod_of(job)["spec"]["containers"]}

    assert told == {"aitj-a": "1", "b": ""}


def test_a_port_that_two_containers_name_is_published_once() -> None:
    job = a_trainer(a_container("aitj-a", ports={"aitj-1": 1}), a_container("aitj-b", ports={"aitj-x": 1}))

    assert service_of(job)["spec"]["ports"] == [{"name": "aitj-1", "port": 1}]
