"""The patches of `trainmaster scale`."""

import pytest

from tests.build import Json, a_dijob, a_ditask, a_replica, a_task, an_aitj, an_mxjob
from tests.client.found import found
from trainmaster.client.scaling import scaled
from trainmaster.core.errors import BadConfig

ELASTIC = an_aitj(worker=a_replica(2, edlPolicy="Auto", maxReplicas=8), ps=1)


@pytest.mark.parametrize(
    ("job", "role", "changed", "spec"),
    [
        pytest.param(an_aitj(trainer=2), "", "trainer", {"replicaSpecs": {"trainer": {"replicas": 4}}}, id="only role"),
        pytest.param(
            an_aitj(trainer=2, ps=1), "TRAINER", "trainer", {"replicaSpecs": {"trainer": {"replicas": 4}}}, id="named"
        ),
        pytest.param(ELASTIC, "", "worker", {"elasticReplicas": 4}, id="elastic role"),
        pytest.param(ELASTIC, "worker", "worker", {"elasticReplicas": 4}, id="elastic role by name"),
        pytest.param(ELASTIC, "ps", "ps", {"replicaSpecs": {"ps": {"replicas": 4}}}, id="beside an elastic role"),
        pytest.param(
            an_mxjob(), "worker", "Worker", {"mxReplicaSpecs": {"Worker": {"replicas": 4}}}, id="role of an MXJob"
        ),
        pytest.param(a_ditask(), "", "collector", {"replicas": 4}, id="collectors of a DIJob"),
        pytest.param(a_ditask(), "Collector", "collector", {"replicas": 4}, id="collectors by name"),
        pytest.param(
            a_ditask(spec={"scaledTask": "learner"}), "", "learner", {"replicas": 4}, id="the task of scaledTask"
        ),
    ],
)
def test_the_number_of_one_role_changes(job: Json, role: str, changed: str, spec: Json) -> None:
    assert scaled(found(job), 4, role) == (changed, {"spec": spec})


@pytest.mark.parametrize(
    ("job", "role", "error"),
    [
        pytest.param(
            an_aitj(trainer=2, ps=1),
            "",
            "aitrainingjob/mnist has the roles trainer, ps; choose one with --role",
            id="several",
        ),
        pytest.param(
            an_aitj(trainer=2), "worker", "aitrainingjob/mnist has no role worker; it has trainer", id="unknown"
        ),
        pytest.param(
            a_dijob(),
            "",
            "dijob/cartpole: the spec of a DIJob does not say a number of replicas that can change",
            id="kind without a number",
        ),
        pytest.param(
            a_ditask("cartpole", a_task("eval"), a_task("train")),
            "",
            "dijob/cartpole has the roles eval, train; choose one with --role",
            id="tasks without a collector",
        ),
        pytest.param(
            a_ditask(),
            "evaluator",
            "dijob/cartpole has no role evaluator; it has learner, collector",
            id="unknown task",
        ),
        pytest.param(
            a_ditask(
                "cartpole",
                a_task("collector", 4),
                status={"requestedReplicas": {"collector": {"replicas": 6, "specReplicas": 4}}},
            ),
            "",
            "dijob/cartpole: the spec has 4 replicas of collector already, and 6 were requested through di-server, "
            "which count until the spec has another number; scale it to another number first",
            id="the number of the spec does not count",
        ),
        pytest.param(
            a_ditask("cartpole", a_task("collector", 0)),
            "",
            "dijob/cartpole cannot be read: Expected `int` >= 1 - at `$.spec.tasks[0].replicas`; edit its spec",
            id="unreadable",
        ),
    ],
)
def test_a_role_that_cannot_be_chosen_is_told(job: Json, role: str, error: str) -> None:
    with pytest.raises(BadConfig) as raised:
        scaled(found(job), 4, role)

    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("job", "role"),
    [
        pytest.param(a_ditask(), "learner", id="beside the scaled task"),
        pytest.param(a_ditask("cartpole", a_task("learner", extra=1)), "", id="only task"),
    ],
)
def test_the_other_tasks_of_a_dijob_stay_as_they_are(job: Json, role: str) -> None:
    first, *others = job["spec"]["tasks"]

    assert scaled(found(job), 4, role) == (
        "learner",
        {
            "metadata": {"resourceVersion": str(found(job).view.resource_version)},
            "spec": {"tasks": [{**first, "replicas": 4}, *others]},
        },
    )


def test_a_request_through_di_server_is_replaced_by_another_number() -> None:
    status = {"requestedReplicas": {"collector": {"replicas": 6, "specReplicas": 2}}}

    assert scaled(found(a_ditask(status=status)), 4, "") == ("collector", {"spec": {"replicas": 4}})
