"""An AITrainingJob from its creation to its clean-up (docs/aitrainingjob.md)."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.build import (
    NOW,
    STAMP,
    Child,
    Json,
    a_container,
    a_pod,
    a_replica,
    a_service,
    a_template,
    after,
    an_aitj,
    child_labels,
    children_of,
    kind_of,
    names_of,
    plan_of,
    pod_json,
    services_of,
    settled,
    view_of_create,
    view_of_pod,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD, SERVICE
from trainmaster.core.plan import BRIEF, Event, Plan
from trainmaster.core.view import PodView

LATER = NOW + timedelta(minutes=5)
JOB = an_aitj(trainer=2, ps=1)


def status_of(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def last_condition(plan: Plan) -> tuple[str, str, str]:
    entry = status_of(plan)["conditions"][-1]
    return entry["type"], entry["reason"], entry["message"]


def running(job: Json) -> Json:
    """The job after our own passes brought it to Running."""
    job = with_status(job, plan_of(job))
    job = with_status(job, plan_of(job, children_of(job)))
    assert job["status"]["phase"] == "Running"
    return job


def ended(job: Json, *, exit_code: int = 0) -> tuple[Json, list[Child]]:
    """The job and its children when every pod has ended, before anybody has looked at it."""
    specs = job["spec"]["replicaSpecs"]
    pods = [a_pod(job, role, i, exit_code=exit_code) for role in specs for i in range(specs[role]["replicas"])]
    return running(job), [*pods, *services_of(job)]


# --- creation ----------------------------------------------------------------------------------


def test_a_new_job_gets_all_its_services_and_then_all_its_pods() -> None:
    plan = plan_of(JOB)

    names = ["mnist-ps-0", "mnist-trainer-0", "mnist-trainer-1"]
    assert [(create.resource, create.key.name) for create in plan.creates] == [
        *((SERVICE, name) for name in names),
        *((POD, name) for name in names),
    ]
    assert all(create.why for create in plan.creates)
    assert (plan.deletes, plan.status_first, plan.lazy, plan.events) == ((), False, 0.0, ())


def test_a_new_job_is_pending() -> None:
    assert plan_of(JOB).status == {
        "phase": "Pending",
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Pending",
                "status": "True",
                "reason": "TrainingJobPending",
                "message": "all pods are waiting for scheduling",
                "lastProbeTime": STAMP,
                "lastTransitionTime": STAMP,
            }
        ],
        "replicaStatuses": {"ps": {}, "trainer": {}},
        "startTime": STAMP,
        "summary": {"ready": "0/3", "restarts": 0, "message": "all pods are waiting for scheduling"},
    }


def test_the_created_children_fill_their_slots() -> None:
    job, plan = with_status(JOB, plan_of(JOB)), plan_of(JOB)

    again = plan_of(job, [view_of_create(create) for create in plan.creates])

    assert (again.creates, again.deletes) == ((), ())
    assert status_of(again)["replicaStatuses"] == {"ps": {"pending": 1}, "trainer": {"pending": 2}}


def test_only_what_is_missing_is_created_again() -> None:
    present: list[Child] = [
        a_pod(JOB, "ps"),
        a_pod(JOB, "trainer", 1),
        a_service(JOB, "trainer", 0),
        a_service(JOB, "trainer", 1),
    ]

    plan = plan_of(running(JOB), present)

    assert names_of(plan.creates, SERVICE) == ["mnist-ps-0"]
    assert names_of(plan.creates, POD) == ["mnist-trainer-0"]


def test_a_pod_on_its_way_out_keeps_its_slot_until_it_is_gone() -> None:
    going = [a_pod(JOB, "ps", deleting=True), a_pod(JOB, "trainer", 0), a_pod(JOB, "trainer", 1)]

    assert plan_of(running(JOB), [*going, *services_of(JOB)]).creates == ()


def test_a_role_in_capitals_finds_its_own_pods() -> None:
    job = an_aitj(PServer=1)

    assert plan_of(running(job), children_of(job)) == Plan()


# --- phases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod_phase", "node", "phase", "message"),
    [
        pytest.param("Pending", "", "Pending", "all pods are waiting for scheduling", id="Pending"),
        pytest.param("Pending", "node-1", "Creating", "creating containers", id="Creating"),
        pytest.param("Running", "node-1", "Running", "all pods are running", id="Running"),
    ],
)
def test_the_phase_follows_the_pods_with_the_ancestors_reason(
    pod_phase: str, node: str, phase: str, message: str
) -> None:
    plan = plan_of(with_status(JOB, plan_of(JOB)), children_of(JOB, phase=pod_phase, node=node))

    assert status_of(plan)["phase"] == phase
    assert last_condition(plan) == (phase, f"TrainingJob{phase}", message)


def test_a_job_that_starts_to_run_says_so_once() -> None:
    job, children = with_status(JOB, plan_of(JOB)), children_of(JOB)

    first = plan_of(job, children)
    second = plan_of(with_status(job, first), children)

    assert first.events == (Event("Normal", "TrainingJobRunning", "all pods are running"),)
    assert second == Plan()


def test_a_running_job_that_loses_a_pod_is_pending_until_it_runs_again() -> None:
    job, children = running(JOB), children_of(JOB)[1:]

    lost = plan_of(job, children)
    back = plan_of(with_status(job, lost), children_of(JOB))

    assert status_of(lost)["phase"] == "Pending"
    assert status_of(back)["phase"] == "Running"
    assert status_of(back)["startRunningTime"] == job["status"]["startRunningTime"]


# --- the end: verdicts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "trainers", "ps", "verdict"),
    [
        # the typical job with parameter servers
        pytest.param({"complete": "Any", "ps": {"completePolicy": "None"}}, "ss", "r", "Succeed", id="ps: trained"),
        pytest.param({"complete": "Any", "ps": {"completePolicy": "None"}}, "sr", "r", "", id="ps: half trained"),
        pytest.param({"complete": "Any", "ps": {"completePolicy": "None"}}, "rr", "s", "", id="ps: server left early"),
        pytest.param(
            {"complete": "Any", "ps": {"completePolicy": "None"}}, "rr", "f", "Failed", id="ps: server failed"
        ),
        # defaults: All completes, Any fails
        pytest.param({}, "ss", "s", "Succeed", id="all succeeded"),
        pytest.param({}, "ss", "r", "", id="one role still runs"),
        pytest.param({}, "rf", "r", "Failed", id="one pod failed"),
        pytest.param({}, "s-", "s", "", id="a missing pod has not ended"),
        # jobs that never ended under the trainingjob-operator
        pytest.param(
            {"fail": "All", "trainer": {"failPolicy": "All"}},
            "sf",
            "r",
            "",
            id="closure: a mixed role waits for the job",
        ),
        pytest.param(
            {"fail": "All", "trainer": {"failPolicy": "All"}},
            "sf",
            "s",
            "Failed",
            id="closure: a mixed end is a failure",
        ),
        pytest.param({"ps": {"completePolicy": "None"}}, "ss", "s", "Succeed", id="closure: None under All"),
        pytest.param(
            {"fail": "None", "trainer": {"failPolicy": "None"}}, "ff", "s", "Failed", id="closure: nothing can happen"
        ),
        # job level Rank0: pod 0 of the first role by name
        pytest.param({"complete": "Rank0"}, "rr", "s", "Succeed", id="Rank0: pod 0 of the first role succeeded"),
        pytest.param({"complete": "Rank0"}, "sr", "r", "", id="Rank0: pod 0 of the second role says nothing"),
        pytest.param(
            {"fail": "Rank0", "ps": {"failPolicy": "None"}},
            "rr",
            "f",
            "Failed",
            id="Rank0: pod 0 of the first role failed",
        ),
        pytest.param({"fail": "Rank0"}, "fr", "r", "", id="Rank0: a failure elsewhere says nothing"),
        # replica level
        pytest.param({"trainer": {"failPolicy": "Rank0"}}, "rf", "r", "", id="replica Rank0: another pod failed"),
        pytest.param({"trainer": {"failPolicy": "Rank0"}}, "fr", "r", "Failed", id="replica Rank0: pod 0 failed"),
        pytest.param({"trainer": {"failPolicy": "None"}}, "ff", "r", "", id="replica None: failures do not matter"),
        pytest.param(
            {"complete": "Any", "trainer": {"completePolicy": "Any"}}, "rs", "r", "Succeed", id="replica Any: the first"
        ),
    ],
)
def test_end_policies_decide_how_a_job_ends(job: Json, trainers: str, ps: str, verdict: str) -> None:
    given = dict(job)
    roles = {"trainer": a_replica(2, **given.pop("trainer", {})), "ps": a_replica(1, **given.pop("ps", {}))}
    made = an_aitj(clean="None", roles=roles, **given)
    exits = {"r": None, "s": 0, "f": 1}
    slots = [("ps", 0, ps), *(("trainer", i, one) for i, one in enumerate(trainers))]
    pods = [a_pod(made, role, i, exit_code=exits[one]) for role, i, one in slots if one != "-"]

    plan = plan_of(running(made), [*pods, *services_of(made)])

    phase = with_status(running(made), plan)["status"]["phase"]
    assert (phase if phase in ("Succeed", "Failed") else "") == verdict


def test_a_role_without_replicas_has_no_say() -> None:
    job, children = ended(an_aitj(trainer=1, ps=0, clean="None"))

    assert status_of(plan_of(job, children))["phase"] == "Succeed"


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(
            a_pod(JOB, "ps", exit_code=137, node="gpu-7"),
            "container aitj-main on node gpu-7 exited with reason Error exitcode 137 (SIGKILL)",
            id="an exit code",
        ),
        pytest.param(
            a_pod(JOB, "ps", phase="Failed", containers={"aitj-a": 1, "aitj-b": 2, "aitj-c": 0, "proxy": 3}, node="n"),
            "container aitj-a on node n exited with reason Error exitcode 1; "
            "container aitj-b on node n exited with reason Error exitcode 2",
            id="training containers that failed",
        ),
        pytest.param(
            a_pod(JOB, "ps", phase="Failed", reason="Evicted", message="low on memory"),
            "Evicted, low on memory (node node-1)",
            id="an eviction",
        ),
        pytest.param(
            a_pod(JOB, "ps", phase="Failed", reason="NodeLost"), "NodeLost (node node-1)", id="a reason alone"
        ),
        pytest.param(a_pod(JOB, "ps", phase="Failed"), "no reason was reported (node node-1)", id="no reason at all"),
    ],
)
def test_a_failed_job_tells_which_pod_and_why(pod: Child, why: str) -> None:
    others = [child for child in children_of(JOB) if child.key != pod.key]

    plan = plan_of(running(JOB), [pod, *others])

    message = f"pod mnist-ps-0 failed: {why}"
    assert last_condition(plan) == ("Terminating", "TrainingJobTerminating", f"{message}; deleting pods")
    assert status_of(plan)["ending"] == {"phase": "Failed", "message": message}


# --- the end: cleaning up ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["", "All", "Running"])
@pytest.mark.parametrize(("exit_code", "phase"), [(0, "Succeed"), (1, "Failed")], ids=["well", "badly"])
def test_the_verdict_is_stored_before_the_first_delete(policy: str, exit_code: int, phase: str) -> None:
    job, children = ended(an_aitj(clean=policy), exit_code=exit_code)

    plan = plan_of(job, children)

    assert plan.status_first
    assert (plan.deletes, plan.creates) == ((), ())
    assert (status_of(plan)["phase"], status_of(plan)["ending"]["phase"]) == ("Terminating", phase)
    assert "endTime" not in status_of(plan)
    assert [event.reason for event in plan.events] == ["TrainingJobTerminating"]


def test_a_terminating_job_deletes_its_pods_and_services_and_waits() -> None:
    job, children = ended(JOB)
    job, children = after(job, children, plan_of(job, children))

    plan = plan_of(job, children)

    names = ["mnist-ps-0", "mnist-trainer-0", "mnist-trainer-1"]
    assert (names_of(plan.deletes, POD), names_of(plan.deletes, SERVICE)) == (names, names)
    assert all(delete.uid and delete.why for delete in plan.deletes)
    assert (plan.status, plan.creates) == (None, ())


def test_terminating_is_repeated_until_no_pod_is_left() -> None:
    job, children = ended(JOB)
    job = with_status(job, plan_of(job, children))
    going = [a_pod(JOB, "ps", deleting=True), a_pod(JOB, "trainer", 1, exit_code=0)]

    plan = plan_of(job, going)

    assert names_of(plan.deletes, POD) == ["mnist-trainer-1"]
    assert plan.status is None
    assert plan_of(job, going[:1]) == Plan(requeue_after=60.0)


def test_a_pod_that_does_not_go_is_forced_to_once() -> None:
    job, children = ended(JOB)
    job = with_status(job, plan_of(job, children))
    stuck, late = [a_pod(JOB, "ps", deleting=True)], NOW + timedelta(seconds=60)

    early, plan = plan_of(job, stuck, now=NOW + timedelta(seconds=59)), plan_of(job, stuck, now=late)
    forced = plan_of(job, [msgspec.structs.replace(stuck[0], is_forced=True)], now=late)

    assert early == Plan(requeue_after=1.0)
    assert [(delete.key.name, delete.grace) for delete in plan.deletes] == [("mnist-ps-0", 0)]
    assert (forced.deletes, status_of(forced)["phase"]) == ((), "Succeed")  # only a finalizer keeps it


def test_a_terminating_job_creates_nothing_and_reconsiders_nothing() -> None:
    job, children = ended(JOB)
    job = with_status(job, plan_of(job, children))

    plan = plan_of(job, [a_pod(JOB, "trainer", 0, exit_code=1)])

    assert (plan.creates, plan.status) == ((), None)


@pytest.mark.parametrize(
    ("exit_code", "phase", "event"), [(0, "Succeed", "Normal"), (1, "Failed", "Warning")], ids=["well", "badly"]
)
def test_the_job_ends_when_its_pods_are_gone(exit_code: int, phase: str, event: str) -> None:
    job, children = ended(an_aitj(), exit_code=exit_code)
    terminating = plan_of(job, children)
    job = with_status(job, terminating)

    plan = plan_of(job, [], now=LATER)

    status, said = status_of(plan), status_of(terminating)["ending"]["message"]
    assert status["phase"] == phase
    assert last_condition(plan) == (phase, f"TrainingJob{phase}", f"{said}; deleted pods")
    assert status["endTime"] == "2026-11-15T12:05:00Z"
    assert "ending" not in status
    assert plan.events == (Event(event, f"TrainingJob{phase}", f"{said}; deleted pods"),)


def test_a_job_that_succeeds_says_that_it_completed() -> None:
    job, children = ended(JOB)

    assert status_of(plan_of(job, children))["ending"]["message"] == "job mnist completed"


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param("CleanPodPolicyAll", [], id="All"),
        pytest.param("CleanPodPolicyNone", ["mnist-ps-0", "mnist-trainer-0", "mnist-trainer-1"], id="None"),
    ],
)
def test_the_names_of_policies_in_the_ancestors_documents_mean_the_policies(policy: str, left: list[str]) -> None:
    job, children = ended(an_aitj(trainer=2, ps=1, clean=policy))

    _, found = settled(job, children)

    assert sorted(child.key.name for child in found if isinstance(child, PodView)) == left


def test_an_ended_job_keeps_the_counters_of_its_last_pods() -> None:
    job, children = ended(JOB)
    job, _ = settled(job, children)

    assert job["status"]["replicaStatuses"] == {"ps": {"succeeded": 1}, "trainer": {"succeeded": 2}}


@pytest.mark.parametrize("policy", ["All", "None"])
def test_an_edit_is_acknowledged_in_the_pass_that_ends_the_job(policy: str) -> None:
    job, children = ended(an_aitj(clean=policy))

    plan = plan_of(with_spec(job, frameworkType="paddle"), children)

    assert status_of(plan)["observedGeneration"] == 2


def test_a_service_that_outlived_the_pods_goes_with_the_end() -> None:
    job, children = ended(JOB)
    job = with_status(job, plan_of(job, children))

    plan = plan_of(job, [a_service(JOB, "ps")])

    assert names_of(plan.deletes, SERVICE) == ["mnist-ps-0"]


def test_a_job_that_keeps_the_pods_that_have_ended_says_so() -> None:
    job, children = ended(an_aitj(clean="Running"), exit_code=0)
    ending = plan_of(job, children)
    plan = plan_of(with_status(job, ending), [child for child in children if isinstance(child, PodView)], now=LATER)

    assert not names_of(ending.deletes, POD)
    assert last_condition(ending)[2].endswith("; deleting pods that run")
    assert last_condition(plan)[2].endswith("; kept pods that have ended")


def test_pods_that_have_ended_and_are_being_deleted_are_not_kept() -> None:
    job, children = ended(an_aitj(clean="Running"), exit_code=0)
    leaving = [msgspec.structs.replace(pod, deleting=LATER) for pod in children if isinstance(pod, PodView)]
    plan = plan_of(with_status(job, plan_of(job, children)), leaving, now=LATER)

    assert last_condition(plan)[2].endswith("; deleted pods")


@pytest.mark.parametrize(("exit_code", "phase"), [(0, "Succeed"), (1, "Failed")], ids=["well", "badly"])
def test_without_clean_up_the_job_ends_at_once_and_keeps_everything(exit_code: int, phase: str) -> None:
    job, children = ended(an_aitj(clean="None"), exit_code=exit_code)

    plan = plan_of(job, children, now=LATER)

    status = status_of(plan)
    assert status["phase"] == phase
    assert last_condition(plan)[2].endswith("; kept pods")
    assert status["replicaStatuses"] == {"trainer": {"failed": 1} if exit_code else {"succeeded": 1}}
    assert status["endTime"] == "2026-11-15T12:05:00Z"
    assert (plan.deletes, plan.creates) == ((), ())
    assert plan_of(with_status(job, plan), children) == Plan()


def test_the_clean_up_of_running_pods_keeps_the_others() -> None:
    made = an_aitj(trainer=2, ps=1, clean="Running", complete="Any", fail="Any")
    job = running(made)
    children: list[Child] = [a_pod(made, "ps"), *(a_pod(made, "trainer", i, exit_code=0) for i in range(2))]

    job, left = settled(job, [*children, *services_of(made)])

    assert job["status"]["phase"] == "Succeed"
    assert sorted(child.key.name for child in left) == ["mnist-trainer-0", "mnist-trainer-1"]


@pytest.mark.parametrize("phase", ["Succeed", "Failed", "Timeout", "Preempted", "NodeFail"])
@pytest.mark.parametrize(
    "children",
    [
        pytest.param([], id="nothing left"),
        pytest.param([a_pod(JOB, "trainer", 0, exit_code=1)], id="a failed pod"),
        pytest.param([a_pod(JOB, "trainer", 0, exit_code=0)], id="a pod that succeeded"),
        pytest.param(children_of(JOB), id="all pods running"),
    ],
)
def test_a_job_that_has_ended_never_changes_and_creates_nothing(phase: str, children: list[Child]) -> None:
    plan = plan_of(with_status(JOB, {"phase": phase}), children)

    assert (plan.status, plan.creates, plan.events) == (None, (), ())


def test_what_is_left_of_an_ended_job_is_cleaned_up_later() -> None:
    job = with_status(JOB, {"phase": "Failed"})

    plan = plan_of(job, [a_pod(JOB, "ps"), a_pod(JOB, "trainer", deleting=True), a_service(JOB, "ps")])

    assert names_of(plan.deletes, POD) == ["mnist-ps-0"]
    assert names_of(plan.deletes, SERVICE) == ["mnist-ps-0"]


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "another operator's"])
def test_an_edit_of_a_job_that_has_ended_is_seen_and_changes_nothing_else(is_ours: bool) -> None:
    job, _ = settled(*ended(an_aitj()))
    if not is_ours:
        del job["status"]["observedGeneration"]
    before = job["status"]

    plan = plan_of(with_spec(job, timeLimit=1))

    assert plan.status == ({**before, "observedGeneration": 2} if is_ours else None)
    assert (plan.creates, plan.deletes) == ((), ())


# --- what is not in the spec -------------------------------------------------------------------


def test_a_scale_down_removes_the_highest_index_first() -> None:
    job = with_spec(running(an_aitj(trainer=12)), replicaSpecs={"trainer": a_replica(1)})

    plan = plan_of(job, children_of(an_aitj(trainer=12)))

    assert names_of(plan.deletes, POD) == [f"mnist-trainer-{i}" for i in range(11, 0, -1)]
    assert plan.creates == ()


def test_a_pod_that_is_told_to_go_keeps_its_address_until_it_has_gone() -> None:
    job = with_spec(running(an_aitj(trainer=2)), replicaSpecs={"trainer": a_replica(1)})
    services = services_of(an_aitj(trainer=2))
    stays, goes = a_pod(job, "trainer", 0), a_pod(job, "trainer", 1, deleting=True)

    assert plan_of(job, [stays, goes, *services]).deletes == ()
    assert names_of(plan_of(job, [stays, *services]).deletes, SERVICE) == ["mnist-trainer-1"]


def test_a_scale_down_does_not_depend_on_the_order_of_the_store() -> None:
    job = with_spec(running(an_aitj(trainer=12)), replicaSpecs={"trainer": a_replica(1)})
    children = children_of(an_aitj(trainer=12))

    assert plan_of(job, children) == plan_of(job, list(reversed(children)))


def test_a_job_that_was_scaled_down_is_running_with_what_it_has() -> None:
    job = with_spec(running(an_aitj(trainer=3)), replicaSpecs={"trainer": a_replica(2)})

    status = status_of(plan_of(job, children_of(an_aitj(trainer=3))))

    assert (status["phase"], status["replicaStatuses"]) == ("Running", {"trainer": {"active": 2}})


def test_the_end_of_a_surplus_pod_ends_nothing() -> None:
    job = with_spec(running(an_aitj(trainer=2)), replicaSpecs={"trainer": a_replica(1)})
    surplus = a_pod(JOB, "trainer", 1, exit_code=1)

    plan = plan_of(job, [a_pod(JOB, "trainer", 0), surplus, *services_of(an_aitj(trainer=2))])

    assert status_of(plan)["phase"] == "Running"
    assert names_of(plan.deletes, POD) == ["mnist-trainer-1"]


def test_a_scale_up_creates_the_new_indices_alone() -> None:
    job = with_spec(running(an_aitj(trainer=1)), replicaSpecs={"trainer": a_replica(3)})

    plan = plan_of(job, children_of(an_aitj(trainer=1)))

    assert names_of(plan.creates, POD) == ["mnist-trainer-1", "mnist-trainer-2"]
    assert plan.deletes == ()


def test_a_role_that_left_the_spec_goes_with_its_pods_and_services() -> None:
    job = with_spec(running(JOB), replicaSpecs={"trainer": a_replica(2)})

    first = plan_of(job, children_of(JOB))
    second = plan_of(*after(job, children_of(JOB), first))

    assert [(delete.resource, delete.key.name) for delete in first.deletes] == [(POD, "mnist-ps-0")]
    assert [(delete.resource, delete.key.name) for delete in second.deletes] == [(SERVICE, "mnist-ps-0")]


@pytest.mark.parametrize(
    "stray",
    [
        pytest.param(a_pod(JOB, "trainer", 0, labels={}, name="stray"), id="no labels"),
        pytest.param(a_pod(JOB, "trainer", 0, name="zz-double"), id="a second pod in a slot"),
        pytest.param(
            a_pod(JOB, "trainer", labels=child_labels(JOB, "trainer") | {"TrainingJobReplicaIndex": "x"}, name="stray"),
            id="no index",
        ),
    ],
)
def test_an_owned_pod_that_fills_no_slot_is_removed(stray: Child) -> None:
    plan = plan_of(running(JOB), [*children_of(JOB), stray])

    assert [(delete.key, delete.uid) for delete in plan.deletes] == [(stray.key, stray.uid)]
    assert plan.creates == ()


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([(0, "1"), (1, "1")], id="two pods claim slot 1"),
        pytest.param([(0, "1")], id="a pod claims the slot of a missing one"),
        pytest.param([(0, "1"), (1, "0")], id="two pods swapped their slots"),
        pytest.param([(0, "x"), (1, "1")], id="a pod lost its index"),
    ],
)
def test_pods_whose_labels_were_edited_do_not_hang_the_job(pods: list[tuple[int, str]]) -> None:
    job = an_aitj(trainer=2)
    edited = [
        a_pod(job, "trainer", i, labels=child_labels(job, "trainer") | {"TrainingJobReplicaIndex": label})
        for i, label in pods
    ]

    job, children = settled(running(job), [*edited, *services_of(job)])

    assert {
        (child.key.name, child.labels["TrainingJobReplicaIndex"]) for child in children if hasattr(child, "labels")
    } == {
        ("mnist-trainer-0", "0"),
        ("mnist-trainer-1", "1"),
    }


# --- settling, laziness, bounds ----------------------------------------------------------------


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param({"phase": "Pending"}, id="pending"),
        pytest.param({"phase": "Running"}, id="running"),
        pytest.param({"phase": "Succeeded"}, id="succeeded"),
        pytest.param({"phase": "Failed"}, id="failed"),
    ],
)
@pytest.mark.parametrize("policy", ["All", "Running", "None"])
def test_a_job_settles_and_is_then_left_in_peace(policy: str, pods: Any) -> None:
    made = an_aitj(trainer=2, ps=1, clean=policy)

    job, children = settled(with_status(made, plan_of(made)), children_of(made, **pods))

    assert plan_of(job, children, now=LATER) == Plan()


def test_containers_that_are_created_for_long_are_worth_a_word_once() -> None:
    made = an_aitj(trainer=2, ps=1)
    job, children = settled(with_status(made, plan_of(made)), children_of(made, phase="Pending", node="node-1"))

    early, late = plan_of(job, children), plan_of(job, children, now=LATER)

    assert (early.is_quiet, early.requeue_after) == (True, 120.0)
    assert [event.reason for event in late.events] == ["ContainerCreating"]
    assert "pod mnist-ps-0 is ContainerCreating for more than 2 minutes" in late.events[0].message
    assert plan_of(with_status(job, late), children, now=LATER) == Plan()


@pytest.mark.parametrize(
    ("change", "lazy"),
    [
        pytest.param("counters", True, id="counters alone may wait"),
        pytest.param("phase", False, id="a phase may not"),
        pytest.param("generation", False, id="an acknowledged edit may not"),
        pytest.param("nothing", False, id="without a status there is nothing to wait for"),
    ],
)
def test_a_status_is_lazy_when_only_its_counters_change(change: str, lazy: bool) -> None:
    job, children = running(JOB), children_of(JOB)
    if change == "counters":
        children[0] = a_pod(JOB, "ps", exit_code=0)
    if change == "phase":
        children[0] = a_pod(JOB, "ps", phase="Pending")
    if change == "generation":
        job = with_spec(job, frameworkType="paddle")

    plan = plan_of(job, children)

    assert (plan.status is None) == (change == "nothing")
    assert bool(plan.lazy) is lazy


def test_a_change_of_counters_is_complete_in_the_lazy_status() -> None:
    children = [a_pod(JOB, "ps", exit_code=0), *children_of(JOB)[1:]]

    plan = plan_of(running(JOB), children)

    assert status_of(plan) == {
        **running(JOB)["status"],
        "replicaStatuses": {"ps": {"succeeded": 1}, "trainer": {"active": 2}},
        "done": {"ps": [0]},
        "summary": {"ready": "2/3", "restarts": 0, "message": "all pods are running"},
    }
    assert plan.lazy == BRIEF


def test_a_job_of_2000_pods_takes_500_actions_a_pass() -> None:
    plan = plan_of(an_aitj(trainer=2000))

    assert len(plan.creates) == 500
    assert names_of(plan.creates, SERVICE) == [f"mnist-trainer-{i}" for i in range(499)]
    assert plan.requeue_after == 0.0


def test_a_job_of_2000_large_pods_creates_4_mebibytes_of_them_a_pass() -> None:
    large = a_template(a_container("aitj-main"), annotations={"note": "x" * 100_000})
    job = an_aitj(trainer=a_replica(2000, large))
    services, pods = services_of(job), [a_pod(job, "trainer", i) for i in range(1990)]

    first, last = plan_of(job, services), plan_of(job, [*services, *pods])

    sizes = [len(msgspec.json.encode(create.body)) for create in first.creates]
    assert sum(sizes[:-1]) < 4 * 1024 * 1024 <= sum(sizes)
    assert names_of(first.creates, POD) == [f"mnist-trainer-{i}" for i in range(len(sizes) - 1)]
    assert first.requeue_after == 0.0
    assert names_of(last.creates, POD) == [f"mnist-trainer-{i}" for i in range(1990, 2000)]
    assert last.requeue_after is None


def test_the_end_of_a_job_of_2000_pods_takes_500_deletes_a_pass() -> None:
    job = with_status(an_aitj(trainer=2000), {"phase": "Terminating", "ending": {"phase": "Failed"}})
    pods = [a_pod(job, "trainer", i) for i in range(2000)]

    plan = plan_of(job, pods)

    assert len(plan.deletes) == 500
    assert plan.status is None


# --- events of actions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "resource", "error", "event"),
    [
        ("create", POD, "", Event("Normal", "SuccessfulCreatePod", "Created pod: a, b")),
        ("create", SERVICE, "", Event("Normal", "SuccessfulCreateService", "Created service: a, b")),
        ("delete", POD, "", Event("Normal", "SuccessfulDeletePod", "Deleted pod: a, b")),
        ("delete", SERVICE, "", Event("Normal", "SuccessfulDeleteService", "Deleted service: a, b")),
        ("create", POD, "no", Event("Warning", "FailedCreatePod", "Error creating pod a, b: no")),
        ("delete", SERVICE, "no", Event("Warning", "FailedDeleteService", "Error deleting service a, b: no")),
    ],
)
def test_actions_are_told_in_the_ancestors_words(verb: str, resource: Any, error: str, event: Event) -> None:
    assert kind_of(JOB).action_event(verb, resource, ["a", "b"], error) == event


def test_events_come_from_the_ancestors_component() -> None:
    assert kind_of(JOB).component == "TrainingJobOperator"


def test_a_pod_that_fails_while_it_is_being_deleted_does_not_fail_the_job() -> None:
    job = an_aitj(trainer=1, status={"phase": "Running"})
    leaving = a_pod(job, "trainer", 0, exit_code=143, deleting=True)

    plan = plan_of(job, [*services_of(job), leaving])

    assert not plan.status_first
    assert not plan.deletes
    assert plan.creates == ()


def test_a_spec_that_is_broken_after_the_verdict_does_not_stop_the_clean_up() -> None:
    ending = {"phase": "Terminating", "ending": {"phase": "Failed", "message": "it broke"}}
    job = an_aitj(trainer=a_replica(template={"spec": {"containers": []}}), status=ending)

    plan = plan_of(job, [a_pod(job, "trainer", 0)])

    assert names_of(plan.deletes, POD) == ["mnist-trainer-0"]


def test_rank0_at_job_level_reports_the_pod_that_it_looks_at() -> None:
    job = an_aitj(fail="Rank0", a=a_replica(1, failPolicy="None"), b=a_replica(2, failPolicy="Any"))
    pods = [a_pod(job, "a", 0, exit_code=3), a_pod(job, "b", 0), a_pod(job, "b", 1, exit_code=4)]

    plan = plan_of(job, [*services_of(job), *pods])

    assert plan.status is not None
    assert "pod mnist-a-0 failed" in plan.status["ending"]["message"]
    assert "mnist-b-1" not in plan.status["ending"]["message"]


def test_the_message_of_a_thousand_failures_quotes_three() -> None:
    job = an_aitj(worker=a_replica(1000, failPolicy="All"))
    pods = [a_pod(job, "worker", index, exit_code=1) for index in range(1000)]

    plan = plan_of(job, [*services_of(job), *pods])

    assert plan.status is not None
    assert "; and 997 more; the first failure: worker-0 (pod mnist-worker-0, " in plan.status["ending"]["message"]
    assert len(plan.status["ending"]["message"]) < 500
    assert plan.status["failure"]["others"] == 999


def test_pods_that_are_deleted_at_the_end_are_not_active() -> None:
    job = an_aitj(ps=a_replica(1, completePolicy="None"), trainer=1, complete="Any")
    pods = [a_pod(job, "ps"), a_pod(job, "trainer", exit_code=0)]

    after_all, left = settled(running(job), [*pods, *services_of(job)])

    assert (after_all["status"]["phase"], left) == ("Succeed", [])
    assert after_all["status"]["replicaStatuses"] == {"ps": {}, "trainer": {"succeeded": 1}}


def ended_with(job: Json, index: int, output: str) -> PodView:
    """A worker that ended at NOW with this output."""
    pod = pod_json(job, "worker", index, exit_code=1)
    pod["status"]["containerStatuses"][0]["state"]["terminated"] |= {"message": output, "finishedAt": STAMP}
    return view_of_pod(pod)


LOST = "ConnectionResetError: [Errno 104] Connection reset by peer"


def test_a_job_whose_workers_have_lost_their_peer_waits_for_the_failure_of_the_peer() -> None:
    job = an_aitj(worker=3)
    lost = [*services_of(job), ended_with(job, 0, LOST), ended_with(job, 1, LOST)]
    early = plan_of(job, [*lost, a_pod(job, "worker", 2)], now=NOW)
    late = plan_of(job, [*lost, a_pod(job, "worker", 2)], now=NOW + timedelta(seconds=2))
    known = plan_of(job, [*lost, ended_with(job, 2, "ValueError: loss is NaN")], now=NOW)

    assert (early.status, early.requeue_after) == (None, 2.0)
    assert status_of(late)["failure"]["replica"] == "worker-0"
    assert status_of(known)["failure"]["replica"] == "worker-2"
    assert "the first failure: worker-2 (pod mnist-worker-2, " in status_of(known)["ending"]["message"]


@pytest.mark.parametrize("seconds", [-3600, 3600], ids=["a kubelet is ahead", "a kubelet is behind"])
def test_a_wrong_clock_does_not_delay_the_end_of_a_job(seconds: int) -> None:
    job = an_aitj(worker=2)
    children = [*services_of(job), ended_with(job, 0, LOST), a_pod(job, "worker", 1)]

    assert status_of(plan_of(job, children, now=NOW + timedelta(seconds=seconds)))["failure"]["replica"] == "worker-0"


def test_the_stored_failure_is_of_a_role_that_ends_the_job_although_another_failed_before() -> None:
    job = an_aitj(worker=1, helper=a_replica(1, failPolicy="None"))
    helper = pod_json(job, "helper", 0, exit_code=1)
    before = (NOW - timedelta(minutes=5)).isoformat()
    helper["status"]["containerStatuses"][0]["state"]["terminated"] |= {"finishedAt": before}
    children = [*services_of(job), view_of_pod(helper), ended_with(job, 0, "ValueError: loss is NaN")]

    assert status_of(plan_of(job, children))["failure"]["role"] == "worker"


def test_a_restart_has_the_failure_that_is_no_consequence_as_its_cause() -> None:
    job = an_aitj(worker=a_replica(3, restartPolicy="OnFailure"))
    failed = [ended_with(job, 0, LOST), ended_with(job, 1, "ValueError: loss is NaN"), ended_with(job, 2, LOST)]

    assert status_of(plan_of(job, [*services_of(job), *failed]))["restartHistory"][-1]["replica"] == "worker-1"
