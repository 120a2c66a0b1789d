"""Directed histories: one watch is behind another."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.laws.machine import KEYS, NODES, NodeMachine, machine_of
from tests.laws.maker import AITrainingJobMaker
from trainmaster.core.ids import NODE, POD

MAIN = {"name": "aitj-main", "image": "x", "ports": [{"name": "aitj-80", "containerPort": 80}]}
WORKER: dict[str, Any] = {"template": {"spec": {"containers": [MAIN]}}, "replicas": 2}


@pytest.fixture
def machine() -> Iterator[NodeMachine]:
    """A job of two workers that run, each on a node of its own."""
    machine = machine_of(AITrainingJobMaker())()
    assert isinstance(machine, NodeMachine)
    worker = WORKER | {"restartPolicy": "Always", "restartScope": "Pod"}
    spec = {"replicaSpecs": {"worker": worker}, "cleanPodPolicy": "None"}
    body = msgspec.json.encode(machine.maker.manifest(KEYS[0], spec))
    machine.loop.run_until_complete(machine.api.create(machine.kind.resource, KEYS[0].namespace, body))
    for to in ("bound", "Running", "Running"):
        machine.make_progress(to)
    machine.operator.catch_up()
    yield machine
    machine.teardown()


def look(machine: NodeMachine) -> None:
    machine.run_pass(KEYS[0])
    machine.a_failure_is_counted_once()


@pytest.mark.parametrize("how", ["not ready", "out of service"])
@pytest.mark.parametrize("end", ["Succeeded", "deleted"])
def test_pods_that_ended_before_their_nodes_were_lost_are_not_restarted(
    machine: NodeMachine, how: str, end: str
) -> None:
    if end == "Succeeded":
        machine.report_all_pods("Succeeded")
    else:
        machine.delete_child(0, POD, True)
        machine.delete_child(0, POD, True)
    for name in NODES:
        machine._lose(name, how)
    machine.tick(600)
    machine.operator.deliver(NODE, 1_000_000)

    look(machine)

    machine.operator.catch_up()
    look(machine)


def test_pods_that_run_when_their_nodes_are_lost_are_restarted(machine: NodeMachine) -> None:
    for name in NODES:
        machine._lose(name, "out of service")
    machine.operator.deliver(NODE, 1_000_000)

    look(machine)

    (job,) = machine.api.objects[machine.kind.resource].values()
    assert job["status"]["restarts"]["worker"]["used"] == 1
    assert len(job["status"]["restartHistory"]) == 2
