"""The replicas that a coordinator requested: the operator keeps what is declared (docs/decisions/0015)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_container,
    a_dijob,
    a_pod,
    a_service,
    a_template,
    after,
    an_agconfig,
    children_of,
    names_of,
    plan_of,
    settled,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.plan import Plan
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Settings

COLLECTOR = "cartpole-collector-x5z2b"
LEARNER = "cartpole-learner-h7d9k"
AGGREGATOR = "cartpole-aggregator-b2c4d"
MASTER, WORKER = "cartpole-ddp-learner-f5g6h", "cartpole-ddp-learner-j7k8l"

TEMPLATE = a_template(a_container("di-container"), labels={"team": "rl"})
SPEC: Json = {"collector": {"template": TEMPLATE}, "learner": {"template": TEMPLATE}}

GROUP: Json = {
    AGGREGATOR: {"role": "aggregator", "at": STAMP, "worldSize": 12},
    MASTER: {"role": "ddp-learner", "at": STAMP, "gpus": 8, "worldSize": 12, "aggregator": AGGREGATOR},
    WORKER: {
        "role": "ddp-learner",
        "at": STAMP,
        "gpus": 4,
        "worldSize": 12,
        "aggregator": AGGREGATOR,
        "startRank": 8,
        "master": MASTER,
        "cpus": "2",
    },
}


def a_job(members: Json | None = None, *, port: int = 22272, **spec: Any) -> Json:
    """A running job with these members declared; by default a collector."""
    declared: Json = {
        "members": {COLLECTOR: {"role": "collector", "at": STAMP}} if members is None else members,
        "aggregator": {"port": port},
    }
    job = a_dijob(spec=SPEC | spec)
    created = with_status(job, plan_of(job))
    running = with_status(created, plan_of(created, children_of(job)))
    return with_status(running, running["status"] | {"declared": declared})


def role_of(name: str) -> str:
    return name.removeprefix("cartpole-").rpartition("-")[0]


def a_member(job: Json, name: str, **fields: Any) -> PodView:
    labels = {"replica-type": role_of(name), "pod-name": name}
    return a_pod(job, role_of(name), name=name, labels=fields.pop("labels", labels), **fields)


def crew(job: Json, *names: str, **fields: Any) -> list[Child]:
    """Coordinator and members, with their services."""
    pods: list[Child] = [a_member(job, name, **fields) for name in names]
    services: list[Child] = [a_service(job, role_of(name), name=name) for name in names]
    return [*children_of(job), *pods, *services]


def members_of(plan: Plan) -> Json:
    assert plan.status is not None
    found: Json = plan.status["declared"]["members"]
    return found


def body_of(plan: Plan, name: str, resource: Any = POD) -> Json:
    return next(c.body for c in plan.creates if c.resource == resource and c.key.name == name)


def env_of(pod: Json) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}


# --- whoever is declared is there --------------------------------------------------------------


def test_what_is_declared_gets_services_and_then_pods() -> None:
    job = a_job({name: {"role": role_of(name), "at": STAMP} for name in (LEARNER, COLLECTOR)})

    plan = plan_of(job, children_of(job))

    assert [(c.resource, c.key.name) for c in plan.creates] == [
        (SERVICE, COLLECTOR),
        (SERVICE, LEARNER),
        (POD, COLLECTOR),
        (POD, LEARNER),
    ]
    assert not plan.status_first


def test_a_crew_that_is_complete_is_left_in_peace_and_counted() -> None:
    job, found = settled(a_job(), [*children_of(a_job())])

    job = with_status(job, plan_of(job, crew(job, COLLECTOR)))

    assert plan_of(job, crew(job, COLLECTOR)).is_quiet
    assert job["status"]["replicaStatus"]["Collector"] == {"active": 1}
    assert {child.key.name for child in found} >= {COLLECTOR}


def test_counters_alone_may_wait() -> None:
    job = a_job()

    assert plan_of(job, crew(job, COLLECTOR)).lazy


def test_a_deleted_pod_comes_again_under_its_name() -> None:
    job = a_job()

    plan = plan_of(job, [c for c in crew(job, COLLECTOR) if not (c.key.name == COLLECTOR and isinstance(c, PodView))])

    assert [(c.resource, c.key.name) for c in plan.creates] == [(POD, COLLECTOR)]
    assert plan.deletes == ()


def test_a_pod_on_its_way_out_keeps_its_name_until_it_is_gone() -> None:
    job = a_job()

    plan = plan_of(job, crew(job, COLLECTOR, deleting=True))

    assert (plan.creates, plan.deletes) == ((), ())


def test_a_replica_that_is_not_declared_is_deleted_and_its_service_after_its_pod() -> None:
    job = a_job({})
    children = crew(job, COLLECTOR)

    plan = plan_of(job, children)
    _, left = after(job, children, plan)

    assert (names_of(plan.deletes, POD), names_of(plan.deletes, SERVICE)) == ([COLLECTOR], [])
    assert names_of(plan_of(job, left).deletes, SERVICE) == [COLLECTOR]
    assert plan.creates == ()


def test_our_pod_of_a_declared_name_without_its_labels_makes_room() -> None:
    job = a_job()
    pod = a_member(job, COLLECTOR, labels={"replica-type": "learner", "pod-name": COLLECTOR})

    plan = plan_of(job, [*children_of(job), pod, a_service(job, "collector", name=COLLECTOR)])

    assert names_of(plan.deletes, POD) == [COLLECTOR]


def test_a_template_that_was_taken_away_is_missed_aloud() -> None:
    job = a_job()
    job = {**job, "spec": {k: v for k, v in job["spec"].items() if k != "collector"}}

    plan = plan_of(job, children_of(job))

    assert plan.creates == ()
    assert plan.status is not None
    (said,) = [c for c in plan.status["conditions"] if c["type"] == "PodCreateFailed"]
    assert (said["status"], said["reason"]) == ("True", "NoTemplate")
    assert "no template for collector" in said["message"]


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Running", "Pending", "Unknown", "Succeeded"])
def test_only_a_failed_one_is_replaced(phase: str) -> None:
    job = a_job()

    plan = plan_of(job, crew(job, COLLECTOR, phase=phase))

    assert (plan.creates, plan.deletes, plan.status_first) == ((), (), False)


def test_a_failed_one_gets_a_new_name_on_record_before_its_pod_goes() -> None:
    job = a_job()
    children = crew(job, COLLECTOR, exit_code=137)

    first = plan_of(job, children)

    assert first.status_first
    (new,) = members_of(first)
    assert new != COLLECTOR
    assert new.startswith("cartpole-collector-")
    assert members_of(first)[new] == {"role": "collector", "at": STAMP, "attempt": 1}
    assert [event.reason for event in first.events] == ["ReplicaFailed"]
    assert "exitcode 137" in first.events[0].message
    job = with_status(job, first)
    second = plan_of(job, children)
    assert names_of(second.deletes, POD) == [COLLECTOR]
    assert (second.creates, second.requeue_after) == ((), 1.0)
    third = plan_of(job, children_of(job), now=NOW + timedelta(seconds=1))
    assert names_of(third.creates, POD) == names_of(third.creates, SERVICE) == [new]
    assert third.requeue_after is None
    assert third.status is None or third.status["phase"] == "Running"


@pytest.mark.parametrize(
    ("reason", "attempt"), [("", 4), ("Evicted", 3), ("OutOfcpu", 3), ("UnexpectedAdmissionError", 3)]
)
def test_what_its_node_did_does_not_count_against_a_replica(reason: str, attempt: int) -> None:
    job = a_job({COLLECTOR: {"role": "collector", "at": STAMP, "attempt": 3}})

    plan = plan_of(job, crew(job, COLLECTOR, phase="Failed", reason=reason))

    (member,) = members_of(plan).values()
    assert member["attempt"] == attempt


def test_a_replica_whose_side_car_failed_is_left_alone() -> None:
    job = a_job()
    children = crew(job, COLLECTOR, phase="Running", containers={"di-container": None, "shell": 1})

    assert not plan_of(job, children).status_first


@pytest.mark.parametrize("culprit", [AGGREGATOR, MASTER, WORKER])
def test_a_ddp_group_is_replaced_as_a_whole(culprit: str) -> None:
    job = a_job(GROUP)
    children = [c for c in crew(job, AGGREGATOR, MASTER, WORKER) if c.key.name != culprit]

    plan = plan_of(job, [*children, a_member(job, culprit, exit_code=1), a_service(job, "x", name=culprit)])

    assert plan.status_first
    found = members_of(plan)
    assert not set(found) & set(GROUP)
    (head,) = [name for name, member in found.items() if member["role"] == "aggregator"]
    assert [member.get("aggregator") for member in found.values() if member["role"] == "ddp-learner"] == [head, head]
    job = with_status(job, plan)
    second = plan_of(job, crew(job, AGGREGATOR, MASTER, WORKER))
    assert set(names_of(second.deletes, POD)) == set(GROUP)


FORMED = GROUP | {AGGREGATOR: GROUP[AGGREGATOR] | {"formed": True}}


def test_a_ddp_group_that_has_all_its_pods_is_on_record() -> None:
    job = a_job(GROUP)

    job = with_status(job, plan_of(job, crew(job, *GROUP)))

    assert job["status"]["declared"]["members"] == FORMED
    assert plan_of(job, crew(job, *GROUP)).is_quiet


@pytest.mark.parametrize("missing", [AGGREGATOR, MASTER, WORKER])
def test_a_ddp_group_that_is_not_complete_yet_gets_what_it_misses(missing: str) -> None:
    job = a_job(GROUP)

    plan = plan_of(job, crew(job, *(name for name in GROUP if name != missing)))

    assert names_of(plan.creates, POD) == [missing]
    assert plan.status is None or members_of(plan) == GROUP


@pytest.mark.parametrize("lost", [AGGREGATOR, MASTER, WORKER])
@pytest.mark.parametrize("how", ["gone", "on its way out"])
def test_a_ddp_group_that_loses_a_pod_comes_anew_as_a_whole(lost: str, how: str) -> None:
    """Its processes have one communicator: one that came back alone would wait for the others for ever."""
    job = a_job(FORMED)
    children = crew(job, *(name for name in GROUP if name != lost))
    if how == "on its way out":
        children.append(a_member(job, lost, deleting=True))

    plan = plan_of(job, children)

    assert plan.status_first
    found = members_of(plan)
    assert not set(found) & set(GROUP)
    assert sorted(member["role"] for member in found.values()) == ["aggregator", "ddp-learner", "ddp-learner"]
    assert not any(member.get("formed") for member in found.values())
    (event,) = plan.events
    assert event.reason == "ReplicaLost"
    assert event.message.startswith(f"pod {lost} is lost: it was deleted")


def test_a_ddp_group_that_lost_several_pods_comes_anew_once() -> None:
    job = a_job(FORMED)

    plan = plan_of(job, children_of(job))

    assert len(members_of(plan)) == 3
    assert len(plan.events) == 1


def test_the_same_failure_gets_the_same_new_name_whoever_looks() -> None:
    job = a_job()
    children = crew(job, COLLECTOR, exit_code=1)

    assert plan_of(job, children) == plan_of(job, children)


def test_the_first_of_those_that_wait_brings_the_next_pass() -> None:
    def waiting(attempt: int) -> Json:
        return {"role": "collector", "at": STAMP, "attempt": attempt}

    job = a_job({"cartpole-collector-a": waiting(5), "cartpole-collector-b": waiting(3)})

    plan = plan_of(job, children_of(job), now=NOW + timedelta(seconds=1))

    assert (plan.creates, plan.requeue_after) == ((), 3.0)


@pytest.mark.parametrize(
    ("ahead", "wait"),
    [
        pytest.param(timedelta(seconds=20), 24.0, id="a little"),
        pytest.param(timedelta(hours=3), None, id="by hours"),
    ],
)
def test_a_server_whose_clock_is_ahead_keeps_a_replica_waiting_for_a_moment_at_most(
    ahead: timedelta, wait: float | None
) -> None:
    """It writes when a replica was replaced, the operator reads the time on another machine."""
    name = "cartpole-collector-a"
    job = a_job({name: {"role": "collector", "at": (NOW + ahead).isoformat(), "attempt": 3}})

    plan = plan_of(job, children_of(job))

    assert (names_of(plan.creates, POD), plan.requeue_after) == ([] if wait else [name], wait)


# --- a coordinator that its node puts out ------------------------------------------------------


def displaced(job: Json, **fields: Any) -> Child:
    return a_pod(job, "coordinator", phase="Failed", containers={}, **fields)


@pytest.mark.parametrize("reason", ["Evicted", "OutOfcpu", "OutOfpods"])
def test_a_coordinator_that_its_node_ended_restarts_at_once(reason: str) -> None:
    job = a_job({})
    service = a_service(job, "coordinator")
    children: list[Child] = [displaced(job, reason=reason), service]

    first = plan_of(job, children)
    job = with_status(job, first)
    second = plan_of(job, children)
    third = plan_of(job, [service])

    assert first.status_first
    assert [event.reason for event in first.events] == ["CoordinatorDisplaced"]
    assert names_of(second.deletes, POD) == ["cartpole-coordinator"]
    assert names_of(third.creates, POD) == ["cartpole-coordinator"]
    assert third.creates[0].body["metadata"]["labels"]["restart-count"] == "1"
    assert job["status"]["phase"] == "Running"
    assert job["status"]["restarts"]["coordinator"]["count"] == 1
    assert [restart["replica"] for restart in job["status"]["restartHistory"]] == ["cartpole-coordinator"]


def test_a_clock_that_was_wrong_does_not_keep_a_coordinator_away() -> None:
    job = a_job({})
    service = a_service(job, "coordinator")
    job = with_status(job, plan_of(job, [displaced(job, reason="Evicted"), service], now=NOW + timedelta(hours=3)))

    assert names_of(plan_of(job, [service]).creates, POD) == ["cartpole-coordinator"]


def test_a_coordinator_that_nodes_end_again_and_again_waits_longer_each_time() -> None:
    job, service = a_job({}), a_service(a_job({}), "coordinator")
    waits = []
    for attempt in range(4):
        labels = {"replica-type": "coordinator", "restart-count": str(attempt)}
        ended = a_pod(job, "coordinator", phase="Failed", containers={}, reason="OutOfcpu", labels=labels)
        job = with_status(job, plan_of(job, [ended, service]))
        waits.append(plan_of(job, [service]).requeue_after)

    assert waits == [None, 1.0, 2.0, 4.0]


# --- bodies ------------------------------------------------------------------------------------


def test_a_collector_is_named_labelled_owned_and_told_as_ever() -> None:
    job = a_job(
        {COLLECTOR: {"role": "collector", "at": STAMP, "cpus": "0.5", "memory": "200Mi"}},
        volumes=[{"name": "data", "emptyDir": {}}],
        priorityClassName="high",
    )

    pod = body_of(plan_of(job, children_of(job)), COLLECTOR)

    assert pod["metadata"]["labels"] == {
        "team": "rl",
        "group-name": "diengine.opendilab.org",
        "dijob-name": "cartpole",
        "controller-name": "di-operator",
        "replica-type": "collector",
        "pod-name": COLLECTOR,
        "app.kubernetes.io/managed-by": "trainmaster",
    }
    assert [owner["kind"] for owner in pod["metadata"]["ownerReferences"]] == ["DIJob"]
    assert env_of(pod) == {
        "COLLECTOR_PORT": "22270",
        "KUBERNETES_POD_NAMESPACE": "rl",
        "KUBERNETES_POD_NAME": COLLECTOR,
        "KUBERNETES_SERVER_URL": "di-server.di-system:8080",
    }
    assert pod["spec"]["priorityClassName"] == "high"
    assert pod["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert "restartPolicy" not in pod["spec"]
    (main,) = pod["spec"]["containers"]
    assert main["ports"] == [{"name": "di-port", "containerPort": 22270}]
    both = {"cpu": "0.5", "memory": "200Mi"}
    assert main["resources"] == {"requests": both, "limits": both}


def test_the_template_decides_what_the_request_leaves_out() -> None:
    limits = {"limits": {"cpu": "4", "memory": "8Gi"}, "requests": {"cpu": "1"}}
    template = a_template(a_container("di-container", resources=limits), a_container("shell"))
    job = a_job({COLLECTOR: {"role": "collector", "at": STAMP, "memory": "1Gi"}}, collector={"template": template})

    main, shell = body_of(plan_of(job, children_of(job)), COLLECTOR)["spec"]["containers"]

    assert main["resources"] == {
        "limits": {"cpu": "4", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    assert "resources" not in shell
    assert "ports" not in shell


@pytest.mark.parametrize(
    ("role", "variable", "port"),
    [
        ("collector", "COLLECTOR_PORT", 22270),
        ("learner", "LEARNER_PORT", 22271),
        ("aggregator", "AGGREGATOR_PORT", 22272),
    ],
)
def test_every_role_has_its_port(role: str, variable: str, port: int) -> None:
    name = f"cartpole-{role}-x5z2b"
    job = a_job({name: {"role": role, "at": STAMP}})

    plan = plan_of(job, children_of(job))

    assert env_of(body_of(plan, name))[variable] == str(port)
    service = body_of(plan, name, SERVICE)["spec"]
    assert service["ports"] == [{"name": "di-port", "port": port}]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert service["selector"].items() <= body_of(plan, name)["metadata"]["labels"].items()


def test_an_aggregator_has_the_template_of_its_config_and_no_volume_of_the_job() -> None:
    config = a_template(a_container("di-container", image="agg", ports={"di-port": 80}))
    job = a_job(
        {AGGREGATOR: {"role": "aggregator", "at": STAMP, "cpus": "2", "worldSize": 2}},
        port=80,
        volumes=[{"name": "data", "emptyDir": {}}],
        priorityClassName="high",
    )

    spec = body_of(plan_of(job, children_of(job), agconfig=an_agconfig(config)), AGGREGATOR)["spec"]

    assert "volumes" not in spec
    assert spec["priorityClassName"] == "high"
    assert spec["containers"][0]["image"] == "agg"
    assert "resources" not in spec["containers"][0]


def test_a_ddp_learner_comes_after_its_aggregator_and_names_it() -> None:
    job = a_job(GROUP)

    first = plan_of(job, children_of(job))
    second = plan_of(job, crew(job, AGGREGATOR))

    assert names_of(first.creates, POD) == [AGGREGATOR]
    assert sorted(names_of(second.creates, POD)) == [MASTER, WORKER]
    owners = body_of(second, MASTER)["metadata"]["ownerReferences"]
    assert owners[1:] == [
        {"apiVersion": "v1", "kind": "Pod", "name": AGGREGATOR, "uid": f"uid-of-{AGGREGATOR}", "controller": False}
    ]
    assert body_of(second, MASTER, SERVICE)["metadata"]["ownerReferences"] == owners


def test_ddp_learners_listen_where_their_processes_do() -> None:
    """Each process listens on the learner's port plus its rank in the whole group."""
    job = a_job(GROUP)
    plan = plan_of(job, crew(job, AGGREGATOR))

    def ports(name: str) -> Json:
        return {p["name"]: p["containerPort"] for p in body_of(plan, name)["spec"]["containers"][0]["ports"]}

    assert ports(MASTER) == {
        "di-port": 22271,
        **{f"gpu-port-{i}": 22271 + i for i in range(1, 8)},
        "master-port": 10314,
    }
    assert ports(WORKER) == {"di-port": 22279, **{f"gpu-port-{i}": 22279 + i for i in range(1, 4)}}
    for name in (MASTER, WORKER):
        service = body_of(plan, name, SERVICE)["spec"]["ports"]
        assert {p["name"]: p["port"] for p in service} == ports(name)


