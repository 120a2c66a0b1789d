"""Replicas of DI-orchestrator v0.2, from pods as its di-server created them."""

from datetime import datetime

import msgspec
import pytest

from tests.build import (
    NOW,
    STAMP,
    Json,
    a_container,
    a_dijob,
    a_template,
    children_of,
    kind_of,
    plan_of,
    pod_json,
    view_of,
    view_of_candidate,
    view_of_pod,
    with_status,
)
from tests.takeover.load import items_of
from trainmaster.core.ids import POD
from trainmaster.kinds.dijob.adoption import adopted
from trainmaster.kinds.dijob.declaration import Aggregator, Declared, Member
from trainmaster.kinds.dijob.types import DIJob

PARALLEL, DDP = "di-v0.2.2/parallel/running", "di-v0.2.2/ddp/running"
STARTED = datetime.fromisoformat("2026-11-17T02:05:37Z")


def _found(path: str) -> tuple[Json, list[Json]]:
    job, *others = items_of(path)
    return job, [body for body in others if body["kind"] == "Pod"]


def _adopted(job: Json, pods: list[Json]) -> Declared | None:
    return adopted(msgspec.convert(job, DIJob), [view_of_candidate(pod, whole=True) for pod in pods])


def _declared(path: str) -> Declared:
    declared = _adopted(*_found(path))
    assert declared is not None
    return declared


def test_collectors_and_learners_become_members_with_what_they_were_given() -> None:
    members = _declared(PARALLEL).members

    assert {name: (m.role, m.cpus, m.gpus, m.memory) for name, m in members.items()} == {
        "takeover-1-collector-djl2d": ("collector", "500m", 0, "200Mi"),
        "takeover-1-collector-p96sk": ("collector", "500m", 0, "200Mi"),
        "takeover-1-learner-wb795": ("learner", "1", 1, "256Mi"),
    }


def test_a_ddp_group_keeps_its_aggregator_ranks_and_size() -> None:
    members = _declared(DDP).members

    assert members["takeover-3-ddp-learner-d9cv9"] == Member(
        "ddp-learner", STARTED, "1", 2, "1Gi", aggregator="takeover-3-aggregator-zndz8", world_size=2
    )
    assert members["takeover-3-aggregator-zndz8"] == Member("aggregator", STARTED, "1", 0, "1Gi", world_size=2)


def _a_worker(pod: Json, name: str, **env: str) -> Json:
    """Another learner of the same group, with these variables."""
    worker: Json = msgspec.json.decode(msgspec.json.encode(pod))
    worker["metadata"] |= {"name": name, "uid": name}
    container = worker["spec"]["containers"][0]
    others = [entry for entry in container["env"] if entry["name"] not in env]
    container["env"] = [*others, *({"name": key, "value": value} for key, value in env.items())]
    return worker


def test_the_second_learner_of_a_ddp_group_knows_the_first() -> None:
    job, pods = _found(DDP)
    first = next(pod for pod in pods if "ddp-learner" in pod["metadata"]["name"])
    master = str(first["metadata"]["name"])
    declared = _adopted(job, [*pods, _a_worker(first, "second", MASTER_ADDR=master, START_RANK="2", WORLD_SIZE="4")])

    assert declared is not None
    assert (declared.members["second"].master, declared.members["second"].start_rank) == (master, 2)
    assert declared.members["takeover-3-aggregator-zndz8"].world_size == 4


def _with_resources(pods: list[Json], role: str, **resources: Json) -> list[Json]:
    for pod in pods:
        if pod["metadata"]["labels"]["replica-type"] == role:
            pod["spec"]["containers"][0]["resources"] = resources
    return pods


def test_resources_that_only_the_template_has_are_not_taken_for_requested_ones() -> None:
    job, pods = _found(PARALLEL)
    declared = _adopted(job, _with_resources(pods, "learner", limits={"cpu": "2"}, requests={"cpu": "1"}))

    assert declared is not None
    assert declared.members["takeover-1-learner-wb795"].cpus == ""


def test_an_aggregator_has_what_was_requested_for_its_learner() -> None:
    job, pods = _found(DDP)
    own = {"cpu": "100m", "memory": "1Mi", "nvidia.com/gpu": "3"}
    declared = _adopted(job, _with_resources(pods, "aggregator", limits=own, requests=own))

    assert declared is not None
    head = declared.members["takeover-3-aggregator-zndz8"]
    assert (head.cpus, head.memory, head.gpus) == ("1", "1Gi", 0)


def test_a_job_that_has_ended_declares_nothing() -> None:
    job, pods = _found(PARALLEL)
    job["status"]["phase"] = "Succeeded"
    found = {POD: tuple(view_of_candidate(pod, whole=True) for pod in pods)}

    assert kind_of(job).remembered(view_of(job), found, NOW) is None


