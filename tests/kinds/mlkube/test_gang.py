"""Gang scheduling of MxJobs: the PodGroup, and pods of batch Jobs that name it."""

from tests.kinds.mlkube.build import a_begun, plan_of
from trainmaster.core.ids import JOB
from trainmaster.kinds.base import Settings
from trainmaster.kinds.mlkube.kind import MxJobKind
from trainmaster.lifecycle.gang import PLUGINS_GROUP, VOLCANO_GROUP

VOLCANO = Settings(gang_scheduler="volcano")
PLUGINS = Settings(gang_scheduler="coscheduler")


def test_the_pod_group_comes_before_the_jobs_whose_pods_name_it() -> None:
    job = a_begun(schedulingPolicy={"queue": "gpu", "priorityClass": "high"})

    group, *others = plan_of(job, settings=VOLCANO).creates

    assert (group.resource, group.key.name) == (VOLCANO_GROUP, "digits")
    assert group.body["spec"] == {"minMember": 6, "queue": "gpu", "priorityClassName": "high"}
    templates = [create.body["spec"]["template"] for create in others if create.resource == JOB]
    assert len(templates) == 6
    assert {t["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for t in templates} == {"digits"}
    assert {t["spec"]["schedulerName"] for t in templates} == {"volcano"}


def test_min_available_and_timeout_are_told_in_the_words_of_the_scheduler_plugins() -> None:
    job = a_begun(schedulingPolicy={"minAvailable": 4, "scheduleTimeoutSeconds": 60})

    group, *others = plan_of(job, settings=PLUGINS).creates

    assert group.resource == PLUGINS_GROUP
    assert group.body["spec"] == {"minMember": 4, "scheduleTimeoutSeconds": 60}
    (labels,) = {
        c.body["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"]
        for c in others
        if c.resource == JOB
    }
    assert labels == "digits"


def test_a_replica_that_has_succeeded_is_not_waited_for() -> None:
    job = a_begun(status={"done": {"WORKER": [0]}})

    assert plan_of(job, settings=VOLCANO).creates[0].body["spec"]["minMember"] == 5


def test_without_a_gang_scheduler_there_is_no_pod_group() -> None:
    job = a_begun(schedulingPolicy={"minAvailable": 4})

    assert {create.resource.kind for create in plan_of(job).creates} == {"Service", "Job"}
    assert MxJobKind(Settings()).children == (JOB,)
    assert MxJobKind(VOLCANO).children == (JOB, VOLCANO_GROUP)
