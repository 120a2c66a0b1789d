"""ps-lite takes no lost process back: all replicas restart together."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import NOW, STAMP, Json
from tests.kinds.mlkube.build import (
    Child,
    a_begun,
    a_job,
    a_pod,
    a_service,
    a_spec,
    condition_of,
    name_of,
    places_of,
    plan_of,
    running,
    status_of,
)
from trainmaster.core.ids import JOB, POD, SERVICE
from trainmaster.core.plan import Plan

READY = {"type": "Ready", "status": "True", "reason": "AllReplicasRunning", "lastTransitionTime": STAMP}
LOST = {"Failed": ("BackoffLimitExceeded", "Job has reached the specified backoff limit")}
TARGET = {"FailureTarget": LOST["Failed"]}
"""What a batch Job says as long as a pod of its is on the way out."""
PLACE = ("worker", 1)
SIDE_CAR = [{"name": "side-car", "state": {"running": {}}}]


def a_group(**given: Any) -> Json:
    """A job all of whose replicas run."""
    return a_begun("Running", "Running", status={"conditions": [READY]}, servers=1, workers=2, **given)


def a_group_with_a_lone_worker() -> Json:
    specs = [a_spec("SCHEDULER"), a_spec("SERVER"), a_spec("WORKER", 2, restartScope="Pod")]
    return a_begun("Running", "Running", status={"conditions": [READY]}, specs=specs)


def stored(job: Json, plan: Plan) -> Json:
    return {**job, "status": status_of(plan)}


def killed(job: Json, code: int = 137) -> list[Child]:
    return running(job, a_job(job, *PLACE), a_pod(job, *PLACE, code=code, phase="Failed"), without=[PLACE])


def restarted(**given: Any) -> Json:
    job = a_group(**given)
    return stored(job, plan_of(job, killed(job)))


def test_the_restart_is_counted_before_the_first_job_is_stopped() -> None:
    job = a_group()

    plan = plan_of(job, killed(job))

    assert plan.status_first
    assert (plan.creates, plan.deletes, plan.patches) == ((), (), ())
    assert {role: entry["count"] for role, entry in status_of(plan)["restarts"].items()} == {
        "SCHEDULER": 1,
        "SERVER": 1,
        "WORKER": 1,
    }
    said = "restart times is 1, pod digits-worker-1kkf-1-aaaaa failed: container mxnet on node node-1 exited with "
    assert condition_of(plan, "Recovering") == ("True", "CrewRestarting", f"{said}reason Error exitcode 137 (SIGKILL)")
    assert condition_of(plan, "Ready")[0] == "False"
    assert [(event.type, event.reason) for event in plan.events] == [("Warning", "Recovering")]
    assert [entry["replica"] for entry in status_of(plan)["restartHistory"]] == ["worker-1"]


@pytest.mark.parametrize(
    "worker",
    [
        pytest.param(lambda job: [a_job(job, *PLACE, conditions=LOST)], id="its pod was deleted"),
        pytest.param(
            lambda job: [a_job(job, *PLACE, conditions=TARGET), a_pod(job, *PLACE, deleting=True)],
            id="its node is lost and lets nobody go",
        ),
        pytest.param(lambda job: [], id="its Job was deleted"),
        pytest.param(lambda job: [a_job(job, *PLACE, deleting=True)], id="its Job is being deleted"),
        pytest.param(lambda job: [a_job(job, *PLACE, suspend=True)], id="somebody suspended its Job"),
        pytest.param(
            lambda job: [a_job(job, *PLACE, suspend=True), a_pod(job, *PLACE)], id="somebody suspends its Job"
        ),
        pytest.param(lambda job: [a_job(job, *PLACE), a_pod(job, *PLACE, last=139)], id="it was started in place"),
        pytest.param(
            lambda job: [a_job(job, *PLACE), a_pod(job, *PLACE, code=1, phase="Failed", reason="Evicted")],
            id="its node put it out",
        ),
        pytest.param(
            lambda job: [a_job(job, *PLACE), a_pod(job, *PLACE, code=137, more=SIDE_CAR)], id="its side-car outlives it"
        ),
        pytest.param(
            lambda job: [a_job(job, *PLACE), a_pod(job, *PLACE, code=1, reason="Evicted", more=SIDE_CAR)],
            id="its node is putting it out",
        ),
    ],
)
def test_all_replicas_restart_when_one_is_lost(worker: Any) -> None:
    job = a_group()

    plan = plan_of(job, running(job, *worker(job), without=[PLACE]))

    assert status_of(plan)["restarts"]["WORKER"]["used"] == 1


def test_a_job_that_is_missing_before_all_have_run_is_created() -> None:
    job = a_begun(servers=1, workers=2)

    plan = plan_of(job, running(job, without=[PLACE]))

    assert [create.key.name for create in plan.creates] == [name_of(job, *PLACE)]


def test_a_job_that_is_suspended_before_all_have_run_is_waited_for() -> None:
    """As a queue does it with every Job that it has no room for yet."""
    job = a_begun(servers=1, workers=2)

    plan = plan_of(job, running(job, a_job(job, *PLACE, suspend=True), without=[PLACE]))

    said = f"worker-1: job {name_of(job, *PLACE)} is suspended; it goes on when it is resumed"
    assert (plan.creates, plan.deletes, plan.patches) == ((), (), ())
    assert condition_of(plan, "Ready") == ("False", "ReplicasStarting", said)


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(lambda job: [], id="gone"),
        pytest.param(lambda job: [a_pod(job, *PLACE, deleting=True)], id="going"),
    ],
)
def test_a_pod_that_is_gone_before_its_job_says_so_changes_nothing_yet(pods: Any) -> None:
    """The watch of Jobs may be behind that of pods. How the pod ended, or that its Job is gone with it, is yet to come:
    a status that says meanwhile that not all run would hide that this Job was deleted."""
    job = a_group()
    job = stored(job, plan_of(job, running(job)))

    plan = plan_of(job, running(job, a_job(job, *PLACE), *pods(job), without=[PLACE]))

    assert (plan.status, plan.creates, plan.deletes, plan.patches) == (None, (), (), ())


def test_a_replica_that_is_lost_while_a_worker_restarts_alone_restarts_all() -> None:
    job = a_group_with_a_lone_worker()
    job = stored(job, plan_of(job, killed(job)))
    assert condition_of(plan_of(a_group_with_a_lone_worker(), killed(job)), "Ready")[0] == "False"

    plan = plan_of(job, [child for child in killed(job) if child.key.name != name_of(job, "server")])

    assert plan.creates == ()
    assert status_of(plan)["restarts"]["SERVER"]["used"] == 1


def test_a_job_that_is_missing_before_all_run_again_is_no_fault() -> None:
    """A worker that restarts alone fails while others of the new attempt could not be created."""
    old = a_group_with_a_lone_worker()
    job = stored(old, plan_of(old, [child for child in running(old) if child.key.name != name_of(old, "server")]))
    coming: list[Child] = [a_service(job), a_job(job, *PLACE), a_pod(job, *PLACE, code=137, phase="Failed")]
    job = stored(job, plan_of(job, coming))

    plan = plan_of(job, coming)

    assert plan.status is None
    assert name_of(job, "server") in [create.key.name for create in plan.creates]


def test_old_jobs_are_suspended_then_deleted_and_then_new_ones_are_created() -> None:
    old, job = a_group(), restarted()

    first = plan_of(job, killed(old))
    stopping = [a_job(old, *place, suspend=True) for place in places_of(old)]
    leaving: list[Child] = [*stopping, a_pod(old, "server", deleting=True)]
    second = plan_of(job, leaving)
    third = plan_of(job)

    assert [(p.resource, p.body) for p in first.patches] == [(JOB, {"spec": {"suspend": True}})] * 4
    assert [d.key.name for d in first.deletes] == [name_of(old, "scheduler")]  # the address
    assert first.creates == ()
    assert {d.key.name for d in second.deletes} == {name_of(old, *p) for p in places_of(old)} - {name_of(old, "server")}
    assert (second.creates, second.patches) == ((), ())
    names = [name_of(job, *place) for place in places_of(job)]
    assert [c.key.name for c in third.creates] == [name_of(job, "scheduler"), *names]


def test_new_jobs_have_other_names_of_the_same_length() -> None:
    """Kubernetes' Job controller may take five minutes for a Job whose name another one has just had."""
    old, job = a_group(), restarted()
    short = a_begun("Running", "Running", status={"conditions": [READY], "runtimeId": "x"}, servers=1, workers=2)

    after_short = status_of(plan_of(short, killed(short)))["runtimeId"]

    assert job["status"]["runtimeId"] != old["status"]["runtimeId"]
    assert len(job["status"]["runtimeId"]) == 4
    assert after_short != "x"
    assert len(after_short) == 1