def test_a_ddp_learner_is_told_its_place_in_the_group() -> None:
    job = a_job(GROUP)
    plan = plan_of(job, crew(job, AGGREGATOR))
    ddp = {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "START_RANK", "MASTER_ADDR", "MASTER_PORT", "LEARNER_PORT"}

    def told(name: str) -> dict[str, str]:
        return {key: value for key, value in env_of(body_of(plan, name)).items() if key in ddp}

    same = {"WORLD_SIZE": "12", "MASTER_PORT": "10314", "LEARNER_PORT": "22271"}
    assert told(MASTER) == same | {"LOCAL_WORLD_SIZE": "8", "START_RANK": "0", "MASTER_ADDR": "localhost"}
    assert told(WORKER) == same | {"LOCAL_WORLD_SIZE": "4", "START_RANK": "8", "MASTER_ADDR": MASTER}
    assert body_of(plan, MASTER)["metadata"]["labels"]["ddp-learner-type"] == "ddp-learner-master"
    assert body_of(plan, WORKER)["metadata"]["labels"]["ddp-learner-type"] == "ddp-learner-worker"
    both = {"cpu": "2", "nvidia.com/gpu": "4"}
    assert body_of(plan, WORKER)["spec"]["containers"][0]["resources"] == {"requests": both, "limits": both}


