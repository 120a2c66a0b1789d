"""Replicas of an AITrainingJob that have succeeded: their pods may be deleted while the others still run."""

from datetime import timedelta

import msgspec
import pytest

from tests.build import (
    NOW,
    SETTINGS,
    Child,
    Json,
    a_pod,
    a_replica,
    an_aitj,
    child_labels,
    children_of,
    names_of,
    plan_of,
    services_of,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD
from trainmaster.core.plan import Plan
from trainmaster.lifecycle.gang import VOLCANO_GROUP


def a_job(scope: str = "Pod") -> Json:
    """Three trainers, of which the first has succeeded while the others run."""
    trainer = a_replica(3, restartPolicy="OnFailure", restartScope=scope)
    job = an_aitj(trainer=trainer)
    job = with_status(job, plan_of(job))
    job = with_status(job, plan_of(job, children_of(job)))
    return with_status(job, plan_of(job, pods(job, {0: 0})))


def pods(job: Json, ended: dict[int, int], gone: tuple[int, ...] = (), attempt: int = 0) -> list[Child]:
    """The trainers, some of which have ended with an exit code; those that are gone are not there."""
    found = [
        a_pod(
            job,
            "trainer",
            i,
            exit_code=ended.get(i),
            labels={**child_labels(job, "trainer", i), "RestartCount": str(attempt)},
        )
        for i in range(3)
        if i not in gone
    ]
    return [*found, *services_of(job)]


def status_of(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def test_that_a_replica_has_succeeded_is_stored() -> None:
    assert a_job()["status"]["done"] == {"trainer": [0]}


def test_a_succeeded_pod_that_was_garbage_collected_is_not_created_again() -> None:
    job = a_job()

    plan = plan_of(job, pods(job, {}, gone=(0,)))

    assert plan.is_quiet
    assert job["status"]["replicaStatuses"] == {"trainer": {"active": 2, "succeeded": 1}}


def test_the_job_succeeds_although_a_succeeded_pod_was_garbage_collected() -> None:
    job = a_job()

    plan = plan_of(job, pods(job, {1: 0, 2: 0}, gone=(0,)))

    assert status_of(plan)["ending"]["phase"] == "Succeed"


def test_a_running_pod_that_is_gone_is_still_created_again() -> None:
    job = a_job()

    assert names_of(plan_of(job, pods(job, {}, gone=(0, 1))).creates, POD) == ["mnist-trainer-1"]


def test_a_pod_that_succeeds_while_it_is_being_deleted_has_not_succeeded() -> None:
    job = an_aitj(trainer=1)
    job = with_status(job, plan_of(job))
    leaving = a_pod(job, "trainer", 0, exit_code=0, deleting=True)

    assert "done" not in status_of(plan_of(job, [leaving, *services_of(job)]))


@pytest.mark.parametrize(
    ("scope", "done"),
    [
        pytest.param("Pod", {"trainer": [0]}, id="Pod: the others stay"),
        pytest.param("Replica", None, id="Replica: the role begins anew"),
        pytest.param("All", None, id="All: the job begins anew"),
    ],
)
def test_a_restart_forgets_the_replicas_that_it_starts_again(scope: str, done: Json | None) -> None:
    job = a_job(scope)

    status = status_of(plan_of(job, pods(job, {1: 1}, gone=(0,))))

    assert status["restarts"]["trainer"]["count"] == 1
    assert status.get("done") == done


def test_a_suspended_job_does_not_train_again_what_has_succeeded() -> None:
    job = a_job()
    job["spec"]["suspend"] = True
    job = with_status(job, plan_of(job, pods(job, {0: 0})))
    job = with_status(job, plan_of(job, pods(job, {}, gone=(0, 1, 2))))
    job["spec"]["suspend"] = False

    plan = plan_of(job, pods(job, {}, gone=(0, 1, 2)))

    assert names_of(plan.creates, POD) == ["mnist-trainer-1", "mnist-trainer-2"]


def test_a_smaller_job_forgets_the_replicas_that_it_has_no_longer() -> None:
    job = a_job()
    job["spec"]["replicaSpecs"]["trainer"]["replicas"] = 0
    job["spec"]["replicaSpecs"]["ps"] = a_replica(1)

    assert "done" not in status_of(plan_of(job, pods(job, {}, gone=(0,))))


# --- nothing but the classification asks whether the pod of such a replica is still there ---


@pytest.mark.parametrize("gone", [(), (0,)], ids=["its pod is there", "its pod is gone"])
def test_a_replica_that_has_succeeded_is_not_waited_for(gone: tuple[int, ...]) -> None:
    """Another one was restarted and pulls its image: it has a node."""
    limits = {"pendingTimeLimit": 60, "creatingTimeLimit": 3600}
    job = with_spec(a_job(), **limits)
    job = with_status(job, plan_of(job, pods(job, {0: 0, 1: 1}, gone)))
    job = with_status(job, plan_of(job, pods(job, {0: 0}, (*gone, 1))))
    labels = {**child_labels(job, "trainer", 1), "RestartCount": "1"}
    pulls = a_pod(job, "trainer", 1, phase="Pending", node="node-1", labels=labels)
    children = [pulls, *pods(job, {0: 0}, (*gone, 1))]
    job = with_status(job, plan_of(job, children))

    plan = plan_of(job, children, now=NOW + timedelta(seconds=600))

    assert job["status"]["phase"] == "Restarting"
    assert "ending" not in (plan.status or {})


@pytest.mark.parametrize("gone", [(), (0,)], ids=["its pod is there", "its pod is gone"])
def test_a_replica_that_has_succeeded_is_not_placed_again(gone: tuple[int, ...]) -> None:
    job = a_job()
    volcano = msgspec.structs.replace(SETTINGS, gang_scheduler="volcano")

    plan = plan_of(job, pods(job, {0: 0}, (*gone, 1)), settings=volcano)

    groups = [create.body["spec"] for create in plan.creates if create.resource == VOLCANO_GROUP]
    assert groups == [{"minMember": 2}]


@pytest.mark.parametrize("is_gone", [False, True], ids=["its pod is there", "its pod is gone"])
def test_an_auto_role_whose_training_is_done_does_not_wait_for_replicas_without_a_node(is_gone: bool) -> None:
    job = an_aitj(worker=a_replica(3, edlPolicy="Auto", minReplicas=1, maxReplicas=3))
    job = with_status(job, {"phase": "Running", "done": {"worker": [0]}})
    found = [a_pod(job, "worker", i, phase="Pending", unschedulable="no GPU") for i in (1, 2)]
    done = [] if is_gone else [a_pod(job, "worker", 0, exit_code=0)]

    assert status_of(plan_of(job, [*done, *found, *services_of(job)]))["ending"]["phase"] == "Succeed"
