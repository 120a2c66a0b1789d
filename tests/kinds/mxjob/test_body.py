"""Pods and services of an MXJob as Kubeflow's users know them (docs/mxjob.md, What a pod gets)."""

from typing import Any

import pytest

from tests.build import (
    SETTINGS,
    Json,
    a_container,
    a_template,
    an_mx_replica,
    an_mxjob,
    names_of,
    owner_reference,
    plan_of,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE
from trainmaster.kinds.base import Settings

LOCAL = Settings(shared_network=True)

TUNING: dict[str, Any] = {"TunerTracker": 1, "TunerServer": 2, "Tuner": 1}


def created(job: Json, settings: Settings = SETTINGS) -> dict[tuple[str, str], Json]:
    """What the first pass makes, by kind and name without that of the job."""
    plan = plan_of(job, settings=settings)
    prefix = f"{job['metadata']['name']}-"
    return {(c.resource.kind, c.key.name.removeprefix(prefix)): c.body for c in plan.creates}


def main_of(pod: Json) -> Json:
    found: Json = next(c for c in pod["spec"]["containers"] if c["name"] == "mxnet")
    return found


def env_of(container: Json) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", ())}


def test_every_replica_has_a_pod_and_a_service_of_its_name() -> None:
    plan = plan_of(an_mxjob())

    names = ["mnist-scheduler-0", "mnist-server-0", "mnist-worker-0", "mnist-worker-1"]
    assert names_of(plan.creates, SERVICE) == names
    assert names_of(plan.creates, POD) == names


def test_services_come_before_pods() -> None:
    kinds = [create.resource for create in plan_of(an_mxjob()).creates]

    assert kinds == [SERVICE] * 4 + [POD] * 4


def test_names_are_lower_case_however_the_roles_are_written() -> None:
    job = an_mxjob(scheduler=1, SERVER=1, Worker=1)

    assert names_of(plan_of(job).creates, POD) == ["mnist-scheduler-0", "mnist-server-0", "mnist-worker-0"]


def test_mx_config_is_the_text_that_the_training_operator_wrote() -> None:
    worker = main_of(created(an_mxjob())["Pod", "worker-1"])

    assert env_of(worker)["MX_CONFIG"] == (
        '{"cluster":{"scheduler":[{"url":"mnist-scheduler-0","port":9091}],'
        '"server":[{"url":"mnist-server-0","port":9091}],'
        '"worker":[{"url":"mnist-worker-0","port":9091},{"url":"mnist-worker-1","port":9091}]},'
        '"labels":{"scheduler":"","server":"","worker":""},'
        '"task":{"type":"worker","index":1}}'
    )


def test_the_keys_of_mx_config_are_sorted() -> None:
    tracker = main_of(created(an_mxjob(mode="MXTune", **TUNING))["Pod", "tunertracker-0"])

    assert env_of(tracker)["MX_CONFIG"].startswith('{"cluster":{"tuner":[')
    assert '"labels":{"tuner":"","tunerserver":"","tunertracker":""}' in env_of(tracker)["MX_CONFIG"]


def test_the_variables_of_ps_lite_stand_in_their_order_before_those_of_the_user() -> None:
    template = a_template(a_container("mxnet", env=[{"name": "SEED", "value": "7"}]))
    job = an_mxjob(Scheduler=1, Server=2, Worker=an_mx_replica(3, template))

    worker = main_of(created(job)["Pod", "worker-2"])

    assert [entry["name"] for entry in worker["env"]] == [
        "DMLC_NODE_HOST",
        "MX_CONFIG",
        "DMLC_PS_ROOT_PORT",
        "DMLC_PS_ROOT_URI",
        "DMLC_NUM_SERVER",
        "DMLC_NUM_WORKER",
        "DMLC_ROLE",
        "DMLC_USE_KUBERNETES",
        "DMLC_WORKER_ID",
        "SEED",
    ]
    assert env_of(worker) | {"MX_CONFIG": ""} == {
        "SEED": "7",
        "MX_CONFIG": "",
        "DMLC_PS_ROOT_PORT": "9091",
        "DMLC_PS_ROOT_URI": "mnist-scheduler-0",
        "DMLC_NUM_SERVER": "2",
        "DMLC_NUM_WORKER": "3",
        "DMLC_ROLE": "worker",
        "DMLC_USE_KUBERNETES": "1",
        "DMLC_WORKER_ID": "2",
        "DMLC_NODE_HOST": {"fieldRef": {"fieldPath": "status.podIP"}},
    }


@pytest.mark.parametrize("role", ["scheduler", "server"])
def test_only_workers_have_a_number(role: str) -> None:
    env = env_of(main_of(created(an_mxjob())["Pod", f"{role}-0"]))

    assert env["DMLC_ROLE"] == role
    assert "DMLC_WORKER_ID" not in env


@pytest.mark.parametrize("name", ["DMLC_NODE_HOST", "DMLC_INTERFACE"])
def test_who_says_which_address_to_use_is_not_contradicted(name: str) -> None:
    template = a_template(a_container("mxnet", env=[{"name": name, "value": "eth1"}]))

    worker = main_of(created(an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(1, template)))["Pod", "worker-0"])

    assert env_of(worker)[name] == "eth1"
    assert "DMLC_NODE_HOST" not in set(env_of(worker)) - {name}