def test_of_an_aggregator_only_its_port_and_its_network_are_stored() -> None:
    job, pods = _found(DDP)
    head = next(pod for pod in pods if "aggregator" in pod["metadata"]["name"])
    head["spec"]["hostNetwork"] = True
    head["spec"]["containers"][0]["ports"] = [{"name": "di-port", "containerPort": 80}]
    declared = _adopted(job, pods)

    assert declared is not None
    assert (declared.aggregator, declared.aggregator_template) == (Aggregator(80, host_network=True), None)


def test_what_the_coordinator_that_runs_asks_for_next_is_added() -> None:
    declared = _declared(PARALLEL)
    coordinator = next(pod for pod in _found(PARALLEL)[1] if pod["metadata"]["name"].endswith("coordinator"))

    assert declared.incarnations == dict.fromkeys(("collector", "learner"), coordinator["metadata"]["uid"])


def test_a_coordinator_that_was_restarted_is_known_by_its_restarts() -> None:
    job, pods = _found(PARALLEL)
    coordinator = next(pod for pod in pods if pod["metadata"]["name"].endswith("coordinator"))
    coordinator["status"]["containerStatuses"][0]["restartCount"] = 2
    declared = _adopted(job, pods)

    assert declared is not None
    assert declared.incarnations["collector"] == f"{coordinator['metadata']['uid']}/2"


def test_members_that_are_declared_stay_as_they_are() -> None:
    job, pods = _found(PARALLEL)
    declared = msgspec.to_builtins(_declared(PARALLEL))

    assert _adopted(job | {"status": {"declared": declared}}, pods) is None


def test_a_job_without_replicas_declares_nothing() -> None:
    assert _adopted(*_found("di-v0.2.2/parallel/coordinator-running")) is None


def test_a_pod_that_is_being_deleted_is_not_declared() -> None:
    job, pods = _found(PARALLEL)
    for pod in pods:
        pod["metadata"]["deletionTimestamp"] = "2026-11-17T02:10:00Z"

    assert _adopted(job, pods) is None


def test_a_learner_whose_aggregator_is_gone_is_not_declared() -> None:
    job, pods = _found(DDP)
    left = [pod for pod in pods if "aggregator" not in pod["metadata"]["name"]]
    declared = _adopted(job, left)

    assert declared is not None
    assert {member.role for member in declared.members.values()} == {"collector"}


LEARNER = a_template(a_container("di-container"), labels={"team": "rl"})
MADE_BY_HAND = [
    pytest.param("ddp-learner-master", 4, 5, id="master of 4"),
    pytest.param("ddp-learner-worker", 6, 6, id="worker of 6"),
    pytest.param("ddp-learner-master", 1, 2, id="master of 1"),
    pytest.param("ddp-learner-master", 0, 2, id="master of 0"),
    pytest.param("ddp-learner-worker", 0, 1, id="worker of 0"),
]
"""The table of DI-orchestrator's own test: type, GPUs, ports of the service."""


@pytest.mark.parametrize(("type_", "gpus", "ports"), MADE_BY_HAND)
def test_a_ddp_learner_that_was_made_by_hand_stays_and_gets_its_service(type_: str, gpus: int, ports: int) -> None:
    job = a_dijob(spec={"learner": {"template": LEARNER}})
    job = with_status(job, plan_of(job))
    name = "cartpole-ddp-learner-sdf"
    own = {"replica-type": "ddp-learner", "pod-name": name, "ddp-learner-type": type_}
    pod = pod_json(job, "coordinator", name=name)
    pod["metadata"] |= {"creationTimestamp": STAMP, "labels": pod["metadata"]["labels"] | own}
    amount = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    resources = {"limits": amount, "requests": amount}
    pod["spec"]["containers"] = [{"name": "di-container", "image": "busybox", "resources": resources}]
    declared = _adopted(job, [pod])
    job["status"]["declared"] = msgspec.to_builtins(declared or Declared())

    plan = plan_of(job, [*children_of(job), view_of_pod(pod)])

    assert plan.deletes == ()
    (service,) = [create.body for create in plan.creates if create.key.name == name]
    assert len(service["spec"]["ports"]) == ports
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_a_learner_of_a_group_is_not_taken_for_one_that_was_made_by_hand() -> None:
    """The garbage collector removes references to an aggregator that is gone."""
    job, pods = _found(DDP)
    left = [pod for pod in pods if "aggregator" not in pod["metadata"]["name"]]
    for pod in left:
        pod["metadata"]["ownerReferences"] = pod["metadata"]["ownerReferences"][:1]
    declared = _adopted(job, left)

    assert declared is not None
    assert {member.role for member in declared.members.values()} == {"collector"}


def test_a_pod_whose_role_is_unknown_is_not_declared() -> None:
    job, pods = _found(PARALLEL)
    for pod in pods:
        pod["metadata"]["labels"]["replica-type"] = "spectator"

    assert _adopted(job, pods) is None
