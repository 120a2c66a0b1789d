"""An AITrainingJob whose nodes fail or whose containers cannot be created, pass by pass."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.build import (
    NOW,
    SETTINGS,
    STAMP,
    Child,
    Json,
    a_node,
    a_pod,
    a_replica,
    after,
    an_aitj,
    child_labels,
    kind_of,
    names_of,
    observed,
    plan_of,
    services_of,
    view_of,
    with_status,
)
from trainmaster.core.ids import POD, Key
from trainmaster.core.plan import Event, Plan
from trainmaster.core.view import NodeView, PodView
from trainmaster.kinds.base import Settings

LONG_AGO = NOW - timedelta(seconds=30)
EARLIER = NOW - timedelta(seconds=29)
DOWN = "Kubelet stopped posting node status."
LOST = a_node("n1", ready="Unknown", since=LONG_AGO, message=DOWN)
GONE = NodeView(Key("", "n1"), is_gone=True)
GPU = {"nvidia.com/gpu": 2}


def a_job(policy: str = "Never", scope: str = "Pod", *, spec: Json | None = None, **fields: Any) -> Json:
    """Two trainers, on n0 and n1, and a parameter server on n2."""
    trainer = a_replica(2, restartPolicy=policy, restartScope=scope, **fields)
    return an_aitj(trainer=trainer, ps=a_replica(1), spec={"restartingExitCode": "137", **(spec or {})})


def pod(job: Json, role: str, index: int = 0, *, attempt: int = 0, **fields: Any) -> PodView:
    labels = {**child_labels(job, role, index), "RestartCount": str(attempt)}
    node = fields.pop("node", f"n{index}" if role == "trainer" else "n2")
    return a_pod(job, role, index, labels=labels, uid=f"uid-of-{role}-{index}-{attempt}", node=node, **fields)


def children(job: Json, **second: Any) -> list[Child]:
    """What the job owns; ``second`` is about the second trainer."""
    return [pod(job, "trainer", 0), pod(job, "trainer", 1, **second), pod(job, "ps"), *services_of(job)]


def nodes(second: NodeView = LOST) -> list[NodeView]:
    return [a_node("n0"), second, a_node("n2")]


def running(job: Json) -> Json:
    job = with_status(job, plan_of(job))
    return with_status(job, plan_of(job, children(job), nodes=nodes(a_node("n1"))))


def status_of(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def forced(plan: Plan) -> dict[str, bool]:
    return {d.key.name: d.grace == 0 for d in plan.deletes if d.resource == POD}


# --- nodes ---


@pytest.mark.parametrize("phase", ["Pending", "Creating", "Running", "Restarting"])
@pytest.mark.parametrize(
    ("policy", "is_again"),
    [
        ("Never", False),
        ("Always", True),
        ("OnFailure", False),
        ("ExitCode", False),
        ("OnNodeFail", True),
        ("OnNodeFailWithExitCode", True),
    ],
)
def test_a_failed_node_restarts_or_ends_the_job_as_the_policy_says(policy: str, is_again: bool, phase: str) -> None:
    job = a_job(policy)
    job = with_status(job, {**running(job)["status"], "phase": phase})

    plan = plan_of(job, children(job), nodes=nodes())

    said = f"pod mnist-trainer-1 failed: Node n1 is failed and offline: {DOWN}"
    assert plan.status_first
    if is_again:
        assert status_of(plan)["RestartReplicaName"] == "trainer"
        assert plan.events == (Event("Warning", "TrainingJobTerminating", f"restart times is 1, {said}"),)
        assert status_of(plan)["restartHistory"] == [
            {"time": STAMP, "replica": "trainer-1", "scope": "Pod", "reason": "NodeNotReady", "node": "n1"}
        ]
    else:
        assert status_of(plan)["ending"] == {"phase": "NodeFail", "message": said, "clean": "All"}


@pytest.mark.parametrize(
    ("node", "left"),
    [
        pytest.param(a_node("n1"), None, id="ready"),
        pytest.param(a_node("n1", ready="False", since=EARLIER), 1.0, id="not ready for less than its grace period"),
        pytest.param(a_node("n1", ready=""), None, id="of which nothing is said"),
    ],
)
def test_a_node_that_may_come_back_changes_nothing(node: NodeView, left: float | None) -> None:
    job = running(a_job("Always"))

    plan = plan_of(job, children(job), nodes=nodes(node))

    assert plan.is_quiet
    assert plan.requeue_after == left


def test_nodes_that_cannot_be_read_decide_nothing() -> None:
    job = running(a_job("Always"))

    assert plan_of(job, children(job), nodes=None).is_quiet
    assert plan_of(job, children(job), nodes=[]).is_quiet


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(GONE, id="it was deleted"),
        pytest.param(a_node("n1", taints={"node.kubernetes.io/out-of-service": NOW}), id="it is out of service"),
        pytest.param(
            a_node("n1", ready="Unknown", taints={"node.kubernetes.io/unreachable": LONG_AGO}), id="unreachable"
        ),
        pytest.param(LOST, id="not ready"),
    ],
)
@pytest.mark.parametrize("scope", ["Pod", "Replica", "All"])
def test_pods_on_a_lost_node_are_forced_and_the_others_get_their_sigterm(scope: str, node: NodeView) -> None:
    job = running(a_job("OnNodeFail", scope))
    owned = children(job)
    job = with_status(job, plan_of(job, owned, nodes=nodes(node)))

    plan = plan_of(job, owned, nodes=nodes(node))

    wanted = {"mnist-trainer-1": True}
    if scope != "Pod":
        wanted["mnist-trainer-0"] = False
    if scope == "All":
        wanted["mnist-ps-0"] = False
    assert forced(plan) == wanted
    assert "its node n1 is lost" in next(d.why for d in plan.deletes if d.grace == 0)


def test_the_path_of_a_lost_node_is_that_of_every_restart() -> None:
    job = running(a_job("OnNodeFail"))
    owned = children(job)
    phases = []
    for _ in range(4):
        plan = plan_of(job, owned, nodes=nodes())
        job, owned = after(job, owned, plan)
        phases.append(job["status"]["phase"])

    assert phases == ["Terminating", "Terminating", "Restarting", "Restarting"]
    assert names_of(plan.creates, POD) == ["mnist-trainer-1"]


def test_a_pod_that_succeeded_is_never_touched() -> None:
    """Pods that have ended are not judged by their node."""
    job = running(a_job("Always"))
    owned = children(job, exit_code=0)
    job = with_status(job, plan_of(job, owned, nodes=nodes()))

    assert "RestartReplicaName" not in job["status"]
    assert job["status"]["phase"] == "Running"
    assert plan_of(job, owned, nodes=nodes()).is_quiet


@pytest.mark.parametrize("fail", ["Any", "All", "Rank0", "None"])
def test_a_failed_node_counts_for_every_fail_policy(fail: str) -> None:
    """Under the trainingjob-operator failPolicy All did not see a lost node, and the job never ended."""
    job = running(an_aitj(trainer=a_replica(2, failPolicy=fail)))
    owned = [pod(job, "trainer", i, node="n1") for i in range(2)]

    ending = status_of(plan_of(job, owned, nodes=[LOST]))["ending"]

    assert ending["phase"] == "NodeFail"


def test_a_mixed_result_with_a_failed_node_is_a_node_failure() -> None:
    job = running(an_aitj(trainer=a_replica(2, failPolicy="All")))
    owned = [pod(job, "trainer", 0, exit_code=1), pod(job, "trainer", 1)]

    assert status_of(plan_of(job, owned, nodes=nodes()))["ending"]["phase"] == "NodeFail"


@pytest.mark.parametrize("clean", ["All", "Running", "None"])
def test_a_job_that_ends_of_a_node_leaves_nothing_behind(clean: str) -> None:
    """Its pods on that node are deleted by force: no kubelet confirms a graceful delete."""
    job = running(a_job(spec={"cleanPodPolicy": clean}))
    owned = children(job)
    job = with_status(job, plan_of(job, owned, nodes=nodes()))

    plan = plan_of(job, owned, nodes=nodes())
    assert forced(plan) == {"mnist-ps-0": False, "mnist-trainer-0": False, "mnist-trainer-1": True}

    job, owned = after(job, owned, plan)
    ended = status_of(plan_of(job, owned, nodes=nodes()))
    assert (ended["phase"], ended["conditions"][-1]["reason"]) == ("NodeFail", "TrainingJobNodeFail")
    assert ended["conditions"][-1]["message"].endswith(f"Node n1 is failed and offline: {DOWN}; deleted pods")


@pytest.mark.parametrize("ending", [True, False], ids=["that ends", "that stops"])
def test_a_job_does_not_wait_for_a_node_that_is_lost_meanwhile(ending: bool) -> None:
    job = running(a_job(spec={} if ending else {"suspend": True}))
    owned = children(job, **({"exit_code": 1} if ending else {}))
    job = with_status(job, plan_of(job, owned, nodes=nodes(a_node("n1"))))
    left = [pod(job, "trainer", 1, deleting=True)]

    early = plan_of(job, left, nodes=nodes(a_node("n1", ready="False", since=EARLIER)))
    due = plan_of(job, left, nodes=nodes())

    assert (forced(early), early.requeue_after) == ({}, 1.0)
    assert forced(due) == {"mnist-trainer-1": True}


def test_a_pod_that_somebody_deleted_on_a_lost_node_makes_room_for_the_next_one() -> None:
    job = running(a_job("Never"))
    owned = children(job, deleting=True)

    plan = plan_of(job, owned, nodes=nodes())

    assert forced(plan) == {"mnist-trainer-1": True}
    job, owned = after(job, owned, plan)
    assert names_of(plan_of(job, owned, nodes=nodes()).creates, POD) == ["mnist-trainer-1"]
    assert "ending" not in job["status"]


def test_a_node_fault_that_was_counted_is_not_looked_at_again() -> None:
    job = running(a_job("OnNodeFail"))
    owned = children(job)
    job = with_status(job, plan_of(job, owned, nodes=nodes()))

    for _ in range(3):
        assert plan_of(job, owned, nodes=nodes()).status is None

    assert job["status"]["RestartCount"] == {"trainer": 1}


def test_a_used_up_limit_leaves_the_node_to_the_fail_policy() -> None:
    job = running(a_job("OnNodeFail", restartLimit=0))

    ending = status_of(plan_of(job, children(job), nodes=nodes()))["ending"]

    assert ending["phase"] == "NodeFail"
    assert ending["message"].endswith("(restartLimit 0 is used up)")


def plan_in_an_outage(job: Json, second: NodeView) -> Plan:
    seen = observed(job, children(job), nodes=nodes(second))
    hit = msgspec.structs.replace(seen, outage="3 of 4 nodes are not ready")
    return kind_of(job, SETTINGS).plan(view_of(job), hit, NOW)


@pytest.mark.parametrize(
    ("second", "is_lost"),
    [
        pytest.param(LOST, False, id="not ready"),
        pytest.param(GONE, True, id="deleted"),
        pytest.param(a_node("n1", taints={"node.kubernetes.io/out-of-service": None}), True, id="out of service"),
    ],
)
def test_in_an_outage_of_most_nodes_only_those_are_lost_that_do_not_come_back(second: NodeView, is_lost: bool) -> None:
    job = running(a_job("OnNodeFail"))

    plan = plan_in_an_outage(job, second)

    assert ("RestartReplicaName" in (plan.status or {})) == is_lost
    if is_lost:
        assert forced(plan_in_an_outage(with_status(job, plan), second)) == {"mnist-trainer-1": True}


# --- devices ---


def on_gpus(job: Json) -> list[Child]:
    """Both trainers on n1, with two GPUs each."""
    pods = [pod(job, "trainer", i, node="n1", devices=GPU) for i in range(2)]
    return [*pods, pod(job, "ps", node="n1"), *services_of(job)]


def test_a_device_that_fails_is_given_the_grace_period_and_the_time_is_kept() -> None:
    job = running(a_job("OnNodeFail"))
    broken = [a_node("n1", devices={"nvidia.com/gpu": 3})]

    seen = plan_of(job, on_gpus(job), nodes=broken)
    assert (status_of(seen)["nodeTroubles"], seen.requeue_after) == ({"n1": STAMP}, 30.0)
    assert "RestartCount" not in status_of(seen)

    job = with_status(job, seen)
    assert plan_of(job, on_gpus(job), nodes=broken, now=NOW + timedelta(seconds=29)).requeue_after == 1.0
    due = plan_of(job, on_gpus(job), nodes=broken, now=NOW + timedelta(seconds=30))
    assert status_of(due)["RestartCount"] == {"trainer": 1}
    assert [entry["reason"] for entry in status_of(due)["restartHistory"]] == ["DeviceFailure"] * 2

    job = with_status(job, due)
    later = plan_of(job, on_gpus(job), nodes=broken, now=NOW + timedelta(seconds=31))
    assert forced(later) == {"mnist-trainer-0": False, "mnist-trainer-1": False}


def with_gpus(working: int, capacity: int = 8) -> list[NodeView]:
    return [a_node("n1", devices={"nvidia.com/gpu": working}, capacity=capacity)]


def test_a_device_plug_in_that_stops_is_no_problem_of_a_node() -> None:
    """Its kubelet calls no device allocatable, keeps the capacity for five minutes, and leaves containers alone."""
    job = running(a_job("OnNodeFail"))

    assert plan_of(job, on_gpus(job), nodes=with_gpus(0)).is_quiet


def test_devices_that_a_node_no_longer_has_are_given_a_grace_period_of_their_own() -> None:
    job = running(a_job("OnNodeFail"))
    gone = with_gpus(0, capacity=0)
    seen = plan_of(job, on_gpus(job), nodes=gone)
    assert (status_of(seen)["nodeTroubles"], seen.requeue_after) == ({"n1/nvidia.com/gpu": STAMP}, 900.0)

    job = with_status(job, seen)
    unknown = plan_of(job, on_gpus(job), nodes=None, now=NOW + timedelta(seconds=60))
    early = plan_of(job, on_gpus(job), nodes=gone, now=NOW + timedelta(seconds=899))
    due = plan_of(job, on_gpus(job), nodes=gone, now=NOW + timedelta(seconds=900))

    assert unknown.is_quiet
    assert (early.is_quiet, early.requeue_after) == (True, 1.0)
    assert status_of(due)["RestartReplicaName"] == "trainer"


def test_a_device_plug_in_that_comes_back_in_time_has_changed_nothing() -> None:
    job = running(a_job("OnNodeFail"))
    job = with_status(job, plan_of(job, on_gpus(job), nodes=with_gpus(0, capacity=0)))

    back = plan_of(job, on_gpus(job), nodes=with_gpus(8), now=NOW + timedelta(seconds=899))

    assert "nodeTroubles" not in status_of(back)
    assert "RestartCount" not in status_of(back)


def test_a_device_that_does_not_work_has_its_whole_grace_period_after_a_restart_of_the_kubelet() -> None:
    job = running(a_job("OnNodeFail"))
    job = with_status(job, plan_of(job, on_gpus(job), nodes=with_gpus(0, capacity=0)))
    now = NOW + timedelta(seconds=120)

    back = plan_of(job, on_gpus(job), nodes=with_gpus(3), now=now)

    assert (list(status_of(back)["nodeTroubles"]), back.requeue_after) == (["n1"], 30.0)
    assert "RestartCount" not in status_of(back)


def test_a_condition_that_the_operator_was_told_of_fails_a_node() -> None:
    settings = msgspec.structs.replace(SETTINGS, bad_node_conditions=frozenset({"GPUUnhealthy"}))
    job = running(a_job())
    sick = a_node("n1", since=LONG_AGO, conditions={"GPUUnhealthy": "Xid 79: GPU has fallen off the bus"})

    ending = status_of(plan_of(job, children(job), nodes=nodes(sick), settings=settings))["ending"]

    assert ending["phase"] == "NodeFail"
    assert "Node n1 has the condition GPUUnhealthy: Xid 79: GPU has fallen off the bus" in ending["message"]
    assert plan_of(job, children(job), nodes=nodes(sick)).is_quiet


# --- creation ---

PULL = "ErrImagePull: no such image"


def creating(job: Json, reason: str = PULL, **fields: Any) -> list[Child]:
    """The second trainer cannot be created."""
    return children(job, phase="Pending", containers={"aitj-main": reason}, **fields)


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def with_periods(restart: float = 0.0, *, fails: bool = True) -> Settings:
    return msgspec.structs.replace(SETTINGS, creating_restart_period=restart * 60, enable_creating_failed=fails)


@pytest.mark.parametrize("phase", ["Pending", "Creating", "Running", "Restarting"])
def test_an_error_is_said_at_once_and_ends_nothing(phase: str) -> None:
    """The trainingjob-operator noticed it in the first Creating phase only, and failed the job at the first error."""
    job = a_job()
    job = with_status(job, {**running(job)["status"], "phase": phase})

    plan = plan_of(job, creating(job))

    status = status_of(plan)
    said = next(c for c in status["conditions"] if c["type"] == "ContainerCreateFailed")
    assert (said["status"], "ending" in status) == ("True", False)
    assert "pod mnist-trainer-1 create container failed[ErrImagePull]: container aitj-main" in said["message"]
    assert status["creationErrors"] == {"trainer-1": STAMP}
    assert plan.requeue_after == 900.0
    assert plan.events[-1] == Event("Warning", "ContainerCreateFailed", said["message"])


def test_a_job_that_creates_says_what_hinders_it() -> None:
    job = with_status(a_job(), plan_of(a_job()))

    entry = status_of(plan_of(job, creating(job)))["conditions"][-1]

    assert (entry["type"], entry["reason"]) == ("Creating", "TrainingJobCreating")
    assert entry["message"].startswith("pod mnist-trainer-1 create container failed[ErrImagePull]: ")


def test_after_its_time_the_pod_has_failed() -> None:
    job = running(a_job("Always"))
    job = with_status(job, plan_of(job, creating(job)))

    assert plan_of(job, creating(job), now=at(14.9)).is_quiet
    ending = status_of(plan_of(job, creating(job), now=at(15)))["ending"]

    assert ending["phase"] == "Failed"
    assert ending["message"].startswith(
        "pod mnist-trainer-1 create container failed[ErrImagePull] and has been retrying for 900 seconds: "
    )


def test_one_that_changes_its_reason_does_not_start_anew() -> None:
    job = running(a_job())
    job = with_status(job, plan_of(job, creating(job, "ErrImagePull")))
    job = with_status(job, plan_of(job, creating(job, "ImagePullBackOff"), now=at(5)))
    job = with_status(job, plan_of(job, creating(job, "ContainerCreating"), now=at(10)))

    assert "ending" in status_of(plan_of(job, creating(job, "ErrImagePull"), now=at(15)))


def test_a_replica_that_runs_has_overcome_it() -> None:
    job = running(a_job())
    job = with_status(job, plan_of(job, creating(job)))
    job = with_status(job, plan_of(job, children(job), now=at(5)))

    said = next(c for c in job["status"]["conditions"] if c["type"] == "ContainerCreateFailed")
    assert (said["status"], said["reason"]) == ("False", "Created")
    assert "creationErrors" not in job["status"]


def test_an_error_is_not_overcome_by_a_pod_that_is_only_seen_when_it_goes() -> None:
    job = running(a_job())
    job = with_status(job, plan_of(job, creating(job)))

    going = plan_of(job, children(job, deleting=True), now=at(5))

    assert with_status(job, going)["status"]["creationErrors"] == {"trainer-1": STAMP}


def test_an_init_container_counts() -> None:
    job = running(a_job())
    owned = children(job, phase="Pending", containers={"aitj-main": "PodInitializing"}, init={"fetch": PULL})
    job = with_status(job, plan_of(job, owned))

    assert "container fetch of image" in status_of(plan_of(job, owned, now=at(15)))["ending"]["message"]


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "OnNodeFail", "Always", "ExitCode"])
def test_within_the_restart_period_it_is_replaced_under_every_policy(policy: str) -> None:
    settings = with_periods(60)
    job = running(a_job(policy))
    job = with_status(job, plan_of(job, creating(job), settings=settings))

    plan = plan_of(job, creating(job), settings=settings, now=at(15))

    assert status_of(plan)["RestartReplicaName"] == "trainer"
    assert status_of(plan)["restartHistory"][0]["reason"] == "ErrImagePull"
    assert status_of(plan)["creationErrors"] == {"trainer-1": STAMP}


def test_the_restart_period_spans_all_pods_of_a_replica() -> None:
    settings = with_periods(60)
    job = running(a_job())
    job["status"] |= {
        "RestartCount": {"trainer": 3},
        "restarts": {"trainer": {"count": 3, "used": 3, "attempts": {"1": 3}}},
        "creationErrors": {"trainer-1": STAMP},
    }
    owned = creating(job, attempt=3, started=at(48).isoformat())

    early = plan_of(job, owned, settings=settings, now=at(62))
    due = plan_of(job, owned, settings=settings, now=at(63))

    assert (with_status(job, early)["status"].get("ending"), early.requeue_after) == (None, 60.0)
    assert status_of(due)["ending"]["phase"] == "Failed"


def test_one_that_may_not_come_again_goes_on_trying_until_the_period_is_over() -> None:
    """With its limit used up the job stays Creating."""
    settings = with_periods(60)
    job = running(a_job(restartLimit=0))
    job = with_status(job, plan_of(job, creating(job), settings=settings))

    stays = plan_of(job, creating(job), settings=settings, now=at(20))
    assert (stays.is_quiet, stays.requeue_after) == (True, 40 * 60.0)
    assert "ending" in status_of(plan_of(job, creating(job), settings=settings, now=at(60)))


def test_a_job_that_must_not_fail_tries_for_ever() -> None:
    settings = with_periods(fails=False)
    job = running(a_job())
    job = with_status(job, plan_of(job, creating(job), settings=settings))

    forever = plan_of(job, creating(job), settings=settings, now=at(6000))

    assert (forever.is_quiet, forever.requeue_after) == (True, None)


@pytest.mark.parametrize(("fail", "ends"), [("Any", True), ("Rank0", False), ("All", False), ("None", False)])
def test_a_pod_that_cannot_be_created_is_left_to_its_fail_policy(fail: str, ends: bool) -> None:
    job = running(a_job(failPolicy=fail))
    job = with_status(job, plan_of(job, creating(job)))

    plan = plan_of(job, creating(job), now=at(15))

    assert ("ending" in with_status(job, plan)["status"]) == ends


def test_of_many_pods_with_one_error_a_few_are_told() -> None:
    job = an_aitj(trainer=5)
    job = with_status(job, plan_of(job))
    owned = [a_pod(job, "trainer", i, phase="Pending", node="n1", containers={"aitj-main": PULL}) for i in range(5)]

    message = status_of(plan_of(job, owned))["conditions"][-1]["message"]

    assert message.count("create container failed") == 3
    assert message.endswith("; and 2 more")


def test_what_is_remembered_ends_with_the_job() -> None:
    job = running(a_job())
    job = with_status(job, plan_of(job, creating(job)))
    job = with_status(job, plan_of(job, creating(job), now=at(15)))
    job = with_status(job, plan_of(job, [], now=at(16)))

    said = next(c for c in job["status"]["conditions"] if c["type"] == "ContainerCreateFailed")
    assert (job["status"]["phase"], said["status"]) == ("Failed", "False")
    assert "creationErrors" not in job["status"]


def test_what_is_remembered_ends_when_the_job_stops() -> None:
    job = running(a_job())
    job = with_status(job, plan_of(job, creating(job)))
    job["spec"]["suspend"] = True
    job = with_status(job, plan_of(job, creating(job), now=at(1)))

    said = next(c for c in job["status"]["conditions"] if c["type"] == "ContainerCreateFailed")
    assert (job["status"]["phase"], said["status"]) == ("Terminating", "False")
    assert "creationErrors" not in job["status"]
