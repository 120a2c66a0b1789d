"""What the scheduler is told about an AITrainingJob: priority class and gang (issue 6, item 7)."""

from typing import Any

import msgspec
import pytest

from tests.build import (
    NOW,
    SETTINGS,
    Child,
    Json,
    a_container,
    a_replica,
    a_template,
    an_aitj,
    children_of,
    kind_of,
    observed,
    plan_of,
    view_of,
    view_of_child,
    with_spec,
    with_status,
)
from trainmaster.core.ids import POD
from trainmaster.core.plan import Create, Plan
from trainmaster.kinds.base import Failure, Kind
from trainmaster.lifecycle.gang import PLUGINS_GROUP, VOLCANO_GROUP

VOLCANO = msgspec.structs.replace(SETTINGS, gang_scheduler="volcano")
PLUGINS = msgspec.structs.replace(SETTINGS, gang_scheduler="scheduler-plugins-scheduler")
JOB = an_aitj(trainer=2, ps=1)


def a_group(job: Json, min_member: int) -> Json:
    metadata = {**job["metadata"], "uid": "group", "resourceVersion": "7"}
    return {"metadata": metadata, "spec": {"minMember": min_member}}


def volcano_plan(job: Json, children: list[Child] | None = None, *, group: int = 0) -> Plan:
    """What is planned under Volcano, with a PodGroup of so many members; 0 is none."""
    seen = observed(job, children or [])
    if group:
        groups = {VOLCANO_GROUP: {job["metadata"]["name"]: view_of_child(a_group(job, group))}}
        seen = msgspec.structs.replace(seen, children={**seen.children, **groups})
    return kind_of(job, VOLCANO).plan(view_of(job), seen, NOW)


def pods_of(plan: Plan) -> list[Json]:
    return [create.body for create in plan.creates if create.resource == POD]


def waiting(job: Json) -> Json:
    return with_status(job, plan_of(job))


# --- gangs ---


def test_the_group_comes_before_everything_else() -> None:
    plan = volcano_plan(JOB)

    assert plan.creates[0].resource == VOLCANO_GROUP
    assert plan.creates[0].body["spec"] == {"minMember": 3}
    assert plan.creates[0].body["metadata"]["ownerReferences"][0]["uid"] == JOB["metadata"]["uid"]
    assert [create.resource for create in plan.creates].count(VOLCANO_GROUP) == 1
    assert len(pods_of(plan)) == 3


def test_every_pod_is_of_the_gang() -> None:
    said = {
        (pod["spec"]["schedulerName"], pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"])
        for pod in pods_of(volcano_plan(JOB))
    }
    tasks = [pod["metadata"]["annotations"]["volcano.sh/task-spec"] for pod in pods_of(volcano_plan(JOB))]

    assert said == {("volcano", "mnist")}
    assert sorted(tasks) == ["ps", "trainer", "trainer"]


def test_any_other_name_means_the_scheduler_plugins() -> None:
    plan = plan_of(JOB, settings=PLUGINS)

    assert plan.creates[0].resource == PLUGINS_GROUP
    assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in pods_of(plan)} == {"mnist"}
    assert {pod["spec"]["schedulerName"] for pod in pods_of(plan)} == {"scheduler-plugins-scheduler"}


def test_without_a_gang_scheduler_nothing_changes() -> None:
    assert not any(create.resource in (VOLCANO_GROUP, PLUGINS_GROUP) for create in plan_of(JOB).creates)
    assert not any("schedulerName" in pod["spec"] for pod in pods_of(plan_of(JOB)))


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(an_aitj(trainer=2, spec={"schedulerName": "default-scheduler"}), id="the-job"),
        pytest.param(
            an_aitj(a=a_replica(1, a_template(a_container("aitj-a"), schedulerName="mine")), b=1), id="one-template"
        ),
    ],
)
def test_a_job_that_names_another_scheduler_is_no_gang(job: Json) -> None:
    assert volcano_plan(job) == plan_of(job)


def test_the_job_has_the_last_word_on_its_scheduler() -> None:
    other = a_template(a_container("aitj-a"), schedulerName="mine")
    plan = volcano_plan(an_aitj(a=a_replica(1, other), spec={"schedulerName": "volcano"}))

    assert plan.creates[0].resource == VOLCANO_GROUP
    assert [pod["spec"]["schedulerName"] for pod in pods_of(plan)] == ["volcano"]


@pytest.mark.parametrize(
    ("fields", "members"),
    [
        pytest.param({}, 5, id="all"),
        pytest.param({"minReplicas": 2}, 5, id="who-is-not-elastic-needs-all"),
        pytest.param({"minReplicas": 2, "maxReplicas": 8, "edlPolicy": "Auto"}, 3, id="who-is-needs-the-least"),
        pytest.param({"minReplicas": 2, "maxReplicas": 8, "edlPolicy": "Manual"}, 5, id="who-is-scaled-needs-all"),
    ],
)
def test_as_many_as_the_job_cannot_begin_without(fields: dict[str, Any], members: int) -> None:
    plan = volcano_plan(an_aitj(worker=a_replica(4, **fields), ps=1))

    assert plan.creates[0].body["spec"]["minMember"] == members


