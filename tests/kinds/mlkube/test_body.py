"""The batch Jobs and the service of an MxJob (docs/mxjob.md)."""

from typing import Any

import pytest

from tests.build import Json, a_container, a_template
from tests.kinds.mlkube.build import ID, a_begun, a_mxjob, a_spec, labels_of, name_of, owner_of, plan_of
from trainmaster.core.ids import JOB, SERVICE
from trainmaster.kinds.accelerator import Accelerator, EnvVar, HostVolume
from trainmaster.kinds.base import Settings

GPU = "alpha.kubernetes.io/nvidia-gpu"
CONFIG = {
    GPU: Accelerator(
        volumes=(HostVolume("nvidia-libraries", "/host/lib", "/usr/local/nvidia/lib64"),),
        env_vars=(EnvVar("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"),),
    )
}


def children_of(job: Json, **given: Any) -> dict[tuple[str, str], Json]:
    """What is created for the job, by resource and name."""
    return {(c.resource.plural, c.key.name): c.body for c in plan_of(job, **given).creates}


def job_of(job: Json, role: str, index: int = 0, **given: Any) -> Json:
    return children_of(job, **given)["jobs", name_of(job, role, index)]


def main_of(body: Json) -> Json:
    (found,) = [c for c in body["spec"]["template"]["spec"]["containers"] if c["name"] == "mxnet"]
    return dict(found)


def with_worker(template: Json, mode: str = "dist", **spec: Any) -> Json:
    """A job whose workers have this template."""
    group = [a_spec("SCHEDULER"), a_spec("SERVER", 2)] if mode == "dist" else []
    return a_begun(mode=mode, specs=[*group, a_spec("WORKER", template=template)], **spec)


# --- names -----------------------------------------------------------------------------------------


def test_a_dist_job_has_a_job_for_each_replica_and_a_service_for_its_scheduler() -> None:
    job = a_begun("Creating", servers=2, workers=3)

    plan = plan_of(job)

    assert [(c.resource, c.key.name) for c in plan.creates] == [
        (SERVICE, "digits-scheduler-1kkf-0"),
        (JOB, "digits-scheduler-1kkf-0"),
        (JOB, "digits-server-1kkf-0"),
        (JOB, "digits-server-1kkf-1"),
        (JOB, "digits-worker-1kkf-0"),
        (JOB, "digits-worker-1kkf-1"),
        (JOB, "digits-worker-1kkf-2"),
    ]
    assert not plan.deletes


def test_a_local_job_has_one_job_and_no_service_and_no_variables() -> None:
    job = a_begun(mode="local")

    assert list(children_of(job)) == [("jobs", "digits-worker-1kkf-0")]
    assert "env" not in main_of(job_of(job, "worker"))


@pytest.mark.parametrize(
    ("job", "id_"),
    [
        pytest.param(a_mxjob(RuntimeId="mine"), "mine", id="that of the spec"),
        pytest.param(a_begun("", RuntimeId="mine"), ID, id="the stored one, whatever the spec says now"),
    ],
)
def test_the_runtime_id(job: Json, id_: str) -> None:
    plan = plan_of(job)

    assert plan.status is not None
    assert plan.status["runtimeId"] == id_


def test_without_a_runtime_id_it_is_four_characters_made_from_the_uid() -> None:
    ids = [(plan_of(a_mxjob(name)).status or {})["runtimeId"] for name in ("a", "b", "a")]

    assert ids[0] == ids[2] != ids[1]
    assert all(len(id_) == 4 and id_.isalnum() and id_ == id_.lower() for id_ in ids)


# --- objects ---------------------------------------------------------------------------------------


def test_a_job_carries_labels_and_owner_and_so_do_its_pods() -> None:
    job = a_begun()

    body = job_of(job, "server", 1)

    assert body["metadata"] == {
        "name": "digits-server-1kkf-1",
        "namespace": "ml",
        "labels": labels_of(job, "server", 1),
        "ownerReferences": [owner_of(job)],
    }
    assert (body["apiVersion"], body["kind"]) == ("batch/v1", "Job")
    assert (body["spec"]["completions"], body["spec"]["parallelism"]) == (1, 1)
    assert body["spec"]["template"]["metadata"]["labels"] == labels_of(job, "server", 1)


def test_the_schedulers_service_leads_to_its_pod_before_that_is_ready() -> None:
    job = a_begun(specs=[a_spec("SCHEDULER", PsRootPort=9000), a_spec("SERVER"), a_spec("WORKER")])

    body = children_of(job)["services", "digits-scheduler-1kkf-0"]

    own = labels_of(job, "scheduler")
    assert body["metadata"]["labels"] == own
    assert body["metadata"]["ownerReferences"] == [owner_of(job)]
    assert body["spec"] == {
        "selector": {key: value for key, value in own.items() if key != "app.kubernetes.io/managed-by"},
        "ports": [{"name": "ps-root-port", "port": 9000}],
        "publishNotReadyAddresses": True,
    }


