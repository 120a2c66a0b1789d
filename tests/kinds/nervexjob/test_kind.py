"""The life of a NerveXJob: a template before pods, two pods before Running, and the coordinator alone at the end."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    SETTINGS,
    STAMP,
    Child,
    Json,
    a_container,
    a_nervexjob,
    a_pod,
    a_template,
    after,
    an_agconfig,
    kind_of,
    names_of,
    plan_of,
    services_of,
    settled,
    with_aggregator,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE, Key
from trainmaster.kinds.base import Related, Settings

EXITED = "pod cartpole-coordinator failed: container coordinator on node node-1 exited with reason Error exitcode 1"
BOTH = ["cartpole-coordinator", "cartpole-aggregator"]


def a_job(phase: str = "Created", **spec: Any) -> Json:
    """A job that is known, with the template of its aggregator on record."""
    job = with_aggregator(a_nervexjob(spec=spec))
    return with_status(job, job["status"] | {"phase": phase, "observedGeneration": 1})


def condition_of(job: Json, type_: str) -> Json:
    (found,) = [c for c in job["status"]["conditions"] if c["type"] == type_]
    return dict(found)


# --- the AggregatorConfig ------------------------------------------------------------------------


def test_the_aggregators_template_is_on_record_before_any_pod() -> None:
    job = a_nervexjob()

    first = plan_of(job)
    second = plan_of(with_status(job, first))

    assert first.status_first
    assert (first.creates, first.status and first.status["phase"]) == ((), "Created")
    assert names_of(second.creates, SERVICE) == BOTH
    assert names_of(second.creates, POD) == BOTH


def test_a_job_without_an_aggregatorconfig_says_so_and_settles() -> None:
    job = a_nervexjob()
    first = plan_of(job, agconfig={})
    waiting = with_status(job, first)

    assert first.creates == ()
    assert condition_of(waiting, "PodCreateFailed") == {
        "type": "PodCreateFailed",
        "status": "True",
        "reason": "NoAggregatorConfig",
        "message": "AggregatorConfig nervex-system/aggregator-config is missing: create it there, those of other "
        "namespaces are not read; the job goes on as soon as it exists",
        "lastTransitionTime": STAMP,
    }
    assert waiting["status"]["phase"] == "Created"
    assert plan_of(waiting, agconfig={}, now=NOW + timedelta(hours=1)).is_quiet


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({}, "aggregator", id="no template"),
        pytest.param(
            {"aggregator": {"template": {"spec": {"containers": []}}}}, "aggregator.template.spec", id="no container"
        ),
    ],
)
def test_an_aggregatorconfig_that_is_of_no_use_is_told_with_the_place(spec: Json, says: str) -> None:
    job = with_status(a_nervexjob(), plan_of(a_nervexjob(), agconfig={**an_agconfig(), "spec": spec}))

    message = condition_of(job, "PodCreateFailed")["message"]
    assert message.startswith("AggregatorConfig nervex-system/aggregator-config cannot be used: ")
    assert says in message


def test_a_job_that_waited_goes_on_when_the_aggregatorconfig_appears() -> None:
    waiting = with_status(a_nervexjob(), plan_of(a_nervexjob(), agconfig={}))

    job, children = settled(waiting)

    assert {child.key.name for child in children} == set(BOTH)
    assert condition_of(job, "PodCreateFailed")["status"] == "False"


def test_a_job_keeps_the_address_of_the_aggregator_that_it_began_with() -> None:
    """Its coordinator was told that one's address."""
    job, children = settled(a_nervexjob())
    alone = [child for child in children if child.key.name != "cartpole-aggregator"]
    later = an_agconfig(a_template(a_container("aggregator", ports={"aggregator": 99})))

    pod = next(c.body for c in plan_of(job, alone, agconfig=later).creates if c.resource == POD)

    assert pod["spec"]["containers"][0]["ports"] == [{"name": "aggregator", "containerPort": 80}]


