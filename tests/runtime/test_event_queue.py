"""The queue of events is pure: time is an argument."""

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.runtime.kind import NOW, TOY
from trainmaster.core.ids import Key
from trainmaster.core.plan import normal, warning
from trainmaster.runtime.event_queue import TURNS_OF_WARNINGS, EventLimits, EventQueue, Note

WIDE = EventLimits(total=1000, of_job=1000, burst=1000)


def a_note(job: str, message: str = "", *, warns: bool = False, namespace: str = "ml", at: float = 0.0) -> Note:
    make = warning if warns else normal
    return Note(TOY, Key(namespace, job), f"{namespace}/{job}", "toy", make("Reason", message), job, NOW, at)


def filled(*notes: Note, limits: EventLimits = WIDE) -> EventQueue:
    queue = EventQueue(limits)
    for note in notes:
        assert queue.add(note, 0.0) is None
    return queue


def served(queue: EventQueue, now: float = 0.0) -> list[str]:
    """Jobs in the order in which one sender serves them."""
    found = []
    while (note := queue.take(now)) is not None:
        found.append(note.job.name)
        queue.done(note, now)
    return found


# --- turns ---


def test_jobs_take_turns() -> None:
    queue = filled(*[a_note("busy", f"{n}") for n in range(3)], a_note("a"), a_note("b"))

    assert served(queue) == ["busy", "a", "b", "busy", "busy"]


def test_namespaces_take_turns_however_many_jobs_one_of_them_has() -> None:
    queue = filled(*[a_note(f"job-{n}") for n in range(100)], a_note("alone", namespace="other"))

    assert served(queue)[1] == "alone"


def test_jobs_with_warnings_come_first() -> None:
    queue = filled(a_note("a"), a_note("b"), a_note("c", "created"), a_note("c", "failed", warns=True))

    assert served(queue) == ["c", "c", "a", "b"]


def test_warnings_do_not_hold_up_the_others_for_ever() -> None:
    queue = filled(a_note("calm"), *[a_note(f"job-{n}", warns=True) for n in range(100)])

    assert served(queue)[TURNS_OF_WARNINGS] == "calm"


def test_events_of_one_job_are_sent_one_after_the_other() -> None:
    queue = filled(a_note("a", "1"), a_note("a", "2"))
    first = queue.take(0.0)
    assert first is not None
    assert queue.take(0.0) is None

    queue.done(first, 0.0)
    second = queue.take(0.0)
    assert second is not None
    assert (first.event.message, second.event.message) == ("1", "2")


# --- retries ---


def test_an_event_that_failed_comes_again_before_the_next_one_of_its_job_and_not_before_its_time() -> None:
    queue = filled(a_note("a", "1"), a_note("a", "2"), a_note("b"))
    first = queue.take(0.0)
    assert first is not None
    queue.retry(first, 5.0, 0.0)

    assert served(queue) == ["b"]
    assert queue.next_at() == 5.0
    again = queue.take(5.0)
    assert again is not None
    assert (again.event.message, again.tries) == ("1", 1)


def test_nothing_waits_at_the_end() -> None:
    queue = filled(a_note("a", "1"), a_note("a", "2"))
    first = queue.take(0.0)
    assert first is not None
    queue.retry(first, 500.0, 0.0)

    assert queue.take(1.0) is None
    assert queue.take(1.0, hurry=True) == first._replace(tries=1)


def test_a_job_that_did_not_wait_for_its_retry_has_one_turn() -> None:
    queue = filled(a_note("a"), a_note("b"))
    first = queue.take(0.0)
    assert first is not None
    queue.retry(first, 500.0, 0.0)
    assert queue.take(1.0, hurry=True) is not None
    queue.add(a_note("a", "2"), 1.0)

    assert queue.take(1.0, hurry=True) is not None
    assert queue.take(1.0, hurry=True) is None


# --- limits ---


def test_a_job_with_many_events_is_slowed_down_and_no_other_is() -> None:
    limits = EventLimits(burst=3, period=10.0)
    queue = filled(*[a_note("busy", f"{n}") for n in range(5)], a_note("calm"), limits=limits)

    assert served(queue) == ["busy", "calm", "busy", "busy"]
    assert queue.next_at() == 10.0
    assert served(queue, 9.9) == []
    assert served(queue, 10.0) == ["busy"]
    assert served(queue, 20.0) == ["busy"]


