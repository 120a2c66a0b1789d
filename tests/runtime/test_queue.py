import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import looptime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.ids import Key
from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.controller import KEPT_FREE, RESERVED
from trainmaster.runtime.queue import NORMAL, SOON, STARTUP, URGENT, KeyQueue, QueueClosed
from trainmaster.settings import OPERATOR

pytestmark = pytest.mark.looptime

A, B, C, D = (Key("ml", name) for name in "abcd")
BASE, CAP = 1.0, 60.0


class Heard:
    """What the queue told its observer."""

    def __init__(self) -> None:
        self.added_times = 0
        self.waits: list[float] = []
        self.retries = 0

    def added(self) -> None:
        self.added_times += 1

    def taken(self, waited: float) -> None:
        self.waits.append(waited)

    def retried(self) -> None:
        self.retries += 1


def a_queue(observer: Heard | None = None, *, share: int = 1000) -> KeyQueue:
    return KeyQueue(Backoff(BASE, CAP, jitter=lambda: 0.0), observer or Heard(), share=share)


def clock() -> float:
    return asyncio.get_running_loop().time()


async def next_of(queue: KeyQueue, within: float = 1000.0) -> Key | None:
    """The next key, None when there is none for so long."""
    try:
        async with asyncio.timeout(within):
            return await queue.get()
    except TimeoutError:
        return None


async def drained(queue: KeyQueue) -> list[Key]:
    found: list[Key] = []
    while (key := await next_of(queue, 0.001)) is not None:
        found.append(key)
    return found


# --- one place for each key ---


async def test_keys_come_in_the_order_they_were_added() -> None:
    queue = a_queue()
    for key in (B, A, C):
        queue.add(key)

    assert await drained(queue) == [B, A, C]


async def test_a_key_that_is_added_many_times_comes_once() -> None:
    queue = a_queue()
    for _ in range(100):
        queue.add(A)
        queue.add(B)

    assert await drained(queue) == [A, B]


async def test_only_what_changes_something_counts_as_added() -> None:
    queue = a_queue(heard := Heard())
    queue.add(A)
    await asyncio.sleep(1)
    queue.add(A)

    assert heard.added_times == 1


async def test_length_counts_what_could_be_worked_on_now() -> None:
    queue = a_queue()
    queue.add(A)
    queue.add(A)
    queue.add(B, after=5)

    assert len(queue) == 1
    await asyncio.sleep(6)
    assert len(queue) == 2
    await queue.get()
    assert len(queue) == 1


async def test_it_is_busy_while_a_key_waits_for_a_worker() -> None:
    queue, shown = a_queue(), []
    queue.add(A, after=5)
    shown.append(queue.is_busy)
    await asyncio.sleep(6)
    shown.append(queue.is_busy)
    await queue.get()
    shown.append(queue.is_busy)
    queue.add(B)
    shown.append(queue.is_busy)
    queue.close()
    shown.append(queue.is_busy)

    assert shown == [False, True, False, True, False]


# --- delays ---


async def test_a_delayed_key_comes_when_it_is_due() -> None:
    queue, start = a_queue(), clock()
    queue.add(A, after=30)

    assert await queue.get() == A
    assert clock() - start == pytest.approx(30)


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(30.0, 10.0, id="sooner later"), pytest.param(10.0, 30.0, id="sooner first")]
)
async def test_the_earlier_of_two_times_counts(first: float, second: float) -> None:
    queue, start = a_queue(), clock()
    queue.add(A, after=first)
    queue.add(A, after=second)

    assert await queue.get() == A
    assert clock() - start == pytest.approx(10)
    queue.done(A)
    assert await next_of(queue, 100) is None


async def test_a_new_earlier_key_does_not_wait_for_an_older_later_one() -> None:
    queue, start = a_queue(), clock()
    queue.add(A, after=30)
    queue.add(B, after=1)

    assert (await queue.get(), round(clock() - start)) == (B, 1)
    assert (await queue.get(), round(clock() - start)) == (A, 30)


async def test_the_wait_that_is_measured_does_not_include_a_delay_that_was_asked_for() -> None:
    queue = a_queue(heard := Heard())
    queue.add(A, after=10)
    await asyncio.sleep(12)
    await queue.get()

    assert heard.waits == [pytest.approx(2)]


