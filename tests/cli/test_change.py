"""The patches of `trainmaster scale`, `suspend` and `resume`."""

from typing import Any

import pytest

from tests.build import Json, a_dijob, a_nervexjob, a_replica, an_aitj, an_mxjob
from tests.cli.found import found
from trainmaster.cli.change import scaled, suspension
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
    ],
)
def test_the_number_of_one_role_changes(job: Json, role: str, changed: str, spec: dict[str, Any]) -> None:
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
    ],
)
def test_a_role_that_cannot_be_chosen_is_told(job: Json, role: str, error: str) -> None:
    with pytest.raises(BadConfig) as raised:
        scaled(found(job), 4, role)

    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("job", "spec"),
    [
        pytest.param(an_aitj(), {"suspend": True}, id="AITrainingJob"),
        pytest.param(a_dijob(), {"runPolicy": {"suspend": True}}, id="DIJob"),
        pytest.param(a_nervexjob(), {"runPolicy": {"suspend": True}}, id="NerveXJob"),
        pytest.param(an_mxjob(), {"runPolicy": {"suspend": True}}, id="MXJob"),
    ],
)
def test_every_kind_is_suspended_by_its_own_field(job: Json, spec: dict[str, Any]) -> None:
    assert suspension(found(job), is_suspended=True) == {"spec": spec}
