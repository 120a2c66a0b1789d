"""What all kinds share: reading, rejecting and recovering, refusals of the API server, purity, limits."""

import copy
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import (
    NOW,
    STAMP,
    Json,
    a_container,
    a_dijob,
    a_nervexjob,
    a_pod,
    a_replica,
    a_template,
    an_aitj,
    children_of,
    kind_of,
    observed,
    plan_of,
    replicas_of,
    services_of,
    settled,
    view_of,
    with_aggregator,
    with_spec,
    with_status,
)
from tests.odd import MARK, VALUES, with_value
from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import POD, SERVICE, Key
from trainmaster.core.plan import LAZY, Create, Delete, Event, Plan
from trainmaster.core.view import JOB_CODEC, JobView
from trainmaster.kinds.base import Failure, Settings, named
from trainmaster.kinds.registry import KINDS, all_kinds

LATER = NOW + timedelta(minutes=5)
GOOD = (
    pytest.param(a_dijob(), id="DIJob"),
    pytest.param(an_aitj(trainer=2, ps=1), id="AITrainingJob"),
    pytest.param(with_aggregator(a_nervexjob()), id="NerveXJob"),
)
BAD = (
    pytest.param(a_dijob("7up"), a_dijob("up"), "Created", id="DIJob"),
    pytest.param(an_aitj("7up"), an_aitj("up"), "Pending", id="AITrainingJob"),
    pytest.param(with_aggregator(a_nervexjob("7up")), a_nervexjob("up"), "Created", id="NerveXJob"),
)
"""A job that must not run, the same after its user fixed it, and its first phase."""


def condition_of(status: Any, type_: str) -> Json:
    (found,) = [c for c in status["conditions"] if c["type"] == type_]
    return dict(found)


def fixed(stored: Json, good: Json) -> Json:
    """The good job with the status that the bad one had, one edit later."""
    return with_spec({**good, "status": stored["status"]})


def a_failure(job: Json, error: str = "exceeded quota") -> Failure:
    return Failure(next(create for create in plan_of(job).creates if create.resource == POD), error)


def concluded(job: Json, plan: Plan, *failures: Failure) -> Plan:
    return kind_of(job).conclude(view_of(job), plan, failures, LATER)


def test_the_registry_names_every_kind_once() -> None:
    assert [str(kind.resource) for kind in KINDS] == [
        "dijobs.diengine.opendilab.org",
        "dijobs.diengine.opendilab.org",
        "aitrainingjobs.elasticdeeplearning.ai",
        "nervexjobs.nervex.sensetime.com",
        "mxjobs.kubeflow.org",
        "mxjobs.mxnet.mlkube.io",
        "mxjobs.mlkube.io",
    ]
    assert [kind.name for kind in all_kinds(Settings())] == [
        "dijob",
        "dijob-v2alpha1",
        "aitrainingjob",
        "nervexjob",
        "mxjob",
        "mxjob.mxnet.mlkube.io",
        "mxjob.mlkube.io",
    ]


# --- whose job it is ---------------------------------------------------------------------------


def managed_by(job: Json, name: str) -> Json:
    return {**job, "spec": {**job["spec"], "managedBy": name}}


@pytest.mark.parametrize("job", GOOD)
def test_a_job_that_somebody_else_drives_is_left_alone(job: Json) -> None:
    assert plan_of(job).creates
    assert plan_of(managed_by(job, "kueue.x-k8s.io/multikueue")) == Plan()
    assert plan_of({**job, "spec": {**job["spec"], "runPolicy": {"managedBy": "a.b/c"}}}) == Plan()


@pytest.mark.parametrize("job", GOOD)
def test_a_job_that_names_us_is_driven(job: Json) -> None:
    ours = f"{kind_of(job).resource.group}/trainmaster"

    assert plan_of(managed_by(job, ours)) == plan_of(job)
    assert plan_of(managed_by(job, "")) == plan_of(job)