async def test_outdated_places_do_not_pile_up() -> None:
    """A job with a deadline in a week is looked at again and again before: each pass asks for the week anew."""
    queue, start = a_queue(), clock()
    queue.add(B, after=30)
    for _ in range(5000):
        queue.add(A, after=604_800)
        queue.add(A)
        queue.done(await queue.get())

    assert len(queue._delayed) < 200
    queue.add(A, after=604_800)
    assert (await queue.get(), round(clock() - start)) == (B, 30)
    assert (await queue.get(), round(clock() - start)) == (A, 604_800)


async def test_an_outdated_place_is_no_place() -> None:
    queue, start = a_queue(), clock()
    queue.add(A, priority=STARTUP)
    queue.add(A, priority=NORMAL)
    queue.done(await queue.get())
    queue.add(A, after=10)

    assert (await queue.get(), round(clock() - start)) == (A, 10)


# --- priorities ---


async def test_urgent_work_comes_before_new_work_and_startup_work_after() -> None:
    queue = a_queue()
    queue.add(A, priority=STARTUP)
    queue.add(B, priority=NORMAL)
    queue.add(C, priority=NORMAL)
    queue.add(D, priority=URGENT)

    assert await drained(queue) == [D, B, C, A]


async def test_who_takes_urgent_work_alone_leaves_the_rest_to_others() -> None:
    queue = a_queue()
    reserved = asyncio.create_task(queue.get(only_urgent=True))
    queue.add(A)
    queue.add(B, after=5)

    await asyncio.sleep(10)
    assert not reserved.done()
    queue.add(B, priority=URGENT)

    assert await asyncio.wait_for(reserved, 1) == B
    assert await next_of(queue) == A


async def test_urgent_work_goes_to_whoever_can_do_nothing_else() -> None:
    queue = a_queue()
    free, reserved = asyncio.create_task(queue.get()), asyncio.create_task(queue.get(only_urgent=True))
    await asyncio.sleep(1)
    queue.add(A, priority=URGENT)
    queue.add(B)

    assert [await asyncio.wait_for(task, 1) for task in (reserved, free)] == [A, B]


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(STARTUP, NORMAL, id="raised"), pytest.param(NORMAL, STARTUP, id="not lowered")]
)
async def test_the_higher_of_two_priorities_counts(first: int, second: int) -> None:
    queue = a_queue()
    queue.add(A, priority=STARTUP)
    queue.add(B, priority=first)
    queue.add(B, priority=second)

    assert await drained(queue) == [B, A]


async def test_a_delayed_key_keeps_its_priority() -> None:
    queue = a_queue()
    queue.add(A, after=1, priority=STARTUP)
    queue.add(B, after=2)
    await asyncio.sleep(3)

    assert await drained(queue) == [B, A]


# --- a key is worked on by one at a time ---


async def test_a_key_in_hand_is_given_to_nobody_else() -> None:
    queue = a_queue()
    queue.add(A)
    await queue.get()
    queue.add(A)

    assert await next_of(queue, 100) is None


async def test_a_key_added_while_in_hand_comes_back_once_when_done() -> None:
    queue = a_queue()
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    queue.done(A)

    assert await drained(queue) == [A]
    queue.done(A)
    assert await next_of(queue, 100) is None


async def test_a_delay_asked_for_while_in_hand_runs_from_then() -> None:
    queue, start = a_queue(), clock()
    queue.add(A)
    await queue.get()
    queue.add(A, after=10)
    await asyncio.sleep(4)
    queue.done(A)

    assert await queue.get() == A
    assert clock() - start == pytest.approx(10)


async def test_many_workers_get_one_key_each() -> None:
    queue = a_queue()
    keys = [Key("ml", str(n)) for n in range(50)]
    workers = [asyncio.create_task(queue.get()) for _ in range(50)]
    await asyncio.sleep(1)
    for key in keys:
        queue.add(key)

    assert sorted([await worker for worker in workers]) == sorted(keys)


# --- failures ---


async def test_retries_come_later_each_time_up_to_the_cap() -> None:
    queue = a_queue(heard := Heard())
    queue.add(A)
    gaps = []
    for _ in range(9):
        await queue.get()
        queue.retry(A)
        queue.done(A)
        failed = clock()
        await queue.get()
        gaps.append(clock() - failed)
        queue.done(A)
        queue.add(A)

    assert gaps == [pytest.approx(seconds) for seconds in (1, 2, 4, 8, 16, 32, 60, 60, 60)]
    assert (heard.retries, queue.failures(A)) == (9, 9)


