"""The machine of batch Jobs itself: what its laws see."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from tests.laws.machine import BatchMachine, machine_of
from tests.laws.maker import MxJobMaker
from tests.laws.memory import Object
from tests.laws.operator import LawBroken
from trainmaster.core.ids import JOB, Key, Resource

KEY = Key("n", "a")


@pytest.fixture
def machine() -> Iterator[BatchMachine]:
    """With a job for which one restart is counted."""
    made = machine_of(MxJobMaker())()
    assert isinstance(made, BatchMachine)
    _create(made, made.kind.resource, {"metadata": {"name": KEY.name}, "spec": {}})
    made.api.set_status(made.kind.resource, KEY, {"restarts": {"WORKER": {"count": 1, "used": 1}}})
    yield made
    made.loop.close()
    asyncio.set_event_loop(None)


def _create(machine: BatchMachine, resource: Resource, body: Object) -> None:
    machine.loop.run_until_complete(machine.api.create(resource, KEY.namespace, msgspec.json.encode(body)))


def test_a_restart_of_a_batch_job_that_one_step_created_and_deleted_breaks_no_law(machine: BatchMachine) -> None:
    owner = {"uid": machine.api.objects[machine.kind.resource][KEY]["metadata"]["uid"], "controller": True}
    metadata = {"name": "a-worker-1kkf-0", "labels": {"runtime_id": "1kkf"}, "ownerReferences": [owner]}
    _create(machine, JOB, {"metadata": metadata, "spec": {}})
    machine.api.remove(JOB, Key(KEY.namespace, "a-worker-1kkf-0"))

    machine.a_failure_is_counted_once()


def test_a_restart_without_any_batch_job_breaks_a_law(machine: BatchMachine) -> None:
    with pytest.raises(LawBroken, match="1 restarts, but Jobs of"):
        machine.a_failure_is_counted_once()