@pytest.mark.parametrize(("bad", "good", "phase"), BAD)
def test_not_even_a_bad_job_of_somebody_else_is_told_so(bad: Json, good: Json, phase: str) -> None:
    assert plan_of(bad).status
    assert plan_of(managed_by(bad, "kueue.x-k8s.io/multikueue")) == Plan()


@pytest.mark.parametrize("spec", [None, "busybox", [], {"managedBy": 7}, {"runPolicy": []}])
def test_a_spec_of_a_strange_shape_is_ours_to_complain_about(spec: Any) -> None:
    status = plan_of({**an_aitj(), "spec": spec}).status

    assert condition_of(status, "Accepted")["status"] == "False"


# --- laws in small -----------------------------------------------------------------------------


@pytest.mark.parametrize("job", GOOD)
def test_the_same_facts_give_the_same_plan(job: Json) -> None:
    for children in ([], children_of(job), children_of(job, phase="Failed")):
        assert plan_of(copy.deepcopy(job), list(children)) == plan_of(job, list(reversed(children)))


@pytest.mark.parametrize("job", GOOD)
def test_planning_changes_neither_the_job_nor_what_was_observed(job: Json) -> None:
    view, seen = view_of(job), observed(job, children_of(job)[1:])
    before = copy.deepcopy((view, seen))

    kind_of(job).plan(view, seen, NOW)

    assert (view, seen) == before


@pytest.mark.parametrize("job", GOOD)
def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector(job: Json) -> None:
    going = {**job, "metadata": {**job["metadata"], "deletionTimestamp": STAMP}}

    assert plan_of(going) == Plan()
    assert plan_of(going, children_of(job, phase="Failed")) == Plan()


@pytest.mark.parametrize("job", GOOD)
def test_times_on_the_wire_have_whole_seconds(job: Json) -> None:
    plan = plan_of(job, now=NOW + timedelta(microseconds=999_999))

    assert plan.status == plan_of(job).status