def test_without_a_scheduler_its_address_is_empty() -> None:
    env = env_of(main_of(created(an_mxjob(mode="MXTune", **TUNING))["Pod", "tuner-0"]))

    assert (env["DMLC_PS_ROOT_PORT"], env["DMLC_PS_ROOT_URI"]) == ("0", "")
    assert (env["DMLC_NUM_SERVER"], env["DMLC_NUM_WORKER"], env["DMLC_ROLE"]) == ("0", "0", "tuner")
    assert "DMLC_NODE_HOST" not in env


def test_ours_win_over_the_same_name_of_the_user() -> None:
    template = a_template(a_container("mxnet", env=[{"name": "DMLC_ROLE", "value": "boss"}]))

    worker = main_of(created(an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(1, template)))["Pod", "worker-0"])

    assert [entry for entry in worker["env"] if entry["name"] == "DMLC_ROLE"] == [
        {"name": "DMLC_ROLE", "value": "worker"}
    ]


def test_side_cars_and_init_containers_read_the_cluster_but_have_no_role() -> None:
    template = a_template(a_container("mxnet"), a_container("logs"), initContainers=[a_container("wait")])

    pod = created(an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(1, template)))["Pod", "worker-0"]

    beside = [pod["spec"]["containers"][1], *pod["spec"]["initContainers"]]
    assert [[entry["name"] for entry in container["env"]] for container in beside] == [["MX_CONFIG"], ["MX_CONFIG"]]


@pytest.mark.parametrize(
    "fields",
    [
        {"template": a_template(a_container("mxnet"), annotations={"tuner-server-key": "rasp3b"})},
        {"label": "rasp3b"},
        {"label": "old", "template": a_template(a_container("mxnet"), annotations={"tuner-server-key": "rasp3b"})},
    ],
    ids=["annotation", "label", "annotation-before-label"],
)
def test_the_key_of_a_tuner_server_is_an_annotation_or_a_label(fields: Json) -> None:
    job = an_mxjob(mode="MXTune", TunerTracker=1, TunerServer=an_mx_replica(**fields), Tuner=1)

    env = env_of(main_of(created(job)["Pod", "tuner-0"]))

    assert '"labels":{"tuner":"","tunerserver":"rasp3b","tunertracker":""}' in env["MX_CONFIG"]


def test_the_main_container_has_our_port() -> None:
    assert main_of(created(an_mxjob())["Pod", "worker-0"])["ports"] == [{"name": "mxjob-port", "containerPort": 9091}]


def test_a_port_of_our_name_stays_what_the_template_says() -> None:
    template = a_template(a_container("mxnet", ports={"mxjob-port": 7000, "metrics": 7001}))
    job = an_mxjob(Scheduler=an_mx_replica(1, template), Server=1, Worker=1)

    found = created(job)

    assert env_of(main_of(found["Pod", "worker-0"]))["DMLC_PS_ROOT_PORT"] == "7000"
    assert found["Service", "scheduler-0"]["spec"]["ports"] == [
        {"name": "mxjob-port", "port": 7000},
        {"name": "metrics", "port": 7001},
    ]


def test_a_port_without_a_name_is_published_under_its_number() -> None:
    container = a_container("mxnet") | {"ports": [{"containerPort": 8000}]}
    job = an_mxjob(Scheduler=an_mx_replica(1, a_template(container)), Server=1, Worker=1)

    assert created(job)["Service", "scheduler-0"]["spec"]["ports"] == [
        {"name": "port-8000", "port": 8000},
        {"name": "mxjob-port", "port": 9091},
    ]


def test_a_port_that_is_ours_but_for_its_name_is_not_declared_twice() -> None:
    container = a_container("mxnet", ports={"web": 9091})
    job = an_mxjob(Scheduler=an_mx_replica(1, a_template(container)), Server=1, Worker=1)

    found = created(job)

    assert main_of(found["Pod", "scheduler-0"])["ports"] == [{"name": "web", "containerPort": 9091}]
    assert found["Service", "scheduler-0"]["spec"]["ports"] == [{"name": "web", "port": 9091}]
    assert env_of(main_of(found["Pod", "worker-0"]))["DMLC_PS_ROOT_PORT"] == "9091"


@pytest.mark.parametrize(
    ("ports", "published"),
    [
        ({"mxjob-port": 9091, "metrics": 80, "health": 80}, {"mxjob-port": 9091, "metrics": 80}),
        ({"web": 7000, "mxjob-port": 7000}, {"mxjob-port": 7000}),
    ],
)
def test_a_service_has_every_number_once(ports: dict[str, int], published: dict[str, int]) -> None:
    job = an_mxjob(Scheduler=an_mx_replica(1, a_template(a_container("mxnet", ports=ports))), Server=1, Worker=1)

    found = created(job)

    assert {p["name"]: p["port"] for p in found["Service", "scheduler-0"]["spec"]["ports"]} == published
    root = env_of(main_of(found["Pod", "worker-0"]))["DMLC_PS_ROOT_PORT"]
    assert root == str(ports["mxjob-port"])


