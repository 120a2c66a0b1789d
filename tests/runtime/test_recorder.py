import asyncio
import itertools
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.runtime.cluster import Call, FakeCluster, Hook, raising, waiting
from tests.runtime.kind import NOW, TOY, a_toy
from trainmaster.core.errors import (
    Conflict,
    Forbidden,
    ServerError,
    Terminating,
    TooManyRequests,
    Trainmaster,
    Unreachable,
)
from trainmaster.core.ids import EVENT, Key
from trainmaster.core.plan import Event, normal, warning
from trainmaster.core.view import JobView
from trainmaster.runtime import recorder as module
from trainmaster.runtime.event_queue import LIMITS, Note
from trainmaster.runtime.recorder import INTERVAL, PATIENCE, RETRIED_FOR, SENDERS, Recorder

pytestmark = pytest.mark.looptime

JOB = a_toy()
STARTED = normal("Started", "all pods run")


class Rig:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.recorder = Recorder(self.cluster, self.now, is_busy=lambda: self.is_busy)
        self.wall = NOW
        self.is_busy = False

    def now(self) -> datetime:
        return self.wall

    def record(self, *events: Event, job: JobView = JOB) -> None:
        for event in events:
            self.recorder.record(TOY, job, "toy-operator", event)

    @asynccontextmanager
    async def sending(self, seconds: float = 0.0) -> AsyncIterator[None]:
        task = asyncio.create_task(self.recorder.run())
        await asyncio.sleep(seconds)
        yield
        assert not task.done()
        task.cancel()


def always(error: Exception) -> Hook:
    async def hook(_: Call) -> None:
        raise error

    return hook


def dropped(because: str) -> float:
    return REGISTRY.get_sample_value("trainmaster_events_dropped_total", {"because": because}) or 0.0


# --- what is sent ---


async def test_an_event_says_what_happened_to_which_job() -> None:
    rig = Rig()
    rig.record(warning("PodFailed", "worker-1 exited 137"))
    async with rig.sending(1):
        pass

    (call,) = rig.cluster.calls
    name = call.body["metadata"].pop("name")
    assert name.startswith("mnist.")
    assert (call.verb, call.resource) == ("create", EVENT)
    assert {key: value for key, value in call.body.items() if key != "metadata"} == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "test.example/v1",
            "kind": "Toy",
            "namespace": "ml",
            "name": "mnist",
            "uid": "uid-of-mnist",
        },
        "type": "Warning",
        "reason": "PodFailed",
        "message": "worker-1 exited 137",
        "source": {"component": "toy-operator"},
        "reportingComponent": "toy-operator",
        "count": 1,
        "firstTimestamp": "2026-11-15T12:00:00Z",
        "lastTimestamp": "2026-11-15T12:00:00Z",
    }


async def test_events_keep_their_order() -> None:
    rig = Rig()
    rig.record(*(normal("Started", f"step {n}") for n in range(10)))
    async with rig.sending(1):
        pass

    assert [call.body["message"] for call in rig.cluster.calls] == [f"step {n}" for n in range(10)]


async def test_an_event_has_the_time_of_its_recording_not_of_its_sending() -> None:
    rig = Rig()
    rig.record(STARTED)
    rig.wall = NOW + timedelta(hours=1)
    async with rig.sending(1):
        pass

    assert rig.cluster.calls[0].body["firstTimestamp"] == "2026-11-15T12:00:00Z"


async def test_events_of_the_same_microsecond_have_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 5)
    rig = Rig()
    rig.record(*(normal("Started", f"step {n}") for n in range(50)))
    async with rig.sending(5):
        pass

    assert len({call.key for call in rig.cluster.asked("create")}) == 50


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="just fits"),
        pytest.param("x" * 1025, "x" * 1020 + " …", id="too long"),
        pytest.param("ü" * 512, "ü" * 512, id="just fits in two bytes each"),
        pytest.param("aü" + "ü" * 512, "a" + "ü" * 509 + " …", id="not within a character"),
        pytest.param("a😀" * 400, "a😀" * 204 + " …", id="four bytes each"),
        pytest.param("half \ud83d of a pair", "half ? of a pair", id="no character at all"),
        pytest.param("", "", id="empty"),
    ],
)
async def test_a_message_is_cut_at_1024_bytes_between_two_characters(message: str, sent: str) -> None:
    rig = Rig()
    rig.record(normal("Started", message))
    async with rig.sending(1):
        pass

    assert rig.cluster.calls[0].body["message"] == sent
    assert len(sent.encode()) <= 1024


