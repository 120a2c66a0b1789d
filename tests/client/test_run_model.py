from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from trainmaster.client.run_model import LINES, LONGEST_LINE, Job, Replica, RunModel
from trainmaster.core.ids import Key
from trainmaster.core.view import JobView
from trainmaster.kinds.base import Settings
from trainmaster.kinds.mlkube import types as mlkube
from trainmaster.kinds.mxjob import types as mxjob
from trainmaster.kinds.registry import KINDS, all_resource_kinds

DIJOB, AITJ = (
    next(kind.resource for kind in KINDS if kind.resource.kind == name) for name in ("DIJob", "AITrainingJob")
)
KUBEFLOW, MLKUBE = mxjob.RESOURCE, mlkube.RESOURCE
START = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


def raw(body: dict[str, Any]) -> JobView:
    meta = body["metadata"]
    key = Key("default", meta["name"])
    return JobView(key, meta["uid"], 1, "deletionTimestamp" in meta, msgspec.json.encode(body))


def job(name: str = "mnist", uid: str = "job", phase: str = "", conditions: Any = (), **more: Any) -> JobView:
    status = {"phase": phase, "conditions": list(conditions), **more}
    return raw({"metadata": {"name": name, "uid": uid, "creationTimestamp": START}, "status": status})


def said(type_: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": START}


def pod(
    uid: str = "p",
    role: str = "trainer",
    index: int = 0,
    *,
    owner: str = "job",
    deleting: bool = False,
    containers: tuple[str, ...] = ("main",),
    **status: Any,
) -> JobView:
    labels = {"TrainingJobReplicaName": role, "TrainingJobReplicaIndex": str(index)}
    meta: dict[str, Any] = {"name": f"mnist-{role}-{index}", "uid": uid, "labels": labels}
    meta |= {"ownerReferences": [{"uid": owner, "name": "mnist", "controller": True}]} | (
        {"deletionTimestamp": START} if deleting else {}
    )
    return raw({"metadata": meta, "spec": {"containers": [{"name": n} for n in containers]}, "status": status})


def container(restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"name": "main", "restartCount": restarts, "state": state}


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return container(terminated={"exitCode": code, "reason": reason, "message": message, "finishedAt": START})


SLOTS = {kinds.resource: [kind.slots for kind in kinds.kinds] for kinds in all_resource_kinds(Settings())}


@pytest.fixture
def model() -> RunModel:
    model = RunModel(SLOTS)
    model.observe_job(AITJ, None, job())
    return model


def replicas(model: RunModel) -> tuple[Replica, ...]:
    return model.jobs[0].replicas


def test_pods_of_a_batch_job_are_those_of_its_owner() -> None:
    model = RunModel(SLOTS)
    model.observe_job(MLKUBE, None, job("digits", "mx"))
    owner = [{"uid": "mx", "name": "digits", "controller": True}]
    model.observe_child(
        None, raw({"metadata": {"name": "digits-worker-id-0", "uid": "batch", "ownerReferences": owner}})
    )
    labels = {"job_type": "WORKER", "task_index": "0"}
    for number, phase in enumerate(("Failed", "Running")):
        meta: dict[str, Any] = {"name": f"digits-worker-id-0-{number}", "uid": f"p{number}", "labels": labels}
        meta |= {"ownerReferences": [{"uid": "batch", "controller": True}]}
        model.observe_pod(
            None, raw({"metadata": meta, "spec": {"containers": [{"name": "mxnet"}]}, "status": {"phase": phase}})
        )

    assert [(r.name, r.state, r.restarts) for r in replicas(model)] == [("worker-0", "Running", 1)]
    assert model.label("p1", "mxnet") == "worker-0"


# --- jobs ---


@pytest.mark.parametrize(
    ("conditions", "outcome", "message"),
    [
        pytest.param([], "", "", id="new"),
        pytest.param([said("Running", message="all run")], "", "all run", id="running"),
        pytest.param(
            [said("Finished", reason="Succeed", message="done"), said("Succeed", message="older")],
            "succeeded",
            "done",
            id="AITrainingJob's success",
        ),
        pytest.param([said("Finished", reason="Succeeded", message="done")], "succeeded", "done", id="DIJob's success"),
        pytest.param([said("Finished", reason="Failed", message="oh")], "failed", "oh", id="failed"),
        pytest.param([said("Finished", reason="Timeout", message="late")], "failed", "late", id="in time"),
        pytest.param(
            [said("Accepted", "False", "InvalidSpec", "spec.x: wrong"), said("Pending", message="waits")],
            "refused",
            "spec.x: wrong",
            id="refused",
        ),
        pytest.param([said("Accepted", message="fine"), said("Running", message="all run")], "", "all run", id="cured"),
        pytest.param(
            [said("PodCreateFailed", message="quota"), said("Pending", message="waits")], "", "quota", id="no pods"
        ),
        pytest.param(
            [said("ContainerCreateFailed", message="no image"), said("Restarting", message="all restart")],
            "",
            "no image",
            id="no containers",
        ),
    ],
)
def test_conditions_give_the_outcome_and_message_of_a_job(
    model: RunModel, conditions: Any, outcome: str, message: str
) -> None:
    model.observe_job(AITJ, None, job(phase="Any", conditions=conditions))
    (seen,) = model.jobs

    assert (seen.outcome, seen.message) == (outcome, message)
    assert model.outcome(AITJ, Key("default", "mnist")) == outcome


def test_the_phase_of_a_job_that_has_ended_is_its_result(model: RunModel) -> None:
    """The phase of an MxJob says only that it is Done."""
    model.observe_job(AITJ, None, job(phase="Running"))
    running = model.jobs[0].phase
    model.observe_job(AITJ, None, job(phase="Done", conditions=[said("Finished", reason="Failed")]))

    assert (running, model.jobs[0].phase) == ("Running", "Failed")


def test_a_job_that_was_deleted_has_no_good_end(model: RunModel) -> None:
    model.observe_job(AITJ, job(), None)
    assert model.jobs[0].outcome == "deleted"


def test_a_job_that_ended_keeps_its_outcome_after_deletion(model: RunModel) -> None:
    done = job(conditions=[said("Finished", reason="Succeed")])
    model.observe_job(AITJ, None, done)
    model.observe_job(AITJ, done, None)
    assert model.jobs[0].outcome == "succeeded"


def test_a_job_that_was_not_observed_has_no_outcome(model: RunModel) -> None:
    assert model.outcome(DIJOB, Key("default", "mnist")) == ""


# --- replicas ---


@pytest.mark.parametrize(
    ("status", "state", "why"),
    [
        pytest.param({}, "Starting", "", id="new"),
        pytest.param(
            {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ContainerCreating"})]},
            "Starting",
            "",
            id="being made",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "containerStatuses": [container(waiting={"reason": "NoImage", "message": "no command"})],
            },
            "NoImage",
            "no command",
            id="cannot be made",
        ),
        pytest.param({"phase": "Running", "containerStatuses": [container(running={})]}, "Running", "", id="running"),
        pytest.param({"phase": "Succeeded", "containerStatuses": [ended(0, "Completed")]}, "Succeeded", "", id="good"),
        pytest.param({"phase": "Failed", "containerStatuses": [ended(3)]}, "Failed", "exit code 3", id="bad"),
        pytest.param(
            {"phase": "Failed", "containerStatuses": [ended(139, "Error", "its last output")]},
            "Failed",
            "exit code 139 (SIGSEGV)",
            id="signal",
        ),
        pytest.param(
            {"phase": "Failed", "containerStatuses": [ended(137, "OOMKilled")]},
            "Failed",
            "exit code 137 (OOMKilled)",
            id="memory",
        ),
        pytest.param(
            {"phase": "Failed", "containerStatuses": [ended(128, "StartError", "exec: nc: not found")]},
            "Failed",
            "exit code 128 (StartError): exec: nc: not found",
            id="never ran",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "DeadlineExceeded", "message": "too slow"},
            "Failed",
            "DeadlineExceeded: too slow",
            id="the node's reason",
        ),
    ],
)
def test_a_pod_gives_the_state_of_its_replica(model: RunModel, status: Any, state: str, why: str) -> None:
    model.observe_pod(None, pod(**status))
    (replica,) = replicas(model)

    assert (replica.name, replica.pod, replica.state, replica.why) == ("trainer-0", "mnist-trainer-0", state, why)