def test_a_group_of_one_pod_needs_no_master_and_no_type() -> None:
    alone = {"role": "ddp-learner", "at": STAMP, "gpus": 2, "worldSize": 2, "aggregator": AGGREGATOR}
    job = a_job({AGGREGATOR: {"role": "aggregator", "at": STAMP, "worldSize": 2}, MASTER: alone})

    pod = body_of(plan_of(job, crew(job, AGGREGATOR)), MASTER)

    assert "ddp-learner-type" not in pod["metadata"]["labels"]
    assert [p["name"] for p in pod["spec"]["containers"][0]["ports"]] == ["di-port", "gpu-port-1"]


# --- the end -----------------------------------------------------------------------------------


def test_a_job_that_succeeds_counts_who_still_worked_as_succeeded() -> None:
    job = a_job()
    children = [c for c in crew(job, COLLECTOR) if c.key.name != "cartpole-coordinator"]

    plan = plan_of(job, [*children, a_pod(job, "coordinator", exit_code=0), a_service(job, "coordinator")])

    assert plan.status is not None
    assert plan.status["phase"] == "Succeeded"
    assert plan.status["replicaStatus"]["Collector"] == {"succeeded": 1}
    assert plan.status["completionTime"] == STAMP
    ended = plan_of(with_status(job, plan), crew(job, COLLECTOR))
    assert COLLECTOR in names_of(ended.deletes, POD)
    assert COLLECTOR in names_of(ended.deletes, SERVICE)


