"""``spec.suspend``: the batch Jobs of an MxJob are removed, and all replicas start again when it is resumed."""

from datetime import timedelta

from tests.build import NOW, STAMP, Json
from tests.kinds.mlkube.build import (
    Child,
    a_begun,
    a_job,
    a_mxjob,
    a_pod,
    condition_of,
    name_of,
    places_of,
    plan_of,
    running,
    status_of,
)
from trainmaster.core.ids import JOB, SERVICE
from trainmaster.core.plan import Plan

LATER = NOW + timedelta(seconds=60)


def stored(job: Json, plan: Plan, **spec: object) -> Json:
    return {**job, "status": status_of(plan), "spec": {**job["spec"], **spec}}


def suspended() -> tuple[Json, Json]:
    """A job that ran, and the same after its suspension was stored."""
    job = a_begun("Running", "Running", suspend=True)
    return job, stored(job, plan_of(job, running(job)))


def test_a_suspension_is_stored_before_the_first_job_is_stopped() -> None:
    job = a_begun("Running", "Running", suspend=True)

    plan = plan_of(job, running(job))

    assert plan.status_first
    assert (plan.creates, plan.deletes, plan.patches) == ((), (), ())
    assert (status_of(plan)["phase"], status_of(plan)["state"]) == ("Suspended", "Unknown")
    assert condition_of(plan, "Suspended") == ("True", "Suspended", "job digits is suspended")
    assert condition_of(plan, "Ready")[0] == "False"
    assert [(event.type, event.reason) for event in plan.events] == [("Normal", "MxJobSuspended")]
    assert [entry["ReplicasStates"] for entry in status_of(plan)["replicaStatuses"]] == [
        {"Unknown": 1},
        {"Unknown": 2},
        {"Unknown": 3},
    ]


def test_its_jobs_are_suspended_then_deleted_and_its_service_goes() -> None:
    old, job = suspended()

    first = plan_of(job, running(old))
    stopped = [a_job(old, *place, suspend=True) for place in places_of(old)]
    leaving: list[Child] = [*stopped, a_pod(old, "server", deleting=True)]
    second = plan_of(job, leaving)

    assert [patch.body for patch in first.patches] == [{"spec": {"suspend": True}}] * 6
    assert [(d.resource, d.key.name) for d in first.deletes] == [(SERVICE, name_of(old, "scheduler"))]
    assert {d.key.name for d in second.deletes} == {name_of(old, *p) for p in places_of(old)} - {name_of(old, "server")}
    assert plan_of(job).is_quiet


def test_a_job_that_is_suspended_at_creation_creates_nothing_and_keeps_the_id_of_its_user() -> None:
    job = a_mxjob(RuntimeId="mine", suspend=True)

    first = plan_of(job)
    job = stored(job, first)
    resumed = stored(job, plan_of({**job, "spec": {**job["spec"], "suspend": False}}), suspend=False)

    assert first.creates == ()
    assert "startTime" not in status_of(first)
    assert plan_of(job).is_quiet
    assert name_of(resumed, "worker") == "digits-worker-mine-0"
    assert len(plan_of(resumed).creates) == 7


def test_a_resumed_job_starts_all_replicas_under_other_names_when_the_old_ones_are_gone() -> None:
    old, job = suspended()
    job["spec"]["suspend"] = False

    resumes = plan_of(job, now=LATER)
    job = stored(job, resumes)
    waits = plan_of(job, [a_job(old, "worker", suspend=True), a_pod(old, "worker", deleting=True)], now=LATER)
    starts = plan_of(job, now=LATER)

    assert resumes.status_first
    assert (status_of(resumes)["phase"], status_of(resumes)["startTime"]) == ("Creating", "2026-11-15T12:01:00Z")
    assert condition_of(resumes, "Suspended")[:2] == ("False", "Resumed")
    assert [event.reason for event in resumes.events] == ["MxJobResumed"]
    assert waits.creates == ()
    assert len(starts.creates) == 7
    assert {create.key.name for create in starts.creates}.isdisjoint(name_of(old, *place) for place in places_of(old))


def test_a_suspension_is_no_restart() -> None:
    _, job = suspended()

    assert all("used" not in of_role for of_role in job["status"].get("restarts", {}).values())
    assert "restartHistory" not in job["status"]


def test_jobs_of_an_unstored_attempt_that_are_suspended_do_not_fill_slots_after_the_suspension() -> None:
    """A process ended after it had created Jobs, and before it stored the first status."""
    new = a_mxjob()
    created = [create.key.name for create in plan_of(new).creates if create.resource == JOB]
    jobs = [a_job(new, "worker", name=name) for name in created]
    job = {**new, "spec": {**new["spec"], "suspend": True}}

    job = stored(job, plan_of(job, jobs))

    assert len(plan_of(job, jobs).patches) == 6
    assert name_of(job, "worker") not in created


def test_a_job_that_appears_while_the_job_is_suspended_is_removed_and_fills_no_slot_afterwards() -> None:
    """The operator that created it had lost its lease, and the next one did not see it."""
    job = a_mxjob(suspend=True)
    job = stored(job, plan_of(job))
    late = a_job(job, "worker")

    removes = plan_of(job, [late])
    resumed = stored(job, plan_of({**job, "spec": {**job["spec"], "suspend": False}}, [late]), suspend=False)

    assert [patch.key for patch in removes.patches] == [late.key]
    assert name_of(resumed, "worker") != late.key.name


def test_a_job_that_has_its_result_is_not_suspended() -> None:
    job = a_begun("CleanUp", "Succeeded", status={"completionTime": STAMP}, suspend=True)

    assert status_of(plan_of(job))["phase"] == "Done"


def test_the_deadline_does_not_run_while_a_job_is_suspended() -> None:
    job = a_begun("Running", "Running", suspend=True, activeDeadlineSeconds=30)

    plan = plan_of(job, running(job), now=LATER)

    assert status_of(plan)["phase"] == "Suspended"
