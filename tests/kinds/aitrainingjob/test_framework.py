"""What frameworkType puts into the environment of training containers (docs/frameworks.md).

The expected variables are those that the frameworks document: torch.distributed and torchrun, TF_CONFIG of
tf.distribute, paddle.distributed.ParallelEnv, DMLC_* of ps-lite, jax.distributed.initialize.
"""

import json
from typing import Any

import pytest

from tests.build import (
    SETTINGS,
    Json,
    a_container,
    a_replica,
    a_template,
    an_aitj,
    kind_of,
    plan_of,
    view_of,
    with_status,
)
from tests.kinds.test_environment import MANY, config_map_of, seen_by
from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import POD
from trainmaster.kinds.aitrainingjob.framework import FRAMEWORKS
from trainmaster.kinds.base import Settings

PREFIXES = ("MASTER_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "PET_", "TORCH_", "TF_", "PADDLE_", "DMLC_", "JAX_")


def a_job(framework: str, **roles: int | Json) -> Json:
    return an_aitj(spec={"frameworkType": framework}, roles=roles)


def env_of(job: Json, pod: str, container: int = 0, settings: Settings = SETTINGS) -> dict[str, Any]:
    """What the framework set: values, and other sources as they are."""
    (body,) = [c.body for c in plan_of(job, settings=settings).creates if c.resource == POD and c.key.name == pod]
    entries = body["spec"]["containers"][container]["env"]
    assert len({entry["name"] for entry in entries}) == len(entries)
    return {
        entry["name"]: entry.get("value", entry.get("valueFrom"))
        for entry in entries
        if entry["name"].startswith(PREFIXES)
    }


def without_ports(replicas: int = 1, **fields: Any) -> Json:
    return a_replica(replicas, a_template(a_container("aitj-main", **fields)))


# --- each framework ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "pod", "expected"),
    [
        pytest.param(
            a_job("pytorch", worker=3),
            "mnist-worker-1",
            {
                "MASTER_ADDR": "mnist-worker-0.ml",
                "MASTER_PORT": "24446",
                "RANK": "1",
                "WORLD_SIZE": "3",
                "LOCAL_RANK": "0",
                "PET_NNODES": "3",
                "PET_NODE_RANK": "1",
                "PET_LOCAL_ADDR": "mnist-worker-1.ml",
                "PET_RDZV_BACKEND": "c10d",
                "PET_RDZV_ID": "mnist",
                "PET_RDZV_ENDPOINT": "mnist-worker-0.ml:24446",
                "PET_RDZV_CONF": "is_host=false",
            },
            id="pytorch",
        ),
        pytest.param(
            a_job("paddle", trainer=2),
            "mnist-trainer-1",
            {
                "PADDLE_TRAINER_ID": "1",
                "PADDLE_TRAINERS_NUM": "2",
                "PADDLE_TRAINER_ENDPOINTS": "mnist-trainer-0.ml:24446,mnist-trainer-1.ml:24446",
                "PADDLE_CURRENT_ENDPOINT": "mnist-trainer-1.ml:24446",
                "PADDLE_MASTER": "mnist-trainer-0.ml:24446",
            },
            id="paddle",
        ),
        pytest.param(
            a_job("mxnet", scheduler=1, server=2, worker=3),
            "mnist-worker-2",
            {
                "DMLC_PS_ROOT_URI": "mnist-scheduler-0.ml",
                "DMLC_PS_ROOT_PORT": "24446",
                "DMLC_NUM_SERVER": "2",
                "DMLC_NUM_WORKER": "3",
                "DMLC_ROLE": "worker",
                "DMLC_WORKER_ID": "2",
                "DMLC_USE_KUBERNETES": "1",
                "DMLC_NODE_HOST": {"fieldRef": {"fieldPath": "status.podIP"}},
            },
            id="mxnet",
        ),
        pytest.param(
            a_job("jax", worker=2),
            "mnist-worker-1",
            {
                "JAX_COORDINATOR_ADDRESS": "mnist-worker-0.ml:24446",
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": "1",
            },
            id="jax",
        ),
    ],
)
def test_a_replica_has_the_variables_of_its_framework(job: Json, pod: str, expected: Json) -> None:
    assert env_of(job, pod) == expected