@pytest.mark.parametrize("job", GOOD)
def test_creates_carry_our_reference_and_deletes_the_uid_of_what_was_seen(job: Json) -> None:
    for create in plan_of(job).creates:
        (owner,) = create.body["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (job["metadata"]["uid"], True)
        assert create.key.namespace == job["metadata"]["namespace"]
    children = children_of(job)
    plan = plan_of(with_spec(with_status(job, {"phase": "Failed"}), cleanPodPolicy="All"), children)
    assert {delete.uid for delete in plan.deletes} == {child.uid for child in children}


# --- a spec that cannot be run -----------------------------------------------------------------


@pytest.mark.parametrize(("bad", "good", "phase"), BAD)
def test_a_bad_spec_ends_in_a_readable_condition_and_creates_nothing(bad: Json, good: Json, phase: str) -> None:
    plan = plan_of(bad)

    assert (plan.creates, plan.deletes) == ((), ())
    assert plan.status is not None
    assert (plan.status["phase"], plan.status["observedGeneration"]) == (phase, 1)
    accepted = condition_of(plan.status, "Accepted")
    assert accepted["message"].startswith("metadata.name: '7up' must start with a letter")
    assert (accepted["status"], accepted["reason"], accepted["lastTransitionTime"]) == ("False", "InvalidSpec", STAMP)
    assert plan.events == (Event("Warning", "InvalidSpec", accepted["message"]),)


def test_all_that_is_wrong_with_a_spec_stands_in_its_condition() -> None:
    plan = plan_of(a_dijob("7up", coordinator=a_template()))

    name, containers = condition_of(plan.status, "Accepted")["message"].rsplit("; ", 1)
    assert name.startswith("metadata.name: ")
    assert containers == "spec.coordinator.template.spec.containers: Expected `array` of length >= 1"


@pytest.mark.parametrize(("bad", "good", "phase"), BAD)
def test_a_bad_spec_is_told_once(bad: Json, good: Json, phase: str) -> None:
    stored = with_status(bad, plan_of(bad))

    assert plan_of(stored, now=LATER) == Plan()


@pytest.mark.parametrize(("bad", "good", "phase"), BAD)
def test_a_spec_that_was_fixed_is_accepted_and_runs(bad: Json, good: Json, phase: str) -> None:
    job = fixed(with_status(bad, plan_of(bad)), good)

    plan = plan_of(job, now=LATER)

    assert len(plan.creates) == 2 * len(replicas_of(good))
    assert plan.status is not None
    accepted = condition_of(plan.status, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("True", "Valid")
    assert accepted["lastTransitionTime"] == "2026-11-15T12:05:00Z"
    assert plan.status["conditions"][-1]["type"] == phase
    assert plan.status["observedGeneration"] == 2


@pytest.mark.parametrize("job", GOOD)
def test_a_good_job_is_not_told_that_it_was_accepted(job: Json) -> None:
    plan = plan_of(job)

    assert plan.status is not None
    assert "Accepted" not in [c["type"] for c in plan.status["conditions"]]


@pytest.mark.parametrize("job", GOOD)
def test_an_edit_that_breaks_a_running_job_leaves_its_pods_and_phase(job: Json) -> None:
    running, children = settled(job, children_of(job))
    broken = with_spec(running, cleanPodPolicy="Some")

    plan = plan_of(broken, children)

    assert (plan.creates, plan.deletes) == ((), ())
    assert plan.status is not None
    assert plan.status["phase"] == "Running"
    assert condition_of(plan.status, "Accepted")["message"].startswith("spec.cleanPodPolicy: ")
    assert plan.status["observedGeneration"] == 2


@pytest.mark.parametrize("policy", ["All", "None"])
@pytest.mark.parametrize("exit_code", [0, 1])
@pytest.mark.parametrize("job", GOOD)
def test_an_ended_job_does_not_go_on_saying_that_its_spec_is_bad(job: Json, exit_code: int, policy: str) -> None:
    job = with_spec(job, cleanPodPolicy=policy)
    running, children = settled(job, children_of(job))
    broken = with_spec(running, cleanPodPolicy="Some")
    broken = with_status(broken, plan_of(broken, children))
    pods = [a_pod(job, role, i, exit_code=exit_code) for role, i in replicas_of(job)]

    ended, _ = settled(with_spec(broken, cleanPodPolicy=policy), [*pods, *services_of(job)])

    assert condition_of(ended["status"], "Finished")["status"] == "True"
    assert condition_of(ended["status"], "Accepted")["status"] == "True"


@pytest.mark.parametrize(
    ("job", "phase"), [(a_dijob("7up"), "Failed"), (an_aitj("7up"), "Succeed"), (an_aitj(clean="Some"), "Timeout")]
)
def test_a_bad_spec_changes_nothing_about_a_job_that_has_ended(job: Json, phase: str) -> None:
    assert plan_of(with_status(job, {"phase": phase}), now=LATER) == Plan()


@pytest.mark.parametrize(
    ("job", "phase"), [pytest.param(a_dijob(), "Succeeded", id="DIJob"), pytest.param(an_aitj(), "Succeed", id="AITJ")]
)
@pytest.mark.parametrize(
    "field", [{"conditions": None}, {"conditions": [{"type": 1}]}, {"observedGeneration": "one"}], ids=str
)
def test_a_job_that_has_ended_stays_so_when_the_rest_of_its_status_cannot_be_read(
    job: Json, phase: str, field: Json
) -> None:
    assert plan_of(with_status(job, {"phase": phase, **field})) == Plan()


@pytest.mark.parametrize("job", GOOD)
@pytest.mark.parametrize(
    "status",
    [{"phase": 3}, {"phase": ["Failed"]}, {"phase": "Running", "conditions": "many"}, {"conditions": [{}]}],
    ids=str,
)
def test_a_status_that_nobody_can_read_is_written_anew_and_the_job_runs(job: Json, status: Json) -> None:
    settled_job, children = settled(with_status(job, status))

    assert len(children) == 2 * len(replicas_of(job))
    assert condition_of(settled_job["status"], "Accepted")["status"] == "True"


# --- refusals of the API server ----------------------------------------------------------------


@pytest.mark.parametrize("job", GOOD)
def test_a_pod_that_was_refused_is_told_in_a_condition_and_not_in_the_phase(job: Json) -> None:
    plan, failure = plan_of(job), a_failure(job)

    status = concluded(job, plan, failure).status

    assert status is not None
    assert plan.status is not None
    assert status["phase"] == plan.status["phase"]
    found = condition_of(status, "PodCreateFailed")
    assert (found["status"], found["reason"]) == ("True", "FailedCreate")
    assert found["message"] == f"pod {failure.action.key}: exceeded quota; trying again with back-off"
    assert found["lastTransitionTime"] == "2026-11-15T12:05:00Z"
    assert status["conditions"][-1] == plan.status["conditions"][-1]


@pytest.mark.parametrize("job", GOOD)
def test_the_time_of_a_refusal_has_whole_seconds(job: Json) -> None:
    late = LATER + timedelta(microseconds=999_999)

    found = kind_of(job).conclude(view_of(job), plan_of(job), [a_failure(job)], late)

    assert condition_of(found.status, "PodCreateFailed")["lastTransitionTime"] == "2026-11-15T12:05:00Z"


@pytest.mark.parametrize("job", GOOD)
def test_a_refusal_is_stored_at_once_with_all_that_the_plan_had(job: Json) -> None:
    plan = plan_of(job)
    lazy = Plan(creates=plan.creates, status=plan.status, lazy=LAZY, events=(Event("Normal", "A", "b"),))

    found = concluded(job, lazy, a_failure(job))

    assert not found.lazy
    assert (found.creates, found.events) == (lazy.creates, lazy.events)


@pytest.mark.parametrize("job", GOOD)
def test_a_refusal_that_was_told_already_is_not_stored_again(job: Json) -> None:
    stored = with_status(job, concluded(job, plan_of(job), a_failure(job)))

    again = concluded(stored, plan_of(stored), a_failure(job))

    assert again.status is None


@pytest.mark.parametrize(
    ("before", "after", "is_news"),
    [
        ("exceeded quota: used: pods=7", "exceeded quota: used: pods=12", False),
        ("webhook denied the request (id 5f2c9a)", "webhook denied the request (id 0b7d11)", False),
        ("exceeded quota: used: pods=7", "webhook denied the request", True),
    ],
)
def test_a_refusal_that_differs_in_numbers_and_ids_alone_is_not_told_again(
    before: str, after: str, is_news: bool
) -> None:
    job = a_dijob()
    first, second = (msgspec.structs.replace(a_failure(job), error=error) for error in (before, after))
    stored = with_status(job, concluded(job, plan_of(job), first))

    assert (concluded(stored, plan_of(stored), second).status is not None) == is_news


@pytest.mark.parametrize("job", GOOD)
def test_a_refusal_is_taken_back_when_everything_exists(job: Json) -> None:
    stored = with_status(job, concluded(job, plan_of(job), a_failure(job)))

    still = plan_of(stored, services_of(job))
    done = plan_of(stored, children_of(job, phase="Pending"), now=LATER + timedelta(minutes=1))

    assert condition_of(with_status(stored, still)["status"], "PodCreateFailed")["status"] == "True"
    assert done.status is not None
    found = condition_of(done.status, "PodCreateFailed")
    assert (found["status"], found["reason"]) == ("False", "Created")
    assert found["lastTransitionTime"] == "2026-11-15T12:06:00Z"


@pytest.mark.parametrize("policy", ["All", "None"])
@pytest.mark.parametrize("job", GOOD)
def test_an_ended_job_does_not_go_on_trying(job: Json, policy: str) -> None:
    job = with_spec(job, cleanPodPolicy=policy)
    stored = with_status(job, concluded(job, plan_of(job), a_failure(job)))
    role, index = replicas_of(job)[0]

    ended, _ = settled(stored, [a_pod(job, role, index, exit_code=1)])

    assert condition_of(ended["status"], "Finished")["status"] == "True"
    assert condition_of(ended["status"], "PodCreateFailed")["status"] == "False"


@pytest.mark.parametrize("job", GOOD)
def test_of_many_refusals_three_are_told(job: Json) -> None:
    failures = [
        Failure(Create(SERVICE, {"metadata": {"namespace": "ml", "name": f"s-{i}"}}, "x"), f"error {i}")
        for i in range(5)
    ]

    status = concluded(job, plan_of(job), *failures).status

    assert condition_of(status, "PodCreateFailed")["message"] == (
        "service ml/s-0: error 0; service ml/s-1: error 1; service ml/s-2: error 2; trying again with back-off"
    )


@pytest.mark.parametrize("job", GOOD)
def test_a_refusal_during_a_pass_without_a_status_keeps_the_stored_one(job: Json) -> None:
    stored = with_status(job, plan_of(job))

    status = concluded(stored, Plan(), a_failure(job)).status

    assert status is not None
    summary = stored["status"]["summary"]
    assert status["summary"] == {**summary, "message": status["conditions"][0]["message"]}
    assert {**status, "conditions": status["conditions"][1:], "summary": summary} == stored["status"]


# --- templates ---------------------------------------------------------------------------------

_words = st.text("abcdefgh", min_size=1, max_size=6).map(lambda word: f"x{word}")
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_words, inner, max_size=2),
    max_leaves=4,
)
_unknown = st.dictionaries(_words, _values, max_size=3)