@pytest.mark.parametrize("is_deleted", [False, True], ids=["the Job is suspended", "the Job is deleted"])
def test_a_pod_of_the_old_attempt_that_does_not_terminate_is_force_deleted_before_the_next_attempt(
    is_deleted: bool,
) -> None:
    """A Job that is deleted in the foreground stays until its pods are gone."""
    old, job = a_group(), restarted()
    batch = a_job(old, *PLACE, suspend=True, deleting=is_deleted)
    stuck: list[Child] = [batch, a_pod(old, *PLACE, deleting=True)]

    waits = plan_of(job, stuck, now=NOW + timedelta(seconds=30))
    forces = plan_of(job, stuck, now=NOW + timedelta(seconds=60))
    forced = plan_of(job, [batch, a_pod(old, *PLACE, forced=True)], now=NOW + timedelta(seconds=61))

    assert (waits.creates, waits.deletes, waits.requeue_after) == ((), (), 30)
    assert [(d.resource, d.grace) for d in forces.deletes] == [(POD, 0)]
    assert forces.creates == ()
    if is_deleted:
        assert len(forced.creates) == 5
    else:
        assert [d.key.name for d in forced.deletes] == [name_of(old, *PLACE)]


def test_it_recovers_until_all_run_again() -> None:
    job = restarted()
    new = [a_job(job, *place) for place in places_of(job)]
    pods = [a_pod(job, *place) for place in places_of(job)]

    some = plan_of(job, [a_service(job), *new, *pods[:-1]])
    every = plan_of(job, [a_service(job), *new, *pods])

    assert condition_of(some, "Recovering")[0] == "True"
    assert status_of(some)["phase"] == "Running"
    assert condition_of(every, "Recovering")[:2] == ("False", "Recovered")
    assert condition_of(every, "Ready")[0] == "True"