def test_a_job_whose_aggregator_is_gone_waits_for_the_aggregatorconfig_and_keeps_its_coordinator() -> None:
    job, children = settled(a_nervexjob())
    alone = [child for child in children if child.key.name != "cartpole-aggregator"]

    plan = plan_of(job, alone, agconfig={})

    assert (plan.creates, plan.deletes) == ((), ())
    assert condition_of(with_status(job, plan), "PodCreateFailed")["reason"] == "NoAggregatorConfig"


def test_a_running_aggregator_gets_its_service_again_also_without_the_aggregatorconfig() -> None:
    job, children = settled(a_nervexjob())
    services = {(child.key.name, type(child).__name__) for child in children}
    assert ("cartpole-aggregator", "ServiceView") in services
    left = [c for c in children if (c.key.name, type(c).__name__) != ("cartpole-aggregator", "ServiceView")]

    plan = plan_of(job, left, agconfig={})

    assert [(create.resource.kind, create.key.name) for create in plan.creates] == [("Service", "cartpole-aggregator")]


def test_the_aggregatorconfig_is_the_one_that_the_operator_was_told() -> None:
    resource = kind_of(a_nervexjob()).related
    told = kind_of(a_nervexjob(), Settings(aggregator_config=Key("here", "mine"))).related

    assert isinstance(resource, Related)
    assert resource.key == SETTINGS.aggregator_config == Key("nervex-system", "aggregator-config")
    assert str(resource.resource) == "aggregatorconfigs.nervex.sensetime.com"
    assert told is not None
    assert told.key == Key("here", "mine")


# --- phases --------------------------------------------------------------------------------------


def phase_after(job: Json, coordinator: Json, aggregator: Json | None) -> tuple[str, str]:
    """The phase that a pass finds, and the message of its condition."""
    pods: list[Child] = [a_pod(job, "coordinator", **coordinator)]
    if aggregator is not None:
        pods.append(a_pod(job, "aggregator", **aggregator))
    stored = with_status(job, plan_of(job, [*pods, *services_of(job)]))["status"]
    return stored["phase"], stored["conditions"][-1]["message"] if "conditions" in stored else ""


RUNS: Json = {"phase": "Running"}
PENDS: Json = {"phase": "Pending"}
FAILED: Json = {"exit_code": 1}
DONE: Json = {"exit_code": 0}


@pytest.mark.parametrize(
    ("coordinator", "aggregator", "phase"),
    [
        pytest.param(PENDS, PENDS, "Created", id="none runs"),
        pytest.param(RUNS, PENDS, "Created", id="the coordinator alone runs"),
        pytest.param(RUNS, None, "Created", id="the coordinator has no aggregator"),
        pytest.param(PENDS, RUNS, "Created", id="the aggregator alone runs"),
        pytest.param(RUNS, RUNS, "Running", id="both run"),
        pytest.param(RUNS, FAILED, "Created", id="the aggregator failed"),
        pytest.param(RUNS, DONE, "Created", id="the aggregator ended"),
        pytest.param(DONE, RUNS, "Succeeded", id="the coordinator succeeded"),
        pytest.param(DONE, PENDS, "Succeeded", id="the coordinator succeeded without an aggregator"),
        pytest.param(FAILED, RUNS, "Failed", id="the coordinator failed"),
        pytest.param(FAILED, FAILED, "Failed", id="both failed"),
    ],
)
def test_a_job_runs_when_both_run_and_ends_with_its_coordinator(
    coordinator: Json, aggregator: Json | None, phase: str
) -> None:
    assert phase_after(a_job(), coordinator, aggregator)[0] == phase


@pytest.mark.parametrize("aggregator", [None, PENDS, FAILED, DONE])
def test_a_job_that_runs_goes_on_running_while_its_aggregator_is_away(aggregator: Json | None) -> None:
    assert phase_after(a_job("Running"), RUNS, aggregator)[0] == "Running"


