"""A job may have 256 KiB of JSON, what its user did not write not counted."""

from typing import Any

import msgspec
import pytest

from tests.build import (
    Json,
    a_container,
    a_dijob,
    a_ditask,
    a_nervexjob,
    a_pod,
    a_replica,
    a_template,
    an_aitj,
    an_mx_replica,
    an_mxjob,
    kind_of,
    plan_of,
    view_of,
    with_aggregator,
)
from tests.manifests.build import crew, mlkubejob
from trainmaster.core.errors import BadSpec
from trainmaster.kinds.registry import KINDS

LIMIT = 256 * 1024


def an_mlkubejob(group: str) -> Json:
    job: Json = mlkubejob("mnist", group=group, jobMode="local", replicaSpecs=[crew("WORKER")])
    meta = {"namespace": "ml", "uid": "uid-of-mnist", "generation": 1, "resourceVersion": "7"}
    return job | {"metadata": {**job["metadata"], **meta}}


JOBS = (
    an_aitj(),
    an_mxjob(),
    an_mlkubejob("mxnet.mlkube.io"),
    an_mlkubejob("mlkube.io"),
    a_dijob(),
    a_ditask(),
    with_aggregator(a_nervexjob()),
)
each = pytest.mark.parametrize("job", [pytest.param(job, id=job["apiVersion"]) for job in JOBS])


def of_size(job: Json, size: int) -> Json:
    """The job with an annotation that makes it so many bytes long, its status not counted."""

    def with_note(text: str) -> Json:
        return {**job, "metadata": {**job["metadata"], "annotations": {"note": text}}}

    written = {key: value for key, value in with_note("").items() if key != "status"}
    without_comma = len(',"status":') if "status" in job else 0
    return with_note("x" * (size - without_comma - len(msgspec.json.encode(written))))


def errors_of(job: Json) -> tuple[str, ...]:
    try:
        kind_of(job).decode(view_of(job))
    except BadSpec as bad:
        return bad.errors
    return ()


def test_every_registered_kind_is_held_to_it() -> None:
    assert {type(kind_of(job)) for job in JOBS} == set(KINDS)


@each
def test_a_job_of_256_kib_is_accepted_and_one_byte_more_is_not(job: Json) -> None:
    assert errors_of(of_size(job, LIMIT)) == ()
    assert len(errors_of(of_size(job, LIMIT + 1))) == 1


@each
def test_a_larger_job_is_told_so_with_the_numbers_and_nothing_is_created(job: Json) -> None:
    plan = plan_of(of_size(job, 300 * 1024))

    assert (plan.creates, plan.deletes, plan.patches) == ((), (), ())
    assert plan.status is not None
    (accepted,) = [c for c in plan.status["conditions"] if c["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert accepted["message"] == (
        "object: it has 300 KiB without its status, and a job may have 256 KiB; "
        "move scripts and data into a ConfigMap or a volume"
    )


@each
def test_what_the_user_did_not_write_does_not_count(job: Json) -> None:
    managed = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"x" * LIMIT: {}}}}]
    unknown = {**job.get("status", {}), "later": "x" * LIMIT}

    found = {**job, "metadata": {**job["metadata"], "managedFields": managed}, "status": unknown}

    assert errors_of(found) == ()


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Succeed"}, id="ended"),
        pytest.param({"phase": "Terminating", "ending": {"phase": "Succeed"}}, id="ending"),
    ],
)
def test_a_larger_job_that_has_its_result_is_cleaned_up(status: dict[str, Any]) -> None:
    job = of_size(an_aitj(clean="All", status=status), 2 * LIMIT)

    plan = plan_of(job, [a_pod(job, "trainer")])

    assert len(plan.deletes) == 1


def test_replicas_that_share_a_large_template_count_once() -> None:
    template = a_template(a_container("aitj-main"), annotations={"note": "x" * 200_000})
    mx = a_template(a_container("mxnet"), annotations={"note": "x" * 200_000})

    assert errors_of(an_aitj(trainer=a_replica(100, template))) == ()
    assert errors_of(an_mxjob(Worker=an_mx_replica(100, mx))) == ()


def test_a_job_with_a_large_template_that_has_its_result_is_cleaned_up() -> None:
    template = a_template(a_container("aitj-main", args=["x" * 1_300_000]))
    job = an_aitj(clean="All", status={"phase": "Succeed"}, trainer=a_replica(1, template))

    assert len(view_of(job).raw) < 10_000
    assert len(plan_of(job, [a_pod(job, "trainer")]).deletes) == 1