def test_a_failed_coordinator_ends_the_job_whatever_its_replicas_do() -> None:
    job = a_job()
    children = [c for c in crew(job, COLLECTOR, exit_code=1) if c.key.name != "cartpole-coordinator"]

    plan = plan_of(job, [*children, a_pod(job, "coordinator", exit_code=1), a_service(job, "coordinator")])

    assert plan.status is not None
    assert plan.status["phase"] == "Failed"
    assert plan.status["replicaStatus"]["Collector"] == {"failed": 1}
    assert set(members_of(plan)) == {COLLECTOR}


# --- the AggregatorConfig -----------------------------------------------------------------------

EVIL = a_template(a_container("di-container", image="evil"), hostPID=True, serviceAccountName="admin")


def test_no_pod_is_created_from_what_a_status_says() -> None:
    """di-server may write the status, and is reached by every pod."""
    job = a_job(GROUP)
    job["status"]["declared"]["aggregatorTemplate"] = EVIL

    pod = body_of(plan_of(job, children_of(job), agconfig=an_agconfig(TEMPLATE)), AGGREGATOR)

    assert not {"hostPID", "serviceAccountName"} & set(pod["spec"])
    assert pod["spec"]["containers"][0]["image"] == TEMPLATE["spec"]["containers"][0]["image"]


