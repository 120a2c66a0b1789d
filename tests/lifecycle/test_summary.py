"""The line of `kubectl get`: the same fields in every kind."""

import pytest

from tests.build import a_pod, an_aitj, children_of, plan_of
from tests.kinds.aitrainingjob.test_kind import JOB, running, status_of
from trainmaster.core.condition import Condition, Conditions
from trainmaster.kinds.registry import DEFINITIONS, all_resource_kinds
from trainmaster.lifecycle.summary import message_of
from trainmaster.settings import OPERATOR


def condition(type_: str, *, is_true: bool = True) -> Condition:
    return Condition(type_, "True" if is_true else "False", message=f"about {type_}")


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        pytest.param((), "", id="none"),
        pytest.param((condition("Running"),), "about Running", id="the phase"),
        pytest.param((condition("PodCreateFailed"), condition("Pending")), "about PodCreateFailed", id="refused"),
        pytest.param((condition("PodCreateFailed", is_true=False), condition("Running")), "about Running", id="over"),
        pytest.param((condition("Accepted", is_true=False), condition("Pending")), "about Accepted", id="bad spec"),
        pytest.param((condition("PodsWaiting"), condition("Pending")), "about PodsWaiting", id="unschedulable"),
        pytest.param(
            (condition("PodsWaiting"), condition("PodCreateFailed")), "about PodCreateFailed", id="the worse of two"
        ),
        pytest.param((condition("PodsWaiting"), condition("Finished")), "about Finished", id="ended"),
        pytest.param((condition("Suspended"), condition("Created")), "about Suspended", id="suspended"),
    ],
)
def test_the_message_is_that_of_the_most_urgent_condition(conditions: Conditions, message: str) -> None:
    assert message_of(conditions) == message


def test_replicas_that_run_are_ready() -> None:
    status = status_of(plan_of(running(JOB), [a_pod(JOB, "ps", phase="Pending"), *children_of(JOB)[1:]]))

    assert status["summary"]["ready"] == "2/3"


def test_a_job_without_pods_has_none_ready() -> None:
    assert status_of(plan_of(an_aitj(trainer=4)))["summary"]["ready"] == "0/4"


@pytest.mark.parametrize("resource", [each.resource for each in all_resource_kinds(OPERATOR.jobs)], ids=str)
def test_every_kind_shows_ready_restarts_age_and_the_sentence(resource: object) -> None:
    [definition] = [each for each in DEFINITIONS if each.resource == resource]
    for version in definition.versions:
        shown = {column.name: column.priority for column in version.columns}
        assert shown.items() >= {"Restarts": 0, "Age": 0, "Message": 1}.items()
        assert shown.get("Ready", shown.get("ReadyReplicas")) == 0