@pytest.mark.parametrize(
    ("coordinator", "message"),
    [
        (RUNS, "coordinator and aggregator of NerveXJob cartpole are running"),
        (DONE, "NerveXJob cartpole succeeded because coordinator succeeded"),
        (
            FAILED,
            f"NerveXJob cartpole failed because coordinator failed: {EXITED}",
        ),
    ],
)
def test_messages_speak_of_a_nervexjob(coordinator: Json, message: str) -> None:
    assert phase_after(a_job(), coordinator, RUNS)[1] == message


def test_reasons_and_events_speak_of_a_nervexjob() -> None:
    job = a_nervexjob()
    created = plan_of(job)
    ended = plan_of(a_job("Running"), [a_pod(job, "coordinator", exit_code=0), *services_of(job)])

    assert [(event.reason, event.message) for event in created.events] == [
        ("NerveXJobCreated", "NerveXJob cartpole created")
    ]
    assert [event.reason for event in ended.events] == ["NerveXJobSucceeded"]
    assert condition_of(with_status(job, ended), "Succeeded")["reason"] == "NerveXJobSucceeded"
    assert kind_of(job).component == "nervex-operator"


def test_the_main_container_decides_by_the_name_of_its_role() -> None:
    job = a_job("Running")
    coordinator = a_pod(job, "coordinator", phase="Running", containers={"coordinator": 0, "di-container": None})

    plan = plan_of(job, [coordinator, a_pod(job, "aggregator"), *services_of(job)])

    assert plan.status is not None
    assert plan.status["phase"] == "Succeeded"


def test_both_are_counted() -> None:
    job = a_job()
    plan = plan_of(job, [a_pod(job, "coordinator"), a_pod(job, "aggregator"), *services_of(job)])

    assert plan.status is not None
    assert plan.status["replicaStatus"] == {
        "Coordinator": {"active": 1},
        "Aggregator": {"active": 1},
        "Collector": {},
        "Learner": {},
    }


def test_at_the_end_the_aggregator_goes_and_the_coordinator_stays_for_its_log() -> None:
    job = a_job("Succeeded")
    plan = plan_of(job, [a_pod(job, "coordinator", exit_code=0), a_pod(job, "aggregator"), *services_of(job)])

    assert names_of(plan.deletes, POD) == ["cartpole-aggregator"]
    assert sorted(names_of(plan.deletes, SERVICE)) == sorted(BOTH)


# --- an aggregator that is lost ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "containers": {}}, "Evicted (node node-1)", id="ended by its node"
        ),
        pytest.param(FAILED, "container aggregator on node node-1 exited with reason Error exitcode 1", id="failed"),
    ],
)
def test_a_lost_aggregator_restarts_under_its_name_at_once(lost: Json, says: str) -> None:
    job = a_job("Running")
    rest: list[Child] = [a_pod(job, "coordinator"), *services_of(job)]
    gone = a_pod(job, "aggregator", **lost)

    first = plan_of(job, [*rest, gone])
    job = with_status(job, first)
    second = plan_of(job, [*rest, gone])
    third = plan_of(job, rest)

    assert first.status_first
    assert [(event.reason, event.message) for event in first.events] == [
        ("AggregatorDisplaced", f"pod cartpole-aggregator failed: {says}; another pod takes its place")
    ]
    assert [delete.uid for delete in second.deletes] == [gone.uid]
    assert names_of(third.creates, POD) == ["cartpole-aggregator"]
    assert job["status"]["restarts"]["aggregator"]["count"] == 1


def test_an_aggregator_that_fails_again_and_again_waits_longer_each_time() -> None:
    job = a_job("Running")
    rest: list[Child] = [a_pod(job, "coordinator"), *services_of(job)]
    for number in range(3):
        labels = {"replica-type": "aggregator", "restart-count": str(number)}
        job = with_status(job, plan_of(job, [*rest, a_pod(job, "aggregator", exit_code=1, labels=labels)]))

    assert plan_of(job, rest).requeue_after == 2.0