@pytest.mark.parametrize(
    "agconfig",
    [
        pytest.param({}, id="missing"),
        pytest.param(an_agconfig({"spec": {"containers": []}}), id="of-no-use"),
    ],
)
def test_without_an_aggregatorconfig_other_replicas_are_created_and_what_to_do_is_said_once(agconfig: Json) -> None:
    job = a_job(GROUP | {COLLECTOR: {"role": "collector", "at": STAMP}})

    plan = plan_of(job, children_of(job), agconfig=agconfig)

    assert names_of(plan.creates, POD) == [COLLECTOR]
    job = with_status(job, plan)
    (said,) = [c for c in job["status"]["conditions"] if c["type"] == "PodCreateFailed"]
    assert (said["status"], said["reason"]) == ("True", "NoAggregatorConfig")
    assert said["message"].startswith("AggregatorConfig di-system/aggregator-config ")
    assert [(e.type, e.reason, e.message) for e in plan.events] == [("Warning", "NoAggregatorConfig", said["message"])]
    assert plan_of(job, crew(job, COLLECTOR), agconfig=agconfig).events == ()


def test_a_group_that_is_there_needs_no_aggregatorconfig() -> None:
    job, found = settled(a_job(GROUP), children_of(a_job(GROUP)))

    assert plan_of(job, found, agconfig={}).is_quiet