# --- the same again ---


async def test_the_same_event_again_raises_the_count_of_the_first() -> None:
    rig = Rig()
    async with rig.sending():
        for _ in range(3):
            rig.record(STARTED)
            await asyncio.sleep(1)
            rig.wall += timedelta(minutes=1)

    first, second, third = rig.cluster.calls
    assert [call.verb for call in (first, second, third)] == ["create", "patch", "patch"]
    assert second.key == third.key == first.key
    assert second.body == {"count": 2, "lastTimestamp": "2026-11-15T12:01:00Z"}
    assert third.body == {"count": 3, "lastTimestamp": "2026-11-15T12:02:00Z"}


@pytest.mark.parametrize(
    ("event", "job"),
    [
        pytest.param(normal("Started", "another message"), JOB, id="message"),
        pytest.param(normal("Ended", STARTED.message), JOB, id="reason"),
        pytest.param(warning("Started", STARTED.message), JOB, id="type"),
        pytest.param(STARTED, a_toy("other"), id="job"),
        pytest.param(STARTED, a_toy(uid="second"), id="incarnation"),
    ],
)
async def test_an_event_that_differs_is_another_event(event: Event, job: JobView) -> None:
    rig = Rig()
    rig.record(STARTED)
    rig.record(event, job=job)
    async with rig.sending(1):
        pass

    assert [call.verb for call in rig.cluster.calls] == ["create", "create"]


async def test_an_event_that_the_server_has_forgotten_is_sent_anew() -> None:
    rig = Rig()
    async with rig.sending():
        rig.record(STARTED, STARTED)
        await asyncio.sleep(1)
        rig.cluster.take(EVENT, rig.cluster.calls[0].key)
        rig.wall += timedelta(hours=2)
        rig.record(STARTED, STARTED)
        await asyncio.sleep(1)

    assert [(call.verb, call.body["count"]) for call in rig.cluster.calls] == [
        ("create", 1),
        ("patch", 2),
        ("patch", 3),
        ("create", 1),
        ("patch", 2),
    ]
    assert rig.cluster.calls[4].key == rig.cluster.calls[3].key != rig.cluster.calls[0].key


async def test_only_so_many_events_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 10)
    rig = Rig()
    rig.record(*(normal("Started", f"step {n}") for n in range(30)))
    rig.record(normal("Started", "step 29"), normal("Started", "step 0"))
    async with rig.sending(5):
        pass

    assert len(rig.recorder._sent) == 10
    assert [call.verb for call in rig.cluster.calls[-2:]] == ["patch", "create"]


# --- never in the way ---


async def test_nothing_is_sent_faster_than_the_interval() -> None:
    rig = Rig()
    rig.record(*(normal("Started", f"step {n % 20}") for n in range(40)))
    async with rig.sending(2):
        pass

    times = [call.at for call in rig.cluster.calls]
    assert len(times) == 40
    assert all(later - sooner >= INTERVAL - 1e-6 for sooner, later in itertools.pairwise(times))


async def test_events_wait_while_jobs_do() -> None:
    rig = Rig()
    rig.is_busy = True
    rig.record(*(normal("Started", f"step {n}") for n in range(10)))
    async with rig.sending(1):
        assert rig.cluster.calls == []
        rig.is_busy = False
        await asyncio.sleep(0.5)
        assert len(rig.cluster.calls) == 10


async def test_no_event_waits_long_however_long_the_jobs_do() -> None:
    rig = Rig()
    rig.is_busy = True
    for n in range(100):
        rig.record(STARTED, job=a_toy(f"job-{n}"))
    async with rig.sending(PATIENCE + 5):
        assert len(rig.cluster.calls) == 100
        assert rig.cluster.calls[0].at >= PATIENCE


