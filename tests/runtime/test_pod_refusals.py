"""Reading the Events of batch Jobs that get no pods: which, how often, and what is made of them."""

from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from tests.build import NOW, Json, view_of
from tests.kinds.mlkube.build import a_begun, a_job
from trainmaster.core.errors import ApiError, Forbidden, TooLarge, Trainmaster, Unreachable
from trainmaster.core.ids import EVENT, POD, Key, Resource
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.pod_refusals import PodRefusals

JOB = a_begun()
VIEW = view_of(JOB)
WORKERS = [a_job(JOB, "worker", index) for index in range(2)]
QUOTA = 'pods "digits-worker-1kkf-0-x7k2p" is forbidden: exceeded quota: gpu'


def an_event(message: str = f"Error creating: {QUOTA}", *, at: datetime = NOW, field: str = "lastTimestamp") -> Json:
    return {"message": message, field: at.isoformat()}


class Events:
    """A cluster that has nothing but Events, of the Job that is asked for."""

    def __init__(self, *events: Json, error: Trainmaster | None = None) -> None:
        self.events, self.error = events, error
        self.fields: list[str] = []

    async def list(self, resource: Resource, *, namespace: str, fields: str, **_: Any) -> bytes:
        assert (resource, namespace) == (EVENT, "ml")
        self.fields.append(fields)
        if self.error:
            raise self.error
        return msgspec.json.encode({"metadata": {}, "items": self.events})


class Reader:
    def __init__(self, *events: Json, error: Trainmaster | None = None) -> None:
        self.cluster = Events(*events, error=error)
        self.now = NOW
        self.refusals = PodRefusals(cast(Cluster, self.cluster), lambda: self.now)

    async def read(self) -> list[tuple[Resource, Key, str]]:
        found = await self.refusals.of(VIEW, WORKERS)
        return [(failure.action.resource, failure.action.key, failure.error) for failure in found]


async def test_the_refusal_is_that_of_a_pod_in_the_words_of_the_api_server() -> None:
    reader = Reader(an_event())

    assert await reader.read() == [(POD, Key("ml", "digits-worker-1kkf-0"), "exceeded quota: gpu")]
    assert reader.cluster.fields == [f"involvedObject.uid={WORKERS[0].uid},reason=FailedCreate"]


async def test_the_newest_event_counts() -> None:
    old, new = an_event("Error creating: old", at=NOW - timedelta(minutes=2)), an_event("Error creating: new")

    for events in ((old, new), (new, old)):
        assert [error for _, _, error in await Reader(*events).read()] == ["new"]


@pytest.mark.parametrize(
    "event",
    [
        an_event("(combined from similar events): Error creating: exceeded quota: gpu"),
        an_event("Error creating: exceeded quota: gpu", field="eventTime"),
        an_event("Error creating: exceeded quota: gpu", field="firstTimestamp"),
    ],
)
async def test_events_come_in_several_forms(event: Json) -> None:
    assert [error for _, _, error in await Reader(event).read()] == ["exceeded quota: gpu"]


async def test_an_old_event_says_nothing_about_now() -> None:
    assert await Reader(an_event(at=NOW - timedelta(minutes=10))).read() == []
    assert await Reader({"message": "Error creating: exceeded quota"}).read() == []


async def test_events_are_read_once_in_a_while_for_each_job() -> None:
    reader = Reader(an_event())
    await reader.read()
    reader.now = NOW + timedelta(seconds=29)
    assert await reader.read() == []
    reader.now = NOW + timedelta(seconds=30)

    assert await reader.read() != []
    assert len(reader.cluster.fields) == 2


async def test_a_job_that_is_gone_is_not_remembered() -> None:
    reader = Reader(an_event())
    await reader.read()
    reader.refusals.forget(VIEW.uid)

    assert await reader.read() != []


async def test_nothing_is_read_where_all_have_pods() -> None:
    reader = Reader(an_event())

    assert await reader.refusals.of(VIEW, ()) == []
    assert reader.cluster.fields == []


@pytest.mark.parametrize(
    "error", [Forbidden("no right"), ApiError("odd"), Unreachable("no answer"), TooLarge("too long")], ids=repr
)
async def test_events_that_cannot_be_read_stop_nothing(error: Trainmaster) -> None:
    assert await Reader(error=error).read() == []