@pytest.mark.parametrize(
    ("given", "alone", "in_a_group"),
    [("OnFailure", "OnFailure", "Never"), ("Never", "Never", "Never"), (None, "Never", "Never")],
)
def test_pods_restart_as_their_template_says_unless_all_replicas_restart_together(
    given: str | None, alone: str, in_a_group: str
) -> None:
    """A Job with backoffLimit 0 deletes a pod that its kubelet restarts, with its exit code and logs."""
    policy: dict[str, Any] = {} if given is None else {"restartPolicy": given}
    template = a_template(a_container("mxnet"), **policy)
    lone = a_begun(specs=[a_spec("SCHEDULER"), a_spec("SERVER"), a_spec("WORKER", 1, template, restartScope="Pod")])
    jobs = [with_worker(template, mode="local"), lone, with_worker(template)]

    stored = [job_of(job, "worker")["spec"]["template"]["spec"]["restartPolicy"] for job in jobs]

    assert stored == [alone, alone, in_a_group]


def test_the_template_survives_but_for_what_we_set() -> None:
    template = a_template(
        a_container("mxnet", futureField={"a": 1}),
        a_container("side-car", terminationMessagePolicy="File"),
        labels={"team": "vision"},
        annotations={"note": "x"},
        nodeSelector={"disk": "ssd"},
    )
    body = job_of(with_worker(template), "worker")["spec"]["template"]

    assert body["metadata"]["annotations"] == {"note": "x"}
    assert body["metadata"]["labels"]["team"] == "vision"
    assert body["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert body["spec"]["containers"][0]["futureField"] == {"a": 1}
    assert body["spec"]["containers"][1] == a_container("side-car", terminationMessagePolicy="File")


@pytest.mark.parametrize(("given", "stored"), [({}, None), ({"backoffLimit": 0}, 0), ({"backoffLimit": 4}, 4)])
def test_only_the_job_of_a_replica_that_restarts_alone_has_a_backoff_limit(given: Json, stored: int | None) -> None:
    specs = [a_spec("SCHEDULER"), a_spec("SERVER"), a_spec("WORKER", restartScope="Pod")]
    local, dist = a_begun(mode="local", **given), a_begun(specs=specs, **given)

    assert job_of(local, "worker")["spec"].get("backoffLimit") == stored
    assert job_of(dist, "worker")["spec"].get("backoffLimit") == stored
    assert {job_of(dist, role)["spec"]["backoffLimit"] for role in ("scheduler", "server")} == {0}


# --- environment -----------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["scheduler", "server", "worker"])
def test_every_process_is_told_where_the_scheduler_is_and_how_many_they_are(role: str) -> None:
    scheduler = a_spec("SCHEDULER", PsRootPort=9000)
    job = a_begun(specs=[a_spec("WORKER", 3), a_spec("SERVER", 2, PsRootPort=1), scheduler])

    assert main_of(job_of(job, role))["env"] == [
        {"name": "DMLC_PS_ROOT_PORT", "value": "9000"},
        {"name": "DMLC_PS_ROOT_URI", "value": "digits-scheduler-1kkf-0"},
        {"name": "DMLC_NUM_SERVER", "value": "2"},
        {"name": "DMLC_NUM_WORKER", "value": "3"},
        {"name": "DMLC_ROLE", "value": role},
        {"name": "DMLC_USE_KUBERNETES", "value": "1"},
    ]


def test_the_port_is_9091_unless_it_is_given() -> None:
    spec = a_spec("SCHEDULER")

    assert main_of(job_of(a_begun(specs=[spec, a_spec("SERVER"), a_spec("WORKER")]), "worker"))["env"][0] == {
        "name": "DMLC_PS_ROOT_PORT",
        "value": "9091",
    }


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 7])
def test_variables_of_the_user_keep_their_order_and_number(count: int) -> None:
    """With one to four of them the ancestor died, with more it overwrote the first five."""
    own = [{"name": f"OWN_{i}", "value": str(i)} for i in range(count)]
    env = main_of(job_of(with_worker(a_template(a_container("mxnet", env=own))), "worker"))["env"]

    assert env[6:] == own
    assert [entry["name"] for entry in env[:6]] == [
        "DMLC_PS_ROOT_PORT",
        "DMLC_PS_ROOT_URI",
        "DMLC_NUM_SERVER",
        "DMLC_NUM_WORKER",
        "DMLC_ROLE",
        "DMLC_USE_KUBERNETES",
    ]


def test_ours_win_over_the_same_name() -> None:
    own = [{"name": "A", "value": "1"}, {"name": "DMLC_ROLE", "value": "boss"}, {"name": "B", "value": "2"}]
    env = main_of(job_of(with_worker(a_template(a_container("mxnet", env=own))), "worker"))["env"]

    assert [entry["value"] for entry in env if entry["name"] == "DMLC_ROLE"] == ["worker"]
    assert [entry["name"] for entry in env[6:]] == ["A", "B"]


def test_side_cars_are_told_nothing() -> None:
    job = with_worker(a_template(a_container("mxnet"), a_container("side-car")))

    assert "env" not in job_of(job, "worker")["spec"]["template"]["spec"]["containers"][1]