def test_a_replica_that_had_succeeded_restarts_with_the_others() -> None:
    job = a_group()
    job = stored(job, plan_of(job, running(job, a_job(job, "worker", succeeded=1), without=[("worker", 0)])))
    assert job["status"]["done"] == {"WORKER": [0]}

    job = stored(job, plan_of(job, killed(job)))

    assert "done" not in job["status"]
    assert name_of(job, "worker", 0) in [create.key.name for create in plan_of(job).creates]


def test_a_failure_is_counted_once() -> None:
    job = restarted()

    again = plan_of(job, killed(a_group()))

    assert again.status is None or again.status["restarts"] == job["status"]["restarts"]


def test_the_second_restart_in_a_row_waits() -> None:
    job = restarted()
    fallen: list[Child] = [a_job(job, *PLACE), a_pod(job, *PLACE, code=137, phase="Failed")]

    twice = stored(job, plan_of(job, fallen))
    waits = plan_of(twice, now=NOW + timedelta(seconds=4))
    comes = plan_of(twice, now=NOW + timedelta(seconds=10))

    assert ([create.resource for create in waits.creates], waits.requeue_after) == ([SERVICE], 6)
    assert len(comes.creates) == 5


@pytest.mark.parametrize(("limit", "says"), [({"backoffLimit": 0}, 0), ({"backoffLimit": 1}, 1), ({}, 6)])
def test_the_job_has_failed_when_its_backoff_limit_is_used_up(limit: Json, says: int) -> None:
    used = {"WORKER": {"count": says, "used": says, "attempt": says}}
    job = a_begun("Running", "Running", status={"conditions": [READY], "restarts": used}, **limit)

    plan = plan_of(job, killed(job))

    assert status_of(plan)["state"] == "Failed"
    assert status_of(plan)["reason"].endswith(f"exitcode 137 (SIGKILL) (backoffLimit {says} is used up)")


def test_a_permanent_failure_restarts_nothing() -> None:
    job = a_group()

    assert status_of(plan_of(job, killed(job, code=1)))["state"] == "Failed"


def test_a_worker_with_restart_scope_pod_restarts_alone() -> None:
    job = a_group_with_a_lone_worker()

    plan = plan_of(job, killed(job))

    assert "restarts" not in status_of(plan)
    assert condition_of(plan, "Recovering")[:2] == ("True", "ReplicaRestarting")


# --- Jobs that another operator created ---


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(lambda job: [a_pod(job, *PLACE, last=137, restart_policy="OnFailure")], id="in place"),
        pytest.param(
            lambda job: [a_pod(job, *PLACE, code=137, phase="Failed"), a_pod(job, *PLACE, suffix="b")],
            id="in another pod",
        ),
        pytest.param(lambda job: [a_pod(job, *PLACE, code=137, phase="Failed")], id="soon"),
    ],
)
def test_a_job_of_the_mxnet_operator_restarts_its_pod_and_no_other(pods: Any) -> None:
    job = a_begun("Running", "Running")
    plan = plan_of(job, running(job, a_job(job, *PLACE, is_adopted=True), *pods(job), without=[PLACE]))

    assert not plan.status_first
    assert (plan.creates, plan.deletes, plan.patches) == ((), (), ())
    assert "restarts" not in status_of(plan)
