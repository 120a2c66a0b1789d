"""An AITrainingJob whose pods fail and restart, pass by pass (docs/aitrainingjob.md, Restart policies)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_pod,
    a_replica,
    after,
    an_aitj,
    child_labels,
    children_of,
    names_of,
    plan_of,
    pod_json,
    services_of,
    view_of_pod,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.plan import Event, Plan
from trainmaster.core.view import PodView

SAID = "container aitj-main on node node-1 exited with reason Error exitcode 137 (SIGKILL)"


def a_job(scope: str = "Pod", policy: str = "OnFailure", *, spec: Json | None = None, **fields: Any) -> Json:
    """Two trainers with these rules, and a parameter server that is never restarted."""
    trainer = a_replica(2, restartPolicy=policy, restartScope=scope, **fields)
    return an_aitj(trainer=trainer, ps=a_replica(1), spec={"restartingExitCode": "137,128", **(spec or {})})


def running(job: Json) -> Json:
    job = with_status(job, plan_of(job))
    return with_status(job, plan_of(job, children_of(job)))


def pod(job: Json, role: str, index: int = 0, *, attempt: int = 0, **fields: Any) -> PodView:
    """A pod of one attempt."""
    labels = {**child_labels(job, role, index), "RestartCount": str(attempt)}
    return a_pod(job, role, index, labels=labels, uid=f"uid-of-{role}-{index}-{attempt}", **fields)


def failed(job: Json, *trainers: int, code: int = 137) -> list[Child]:
    """What a job owns when some of its trainers have failed."""
    pods = [pod(job, "trainer", i, exit_code=code if i in trainers else None) for i in range(2)]
    return [*pods, pod(job, "ps"), *services_of(job)]


def status_of(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def said(plan: Plan) -> tuple[str, str]:
    entry = status_of(plan)["conditions"][-1]
    return entry["type"], entry["message"]


def stored(job: Json, children: list[Child], *, now: datetime = NOW) -> Json:
    """The job after its restart was decided."""
    return with_status(job, plan_of(job, children, now=now))


# --- the decision ---


@pytest.mark.parametrize("code", [1, 137], ids=["exit 1", "exit 137, which is listed"])
@pytest.mark.parametrize(
    ("policy", "codes"),
    [
        ("Never", set()),
        ("Always", {1, 137}),
        ("OnFailure", {1, 137}),
        ("ExitCode", {137}),
        ("OnNodeFail", set()),
        ("OnNodeFailWithExitCode", {137}),
    ],
)
@pytest.mark.parametrize("phase", ["Pending", "Creating", "Running", "Restarting"])
def test_the_policy_decides_between_a_restart_and_the_end(policy: str, codes: set[int], code: int, phase: str) -> None:
    job = a_job(policy=policy)
    job = with_status(job, {**running(job)["status"], "phase": phase})

    status = status_of(plan_of(job, failed(job, 1, code=code)))

    assert status["phase"] == "Terminating"
    assert ("RestartReplicaName" in status) == (code in codes)
    assert ("ending" in status) == (code not in codes)


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "ExitCode", "OnNodeFailWithExitCode"])
def test_a_command_that_cannot_be_started_fails_the_job_under_every_policy(policy: str) -> None:
    job = running(a_job(policy=policy))
    wrong = pod(job, "trainer", 0, phase="Failed", containers={"aitj-main": (128, "StartError")})

    status = status_of(plan_of(job, [wrong, *failed(job)[1:]]))

    assert (status["ending"]["phase"], "RestartReplicaName" in status) == ("Failed", False)


@pytest.mark.parametrize(
    ("containers", "comes_again"),
    [
        pytest.param({"main": 137}, True, id="no container has the prefix: all count"),
        pytest.param({"aitj-main": 137, "logs": 1}, True, id="a side-car does not count"),
        pytest.param({"aitj-main": None, "logs": 137}, False, id="a side-car alone decides nothing"),
        pytest.param({"main": 137, "logs": 1}, False, id="without the prefix nobody is a side-car"),
    ],
)
def test_exit_codes_of_the_containers_that_train_decide(containers: dict[str, int | None], comes_again: bool) -> None:
    job = running(a_job(policy="ExitCode"))
    children = [pod(job, "trainer", 0, phase="Failed", containers=containers), *failed(job)[1:]]

    assert ("RestartReplicaName" in status_of(plan_of(job, children))) == comes_again


@pytest.mark.parametrize(
    ("scope", "counts", "gone", "says"),
    [
        ("Pod", {"trainer": 1}, ["mnist-trainer-1"], "pod is restarting now"),
        ("Replica", {"trainer": 1}, ["mnist-trainer-0", "mnist-trainer-1"], "trainer pods are restarting now"),
        (
            "All",
            {"ps": 1, "trainer": 1},
            ["mnist-ps-0", "mnist-trainer-0", "mnist-trainer-1"],
            "All pods are restarting now",
        ),
    ],
)
def test_the_path_is_terminating_restarting_running(
    scope: str, counts: dict[str, int], gone: list[str], says: str
) -> None:
    job = running(a_job(scope))
    children = failed(job, 1)

    decided = plan_of(job, children)
    message = f"restart times is 1, pod mnist-trainer-1 failed: {SAID}"
    assert (decided.status_first, decided.deletes, decided.creates) == (True, (), ())
    assert said(decided) == ("Terminating", message)
    assert decided.events == (Event("Warning", "TrainingJobTerminating", message),)
    assert (status_of(decided)["RestartCount"], status_of(decided)["RestartReplicaName"]) == (counts, "trainer")

    job = with_status(job, decided)
    going = plan_of(job, children)
    assert sorted(names_of(going.deletes, POD)) == gone
    assert (names_of(going.deletes, SERVICE), going.creates, going.status) == ([], (), None)

    job, children = after(job, children, going)
    told = plan_of(job, children)
    assert (told.status_first, told.creates, told.deletes) == (True, (), ())
    assert said(told) == ("Restarting", says)
    assert told.events == (Event("Normal", "TrainingJobRestarting", says),)
    assert "RestartReplicaName" not in status_of(told)

    job = with_status(job, told)
    coming = plan_of(job, children)
    assert names_of(coming.creates, POD) == gone
    for create in coming.creates:
        env = {e["name"]: e["value"] for e in create.body["spec"]["containers"][0]["env"]}
        assert create.body["metadata"]["labels"]["RestartCount"] == "1"
        assert env["TRAININGJOB_REPLICA_RESTARTCOUNT"] == "1"

    job, children = after(job, children, coming)
    waiting = plan_of(job, children)
    assert status_of(waiting)["phase"] == "Restarting"
    assert status_of(waiting)["replicaStatuses"]["trainer"]["restarting"] == sum("trainer" in name for name in gone)

    again = [pod(job, role, i, attempt=1) for role, i in (("trainer", 0), ("trainer", 1), ("ps", 0))]
    ran = plan_of(with_status(job, waiting), [*again, *services_of(job)])
    assert said(ran) == ("Running", "all pods are running")
    assert ran.events == (Event("Normal", "TrainingJobRunning", "all pods are running"),)


def test_a_restart_is_remembered() -> None:
    job = running(a_job())

    assert status_of(plan_of(job, failed(job, 1)))["restartHistory"] == [
        {
            "time": STAMP,
            "replica": "trainer-1",
            "scope": "Pod",
            "exitCode": 137,
            "signal": "SIGKILL",
            "reason": "Error",
            "node": "node-1",
        }
    ]


# --- counted once ---


@pytest.mark.parametrize("scope", ["Pod", "Replica", "All"])
def test_a_fault_that_was_counted_is_not_looked_at_again(scope: str) -> None:
    job = running(a_job(scope))
    children = failed(job, 0, 1)
    job = stored(job, children)
    counts = job["status"]["RestartCount"]

    for _ in range(3):
        plan = plan_of(job, children)
        assert plan.status is None
        assert plan.deletes

    assert counts["trainer"] == 1


@pytest.mark.parametrize(("seconds", "count"), [(0.05, 1), (10, 1), (11, 2)])
def test_what_fails_while_another_pod_goes_is_the_same_restart_within_moments(seconds: float, count: int) -> None:
    job = running(a_job(restartLimit=2))
    job = stored(job, failed(job, 1))

    status = status_of(plan_of(job, failed(job, 0, 1), now=NOW + timedelta(seconds=seconds)))

    assert status["RestartCount"] == {"trainer": count}
    assert status["restarts"]["trainer"]["attempts"] == {"0": count, "1": 1}
    assert [entry["replica"] for entry in status["restartHistory"]] == ["trainer-1", "trainer-0"]


def test_peers_that_die_of_one_failure_do_not_use_up_the_limit() -> None:
    job = running(a_job(restartLimit=1))
    job = stored(job, failed(job, 1))

    plan = plan_of(job, failed(job, 0, 1), now=NOW + timedelta(milliseconds=50))

    assert "ending" not in status_of(plan)
    assert status_of(plan)["restarts"]["trainer"]["used"] == 1


def test_a_pod_that_fails_again_within_moments_uses_up_the_limit() -> None:
    job = running(a_job(restartLimit=1))
    job = stored(job, failed(job, 1))
    again = [pod(job, "trainer"), pod(job, "trainer", 1, attempt=1, exit_code=137), pod(job, "ps"), *services_of(job)]

    plan = plan_of(job, again, now=NOW + timedelta(seconds=1))

    assert status_of(plan)["ending"]["message"].endswith("(restartLimit 1 is used up)")


def test_a_pod_that_was_created_after_an_incident_and_fails_at_once_is_replaced_and_counted() -> None:
    """A user deletes a pod just after another one has failed. It is created again, for the present attempt."""
    job = running(a_job(restartLimit=2))
    job = stored(job, failed(job, 1))
    now = NOW + timedelta(seconds=1)
    new = [pod(job, "trainer", 0, attempt=1, exit_code=1), pod(job, "trainer", 1, attempt=1)]

    job = stored(job, [*new, pod(job, "ps"), *services_of(job)], now=now)

    assert job["status"]["RestartCount"] == {"trainer": 2}
    assert names_of(plan_of(job, [*new, pod(job, "ps"), *services_of(job)], now=now).deletes, POD) == [
        "mnist-trainer-0"
    ]


def test_a_pod_whose_output_says_that_it_lost_a_peer_belongs_to_the_restart_of_that_peer() -> None:
    job = running(a_job(restartLimit=1))
    job = stored(job, failed(job, 1))
    body = pod_json(job, "trainer", exit_code=1)
    said = {"message": "RuntimeError: Connection reset by peer"}
    body["status"]["containerStatuses"][0]["state"]["terminated"] |= said
    left = [view_of_pod(body), pod(job, "trainer", 1, attempt=1), pod(job, "ps"), *services_of(job)]

    plan = plan_of(job, left, now=NOW + timedelta(minutes=5))

    assert "ending" not in status_of(plan)
    assert status_of(plan)["RestartCount"] == {"trainer": 1}


def test_a_pod_that_fails_with_its_peer_is_created_when_that_is() -> None:
    """Its back-off is that of the incident, not that of a second one."""
    job = running(a_job())
    job = stored(job, failed(job, 1))
    now = NOW + timedelta(milliseconds=50)
    job = stored(job, failed(job, 0, 1), now=now)
    job = with_status(job, plan_of(job, services_of(job), now=now))

    assert "nextTime" not in job["status"]["restarts"]["trainer"]
    assert names_of(plan_of(job, [pod(job, "ps"), *services_of(job)], now=now).creates, POD) == [
        "mnist-trainer-0",
        "mnist-trainer-1",
    ]


def test_a_pod_that_is_told_to_go_and_fails_is_not_counted() -> None:
    job = running(a_job())
    children = [pod(job, "trainer", 0, exit_code=143, deleting=True), *failed(job)[1:]]

    assert "RestartCount" not in with_status(job, plan_of(job, children))["status"]


def test_no_pod_comes_while_one_of_the_old_attempt_is_there() -> None:
    job = running(a_job("All"))
    job = stored(job, failed(job, 1))

    plan = plan_of(job, [pod(job, "ps", deleting=True), *services_of(job)])

    assert (plan.creates, plan.deletes) == ((), ())
    assert with_status(job, plan)["status"]["phase"] == "Terminating"


@pytest.mark.parametrize("label", ["", "x", "-1", "٣"])
def test_a_label_that_is_no_number_is_of_the_first_attempt(label: str) -> None:
    job = running(a_job())
    job = stored(job, failed(job, 1))
    odd = a_pod(job, "trainer", 1, labels={**child_labels(job, "trainer", 1), "RestartCount": label})

    assert names_of(plan_of(job, [odd, *failed(job)[::2], *services_of(job)]).deletes, POD) == ["mnist-trainer-1"]


# --- the end ---


def test_a_used_up_limit_leaves_the_fault_to_the_fail_policy() -> None:
    job = running(a_job(restartLimit=0))

    ending = status_of(plan_of(job, failed(job, 1)))["ending"]

    assert ending["phase"] == "Failed"
    assert ending["message"] == f"pod mnist-trainer-1 failed: {SAID} (restartLimit 0 is used up)"


def test_a_restart_of_all_uses_up_the_limit_of_nobody_else() -> None:
    job = an_aitj(
        a=a_replica(1, restartPolicy="OnFailure", restartLimit=1),
        b=a_replica(1, restartPolicy="OnFailure", restartLimit=1),
    )
    job = running(job)
    job = stored(job, [pod(job, "a", exit_code=1), pod(job, "b")])
    assert job["status"]["RestartCount"] == {"a": 1, "b": 1}

    second = plan_of(job, [pod(job, "a", attempt=1), pod(job, "b", attempt=1, exit_code=1)])

    assert status_of(second)["RestartCount"] == {"a": 2, "b": 2}


def test_an_end_wins_over_a_restart() -> None:
    job = running(with_spec(a_job(), completePolicy="Any"))
    children = [*failed(job, 1)[:2], pod(job, "ps", exit_code=0), *services_of(job)]

    assert status_of(plan_of(job, children))["ending"]["phase"] == "Succeed"


@pytest.mark.parametrize(("fail", "ends"), [("Any", True), ("Rank0", False), ("All", False), ("None", False)], ids=str)
def test_a_pod_that_does_not_come_again_is_left_to_its_fail_policy(fail: str, ends: bool) -> None:
    job = running(a_job(policy="ExitCode", failPolicy=fail))

    plan = plan_of(job, failed(job, 1, code=1))

    assert ("ending" in with_status(job, plan)["status"]) == ends


def test_a_job_that_restarts_can_still_end() -> None:
    job = running(a_job("Replica"))
    job = stored(job, failed(job, 1))
    children = [*failed(job, 1)[:2], pod(job, "ps", exit_code=9), *services_of(job)]

    assert status_of(plan_of(job, children))["ending"]["phase"] == "Failed"


# --- back-off and budgets ---


def test_a_second_restart_in_a_row_waits_before_its_pods_are_created() -> None:
    job = running(a_job())
    job = stored(job, failed(job, 1))
    again = [pod(job, "trainer", 0), pod(job, "trainer", 1, attempt=1, exit_code=1), pod(job, "ps"), *services_of(job)]
    job = stored(job, again)
    gone = [again[0], again[2], *services_of(job)]
    job = stored(job, gone)
    assert job["status"]["phase"] == "Restarting"

    early = plan_of(job, gone, now=NOW + timedelta(seconds=4))
    due = plan_of(job, gone, now=NOW + timedelta(seconds=10))

    assert (early.creates, early.requeue_after) == ((), 6.0)
    assert (names_of(due.creates, POD), due.requeue_after) == (["mnist-trainer-1"], None)


@pytest.mark.parametrize(("seconds", "ends"), [(59, True), (60, False)])
def test_a_budget_comes_back_after_a_healthy_time(seconds: int, ends: bool) -> None:
    job = running(a_job(restartLimit=1, restartResetSeconds=60))
    job["status"] |= {"RestartCount": {"trainer": 1}, "restarts": {"trainer": {"count": 1, "used": 1}}}
    children = [pod(job, "trainer", i, attempt=1, exit_code=137 if i else None) for i in range(2)]

    status = status_of(plan_of(job, [*children, pod(job, "ps")], now=NOW + timedelta(seconds=seconds)))

    assert ("ending" in status) == ends


# --- somebody else's job ---


@pytest.mark.parametrize(
    ("scope", "gone"), [("All", ["mnist-ps-0", "mnist-trainer-0"]), ("Replica", ["mnist-trainer-0"]), ("Pod", [])]
)
def test_a_restart_that_another_operator_began_is_finished(scope: str, gone: list[str]) -> None:
    """Its deletes were not repeated: one that got lost left the job Terminating for ever."""
    counts = {"ps": 2, "trainer": 3} if scope == "All" else {"trainer": 3}
    job = with_status(a_job(scope), {"phase": "Terminating", "RestartCount": counts, "RestartReplicaName": "trainer"})
    left = [pod(job, "ps", attempt=1), pod(job, "trainer", 0, attempt=2), *services_of(job)]

    assert sorted(names_of(plan_of(job, left).deletes, POD)) == gone
    finished = plan_of(job, services_of(job))
    assert status_of(finished)["phase"] == "Restarting"
    coming = plan_of(with_status(job, finished), services_of(job)).creates
    assert {c.body["metadata"]["labels"]["RestartCount"] for c in coming} == set(map(str, {"ps": 0, **counts}.values()))


def test_what_another_operator_counted_is_used_up() -> None:
    job = a_job(restartLimit=3)
    job = with_status(job, {**running(job)["status"], "RestartCount": {"trainer": 3}})
    children = [pod(job, "trainer", i, attempt=3, exit_code=i or None) for i in range(2)]

    assert "ending" in status_of(plan_of(job, [*children, pod(job, "ps")]))


def test_a_role_that_leaves_the_spec_during_its_restart_does_not_stop_the_job() -> None:
    job = running(a_job("Replica"))
    children = failed(job, 1)
    job = with_spec(stored(job, children), replicaSpecs={"ps": a_replica(1)})

    for _ in range(3):
        job, children = after(job, children, plan_of(job, children))

    assert {child.key.name for child in children} == {"mnist-ps-0"}
    assert job["status"]["phase"] == "Running"
