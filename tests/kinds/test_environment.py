"""The addresses of a large job are in one ConfigMap, and its containers see what those of a small job see
(docs/decisions/0028)."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import pytest

from tests.build import (
    Child,
    Json,
    a_container,
    a_pod,
    a_replica,
    a_service,
    a_template,
    an_aitj,
    an_mx_replica,
    an_mxjob,
    child_labels,
    names_of,
    owner_reference,
    plan_of,
    services_of,
    settled,
    view_of_create,
    with_spec,
)
from trainmaster.core.ids import CONFIG_MAP
from trainmaster.core.plan import Create
from trainmaster.core.view import ChildView
from trainmaster.local.node.environment import CONFIG_MAP as KIND
from trainmaster.local.node.environment import Source, VariableContext, data_of, environment
from trainmaster.local.node.pod import Pod

LABEL = "trainmaster/environment"
MANY = 65
"""Replicas: one more than a job has whose pods have the addresses themselves."""


def first_pass(job: Json) -> dict[str, list[Create]]:
    """What is created once the services exist, by kind."""
    found: dict[str, list[Create]] = {}
    for create in plan_of(job, services_of(job)).creates:
        found.setdefault(create.resource.kind, []).append(create)
    return found


def config_map_of(job: Json) -> Json:
    (create,) = first_pass(job)["ConfigMap"]
    return create.body


def seen_by(job: Json, pod: str, container: str = "") -> dict[str, str]:
    """The variables of a container as they are when it starts. Without a name it is the first one."""
    created = first_pass(job)
    maps = {Source(KIND, create.key.name): data_of(create.body) for create in created.get("ConfigMap", ())}
    (body,) = [create.body for create in created["Pod"] if create.key.name == pod]
    started = Pod({**body, "metadata": {**body["metadata"], "uid": "uid"}})
    every = [*started.init_containers, *started.containers]
    found = next(each for each in (every if container else started.containers) if container in ("", each["name"]))
    return environment(started, found, VariableContext(maps, {}))


def entry_of(job: Json, pod: str, name: str) -> Json:
    (body,) = [create.body for create in first_pass(job)["Pod"] if create.key.name == pod]
    entry: Json
    (entry,) = [entry for entry in body["spec"]["containers"][0]["env"] if entry["name"] == name]
    return entry


class Case(NamedTuple):
    small: Json
    large: Json
    variable: str


CASES = (
    pytest.param(Case(an_aitj(trainer=MANY - 1), an_aitj(trainer=MANY), "TRAINER_HOSTS"), id="aitrainingjob"),
    pytest.param(Case(an_mxjob(Worker=MANY - 1), an_mxjob(Worker=MANY), "MX_CONFIG_CLUSTER"), id="mxjob"),
)
each = pytest.mark.parametrize("case", CASES)

# --- what a container sees ---------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [2, MANY - 1, MANY, 300])
def test_a_trainer_sees_the_same_variables_in_a_small_and_in_a_large_job(replicas: int) -> None:
    addresses = [f"mnist-my-trainer-{index}.ml" for index in range(replicas)]
    expected = {
        "INSTANCES": ",".join(addresses),
        "INSTANCES_NUM": str(replicas),
        "PORTS": "24446",
        "PORTS_NUM": "1",
        "HOSTS": ",".join(f"{address}:24446" for address in addresses),
        "HOSTS_NUM": str(replicas),
        "0_ADDRESS": addresses[0],
        "0_PORT": "24446",
    }
    job = an_aitj(roles={"my-trainer": replicas})

    seen = seen_by(job, "mnist-my-trainer-1")

    found = {name: value for name, value in seen.items() if name.startswith("MY")}
    assert found == {
        f"{prefix}_{word}": text for prefix in ("MY-TRAINER", "MY_TRAINER") for word, text in expected.items()
    }
    assert (seen["TRAININGJOB_REPLICA_INDEX"], seen["TRAININGJOB_PORTS"]) == ("1", "24446")


@pytest.mark.parametrize("replicas", [2, MANY - 1, MANY, 300])
def test_a_worker_sees_the_same_mx_config_in_a_small_and_in_a_large_job(replicas: int) -> None:
    odd = "a$$b$(c)$(MX_CONFIG)"
    expanded = "a$b$(c)$(MX_CONFIG)"  # Kubernetes does so with every value of a variable
    job = an_mxjob(Worker=an_mx_replica(replicas, label=odd))

    seen = seen_by(job, "mnist-worker-1")

    workers = ",".join(f'{{"url":"mnist-worker-{index}","port":9091}}' for index in range(replicas))
    assert seen["MX_CONFIG"] == (
        f'{{"cluster":{{"worker":[{workers}]}},"labels":{{"worker":"{expanded}"}},"task":{{"type":"worker","index":1}}}}'
    )


@pytest.mark.parametrize(
    ("job", "pod"),
    [
        pytest.param(
            an_aitj(trainer=a_replica(MANY, a_template(a_container("aitj-main"), a_container("side")))),
            "mnist-trainer-0",
            id="aitrainingjob",
        ),
        pytest.param(
            an_mxjob(Worker=an_mx_replica(MANY, a_template(a_container("mxnet"), a_container("side")))),
            "mnist-worker-0",
            id="mxjob",
        ),
    ],
)
def test_every_container_of_a_large_job_has_the_addresses(job: Json, pod: str) -> None:
    roles = job["spec"].get("replicaSpecs") or job["spec"]["mxReplicaSpecs"]
    for role in roles.values():
        role["template"]["spec"]["initContainers"] = [a_container("before")]
    shared = {"TRAINER_INSTANCES", "TRAINER_HOSTS", "MX_CONFIG"}

    side, before = seen_by(job, pod, "side"), seen_by(job, pod, "before")

    assert shared & side.keys() == shared & before.keys() == shared & seen_by(job, pod).keys()
    assert all(side[name] == before[name] for name in shared & side.keys())


def test_a_variable_of_the_user_can_refer_to_an_address_of_a_large_job() -> None:
    own = [{"name": "PEERS", "value": "tcp://$(TRAINER_INSTANCES)"}]
    job = an_aitj(trainer=a_replica(MANY, a_template(a_container("aitj-main", env=own))))

    seen = seen_by(job, "mnist-trainer-0")

    assert seen["PEERS"] == f"tcp://{seen['TRAINER_INSTANCES']}"


# --- which jobs are large ----------------------------------------------------------------------


@each
def test_the_pods_of_a_job_of_64_replicas_have_the_addresses_themselves(case: Case) -> None:
    created = first_pass(case.small)

    assert created.keys() == {"Pod"}
    assert not [create for create in created["Pod"] if LABEL in create.body["metadata"]["labels"]]
    assert b"valueFrom" not in msgspec.json.encode([create.body for create in created["Pod"]]).replace(
        b'"valueFrom":{"fieldRef"', b""
    )


@each
def test_the_pods_of_a_larger_job_refer_to_one_config_map_that_the_job_owns(case: Case) -> None:
    body = config_map_of(case.large)

    name = body["metadata"]["name"]
    assert name.startswith("mnist-env-")
    assert body["metadata"]["ownerReferences"] == [owner_reference(case.large)]
    assert body["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "trainmaster"}
    assert body["immutable"] is True
    pods = first_pass(case.large)["Pod"]
    assert len(pods) == MANY
    for create in pods:
        assert create.body["metadata"]["labels"][LABEL] == name.removeprefix("mnist-env-")
        assert entry_of(case.large, create.key.name, case.variable) == {
            "name": case.variable,
            "valueFrom": {"configMapKeyRef": {"name": name, "key": case.variable}},
        }


@pytest.mark.parametrize(
    ("job", "maps"),
    [
        pytest.param(an_aitj(ps=32, trainer=32), 0, id="aitrainingjob-64"),
        pytest.param(an_aitj(ps=32, trainer=33), 1, id="aitrainingjob-65"),
        pytest.param(an_mxjob(Scheduler=1, Server=32, Worker=31), 0, id="mxjob-64"),
        pytest.param(an_mxjob(Scheduler=1, Server=32, Worker=32), 1, id="mxjob-65"),
    ],
)
def test_the_replicas_of_all_roles_count_together(job: Json, maps: int) -> None:
    assert len(first_pass(job).get("ConfigMap", ())) == maps


def test_a_job_of_few_replicas_with_more_than_16_kib_of_addresses_is_large() -> None:
    def job_with(ports: int) -> Json:
        container = a_container("aitj-main", ports={f"aitj-{port}": port for port in range(10_000, 10_000 + ports)})
        return an_aitj(trainer=a_replica(2, a_template(container)))

    a_port = len("10000,") + 2 * len("mnist-trainer-0.ml:10000,")  # of its role, and of each of the two replicas
    few, many = 16_000 // a_port, 16_384 // a_port + 1

    assert "ConfigMap" not in first_pass(job_with(few))
    assert list(config_map_of(job_with(many))["data"]) == ["TRAINER_PORTS", "TRAINER_HOSTS"]


# --- when it is created, kept and deleted ------------------------------------------------------


@each
def test_it_is_created_before_the_first_pod_and_all_that_comes_with_it(case: Case) -> None:
    plan = plan_of(case.large)

    assert plan.creates[0].resource == CONFIG_MAP


@each
def test_a_large_job_with_all_its_children_is_left_alone(case: Case) -> None:
    job, children = settled(case.large)

    assert plan_of(job, children).is_quiet
    assert len([child for child in children if isinstance(child, ChildView)]) == 1


@each
def test_it_is_created_again_when_it_was_deleted_and_pods_need_it(case: Case) -> None:
    job, children = settled(case.large)
    (lost,) = [child for child in children if isinstance(child, ChildView)]

    plan = plan_of(job, [child for child in children if child != lost])

    assert names_of(plan.creates, CONFIG_MAP) == [lost.key.name]
    assert len(plan.creates) == 1


def test_pods_that_have_the_addresses_themselves_need_none() -> None:
    """As those of an operator before this one."""
    job = an_aitj(trainer=MANY)
    children = [*services_of(job), *(a_pod(job, "trainer", index) for index in range(MANY))]

    _, after_all = settled(job, children)

    assert not [child for child in after_all if isinstance(child, ChildView)]


def scaled(job: Json, children: Iterable[Child], to: int) -> tuple[Json, list[Child]]:
    return settled(with_spec(job, elasticReplicas=to), children)


def digests_of(children: Iterable[Child]) -> dict[str, set[str]]:
    """The ConfigMaps with addresses, and those that pods refer to."""
    found: dict[str, set[str]] = {"there": set(), "needed": set()}
    for child in children:
        if isinstance(child, ChildView) and child.key.name.startswith("mnist-env-"):
            found["there"].add(child.key.name.removeprefix("mnist-env-"))
        elif digest := getattr(child, "labels", {}).get(LABEL):
            found["needed"].add(digest)
    return found


def test_a_job_that_is_scaled_has_another_one_beside_that_of_the_pods_that_stay() -> None:
    job, children = settled(an_aitj(trainer=a_replica(MANY, edlPolicy="Manual")))
    first = digests_of(children)["needed"]

    job, children = scaled(job, children, MANY + 5)

    found = digests_of(children)
    assert found["there"] == found["needed"]
    assert first < found["needed"]
    assert len(found["needed"]) == 2


def test_one_that_no_pod_needs_any_more_is_deleted() -> None:
    job, children = settled(an_aitj(trainer=a_replica(MANY, edlPolicy="Manual")))
    job, children = scaled(job, children, MANY + 5)
    (first,) = {
        child.labels[LABEL] for child in children if child.key.name == "mnist-trainer-0" and hasattr(child, "labels")
    }

    job, children = scaled(job, [child for child in children if not _refers(child, first)], MANY + 6)

    found = digests_of(children)
    assert found["there"] == found["needed"]
    assert first not in found["there"]


def _refers(child: Child, digest: str) -> bool:
    return bool(getattr(child, "labels", {}).get(LABEL) == digest)


@pytest.mark.parametrize(("phase", "is_kept"), [("Pending", True), ("Running", True), ("Failed", False)])
def test_a_pod_needs_it_until_it_has_ended(phase: str, is_kept: bool) -> None:
    job = an_aitj(trainer=a_replica(2, edlPolicy="Manual"), clean="None")
    digest = "0123456789abcdef"
    labels = {**child_labels(job, "trainer", 9), LABEL: digest}
    old = a_pod(job, "trainer", 9, phase=phase, labels=labels, deleting=True)
    kept = view_of_create(
        Create(
            CONFIG_MAP,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": f"mnist-env-{digest}",
                    "namespace": "ml",
                    "ownerReferences": [owner_reference(job)],
                },
            },
            "",
        )
    )
    staying = [a_pod(job, "trainer", index) for index in (0, 1)]

    plan = plan_of(job, [old, kept, *staying, a_service(job, "trainer", 0), a_service(job, "trainer", 1)])

    assert names_of(plan.deletes, CONFIG_MAP) == ([] if is_kept else [kept.key.name])


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(an_aitj(trainer=MANY, clean="All"), id="aitrainingjob"),
        pytest.param(an_mxjob(Worker=MANY, policy={"cleanPodPolicy": "All"}), id="mxjob"),
    ],
)
def test_it_is_deleted_with_the_pods_when_the_job_ends(job: Json) -> None:
    job, children = settled(job)
    role = "trainer" if job["kind"] == "AITrainingJob" else "Worker"
    ended = [a_pod(job, role, index, exit_code=0) for index in range(MANY)]
    children = [*ended, *services_of(job), *(child for child in children if isinstance(child, ChildView))]

    job, left = settled(job, children)

    assert left == []


def test_the_pods_of_a_large_elastic_job_have_their_membership_file_as_well() -> None:
    _, children = settled(an_aitj(trainer=a_replica(MANY, edlPolicy="Auto", minReplicas=1)))

    names = sorted(child.key.name for child in children if isinstance(child, ChildView))
    assert [name.rpartition("-")[0] if "env" in name else name for name in names] == ["mnist-env", "mnist-membership"]