# --- accelerators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["limits", "requests"])
@pytest.mark.parametrize("amount", [1, "0"])
def test_whoever_asks_for_an_accelerator_gets_its_volumes_and_variables(where: str, amount: Any) -> None:
    job = with_worker(a_template(a_container("mxnet", resources={where: {GPU: amount}})), mode="local")
    body = job_of(job, "worker", settings=Settings(accelerators=CONFIG))

    assert body["spec"]["template"]["spec"]["volumes"] == [
        {"name": "nvidia-libraries", "hostPath": {"path": "/host/lib"}}
    ]
    mount = {"name": "nvidia-libraries", "mountPath": "/usr/local/nvidia/lib64", "readOnly": True}
    assert main_of(body)["volumeMounts"] == [mount]
    assert main_of(body)["env"] == [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}]


def test_a_folder_of_the_node_can_be_written_to_only_if_the_config_file_says_so() -> None:
    scratch = Accelerator(volumes=(HostVolume("scratch", "/host/scratch", "/scratch", read_only=False),))
    job = with_worker(a_template(a_container("mxnet", resources={"limits": {GPU: 1}})), mode="local")
    body = job_of(job, "worker", settings=Settings(accelerators={GPU: scratch}))

    assert main_of(body)["volumeMounts"] == [{"name": "scratch", "mountPath": "/scratch"}]


def test_whoever_asks_for_none_gets_nothing() -> None:
    container = a_container("mxnet", resources={"limits": {"cpu": 1}}, terminationMessagePolicy="File")
    side_car = a_container("side-car", resources={"limits": {GPU: 1}}, terminationMessagePolicy="File")
    job = with_worker(a_template(container, side_car), mode="local")

    spec = job_of(job, "worker", settings=Settings(accelerators=CONFIG))["spec"]["template"]["spec"]

    assert "volumes" not in spec
    assert spec["containers"] == [container, side_car]


def test_what_the_ancestor_wrote_into_the_job_is_not_added_again() -> None:
    volumes = [{"name": "nvidia-libraries", "hostPath": {"path": "/host/lib"}}]
    container = a_container(
        "mxnet",
        resources={"limits": {GPU: 1}},
        volumeMounts=[{"name": "nvidia-libraries", "mountPath": "/usr/local/nvidia/lib64"}],
        env=[{"name": "LD_LIBRARY_PATH", "value": "mine"}],
        terminationMessagePolicy="File",
    )
    job = with_worker(a_template(container, volumes=volumes), mode="local")

    spec = job_of(job, "worker", settings=Settings(accelerators=CONFIG))["spec"]["template"]["spec"]

    assert (spec["volumes"], spec["containers"]) == (volumes, [container])


@pytest.mark.parametrize(
    "given",
    [
        {"resources": "x"},
        {"resources": {"limits": 5}},
        {"resources": {"limits": f"some {GPU}"}},
        {"resources": {"limits": {GPU: 1}}, "volumeMounts": "x"},
        {"resources": {"limits": {GPU: 1}}, "volumeMounts": ["x"]},
        {"resources": {"limits": {GPU: 1}}, "volumeMounts": [{"mountPath": {}}]},
    ],
    ids=str,
)
def test_what_is_no_resource_or_mount_is_left_for_the_api_server_to_refuse(given: Json) -> None:
    job = with_worker(a_template(a_container("mxnet", **given)), mode="local")

    main = main_of(job_of(job, "worker", settings=Settings(accelerators=CONFIG)))

    assert main["resources"] == given["resources"]
    assert main.get("volumeMounts", [])[:1] == given.get("volumeMounts", [])[:1]


# --- ports -----------------------------------------------------------------------------------------


def test_on_a_shared_network_the_scheduler_gets_a_port_before_anything_is_created() -> None:
    job = a_begun()

    first = plan_of(job, settings=Settings(shared_network=True))
    assert first.status_first
    assert first.status is not None
    given = first.status["ports"]["scheduler-0"]["9091"]
    told = {**job, "status": first.status}
    second = children_of(told, settings=Settings(shared_network=True), taken=[given])

    assert first.ports == (given,)
    assert 20_000 <= given <= 29_999
    assert main_of(second["jobs", name_of(job, "worker")])["env"][0]["value"] == str(given)
    assert second["services", name_of(job, "scheduler")]["spec"]["ports"] == [{"name": "ps-root-port", "port": given}]


def test_on_the_network_of_its_machine_the_scheduler_gets_a_port_and_resolves_names() -> None:
    template = a_template(a_container("mxnet"), hostNetwork=True)
    job = a_begun(specs=[a_spec("SCHEDULER", template=template), a_spec("SERVER"), a_spec("WORKER")])
    told = {**job, "status": {**job["status"], "ports": {"scheduler-0": {"9091": 20_007}}}}

    assert (plan_of(job).status or {})["ports"].keys() == {"scheduler-0"}
    assert job_of(told, "scheduler")["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert main_of(job_of(told, "worker"))["env"][0]["value"] == "20007"


def test_a_local_job_needs_no_port() -> None:
    plan = plan_of(a_begun(mode="local"), settings=Settings(shared_network=True))

    assert not plan.ports
    assert plan.creates
