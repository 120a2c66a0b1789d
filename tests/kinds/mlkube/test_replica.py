"""What becomes of a job when a replica ends, by how it ended (docs/mxjob.md)."""

from datetime import timedelta
from typing import Any

import pytest

from tests.build import NOW, Json
from tests.kinds.mlkube.build import Child, a_begun, a_job, a_pod, a_spec, condition_of, plan_of, running, status_of

WORKER = ("worker", 0)


def states_of(job: Json, *worker: Child) -> dict[str, int]:
    """The states of the workers, of which these are the Job and the pods of the first."""
    plan = plan_of(job, running(job, *worker, without=[WORKER]))
    stored = plan.status if plan.status is not None else job["status"]
    (found,) = [entry for entry in stored["replicaStatuses"] if entry["Mx_replica_type"] == "WORKER"]
    return dict(found["ReplicasStates"])


def a_running(**given: Any) -> Json:
    """Its worker can join again."""
    specs = [a_spec("SCHEDULER"), a_spec("SERVER"), a_spec("WORKER", restartScope="Pod")]
    return a_begun("Running", "Running", specs=specs, **given)


@pytest.mark.parametrize(
    ("worker", "state"),
    [
        pytest.param(lambda job: [], "Starting", id="no Job"),
        pytest.param(lambda job: [a_job(job, *WORKER, deleting=True)], "Starting", id="a Job that goes"),
        pytest.param(lambda job: [a_job(job, *WORKER)], "Starting", id="no pod"),
        pytest.param(lambda job: [a_job(job, *WORKER), a_pod(job, *WORKER, phase="Pending")], "Starting", id="pending"),
        pytest.param(
            lambda job: [a_job(job, *WORKER), a_pod(job, *WORKER, deleting=True)], "Starting", id="a pod that goes"
        ),
        pytest.param(lambda job: [a_job(job, *WORKER, suspend=True)], "Starting", id="suspended"),
        pytest.param(
            lambda job: [a_job(job, *WORKER, suspend=True), a_pod(job, *WORKER)], "Starting", id="about to be suspended"
        ),
        pytest.param(lambda job: [a_job(job, *WORKER), a_pod(job, *WORKER)], "Running", id="running"),
        pytest.param(
            lambda job: [a_job(job, *WORKER), a_pod(job, *WORKER, last=137, restart_policy="OnFailure")],
            "Running",
            id="running again",
        ),
        pytest.param(
            lambda job: [
                a_job(job, *WORKER),
                a_pod(job, *WORKER, code=137, phase="Failed"),
                a_pod(job, *WORKER, suffix="b"),
            ],
            "Running",
            id="running in another pod",
        ),
        pytest.param(
            lambda job: [a_job(job, *WORKER), a_pod(job, *WORKER, waiting="CrashLoopBackOff", last=137)],
            "Starting",
            id="about to run again",
        ),
        pytest.param(
            lambda job: [a_job(job, *WORKER), a_pod(job, *WORKER, code=137, phase="Failed")],
            "Starting",
            id="killed, before the Job makes another pod",
        ),
    ],
)
def test_a_replica_that_goes_on(worker: Any, state: str) -> None:
    job = a_running()

    assert states_of(job, *worker(job)) == {state: 1}


@pytest.mark.parametrize(
    "worker",
    [
        pytest.param(lambda job: [a_job(job, *WORKER, succeeded=1)], id="its Job says so"),
        pytest.param(lambda job: [a_job(job, *WORKER), a_pod(job, *WORKER, code=0, phase="Succeeded")], id="its pod"),
        pytest.param(
            lambda job: [
                a_job(job, *WORKER),
                a_pod(job, *WORKER, code=0, more=[{"name": "side-car", "state": {"running": {}}}]),
            ],
            id="its main container, beside a side-car",
        ),
        pytest.param(
            lambda job: [
                a_job(job, *WORKER),
                a_pod(
                    job, *WORKER, code=0, phase="Failed", more=[{"name": "s", "state": {"terminated": {"exitCode": 1}}}]
                ),
            ],
            id="its main container, beside a side-car that failed",
        ),
        pytest.param(
            lambda job: [a_job(job, *WORKER, succeeded=1), a_pod(job, *WORKER, code=137, phase="Failed")],
            id="at the second try",
        ),
    ],
)
def test_a_replica_that_has_succeeded(worker: Any) -> None:
    job = a_running()

    assert states_of(job, *worker(job)) == {"Succeeded": 1}