def test_tensorflow_finds_the_cluster_and_the_task_in_tf_config() -> None:
    job = a_job("tensorflow", Chief=1, worker=2, ps=1)

    seen = seen_by(job, "mnist-worker-1")

    assert json.loads(seen["TF_CONFIG"]) == {
        "cluster": {
            "chief": ["mnist-chief-0.ml:24446"],
            "ps": ["mnist-ps-0.ml:24446"],
            "worker": ["mnist-worker-0.ml:24446", "mnist-worker-1.ml:24446"],
        },
        "task": {"type": "worker", "index": 1},
    }
    assert json.loads(seen_by(job, "mnist-chief-0")["TF_CONFIG"])["task"] == {"type": "chief", "index": 0}


def test_the_evaluator_of_tensorflow_is_no_part_of_the_cluster_and_needs_no_port() -> None:
    job = a_job("tensorflow", worker=1, evaluator=without_ports())

    config = json.loads(seen_by(job, "mnist-evaluator-0")["TF_CONFIG"])

    assert config == {"cluster": {"worker": ["mnist-worker-0.ml:24446"]}, "task": {"type": "evaluator", "index": 0}}


def test_only_workers_of_mxnet_have_an_id_and_other_roles_have_no_variables() -> None:
    job = a_job("mxnet", scheduler=1, worker=1, tensorboard=1)

    assert env_of(job, "mnist-scheduler-0")["DMLC_ROLE"] == "scheduler"
    assert "DMLC_WORKER_ID" not in env_of(job, "mnist-scheduler-0")
    assert env_of(job, "mnist-tensorboard-0") == {}


# --- ranks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "ranks"),
    [
        pytest.param({"b": 2, "a": 1}, {"a-0": "0", "b-0": "1", "b-1": "2"}, id="by name"),
        pytest.param({"actor": 1, "Master": 1}, {"master-0": "0", "actor-0": "1"}, id="master first"),
        pytest.param({"actor": 1, "chief": 1}, {"chief-0": "0", "actor-0": "1"}, id="chief first"),
        pytest.param({"a": 0, "b": 2}, {"b-0": "0", "b-1": "1"}, id="a role without replicas"),
    ],
)
@pytest.mark.parametrize(
    ("framework", "rank", "size"), [("pytorch", "RANK", "WORLD_SIZE"), ("jax", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")]
)
def test_ranks_count_through_the_roles(
    roles: dict[str, int], ranks: dict[str, str], framework: str, rank: str, size: str
) -> None:
    job = a_job(framework, **roles)

    assert {place: env_of(job, f"mnist-{place}")[rank] for place in ranks} == ranks
    assert {env_of(job, f"mnist-{place}")[size] for place in ranks} == {str(sum(roles.values()))}


def test_a_role_without_replicas_needs_no_port() -> None:
    env = env_of(a_job("pytorch", actor=without_ports(0), worker=2), "mnist-worker-0")

    assert (env["RANK"], env["MASTER_ADDR"]) == ("0", "mnist-worker-0.ml")


def test_the_master_is_the_replica_of_rank_0() -> None:
    env = env_of(a_job("pytorch", master=1, actor=without_ports(2)), "mnist-actor-1")

    assert (env["MASTER_ADDR"], env["PET_RDZV_ENDPOINT"]) == ("mnist-master-0.ml", "mnist-master-0.ml:24446")
    assert env_of(a_job("pytorch", master=1), "mnist-master-0")["PET_RDZV_CONF"] == "is_host=true"


@pytest.mark.parametrize("servers", ["ps", "pserver", "server"])
def test_parameter_servers_of_paddle_have_no_rank(servers: str) -> None:
    job = a_job("paddle", **{servers: 2}, trainer=2)

    env = env_of(job, "mnist-trainer-1")

    assert (env["PADDLE_TRAINER_ID"], env["PADDLE_TRAINERS_NUM"]) == ("1", "2")
    assert env["PADDLE_TRAINER_ENDPOINTS"] == "mnist-trainer-0.ml:24446,mnist-trainer-1.ml:24446"
    assert "PADDLE_TRAINER_ID" not in env_of(job, f"mnist-{servers}-0")


# --- elastic jobs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "scaled", "nodes"),
    [
        pytest.param({"edlPolicy": "Manual", "minReplicas": 1, "maxReplicas": 4}, None, "1:4", id="manual"),
        pytest.param({"edlPolicy": "Manual", "minReplicas": 1, "maxReplicas": 4}, 3, "1:4", id="scaled"),
        pytest.param({"edlPolicy": "Auto", "minReplicas": 1, "maxReplicas": 4}, None, "1:4", id="auto"),
        pytest.param({"edlPolicy": "Manual", "minReplicas": 1}, None, "1:2", id="no upper bound"),
        pytest.param({"edlPolicy": "Never", "minReplicas": 1, "maxReplicas": 4}, None, "2", id="not elastic"),
    ],
)
def test_torchrun_of_an_elastic_job_takes_any_number_of_nodes_in_its_bounds(
    role: Json, scaled: int | None, nodes: str
) -> None:
    job = a_job("pytorch", worker=a_replica(2, **role))
    if scaled:
        job["spec"]["elasticReplicas"] = scaled

    env = env_of(job, "mnist-worker-0")

    assert env["PET_NNODES"] == nodes
    assert env.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == ("1" if ":" in nodes else None)


# --- which jobs and containers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "variable"),
    [
        ("PyTorch", "RANK"),
        ("torch", "RANK"),
        ("TensorFlow", "TF_CONFIG"),
        ("paddlepaddle", "PADDLE_TRAINER_ID"),
        ("PADDLE", "PADDLE_TRAINER_ID"),
        ("JAX", "JAX_PROCESS_ID"),
    ],
)
def test_a_framework_is_known_by_its_names_in_any_case(word: str, variable: str) -> None:
    assert variable in env_of(a_job(word, worker=1), "mnist-worker-0")