def test_replicas_are_in_the_order_of_their_numbers(model: RunModel) -> None:
    for role, index in (("trainer", 10), ("trainer", 9), ("ps", 0)):
        model.observe_pod(None, pod(f"{role}{index}", role, index))
    assert [replica.name for replica in replicas(model)] == ["ps-0", "trainer-9", "trainer-10"]


def test_replicas_without_an_index_have_the_names_of_their_pods() -> None:
    model = RunModel(SLOTS)
    model.observe_job(DIJOB, None, job())
    for name in ("collector-x7k2p", "collector-b4m9z", "coordinator"):
        meta = {"name": f"mnist-{name}", "uid": name, "labels": {"replica-type": name.partition("-")[0]}}
        owner = {"uid": "job", "name": "mnist", "controller": True}
        model.observe_pod(None, raw({"metadata": {**meta, "ownerReferences": [owner]}}))
    assert [(replica.name, replica.restarts) for replica in replicas(model)] == [
        ("collector-b4m9z", 0),
        ("collector-x7k2p", 0),
        ("coordinator", 0),
    ]


def test_the_replicas_of_tasks_have_the_task_and_the_index() -> None:
    model = RunModel(SLOTS)
    model.observe_job(DIJOB, None, job())
    for name in ("collector-10", "collector-9", "learner-0"):
        labels = {"diengine/task-name": name.partition("-")[0], "diengine/pod": f"mnist-{name}"}
        meta = {"name": f"mnist-{name}", "uid": name, "labels": labels}
        owner = {"uid": "job", "name": "mnist", "controller": True}
        status = {"containerStatuses": [container(running={})]}
        model.observe_pod(None, raw({"metadata": {**meta, "ownerReferences": [owner]}, "status": status}))

    assert [replica.name for replica in replicas(model)] == ["collector-9", "collector-10", "learner-0"]
    assert [source.role for source in model.log_sources("job")] == ["collector", "collector", "learner"]