async def test_events_do_not_wait_for_jobs_at_the_end() -> None:
    rig = Rig()
    rig.is_busy = True
    rig.record(*(normal("Started", f"step {n}") for n in range(10)))
    async with rig.sending():
        start = asyncio.get_running_loop().time()
        await rig.recorder.flush(60)
        assert len(rig.cluster.calls) == 10
        assert asyncio.get_running_loop().time() - start < 1


async def test_a_full_queue_drops_and_counts_and_recording_never_waits() -> None:
    rig = Rig()
    before = dropped("queue full")
    for n in range(LIMITS.total + 7):
        rig.record(STARTED, job=a_toy(f"job-{n}"))

    assert dropped("queue full") - before == 7
    assert len(rig.recorder._queue) == LIMITS.total


async def test_dropped_events_are_reported_once_a_minute(logs: list[MutableMapping[str, Any]]) -> None:
    rig = Rig()
    for _ in range(3):
        rig.record(*(normal("Started", f"step {n}") for n in range(2 * LIMITS.of_job)))
        await asyncio.sleep(30)

    reports = [line["events"] for line in logs if line["event"].startswith("events dropped")]
    first, rest = 1, LIMITS.of_job - 1
    assert reports == [first, rest + 2 * LIMITS.of_job + first]


@pytest.mark.parametrize(
    ("error", "because"),
    [
        pytest.param(Forbidden("events is forbidden"), "refused", id="forbidden"),
        pytest.param(Conflict("conflict"), "refused", id="conflict"),
        pytest.param(RuntimeError("Session is closed"), "defect", id="a defect"),
    ],
)
async def test_an_event_that_cannot_be_sent_is_dropped_and_the_next_one_is_sent(
    error: Exception, because: str, logs: list[MutableMapping[str, Any]]
) -> None:
    rig = Rig()
    before = dropped(because)
    rig.cluster.before = raising("create", error)
    rig.record(STARTED, normal("Ended", "done"))
    async with rig.sending(1):
        pass

    assert dropped(because) - before == 1
    assert [call.body["reason"] for call in rig.cluster.calls] == ["Started", "Ended"]
    assert (logs[0]["job"], logs[0]["reason"]) == ("ml/mnist", "Started")


async def test_an_event_of_a_namespace_that_is_being_deleted_is_not_missed(
    logs: list[MutableMapping[str, Any]],
) -> None:
    rig = Rig()
    before = dropped("refused")
    rig.cluster.before = raising("create", Terminating("namespace ml is being terminated", code=403))
    rig.record(STARTED)
    async with rig.sending(1):
        pass

    assert len(rig.cluster.calls) == 1
    assert dropped("refused") == before
    assert {line["log_level"] for line in logs} == {"debug"}


PASSING = [
    pytest.param(Unreachable("cut"), id="no answer"),
    pytest.param(TooManyRequests("slow down"), id="too many"),
    pytest.param(ServerError("etcd is away"), id="server error"),
]


@pytest.mark.parametrize("error", PASSING)
async def test_an_event_is_sent_again_after_a_failure_that_passes_and_before_the_next_one(error: Trainmaster) -> None:
    rig = Rig()
    rig.cluster.before = raising("create", error, error)
    rig.record(STARTED, normal("Ended", "done"))
    async with rig.sending(10):
        pass

    assert [call.body["reason"] for call in rig.cluster.calls] == ["Started", "Started", "Started", "Ended"]
    assert len({call.key for call in rig.cluster.calls}) == 2  # a retry has the same name


async def test_an_event_whose_answer_was_lost_is_not_created_twice() -> None:
    rig = Rig()
    rig.cluster.after = raising("create", Unreachable("cut"))
    rig.record(STARTED)
    async with rig.sending(10):
        rig.record(STARTED)
        await asyncio.sleep(1)

    assert [(call.verb, call.body["count"]) for call in rig.cluster.calls] == [
        ("create", 1),
        ("create", 1),
        ("patch", 2),
    ]