@pytest.mark.parametrize("word", ["", "mpi", "python"])
def test_another_word_sets_nothing(word: str) -> None:
    assert env_of(a_job(word, worker=1), "mnist-worker-0") == {}


def test_a_variable_of_the_user_is_kept_and_may_refer_to_those_of_the_framework() -> None:
    own = [{"name": "RANK", "value": "7"}, {"name": "URL", "value": "tcp://$(MASTER_ADDR):$(MASTER_PORT)"}]
    job = a_job("pytorch", worker=a_replica(1, a_template(a_container("aitj-main", env=own, ports={"aitj-1": 1}))))

    seen = seen_by(job, "mnist-worker-0")

    assert (seen["RANK"], seen["WORLD_SIZE"]) == ("7", "1")
    assert seen["URL"] == "tcp://mnist-worker-0.ml:1"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_side_cars_and_init_containers_have_no_variables_of_a_framework(framework: str) -> None:
    main, side = a_container("aitj-main", ports={"aitj-1": 1}), a_container("side")
    pod = a_template(main, side, initContainers=[a_container("before")])
    job = a_job(framework, scheduler=a_replica(1, pod))

    for container in ("side", "before"):
        seen = seen_by(job, "mnist-scheduler-0", container)
        assert [name for name in seen if name.startswith(PREFIXES)] == []
    assert [name for name in seen_by(job, "mnist-scheduler-0") if name.startswith(PREFIXES)] != []


@pytest.mark.parametrize(
    ("framework", "roles"),
    [
        pytest.param("pytorch", {"worker": without_ports(2)}, id="pytorch"),
        pytest.param("pytorch", {"chief": without_ports(), "worker": 1}, id="pytorch, rank 0"),
        pytest.param("jax", {"worker": without_ports(2)}, id="jax"),
        pytest.param("tensorflow", {"worker": 2, "ps": without_ports()}, id="tensorflow"),
        pytest.param("paddle", {"trainer": without_ports(2)}, id="paddle"),
        pytest.param("mxnet", {"scheduler": without_ports(), "worker": 1}, id="mxnet"),
        pytest.param("mxnet", {"worker": 1}, id="mxnet without a scheduler"),
    ],
)
def test_nothing_is_set_when_replicas_that_others_connect_to_have_no_port(framework: str, roles: Json) -> None:
    job = a_job(framework, **roles)

    assert env_of(job, "mnist-worker-0" if "worker" in roles else "mnist-trainer-0") == {}