def test_a_deleted_pod_keeps_the_state_in_which_it_ended(model: RunModel) -> None:
    good = pod(phase="Succeeded", containerStatuses=[ended(0)])
    model.observe_pod(None, good)
    model.observe_pod(good, pod(phase="Succeeded", containerStatuses=[ended(0)], deleting=True))
    model.observe_pod(good, None)
    assert [replica.state for replica in replicas(model)] == ["Succeeded"]
    assert not model.has_active_pods


def test_a_stopped_pod_has_not_failed(model: RunModel) -> None:
    model.observe_pod(None, pod(phase="Running"))
    model.observe_pod(None, pod(phase="Running", deleting=True))
    assert [replica.state for replica in replicas(model)] == ["Stopping"]
    assert model.has_active_pods
    model.observe_pod(None, pod(phase="Failed", containerStatuses=[ended(143)], deleting=True))
    assert [(replica.state, replica.why) for replica in replicas(model)] == [("Stopped", "")]
    model.observe_pod(pod(), None)
    assert [replica.state for replica in replicas(model)] == ["Stopped"]


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        ("Timeout", "the job exceeded its time limit"),
        ("Preempted", "the job was preempted"),
        ("NodeFail", "a node of the job failed"),
        ("Failed", ""),
        ("Succeed", ""),
    ],
)
@pytest.mark.parametrize("is_over", [True, False])
def test_a_replica_that_was_stopped_has_the_reason_of_its_job(
    model: RunModel, phase: str, why: str, is_over: bool
) -> None:
    going = {"phase": "Terminating", "ending": {"phase": phase}}
    meta = {"name": "mnist", "uid": "job", "creationTimestamp": START}
    model.observe_job(AITJ, None, raw({"metadata": meta, "status": {"phase": phase} if is_over else going}))
    model.observe_pod(None, pod("1", phase="Running", deleting=True))
    model.observe_pod(None, pod("2", index=1, phase="Failed", containerStatuses=[ended(3)]))

    assert [(replica.state, replica.why) for replica in replicas(model)] == [
        ("Stopping", why),
        ("Failed", "exit code 3"),
    ]