async def test_an_event_is_given_up_after_ten_minutes_of_failures() -> None:
    rig = Rig()
    before = dropped("refused")
    rig.cluster.before = always(Unreachable("cut"))
    rig.record(STARTED)
    async with rig.sending(2 * RETRIED_FOR):
        assert len(rig.recorder._queue) == 0

    assert dropped("refused") - before == 1
    assert RETRIED_FOR - 100 < rig.cluster.calls[-1].at < RETRIED_FOR + 100


async def test_a_sender_waits_for_the_next_try_without_work_also_if_its_timer_is_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Timers fire up to a nanosecond early, which is the resolution of the clock."""
    rig = Rig()
    takes: list[float] = []
    take = rig.recorder._queue.take

    def counted(now: float, *, hurry: bool) -> Note | None:
        takes.append(now)
        assert len(takes) < 1000
        return take(now, hurry=hurry)

    monkeypatch.setattr(rig.recorder._queue, "take", counted)
    monkeypatch.setattr(rig.recorder._backoff, "delay", lambda tries: 1.0000000002)
    rig.cluster.before = always(Unreachable("cut"))
    rig.record(STARTED)
    async with rig.sending(10):
        pass

    assert len(rig.cluster.calls) == 10


async def test_events_of_other_jobs_are_sent_while_those_of_one_get_no_answer() -> None:
    rig = Rig()

    async def hang(call: Call) -> None:
        if call.body.get("involvedObject", {}).get("name") == "slow":
            await asyncio.sleep(1000)

    rig.cluster.before = hang
    rig.record(STARTED, normal("Ended", "done"), job=a_toy("slow"))
    rig.record(STARTED, job=a_toy("quick"))
    async with rig.sending(1):
        pass

    assert [call.body["involvedObject"]["name"] for call in rig.cluster.calls] == ["slow", "quick"]


async def test_several_events_are_sent_at_once() -> None:
    rig = Rig()
    rig.cluster.before = waiting("create", 1.0)
    for n in range(2 * SENDERS):
        rig.record(STARTED, job=a_toy(f"job-{n}"))
    async with rig.sending(0.5):
        assert len(rig.cluster.calls) == SENDERS


async def test_a_count_that_could_not_be_stored_is_not_lost() -> None:
    rig = Rig()
    rig.cluster.before = raising("patch", Unreachable("cut"))
    rig.record(STARTED, STARTED, STARTED)
    async with rig.sending(5):
        pass

    assert rig.cluster.calls[-1].body["count"] == 3


# --- the end ---


async def test_flush_waits_until_everything_is_sent() -> None:
    rig = Rig()
    rig.record(*(normal("Started", f"step {n}") for n in range(10)))
    async with rig.sending():
        start = asyncio.get_running_loop().time()
        await rig.recorder.flush(60)
        assert len(rig.cluster.calls) == 10
        assert asyncio.get_running_loop().time() - start < 1


async def test_flush_with_nothing_to_send_is_immediate() -> None:
    rig = Rig()
    start = asyncio.get_running_loop().time()
    await rig.recorder.flush(60)

    assert asyncio.get_running_loop().time() == start


async def test_flush_gives_up_after_its_timeout_and_counts_what_was_not_sent() -> None:
    rig = Rig()
    before = dropped("shut down")
    rig.cluster.before = waiting("create", 1000)
    rig.record(*(normal("Started", f"step {n}") for n in range(10)))
    async with rig.sending(1):
        start = asyncio.get_running_loop().time()
        await rig.recorder.flush(3)
        assert asyncio.get_running_loop().time() == start + 3

    assert dropped("shut down") - before == 9  # the tenth is under way, and may arrive


async def test_an_event_lives_in_the_namespace_of_its_job() -> None:
    rig = Rig()
    rig.record(STARTED)
    async with rig.sending(1):
        pass

    assert rig.cluster.find(EVENT, Key("ml", rig.cluster.calls[0].key.name)) is not None