def test_a_job_may_send_a_burst_again_after_a_pause() -> None:
    limits = EventLimits(burst=3, period=10.0)
    queue = filled(*[a_note("busy", f"{n}") for n in range(3)], limits=limits)
    assert len(served(queue)) == 3
    for n in range(5):
        queue.add(a_note("busy", f"later {n}"), 1000.0)

    assert len(served(queue, 1000.0)) == 3


@pytest.mark.parametrize(
    ("waiting", "new", "dropped"),
    [
        pytest.param("NNN", "N", 0, id="the oldest"),
        pytest.param("WNN", "N", 1, id="the oldest Normal"),
        pytest.param("WWN", "W", 2, id="a Normal for a Warning"),
        pytest.param("WWW", "W", 0, id="the oldest of Warnings alone"),
        pytest.param("WWW", "N", 3, id="no Warning for a Normal"),
    ],
)
def test_of_a_job_with_too_many_events_the_oldest_normal_is_dropped(waiting: str, new: str, dropped: int) -> None:
    notes = [a_note("a", f"{n}", warns=word == "W") for n, word in enumerate(waiting + new)]
    queue = filled(*notes[:-1], limits=EventLimits(of_job=3))

    assert queue.add(notes[-1], 0.0) == notes[dropped]


def test_a_full_queue_drops_from_the_namespace_with_most_jobs() -> None:
    queue = filled(
        a_note("x", namespace="small"), *[a_note(f"job-{n}") for n in range(9)], limits=EventLimits(total=10)
    )

    dropped = queue.add(a_note("y", namespace="small"), 0.0)
    assert dropped is not None
    assert dropped.job == Key("ml", "job-0")


# --- everything at once ---

SMALL = EventLimits(total=12, of_job=4, burst=3, period=10.0, jobs=4)
JOBS = [(namespace, job) for namespace in ("a", "b") for job in ("1", "2", "3")]


class QueueMachine(RuleBasedStateMachine):
    """Any order of additions, takes, failures and pauses, beside a list for each job."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = EventQueue(SMALL)
        self.now = 0.0
        self.number = 0
        self.expected: dict[str, list[str]] = defaultdict(list)
        self.in_hand: dict[str, Note] = {}

    @rule(job=st.sampled_from(JOBS), warns=st.booleans())
    def add(self, job: tuple[str, str], warns: bool) -> None:
        self.number += 1
        note = a_note(job[1], f"{self.number}", warns=warns, namespace=job[0], at=self.now)
        self.expected[note.uid].append(note.event.message)
        dropped = self.queue.add(note, self.now)
        if dropped is not None:
            self.expected[dropped.uid].remove(dropped.event.message)

    @rule(hurry=st.booleans())
    def take(self, hurry: bool) -> None:
        note = self.queue.take(self.now, hurry=hurry)
        if note is None:
            due = self.queue.next_at()
            assert not hurry or due is None
            assert due is None or due > self.now
        else:
            assert note.uid not in self.in_hand, "two events of one job at once"
            assert note.event.message == self.expected[note.uid][0], "out of order"
            self.expected[note.uid].pop(0)
            self.in_hand[note.uid] = note

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.queue.done(self._one(data), self.now)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), delay=st.sampled_from([0.0, 1.0, 30.0]))
    def fail(self, data: st.DataObject, delay: float) -> None:
        note = self._one(data)
        self.expected[note.uid].insert(0, note.event.message)
        self.queue.retry(note, self.now + delay, self.now)

    @rule(seconds=st.sampled_from([0.5, 10.0, 100.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def _one(self, data: st.DataObject) -> Note:
        return self.in_hand.pop(data.draw(st.sampled_from(sorted(self.in_hand))))

    @invariant()
    def it_holds_what_is_expected_and_no_more_than_its_limits(self) -> None:
        assert len(self.queue) == sum(map(len, self.expected.values()))
        # Events that failed come back to a queue that is full by then.
        assert len(self.queue) <= SMALL.total + len(JOBS)
        assert len(self.queue._buckets) <= SMALL.jobs
        assert len(self.queue._delayed) <= len(JOBS)

    def teardown(self) -> None:
        """Everything that was not dropped is sent in the end, and nothing is left behind."""
        for note in self.in_hand.values():
            self.queue.done(note, self.now)
        for _ in range(1000):
            if (taken := self.queue.take(self.now)) is not None:
                assert taken.event.message == self.expected[taken.uid].pop(0)
                self.queue.done(taken, self.now)
            elif (due := self.queue.next_at()) is not None:
                self.now = due
        assert not any(self.expected.values())
        assert self.queue.is_empty
        assert self.queue._by_namespace == {}


TestAnyOrder = QueueMachine.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