def test_new_aggregators_have_the_aggregatorconfig_of_today_and_the_port_that_the_job_knows() -> None:
    """All aggregators of a job have one port: the answers of di-server name it."""
    today = a_template(a_container("di-container", image="new", ports={"di-port": 90}))
    job = a_job(GROUP, port=80)

    plan = plan_of(job, children_of(job), agconfig=an_agconfig(today))

    (main,) = body_of(plan, AGGREGATOR)["spec"]["containers"]
    assert (main["image"], main["ports"]) == ("new", [{"name": "di-port", "containerPort": 80}])
    assert env_of(body_of(plan, AGGREGATOR))["AGGREGATOR_PORT"] == "80"
    assert body_of(plan, AGGREGATOR, SERVICE)["spec"]["ports"] == [{"name": "di-port", "port": 80}]


def of_an_earlier_release(template: Json) -> Json:
    job = a_job(GROUP)
    declared = {"members": GROUP, "aggregatorTemplate": template}
    return with_status(job, job["status"] | {"declared": declared})


def test_a_job_of_an_earlier_release_keeps_its_pods_and_the_port_of_its_aggregators() -> None:
    job = of_an_earlier_release(a_template(a_container("di-container", ports={"di-port": 80})))

    assert plan_of(job, crew(job, *GROUP)).creates == ()
    first = plan_of(job, children_of(job))
    assert first.status_first
    job = with_status(job, first)
    declared = job["status"]["declared"]
    assert (declared["aggregator"], "aggregatorTemplate" in declared) == ({"port": 80}, False)
    (main,) = body_of(plan_of(job, children_of(job)), AGGREGATOR)["spec"]["containers"]
    assert main["ports"] == [{"name": "di-port", "containerPort": 80}]