async def test_all_that_failed_is_tried_at_once_when_the_reason_may_be_over() -> None:
    queue = a_queue()
    queue.add(A)
    for _ in range(5):
        await queue.get()
        delay = queue.retry(A)
        queue.done(A)
    assert (delay, await next_of(queue, within=2)) == (16.0, None)

    queue.retry_all()

    assert await next_of(queue, within=0.001) == A
    assert queue.retry(A) == 32.0


async def test_what_failed_a_moment_ago_is_not_tried_at_once() -> None:
    queue = a_queue()
    queue.retry(A)

    queue.retry_all()

    assert await next_of(queue, within=0.5) is None
    assert await next_of(queue, within=1.0) == A


async def test_retry_says_in_how_many_seconds() -> None:
    queue = a_queue()

    assert [queue.retry(A) for _ in range(3)] == [1.0, 2.0, 4.0]


async def test_a_key_that_failed_is_not_worked_on_more_than_once_a_second_however_often_it_is_added() -> None:
    queue = a_queue()
    passes: list[float] = []

    async def fail_for_ever() -> None:
        while True:
            key = await queue.get()
            passes.append(clock())
            queue.add(A)  # an event during the pass
            queue.retry(key)
            queue.add(A)
            queue.done(key)

    worker = asyncio.create_task(fail_for_ever())
    for _ in range(400):
        queue.add(A)
        await asyncio.sleep(0.05)
    worker.cancel()

    assert len(passes) <= 21
    assert all(later - sooner >= BASE - 1e-6 for sooner, later in itertools.pairwise(passes))


async def test_a_key_that_succeeded_is_not_held_back() -> None:
    queue, start = a_queue(), clock()
    queue.retry(A)
    queue.forget(A)
    queue.add(A)

    assert await queue.get() == A
    assert clock() == start


async def test_after_success_the_next_failure_starts_from_the_beginning() -> None:
    queue = a_queue()
    for _ in range(5):
        queue.retry(A)
    queue.forget(A)

    assert queue.failures(A) == 0
    assert queue.retry(A) == BASE


async def test_one_failing_key_does_not_hold_back_another() -> None:
    queue, start = a_queue(), clock()
    queue.retry(A)
    queue.add(B)

    assert await queue.get() == B
    assert clock() == start


# --- the end ---


async def test_close_wakes_all_who_wait() -> None:
    queue = a_queue()
    waiters = [asyncio.create_task(queue.get()) for _ in range(10)]
    await asyncio.sleep(1)
    queue.close()

    results = await asyncio.wait_for(asyncio.gather(*waiters, return_exceptions=True), 1)
    assert [type(result) for result in results] == [QueueClosed] * 10


async def test_a_closed_queue_gives_nothing_out_and_takes_anything_in() -> None:
    queue = a_queue()
    queue.add(A)
    queue.close()
    queue.add(B)
    queue.add(C, after=1)

    with pytest.raises(QueueClosed):
        await queue.get()
    await asyncio.sleep(2)
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_done_after_close_is_harmless() -> None:
    queue = a_queue()
    queue.add(A)
    await queue.get()
    queue.add(A, after=1)
    queue.close()
    queue.done(A)
    await asyncio.sleep(2)

    with pytest.raises(QueueClosed):
        await queue.get()


# --- waiters that give up ---


@pytest.mark.parametrize(("is_reserved", "is_other_reserved"), [(False, False), (True, False), (True, True)])
async def test_a_waiter_that_is_cancelled_when_a_key_came_leaves_it_to_another(
    is_reserved: bool, is_other_reserved: bool
) -> None:
    queue = a_queue()
    first = asyncio.create_task(queue.get(only_urgent=is_reserved))
    second = asyncio.create_task(queue.get(only_urgent=is_other_reserved))
    await asyncio.sleep(1)
    queue.add(A, priority=URGENT)  # wakes the first, which did not run yet
    first.cancel()

    assert await asyncio.wait_for(second, 1) == A
    assert first.cancelled()


async def test_a_waiter_that_gave_up_long_ago_does_not_swallow_a_key() -> None:
    queue = a_queue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.sleep(1)
    queue.add(A)

    assert await asyncio.wait_for(second, 1) == A


# --- several namespaces ---

OTHER = Key("rl", "other")


