"""Gang scheduling, with the PodGroups of Volcano and of the scheduler-plugins."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.build import SETTINGS, Json, a_ditask, a_task, an_mxjob, plan_of, view_of_child
from trainmaster.core.ids import Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import ChildView
from trainmaster.lifecycle import gang
from trainmaster.lifecycle.gang import PLUGINS_GROUP, VOLCANO_GROUP, Gang

KEY = Key("ml", "mnist")
OWNER = {"apiVersion": "v1", "kind": "Job", "name": "mnist", "uid": "u1", "controller": True}
VOLCANO = Gang("volcano", KEY, 3)
PLUGINS = Gang("scheduler-plugins-scheduler", KEY, 3)

each_dialect = pytest.mark.parametrize(
    ("wanted", "resource"), [pytest.param(VOLCANO, VOLCANO_GROUP), pytest.param(PLUGINS, PLUGINS_GROUP)]
)


def a_group(resource: Resource, *, deleting: bool = False, name: str = "mnist", **spec: Any) -> ChildView:
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "uid": "g1", "resourceVersion": "7"}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-15T12:00:00Z"
    return view_of_child({"metadata": metadata, "spec": spec, "apiVersion": resource.api_version})


def seen(resource: Resource, *groups: ChildView) -> Observed:
    return Observed({}, (), {}, children={resource: {group.key.name: group for group in groups}})


@each_dialect
def test_a_group_says_how_many_belong_together_and_whose_it_is(wanted: Gang, resource: Resource) -> None:
    (create,) = gang.missing(wanted, seen(resource), OWNER)

    assert create.resource == resource
    assert create.body == {
        "apiVersion": resource.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "mnist", "namespace": "ml", "labels": MANAGED_BY, "ownerReferences": [OWNER]},
        "spec": {"minMember": 3},
    }


@pytest.mark.parametrize(
    ("scheduler", "spec"),
    [
        ("volcano", {"minMember": 2, "queue": "night", "priorityClassName": "high", "minResources": {"cpu": "4"}}),
        ("coscheduling", {"minMember": 2, "minResources": {"cpu": "4"}, "scheduleTimeoutSeconds": 60}),
    ],
)
def test_a_group_says_what_its_dialect_has_a_word_for(scheduler: str, spec: dict[str, Any]) -> None:
    wanted = Gang(scheduler, KEY, 2, queue="night", priority_class="high", min_resources={"cpu": "4"}, timeout=60)

    assert gang.group_body(wanted, OWNER)["spec"] == spec


@each_dialect
def test_a_group_that_is_there_is_not_made_again(wanted: Gang, resource: Resource) -> None:
    observed = seen(resource, a_group(resource, minMember=3))

    assert gang.missing(wanted, observed, OWNER) == ()
    assert gang.changed(wanted, observed) == ()


@each_dialect
@pytest.mark.parametrize("spec", [{"minMember": 2}, {"minMember": "two"}, {}])
def test_a_group_follows_the_number_of_pods(wanted: Gang, resource: Resource, spec: dict[str, Any]) -> None:
    (patch,) = gang.changed(wanted, seen(resource, a_group(resource, **spec)))

    assert (patch.key, patch.uid, patch.version) == (KEY, "g1", 7)
    assert patch.body == {"spec": {"minMember": 3}}


def test_what_a_group_asks_for_follows_with_its_number() -> None:
    wanted = Gang("volcano", KEY, 3, min_resources={"cpu": "6"})

    (patch,) = gang.changed(wanted, seen(VOLCANO_GROUP, a_group(VOLCANO_GROUP, minMember=2)))

    assert patch.body == {"spec": {"minMember": 3, "minResources": {"cpu": "6"}}}


@pytest.mark.parametrize(
    ("asks", "patched"),
    [
        pytest.param({"cpu": "6"}, {"cpu": "6", "nvidia.com/gpu": None}, id="for less"),
        pytest.param({}, {"cpu": None, "nvidia.com/gpu": None}, id="for nothing"),
    ],
)
def test_what_a_group_does_not_ask_for_any_more_is_taken_away(asks: dict[str, str], patched: dict[str, Any]) -> None:
    old = a_group(VOLCANO_GROUP, minMember=2, minResources={"cpu": 16, "nvidia.com/gpu": "4"})

    (patch,) = gang.changed(Gang("volcano", KEY, 3, min_resources=asks), seen(VOLCANO_GROUP, old))

    assert patch.body == {"spec": {"minMember": 3, "minResources": patched}}


def a_spec(*containers: dict[str, Any], inits: Sequence[dict[str, Any]] = (), **spec: Any) -> Any:
    """Of containers that are told as the resources they ask for; an init container, whole."""
    return {"containers": [{"name": "c", "resources": each} for each in containers], "initContainers": inits, **spec}


ONE_CPU = {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("pods", "together"),
    [
        pytest.param([], {}, id="nobody"),
        pytest.param([(a_spec({}), 3)], {}, id="whoever asks for nothing"),
        pytest.param(
            [(a_spec({"requests": {"cpu": "500m", "memory": "1Gi"}}), 3)],
            {"cpu": "1500m", "memory": "3Gi"},
            id="every pod counts",
        ),
        pytest.param([(a_spec(ONE_CPU), 2), (a_spec({"requests": {"cpu": 2}}), 1)], {"cpu": "4"}, id="of all roles"),
        pytest.param([(a_spec(ONE_CPU, ONE_CPU), 2)], {"cpu": "4"}, id="of all containers"),
        pytest.param(
            [(a_spec({"limits": {"nvidia.com/gpu": 8, "cpu": "4"}, "requests": {"cpu": "2"}}), 2)],
            {"nvidia.com/gpu": "16", "cpu": "4"},
            id="a limit is a request where there is none",
        ),
        pytest.param(
            [(a_spec(ONE_CPU, inits=[{"resources": {"requests": {"cpu": "3"}}}]), 2)],
            {"cpu": "6"},
            id="an init container that asks for more",
        ),
        pytest.param(
            [(a_spec(ONE_CPU, inits=[{"resources": ONE_CPU}]), 2)],
            {"cpu": "2"},
            id="an init container that asks for no more",
        ),
        pytest.param(
            [(a_spec(ONE_CPU, inits=[{"resources": ONE_CPU, "restartPolicy": "Always"}]), 2)],
            {"cpu": "4"},
            id="a side-car",
        ),
        pytest.param([(a_spec(ONE_CPU, overhead={"cpu": "250m"}), 2)], {"cpu": "2500m"}, id="what its sandbox takes"),
        pytest.param([(a_spec(ONE_CPU), 1), (a_spec({"requests": {"cpu": "much"}}), 1)], {}, id="no quantity"),
        pytest.param([(a_spec({"requests": ["cpu"]}), 1)], {}, id="of a strange shape"),
    ],
)
def test_what_pods_need_together(pods: list[tuple[Any, int]], together: dict[str, str]) -> None:
    assert gang.needed(pods) == together


def test_what_others_wrote_into_a_group_stays() -> None:
    observed = seen(VOLCANO_GROUP, a_group(VOLCANO_GROUP, minMember=3, queue="day"))

    assert gang.changed(Gang("volcano", KEY, 3, queue="night"), observed) == ()


def test_a_group_that_is_on_its_way_out_is_neither_changed_nor_deleted_again() -> None:
    observed = seen(VOLCANO_GROUP, a_group(VOLCANO_GROUP, deleting=True, minMember=2))

    assert gang.changed(VOLCANO, observed) == ()
    assert gang.surplus("volcano", observed, "over") == ()


def test_groups_that_are_not_needed_go() -> None:
    observed = seen(VOLCANO_GROUP, a_group(VOLCANO_GROUP), a_group(VOLCANO_GROUP, name="other"))

    assert [delete.key.name for delete in gang.surplus("volcano", observed, "over")] == ["mnist", "other"]
    assert [delete.key.name for delete in gang.surplus("volcano", observed, "over", keep="mnist")] == ["other"]
    assert gang.surplus("", observed, "over") == ()


@pytest.mark.parametrize(
    ("scheduler", "named", "is_gang"),
    [
        ("volcano", [], True),
        ("volcano", ["", "volcano"], True),
        ("volcano", ["", "default-scheduler"], False),
        ("", [], False),
        ("", [""], False),
    ],
)
def test_pods_that_ask_for_another_scheduler_are_no_gang(scheduler: str, named: list[str], is_gang: bool) -> None:
    assert gang.is_wanted(scheduler, named) == is_gang


def test_a_pod_tells_volcano_its_group_and_its_task() -> None:
    pod: dict[str, Any] = {"metadata": {"labels": {"a": "b"}, "annotations": {"note": "c"}}, "spec": {"containers": []}}

    found = gang.member(pod, VOLCANO, "worker")

    assert found == {
        "metadata": {
            "labels": {"a": "b"},
            "annotations": {"note": "c", "scheduling.k8s.io/group-name": "mnist", "volcano.sh/task-spec": "worker"},
        },
        "spec": {"containers": [], "schedulerName": "volcano"},
    }
    assert pod["metadata"]["annotations"] == {"note": "c"}  # it may be the template's own


def test_a_pod_tells_the_scheduler_plugins_its_group() -> None:
    found = gang.member({"metadata": {}, "spec": {}}, PLUGINS, "worker")

    assert found == {
        "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "mnist"}},
        "spec": {"schedulerName": "scheduler-plugins-scheduler"},
    }


# --- how many pods are placed at once ---

SPEC: dict[str, Any] = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}


@pytest.mark.parametrize(
    ("succeeded", "min_available", "members"),
    [
        pytest.param({}, None, 5, id="all"),
        pytest.param({"worker": (0, 2)}, None, 3, id="not those that have succeeded"),
        pytest.param({}, 2, 2, id="as the policy says"),
        pytest.param({}, 9, 5, id="not more than there are"),
        pytest.param({"worker": (0, 1, 2)}, 3, 2, id="not more than are left"),
        pytest.param({"worker": tuple(range(9))}, None, 1, id="more have succeeded than the spec has now"),
    ],
)
def test_a_gang_has_the_pods_that_are_left_to_be_placed(
    succeeded: dict[str, tuple[int, ...]], min_available: int | None, members: int
) -> None:
    roles = {"server": (SPEC, 1), "worker": (SPEC, 4)}
    policy = gang.SchedulingPolicy(min_available=min_available)
    asked = gang.gang_of(KEY, "volcano", roles, policy)
    assert asked is not None

    found = gang.sized(asked, succeeded)

    assert (found.min_member, found.min_resources) == (members, {"cpu": str(members)})


def test_a_gang_has_at_least_one_member() -> None:
    asked = gang.gang_of(KEY, "volcano", {"worker": (SPEC, 2)}, None)
    assert asked is not None

    assert gang.sized(asked, {"worker": (0, 1)}).min_member == 1


_MXJOB = {"phase": "Running", "done": {"Worker": [0, 1, 2, 3]}}
_RANKS = {"learner-0": 0, **{f"collector-{index}": index + 1 for index in range(4)}}
_DIJOB = {"phase": "Running", "ranks": _RANKS, "done": {"collector": [0, 1, 2, 3]}}


@pytest.mark.parametrize(
    ("job", "members"),
    [
        pytest.param(an_mxjob(Scheduler=1, Server=1, Worker=1, status=_MXJOB), 2, id="MXJob"),
        pytest.param(a_ditask("di", a_task("learner"), a_task("collector"), status=_DIJOB), 1, id="DIJob"),
    ],
)
def test_replicas_that_had_succeeded_and_were_scaled_away_are_not_subtracted(job: Json, members: int) -> None:
    settings = msgspec.structs.replace(SETTINGS, gang_scheduler="volcano")

    plan = plan_of(job, settings=settings)

    created = [create.body["spec"]["minMember"] for create in plan.creates if create.resource == VOLCANO_GROUP]
    assert created == [members]