def test_a_template_of_an_earlier_release_that_cannot_be_read_does_no_harm() -> None:
    job = of_an_earlier_release({"spec": {"containers": []}})

    assert with_status(job, plan_of(job, children_of(job)))["status"]["declared"]["aggregator"] == {"port": 22272}


# --- a shared network --------------------------------------------------------------------------


def test_on_a_shared_network_every_replica_has_a_port_of_its_own_on_record_first() -> None:
    shared = Settings(shared_network=True)
    job = a_job({name: {"role": role_of(name), "at": STAMP} for name in (LEARNER, COLLECTOR)})

    first = plan_of(job, children_of(job), settings=shared)
    job = with_status(job, first)
    second = plan_of(job, children_of(job), settings=shared)

    assert first.status_first
    ports = job["status"]["ports"]
    assert set(ports) == {"coordinator", COLLECTOR, LEARNER}
    number = ports[COLLECTOR]["22270"]
    pod = body_of(second, COLLECTOR)
    assert env_of(pod)["COLLECTOR_PORT"] == str(number)
    assert pod["spec"]["containers"][0]["ports"] == [{"name": "di-port", "containerPort": number, "hostPort": number}]
    assert body_of(second, COLLECTOR, SERVICE)["spec"]["ports"] == [{"name": "di-port", "port": number}]
    gone = with_status(job, job["status"] | {"declared": {"members": {}}})
    assert set(with_status(gone, plan_of(gone, children_of(job), settings=shared))["status"]["ports"]) == {
        "coordinator"
    }


def test_on_a_shared_network_a_ddp_group_has_a_row_of_ports_and_a_place_to_meet_of_its_own() -> None:
    """Each process listens on the learner's port plus its rank; DI-engine's aggregator on its own and the next one."""
    shared = Settings(shared_network=True)
    job = a_job(GROUP)

    first = plan_of(job, children_of(job), settings=shared)
    job = with_status(job, first)
    plan = plan_of(job, crew(job, AGGREGATOR), settings=shared)

    assert first.status_first
    ports = job["status"]["ports"]
    assert set(ports) == {"coordinator", AGGREGATOR, MASTER}
    slave = ports[AGGREGATOR]["22272"]
    assert ports[AGGREGATOR] == {"22272": slave, "22273": slave + 1}
    base, meeting = ports[MASTER]["22271"], ports[MASTER]["10314"]
    assert ports[MASTER] == {str(22271 + rank): base + rank for rank in range(12)} | {"10314": meeting}
    drawn = [port for given in ports.values() for port in given.values()]
    assert len(set(drawn)) == len(drawn) == 1 + 2 + 13
    for name in (MASTER, WORKER):
        env = env_of(body_of(plan, name))
        assert (env["LEARNER_PORT"], env["MASTER_PORT"]) == (str(base), str(meeting))
    listening = {
        name: {p["name"]: p["containerPort"] for p in body_of(plan, name)["spec"]["containers"][0]["ports"]}
        for name in (MASTER, WORKER)
    }
    assert listening[MASTER] == {
        "di-port": base,
        **{f"gpu-port-{i}": base + i for i in range(1, 8)},
        "master-port": meeting,
    }
    assert listening[WORKER] == {"di-port": base + 8, **{f"gpu-port-{i}": base + 8 + i for i in range(1, 4)}}
    for name in (MASTER, WORKER):
        assert {p["name"]: p["port"] for p in body_of(plan, name, SERVICE)["spec"]["ports"]} == listening[name]


