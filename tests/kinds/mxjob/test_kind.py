"""The life of an MXJob: how it begins, runs, is stopped and ends (docs/mxjob.md)."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_pod,
    an_mx_replica,
    an_mxjob,
    child_labels,
    children_of,
    names_of,
    plan_of,
    replicas_of,
    services_of,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.plan import BRIEF, Plan

CREATED, RUNNING = "Created", "Running"
TUNING: dict[str, Any] = {"TunerTracker": 1, "TunerServer": 1, "Tuner": 1}


def conditions_of(plan: Plan) -> list[tuple[str, str, str]]:
    """Type, status and reason of every condition but the standard ones."""
    assert plan.status is not None
    return [
        (c["type"], c["status"], c["reason"])
        for c in plan.status["conditions"]
        if c["type"] not in ("Accepted", "PodCreateFailed", "Finished")
    ]


def message_of(plan: Plan) -> str:
    assert plan.status is not None
    message: str = plan.status["conditions"][-1]["message"]
    return message


def phase_of(plan: Plan) -> str:
    assert plan.status is not None
    phase: str = plan.status["phase"]
    return phase


def counts_of(job: Json) -> dict[str, int]:
    """Restarts that a role brought about itself."""
    return {role: r["used"] for role, r in job["status"].get("restarts", {}).items() if "used" in r}


def running(job: Json) -> tuple[Json, list[Child]]:
    """The job when all of its pods run and it has said so."""
    job = with_status(job, plan_of(job, children_of(job, phase="Pending")))
    children = children_of(job)
    return with_status(job, plan_of(job, children)), children


def but(job: Json, children: list[Child], **ends: Any) -> list[Child]:
    """The children, with pods replaced: ``worker_1=0`` ended with exit code 0, None is gone."""
    found = {child.key.name: child for child in children if child.uid.startswith("uid-of-mnist")}
    services = [child for child in children if not child.uid.startswith("uid-of-mnist")]
    for place, end in ends.items():
        role, _, index = place.rpartition("_")
        name = f"mnist-{role}-{index}"
        if end is None:
            del found[name]
        else:
            fields = end if isinstance(end, dict) else {"exit_code": end}
            labels = child_labels(job, role, int(index)) | {
                "training.kubeflow.org/restart-count": fields.pop("attempt", "0")
            }
            found[name] = a_pod(job, role, int(index), labels=labels, **fields)
    return [*found.values(), *services]


# --- begin ---


def test_a_job_is_created_first_however_fast_its_pods_come_up() -> None:
    job = an_mxjob()

    plan = plan_of(job, children_of(job))

    assert phase_of(plan) == CREATED
    assert conditions_of(plan) == [("Created", "True", "MXJobCreated")]
    assert message_of(plan) == "MXJob mnist is created."
    assert plan.status is not None
    assert plan.status["startTime"] == STAMP


def test_it_runs_when_its_scheduler_runs() -> None:
    job = an_mxjob()
    job = with_status(job, plan_of(job, children_of(job, phase="Pending")))
    pods = [a_pod(job, "scheduler"), *(a_pod(job, r, i, phase="Pending") for r, i in replicas_of(job)[1:])]

    plan = plan_of(job, [*pods, *services_of(job)])

    assert phase_of(plan) == RUNNING
    assert conditions_of(plan) == [("Created", "True", "MXJobCreated"), ("Running", "True", "MXJobRunning")]
    assert message_of(plan) == "MXJob mnist is running."


@pytest.mark.parametrize(
    ("job", "role"),
    [(an_mxjob(Worker=2), "worker"), (an_mxjob(mode="MXTune", **TUNING), "tuner")],
    ids=["train", "tune"],
)
def test_without_a_scheduler_it_runs_when_a_worker_or_a_tuner_does(job: Json, role: str) -> None:
    job = with_status(job, plan_of(job, children_of(job, phase="Pending")))
    pods = [a_pod(job, r, i, phase="Running" if r.lower() == role else "Pending") for r, i in replicas_of(job)]

    assert phase_of(plan_of(job, [*pods, *services_of(job)])) == RUNNING


def test_pods_are_counted_by_role_and_those_that_wait_are_not() -> None:
    job = an_mxjob(Scheduler=1, Server=2, Worker=3)
    pods = [
        a_pod(job, "scheduler"),
        a_pod(job, "server", 0, phase="Pending"),
        a_pod(job, "server", 1),
        a_pod(job, "worker", 0, exit_code=0),
        a_pod(job, "worker", 1),
        a_pod(job, "worker", 2),
    ]

    plan = plan_of(job, [*pods, *services_of(job)])

    assert plan.status is not None
    assert plan.status["replicaStatuses"] == {
        "Scheduler": {"active": 1},
        "Server": {"active": 1},
        "Worker": {"active": 2, "succeeded": 1},
    }


def test_a_settled_job_is_left_alone() -> None:
    assert plan_of(*running(an_mxjob())).is_quiet


# --- end: success ---


def test_the_success_of_the_scheduler_is_the_jobs() -> None:
    job, children = running(an_mxjob())

    plan = plan_of(job, but(job, children, scheduler_0=0))

    assert plan.status_first
    assert phase_of(plan) == "Succeeded"
    assert conditions_of(plan) == [
        ("Created", "True", "MXJobCreated"),
        ("Running", "False", "MXJobSucceeded"),
        ("Succeeded", "True", "MXJobSucceeded"),
    ]
    assert message_of(plan) == "MXJob mnist is successfully completed."
    assert plan.status is not None
    assert plan.status["completionTime"] == STAMP
    assert plan.status["replicaStatuses"]["Worker"] == {"succeeded": 2}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"scheduler_0": 0}, RUNNING),
        ({"worker_0": 0}, RUNNING),
        ({"scheduler_0": 0, "worker_0": 0}, RUNNING),
        ({"worker_0": 0, "worker_1": 0}, "Succeeded"),
    ],
)
def test_under_all_workers_the_job_ends_with_its_last_worker(ends: dict[str, int], expected: str) -> None:
    job, children = running(an_mxjob(spec={"successPolicy": "AllWorkers"}))

    assert phase_of(plan_of(job, but(job, children, **ends))) == expected


def test_servers_do_not_end_a_job() -> None:
    job, children = running(an_mxjob())

    assert phase_of(plan_of(job, but(job, children, server_0=0, worker_0=0, worker_1=0))) == RUNNING


@pytest.mark.parametrize(("ends", "expected"), [(1, RUNNING), (2, "Succeeded")])
def test_workers_alone_end_with_the_last_of_them(ends: int, expected: str) -> None:
    job, children = running(an_mxjob(Worker=2))

    assert phase_of(plan_of(job, but(job, children, **{f"worker_{i}": 0 for i in range(ends)}))) == expected


def test_tuning_ends_with_the_tuner_and_stops_tracker_and_servers() -> None:
    job, children = running(an_mxjob(mode="MXTune", policy={"cleanPodPolicy": "Running"}, **TUNING))
    children = but(job, children, tuner_0=0)

    ended = plan_of(job, children)
    cleaned = plan_of(with_status(job, ended), children)

    assert phase_of(ended) == "Succeeded"
    assert names_of(cleaned.deletes, POD) == ["mnist-tunerserver-0", "mnist-tunertracker-0"]


# --- end: failure ---


def test_a_failed_pod_fails_the_job_and_its_exit_code_is_told() -> None:
    job, children = running(an_mxjob())

    plan = plan_of(job, but(job, children, worker_1=3))

    assert plan.status_first
    assert phase_of(plan) == "Failed"
    assert conditions_of(plan)[-2:] == [("Running", "False", "MXJobFailed"), ("Failed", "True", "MXJobFailed")]
    assert message_of(plan) == (
        "MXJob mnist is failed because 1 Worker replica(s) failed: pod mnist-worker-1 failed: "
        "container mxnet on node node-1 exited with reason Error exitcode 3"
    )


def test_a_worker_that_failed_is_not_hidden_by_the_success_of_the_scheduler() -> None:
    job, children = running(an_mxjob())

    assert phase_of(plan_of(job, but(job, children, scheduler_0=0, worker_1=3))) == "Failed"


def test_a_worker_that_may_come_again_does_not_take_back_the_success() -> None:
    job, children = running(an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(2, restartPolicy="OnFailure")))

    assert phase_of(plan_of(job, but(job, children, scheduler_0=0, worker_1=3))) == "Succeeded"


def test_only_the_verdict_is_stored_before_anything_is_deleted() -> None:
    job, children = running(an_mxjob(policy={"cleanPodPolicy": "All"}))

    plan = plan_of(job, but(job, children, scheduler_0=0))

    assert plan.status_first
    assert plan.deletes == ()


# --- what an end leaves behind ---


@pytest.mark.parametrize(
    ("policy", "pods", "services"),
    [
        ("All", {"scheduler-0", "server-0", "worker-0", "worker-1"}, 4),
        ("Running", {"server-0", "worker-0", "worker-1"}, 3),
        ("None", set(), 0),
        ("", set(), 0),
        (None, set(), 0),
    ],
)
@pytest.mark.parametrize("is_older", [False, True], ids=["run-policy", "spec"])
def test_the_clean_pod_policy_says_what_goes(policy: str | None, pods: set[str], services: int, is_older: bool) -> None:
    fields = {} if policy is None else {"cleanPodPolicy": policy}
    job, children = running(an_mxjob(spec=fields) if is_older else an_mxjob(policy=fields))
    children = but(job, children, scheduler_0=0)

    plan = plan_of(with_status(job, plan_of(job, children)), children)

    assert {name.removeprefix("mnist-") for name in names_of(plan.deletes, POD)} == pods
    assert len(names_of(plan.deletes, SERVICE)) == services


@pytest.mark.parametrize("is_older", [False, True], ids=["run-policy", "spec"])
def test_a_job_is_deleted_when_it_was_kept_long_enough(is_older: bool) -> None:
    ttl = {"ttlSecondsAfterFinished": 60}
    job, children = running(an_mxjob(spec=ttl) if is_older else an_mxjob(policy=ttl))
    children = but(job, children, scheduler_0=0)
    job = with_status(job, plan_of(job, children))

    early = plan_of(job, children, now=NOW + timedelta(seconds=59))
    late = plan_of(job, children, now=NOW + timedelta(seconds=60))

    assert (early.deletes, early.requeue_after) == ((), 1.0)
    assert [(delete.key.name, delete.uid) for delete in late.deletes] == [("mnist", "uid-of-mnist")]


# --- the deadline ---


@pytest.mark.parametrize("is_older", [False, True], ids=["run-policy", "spec"])
def test_a_deadline_is_a_timer(is_older: bool) -> None:
    limit = {"activeDeadlineSeconds": 60}
    job, children = running(an_mxjob(spec=limit) if is_older else an_mxjob(policy=limit))

    early = plan_of(job, children, now=NOW + timedelta(seconds=45))
    late = plan_of(job, children, now=NOW + timedelta(seconds=60))

    assert early.requeue_after == 15.0
    assert phase_of(late) == "Failed"
    assert message_of(late) == "MXJob mnist has failed because it was active longer than specified deadline"


def test_a_deadline_stops_what_runs_even_if_nothing_is_to_be_cleaned() -> None:
    job, children = running(an_mxjob(policy={"activeDeadlineSeconds": 60}))
    beside = {"containers": {"mxnet": None, "fetch-data": 0}}  # it has done its part, and the training goes on
    children = but(job, children, worker_0=0, worker_1=beside)
    late = NOW + timedelta(seconds=61)
    job = with_status(job, plan_of(job, children, now=late))

    plan = plan_of(job, children, now=late)

    assert names_of(plan.deletes, POD) == ["mnist-scheduler-0", "mnist-server-0", "mnist-worker-1"]


# --- suspend and resume ---


def test_a_suspended_job_says_so_before_the_first_pod_goes() -> None:
    job, children = running(an_mxjob())
    job = with_spec(job, runPolicy={"suspend": True})

    first = plan_of(job, children)
    second = plan_of(with_status(job, first), children)

    assert first.status_first
    assert first.deletes == ()
    assert conditions_of(first)[-2:] == [
        ("Running", "False", "MXJobSuspended"),
        ("Suspended", "True", "MXJobSuspended"),
    ]
    assert len(names_of(second.deletes, POD)) == 4
    assert len(names_of(second.deletes, SERVICE)) == 4


def test_a_job_that_is_created_suspended_has_no_pods_and_no_start_time() -> None:
    job = an_mxjob(policy={"suspend": True})

    plan = plan_of(job)

    assert plan.creates == ()
    assert phase_of(plan) == "Suspended"
    assert plan.status is not None
    assert "startTime" not in plan.status
    assert plan_of(with_status(job, plan)).is_quiet


def test_how_a_pod_ends_that_was_suspended_is_not_held_against_the_job() -> None:
    job, children = running(an_mxjob())
    job = with_spec(job, runPolicy={"suspend": True})
    job = with_status(job, plan_of(job, children))

    plan = plan_of(job, but(job, children, worker_0={"exit_code": 143, "deleting": True}))

    assert plan.status is None or plan.status["phase"] == "Suspended"


def test_a_resumed_job_begins_anew() -> None:
    job, children = running(an_mxjob(policy={"activeDeadlineSeconds": 60}))
    job = with_spec(job, runPolicy={"suspend": True, "activeDeadlineSeconds": 60})
    job = with_status(job, plan_of(job, children))
    job = with_status(job, plan_of(job))
    job = with_spec(job, runPolicy={"activeDeadlineSeconds": 60})
    later = NOW + timedelta(hours=1)

    resumed = plan_of(job, now=later)
    again = plan_of(with_status(job, resumed), now=later)

    assert resumed.status_first
    assert ("Suspended", "False", "MXJobResumed") in conditions_of(resumed)
    assert resumed.status is not None
    assert resumed.status["startTime"] == "2026-11-15T13:00:00Z"
    assert len(names_of(again.creates, POD)) == 4


def test_a_job_that_was_created_suspended_has_the_condition_created_and_has_not_started() -> None:
    plan = plan_of(an_mxjob(policy={"suspend": True}))

    assert conditions_of(plan) == [("Created", "True", "MXJobCreated"), ("Suspended", "True", "MXJobSuspended")]
    assert plan.status is not None
    assert "startTime" not in plan.status


def test_a_job_that_was_created_suspended_is_said_to_be_created_however_fast_its_pods_come_up() -> None:
    job = an_mxjob(policy={"suspend": True})
    job = with_spec(with_status(job, plan_of(job)), runPolicy={})

    assert conditions_of(plan_of(job)) == [
        ("Created", "True", "MXJobCreated"),
        ("Suspended", "False", "MXJobResumed"),
    ]


def test_no_pod_of_the_new_life_meets_one_of_the_old() -> None:
    job, children = running(an_mxjob())
    job = with_spec(job, runPolicy={"suspend": True})
    job = with_status(job, plan_of(job, children))
    job = with_spec(job, runPolicy={})
    going = [a_pod(job, role, index, deleting=True) for role, index in replicas_of(job)]
    job = with_status(job, plan_of(job, going))

    plan = plan_of(job, going)

    assert plan.creates == ()
    assert plan.status is None or plan.status["phase"] == CREATED


# --- taking over ---


def test_a_job_that_another_operator_ended_stays_ended() -> None:
    ended = {
        "conditions": [
            {"type": "Created", "status": "True", "reason": "JobCreated"},
            {"type": "Running", "status": "False", "reason": "JobRunning"},
            {"type": "Succeeded", "status": "True", "reason": "JobSucceeded", "lastTransitionTime": STAMP},
        ],
        "replicaStatuses": {"Worker": {"succeeded": 2}},
    }
    job = an_mxjob(status=ended, policy={"ttlSecondsAfterFinished": 5})

    plan = plan_of(job, now=NOW + timedelta(seconds=10))
    after = plan_of(with_status(job, plan), now=NOW + timedelta(seconds=10))

    assert plan.creates == ()
    assert phase_of(plan) == "Succeeded"
    assert plan.status is not None
    assert plan.status["conditions"][0]["type"] == "Finished"  # who waits for the end waits for that
    assert [delete.key.name for delete in after.deletes] == ["mnist"]


def test_what_another_operator_ended_need_not_be_valid_any_more() -> None:
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}

    plan = plan_of(an_mxjob(Scheduler=3, status=failed))

    assert phase_of(plan) == "Failed"


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"jobMode": "dist"}, id="a mode that nobody looked at"),
        pytest.param({"runPolicy": {"activeDeadlineSeconds": 0}}, id="no time at all"),
        pytest.param({"mxReplicaSpecs": {"Worker": an_mx_replica(0)}}, id="no pods"),
    ],
)
def test_what_another_operator_ended_need_not_even_be_readable(spec: Json, end: str) -> None:
    job = with_spec(an_mxjob(status={"conditions": [{"type": end, "status": "True"}]}), **spec)

    assert plan_of(job).is_quiet


def test_a_job_that_another_operator_suspended_is_resumed_by_us() -> None:
    suspended = {"conditions": [{"type": "Created", "status": "True"}, {"type": "Suspended", "status": "True"}]}
    job = an_mxjob(status=suspended)

    plan = plan_of(job)

    assert ("Suspended", "False", "MXJobResumed") in conditions_of(plan)
    assert phase_of(plan_of(with_status(job, plan), children_of(job))) == "Running"


# --- scaling ---


def test_surplus_pods_go_with_their_services_and_none_is_made_in_a_gap() -> None:
    job, children = running(an_mxjob(Scheduler=1, Server=1, Worker=4))
    smaller = with_spec(job, mxReplicaSpecs=job["spec"]["mxReplicaSpecs"] | {"Worker": an_mx_replica(2)})
    children = but(job, children, worker_2=None)

    first = plan_of(smaller, children)
    plan = plan_of(with_status(smaller, first), children)

    assert first.deletes == ()  # if that cannot be stored, the pod is one of the job's
    assert names_of(plan.deletes, POD) == ["mnist-worker-3"]
    # A pod that is being deleted is still reached by its name.
    assert names_of(plan.deletes, SERVICE) == ["mnist-worker-2"]
    assert plan.creates == ()


def test_a_role_that_grows_gets_its_new_pods_and_nobody_is_missed() -> None:
    job, children = running(an_mxjob())
    bigger = with_spec(job, mxReplicaSpecs=job["spec"]["mxReplicaSpecs"] | {"Worker": an_mx_replica(3)})

    plan = plan_of(bigger, children)

    assert names_of(plan.creates, POD) == ["mnist-worker-2"]
    assert not plan.status_first


@pytest.mark.parametrize("leaving", [{"phase": "Running"}, {"phase": "Failed", "exit_code": 143}])
@pytest.mark.parametrize("beside", ["Running", "Pending"])
def test_a_pod_that_goes_for_a_smaller_job_is_not_missed_when_the_job_grows_again(leaving: Json, beside: str) -> None:
    created = with_status(an_mxjob(), plan_of(an_mxjob()))
    children = but(created, children_of(created), worker_0={"phase": beside})
    job = with_status(created, plan_of(created, children))
    roles = job["spec"]["mxReplicaSpecs"]
    smaller = with_spec(job, mxReplicaSpecs=roles | {"Worker": an_mx_replica(1)})
    smaller = with_status(smaller, plan_of(smaller, children))
    grown = with_spec(smaller, mxReplicaSpecs=roles)

    going = plan_of(grown, but(job, children, worker_1={**leaving, "deleting": True}))
    gone = plan_of(grown, but(job, children, worker_1=None))

    assert going.status is None or phase_of(going) == "Running"
    assert names_of(gone.creates, POD) == ["mnist-worker-1"]
    assert counts_of(grown) == {}


# --- pods that have done their part ---


def all_workers(*, status: Json | None = None) -> Json:
    return an_mxjob(spec={"successPolicy": "AllWorkers"}, status=status)


def test_a_worker_that_succeeded_is_not_missed_when_its_pod_is_removed() -> None:
    job, children = running(all_workers())
    job = with_status(job, plan_of(job, but(job, children, worker_1=0)))

    plan = plan_of(job, but(job, children, worker_1=None))

    assert plan.is_quiet
    assert job["status"]["done"] == {"Worker": [1]}
    assert job["status"]["replicaStatuses"]["Worker"] == {"active": 1, "succeeded": 1}


def test_that_it_succeeded_waits_but_briefly_for_company() -> None:
    job, children = running(all_workers())

    assert plan_of(job, but(job, children, worker_1=0)).lazy == BRIEF


def test_it_still_counts_when_the_last_of_them_ends() -> None:
    job, children = running(all_workers())
    job = with_status(job, plan_of(job, but(job, children, worker_1=0)))

    plan = plan_of(job, but(job, children, worker_0=0, worker_1=None))

    assert phase_of(plan) == "Succeeded"
    assert plan.status is not None
    assert plan.status["replicaStatuses"]["Worker"]["succeeded"] == 2
    assert "done" not in plan.status


def test_a_suspended_job_begins_with_everybody_again() -> None:
    job, children = running(all_workers())
    job = with_status(job, plan_of(job, but(job, children, worker_1=0)))

    plan = plan_of(with_spec(job, runPolicy={"suspend": True}), but(job, children, worker_1=0))

    assert plan.status is not None
    assert "done" not in plan.status


@pytest.mark.parametrize("leaving", [{"phase": "Running"}, {"phase": "Failed", "exit_code": 143}])
def test_the_pods_of_a_job_that_was_suspended_before_its_first_status_are_nobodys_fault(leaving: Json) -> None:
    stopped = an_mxjob(policy={"suspend": True})
    children = children_of(stopped)
    stopped = with_status(stopped, plan_of(stopped, children))

    going = plan_of(stopped, but(stopped, children, worker_1={**leaving, "deleting": True}))

    assert going.status is None or phase_of(going) == "Suspended"


def test_a_pod_that_comes_late_into_a_suspended_job_is_nobodys_fault() -> None:
    created = an_mxjob()
    created = with_status(created, plan_of(created))
    stopped = with_spec(created, runPolicy={"suspend": True})
    stopped = with_status(stopped, plan_of(stopped))  # nobody has seen a pod of it
    _, late = running(an_mxjob())

    plan = plan_of(stopped, but(created, late, worker_1={"phase": "Running", "deleting": True}))

    assert plan.status is None or phase_of(plan) == "Suspended"


def test_a_job_whose_spec_was_corrected_is_created_with_its_event() -> None:
    good = an_mxjob()
    bad = {**good, "spec": {**good["spec"], "restartingExitCode": "SIGFOO"}}
    rejected = with_status(bad, plan_of(bad))

    plan = plan_of({**rejected, "spec": good["spec"]})

    assert [event.reason for event in plan.events][:1] == ["MXJobCreated"]
