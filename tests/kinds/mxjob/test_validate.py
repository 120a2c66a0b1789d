"""What is wrong with an MXJob, said with the path of the field: the schema's part is in tests/manifests."""

from typing import Any

import pytest

from tests.build import Json, a_container, a_template, an_mx_replica, an_mxjob, plan_of, with_status
from trainmaster.core.plan import Plan

ROLES = "Scheduler, Server, Worker, TunerTracker, TunerServer, Tuner"


def errors_of(plan: Plan) -> str:
    """What the condition Accepted says."""
    assert plan.status is not None
    (accepted,) = [c for c in plan.status["conditions"] if c["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    message: str = accepted["message"]
    return message


def tuning(**more: int) -> Json:
    roles: dict[str, Any] = {"TunerTracker": 1, "TunerServer": 1, "Tuner": 1, **more}
    return an_mxjob(mode="MXTune", **roles)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        pytest.param(
            an_mxjob(Scheduler=2, Server=1, Worker=1),
            "spec.mxReplicaSpecs.Scheduler.replicas: there is one Scheduler in a job, not 2; set it to 1",
            id="two-schedulers",
        ),
        pytest.param(
            tuning(TunerTracker=2),
            "spec.mxReplicaSpecs.TunerTracker.replicas: there is one TunerTracker in a job, not 2; set it to 1",
            id="two-trackers",
        ),
        pytest.param(
            an_mxjob(Server=1, Worker=1),
            "spec.mxReplicaSpecs.Scheduler: MXTrain needs a Scheduler",
            id="no-scheduler",
        ),
        pytest.param(
            an_mxjob(Scheduler=1, Worker=1), "spec.mxReplicaSpecs.Server: MXTrain needs a Server", id="no-server"
        ),
        pytest.param(
            an_mxjob(mode="MXTune", TunerServer=1, Tuner=1),
            "spec.mxReplicaSpecs.TunerTracker: MXTune needs a TunerTracker",
            id="no-tracker",
        ),
        pytest.param(
            tuning(Worker=1),
            "spec.mxReplicaSpecs.Worker: MXTune has no role Worker; it has TunerTracker, TunerServer, Tuner",
            id="role-of-the-other-mode",
        ),
        pytest.param(
            an_mxjob(Scheduler=1, Server=1, Worker=1, Master=1),
            f"spec.mxReplicaSpecs.Master: there is no such role; there are {ROLES}",
            id="unknown-role",
        ),
        pytest.param(
            an_mxjob(Scheduler=1, Server=1, Worker=1, worker=1),
            "spec.mxReplicaSpecs.worker: differs from 'Worker' only in case; rename one of them",
            id="one-role-twice",
        ),
        pytest.param(
            an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(1, a_template(a_container("main")))),
            "spec.mxReplicaSpecs.Worker.template.spec.containers: none of main is called 'mxnet'; rename the one",
            id="no-mxnet-container",
        ),
        pytest.param(
            an_mxjob(Scheduler=1, Server=an_mx_replica(1, restartScope="Pod"), Worker=1),
            "spec.mxReplicaSpecs.Server.restartScope: a Server cannot join again by itself",
            id="server-alone",
        ),
        pytest.param(
            an_mxjob("a" * 52, Scheduler=1, Server=1, Worker=1),
            "-scheduler-0' would have 64 characters, 63 are allowed; shorten the job's name by 1",
            id="name-too-long",
        ),
        pytest.param(an_mxjob("1st"), "must start with a letter", id="name-is-no-service"),
        pytest.param(
            an_mxjob(spec={"restartingExitCode": "sometimes"}),
            "spec.restartingExitCode: 'sometimes' is no exit code",
            id="no-exit-code",
        ),
        pytest.param(
            an_mxjob(policy={"backoffLimit": 3}, spec={"backoffLimit": 4}),
            "spec.backoffLimit: spec.runPolicy.backoffLimit says something else; leave one of them out",
            id="two-meanings",
        ),
        pytest.param(
            an_mxjob(Scheduler=1, Server=1000, Worker=5000),
            "spec.mxReplicaSpecs: the addresses and labels of 6001 replicas do not fit into one environment variable",
            id="too-many-addresses",
        ),
        pytest.param(
            an_mxjob(Worker=an_mx_replica(10, label="x" * 131_000)),
            "spec.mxReplicaSpecs: the addresses and labels of 10 replicas do not fit into one environment variable",
            id="too-long-a-label",
        ),
        pytest.param(
            an_mxjob(Scheduler=1, Server=5000, Worker=5000),
            "spec.mxReplicaSpecs: the replicas of all roles add up to 10001, and a job may have 10000; lower replicas",
            id="too-many-replicas",
        ),
        pytest.param(
            an_mxjob(
                Worker=an_mx_replica(
                    2000, a_template(a_container("mxnet"), *({"name": f"c{index}"} for index in range(6000)))
                )
            ),
            "spec.mxReplicaSpecs.Worker.template: a pod with the variables of its containers needs",
            id="pods-that-nothing-can-store",
        ),
    ],
)
def test_what_cannot_run_is_said_with_the_path_of_the_field(job: Json, says: str) -> None:
    plan = plan_of(job)

    assert says in errors_of(plan)
    assert not plan.creates


def test_everything_that_is_wrong_is_said_at_once() -> None:
    said = errors_of(plan_of(an_mxjob(Scheduler=2, Server=an_mx_replica(1, a_template(a_container("main"))))))

    assert said.count("; ") >= 2
    for path in ("Scheduler.replicas", "Server.template.spec.containers", "Worker: MXTrain needs"):
        assert path in said


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(an_mxjob(), id="train"),
        pytest.param(an_mxjob(Worker=1), id="workers-alone"),
        pytest.param(tuning(), id="tune"),
        pytest.param(an_mxjob(scheduler=1, server=1, worker=1), id="lower-case"),
        pytest.param(an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(2, restartScope="Pod")), id="worker-alone"),
        pytest.param(an_mxjob(policy={"backoffLimit": 3}, spec={"backoffLimit": 3}), id="said-twice"),
    ],
)
def test_what_can_run_is_accepted(job: Json) -> None:
    assert plan_of(job).creates


def test_a_job_that_was_corrected_goes_on() -> None:
    bad = an_mxjob(Scheduler=2, Server=1, Worker=1)
    rejected = plan_of(bad).status
    assert rejected is not None

    plan = plan_of(with_status(an_mxjob(generation=2), rejected))

    assert plan.creates
    assert plan.status is not None
    assert [c["status"] for c in plan.status["conditions"] if c["type"] == "Accepted"] == ["True"]


def test_a_restart_policy_of_a_template_is_overwritten_and_that_is_said() -> None:
    template = a_template(a_container("mxnet"), restartPolicy="OnFailure")

    plan = plan_of(an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(1, template)))

    (said,) = [event for event in plan.events if event.type == "Warning"]
    assert said.reason == "SettedPodTemplateRestartPolicy"
    assert "Worker" in said.message