@pytest.mark.parametrize("kind", ["DIJob", "AITrainingJob"])
@settings(max_examples=25, deadline=None, database=None)
@given(of_pod=_unknown, of_main=_unknown, of_other=_unknown, of_init=_unknown, of_env=_unknown)
def test_fields_that_we_have_never_heard_of_survive(
    kind: str, of_pod: Json, of_main: Json, of_other: Json, of_init: Json, of_env: Json
) -> None:
    main = "di-container" if kind == "DIJob" else "aitj-main"
    template = a_template(
        {**a_container(main, env=[{"name": "MINE", **of_env}]), **of_main},
        {**a_container("other"), **of_other},
        initContainers=[{**a_container("init"), **of_init}],
        **of_pod,
    )
    job = a_dijob(coordinator=template) if kind == "DIJob" else an_aitj(trainer=a_replica(1, template))

    (pod,) = [create.body for create in plan_of(job).creates if create.resource == POD]

    spec = pod["spec"]
    assert {key: spec[key] for key in of_pod} == of_pod
    for built, unknown in zip(spec["containers"], (of_main, of_other), strict=True):
        assert {key: built[key] for key in unknown} == unknown
        assert built["image"] == "registry.example/train:1"
    assert {key: spec["initContainers"][0][key] for key in of_init} == of_init
    assert spec["containers"][0]["env"][-1] == {"name": "MINE", **of_env}