def test_the_group_asks_for_what_those_do() -> None:
    template = a_template(a_container("aitj-main", resources={"limits": {"nvidia.com/gpu": 8}}))
    elastic = a_replica(4, template, minReplicas=2, maxReplicas=8, edlPolicy="Auto")

    plan = volcano_plan(an_aitj(worker=elastic, ps=1))

    assert plan.creates[0].body["spec"] == {"minMember": 3, "minResources": {"nvidia.com/gpu": "16"}}


def test_a_job_of_a_queue_says_so() -> None:
    job = {**JOB, "metadata": {**JOB["metadata"], "annotations": {"scheduling.volcano.sh/queue-name": "night"}}}

    assert volcano_plan(job).creates[0].body["spec"]["queue"] == "night"


def test_the_group_follows_an_edit() -> None:
    job = waiting(JOB)
    grown = with_spec(job, replicaSpecs={"trainer": a_replica(3), "ps": a_replica(1)})

    assert volcano_plan(job, children_of(job), group=3).patches == ()
    assert [patch.body for patch in volcano_plan(grown, children_of(job), group=3).patches] == [
        {"spec": {"minMember": 4}}
    ]


def test_a_group_that_somebody_deleted_is_made_again() -> None:
    job = waiting(JOB)

    assert [create.resource for create in volcano_plan(job, children_of(job)).creates] == [VOLCANO_GROUP]


@pytest.mark.parametrize("clean", ["All", "Running", "None"])
@pytest.mark.parametrize("phase", ["Succeed", "Failed", "Timeout", "Preempted", "NodeFail"])
def test_the_group_goes_with_the_end_of_the_job(phase: str, clean: str) -> None:
    ended = with_status(an_aitj(clean=clean), {"phase": phase})

    plan = volcano_plan(ended, group=1)

    assert [(delete.resource, delete.uid) for delete in plan.deletes] == [(VOLCANO_GROUP, "group")]
    assert volcano_plan(ended) == Plan()


def test_a_job_that_is_suspended_holds_no_place_in_a_queue() -> None:
    stopped = with_spec(waiting(JOB), suspend=True)
    stopped = with_status(stopped, volcano_plan(stopped, group=3))

    plan = volcano_plan(stopped, group=3)

    assert [delete.resource for delete in plan.deletes] == [VOLCANO_GROUP]
    assert volcano_plan(stopped).creates == ()


# --- priority ---


def test_a_priority_is_a_label_and_a_priority_class() -> None:
    (pod,) = pods_of(plan_of(an_aitj(spec={"priority": "high"})))

    assert pod["metadata"]["labels"]["priority"] == "high"
    assert pod["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize("own", [{"priorityClassName": "low"}, {"priority": 7}])
def test_a_template_that_knows_its_priority_keeps_it(own: dict[str, Any]) -> None:
    template = a_template(a_container("aitj-a"), **own)

    (pod,) = pods_of(plan_of(an_aitj(a=a_replica(1, template), spec={"priority": "high"})))

    assert {field: pod["spec"].get(field) for field in own} == own
    assert pod["spec"].get("priorityClassName") == own.get("priorityClassName")


def refused(job: Json, error: str) -> Json:
    """The job after the API server refused its first pod."""
    kind: Kind[Any] = kind_of(job)
    plan = plan_of(job)
    first: Create = next(create for create in plan.creates if create.resource == POD)
    return with_status(job, kind.conclude(view_of(job), plan, [Failure(first, error)], NOW))


def test_a_priority_that_is_no_class_stays_the_label_that_it_was() -> None:
    job = an_aitj(trainer=2, spec={"priority": "high"})

    told = refused(job, 'pods "mnist-trainer-0" is forbidden: no PriorityClass with name high was found')

    found = next(c for c in told["status"]["conditions"] if c["type"] == "PriorityClassFound")
    assert (found["status"], found["reason"]) == ("False", "NotFound")
    assert "there is no PriorityClass high" in found["message"]
    assert {pod["metadata"]["labels"]["priority"] for pod in pods_of(plan_of(told))} == {"high"}
    assert not any("priorityClassName" in pod["spec"] for pod in pods_of(plan_of(told)))
    assert "priorityClassName" not in volcano_plan(told).creates[0].body["spec"]


@pytest.mark.parametrize(
    "error", ["exceeded quota", "no PriorityClass with name other was found", "no PriorityClass with name highest was"]
)
def test_other_refusals_say_nothing_about_the_class(error: str) -> None:
    told = refused(an_aitj(spec={"priority": "high"}), error)

    assert [c["type"] for c in told["status"]["conditions"]].count("PriorityClassFound") == 0
    assert {pod["spec"]["priorityClassName"] for pod in pods_of(plan_of(told))} == {"high"}


def test_a_gang_under_volcano_has_the_priority_of_its_job() -> None:
    plan = volcano_plan(an_aitj(spec={"priority": "high"}))

    assert plan.creates[0].body["spec"] == {"minMember": 1, "priorityClassName": "high"}
