"""Every limit on the time of a job: kind × limit × stored phase × what its pods really do × suspended or not.

The expected outcomes come from two rules (docs/decisions/0043-limits-on-waiting.md):

- a limit on waiting is over if the job has waited for the same thing all that time, and its pods say that it still
  waits for it. The stored phase decides nothing, and a suspension starts the limit anew;
- a deadline is over when its time is, whatever the pods do. It does not run while the job is suspended.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.build import (
    NOW,
    Child,
    Json,
    a_dijob,
    a_ditask,
    a_nervexjob,
    a_replica,
    an_aitj,
    an_mx_replica,
    an_mxjob,
    child_labels,
    children_of,
    plan_of,
    pod_json,
    services_of,
    view_of_pod,
    with_aggregator,
    with_spec,
    with_status,
)
from tests.kinds.mlkube import build as mlkube
from trainmaster.core.plan import Plan

LIMIT = 600

NODES, CONTAINERS, NOTHING = "nodes", "containers", "nothing"
"""What a job waits for."""

NOT, SUSPENDED, RESUMED = "not suspended", "suspended", "resumed"


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


# --- the limits of an AITrainingJob with two trainers, which restarts when one of them fails ---


def trainer(job: Json, index: int, *, is_queued: bool = False, **state: Any) -> Child:
    """A pod of the present attempt."""
    attempt = str(job.get("status", {}).get("RestartCount", {}).get("trainer", 0))
    labels = {**child_labels(job, "trainer", index), "RestartCount": attempt}
    pod = pod_json(job, "trainer", index, labels=labels, uid=f"uid-{index}-{attempt}", **state)
    if is_queued:
        pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    return view_of_pod(pod)


def trainers(job: Json, *states: Mapping[str, Any]) -> list[Child]:
    return [trainer(job, index, **state) for index, state in enumerate(states)]


NO_NODE: Mapping[str, Any] = {"phase": "Pending"}
CREATED: Mapping[str, Any] = {"phase": "Pending", "node": "node-1"}
QUEUED: Mapping[str, Any] = {"phase": "Pending", "is_queued": True}
RUNS: Mapping[str, Any] = {}
FAILS: Mapping[str, Any] = {"exit_code": 1}


PODS: Mapping[str, tuple[Callable[[Json], list[Child]], str]] = {
    "no pod is there": (lambda job: [], NODES),
    "no pod has a node": (lambda job: trainers(job, NO_NODE, NO_NODE), NODES),
    "one pod has a node": (lambda job: trainers(job, CREATED, NO_NODE), NODES),
    "one pod runs, one has no node": (lambda job: trainers(job, RUNS, NO_NODE), NODES),
    "all pods are in a queue": (lambda job: trainers(job, QUEUED, QUEUED), NOTHING),
    "all pods have nodes": (lambda job: trainers(job, CREATED, CREATED), CONTAINERS),
    "one pod runs, one has a node": (lambda job: trainers(job, RUNS, CREATED), CONTAINERS),
    "all pods run": (lambda job: trainers(job, RUNS, RUNS), NOTHING),
}
"""What the pods do, and what the job waits for therefore."""


def seen(job: Json, pods: list[Child], at: datetime = NOW, passes: int = 3) -> Json:
    """The job after the operator has looked at these pods."""
    for _ in range(passes):
        job = with_status(job, plan_of(job, [*services_of(job), *pods], now=at))
    return job


def pending(job: Json) -> Json:
    return seen(job, trainers(job, NO_NODE, NO_NODE))


def creating(job: Json) -> Json:
    return seen(job, trainers(job, CREATED, CREATED))


def running(job: Json) -> Json:
    return seen(job, trainers(job, RUNS, RUNS))


def terminating(job: Json) -> Json:
    """A restart was decided, and the old pods are still there."""
    job = running(job)
    return seen(job, trainers(job, RUNS, FAILS), passes=1)


def restarting(job: Json, state: Mapping[str, Any]) -> Json:
    job = seen(terminating(job), [])
    return seen(job, trainers(job, state, state))


STORED: Mapping[str, tuple[Callable[[Json], Json], str, str, bool]] = {
    "new": (lambda job: job, "", NOTHING, False),
    "Pending": (pending, "Pending", NODES, False),
    "Creating": (creating, "Creating", CONTAINERS, False),
    "Running": (running, "Running", NOTHING, True),
    "Terminating for a restart": (terminating, "Terminating", NOTHING, True),
    "Restarting without nodes": (partial(restarting, state=NO_NODE), "Restarting", NODES, True),
    "Restarting with nodes": (partial(restarting, state=CREATED), "Restarting", CONTAINERS, True),
}
"""How the job came to its stored phase, that phase, what it waited for then, and whether it had run."""


def suspended(job: Json) -> Json:
    """Its pods were deleted and the suspension is stored."""
    return seen(with_spec(job, suspend=True), [], at=later(1))


def is_timeout(plan: Plan) -> bool:
    status = plan.status or {}
    return "Timeout" in (status.get("phase"), status.get("ending", {}).get("phase"))


def a_limited_job(field: str) -> Json:
    return an_aitj(trainer=a_replica(2, restartPolicy="OnFailure"), spec={field: LIMIT})


@pytest.mark.parametrize("suspension", [NOT, SUSPENDED, RESUMED])
@pytest.mark.parametrize("pods", PODS)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("field", ["pendingTimeLimit", "creatingTimeLimit", "timeLimit"])
def test_a_limit_of_an_aitrainingjob_is_over_when_the_rule_says_so(
    field: str, stored: str, pods: str, suspension: str
) -> None:
    reach, phase, waited, has_run = STORED[stored]
    make, waits = PODS[pods]
    job = reach(a_limited_job(field))
    assert job.get("status", {}).get("phase", "") == phase
    if suspension == RESUMED:
        job = with_spec(suspended(job), suspend=False)
    elif suspension == SUSPENDED:
        job = with_spec(job, suspend=True)
    children = [*services_of(job), *make(job)]

    early, late = (plan_of(job, children, now=later(seconds)) for seconds in (LIMIT - 1, LIMIT))

    stage = {"pendingTimeLimit": NODES, "creatingTimeLimit": CONTAINERS}.get(field)
    is_over = has_run if stage is None else waited == waits == stage
    assert not is_timeout(early)
    assert is_timeout(late) == (is_over and suspension == NOT)


@pytest.mark.parametrize(("field", "state"), [("pendingTimeLimit", NO_NODE), ("creatingTimeLimit", CREATED)])
@pytest.mark.parametrize("stop", ["suspend", "preemption", "invalid spec"])
def test_after_time_in_which_a_job_could_not_start_its_limit_on_waiting_starts_anew(
    field: str, state: Mapping[str, Any], stop: str
) -> None:
    job = with_spec(a_limited_job(field), requeueOnPreemption=True)
    job = seen(job, trainers(job, state, state))
    meta, spec, back = job["metadata"], job["spec"], later(10_000)
    stopped: Json = {
        "suspend": {**job, "spec": {**spec, "suspend": True}},
        "preemption": {**job, "metadata": {**meta, "annotations": {"Preempted": "for a larger job"}}},
        "invalid spec": {**job, "spec": {**spec, "restartingExitCode": "SIGNONSENSE"}},
    }[stop]
    stopped = seen(stopped, [] if stop != "invalid spec" else trainers(job, state, state), at=later(1))
    job = seen({**stopped, "metadata": meta, "spec": spec}, trainers(job, state, state), at=back)
    children = [*services_of(job), *trainers(job, state, state)]

    early, late = (plan_of(job, children, now=back + timedelta(seconds=s)) for s in (LIMIT - 1, LIMIT))

    assert (early.requeue_after, is_timeout(early), is_timeout(late)) == (1.0, False, True)


def test_the_limit_on_creation_begins_when_all_pods_have_nodes_also_after_a_restart() -> None:
    job = restarting(a_limited_job("creatingTimeLimit"), NO_NODE)
    children = [*services_of(job), *trainers(job, CREATED, CREATED)]

    first = plan_of(job, children, now=later(5000))
    job = with_status(job, first)

    assert first.requeue_after == LIMIT
    assert not is_timeout(plan_of(job, children, now=later(5000 + LIMIT - 1)))
    assert is_timeout(plan_of(job, children, now=later(5000 + LIMIT)))


def test_the_back_off_of_a_restart_is_no_time_of_waiting_for_nodes() -> None:
    """No pod is created meanwhile, so none can have waited."""
    job = an_aitj(
        trainer=a_replica(1, restartPolicy="OnFailure", restartBackoffSeconds=200), spec={"pendingTimeLimit": 60}
    )
    for at in (0, 10):  # the second restart in a row waits
        job = seen(job, trainers(job, RUNS), at=later(at))
        job = seen(job, trainers(job, FAILS), at=later(at), passes=1)
        job = seen(job, [], at=later(at))
    assert job["status"]["phase"] == "Restarting"

    during = plan_of(job, services_of(job), now=later(10 + 199))
    after = plan_of(job, services_of(job), now=later(10 + 200))

    assert (is_timeout(during), is_timeout(after)) == (False, False)
    assert after.creates


# --- elastic roles: those that are enough have started ---


@pytest.mark.parametrize("stored", ["Pending", "Running"])
def test_an_auto_role_waits_for_no_more_than_its_minimum(stored: str) -> None:
    worker = a_replica(3, edlPolicy="Auto", minReplicas=1, maxReplicas=3)
    job = an_aitj(trainer=worker, spec={"pendingTimeLimit": LIMIT})
    first = NO_NODE if stored == "Pending" else RUNS
    job = seen(job, trainers(job, first, NO_NODE, NO_NODE))
    assert job["status"]["phase"] == stored
    children = [*services_of(job), *trainers(job, RUNS, NO_NODE, NO_NODE)]

    assert not is_timeout(plan_of(job, children, now=later(LIMIT)))


def test_replicas_that_a_job_can_start_without_may_be_queued_while_its_limit_runs() -> None:
    worker = a_replica(3, edlPolicy="Auto", minReplicas=1, maxReplicas=3)
    job = an_aitj(trainer=worker, spec={"pendingTimeLimit": LIMIT})
    waiting = [trainer(job, 0, **NO_NODE), *(trainer(job, index, is_queued=True, **NO_NODE) for index in (1, 2))]
    job = seen(job, waiting)

    assert is_timeout(plan_of(job, [*services_of(job), *waiting], now=later(LIMIT)))


def test_a_clock_that_was_ahead_lengthens_no_limit_on_waiting() -> None:
    job = a_limited_job("pendingTimeLimit")
    job = seen(job, trainers(job, NO_NODE, NO_NODE), at=later(6 * 3600))
    job = seen(job, trainers(job, NO_NODE, NO_NODE))

    children = [*services_of(job), *trainers(job, NO_NODE, NO_NODE)]
    assert is_timeout(plan_of(job, children, now=later(LIMIT)))


def test_a_job_that_runs_and_is_scaled_up_by_hand_waits_for_nothing() -> None:
    worker = a_replica(1, edlPolicy="Manual", minReplicas=1, maxReplicas=3)
    job = an_aitj(trainer=worker, spec={"pendingTimeLimit": LIMIT})
    job = with_spec(seen(job, trainers(job, RUNS)), elasticReplicas=3)
    job = seen(job, trainers(job, RUNS, NO_NODE, NO_NODE))
    children = [*services_of(job), *trainers(job, RUNS, NO_NODE, NO_NODE)]

    assert not is_timeout(plan_of(job, children, now=later(LIMIT)))


# --- the deadline of the other kinds ---


class Row(NamedTuple):
    build: Callable[[Json], Json]
    """A job with these fields in its run policy."""
    suspend: Callable[[Json, bool], Json]
    plan: Callable[..., Plan]
    running: Callable[[Json], list[Any]]
    pending: Callable[[Json], list[Any]]
    has_failed: Callable[[Mapping[str, Any]], bool]


def _suspend(job: Json, suspend: bool) -> Json:
    return with_spec(job, runPolicy={**job["spec"]["runPolicy"], "suspend": suspend})


def _has_failed_condition(status: Mapping[str, Any]) -> bool:
    return any((c["type"], c["status"]) == ("Failed", "True") for c in status.get("conditions", ()))


def _of_pods(build: Callable[[Json], Json], has_failed: Callable[[Mapping[str, Any]], bool] | None = None) -> Row:
    return Row(
        build=build,
        suspend=_suspend,
        plan=plan_of,
        running=children_of,
        pending=partial(children_of, phase="Pending"),
        has_failed=has_failed or (lambda status: status.get("phase") == "Failed"),
    )


def _mxjob(policy: Json) -> Json:
    """It restarts pods that are lost."""
    replica = an_mx_replica(restartPolicy="OnFailure")
    return an_mxjob(policy=policy, Scheduler=replica, Server=replica, Worker=replica)


DEADLINES: Mapping[str, Row] = {
    "MXJob": _of_pods(_mxjob, _has_failed_condition),
    "DIJob": _of_pods(lambda policy: a_dijob(spec={"runPolicy": policy})),
    "DIJob with tasks": _of_pods(lambda policy: a_ditask(spec={"runPolicy": policy})),
    "NerveXJob": _of_pods(lambda policy: with_aggregator(a_nervexjob(spec={"runPolicy": policy}))),
    "MxJob": Row(
        build=lambda policy: mlkube.a_mxjob(RuntimeId=mlkube.ID, **policy),
        suspend=lambda job, suspend: with_spec(job, suspend=suspend),
        plan=mlkube.plan_of,
        running=mlkube.running,
        pending=lambda job: [mlkube.a_service(job), *(mlkube.a_job(job, *place) for place in mlkube.places_of(job))],
        has_failed=lambda status: status.get("state") == "Failed",
    ),
}


def looked_at(row: Row, job: Json, children: list[Any], at: datetime) -> Json:
    for _ in range(3):
        job = with_status(job, row.plan(job, children, now=at))
    return job


@pytest.mark.parametrize("suspension", [NOT, SUSPENDED, RESUMED])
@pytest.mark.parametrize("pods", ["none", "pending", "running"])
@pytest.mark.parametrize("stored", ["pending", "running"])
@pytest.mark.parametrize("kind", DEADLINES)
def test_a_deadline_is_over_when_its_time_is_unless_the_job_is_suspended(
    kind: str, stored: str, pods: str, suspension: str
) -> None:
    row = DEADLINES[kind]
    make: Mapping[str, Callable[[Json], list[Any]]]
    make = {"none": lambda job: [], "pending": row.pending, "running": row.running}
    job = row.build({"activeDeadlineSeconds": LIMIT})
    job = looked_at(row, job, [], NOW)
    job = looked_at(row, job, make[stored](job), NOW)
    if suspension == RESUMED:
        job = row.suspend(looked_at(row, row.suspend(job, True), [], later(1)), False)
    elif suspension == SUSPENDED:
        job = row.suspend(job, True)
    children = make[pods](job)

    early, late = (row.plan(job, children, now=later(seconds)) for seconds in (LIMIT - 1, LIMIT))

    assert not row.has_failed(early.status or {})
    assert row.has_failed(late.status or {}) == (suspension == NOT)
