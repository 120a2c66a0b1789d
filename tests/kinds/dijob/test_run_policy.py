"""``runPolicy`` of a DIJob: suspension, deadline and gang. tests/matrix has what all kinds do alike."""

from datetime import timedelta

import pytest

from tests.build import (
    NOW,
    STAMP,
    Json,
    a_dijob,
    children_of,
    names_of,
    plan_of,
    with_spec,
    with_status,
)
from tests.kinds.dijob.test_replicas import COLLECTOR, FORMED, GROUP, a_job, crew, members_of
from tests.kinds.mxjob.test_gang import PLUGINS, VOLCANO, a_group, planned
from trainmaster.core.ids import POD
from trainmaster.kinds.base import Settings
from trainmaster.lifecycle.gang import PLUGINS_GROUP, VOLCANO_GROUP


def a_suspended_job(members: Json | None = None) -> Json:
    job = with_spec(a_job(members), runPolicy={"suspend": True})
    return with_status(job, plan_of(job, children_of(job)))


def test_a_suspended_job_keeps_its_declared_replicas_and_gets_them_back() -> None:
    job = a_suspended_job()
    assert names_of(plan_of(job, crew(job, COLLECTOR)).deletes, POD) == [COLLECTOR, "cartpole-coordinator"]

    resumed = with_spec(job, runPolicy={"suspend": False})
    resumed = with_status(resumed, plan_of(resumed, now=NOW + timedelta(hours=1)))

    assert names_of(plan_of(resumed).creates, POD) == ["cartpole-coordinator", COLLECTOR]


def test_a_ddp_group_is_not_taken_for_lost_after_a_suspension() -> None:
    job = with_spec(a_job(FORMED), runPolicy={"suspend": True})

    plan = plan_of(job, crew(job, *GROUP))

    assert plan.status_first
    assert not any(member.get("formed") for member in members_of(plan).values())


def test_time_in_suspension_is_not_charged_to_the_deadline() -> None:
    job = with_spec(a_suspended_job(), runPolicy={"activeDeadlineSeconds": 60})
    later = NOW + timedelta(hours=1)

    resumed = with_status(job, plan_of(job, now=later))

    assert "startTime" not in job["status"]
    assert plan_of(resumed, children_of(resumed), now=later).requeue_after == 60.0


def test_a_job_past_its_deadline_leaves_nothing_running_under_the_policy_none() -> None:
    job = with_spec(a_job(), cleanPodPolicy="None", runPolicy={"activeDeadlineSeconds": 60})
    later = NOW + timedelta(seconds=60)

    ended = with_status(job, plan_of(job, crew(job, COLLECTOR), now=later))

    assert ended["status"]["phase"] == "Failed"
    assert "activeDeadlineSeconds" in ended["status"]["conditions"][-1]["message"]
    assert names_of(plan_of(ended, crew(job, COLLECTOR), now=later).deletes, POD) == [COLLECTOR, "cartpole-coordinator"]


@pytest.mark.parametrize(("settings", "resource"), [(VOLCANO, VOLCANO_GROUP), (PLUGINS, PLUGINS_GROUP)])
def test_the_pod_group_has_the_pods_of_the_job_and_follows_the_declared_replicas(
    settings: Settings, resource: object
) -> None:
    new = planned(a_dijob(), settings)
    job = a_job({COLLECTOR: {"role": "collector", "at": STAMP}})
    grown = planned(job, settings, children_of(job), a_group(job, 1))

    assert new.creates[0].resource == resource
    assert new.creates[0].body["spec"]["minMember"] == 1
    assert new.creates[-1].body["spec"]["schedulerName"] == settings.gang_scheduler
    assert [patch.body["spec"]["minMember"] for patch in grown.patches] == [2]


def test_min_available_of_the_scheduling_policy_is_obeyed() -> None:
    job = with_spec(a_job(), runPolicy={"schedulingPolicy": {"minAvailable": 1, "queue": "night"}})

    (group,) = [c for c in planned(job, VOLCANO).creates if c.resource == VOLCANO_GROUP]

    assert (group.body["spec"]["minMember"], group.body["spec"]["queue"]) == (1, "night")


def test_pods_that_were_deleted_by_a_suspension_are_not_lost_when_the_job_is_resumed_at_once() -> None:
    job = with_spec(a_job(FORMED), runPolicy={"suspend": True})
    job = with_status(job, plan_of(job, crew(job, *GROUP)))
    job = with_spec(job, runPolicy={"suspend": False})
    job = with_status(job, plan_of(job, crew(job, *GROUP, deleting=True)))

    plan = plan_of(job, crew(job, *GROUP, deleting=True))

    assert plan.events == ()
    assert plan.status is None or members_of(plan).keys() == GROUP.keys()