def test_a_pod_that_replaces_another_counts_as_a_restart(model: RunModel) -> None:
    model.observe_pod(None, pod("1", phase="Failed", containerStatuses=[container(2)]))
    model.observe_pod(None, pod("2", phase="Running", containerStatuses=[container(1)]))
    (replica,) = replicas(model)
    assert (replica.state, replica.restarts) == ("Running", 4)


def test_the_last_lines_are_remembered_and_no_more(model: RunModel) -> None:
    model.observe_pod(None, pod())
    for number in range(LINES + 5):
        model.observe_line("p", str(number))
    assert replicas(model)[0].lines == tuple(str(number) for number in range(5, LINES + 5))


def test_lines_that_are_not_shown_are_counted(model: RunModel) -> None:
    model.observe_pod(None, pod())
    model.observe_skipped("p", 41)
    model.observe_line("p", "x" * 5000)
    assert (replicas(model)[0].line_count, replicas(model)[0].lines) == (42, ("x" * LONGEST_LINE,))


def test_an_unfinished_line_is_the_last_one_until_a_line_ends(model: RunModel) -> None:
    model.observe_pod(None, pod())
    model.observe_line("p", "one")
    for state in ("10%", "20%"):
        model.observe_unfinished("p", state)
    assert replicas(model)[0].lines == ("one", "20%")
    model.observe_line("p", "done")
    assert replicas(model)[0].lines == ("one", "done")


# --- labels of lines ---


def test_a_line_is_labelled_with_its_replica(model: RunModel) -> None:
    model.observe_pod(None, pod())
    assert model.label("p", "main") == "trainer-0"


def test_labels_are_as_wide_as_the_widest_of_all_pods(model: RunModel) -> None:
    model.observe_pod(None, pod("1", "ps"))
    assert model.label_width == len("ps-0")
    model.observe_pod(None, pod("2", containers=("main", "side-car")))
    assert model.label_width == len("trainer-0/side-car")


def test_a_line_before_its_job_is_observed_has_the_same_label() -> None:
    model = RunModel(SLOTS)
    model.expect(AITJ, "job")
    model.observe_pod(None, pod())
    assert model.label("p", "main") == "trainer-0"


def test_a_line_is_labelled_with_its_container_where_there_are_several(model: RunModel) -> None:
    model.observe_pod(None, pod(containers=("main", "side")))
    assert model.label("p", "side") == "trainer-0/side"


def test_a_line_is_labelled_with_its_pod_where_there_are_several_jobs() -> None:
    model = RunModel({kind.resource: [kind.slots] for kind in KINDS}, has_many=True)
    model.observe_pod(None, pod())
    assert model.label("p", "main") == "mnist-trainer-0"


def test_jobs_of_one_name_in_several_groups_and_namespaces_have_different_titles() -> None:
    model = RunModel(SLOTS, has_many=True)
    for number, resource in enumerate((KUBEFLOW, MLKUBE, MLKUBE)):
        view = job("digits", f"uid-{number}")
        space = ("default", "default", "team")[number]
        model.observe_job(resource, None, msgspec.structs.replace(view, key=Key(space, "digits")))

    assert [str(each) for each in model.jobs] == [
        "mxjob/digits",
        "mxjob.mxnet.mlkube.io/digits",
        "mxjob.mxnet.mlkube.io/digits in team",
    ]


def test_a_line_of_a_pod_without_a_job_is_labelled_with_its_name(model: RunModel) -> None:
    model.observe_pod(None, pod(owner="nobody"))
    assert model.label("p", "main") == "mnist-trainer-0"
    assert replicas(model) == ()


# --- Events, restarts, and the end of a run ---


def event(uid: str, kind: str = "Pod", type_: str = "Warning", reason: str = "FailedMount") -> JobView:
    about = {"kind": kind, "name": "mnist", "uid": uid}
    body = {"involvedObject": about, "type": type_, "reason": reason, "message": "no such map"}
    return raw({"metadata": {"name": "e", "uid": "e"}, **body})


def test_a_warning_is_the_state_of_a_pod_that_has_not_started(model: RunModel) -> None:
    model.observe_pod(None, pod(phase="Pending"))
    notice = model.observe_event(event("p"))
    assert str(notice) == "aitrainingjob/mnist trainer-0 FailedMount: no such map"
    assert [(r.state, r.why) for r in replicas(model)] == [("FailedMount", "no such map")]
    model.observe_pod(None, pod(phase="Running"))
    assert [(r.state, r.why) for r in replicas(model)] == [("Running", "")]