async def test_namespaces_take_turns() -> None:
    queue = a_queue()
    for key in (A, B, C, OTHER):
        queue.add(key)

    assert await drained(queue) == [A, OTHER, B, C]


async def test_urgent_work_of_one_namespace_comes_before_normal_work_of_another() -> None:
    queue = a_queue()
    queue.add(OTHER)
    for key in (A, B):
        queue.add(key, priority=URGENT)

    assert await drained(queue) == [A, B, OTHER]


async def test_a_namespace_occupies_its_share_of_the_workers_and_no_more() -> None:
    queue = a_queue(share=2)
    for key in (A, B, C, OTHER):
        queue.add(key)

    assert await drained(queue) == [A, OTHER, B]
    queue.done(A)
    assert await drained(queue) == [C]


async def test_a_worker_that_sleeps_is_woken_when_a_namespace_is_below_its_share_again() -> None:
    queue = a_queue(share=1)
    queue.add(A)
    queue.add(B)
    assert await next_of(queue) == A
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.done(A)

    assert await asyncio.wait_for(waiting, 1) == B


async def test_workers_for_urgent_keys_do_not_count_for_the_share() -> None:
    queue = a_queue(share=1)
    queue.add(A, priority=URGENT)
    queue.add(B, priority=URGENT)
    queue.add(C)

    assert await queue.get(only_urgent=True) == A
    assert await queue.get(only_urgent=True) == B
    assert await next_of(queue) == C


LIFE = (NORMAL, NORMAL, SOON, URGENT, SOON, URGENT, SOON)
"""Passes of a job until it runs: it is new, its children are there, a status is stored, pods run, and so on."""
PASS = 0.1


async def seconds_of_a_life(neighbours: int, priority: int) -> float:
    """How long a job takes until it runs, while each of its neighbours in one other namespace is always due."""
    workers, ends = OPERATOR.workers, list(LIFE)
    queue = a_queue(share=workers - workers // KEPT_FREE)

    async def work(*, only_urgent: bool) -> None:
        with suppress(QueueClosed):
            while True:
                key = await queue.get(only_urgent=only_urgent)
                await asyncio.sleep(PASS)
                queue.done(key)
                if key != OTHER:
                    queue.add(key, priority=priority)
                elif ends:
                    queue.add(key, priority=ends.pop(0))
                else:
                    queue.close()

    for number in range(neighbours):
        queue.add(Key("ml", f"job-{number}"), priority=priority)
    async with asyncio.timeout(1000 * PASS), asyncio.TaskGroup() as group:
        for number in range(workers + RESERVED):
            group.create_task(work(only_urgent=number >= workers))
        await asyncio.sleep(10 * PASS)  # all workers that may have a neighbour have one
        began = clock()
        queue.add(OTHER, priority=ends.pop(0))
    return clock() - began


@pytest.mark.parametrize("priority", [URGENT, SOON, NORMAL, STARTUP])
async def test_a_job_runs_as_soon_as_alone_beside_200_jobs_of_another_namespace(priority: int) -> None:
    alone = await seconds_of_a_life(0, priority)

    assert alone == pytest.approx(len(LIFE) * PASS)
    assert await seconds_of_a_life(200, priority) <= alone + PASS


# --- any sequence ---

KEYS = st.sampled_from([A, B, C, OTHER])
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), KEYS, st.sampled_from([0.0, 0.0, 0.5, 3.0]), st.sampled_from([STARTUP, NORMAL, URGENT])),
    st.tuples(st.sampled_from(["done", "retry", "forget"]), KEYS),
    st.tuples(st.sampled_from(["get", "get urgent", "cancel", "yield"])),
    st.tuples(st.just("sleep"), st.sampled_from([0.1, 1.0, 5.0])),
)