def test_a_ddp_group_of_one_pod_meets_at_a_port_of_its_own_on_a_shared_network() -> None:
    alone = {"role": "ddp-learner", "at": STAMP, "gpus": 2, "worldSize": 2, "aggregator": AGGREGATOR}
    job = a_job({AGGREGATOR: {"role": "aggregator", "at": STAMP, "worldSize": 2}, MASTER: alone})
    shared = Settings(shared_network=True)
    job = with_status(job, plan_of(job, children_of(job), settings=shared))

    pod = body_of(plan_of(job, crew(job, AGGREGATOR), settings=shared), MASTER)

    assert env_of(pod)["MASTER_PORT"] == str(job["status"]["ports"][MASTER]["10314"]) != "10314"


ALONE: Json = {
    AGGREGATOR: {"role": "aggregator", "at": STAMP, "worldSize": 2},
    MASTER: {"role": "ddp-learner", "at": STAMP, "gpus": 2, "worldSize": 2, "aggregator": AGGREGATOR},
}


@pytest.mark.parametrize(
    "members", [pytest.param(GROUP, id="several-pods"), pytest.param(ALONE, id="one-pod-for-all-gpus")]
)
def test_on_the_network_of_nodes_every_port_of_a_ddp_group_is_a_port_of_one_of_its_pods(members: Json) -> None:
    """The scheduler keeps pods with the same port apart, and knows only ports of containers."""
    on_host = a_template(a_container("di-container"), hostNetwork=True)
    job, config = a_job(members, learner={"template": on_host}), an_agconfig(on_host)
    job = with_status(job, plan_of(job, children_of(job), agconfig=config))

    plans = (plan_of(job, children_of(job), agconfig=config), plan_of(job, crew(job, AGGREGATOR), agconfig=config))

    assert job["status"]["declared"]["aggregator"] == {"port": 22272, "hostNetwork": True}
    pods = {c.key.name: c.body for plan in plans for c in plan.creates if c.resource == POD}
    assert set(pods) == set(members)
    ports = [port["containerPort"] for pod in pods.values() for port in pod["spec"]["containers"][0]["ports"]]
    assert sorted(ports) == sorted(number for given in job["status"]["ports"].values() for number in given.values())


# --- settling ----------------------------------------------------------------------------------


def test_any_mess_settles_into_what_is_declared() -> None:
    job = a_job(GROUP | {COLLECTOR: {"role": "collector", "at": STAMP}, LEARNER: {"role": "learner", "at": STAMP}})
    found: list[Child] = [
        a_pod(job, "coordinator"),
        a_member(job, COLLECTOR, exit_code=1),
        a_member(job, MASTER, phase="Failed", reason="Evicted"),
        a_member(job, "cartpole-collector-stray"),
        a_service(job, "collector", name="cartpole-collector-gone"),
    ]
    now: datetime = NOW
    for _ in range(12):
        plan = plan_of(job, found, now=now)
        if plan.is_quiet and plan.requeue_after is None:
            break
        job, found = after(job, found, plan)
        now += timedelta(seconds=2)

    wanted = {"cartpole-coordinator", *job["status"]["declared"]["members"]}
    assert plan.is_quiet
    assert len(wanted) == 6
    assert {c.key.name for c in found if isinstance(c, PodView)} == wanted
    assert {c.key.name for c in found if not isinstance(c, PodView)} == wanted


def test_an_edited_template_does_not_touch_pods_that_are_there() -> None:
    job, found = settled(a_job(), children_of(a_job()))

    edited = with_spec(job, collector={"template": a_template(a_container("di-container", image="new"))})

    plan = plan_of(edited, found)
    assert (plan.creates, plan.deletes) == ((), ())