# --- words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "p0"),
        (2, "p0, p1"),
        (10, "p0, p1, p2, p3, p4, p5, p6, p7, p8, p9"),
        (11, "p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 1 more"),
        (12, "p0, p1, p2, p3, p4, p5, p6, p7, p8, p9 and 2 more"),
    ],
)
def test_a_list_of_names_fits_into_an_event(count: int, said: str) -> None:
    assert named([f"p{i}" for i in range(count)]) == said


def test_a_delete_that_is_refused_is_no_create_that_failed() -> None:
    job = an_aitj(status={"phase": "Failed"})
    kind, view = kind_of(job), view_of(job)
    failure = Failure(Delete(POD, Key("ml", "mnist-trainer-0"), "uid", "the job has ended"), "forbidden")

    assert kind.conclude(view, Plan(), [failure], NOW) == Plan()


def test_a_status_that_is_no_object_is_an_empty_one() -> None:
    job = an_aitj()
    job["status"] = "garbage"

    plan = plan_of(job)

    assert plan.status is not None
    assert plan.status["phase"] == "Pending"


# --- jobs that are nested too deeply ---


def deep_view(job: Json, levels: str, **spec: Any) -> JobView:
    """The job with a field that is nested so deeply, as a store would have it."""
    return JOB_CODEC.object(with_value({**job, "spec": {**job["spec"], **spec, "other": MARK}}, VALUES[levels]))