def test_a_service_is_headless_and_knows_its_pod_before_it_is_ready() -> None:
    service = created(an_mxjob())["Service", "server-0"]

    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "ports": [{"name": "mxjob-port", "port": 9091}],
        "selector": {
            "training.kubeflow.org/operator-name": "mxjob-controller",
            "training.kubeflow.org/job-name": "mnist",
            "training.kubeflow.org/replica-type": "server",
            "training.kubeflow.org/replica-index": "0",
        },
    }


def test_pods_have_the_labels_of_all_generations() -> None:
    worker = created(an_mxjob())["Pod", "worker-1"]

    assert worker["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "mxjob-controller",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
        "training.kubeflow.org/restart-count": "0",
        "group-name": "kubeflow.org",
        "group_name": "kubeflow.org",
        "job-name": "mnist",
        "mxnet-job-name": "mnist",
        "mxnet_job_name": "mnist",
        "replica-type": "worker",
        "mxnet-replica-type": "worker",
        "replica-index": "1",
        "mxnet-replica-index": "1",
        "app.kubernetes.io/managed-by": "trainmaster",
    }


@pytest.mark.parametrize(
    ("job", "master"),
    [
        (an_mxjob(Scheduler=1, Server=2, Worker=2), "server-0"),
        (an_mxjob(Worker=2), "worker-0"),
        (an_mxjob(mode="MXTune", **TUNING), "tuner-0"),
    ],
    ids=["servers", "workers-alone", "tuning"],
)
def test_one_pod_is_the_master_whose_logs_clients_read(job: Json, master: str) -> None:
    for label in ("training.kubeflow.org/job-role", "job-role"):
        found = [key for key, body in created(job).items() if body["metadata"]["labels"].get(label)]
        assert found == [("Pod", master)]


def test_children_are_owned_and_block_the_deletion_of_their_owner() -> None:
    job = an_mxjob()

    owners = [body["metadata"]["ownerReferences"] for body in created(job).values()]

    assert owners == [[owner_reference(job)]] * 8


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "ExitCode", "Never"])
def test_a_restart_is_never_the_kubelets_decision(policy: str) -> None:
    template = a_template(a_container("mxnet"), restartPolicy="Always")
    job = an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(1, template, restartPolicy=policy))

    assert created(job)["Pod", "worker-0"]["spec"]["restartPolicy"] == "Never"


def test_fields_that_nobody_here_knows_survive() -> None:
    template = a_template(
        a_container("mxnet", volumeDevices=[{"name": "d", "devicePath": "/d"}]),
        labels={"team": "vision"},
        annotations={"note": "x"},
        runtimeClassName="kata",
    )
    pod = created(an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(1, template)))["Pod", "worker-0"]

    assert pod["spec"]["runtimeClassName"] == "kata"
    assert main_of(pod)["volumeDevices"] == [{"name": "d", "devicePath": "/d"}]
    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["annotations"] == {"note": "x"}


# --- where pods share a network ---


def test_ports_are_on_record_before_the_first_pod() -> None:
    plan = plan_of(an_mxjob(), settings=LOCAL)

    assert plan.status_first
    assert plan.creates == ()
    assert plan.status is not None
    assert sorted(plan.status["ports"]) == ["scheduler-0", "server-0", "worker-0", "worker-1"]
    assert len(set(plan.ports)) == 4


def test_container_port_service_and_environment_agree_on_the_port_that_was_given() -> None:
    job = an_mxjob()
    job = with_status(job, plan_of(job, settings=LOCAL))
    root = job["status"]["ports"]["scheduler-0"]["9091"]
    own = job["status"]["ports"]["worker-1"]["9091"]

    found = created(job, LOCAL)

    worker = main_of(found["Pod", "worker-1"])
    assert worker["ports"] == [{"name": "mxjob-port", "containerPort": own, "hostPort": own}]
    assert found["Service", "worker-1"]["spec"]["ports"] == [{"name": "mxjob-port", "port": own}]
    assert env_of(worker)["DMLC_PS_ROOT_PORT"] == str(root)
    assert f'{{"url":"mnist-scheduler-0","port":{root}}}' in env_of(worker)["MX_CONFIG"]
    assert f'{{"url":"mnist-worker-1","port":{own}}}' in env_of(worker)["MX_CONFIG"]


def test_only_pods_on_the_network_of_their_machine_are_given_ports() -> None:
    on_host = an_mx_replica(1, a_template(a_container("mxnet"), hostNetwork=True))

    plan = plan_of(an_mxjob(Scheduler=on_host, Server=1, Worker=1))

    assert plan.status is not None
    assert list(plan.status["ports"]) == ["scheduler-0"]