RETRIED = [128, 130, 134, 137, 139, 143, 255]
PERMANENT = [1, 2, 126, 127]


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
@pytest.mark.parametrize(
    ("code", "codes", "is_permanent"),
    [
        *(pytest.param(code, "", False, id=f"{code} is retried") for code in RETRIED),
        *(pytest.param(code, "", True, id=f"{code} is permanent") for code in PERMANENT),
        pytest.param(1, "1,3-5", False, id="1 is retried when it is listed"),
        pytest.param(4, "1,3-5", False, id="4 is retried when its range is listed"),
        pytest.param(2, "1,3-5", True, id="2 is permanent when others are listed"),
    ],
)
def test_the_exit_code_says_whether_another_try_is_of_use(
    policy: str, code: int, codes: str, is_permanent: bool
) -> None:
    """A termination message, or the lack of one, changes nothing: a Python program that dies leaves none."""
    job = a_running(restartingExitCode=codes)
    ended: dict[str, Any] = {"code": code, "phase": "Failed"} if policy == "Never" else {"last": code}
    pod = a_pod(job, *WORKER, restart_policy=policy, **ended)

    plan = plan_of(job, running(job, a_job(job, *WORKER), pod, without=[WORKER]))

    assert (status_of(plan)["state"] == "Failed") is is_permanent


def test_a_permanent_failure_names_pod_node_and_code() -> None:
    job = a_running()
    pod = a_pod(job, *WORKER, code=1, phase="Failed")

    plan = plan_of(job, running(job, a_job(job, *WORKER), pod, without=[WORKER]))

    assert plan.status_first
    assert status_of(plan)["reason"] == (
        "worker-0: pod digits-worker-1kkf-0-aaaaa failed: container mxnet on node node-1 exited with reason Error "
        "exitcode 1; exit code 1 is not retried (restartingExitCode)"
    )


def test_a_replica_whose_command_cannot_be_started_is_not_tried_again() -> None:
    job = a_running(restartingExitCode="128")
    pod = a_pod(job, *WORKER, code=128, why="StartError", phase="Failed")

    plan = plan_of(job, running(job, a_job(job, *WORKER), pod, without=[WORKER]))

    assert status_of(plan)["state"] == "Failed"
    assert "a container that cannot be started is not retried" in status_of(plan)["reason"]


@pytest.mark.parametrize("how", ["Never", "OnFailure"])
def test_a_replica_without_memory_fails_and_says_so(how: str) -> None:
    job = a_running()
    ended: dict[str, Any] = {"code": 137, "phase": "Failed"} if how == "Never" else {"last": 137}
    pod = a_pod(job, *WORKER, why="OOMKilled", restart_policy=how, **ended)

    plan = plan_of(job, running(job, a_job(job, *WORKER), pod, without=[WORKER]))

    assert status_of(plan)["state"] == "Failed"
    assert "it needs more memory than its limit allows (OOMKilled)" in status_of(plan)["reason"]


@pytest.mark.parametrize("phase", ["Failed", "Running"])
@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("reason", ["Evicted", "NodeShutdown", "Terminated", "Preempting", "OutOfcpu"])
def test_a_pod_that_its_node_ended_restarts_whatever_its_exit_code(reason: str, code: int, phase: str) -> None:
    """A program that is told to end may well do so with 0: that is no success. The reason is there before the phase."""
    job = a_running()
    pod = a_pod(job, *WORKER, code=code, phase=phase, reason=reason)

    assert states_of(job, a_job(job, *WORKER), pod) == {"Starting": 1}


def test_a_pod_whose_time_is_over_has_not_succeeded_with_its_last_word() -> None:
    job = a_running()
    pod = a_pod(job, *WORKER, code=0, phase="Failed", reason="DeadlineExceeded")

    assert states_of(job, a_job(job, *WORKER), pod) == {"Starting": 1}


def test_a_job_that_gave_up_is_a_failure_with_its_words_and_those_of_the_last_pod() -> None:
    job = a_running()
    given_up = {"Failed": ("BackoffLimitExceeded", "Job has reached the specified backoff limit")}
    pod = a_pod(job, *WORKER, code=137, phase="Failed")

    plan = plan_of(job, running(job, a_job(job, *WORKER, conditions=given_up), pod, without=[WORKER]))

    assert status_of(plan)["reason"] == (
        "worker-0: job digits-worker-1kkf-0 has failed: BackoffLimitExceeded, Job has reached the specified backoff "
        "limit; pod digits-worker-1kkf-0-aaaaa failed: container mxnet on node node-1 exited with reason Error "
        "exitcode 137 (SIGKILL)"
    )


@pytest.mark.parametrize(("phase", "state"), [("Creating", "Starting"), ("Running", "Running")])
def test_a_job_that_is_about_to_give_up_is_not_said_to_try_again(phase: str, state: str) -> None:
    job = a_begun(phase, specs=a_running()["spec"]["replicaSpecs"])
    pods = [a_pod(job, *WORKER, code=137, phase="Failed", suffix=suffix) for suffix in ("a", "b")]

    plan = plan_of(job, running(job, a_job(job, *WORKER, limit=1), *pods, without=[WORKER]))

    assert states_of(job, a_job(job, *WORKER, limit=1), *pods) == {state: 1}
    assert [condition["type"] for condition in status_of(plan)["conditions"]] == ["Ready"]


