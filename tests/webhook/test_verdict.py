from typing import Any

import pytest

from tests.build import a_container, a_dijob, a_template, an_aitj, an_mxjob, kind_of, plan_of, with_spec
from tests.manifests.bad import ROWS, Row
from tests.webhook.build import Json, a_request
from trainmaster.core.condition import ACCEPTED
from trainmaster.webhook.review import BadReview
from trainmaster.webhook.verdict import Verdict, mutation, verdict

RUN = a_container("di-container", command=["run"])
GOOD = a_dijob(coordinator=a_template(RUN))
TAKEN = {
    "coordinator": {"template": a_template(RUN, volumes=[{"name": "data"}])},
    "volumes": [{"name": "data"}],
}
BAD = a_dijob(spec=TAKEN)
WRONG = "spec.volumes[0].name: 'data' is also a volume of spec.coordinator.template; rename one"


def judged(job: Json, old: Json | None = None, **request: Any) -> Verdict:
    return verdict(kind_of(job), a_request(job, old=old, **request))


def patched(job: Json, old: Json | None = None, **request: Any) -> list[Json]:
    return mutation(kind_of(job), a_request(job, old=old, **request))


# --- errors ---


@pytest.mark.parametrize("job", [GOOD, an_aitj()], ids=["DIJob", "AITrainingJob"])
def test_a_good_job_has_no_errors(job: Json) -> None:
    assert judged(job).errors == ()


def test_a_bad_job_is_told_what_to_change() -> None:
    assert judged(BAD).errors == (WRONG,)


def test_all_errors_are_told_at_once() -> None:
    job = a_dijob(name="1st", spec=TAKEN)

    assert [error.partition(":")[0] for error in judged(job).errors] == ["metadata.name", "spec.volumes[0].name"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS if "name" in row.manifest["metadata"]])
def test_it_says_what_the_operator_would_say(row: Row) -> None:
    conditions = (plan_of(row.manifest).status or {}).get("conditions", ())
    said = [c["message"] for c in conditions if (c["type"], c["status"]) == (ACCEPTED, "False")]

    assert ["; ".join(judged(row.manifest).errors)] == (said or [""])


# --- updates ---


def test_an_update_to_something_bad_is_refused() -> None:
    assert judged(BAD, GOOD).errors == (WRONG,)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(BAD | {"metadata": BAD["metadata"] | {"labels": {"team": "rl"}}}, id="labels"),
        pytest.param(BAD | {"metadata": BAD["metadata"] | {"finalizers": []}}, id="finalizers"),
        pytest.param(BAD | {"status": {"phase": "Created"}}, id="status"),
        pytest.param(BAD | {"spec": BAD["spec"] | {"cleanPodPolicy": "All"}}, id="something else in the spec"),
    ],
)
def test_what_was_stored_before_is_forgiven(job: Json) -> None:
    assert judged(job, BAD).errors == ()


def test_a_new_error_beside_an_old_one_is_told_alone() -> None:
    worse = a_dijob(spec=TAKEN | {"learner": {"template": a_template(RUN, volumes=[{"name": "data"}])}})

    assert judged(worse, BAD).errors == (
        "spec.volumes[0].name: 'data' is also a volume of spec.learner.template; rename one",
    )


SETTLED = "is settled when the job is created; create it anew to change who drives it"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"managedBy": "example.com/a"}, id="given"),
        pytest.param({"managedBy": "example.com/a"}, {"managedBy": "example.com/b"}, id="changed"),
        pytest.param({"managedBy": "example.com/a"}, {}, id="taken away"),
    ],
)
def test_who_drives_a_job_is_settled_when_it_is_created(before: Json, after: Json) -> None:
    for job in (GOOD, an_aitj(), an_mxjob()):
        assert judged(with_spec(job, **after), with_spec(job, **before)).errors == (f"spec.managedBy: {SETTLED}",)
    policies = [with_spec(an_mxjob(), runPolicy=policy) for policy in (after, before)]
    assert judged(*policies).errors == (f"spec.runPolicy.managedBy: {SETTLED}",)


@pytest.mark.parametrize("old", [GOOD | {"status": {"phase": "Failed"}}, GOOD | {"spec": {"coordinator": 7}}])
def test_who_drives_a_job_stays_after_its_end_and_in_a_job_that_cannot_be_decoded(old: Json) -> None:
    assert judged(with_spec(GOOD, managedBy="example.com/a"), old).errors == (f"spec.managedBy: {SETTLED}",)


def sized(*replicas: int) -> Json:
    return an_aitj(roles=dict(zip("ab", replicas, strict=True)))