@pytest.mark.parametrize(
    ("framework", "variable", "expected"),
    [
        ("pytorch", "PET_RDZV_ENDPOINT", "mnist-worker-0.ml:20001"),
        ("pytorch", "MASTER_PORT", "20001"),
        ("paddle", "PADDLE_TRAINER_ENDPOINTS", "mnist-worker-0.ml:20001,mnist-worker-1.ml:20002"),
        ("paddle", "PADDLE_CURRENT_ENDPOINT", "mnist-worker-1.ml:20002"),
        ("jax", "JAX_COORDINATOR_ADDRESS", "mnist-worker-0.ml:20001"),
    ],
)
def test_replicas_that_share_a_network_have_the_ports_that_were_given_out(
    framework: str, variable: str, expected: str
) -> None:
    ports = {"worker-0": {"24446": 20001}, "worker-1": {"24446": 20002}}
    job = with_status(a_job(framework, worker=2), {"phase": "Pending", "ports": ports})

    assert env_of(job, "mnist-worker-1", settings=Settings(shared_network=True))[variable] == expected


# --- large jobs --------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [2, MANY, 300])
def test_the_list_of_all_endpoints_is_the_same_in_small_and_in_large_jobs(replicas: int) -> None:
    endpoints = [f"mnist-worker-{index}.ml:24446" for index in range(replicas)]

    paddle = seen_by(a_job("paddle", worker=replicas), "mnist-worker-1")
    tensorflow = seen_by(a_job("tensorflow", worker=replicas), "mnist-worker-1")

    assert paddle["PADDLE_TRAINER_ENDPOINTS"] == ",".join(endpoints)
    assert json.loads(tensorflow["TF_CONFIG"])["cluster"] == {"worker": endpoints}


@pytest.mark.parametrize(
    ("framework", "variable"), [("paddle", "PADDLE_TRAINER_ENDPOINTS"), ("tensorflow", "TF_CONFIG_CLUSTER")]
)
def test_the_list_of_a_large_job_is_in_its_config_map(framework: str, variable: str) -> None:
    assert variable in config_map_of(a_job(framework, worker=MANY))["data"]


@pytest.mark.parametrize("framework", ["paddle", "tensorflow"])
def test_a_job_whose_list_does_not_fit_into_one_variable_is_refused(framework: str) -> None:
    """The addresses of each role alone fit."""
    roles = {f"worker{number}": 1000 for number in range(5)}
    kind = kind_of(a_job(framework, **roles))

    with pytest.raises(BadSpec) as refused:
        kind.decode(view_of(a_job(framework, **roles)))

    (error,) = refused.value.errors
    assert error == (
        "spec.frameworkType: the addresses of 5000 replicas do not fit into one environment variable (128 KiB); "
        "lower replicas, or remove the field"
    )
    assert kind.decode(view_of(a_job("pytorch", **roles)))


# --- what admission warns of -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "warnings"),
    [
        pytest.param(a_job("", worker=without_ports()), [], id="no framework"),
        pytest.param(a_job("pytorch", worker=2), [], id="nothing"),
        pytest.param(
            a_job("python", worker=1),
            [f"spec.frameworkType: sets no variables, since 'python' is not one of {', '.join(FRAMEWORKS)}"],
            id="an unknown word",
        ),
        pytest.param(
            a_job("tensorflow", worker=1, ps=without_ports()),
            ["spec.frameworkType: sets no variables, since no replica of ps publishes a port; declare one"],
            id="no port",
        ),
        pytest.param(
            a_job("TensorFlow", worker=1, trainer=1),
            ["spec.replicaSpecs.trainer: TensorFlow knows no such role, only chief, worker, ps, evaluator; rename it"],
            id="an unknown role",
        ),
    ],
)
def test_admission_warns_when_the_framework_sets_nothing_or_not_what_was_meant(job: Json, warnings: list[str]) -> None:
    kind = kind_of(job)

    assert kind.warnings(kind.decode(view_of(job))) == warnings
