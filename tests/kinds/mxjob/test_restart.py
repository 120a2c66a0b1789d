"""What restarts after a failure, what is counted, and when the limit is reached (docs/mxjob.md, What restarts)."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    Child,
    Json,
    an_mx_replica,
    an_mxjob,
    children_of,
    names_of,
    plan_of,
    services_of,
    with_status,
)
from tests.kinds.mxjob.test_kind import but, conditions_of, counts_of, message_of, phase_of, running
from trainmaster.core.ids import POD

ALL = ["mnist-scheduler-0", "mnist-server-0", "mnist-worker-0", "mnist-worker-1"]
LOST: dict[str, Any] = {"phase": "Running", "deleting": True}


def trained(policy: str = "OnFailure", *, scope: str = "", limit: int | None = None, **spec: Any) -> Json:
    """A job of which every role has this policy, and its workers this scope."""
    roles: dict[str, Any] = {
        role: an_mx_replica(n, restartPolicy=policy) for role, n in (("Scheduler", 1), ("Server", 1), ("Worker", 2))
    }
    if scope:
        roles["Worker"]["restartScope"] = scope
    return an_mxjob(policy={} if limit is None else {"backoffLimit": limit}, spec=spec, **roles)


def fall(job: Json, children: list[Child], **ends: Any) -> tuple[Json, list[Child]]:
    """The job after a failure was stored; the pods stay as they are."""
    children = but(job, children, **ends)
    return with_status(job, plan_of(job, children)), children


# --- whether ---


@pytest.mark.parametrize(
    ("policy", "code", "codes", "expected"),
    [
        ("Never", 137, "", "Failed"),
        ("OnFailure", 1, "", "Restarting"),
        ("Always", 1, "", "Restarting"),
        # as the training-operator since 1.5: codes below 128 are permanent, all others are not
        *(("ExitCode", code, "", "Failed") for code in (1, 2, 126, 127)),
        *(("ExitCode", code, "", "Restarting") for code in (128, 130, 137, 138, 139, 143, 255)),
        # a list of the job's own, say that of the mxnet-operator
        ("ExitCode", 139, "130,137,138,143", "Failed"),
        ("ExitCode", 143, "130,137,138,143", "Restarting"),
        ("ExitCode", 3, "1-5", "Restarting"),
        ("ExitCode", 139, "SIGSEGV", "Restarting"),
    ],
)
def test_the_policy_says_whether_a_pod_comes_again(policy: str, code: int, codes: str, expected: str) -> None:
    job, children = running(trained(policy, restartingExitCode=codes))

    assert phase_of(plan_of(job, but(job, children, worker_1=code))) == expected


def test_a_permanent_exit_code_fails_the_job_and_is_told() -> None:
    job, children = running(trained("ExitCode"))

    plan = plan_of(job, but(job, children, worker_1=2))

    assert phase_of(plan) == "Failed"
    assert "exitcode 2" in message_of(plan)
    assert plan.status is not None
    assert "completionTime" in plan.status


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always", "ExitCode"])
def test_a_command_that_cannot_be_started_fails_the_job_under_every_policy(policy: str) -> None:
    job, children = running(trained(policy))
    wrong = {"phase": "Failed", "containers": {"mxnet": (128, "StartError")}}

    assert phase_of(plan_of(job, but(job, children, worker_1=wrong))) == "Failed"


def test_an_evicted_pod_comes_again_under_exit_code() -> None:
    job, children = running(trained("ExitCode"))
    evicted = {"phase": "Failed", "reason": "Evicted", "containers": {}}

    assert phase_of(plan_of(job, but(job, children, worker_1=evicted))) == "Restarting"


def test_the_exit_code_of_a_side_car_does_not_count() -> None:
    job, children = running(trained("ExitCode"))
    ended = {"phase": "Failed", "containers": {"mxnet": 137, "logs": 1}}

    assert phase_of(plan_of(job, but(job, children, worker_1=ended))) == "Restarting"


# --- what ---


@pytest.mark.parametrize("place", ["scheduler_0", "server_0", "worker_1"])
def test_all_start_again_because_nobody_can_join_again(place: str) -> None:
    ends: dict[str, Any] = {place: 1}
    job, children = fall(*running(trained()), **ends)

    plan = plan_of(job, children)

    assert sorted(names_of(plan.deletes, POD)) == ALL
    assert plan.creates == ()


def test_a_worker_comes_again_alone_where_that_is_allowed() -> None:
    job, children = fall(*running(trained(scope="Pod")), worker_1=1)

    plan = plan_of(job, children)

    assert names_of(plan.deletes, POD) == ["mnist-worker-1"]


def test_the_server_takes_all_with_it_even_then() -> None:
    job, children = fall(*running(trained(scope="Pod")), server_0=1)

    assert sorted(names_of(plan_of(job, children).deletes, POD)) == ALL


def test_a_tuner_server_comes_again_alone() -> None:
    roles: dict[str, Any] = {
        role: an_mx_replica(1, restartPolicy="OnFailure") for role in ("TunerTracker", "TunerServer", "Tuner")
    }
    job, children = fall(*running(an_mxjob(mode="MXTune", **roles)), tunerserver_0=1)

    assert names_of(plan_of(job, children).deletes, POD) == ["mnist-tunerserver-0"]


def test_the_count_is_stored_before_anything_is_deleted() -> None:
    job, children = running(trained())

    plan = plan_of(job, but(job, children, worker_1=1))

    assert plan.status_first
    assert plan.deletes == ()
    assert conditions_of(plan) == [("Created", "True", "MXJobCreated"), ("Restarting", "True", "MXJobRestarting")]
    assert message_of(plan).startswith(
        "MXJob mnist is restarting because 1 Worker replica(s) failed: pod mnist-worker-1 failed: "
    )
    assert counts_of(with_status(job, plan)) == {"Worker": 1}


def test_the_new_pods_come_when_the_last_old_one_is_gone() -> None:
    job, children = fall(*running(trained()), worker_1=1)

    waiting = plan_of(job, but(job, children, scheduler_0=None, worker_0=LOST, worker_1=None, server_0=None))
    gone = plan_of(job, but(job, children, scheduler_0=None, worker_0=None, worker_1=None, server_0=None))

    assert waiting.creates == ()
    assert sorted(names_of(gone.creates, POD)) == ALL
    labels = {
        c.body["metadata"]["labels"]["training.kubeflow.org/restart-count"] for c in gone.creates if c.resource == POD
    }
    assert labels == {"1"}


def test_it_restarts_until_everybody_is_back() -> None:
    job, children = fall(*running(trained()), worker_1=1)
    new: dict[str, Any] = {"attempt": "1"}

    some = plan_of(
        job, but(job, children, scheduler_0=dict(new), server_0=dict(new), worker_0=dict(new), worker_1=None)
    )
    whole = plan_of(
        job, but(job, children, scheduler_0=dict(new), server_0=dict(new), worker_0=dict(new), worker_1=dict(new))
    )

    assert some.status is None or some.status["phase"] == "Restarting"
    assert phase_of(whole) == "Running"
    assert conditions_of(whole) == [("Created", "True", "MXJobCreated"), ("Running", "True", "MXJobRunning")]


def test_the_first_restart_comes_at_once_and_the_next_one_waits() -> None:
    job, children = running(trained())
    job, children = fall(job, children, worker_1=1)
    again: dict[str, Any] = {
        f"{role}_{i}": {"attempt": "1"} for role, i in (("scheduler", 0), ("server", 0), ("worker", 0))
    }
    job, children = fall(job, children, **again, worker_1={"attempt": "1", "exit_code": 1})
    gone = [child for child in children if not child.uid.startswith("uid-of-mnist")]

    early = plan_of(job, gone, now=NOW + timedelta(seconds=4))
    late = plan_of(job, gone, now=NOW + timedelta(seconds=10))

    assert names_of(early.creates, POD) == []
    assert early.requeue_after == 6.0
    assert sorted(names_of(late.creates, POD)) == ALL


# --- lost pods ---


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("Never", "Failed"), ("OnFailure", "Restarting"), ("Always", "Restarting"), ("ExitCode", "Restarting")],
)
def test_a_running_pod_that_is_deleted_is_lost(policy: str, expected: str) -> None:
    job, children = running(trained(policy))

    plan = plan_of(job, but(job, children, server_0=dict(LOST)))

    assert phase_of(plan) == expected
    assert "pod mnist-server-0 is lost" in message_of(plan)


@pytest.mark.parametrize(("policy", "expected"), [("Never", "Failed"), ("OnFailure", "Restarting")])
def test_a_pod_that_ran_and_is_gone_is_lost(policy: str, expected: str) -> None:
    job, children = running(trained(policy))

    plan = plan_of(job, but(job, children, server_0=None))

    assert phase_of(plan) == expected
    assert "pod mnist-server-0 is lost" in message_of(plan)


def test_a_pod_that_never_ran_is_created_again_and_nobody_is_charged() -> None:
    job = trained("Never")
    job = with_status(job, plan_of(job))
    waiting = [child for child in running(trained("Never"))[1] if not child.uid.startswith("uid-of-mnist")]

    plan = plan_of(job, waiting)

    assert sorted(names_of(plan.creates, POD)) == ALL
    assert plan.status is None or plan.status["phase"] == "Created"


def test_a_lost_pod_is_counted_once() -> None:
    job, children = fall(*running(trained()), worker_1=dict(LOST))

    still_there = plan_of(job, children)
    gone = plan_of(job, but(job, children, worker_1=None))

    assert counts_of(job) == {"Worker": 1}
    for plan in (still_there, gone):
        assert plan.status is None or counts_of(with_status(job, plan)) == {"Worker": 1}


def test_a_worker_that_comes_again_alone_is_not_missed_meanwhile() -> None:
    job, children = fall(*running(trained(scope="Pod")), worker_1=1)

    plan = plan_of(job, but(job, children, worker_1=None))

    assert names_of(plan.creates, POD) == ["mnist-worker-1"]
    assert plan.status is None or plan.status["phase"] == "Restarting"


def test_the_others_are_missed_while_one_comes_again_alone() -> None:
    job, children = fall(*running(trained(scope="Pod", limit=1)), worker_1=1)

    plan = plan_of(job, but(job, children, worker_0=None, worker_1=None), now=NOW + timedelta(seconds=11))

    assert phase_of(plan) == "Failed"
    assert "pod mnist-worker-0 is lost" in message_of(plan)


def test_a_pod_that_is_lost_again_within_moments_uses_up_the_limit() -> None:
    job, children = fall(*running(trained(scope="Pod", limit=1)), worker_1=None)
    assert job["status"]["phase"] == "Restarting"
    children = but(job, children, worker_1={"attempt": "1"})
    job = with_status(job, plan_of(job, children))

    assert phase_of(plan_of(job, but(job, children, worker_1=None), now=NOW + timedelta(seconds=1))) == "Failed"


def test_a_pod_that_ran_is_missed_also_when_its_role_was_never_whole() -> None:
    job = with_status(trained(), plan_of(trained()))
    children = but(job, children_of(job), worker_1={"phase": "Pending"})
    job = with_status(job, plan_of(job, children))

    assert phase_of(plan_of(job, but(job, children, worker_0=None))) == "Restarting"


def test_all_start_again_when_the_scheduler_is_done_and_comes_back_for_nobody_alone() -> None:
    job, children = running(trained(scope="Pod", successPolicy="AllWorkers"))
    children = but(job, children, scheduler_0=0)
    job, _ = fall(with_status(job, plan_of(job, children)), children, worker_1=1)

    assert sorted(names_of(plan_of(job, services_of(job)).creates, POD)) == ALL


def test_who_has_done_his_part_stays_so_when_another_comes_again_alone() -> None:
    job, children = fall(*running(trained(scope="Pod")), worker_0=0, worker_1=1)

    plan = plan_of(job, but(job, children, worker_0=None, worker_1=None))

    assert job["status"]["done"] == {"Worker": [0]}
    assert names_of(plan.creates, POD) == ["mnist-worker-1"]


def test_who_has_done_his_part_does_it_again_when_all_start_again() -> None:
    job, _ = fall(*running(trained()), worker_0=0, worker_1=1)

    plan = plan_of(job, services_of(job))

    assert "done" not in job["status"]
    assert sorted(names_of(plan.creates, POD)) == ALL


# --- the budget ---


@pytest.mark.parametrize("is_older", [False, True], ids=["run-policy", "spec"])
def test_no_restart_is_made_beyond_the_limit(is_older: bool) -> None:
    job, children = running(trained(backoffLimit=0) if is_older else trained(limit=0))

    plan = plan_of(job, but(job, children, worker_1=1))

    assert phase_of(plan) == "Failed"
    assert message_of(plan).startswith(
        "MXJob mnist has failed because it has reached the specified backoff limit: 1 Worker replica(s) failed"
    )


def test_a_job_that_may_not_try_again_stops_what_runs_even_if_nothing_is_to_be_cleaned() -> None:
    job, children = running(trained(limit=0))
    children = but(job, children, worker_1=1)

    plan = plan_of(with_status(job, plan_of(job, children)), children)

    assert sorted(names_of(plan.deletes, POD)) == ["mnist-scheduler-0", "mnist-server-0", "mnist-worker-0"]


def test_a_job_that_fails_for_good_leaves_what_runs_if_nothing_is_to_be_cleaned() -> None:
    job, children = running(trained("Never"))
    children = but(job, children, worker_1=1)

    assert plan_of(with_status(job, plan_of(job, children)), children).deletes == ()


def test_the_limit_counts_over_new_pods_and_over_all_roles() -> None:
    job, children = fall(*running(trained(limit=1)), worker_1=1)
    again: dict[str, Any] = {
        f"{role}_{i}": {"attempt": "1"} for role, i in (("scheduler", 0), ("worker", 0), ("worker", 1))
    }

    plan = plan_of(job, but(job, children, **again, server_0={"attempt": "1", "exit_code": 1}))

    assert phase_of(plan) == "Failed"
    assert "reached the specified backoff limit" in message_of(plan)


def test_a_server_that_restarts_and_a_worker_that_fails_alone_use_the_same_limit() -> None:
    job, children = fall(*running(trained(scope="Pod", limit=1)), server_0=1)
    again: dict[str, Any] = {
        f"{role}_{i}": {"attempt": "1"} for role, i in (("scheduler", 0), ("server", 0), ("worker", 0))
    }

    plan = plan_of(job, but(job, children, **again, worker_1={"attempt": "1", "exit_code": 1}))

    assert phase_of(plan) == "Failed"


def test_a_restart_of_all_is_one_however_many_failed() -> None:
    job, _ = fall(*running(trained(limit=1)), worker_0=1, worker_1=1, server_0=1)

    assert job["status"]["phase"] == "Restarting"
    assert sum(counts_of(job).values()) == 1


@pytest.mark.parametrize(("seconds", "phase"), [(0, "Restarting"), (0.05, "Restarting"), (11, "Failed")])
def test_pods_that_fail_within_moments_are_one_restart(seconds: float, phase: str) -> None:
    job, children = running(trained(scope="Pod", limit=1))
    assert phase_of(plan_of(job, but(job, children, worker_0=1, worker_1=1))) == "Restarting"

    job, children = fall(job, children, worker_0=1)
    plan = plan_of(job, but(job, children, worker_0=1, worker_1=1), now=NOW + timedelta(seconds=seconds))

    assert phase_of(plan) == phase


@pytest.mark.parametrize(("seconds", "phase"), [(0.05, "Restarting"), (11, "Failed")])
def test_a_server_that_fails_with_a_worker_is_the_same_restart_and_starts_all(seconds: float, phase: str) -> None:
    job, children = fall(*running(trained(scope="Pod", limit=1)), worker_1=1)
    now = NOW + timedelta(seconds=seconds)

    plan = plan_of(job, but(job, children, server_0=1), now=now)

    assert phase_of(plan) == phase
    if phase == "Restarting":
        assert sorted(names_of(plan_of(with_status(job, plan), children, now=now).deletes, POD)) == ALL


def test_a_suspension_is_nobodys_fault() -> None:
    job, children = running(trained(limit=0))
    job = {**job, "spec": job["spec"] | {"runPolicy": {"suspend": True, "backoffLimit": 0}}}

    job = with_status(job, plan_of(job, children))

    assert job["status"]["phase"] == "Suspended"
    assert counts_of(job) == {}


def test_the_last_restarts_are_told() -> None:
    job, _ = fall(*running(trained()), worker_1=137)

    (told,) = job["status"]["restartHistory"]
    assert (told["replica"], told["scope"], told["exitCode"], told["signal"]) == ("worker-1", "All", 137, "SIGKILL")


def test_a_restart_count_that_was_edited_to_more_than_is_stored_does_not_keep_a_pod() -> None:
    job, children = running(trained("OnFailure"))

    job, children = fall(job, children, worker_1={"exit_code": 1, "attempt": "999"})

    assert ALL[3] in names_of(plan_of(job, children).deletes, POD)


def test_pods_that_wait_for_their_back_off_are_not_taken_for_created() -> None:
    job, children = running(trained("OnFailure", scope="Pod"))
    for attempt in ("0", "1"):
        job, children = fall(job, children, worker_1={"exit_code": 1, "attempt": attempt})
    children = but(job, children, worker_1=None)
    refused = {"type": "PodCreateFailed", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    job["status"]["conditions"].insert(0, refused)

    plan = plan_of(job, children)

    assert not plan.creates
    assert plan.status is None or refused in plan.status["conditions"]