def test_events_of_other_objects_are_ignored(model: RunModel) -> None:
    assert model.observe_event(event("stranger")) is None
    notice = model.observe_event(event("job", "AITrainingJob", "Normal", "Created"))
    assert notice is not None
    assert (notice.what, notice.is_shown) == ("aitrainingjob/mnist", False)


def test_a_pod_that_cannot_be_scheduled_says_why(model: RunModel) -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPUs"}
    model.observe_pod(None, pod(phase="Pending", conditions=[waits]))
    assert [(r.state, r.why) for r in replicas(model)] == [("Unschedulable", "no GPUs")]


@pytest.mark.parametrize(
    ("restarts", "seconds"),
    [({"trainer": {"count": 1, "nextTime": "2026-11-15T12:00:20Z"}, "ps": {"count": 1}}, 20), ({}, None), (3, None)],
)
def test_the_time_of_the_next_restart_is_known(model: RunModel, restarts: Any, seconds: int | None) -> None:
    meta = {"name": "mnist", "uid": "job", "creationTimestamp": START}
    model.observe_job(AITJ, None, raw({"metadata": meta, "status": {"phase": "Restarting", "restarts": restarts}}))
    assert model.jobs[0].restart_at == (None if seconds is None else START + timedelta(seconds=seconds))


FLAKY = {"time": START, "replica": "trainer-1", "scope": "All", "exitCode": 1, "reason": "Error", "node": "local"}
FLAKY |= {"line": "RuntimeError: flaky at 8"}
CAUSE = "trainer-1 exited with code 1: RuntimeError: flaky at 8"


def restarted(used: int, limit: int | None, *history: dict[str, Any], **status: Any) -> Job:
    """The job of a spec with this limit, after so many restarts."""
    role = {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [{"name": "aitj-main"}]}}}
    role |= {} if limit is None else {"restartLimit": limit}
    meta = {"name": "mnist", "namespace": "default", "uid": "job", "creationTimestamp": START}
    restarts = {"trainer": {"count": used, "used": used, "nextTime": START + timedelta(seconds=10)}}
    status |= {"restarts": restarts, "restartHistory": list(history)}
    kinds = next(kinds for kinds in all_resource_kinds(Settings()) if kinds.resource == AITJ)
    model = RunModel(SLOTS, kinds={AITJ: kinds})
    model.observe_job(
        AITJ, None, raw({"metadata": meta, "spec": {"replicaSpecs": {"trainer": role}}, "status": status})
    )
    return model.jobs[0]


@pytest.mark.parametrize(
    ("used", "limit", "text"),
    [(2, 3, f"restart 2 of 3 in 10 s: {CAUSE}"), (2, None, f"restart 2 in 10 s: {CAUSE}")],
)
def test_a_restart_has_its_number_its_limit_its_delay_and_its_cause(used: int, limit: int | None, text: str) -> None:
    found = restarted(used, limit, FLAKY, phase="Terminating")
    assert found.restart is not None
    assert found.restart.text(found.restart_at, START) == text
    assert found.restart.text(None, START) == text.replace(" in 10 s", "")


def test_of_pods_that_fail_together_the_first_is_the_cause_of_the_restart() -> None:
    found = restarted(1, 3, FLAKY, FLAKY | {"replica": "trainer-0", "line": "Connection closed by peer"})
    assert found.restart is not None
    assert found.restart.cause == CAUSE


def test_a_node_is_named_if_it_is_the_cause() -> None:
    lost = {"time": START, "replica": "trainer-1", "scope": "All", "reason": "NodeLost", "node": "n1"}
    found = restarted(1, 3, lost)
    assert found.restart is not None
    assert found.restart.cause == "trainer-1 NodeLost on node n1"


