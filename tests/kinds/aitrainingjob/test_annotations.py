"""Annotations, suspension and deadlines of an AITrainingJob (docs/aitrainingjob.md)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    Child,
    Json,
    a_pod,
    a_replica,
    after,
    an_aitj,
    children_of,
    names_of,
    plan_of,
    pod_json,
    replicas_of,
    services_of,
    settled,
    view_of_pod,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.plan import Event, Plan
from trainmaster.core.view import PodView
from trainmaster.kinds.aitrainingjob.types import RESOURCE

JOB = an_aitj(trainer=2, ps=1)


def later(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def annotated(job: Json, **annotations: str) -> Json:
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}}


def running(job: Json) -> Json:
    job = with_status(job, plan_of(job))
    return with_status(job, plan_of(job, children_of(job)))


def status_of(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def finished(job: Json, children: list[Child]) -> tuple[Json, list[Child]]:
    """Passes until the job has settled."""
    return settled(job, children)


# --- annotations that end a job ---


@pytest.mark.parametrize("clean", ["All", "Running", "None", "CleanPodPolicyNone"])
@pytest.mark.parametrize("phase", ["", "Pending", "Creating", "Running", "Restarting"])
@pytest.mark.parametrize("end", ["Preempted", "Failed", "NodeFail"])
def test_an_annotation_ends_a_job_in_every_phase_and_leaves_nothing_running(end: str, phase: str, clean: str) -> None:
    job = an_aitj(trainer=2, ps=1, clean=clean, complete="None", fail="None")
    job = with_status(job, {**running(job)["status"], "phase": phase})
    told = annotated(job, **{end: "the queue wants its GPUs"})

    first = plan_of(told, children_of(job))
    after_all, left = finished(told, children_of(job))

    assert (first.status_first, status_of(first)["ending"]["phase"]) == (True, end)
    assert (after_all["status"]["phase"], left) == (end, [])
    assert after_all["status"]["conditions"][-1]["message"] == "the queue wants its GPUs; deleted pods"
    assert after_all["status"]["endTime"]


@pytest.mark.parametrize(
    ("key", "end"),
    [
        ("preempted", "Preempted"),
        ("elasticdeeplearning.ai/Preempted", "Preempted"),
        ("elasticdeeplearning.ai/preempted", "Preempted"),
        ("failed", "Failed"),
        ("nodefail", "NodeFail"),
        ("nodefailed", "NodeFail"),
        ("elasticdeeplearning.ai/nodefailed", "NodeFail"),
    ],
)
def test_an_annotation_may_be_spelt_in_several_ways(key: str, end: str) -> None:
    plan = plan_of(annotated(running(JOB), **{key: ""}), children_of(JOB))

    ending = status_of(plan)["ending"]
    assert (ending["phase"], ending["message"]) == (end, f"the annotation {end} is set")


@pytest.mark.parametrize("key", ["Succeed", "Timeout", "Preempt", "example.com/Preempted"])
def test_other_annotations_mean_nothing(key: str) -> None:
    assert plan_of(annotated(running(JOB), **{key: "x"}), children_of(JOB)).is_quiet


def test_a_job_that_is_complete_has_succeeded_whatever_it_is_told() -> None:
    job = annotated(running(JOB), Preempted="x")
    pods = [a_pod(JOB, role, i, exit_code=0) for role, i in (("ps", 0), ("trainer", 0), ("trainer", 1))]

    assert status_of(plan_of(job, pods))["ending"]["phase"] == "Succeed"


def test_a_failed_job_that_keeps_its_pods_keeps_those_that_ended() -> None:
    job = annotated(running(an_aitj(trainer=2, clean="None", complete="None")), Failed="enough")

    _, left = finished(job, [a_pod(job, "trainer", 0, exit_code=0), a_pod(job, "trainer", 1)])

    assert [child.key.name for child in left] == ["mnist-trainer-0"]


@pytest.mark.parametrize("end", ["Succeed", "Failed", "Timeout", "Preempted", "NodeFail"])
def test_a_job_that_another_operator_left_terminating_is_ended(end: str) -> None:
    job = annotated(with_status(JOB, {"phase": "Terminating"}), **{end: "said before"})

    job, left = finished(job, children_of(JOB))

    assert (job["status"]["phase"], left) == (end, [])
    assert job["status"]["conditions"][-1]["message"] == "said before; deleted pods"


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_an_annotation_counts_before_a_failure_that_is_seen_with_it(policy: str) -> None:
    """Whoever preempts a job often kills its pods, too. docs/aitrainingjob.md: whatever its phase and policies are."""
    job = running(an_aitj(trainer=a_replica(2, restartPolicy=policy)))
    failed = [a_pod(job, "trainer", 0, exit_code=137), a_pod(job, "trainer", 1), *services_of(job)]

    ending = status_of(plan_of(annotated(job, Preempted="for bigger ones"), failed))["ending"]

    assert ending["phase"] == "Preempted"


# --- stop and go on ---


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_suspended_job_loses_its_pods_and_gets_them_back(phase: str) -> None:
    job = with_spec(running(JOB), suspend=True)
    children = children_of(JOB, phase=phase)

    told = plan_of(job, children)
    assert (told.status_first, told.deletes) == (True, ())
    assert told.events == (Event("Normal", "Suspended", "suspended"),)

    job, left = finished(job, children)
    assert names_of(plan_of(job, left).creates, POD) == []
    assert [type(child).__name__ for child in left] == ["ServiceView"] * 3
    assert (job["status"]["phase"], job["status"]["conditions"][-1]["message"]) == ("Pending", "suspended")
    assert "startRunningTime" not in job["status"]

    again = plan_of(with_spec(job, suspend=False), left)
    assert names_of(again.creates, POD) == ["mnist-ps-0", "mnist-trainer-0", "mnist-trainer-1"]
    assert again.events == (Event("Normal", "Resumed", "the job goes on"),)
    states = {c["type"]: c["status"] for c in status_of(again)["conditions"]}
    assert states["Suspended"] == "False"


def test_a_job_that_is_suspended_from_the_start_creates_nothing() -> None:
    job, left = finished(with_spec(JOB, suspend=True), [])

    assert (left, job["status"]["phase"]) == ([], "Pending")


def test_what_has_succeeded_before_the_job_was_suspended_is_not_done_again() -> None:
    job = with_spec(running(JOB), suspend=True)

    _, left = finished(job, [a_pod(JOB, "trainer", 0, exit_code=0), a_pod(JOB, "trainer", 1), a_pod(JOB, "ps")])

    assert [child.key.name for child in left] == ["mnist-trainer-0"]


def test_a_restart_that_was_interrupted_goes_on_after_the_stop() -> None:
    job = an_aitj(trainer=a_replica(2, restartPolicy="Always", restartScope="All"))
    failed = [a_pod(job, "trainer", 0, exit_code=1), a_pod(job, "trainer", 1), *services_of(job)]
    job = with_status(running(job), plan_of(running(job), failed))

    job, left = finished(with_spec(job, suspend=True), failed)
    job, left = finished(with_spec(job, suspend=False), left)

    assert job["status"]["RestartCount"] == {"trainer": 1}
    assert sorted(child.key.name for child in left if child.uid.startswith("uid-of-pod")) == [
        "mnist-trainer-0",
        "mnist-trainer-1",
    ]


def test_a_preempted_job_that_is_to_come_back_waits_until_the_annotation_is_gone() -> None:
    job = running(with_spec(JOB, requeueOnPreemption=True))

    told, left = finished(annotated(job, Preempted="for bigger ones"), children_of(JOB))
    assert told["status"]["phase"] == "Pending"
    assert told["status"]["conditions"][-1]["message"].startswith("preempted: for bigger ones; waits")

    again = plan_of(annotated(told), left)
    assert len(names_of(again.creates, POD)) == 3


# --- deadlines ---


def timed(**spec: Any) -> Json:
    return with_spec(JOB, **spec)


@pytest.mark.parametrize("clean", ["All", "Running", "None"])
def test_a_job_that_runs_too_long_times_out(clean: str) -> None:
    job = running(timed(timeLimit=60, cleanPodPolicy=clean))

    early = plan_of(job, children_of(JOB), now=later(59))
    late = plan_of(job, children_of(JOB), now=later(60))
    ended, left = finished(with_status(job, late), children_of(JOB))

    assert (early.is_quiet, early.requeue_after) == (True, 1.0)
    assert status_of(late)["ending"]["phase"] == "Timeout"
    assert (ended["status"]["phase"], left) == ("Timeout", [])


def test_a_job_whose_pods_never_all_run_is_timed_from_the_first_that_does() -> None:
    job = with_status(timed(timeLimit=60), plan_of(timed(timeLimit=60)))
    some = [a_pod(JOB, "ps"), a_pod(JOB, "trainer", 0, phase="Pending"), a_pod(JOB, "trainer", 1, phase="Pending")]
    children: list[Child] = [*some, *services_of(JOB)]
    job = with_status(job, plan_of(job, children))

    late = plan_of(job, children, now=later(60))

    assert (job["status"]["phase"], "startRunningTime" in job["status"]) == ("Pending", False)
    assert status_of(late)["ending"]["phase"] == "Timeout"


def test_a_job_without_a_deadline_is_spared_the_time_of_its_first_pod() -> None:
    assert "firstRunningTime" not in running(JOB)["status"]


@pytest.mark.parametrize("phase", ["", "Restarting"], ids=["at the start", "after a restart"])
@pytest.mark.parametrize(
    ("field", "node", "says"),
    [
        ("pendingTimeLimit", "", "pods have waited to be scheduled for 60 seconds (pendingTimeLimit)"),
        ("creatingTimeLimit", "node-1", "containers have been created for 60 seconds (creatingTimeLimit)"),
    ],
)
def test_a_job_may_not_wait_for_ever(field: str, node: str, says: str, phase: str) -> None:
    job = timed(**{field: 60})
    children = children_of(JOB, phase="Pending", node=node)
    job = with_status(with_status(job, plan_of(job)), plan_of(with_status(job, plan_of(job)), children))
    if phase:
        entry = {
            "type": phase,
            "status": "True",
            "reason": f"TrainingJob{phase}",
            "lastTransitionTime": NOW.isoformat(),
        }
        job["status"] |= {"phase": phase, "conditions": [entry], "RestartCount": {"trainer": 1}}

    early, late = plan_of(job, children, now=later(50)), plan_of(job, children, now=later(60))

    assert early.requeue_after == 10.0
    assert status_of(late)["ending"] == {"phase": "Timeout", "message": says, "clean": "All"}


def test_a_job_that_waited_for_too_long_says_what_its_pods_waited_for() -> None:
    job = timed(creatingTimeLimit=60)
    waits = {"aitj-main": 'CreateContainerConfigError: secret "nope" not found'}
    pods = [a_pod(JOB, *place, phase="Pending", node="node-1", containers=waits) for place in replicas_of(JOB)]
    children = [*pods, *services_of(JOB)]
    job = with_status(with_status(job, plan_of(job)), plan_of(with_status(job, plan_of(job)), children))
    message = status_of(plan_of(job, children, now=later(60)))["ending"]["message"]

    assert message.startswith("containers have been created for 60 seconds (creatingTimeLimit): pod mnist-ps-0 ")
    assert 'secret "nope" not found' in message


@pytest.mark.parametrize(("field", "node"), [("pendingTimeLimit", "node-1"), ("creatingTimeLimit", "")])
def test_each_limit_is_about_its_own_phase(field: str, node: str) -> None:
    job = timed(**{field: 60})
    children = children_of(JOB, phase="Pending", node=node)
    job = with_status(with_status(job, plan_of(job)), plan_of(with_status(job, plan_of(job)), children))

    plan = plan_of(job, children, now=later(600))

    assert "ending" not in (plan.status or {})


# --- after the end ---


def test_a_job_is_deleted_when_it_was_kept_long_enough() -> None:
    job, left = finished(annotated(running(timed(ttlSecondsAfterFinished=60)), Failed="x"), children_of(JOB))

    early, late = plan_of(job, left, now=later(59)), plan_of(job, left, now=later(60))

    assert early == Plan(requeue_after=1.0)
    assert [(d.resource, d.key.name, d.uid) for d in late.deletes] == [(RESOURCE, "mnist", "uid-of-mnist")]
    assert (late.creates, late.status) == ((), None)


def test_what_is_left_of_a_job_goes_before_the_job() -> None:
    job = with_status(timed(ttlSecondsAfterFinished=0), {"phase": "Failed", "endTime": "2026-11-15T12:00:00Z"})

    plan = plan_of(job, children_of(JOB))

    assert {d.resource for d in plan.deletes} == {POD, SERVICE}
    assert {d.resource for d in plan_of(*after(job, children_of(JOB), plan)).deletes} == {RESOURCE}


def test_a_job_that_has_not_ended_is_never_deleted() -> None:
    job = running(timed(ttlSecondsAfterFinished=0))

    assert plan_of(job, children_of(JOB), now=later(9999)).deletes == ()


# --- a pod that only a finalizer keeps ---


def kept_by_a_finalizer(role: str, index: int, *, grace: int) -> PodView:
    """``grace`` 0: its kubelet has confirmed the end, or it was deleted by force."""
    pod = pod_json(JOB, role, index, deleting=True)
    pod["metadata"] |= {"deletionGracePeriodSeconds": grace, "finalizers": ["example.com/log-shipper"]}
    return view_of_pod(pod)


@pytest.mark.parametrize(("grace", "phase"), [(0, "Failed"), (30, "Terminating")])
def test_the_end_of_a_job_does_not_wait_for_a_finalizer_of_a_pod_that_is_gone(grace: int, phase: str) -> None:
    job = annotated(running(timed(ttlSecondsAfterFinished=60)), Failed="x")
    job = with_status(job, plan_of(job, children_of(JOB)))

    plan = plan_of(job, [kept_by_a_finalizer("trainer", 0, grace=grace)])
    job = with_status(job, plan)

    assert job["status"]["phase"] == phase
    if grace == 0:
        late = plan_of(job, [kept_by_a_finalizer("trainer", 0, grace=grace)], now=later(60))
        assert [delete.resource for delete in late.deletes] == [RESOURCE]


@pytest.mark.parametrize(("grace", "phase"), [(0, "Pending"), (30, "Terminating")])
def test_a_suspension_does_not_wait_for_a_finalizer_of_a_pod_that_is_gone(grace: int, phase: str) -> None:
    job = with_spec(running(JOB), suspend=True)
    children = [kept_by_a_finalizer("trainer", 0, grace=grace)]
    for _ in range(2):
        job = with_status(job, plan_of(job, children))

    assert job["status"]["phase"] == phase
