"""Pods of batch Jobs that the API server refuses: when the Events of a Job are read, and what is said."""

from datetime import timedelta

from tests.build import NOW, STAMP, Child, Json, view_of
from tests.kinds.mlkube.build import a_begun, a_job, condition_of, plan_of, running, status_of
from trainmaster.core.ids import POD
from trainmaster.core.plan import Create
from trainmaster.kinds.base import Failure, Settings
from trainmaster.kinds.mlkube.kind import MxJobKind

WORKER = ("worker", 0)
REFUSED = Failure(
    Create(POD, {"metadata": {"namespace": "ml", "name": "digits-worker-0", "labels": {}}}, ""), "exceeded quota: gpu"
)


def a_job_without_a_pod(job: Json, *, suspend: bool = False) -> list[Child]:
    return running(job, a_job(job, *WORKER, started=STAMP, suspend=suspend), without=[WORKER])


def test_a_job_that_has_just_begun_to_create_its_pod_is_given_some_seconds() -> None:
    job = a_begun()
    plan = plan_of(job, a_job_without_a_pod(job), now=NOW + timedelta(seconds=4))

    assert plan.podless == ()
    assert plan.requeue_after == 6.0


def test_the_events_of_a_job_without_a_pod_are_wanted_and_later_again() -> None:
    job = a_begun()
    plan = plan_of(job, a_job_without_a_pod(job), now=NOW + timedelta(seconds=10))

    assert [child.key.name for child in plan.podless] == ["digits-worker-1kkf-0"]
    assert plan.requeue_after == 30.0


def test_of_a_job_that_creates_no_pods_no_events_are_wanted() -> None:
    job = a_begun()
    later = NOW + timedelta(seconds=60)

    assert plan_of(job, running(job), now=later).podless == ()
    assert plan_of(job, a_job_without_a_pod(job, suspend=True), now=later).podless == ()
    assert plan_of(job, [a_job(job, *WORKER)], now=later).podless == ()  # its controller has not seen it


def test_that_pods_are_refused_stays_true_until_all_jobs_have_one() -> None:
    kind, job = MxJobKind(Settings()), a_begun()
    children = a_job_without_a_pod(job)
    plan = plan_of(job, children)
    told = kind.conclude(view_of(job), plan, [REFUSED], NOW)
    job["status"] = status_of(told)

    assert condition_of(told, "PodCreateFailed")[:2] == ("True", "FailedCreate")
    assert status_of(told)["summary"]["message"].startswith("pod ml/digits-worker-0: exceeded quota: gpu")
    assert plan_of(job, children).status is None
    assert condition_of(plan_of(job, running(job)), "PodCreateFailed")[0] == "False"
