"""What `trainmaster why` says: the first line names the cause, and there are ten lines at most."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_dijob,
    a_ditask,
    a_pod,
    a_replica,
    an_aitj,
    an_mxjob,
    observed,
    pod_json,
    view_of_pod,
    with_spec,
)
from tests.client.found import found
from tests.kinds.mlkube.build import a_begun, name_of
from trainmaster.client.story import JobEvent, story
from trainmaster.lifecycle import failure
from trainmaster.lifecycle.failure import Failure

LATER = NOW + timedelta(seconds=90)


def condition(type_: str, message: str = "", *, status: str = "True", reason: str = "") -> Json:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": STAMP}


def ended(message: str, phase: str = "Failed", **status: Any) -> Json:
    """The status of an AITrainingJob that has ended."""
    return {"phase": phase, "conditions": [condition("Finished", message, reason=phase)], "endTime": STAMP, **status}


def failed(code: int, replica: str = "trainer-1", *, reason: str = "Error", **fields: Any) -> Json:
    """``status.failure``."""
    role = replica.rpartition("-")[0] or replica
    place = {"replica": replica, "role": role, "pod": f"mnist-{replica}", "container": "aitj-main", "node": "n1"}
    return {**place, "exitCode": code, "reason": reason, "time": STAMP, **fields}


def warning(what: str, reason: str, message: str) -> JobEvent:
    return JobEvent(what=what, type="Warning", reason=reason, message=message, time=NOW)


def story_of(
    job: Json,
    children: Iterable[Child] = (),
    events: Sequence[JobEvent] = (),
    *,
    output: Sequence[str] = (),
    keeps_logs: bool = False,
    **seen: Any,
) -> list[str]:
    return story(found(job), observed(job, children, **seen), events, LATER, output=output, keeps_logs=keeps_logs)


TRAINERS = an_aitj(trainer=2, status=ended("trainer-1 failed", failure=failed(3)))


def test_an_event_of_a_pod_of_another_job_whose_name_begins_with_the_same_words_is_not_shown() -> None:
    own = warning("pod mnist-trainer-1", "FailedMount", "own volume")
    other = warning("pod mnist-fail-trainer-0", "BackOff", "of another job")

    lines = "\n".join(story_of(TRAINERS, events=[own, other]))

    assert "own volume" in lines
    assert "of another job" not in lines


# --- why it failed ---


@pytest.mark.parametrize(
    ("failure", "how"),
    [
        pytest.param(failed(3), "exited with code 3", id="exit code"),
        pytest.param(failed(143, signal="SIGTERM"), "was killed by SIGTERM (143)", id="signal"),
        pytest.param(
            failed(137, reason="OOMKilled"), "ran out of memory (OOMKilled, exit code 137)", id="memory without a limit"
        ),
        pytest.param(
            failed(137, reason="OOMKilled", memoryLimit="200Mi"),
            "ran out of memory (OOMKilled, exit code 137) at its limit of 200Mi",
            id="memory",
        ),
        pytest.param(
            failed(128, reason="StartError"), "could not start (StartError): its command is wrong", id="no message"
        ),
        pytest.param(
            failed(128, reason="StartError", message='exec: "trian": executable file not found in $PATH'),
            'could not start (StartError): exec: "trian": executable file not found in $PATH',
            id="wrong command",
        ),
    ],
)
def test_the_first_line_has_the_failed_replica_after_its_pod_is_deleted(failure: Json, how: str) -> None:
    lines = story_of(an_aitj(trainer=2, status=ended("trainer-1 failed", failure=failure)))

    assert lines[0] == f"aitrainingjob/mnist has failed 1m30s ago: trainer-1 (pod mnist-trainer-1, node n1) {how}"
    assert lines[-2] == "next: nothing; the job has ended"
    assert lines[-1] == "its pods are deleted, and their logs with them; with cleanPodPolicy None they are kept"


def test_the_local_cluster_keeps_the_logs_of_deleted_pods() -> None:
    lines = story_of(an_aitj(trainer=2, status=ended("trainer-1 failed", failure=failed(1))), keeps_logs=True)

    assert lines[-1] == "its pods are deleted; their logs are kept, type: trainmaster logs aitrainingjob/mnist --all"


def test_a_command_that_is_wrong_is_not_explained_twice() -> None:
    message = 'exec: "trian": executable file not found in $PATH'
    status = ended("trainer-1 failed", failure=failed(128, reason="StartError", message=message))
    lines = story_of(
        an_aitj(trainer=2, status=status), events=[warning("pod mnist-trainer-1", "Failed", f"Error: {message}")]
    )

    assert lines[1] == "rule: a container that cannot be started is not started again, under any restartPolicy"
    assert not any(line.startswith("event") for line in lines)


def test_output_that_only_the_log_has_is_in_the_first_line() -> None:
    """With terminationMessagePolicy File the kubelet does not copy it."""
    lines = story_of(TRAINERS, output=["step 16", "ValueError: loss is NaN"])

    assert lines[0].endswith("exited with code 3: ValueError: loss is NaN")
    assert lines[1] == "  | step 16"


@pytest.mark.parametrize(("reason", "is_cause"), [("Liveness", True), ("Startup", True), ("Readiness", False)])
def test_a_container_that_was_ended_because_of_a_probe_has_the_event_of_the_probe(reason: str, is_cause: bool) -> None:
    job = an_aitj(trainer=2, status=ended("trainer-1 failed", failure=failed(137, signal="SIGKILL")))
    lines = story_of(job, events=[warning("pod mnist-trainer-1", "Unhealthy", f"{reason} probe failed: 503")])

    why = f": {reason} probe failed: 503" if is_cause else ", mostly by the kernel's OOM killer"
    assert lines[0].endswith(f"was killed by SIGKILL (137){why}")


OUTPUT = ["Traceback", "ValueError: loss is NaN"]
STORY = [
    (
        "aitrainingjob/mnist has failed 1m30s ago: trainer-1 (pod mnist-trainer-1, node n1) exited with code 3: "
        "ValueError: loss is NaN"
    ),
    "  | Traceback",
    "rule: trainer restarts never (restartPolicy Never); failPolicy Any of trainer and Any of the job",
    "1 more pod failed after it",
    "next: nothing; the job has ended",
]


@pytest.mark.parametrize("are_deleted", [False, True], ids=["pods are there", "pods are deleted"])
def test_the_replica_that_failed_first_is_the_cause_and_its_output_is_shown(are_deleted: bool) -> None:
    status = ended("pod mnist-trainer-0 failed", failure=failed(3, others=1, output=OUTPUT))
    job = an_aitj(trainer=2, clean="None", status=status)
    pods = [a_pod(job, "trainer", 0, exit_code=1), a_pod(job, "trainer", 1, exit_code=3)]
    lines = story_of(job, [] if are_deleted else pods, output=OUTPUT)

    assert lines[:-1] == STORY
    assert are_deleted or lines[-1] == "type: trainmaster logs aitrainingjob/mnist --role trainer --all"


def test_a_job_that_an_older_operator_ended_is_explained_by_its_pods() -> None:
    job = an_aitj(trainer=2, clean="None", status=ended("pod mnist-trainer-1 failed"))
    pods = [a_pod(job, "trainer", 0), a_pod(job, "trainer", 1, exit_code=139, node="n1")]

    assert "trainer-1 (pod mnist-trainer-1, node n1) was killed by SIGSEGV (139); " in story_of(job, pods)[0]


@pytest.mark.parametrize(
    ("role", "restarts", "rule"),
    [
        pytest.param({}, {}, "trainer restarts never (restartPolicy Never)", id="never"),
        pytest.param(
            {"restartPolicy": "OnFailure", "restartLimit": 3},
            {"count": 3, "used": 3},
            "restartLimit 3 of trainer is used up",
            id="limit",
        ),
        pytest.param(
            {"restartPolicy": "ExitCode"},
            {},
            "trainer restarts only after the exit codes of restartingExitCode (restartPolicy ExitCode)",
            id="exit code",
        ),
    ],
)
def test_the_rule_that_ended_the_job_is_named(role: Json, restarts: Json, rule: str) -> None:
    status = ended("trainer-1 failed", failure=failed(3), restarts={"trainer": restarts} if restarts else {})
    lines = story_of(an_aitj(trainer=a_replica(2, **role), status=status))

    assert f"rule: {rule}; failPolicy Any of trainer and Any of the job" in lines


def test_the_limit_of_an_mxjob_is_that_of_the_job() -> None:
    last = condition("Failed", "MXJob mnist has failed", reason="MXJobFailed")
    status: Json = {"phase": "Failed", "restarts": {"Worker": {"count": 2, "used": 2}}}
    status["conditions"] = [condition("Finished", "worker 0 failed", reason="Failed"), last]
    status["failure"] = failed(9, "worker-0", role="Worker")
    job = with_spec(an_mxjob(status=status), runPolicy={"backoffLimit": 2})
    job["spec"]["mxReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    lines = story_of(job)

    assert "rule: backoffLimit 2 of the job is used up" in lines


def test_a_coordinator_that_fails_ends_a_dijob() -> None:
    ending = condition("Finished", "coordinator failed", reason="Failed")
    status = {"phase": "Failed", "conditions": [ending], "failure": failed(5, "coordinator")}
    lines = story_of(a_dijob(status=status))

    assert (
        lines[0]
        == "dijob/cartpole has failed 1m30s ago: coordinator (pod mnist-coordinator, node n1) exited with code 5"
    )
    assert lines[1] == "rule: coordinator restarts only after a fault of its node"


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        pytest.param("Timeout", "the job has run for 60 seconds (timeLimit); deleted pods", id="deadline"),
        pytest.param("NodeFail", "pod mnist-trainer-0: node n1 is not ready; deleted pods", id="node"),
        pytest.param("Preempted", "by annotation; deleted pods", id="preempted"),
    ],
)
def test_an_end_that_no_program_caused_has_the_message_of_the_status(phase: str, message: str) -> None:
    job = an_aitj(trainer=2, status=ended(message, phase))
    lines = story_of(job, [a_pod(job, "trainer", exit_code=143)])

    assert lines[0] == f"aitrainingjob/mnist has ended with {phase} 1m30s ago: {message}"


def test_a_job_that_has_succeeded_needs_nothing() -> None:
    assert story_of(an_aitj(status=ended("job mnist completed", "Succeed"))) == [
        "aitrainingjob/mnist has succeeded 1m30s ago: job mnist completed",
        "next: nothing; the job has ended",
    ]


# --- what it waits for ---


def test_a_pod_without_a_node_is_the_cause() -> None:
    job = an_aitj(trainer=1, status={"phase": "Pending"})
    pod = a_pod(job, "trainer", phase="Pending", unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu")
    lines = story_of(job, [pod])

    assert lines[0] == (
        "aitrainingjob/mnist is waiting: pod mnist-trainer-0: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
    )
    assert lines[-1] == "type: kubectl describe pod mnist-trainer-0 --namespace ml"


def gated(job: Json, index: int) -> Child:
    """A pod that Kueue has not admitted."""
    pod = pod_json(job, "trainer", index, phase="Pending")
    pod["metadata"]["labels"] |= {"kueue.x-k8s.io/queue-name": "night", "kueue.x-k8s.io/pod-group-name": "mnist-1"}
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    return view_of_pod(pod)


@pytest.mark.parametrize("phase", ["Pending", "Restarting"])
def test_a_job_that_kueue_has_not_admitted_waits_for_its_queue(phase: str) -> None:
    job = an_aitj(trainer=2, status={"phase": phase, "conditions": [condition(phase)]})

    lines = story_of(job, [gated(job, 0), gated(job, 1)])

    assert lines[0].startswith("aitrainingjob/mnist is waiting: 2 pods wait for Kueue to admit them to queue night")
    assert lines[-1] == "type: kubectl describe workload mnist-1 --namespace ml"


def test_an_image_that_cannot_be_pulled_is_the_cause() -> None:
    job = an_aitj(trainer=1, status={"phase": "Creating"})
    waits = {"aitj-main": 'ImagePullBackOff: Back-off pulling image "nope"'}
    lines = story_of(job, [a_pod(job, "trainer", phase="Pending", node="n1", containers=waits)])

    assert lines[0].startswith("aitrainingjob/mnist is waiting: ")
    assert 'Back-off pulling image "nope"' in lines[0]


@pytest.mark.parametrize("reason", ["", "ContainerCreating"])
def test_the_event_of_a_pending_pod_says_more_than_that_it_is_slow(reason: str) -> None:
    slow = [condition("PodsWaiting", "pod mnist-trainer-0 is slow", reason=reason)] if reason else []
    job = an_aitj(trainer=1, status={"phase": "Creating", "conditions": slow})
    pod = a_pod(job, "trainer", phase="Pending", node="n1")
    event = warning("pod mnist-trainer-0", "FailedMount", 'configmap "nope" not found')
    lines = story_of(job, [pod], [event])

    assert lines[0] == 'aitrainingjob/mnist is waiting: pod mnist-trainer-0: FailedMount: configmap "nope" not found'
    assert not any(line.startswith("event") for line in lines)


def test_a_pod_that_the_api_server_refuses_is_the_cause() -> None:
    refused = condition("PodCreateFailed", 'pod ml/mnist-trainer-0: exceeded quota "gpu"; trying again with back-off')
    lines = story_of(an_aitj(trainer=1, status={"phase": "Pending", "conditions": [refused]}))

    assert lines[0].startswith('aitrainingjob/mnist is waiting: pod ml/mnist-trainer-0: exceeded quota "gpu"')
    assert lines[1:] == [
        "next: the pods are created when the API server accepts them; this is tried again with back-off",
        "type: kubectl describe quota --namespace ml",
    ]


PRIVILEGES = ", ".join(f"container number-{n} must set securityContext.capabilities.drop" for n in range(20))


def test_a_refusal_by_pod_security_is_told_in_full_with_what_to_do() -> None:
    refusal = f'pod ml/mnist-trainer-0: violates PodSecurity "restricted:latest": {PRIVILEGES}'
    refused = condition("PodCreateFailed", f"{refusal}; trying again with back-off")
    lines = story_of(an_aitj(trainer=1, status={"phase": "Pending", "conditions": [refused]}))

    assert refusal in lines[0]
    edit = "kubectl edit aitrainingjobs.elasticdeeplearning.ai mnist --namespace ml"
    assert lines[-1] == f"type: {edit}, and set in its pod templates what is asked for"


def test_any_other_refusal_leads_to_the_job() -> None:
    refused = condition("PodCreateFailed", "pod ml/mnist-trainer-0: webhook says no; trying again with back-off")
    lines = story_of(an_aitj(trainer=1, status={"phase": "Pending", "conditions": [refused]}))

    assert lines[-1] == "type: kubectl describe aitrainingjobs.elasticdeeplearning.ai mnist --namespace ml"


def test_an_event_of_a_batch_job_is_shown() -> None:
    job = a_begun()
    event = warning(f"job {name_of(job, 'worker')}", "FailedCreate", "Error creating: exceeded quota: gpu")

    assert any("FailedCreate: Error creating: exceeded quota: gpu" in line for line in story_of(job, events=[event]))


def test_a_job_that_no_operator_has_seen_says_so() -> None:
    lines = story_of(an_aitj())

    assert lines[0] == "aitrainingjob/mnist has no status: no operator has seen it in 1m30s"
    assert lines[-1] == "type: trainmaster operator --help, and start an operator"


LEFT = JobEvent(
    what="aitrainingjob mnist",
    type="Normal",
    reason="LeftToOperator",
    message="the jobs of this namespace are left to its own operator, them, which holds the Lease team/x",
    time=NOW,
    is_of_job=True,
)


def test_a_job_that_is_left_to_an_operator_which_does_nothing_says_whose_it_is() -> None:
    lines = story_of(an_aitj(), events=[LEFT])

    assert lines[0] == f"aitrainingjob/mnist has no status: {LEFT.message}"
    assert lines[-1] == "type: kubectl get lease --namespace ml, and look whether that operator runs"


def test_a_job_that_another_operator_runs_says_whose_it_is() -> None:
    lines = story_of(an_aitj(status={"phase": "Pending", "conditions": []}), events=[LEFT])

    assert LEFT.message in lines


def test_a_job_that_was_taken_back_from_another_operator_is_not_left_to_it() -> None:
    back = JobEvent(what=LEFT.what, type="Normal", reason="TakenBack", message="it ended", time=LATER, is_of_job=True)

    assert story_of(an_aitj(), events=[LEFT, back])[0].endswith("has no status: no operator has seen it in 1m30s")


# --- what else goes on ---


def test_a_restart_has_its_cause_its_number_and_its_time() -> None:
    history = [{"time": STAMP, "replica": "trainer-1", "scope": "All", "exitCode": 137, "signal": "SIGKILL"}]
    history[0] |= {"reason": "OOMKilled", "node": "n1", "line": "step 17"}
    restarts = {"trainer": {"count": 2, "used": 2, "streak": 2, "nextTime": "2026-11-15T12:01:38Z", "attempt": 2}}
    status = {"phase": "Restarting", "restarts": restarts, "restartHistory": history}
    lines = story_of(an_aitj(trainer=a_replica(2, restartPolicy="OnFailure", restartLimit=3), status=status))

    cause = "trainer-1 exited with code 137 (SIGKILL, OOMKilled) on node n1 1m30s ago: step 17"
    assert lines == [
        f"aitrainingjob/mnist restarts (2 of 3): {cause}",
        "next: pods of trainer are created again in 8 s, after the back-off",
        "type: trainmaster logs aitrainingjob/mnist --follow",
    ]


def test_a_running_job_has_its_replicas_and_its_last_restart() -> None:
    history = [{"time": STAMP, "replica": "trainer-1", "scope": "Pod", "exitCode": 1}]
    status = {
        "phase": "Running",
        "restartHistory": history,
        "conditions": [condition("Running", "all pods are running")],
    }
    job = an_aitj(trainer=2, status=status)
    lines = story_of(job, [a_pod(job, "trainer", 0), a_pod(job, "trainer", 1)])

    assert lines[0] == "aitrainingjob/mnist is Running: 2 of 2 replicas run; all pods are running"
    assert lines[1] == "1 restart before, the last: trainer-1 exited with code 1 1m30s ago"
    assert lines[-1] == "type: trainmaster logs aitrainingjob/mnist --all"


def test_a_refused_job_says_what_to_edit() -> None:
    lines = story_of(an_aitj(trainer=a_replica(1, restartPolicy="Sometimes")))

    assert lines[0].startswith("aitrainingjob/mnist cannot be run as it is written: spec.replicaSpecs")
    assert lines[-2:] == [
        "next: nothing until the job is edited",
        "type: kubectl edit aitrainingjobs.elasticdeeplearning.ai mnist --namespace ml",
    ]


def test_a_suspended_job_can_be_resumed() -> None:
    status = {"phase": "Pending", "conditions": [condition("Suspended", "suspended")]}
    lines = story_of(an_aitj(spec={"suspend": True}, status=status))

    assert lines[0] == "aitrainingjob/mnist is suspended; 0 pods are left"
    assert lines[-1] == "type: trainmaster resume aitrainingjob/mnist"


def test_a_job_of_another_controller_is_not_explained() -> None:
    assert story_of(an_aitj(spec={"managedBy": "kueue.x-k8s.io/multikueue"})) == [
        "aitrainingjob/mnist is managed by another controller (managedBy); trainmaster does not touch it"
    ]


def test_a_job_that_is_being_deleted_says_so() -> None:
    job = an_aitj()
    job["metadata"]["deletionTimestamp"] = STAMP
    lines = story_of(job, [a_pod(job, "trainer", deleting=True)])

    assert lines[0] == "aitrainingjob/mnist is being deleted; 1 pods are left"


def test_what_to_type_names_the_cluster() -> None:
    job = an_aitj(status={"phase": "Running"})
    pods = observed(job, [a_pod(job, "trainer")])
    lines = story(found(job), pods, [], LATER, options=" --context far")

    assert lines[-1] == "type: trainmaster logs aitrainingjob/mnist --all --context far"


# --- bounds ---


def test_a_story_has_ten_lines_of_bounded_length_without_control_sequences() -> None:
    pods = [a_pod(TRAINERS, "trainer", index, exit_code=3) for index in (0, 1)]
    history = [{"time": STAMP, "replica": "trainer-1", "scope": "Pod", "exitCode": 1, "line": "x" * 200}] * 10
    status = ended("\x1b[2J" + "y" * 5000, restartHistory=history, failure=failed(3, others=1))
    job = an_aitj(trainer=2, clean="None", status=status)
    events = [warning(f"pod mnist-trainer-{n}", "Odd", "z" * 1000) for n in range(50)]
    lines = story_of(job, pods, events, output=["a\x1b[31mb" * 500] * 50)

    assert len(lines) <= 10
    assert max(map(len, lines)) <= 400
    assert not any("\x1b" in line for line in lines)
    assert lines[-1].startswith("type: ")


def test_a_failure_without_a_time_is_not_the_first() -> None:
    known, unknown = Failure(replica="trainer-1", time=NOW), Failure(replica="trainer-0")

    assert failure.first([unknown, known]) == known
    assert failure.first([]) is None


# --- DIJobs with tasks ---

LEARNER = "job failed since 1 pods failed.{} pod mnist-learner-0 failed: container di-container on node n1 exited {}"


def task_status(**status: Any) -> Json:
    ranks = {"learner-0": 0, "collector-0": 1, "collector-1": 2}
    return {"ranks": ranks, "startTime": STAMP, "observedGeneration": 1, **status}


def test_a_dijob_with_tasks_says_which_limit_is_used_up() -> None:
    message = LEARNER.format(" and exceed backoff limit:", "with reason Error exitcode 3")
    conditions = [condition("Failed", message), condition("Finished", message, reason="Failed")]
    status = task_status(
        phase="Failed",
        conditions=conditions,
        failure=failed(3, "learner-0"),
        completionTimestamp=STAMP,
        restarts=3,
        attempts={"learner": {"count": 3, "used": 3}},
    )

    assert story_of(a_ditask("mnist", status=status))[:2] == [
        "dijob/mnist has failed 1m30s ago: learner-0 (pod mnist-learner-0, node n1) exited with code 3",
        "rule: backoffLimit of the job is used up by 3 restarts",
    ]


@pytest.mark.parametrize(
    ("restarts", "exit_"),
    [
        pytest.param({"restarts": 1, "attempts": {"learner": {"count": 2, "used": 1}}}, {"exitCode": 3}, id="failed"),
        pytest.param(
            {"attempts": {"learner": {"count": 2}}}, {"reason": "Evicted"}, id="evicted: no restart is counted"
        ),
    ],
)
def test_a_dijob_with_tasks_waits_for_its_back_off(restarts: Json, exit_: Json) -> None:
    attempts = {task: {**of_task, "nextTime": soon()} for task, of_task in restarts["attempts"].items()}
    history = [{"time": STAMP, "replica": "learner-0", "scope": "Pod", **exit_}]
    status = task_status(
        phase="Restarting",
        conditions=[condition("Pending", status="False"), condition("Restarting", "job is restarting")],
        **{**restarts, "attempts": attempts, "restartHistory": history},
    )
    lines = story_of(a_ditask("mnist", status=status))

    assert lines[0].startswith("dijob/mnist restarts: learner-0 ")
    assert any("pods of learner are created again in 20 s, after the back-off" in line for line in lines)


def soon() -> str:
    return (LATER + timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
