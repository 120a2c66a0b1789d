"""A number or a time of a stored job, however extreme, never makes the job unplannable.

The definitions bound every number, but jobs may have been stored under older definitions, and people edit statuses.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.build import (
    NOW,
    STAMP,
    Json,
    a_container,
    a_dijob,
    a_ditask,
    a_nervexjob,
    a_node,
    a_pod,
    a_replica,
    a_task,
    a_template,
    an_aitj,
    an_mx_replica,
    an_mxjob,
    children_of,
    plan_of,
    replicas_of,
    services_of,
    with_aggregator,
    with_status,
)
from tests.kinds.mlkube import build as mlkube
from trainmaster.core.plan import Plan

NUMBERS = (-(2**63), -1, 300_000_000_000, 2**63 - 1)
TIMES = ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59")

LONGEST = 2**31 - 1
"""Seconds. No timer needs more."""

POLICY = {"activeDeadlineSeconds": 600, "ttlSecondsAfterFinished": 60, "schedulingPolicy": {"minAvailable": 1}}


COLLECTOR = {"collector": {"template": a_template(a_container("di-container"))}}
DECLARED = {"members": {"cartpole-collector-aaaaa": {"role": "collector", "at": STAMP, "attempt": 1, "gpus": 1}}}


def _mx(replicas: int) -> Json:
    return an_mx_replica(replicas, restartPolicy="OnFailure")


JOBS: Mapping[str, Callable[[], Json]] = {
    "AITrainingJob": lambda: an_aitj(
        ps=a_replica(1, restartPolicy="OnFailure", restartLimit=3, restartBackoffSeconds=10, restartResetSeconds=60),
        trainer=a_replica(2, edlPolicy="Auto", minReplicas=1, maxReplicas=2, restartPolicy="Always"),
        spec={
            "timeLimit": 600,
            "pendingTimeLimit": 600,
            "creatingTimeLimit": 600,
            "ttlSecondsAfterFinished": 60,
            "elasticReplicas": 2,
        },
    ),
    "MXJob": lambda: an_mxjob(policy={**POLICY, "backoffLimit": 3}, Scheduler=_mx(1), Server=_mx(1), Worker=_mx(2)),
    "DIJob": lambda: a_dijob(spec={"runPolicy": POLICY, **COLLECTOR}, status={"declared": DECLARED}),
    "DIJob with tasks": lambda: a_ditask(
        "cartpole", a_task("learner"), a_task("collector", 2), spec={"backoffLimit": 3, "runPolicy": POLICY}
    ),
    "NerveXJob": lambda: with_aggregator(a_nervexjob(spec={"runPolicy": POLICY})),
    "MxJob": lambda: mlkube.a_mxjob(
        RuntimeId=mlkube.ID, backoffLimit=3, activeDeadlineSeconds=600, ttlSecondsAfterFinished=60
    ),
}


Make = Callable[[Json], list[Any]]


def plan(job: Json, children: Sequence[Any], seconds: float) -> Plan:
    now = NOW + timedelta(seconds=seconds)
    if job["kind"] == "MxJob":
        return mlkube.plan_of(job, children, now=now)
    return plan_of(job, children, now=now, nodes=[a_node(conditions={"Broken": "x"}, since=None)])


def _none(job: Json) -> list[Any]:
    return []


def _running(job: Json) -> list[Any]:
    return mlkube.running(job) if job["kind"] == "MxJob" else children_of(job)


def _ended(code: int) -> Make:
    def make(job: Json) -> list[Any]:
        if job["kind"] == "MxJob":
            places = mlkube.places_of(job)
            jobs = [mlkube.a_job(job, *place, succeeded=int(not code)) for place in places]
            pods = [mlkube.a_pod(job, *p, code=code, phase="Failed" if code else "Succeeded") for p in places]
            return [mlkube.a_service(job), *jobs, *pods]
        return [*(a_pod(job, *place, exit_code=code) for place in replicas_of(job)), *services_of(job)]

    return make


def _stuck(job: Json) -> list[Any]:
    """Pods whose containers cannot be created, and that are being deleted."""
    if job["kind"] == "MxJob":
        return [mlkube.a_pod(job, *mlkube.places_of(job)[0], phase="Pending", waiting="ErrImagePull", deleting=True)]
    (first, *others) = replicas_of(job)
    waits = {"aitj-main": "ErrImagePull: no such image"}
    stuck = a_pod(job, *first, phase="Pending", node="node-1", containers=waits)
    return [stuck, *(a_pod(job, *place, deleting=True) for place in others)]


def lives(job: Json) -> Iterator[tuple[Json, list[Any]]]:
    """The job as it is stored in each part of its life, with its children then."""
    for make in (_none, _running, _ended(1), _none, _stuck, _running, _ended(0), _none, _none):
        children = make(job)
        yield job, children
        for _ in range(2):
            job = with_status(job, plan(job, children, 1))


REMEMBERED = {
    "creationErrors": {"trainer-0": STAMP},
    "nodeTroubles": {"node-1": STAMP},
    "wait": {"stage": "Nodes", "since": STAMP},
}
"""Parts of a status that short lives do not have."""


def replaced(value: Any, number: int, time: str) -> Iterator[Any]:
    """Copies of a JSON value, each with one number or time in it replaced. Templates are the user's own."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "template":
                yield from ({**value, key: new} for new in replaced(inner, number, time))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from ([*value[:i], new, *value[i + 1 :]] for new in replaced(inner, number, time))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield number
    elif isinstance(value, str) and _TIME.match(value):
        yield time


_TIME = re.compile(r"\d{4}-\d\d-\d\dT")


def variants(job: Json) -> Iterator[Json]:
    """The job with one extreme value, in its spec or in its status."""
    status = REMEMBERED | job.get("status", {})
    for number, time in zip(NUMBERS, TIMES, strict=True):
        yield from ({**job, "spec": spec} for spec in replaced(job["spec"], number, time))
        yield from ({**job, "status": new} for new in replaced(status, number, time))


@pytest.mark.parametrize("kind", JOBS)
def test_no_number_and_no_time_makes_a_job_unplannable(kind: str) -> None:
    for job, children in lives(JOBS[kind]()):
        for variant in variants(job):
            for seconds in (3, 10_000):
                planned = plan(variant, children, seconds)

                assert planned.requeue_after is None or 0 <= planned.requeue_after <= LONGEST, variant
                assert all(create.body.get("spec", {}).get("minMember", 1) > 0 for create in planned.creates)


@pytest.mark.parametrize("kind", JOBS)
def test_a_deadline_above_the_maximum_of_the_definition_is_no_reason_to_refuse_a_stored_job(kind: str) -> None:
    """Other operators have accepted it, as the way to write that there is no deadline."""
    job = JOBS[kind]()
    spec = job["spec"]
    if kind in ("AITrainingJob", "MxJob"):
        spec[{"AITrainingJob": "timeLimit", "MxJob": "activeDeadlineSeconds"}[kind]] = 2**63 - 1
    else:
        spec["runPolicy"] = {**spec["runPolicy"], "activeDeadlineSeconds": 2**63 - 1}
    for make in (_none, _running):
        for _ in range(3):
            job = with_status(job, plan(job, make(job), 1))

    assert plan(job, _running(job), LONGEST - 10).status is None