def test_an_aggregator_that_somebody_deleted_comes_again_at_once() -> None:
    job = a_job("Running")

    plan = plan_of(job, [a_pod(job, "coordinator"), *services_of(job)])

    assert names_of(plan.creates, POD) == ["cartpole-aggregator"]


def test_a_pod_of_the_aggregators_name_without_its_labels_gives_way() -> None:
    job = a_job("Running")
    stray = a_pod(job, "aggregator", labels={})

    plan = plan_of(job, [a_pod(job, "coordinator"), stray, *services_of(job)])

    assert names_of(plan.deletes, POD) == ["cartpole-aggregator"]


# --- replicas that were declared -----------------------------------------------------------------


def test_declared_replicas_come_beside_the_aggregator() -> None:
    role = {"template": a_template(a_container("collector"))}
    job = a_job("Running", collector=role)
    members = {"cartpole-collector-x7k2p": {"role": "collector", "at": STAMP}}
    declared = job["status"]["declared"] | {"members": members}
    job = with_status(job, job["status"] | {"declared": declared})
    children: list[Child] = [a_pod(job, "coordinator"), a_pod(job, "aggregator"), *services_of(job)]

    plan = plan_of(job, children)
    _, children = after(job, children, plan)

    assert names_of(plan.creates, POD) == ["cartpole-collector-x7k2p"]
    assert plan.deletes == ()
    assert plan_of(job, children).creates == ()


# --- ports on a shared network -------------------------------------------------------------------


def test_on_a_shared_network_both_have_ports_of_their_own_and_know_each_others() -> None:
    local = Settings(server_url="127.0.0.1:1", shared_network=True)
    job = a_job()

    first = plan_of(job, settings=local)
    job = with_status(job, first)
    pods = {c.key.name: c.body for c in plan_of(job, settings=local).creates if c.resource == POD}

    assert first.status_first
    coordinator, aggregator = (
        next(iter(job["status"]["ports"][role].values())) for role in ("coordinator", "aggregator")
    )
    for pod in pods.values():
        env = {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}
        assert env["KUBERNETES_COORDINATOR_URL"] == f"cartpole-coordinator.rl:{coordinator}"
        assert env["KUBERNETES_AGGREGATOR_URL"] == f"cartpole-aggregator.rl:{aggregator}"
    (container,) = pods["cartpole-aggregator"]["spec"]["containers"]
    assert container["ports"] == [{"name": "aggregator", "containerPort": aggregator, "hostPort": aggregator}]


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "longest"),
    [
        pytest.param((), 51, id="-coordinator"),
        pytest.param(("learner",), 49, id="-learner-xxxxx"),
        pytest.param(("collector", "learner"), 47, id="-collector-xxxxx"),
    ],
)
def test_a_name_is_refused_when_a_pods_name_would_be_too_long(roles: tuple[str, ...], longest: int) -> None:
    spec = {role: {"template": a_template(a_container(role))} for role in roles}

    assert plan_of(a_nervexjob("a" * longest, spec=spec)).status_first
    refused = with_status(a_nervexjob(), plan_of(a_nervexjob("a" * (longest + 1), spec=spec)))
    assert "is too long" in condition_of(refused, "Accepted")["message"]


def test_back_off_grows_also_in_a_job_that_has_run_for_long() -> None:
    job, later = a_job("Running"), NOW + timedelta(minutes=11)
    since = {"type": "Running", "status": "True", "reason": "NerveXJobRunning", "lastTransitionTime": STAMP}
    job = with_status(job, job["status"] | {"conditions": [since]})
    rest: list[Child] = [a_pod(job, "coordinator"), *services_of(job)]
    for number in range(3):
        labels = {"replica-type": "aggregator", "restart-count": str(number)}
        job = with_status(job, plan_of(job, [*rest, a_pod(job, "aggregator", exit_code=1, labels=labels)], now=later))

    assert plan_of(job, rest, now=later).requeue_after == 2.0