@pytest.mark.parametrize(
    ("old", "new", "is_refused"),
    [
        pytest.param(None, (5000, 5000), False, id="created with as many as there may be"),
        pytest.param(None, (5000, 5001), True, id="created with one more"),
        pytest.param((5000, 5000), (5000, 5001), True, id="raised above"),
        pytest.param((5000, 6000), (5000, 6000), False, id="stored before the rule and left so"),
        pytest.param((5000, 6000), (5000, 5000), False, id="stored before the rule and lowered to the limit"),
        pytest.param((5000, 6000), (5000, 6001), True, id="stored before the rule and raised"),
    ],
)
def test_the_replicas_of_a_job_are_bounded_in_all(
    old: tuple[int, int] | None, new: tuple[int, int], is_refused: bool
) -> None:
    errors = judged(sized(*new), sized(*old) if old else None).errors

    assert any(f"add up to {sum(new)}, and a job may have 10000" in error for error in errors) == is_refused


def noted(size: int, **labels: str) -> Json:
    """A job with a text of so many bytes."""
    meta = GOOD["metadata"]
    return {**GOOD, "metadata": {**meta, "labels": labels, "annotations": {"note": "x" * size}}}


@pytest.mark.parametrize(
    ("old", "new", "is_refused"),
    [
        pytest.param(None, noted(250 * 1024), False, id="a large job"),
        pytest.param(None, noted(256 * 1024), True, id="a job that is too large"),
        pytest.param(noted(1), noted(256 * 1024), True, id="an edit that makes it too large"),
        pytest.param(noted(300_000), noted(300_000, team="a"), False, id="a label of a job that was stored before"),
        pytest.param(noted(300_000), noted(310_000), True, id="an edit that makes it larger still"),
    ],
)
def test_a_job_has_at_most_256_kib(old: Json | None, new: Json, is_refused: bool) -> None:
    found = judged(new, old)

    assert [error.partition(";")[0].partition("KiB ")[2] for error in found.errors] == (
        ["without its status, and a job may have 256 KiB"] if is_refused else []
    )


def test_a_job_on_its_way_out_may_be_anything() -> None:
    going = BAD | {"metadata": BAD["metadata"] | {"deletionTimestamp": "2026-11-15T12:00:00Z"}}

    assert judged(going, GOOD) == Verdict()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_at_its_end_may_be_anything(phase: str) -> None:
    assert judged(BAD, GOOD | {"status": {"phase": phase}}) == Verdict()


def test_nobody_gets_in_by_saying_that_the_job_has_ended() -> None:
    status: Any = [{"not": "a status"}]

    assert judged(BAD, GOOD | {"status": status}).errors == (WRONG,)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param({"operation": "DELETE", "object": None}, id="delete"),
        pytest.param({"operation": "CONNECT"}, id="connect"),
        pytest.param({"subResource": "status"}, id="status"),
    ],
)
def test_what_is_not_ours_to_judge_is_allowed(request_: Json) -> None:
    assert judged(BAD, **request_) == Verdict()
    assert patched(BAD, **request_) == []


def test_a_create_without_an_object_is_a_bad_review() -> None:
    with pytest.raises(BadReview, match="CREATE without an object"):
        judged(GOOD, object=None)


# --- warnings ---


def test_a_warning_does_not_refuse() -> None:
    found = judged(a_dijob())

    assert (found.errors, len(found.warnings)) == ((), 1)


def test_a_kind_may_warn_of_its_own_fields() -> None:
    found = judged(an_aitj(spec={"frameworkType": "mpi"}))

    assert found.errors == ()
    assert found.warnings[0].startswith("spec.frameworkType: sets no variables, since 'mpi' is not one of ")


def test_an_update_warns_of_a_changed_spec_alone() -> None:
    job = a_dijob()
    labelled = job | {"metadata": job["metadata"] | {"labels": {"a": "b"}}}

    assert judged(labelled, job).warnings == ()
    assert len(judged(a_dijob(clean="All"), job).warnings) == 1


# --- defaults ---


@pytest.mark.parametrize(
    "given", [pytest.param({}, id="absent"), pytest.param({"cleanPodPolicy": ""}, id="empty"), {"cleanPodPolicy": None}]
)
def test_an_empty_policy_becomes_running(given: Json) -> None:
    job = a_dijob(spec=given)

    assert patched(job) == [{"op": "add", "path": "/spec/cleanPodPolicy", "value": "Running"}]


@pytest.mark.parametrize(
    ("job", "old"),
    [
        pytest.param(a_dijob(clean="None"), None, id="the user's word stays"),
        pytest.param(a_dijob(clean="nonsense"), None, id="and is judged later"),
        pytest.param(an_aitj(), None, id="a kind without defaults"),
        pytest.param(a_dijob() | {"spec": "nonsense"}, None, id="no spec that could be understood"),
        pytest.param(a_dijob(labels={"a": "b"}), a_dijob(), id="a label on an older job"),
        pytest.param(
            a_dijob(name="x", clean=""), a_dijob(name="x", clean="All", status={"phase": "Failed"}), id="at its end"
        ),
    ],
)
def test_nothing_else_is_written(job: Json, old: Json | None) -> None:
    assert patched(job, old) == []


def test_a_changed_spec_gets_its_default_again() -> None:
    assert len(patched(a_dijob(), a_dijob(clean="All"))) == 1