@pytest.mark.parametrize("levels", ["1500 levels", "9000 levels"])
@pytest.mark.parametrize("job", GOOD)
def test_a_job_that_is_nested_too_deeply_is_told_so_by_a_condition(job: Json, levels: str) -> None:
    plan = kind_of(job).plan(deep_view(job, levels), observed(job), NOW)

    accepted = condition_of(plan.status, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert "nested too deeply" in accepted["message"]
    assert not plan.creates


@pytest.mark.parametrize("job", GOOD)
def test_a_job_that_is_nested_too_deeply_and_has_ended_is_left_alone(job: Json) -> None:
    ended = min(kind_of(job).ended)
    view = deep_view({**job, "status": {"phase": ended}}, "1500 levels")

    assert kind_of(job).phase_of(view) == ended
    assert kind_of(job).plan(view, observed(job), NOW) == Plan()


@pytest.mark.parametrize("job", GOOD)
def test_the_stored_conditions_of_a_job_are_read_and_odd_ones_are_left_out(job: Json) -> None:
    kind = kind_of(job)
    since = "2026-11-18T11:00:00Z"
    waits = {"type": "PodsWaiting", "status": "True", "lastTransitionTime": since}

    [found] = kind.conditions_of(view_of({**job, "status": {"conditions": [waits]}}))

    assert (found.type, found.last_transition_time) == ("PodsWaiting", datetime.fromisoformat(since))
    for odd in ({}, {"conditions": None}, {"conditions": "none"}, {"conditions": [{**waits, "lastTransitionTime": 1}]}):
        assert kind.conditions_of(view_of({**job, "status": odd})) == ()


@pytest.mark.parametrize("job", GOOD)
def test_a_job_that_is_nested_too_deeply_may_be_somebody_elses(job: Json) -> None:
    view = deep_view(job, "1500 levels", managedBy="kueue.x-k8s.io/multikueue")

    assert kind_of(job).is_foreign(view)
    assert kind_of(job).plan(view, observed(job), NOW) == Plan()


@pytest.mark.parametrize("job", GOOD)
def test_a_job_that_is_too_deep_for_its_kind_alone_is_told_so(job: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer versions of Python decode more levels than code that is written in Python can copy."""

    def too_deep(*_: object) -> Plan:
        raise RecursionError

    kind = kind_of(job)
    monkeypatch.setattr(kind, "decide", too_deep)
    plan = kind.plan(view_of(job), observed(job), NOW)

    assert "nested too deeply" in condition_of(plan.status, "Accepted")["message"]


@pytest.mark.parametrize("job", GOOD)
def test_a_job_that_its_decoder_cannot_read_is_told_so(job: Json) -> None:
    """As admission has it: nobody has looked at its depth before."""
    raw = with_value({**job, "spec": {**job["spec"], "other": MARK}}, VALUES["1500 levels"])
    view = msgspec.structs.replace(view_of(job), raw=raw)
    kind = kind_of(job)

    with pytest.raises(BadSpec, match="nested too deeply"):
        kind.decode(view)
    assert (kind.is_foreign(view), kind.phase_of(view)) == (False, "")