def test_a_job_that_gives_up_on_a_pod_that_its_node_does_not_let_go_of_is_a_failure() -> None:
    """It says its target alone until the pod is gone, which a lost node may never tell."""
    job = a_running()
    target = {"FailureTarget": ("BackoffLimitExceeded", "Job has reached the specified backoff limit")}
    lost: list[Child] = [a_job(job, *WORKER, conditions=target), a_pod(job, *WORKER, deleting=True)]

    assert status_of(plan_of(job, running(job, *lost, without=[WORKER])))["state"] == "Failed"


@pytest.mark.parametrize("type_", ["Failed", "FailureTarget"])
@pytest.mark.parametrize(
    "job", [pytest.param(a_running(), id="alone"), pytest.param(a_begun("Running", "Running"), id="group")]
)
def test_a_job_that_gave_up_on_a_pod_that_still_runs_is_not_believed_before_the_pod_tells_how_it_ended(
    job: Json, type_: str
) -> None:
    given_up = {type_: ("BackoffLimitExceeded", "Job has reached the specified backoff limit")}
    watched_late: list[Child] = [a_job(job, *WORKER, conditions=given_up), a_pod(job, *WORKER)]

    assert not plan_of(job, running(job, *watched_late, without=[WORKER])).status_first


SIDE_CAR = [{"name": "side-car", "state": {"running": {}}}]


def test_a_dead_main_container_is_a_failure_when_its_side_cars_have_had_time_to_end() -> None:
    """As long as they live the pod does not end, and its Job does not try again: the job would wait for ever. But how
    it ends must not hang on whether we looked before or after they were gone."""
    job = a_running()
    dead = running(job, a_job(job, *WORKER), a_pod(job, *WORKER, code=137, more=SIDE_CAR), without=[WORKER])

    first = plan_of(job, dead)
    told = {**job, "status": status_of(first)}
    early = plan_of(told, dead, now=NOW + timedelta(seconds=29))
    late = plan_of(told, dead, now=NOW + timedelta(seconds=30))

    said = condition_of(first, "Recovering")[2]
    assert said.endswith("exitcode 137 (SIGKILL); its Job does not try again as long as side-cars keep the pod alive")
    assert (early.is_quiet, early.requeue_after) == (True, 1)
    assert (status_of(late)["state"], status_of(late)["reason"]) == ("Failed", said)


def test_a_main_container_that_died_for_good_is_a_failure_whatever_its_side_cars_do() -> None:
    job = a_running()
    pod = a_pod(job, *WORKER, code=1, more=SIDE_CAR)

    assert (
        "exit code 1 is not retried"
        in status_of(plan_of(job, running(job, a_job(job, *WORKER), pod, without=[WORKER])))["reason"]
    )


def test_a_replica_that_recovers_is_reported_until_it_runs() -> None:
    job = a_running()
    fallen: list[Child] = [a_job(job, *WORKER), a_pod(job, *WORKER, code=137, phase="Failed")]

    down = plan_of(job, running(job, *fallen, without=[WORKER]))
    up = plan_of(
        {**job, "status": down.status}, running(job, *fallen, a_pod(job, *WORKER, suffix="b"), without=[WORKER])
    )

    said = "worker-0: pod digits-worker-1kkf-0-aaaaa failed: container mxnet on node node-1 exited with reason Error "
    assert status_of(down)["phase"] == "Running"
    assert condition_of(down, "Ready")[:2] == ("False", "ReplicasStarting")
    assert condition_of(down, "Recovering") == (
        "True",
        "ReplicaRestarting",
        f"{said}exitcode 137 (SIGKILL); it is started again",
    )
    assert [event.reason for event in down.events] == ["Recovering"]
    assert condition_of(up, "Ready")[0] == "True"
    assert condition_of(up, "Recovering")[:2] == ("False", "Recovered")


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        pytest.param({"unschedulable": "0/3 nodes are available"}, "0/3 nodes are available", id="no node"),
        pytest.param({"waiting": "ImagePullBackOff"}, "ImagePullBackOff", id="no image"),
        pytest.param({"waiting": "ContainerCreating"}, "replicas are starting", id="only its turn"),
        pytest.param({}, "replicas are starting", id="nothing"),
    ],
)
def test_ready_says_what_a_replica_waits_for(pod: Json, says: str) -> None:
    job = a_begun(workers=1, servers=1)
    waiting = a_pod(job, *WORKER, phase="Pending", **pod)

    plan = plan_of(job, running(job, a_job(job, *WORKER), waiting, without=[WORKER]))

    status, _, message = condition_of(plan, "Ready")
    assert status == "False"
    assert says in message
