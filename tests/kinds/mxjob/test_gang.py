"""Gang scheduling of an MXJob; the fields of a PodGroup by scheduler are in tests/lifecycle/test_gang.py."""

from typing import Any

import pytest

from tests.build import (
    NOW,
    Child,
    Json,
    a_container,
    a_template,
    an_mx_replica,
    an_mxjob,
    children_of,
    kind_of,
    names_of,
    owner_reference,
    view_of,
    view_of_child,
    with_status,
)
from trainmaster.core.ids import CONFIG_MAP, POD
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Plan
from trainmaster.core.view import ChildView, PodView, ServiceView
from trainmaster.kinds.base import Settings
from trainmaster.lifecycle.gang import PLUGINS_GROUP, VOLCANO_GROUP

VOLCANO = Settings(gang_scheduler="volcano")
PLUGINS = Settings(gang_scheduler="coscheduler")


def a_group(job: Json, members: int) -> ChildView:
    meta = job["metadata"]
    metadata = {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": "g1",
        "resourceVersion": "7",
        "ownerReferences": [owner_reference(job)],
    }
    return view_of_child({"metadata": metadata, "spec": {"minMember": members}})


def planned(job: Json, settings: Settings, children: list[Child] | None = None, *groups: ChildView) -> Plan:
    kind = kind_of(job, settings)
    found = children or []
    seen = Observed.of(
        [c for c in found if isinstance(c, PodView)],
        [c for c in found if isinstance(c, ServiceView)],
        kind.slots,
        children={resource: {group.key.name: group for group in groups} for resource in kind.children},
    )
    return kind.plan(view_of(job), seen, NOW)


def pods_of(plan: Plan) -> list[Json]:
    return [create.body for create in plan.creates if create.resource == POD]


@pytest.mark.parametrize(("settings", "resource"), [(VOLCANO, VOLCANO_GROUP), (PLUGINS, PLUGINS_GROUP)])
def test_the_group_of_all_pods_comes_first(settings: Settings, resource: Any) -> None:
    first = planned(an_mxjob(), settings).creates[0]

    assert first.resource == resource
    assert first.key.name == "mnist"
    assert first.body["spec"] == {"minMember": 4}


def test_the_scheduling_policy_is_passed_on() -> None:
    policy = {
        "minAvailable": 3,
        "queue": "night",
        "minResources": {"cpu": 4, "memory": "8Gi"},
        "priorityClass": "high",
    }

    first = planned(an_mxjob(policy={"schedulingPolicy": policy}), VOLCANO).creates[0]

    assert first.body["spec"] == {
        "minMember": 3,
        "queue": "night",
        "minResources": {"cpu": "4", "memory": "8Gi"},
        "priorityClassName": "high",
    }


def asking(cpu: str) -> Json:
    return a_template(a_container("mxnet", resources={"requests": {"cpu": cpu}}))


@pytest.mark.parametrize(
    ("policy", "cpu"),
    [
        pytest.param({}, "7", id="of all pods"),
        pytest.param({"minAvailable": 2}, "3", id="of as many as it needs, in the order of the roles"),
        pytest.param({"minAvailable": 9}, "7", id="of no more than there are"),
        pytest.param({"minResources": {"cpu": 5}}, "5", id="unless the job says it"),
    ],
)
def test_the_group_asks_for_what_its_pods_do(policy: Json, cpu: str) -> None:
    job = an_mxjob(
        policy={"schedulingPolicy": policy},
        Scheduler=an_mx_replica(1, asking("1")),
        Server=an_mx_replica(1, asking("2")),
        Worker=an_mx_replica(2, asking("2")),
    )

    first = planned(job, VOLCANO).creates[0]

    assert first.body["spec"]["minResources"] == {"cpu": cpu}


def test_volcano_knows_the_group_of_a_pod_and_its_role_by_annotations() -> None:
    pods = {pod["metadata"]["name"]: pod for pod in pods_of(planned(an_mxjob(), VOLCANO))}

    server = pods["mnist-server-0"]
    assert server["spec"]["schedulerName"] == "volcano"
    assert server["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "mnist",
        "volcano.sh/task-spec": "server",
    }


def test_the_scheduler_plugins_know_the_group_of_a_pod_by_a_label() -> None:
    for pod in pods_of(planned(an_mxjob(), PLUGINS)):
        assert pod["spec"]["schedulerName"] == "coscheduler"
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "mnist"


def test_who_asks_for_another_scheduler_is_not_placed_together_and_is_told() -> None:
    template = a_template(a_container("mxnet"), schedulerName="mine")

    plan = planned(an_mxjob(Scheduler=1, Server=1, Worker=an_mx_replica(1, template)), VOLCANO)

    assert {create.resource.kind for create in plan.creates} == {"Pod", "Service"}
    assert [pod["spec"].get("schedulerName") for pod in pods_of(plan)] == [None, None, "mine"]
    assert [event.reason for event in plan.events if event.type == "Warning"] == ["SettedPodTemplateSchedulerName"]


def test_the_group_follows_the_number_of_pods() -> None:
    job = an_mxjob(Scheduler=1, Server=1, Worker=3)
    job = with_status(job, planned(job, VOLCANO, children_of(job), a_group(job, 5)))

    (patch,) = planned(job, VOLCANO, children_of(job), a_group(job, 4)).patches

    assert (patch.uid, patch.version, patch.body) == ("g1", 7, {"spec": {"minMember": 5}})


def test_the_group_does_not_wait_for_who_has_succeeded() -> None:
    job = an_mxjob(Scheduler=1, Server=1, Worker=3)
    job = with_status(job, {"phase": "Running", "done": {"Worker": [0, 2]}})

    (patch,) = planned(job, VOLCANO, children_of(job), a_group(job, 5)).patches

    assert patch.body == {"spec": {"minMember": 3}}


@pytest.mark.parametrize("phase", ["Succeeded", "Suspended"])
def test_the_group_goes_when_nothing_is_to_be_placed(phase: str) -> None:
    suspend = {"suspend": phase == "Suspended"}
    job = an_mxjob(policy=suspend, status={"phase": phase, "completionTime": "2026-11-15T12:00:00Z"})

    plan = planned(job, VOLCANO, [], a_group(job, 4))

    assert names_of(plan.deletes, VOLCANO_GROUP) == ["mnist"]


def test_without_a_gang_scheduler_nothing_is_asked_of_anybody() -> None:
    job = an_mxjob()

    plan = planned(job, Settings())

    assert kind_of(job, Settings()).children == (CONFIG_MAP,)
    assert {create.resource.kind for create in plan.creates} == {"Pod", "Service"}