@pytest.mark.parametrize(
    ("reason", "used", "sentence"),
    [
        ("Succeed", 0, "succeeded in 12 s"),
        ("Succeed", 2, "succeeded in 12 s after 2 restarts"),
        ("Failed", 0, "oh; failed in 12 s"),
        ("Failed", 1, "oh; failed in 12 s after 1 restart"),
        ("Failed", 3, "oh; failed in 12 s after 3 restarts (limit 3)"),
    ],
)
def test_the_verdict_has_the_time_and_the_restarts(reason: str, used: int, sentence: str) -> None:
    end = said("Finished", reason=reason, message="oh") | {"lastTransitionTime": START + timedelta(seconds=12)}
    found = restarted(used, 3, *(used * [FLAKY]), phase=reason, conditions=[end])
    assert found.sentence == sentence


@pytest.mark.parametrize(("text", "seconds"), [("10s", 10), ("2m40s", 160)])
def test_the_time_at_which_a_container_restarts_is_known(model: RunModel, text: str, seconds: int) -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off {text} restarting failed container=main pod=x"}
    status = container(2, waiting=waiting) | {"lastState": {"terminated": {"exitCode": 3, "finishedAt": START}}}
    model.observe_pod(None, pod(phase="Running", containerStatuses=[status]))
    assert replicas(model)[0].restart_at == START + timedelta(seconds=seconds)


def test_a_job_that_is_stopped_with_its_run_says_so(model: RunModel) -> None:
    model.observe_job(AITJ, None, job(phase="Running", conditions=[said("Running", message="all pods are running")]))
    model.observe_pod(None, pod(phase="Running"))
    model.stop("stopped by Ctrl-C")
    assert (model.jobs[0].phase, model.jobs[0].message) == ("Stopping", "stopped by Ctrl-C")
    model.observe_pod(None, pod(phase="Running", deleting=True))
    model.observe_pod(pod(), None)
    assert (model.jobs[0].phase, model.jobs[0].message) == ("Stopped", "stopped by Ctrl-C")


def test_a_job_that_is_stopped_while_it_restarts_says_why_it_restarts(model: RunModel) -> None:
    history = [{"time": "2026-11-15T12:00:00Z", "replica": "ps-0", "scope": "All", "exitCode": 3, "line": "no module"}]
    model.observe_job(AITJ, None, job(phase="Restarting", restartHistory=history))
    model.stop("stopped, because --timeout was reached")

    assert model.jobs[0].message == (
        "stopped, because --timeout was reached; its last restart was because ps-0 exited with code 3: no module"
    )


def test_a_job_that_had_ended_before_its_run_was_stopped_keeps_its_end(model: RunModel) -> None:
    model.observe_job(AITJ, None, job(phase="Failed", conditions=[said("Finished", reason="Failed", message="oh")]))
    model.stop("stopped by Ctrl-C")
    assert (model.jobs[0].phase, model.jobs[0].message) == ("Failed", "oh")


# --- deleted pods ---


def deleted(owner: dict[str, Any], job: str = "mnist", *, seconds: int = 1) -> JobView:
    """A pod of an MxJob, created so many seconds after the job."""
    labels = {"mx_job": job, "job_type": "WORKER", "task_index": "2"}
    created = START + timedelta(seconds=seconds)
    meta = {"name": "x", "namespace": "default", "uid": "p", "labels": labels, "creationTimestamp": created}
    return raw({"metadata": meta | {"ownerReferences": [owner | {"controller": True}]}})


BATCH_JOB = {"kind": "Job", "uid": "batch", "name": "mnist-worker-2"}


@pytest.mark.parametrize(
    ("pod", "is_ours"),
    [
        pytest.param(deleted({"kind": "MxJob", "uid": "job"}), True, id="of the job"),
        pytest.param(deleted({"kind": "MxJob", "uid": "other"}), False, id="of another job of this name"),
        pytest.param(deleted(BATCH_JOB), True, id="of a batch Job that is deleted, too"),
        pytest.param(deleted(BATCH_JOB, "cifar"), False, id="of a batch Job of another job"),
        pytest.param(deleted(BATCH_JOB, seconds=-1), False, id="of a batch Job of an earlier job of this name"),
    ],
)
def test_a_deleted_pod_belongs_to_the_job_that_created_it(pod: JobView, is_ours: bool) -> None:
    model = RunModel(SLOTS)
    model.observe_job(MLKUBE, None, job())

    assert model.observe_deleted(pod, job()) == is_ours
    if is_ours:
        assert model.label("p", "mxnet") == "worker-2"