class Model:
    """Drives a queue and remembers what it owes, and from when on: every key that was added and not given out since."""

    def __init__(self) -> None:
        self.queue = a_queue(share=2)
        self.owed: dict[Key, float] = {}
        self.in_hand: set[Key] = set()
        self.not_before: dict[Key, float] = {}
        self.getters: list[asyncio.Task[None]] = []

    async def _get(self, *, only_urgent: bool = False) -> None:
        key = await self.queue.get(only_urgent=only_urgent)
        assert key not in self.in_hand, "worked on twice at once"
        assert key in self.owed, "nobody asked for it"
        assert clock() >= self.not_before.get(key, 0.0) - 1e-6, "too soon after a failure"
        assert clock() >= self.owed.pop(key) - 1e-6, "too soon"
        self.in_hand.add(key)

    def _owe(self, key: Key, after: float) -> None:
        self.owed[key] = min(clock() + after, self.owed.get(key, float("inf")))

    async def do(self, operation: tuple[object, ...]) -> None:
        match operation:
            case ("add", Key() as key, float(after), int(priority)):
                self._owe(key, after)
                self.queue.add(key, after=after, priority=priority)
            case ("done", Key() as key) if key in self.in_hand:
                self._done(key)
            case ("retry", Key() as key) if key in self.in_hand:
                self.not_before[key] = clock() + BASE
                self._owe(key, self.queue.retry(key))
                self._done(key)
            case ("forget", Key() as key):
                self.not_before.pop(key, None)
                self.queue.forget(key)
            case ("get",):
                self.getters.append(asyncio.create_task(self._get()))
            case ("get urgent",):
                self.getters.append(asyncio.create_task(self._get(only_urgent=True)))
            case ("cancel",) if self.getters:
                self.getters.pop(0).cancel()
            case ("yield",):
                await asyncio.sleep(0)
            case ("sleep", float(seconds)):
                await asyncio.sleep(seconds)

    def _done(self, key: Key) -> None:
        self.in_hand.discard(key)
        self.queue.done(key)

    async def settle(self) -> None:
        """Everything is given out that is owed; whoever waits for more is told that nothing comes."""
        await asyncio.sleep(0)
        for _ in range(4):
            for key in list(self.in_hand):
                self._done(key)
            self.getters += [asyncio.create_task(self._get()) for _ in (A, B, C, OTHER)]
            await asyncio.sleep(2 * CAP)
        assert not self.owed, "a key got lost"
        self.queue.close()
        for result in await asyncio.gather(*self.getters, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError | QueueClosed | None):
                raise result


@asynccontextmanager
async def a_model() -> AsyncIterator[Model]:
    model = Model()
    yield model
    await model.settle()


@settings(max_examples=100, deadline=None)
@given(st.lists(OPERATIONS, max_size=40))
def test_no_key_is_lost_and_none_is_worked_on_twice_at_once(operations: list[tuple[object, ...]]) -> None:
    async def play() -> None:
        async with a_model() as model:
            for operation in operations:
                await model.do(operation)

    with asyncio.Runner(loop_factory=partial(looptime.new_event_loop, noop_cycles=3)) as runner:
        runner.run(play())


# --- no ready key waits while a worker sleeps ---


@given(
    rounds=st.lists(
        st.lists(
            st.tuples(st.sampled_from(["ml", "rl"]), st.sampled_from([STARTUP, NORMAL, URGENT])),
            min_size=1,
            max_size=5,
        ),
        min_size=1,
        max_size=5,
    ),
    workers=st.integers(1, 4),
    reserved=st.integers(0, 2),
    share=st.integers(1, 4),
)
@settings(deadline=None)
def test_no_ready_key_waits_while_a_worker_may_take_it_and_sleeps(
    rounds: list[list[tuple[str, int]]], workers: int, reserved: int, share: int
) -> None:
    """Keys of all priorities are added in one step of the loop; passes never end."""

    async def play() -> None:
        queue, taken, ready = a_queue(share=share), Counter[str](), Counter[str]()

        async def work(*, only_urgent: bool) -> None:
            key = await queue.get(only_urgent=only_urgent)
            ready[key.namespace] -= 1
            taken[key.namespace] += not only_urgent

        pool = [asyncio.ensure_future(work(only_urgent=index >= workers)) for index in range(workers + reserved)]
        names = itertools.count()
        for added in rounds:
            await asyncio.sleep(0)
            for namespace, priority in added:
                ready[namespace] += 1
                queue.add(Key(namespace, str(next(names))), priority=priority)
            for _ in range(2 * len(pool)):
                await asyncio.sleep(0)
            sleeping = [task for task in pool[:workers] if not task.done()]
            left = {name: count for name, count in ready.items() if count and taken[name] < share}
            assert not (left and sleeping), f"{left} are ready, {len(sleeping)} workers sleep"
            assert max(taken.values(), default=0) <= share
        for task in pool:
            task.cancel()
        await asyncio.gather(*pool, return_exceptions=True)

    asyncio.run(play())
