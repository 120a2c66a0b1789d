import asyncio
import itertools
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from tests.runtime.cluster import Call, FakeCluster, raising, waiting
from tests.runtime.kind import TOY, a_bookmark, a_line, a_page, a_pod, an_error_line, pod_json, toy_json
from trainmaster.core.errors import (
    Forbidden,
    Gone,
    NotFound,
    NotSynced,
    ServerError,
    TooLarge,
    Trainmaster,
    Unreachable,
)
from trainmaster.core.ids import NODE, POD, SERVICE, Key, Resource
from trainmaster.core.view import (
    JOB_CODEC,
    NODE_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    Codec,
    JobView,
    NodeView,
    PodView,
    owned_by,
)
from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.metrics import observe_caches
from trainmaster.runtime.reflector import ABSENT_SECONDS, FIRST_PAGE, FORBIDDEN_SECONDS, Reflector
from trainmaster.runtime.store import Store

pytestmark = pytest.mark.looptime

Logs = list[MutableMapping[str, Any]]

BROKEN = {"kind": "Pod", "metadata": {"name": "broken", "resourceVersion": "150"}, "spec": {"nodeName": 7}}
"""A pod that no decoder of ours takes."""


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def names(store: Store[PodView]) -> list[str]:
    return sorted(key.name for key in store.keys())  # noqa: SIM118 a store is no dict


def pod(store: Store[PodView], name: str) -> PodView:
    found = store.get(Key("ml", name))
    assert found is not None
    return found


def seen_from(cluster: FakeCluster) -> list[str]:
    """The versions that watches were opened at."""
    return [call.options["since"] for call in cluster.asked("watch")]


def gaps(calls: list[Call]) -> list[float]:
    """The seconds between these calls."""
    return [round(later.at - sooner.at, 3) for sooner, later in itertools.pairwise(calls)]


@asynccontextmanager
async def reflecting(
    cluster: FakeCluster, resource: Resource = POD, codec: Codec[Any] = POD_CODEC, seconds: float = 60.0
) -> AsyncIterator[Store[Any]]:
    """The store after a reflector has run for so long; it runs on."""
    store = Store[Any](resource)
    reflector = Reflector(cluster, store, codec, backoff=Backoff(0.2, 30.0, jitter=lambda: 0.0))
    task = asyncio.create_task(reflector.run())
    await asyncio.wait({task}, timeout=seconds)
    if task.done():
        await task  # it never ends by itself: show why it did
    assert reflector.synced.is_set() == store.is_synced
    yield store
    task.cancel()


# --- lists ---


async def test_a_list_of_three_pages_is_one_list(cluster: FakeCluster) -> None:
    cluster.pages.extend(
        [
            a_page(pod_json("a"), pod_json("b"), version=200, cursor="page-2"),
            a_page(pod_json("c"), version=200, cursor="page-3"),
            a_page(pod_json("d"), version=200),
        ]
    )
    async with reflecting(cluster) as store:
        assert names(store) == ["a", "b", "c", "d"]
        assert store.seen == 200

    asked = [(call.options["cursor"], call.options["limit"]) for call in cluster.asked("list")]
    assert asked == [("", FIRST_PAGE), ("page-2", 2 * FIRST_PAGE), ("page-3", 4 * FIRST_PAGE)]
    assert seen_from(cluster) == ["200"]


async def test_a_list_that_fails_in_the_middle_shows_nothing_and_is_begun_anew(cluster: FakeCluster) -> None:
    first = a_page(pod_json("a"), version=200, cursor="page-2")
    cluster.pages.extend([first, ServerError("etcd is slow", code=500)])
    async with reflecting(cluster, seconds=0.1) as store:
        with pytest.raises(NotSynced):
            store.get(Key("ml", "a"))

        cluster.pages.append(a_page(pod_json("b"), version=300))
        await asyncio.sleep(1)
        assert names(store) == ["b"]

    assert [call.options["cursor"] for call in cluster.asked("list")] == ["", "page-2", ""]


async def test_an_item_that_cannot_be_read_is_left_out_of_the_list_and_the_others_are_there(
    cluster: FakeCluster,
) -> None:
    body = b'{"metadata":{"resourceVersion":"300"},"items":[7,' + msgspec.json.encode(pod_json("b")) + b"]}"
    cluster.pages.append(body)
    async with reflecting(cluster, seconds=0.1) as store:
        assert names(store) == ["b"]
        assert store.seen == 300


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(Unreachable("cut"), id="no answer"),
        pytest.param(Gone("the cursor is too old", code=410), id="cursor too old"),
        pytest.param(b'{"metadata":{"resourceVersion":"300"},"items":[{"meta', id="half a page"),
        pytest.param(b"<html>Bad Gateway</html>", id="not from an API server"),
    ],
)
async def test_a_second_list_that_fails_in_the_middle_leaves_the_store_as_it_is(
    cluster: FakeCluster, second: bytes | Exception
) -> None:
    cluster.pages.extend([a_page(pod_json("old"), version=200), a_page(version=300, cursor="page-2"), second])
    cluster.watches.append([5.0, an_error_line(410, "too old")])
    async with reflecting(cluster, seconds=5.1) as store:
        assert len(cluster.asked("list")) == 3
        assert names(store) == ["old"]
        assert store.seen == 200


async def test_nothing_is_asked_for_but_the_namespace_and_the_selector(cluster: FakeCluster) -> None:
    reflector = Reflector(cluster, Store[PodView](POD), POD_CODEC, namespace="ml", selector="app=x")
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1)
    task.cancel()

    assert [(call.verb, call.key.namespace, call.options["selector"]) for call in cluster.calls] == [
        ("list", "ml", "app=x"),
        ("watch", "ml", "app=x"),
    ]


# --- watches ---


async def test_changes_reach_the_store(cluster: FakeCluster) -> None:
    cluster.watches.append(
        [
            a_line("ADDED", pod_json("a", version=101, phase="Pending")),
            a_line("ADDED", pod_json("b", version=102)),
            a_line("MODIFIED", pod_json("a", version=103, phase="Running")),
            a_line("DELETED", pod_json("b", version=104)),
        ]
    )
    cluster.pages.append(a_page(version=100))
    async with reflecting(cluster, seconds=0.1) as store:
        assert names(store) == ["a"]
        assert pod(store, "a").phase == "Running"
        assert store.seen == 104


async def test_a_watch_that_the_server_ends_is_resumed_at_once_from_the_last_version(cluster: FakeCluster) -> None:
    cluster.pages.append(a_page(version=100))
    cluster.watches.extend([[a_line("ADDED", pod_json("a", version=140)), 240.0], [240.0]])
    async with reflecting(cluster, seconds=600):
        assert gaps(cluster.asked("watch")) == [240, 240]
        assert seen_from(cluster) == ["100", "140", "140"]
        assert len(cluster.asked("list")) == 1


async def test_bookmarks_advance_the_store_and_the_place_to_resume_from(cluster: FakeCluster) -> None:
    cluster.pages.append(a_page(version=100))
    cluster.watches.append([a_bookmark(170), 5.0])
    async with reflecting(cluster, seconds=10) as store:
        assert store.seen == 170
        assert seen_from(cluster) == ["100", "170"]
        assert names(store) == []


async def test_a_string_may_hold_what_looks_like_the_end_of_a_line(cluster: FakeCluster) -> None:
    odd = "a\u0085b\u2028c\nd"
    cluster.pages.append(a_page(version=100))
    cluster.watches.append([a_line("ADDED", pod_json("a", version=101, message=odd)), 5.0])
    async with reflecting(cluster, seconds=1) as store:
        assert pod(store, "a").message == odd


# --- the server says no ---

CODECS: list[Any] = [
    pytest.param(POD, POD_CODEC, id="pods"),
    pytest.param(SERVICE, SERVICE_CODEC, id="services"),
    pytest.param(TOY, JOB_CODEC, id="jobs"),
]


@pytest.mark.parametrize(("resource", "codec"), CODECS)
@pytest.mark.parametrize(
    "end",
    [
        pytest.param(an_error_line(410, "too old resource version"), id="as a line"),
        pytest.param(Gone("too old resource version", code=410), id="as an answer"),
    ],
)
async def test_410_lists_again(
    cluster: FakeCluster, resource: Resource, codec: Codec[Any], end: bytes | Exception
) -> None:
    cluster.pages.extend([a_page(version=100), a_page(pod_json("a"), version=500)])
    cluster.watches.append([2.0, end])
    async with reflecting(cluster, resource, codec, seconds=10) as store:
        assert names(store) == ["a"]
        assert seen_from(cluster) == ["100", "500"]


@pytest.mark.parametrize(
    "watch",
    [
        pytest.param([an_error_line(410, "too old")], id="as a line"),
        pytest.param([Gone("too old", code=410)], id="as an answer"),
        pytest.param([a_bookmark(2000), an_error_line(410, "too old")], id="after news"),
        pytest.param([1.5, an_error_line(410, "too old")], id="after a while"),
    ],
)
async def test_410_again_and_again_lists_at_once_the_first_time_alone(
    cluster: FakeCluster, watch: list[bytes | float | Exception]
) -> None:
    cluster.watches.extend([watch] * 20)
    open_for = sum(step for step in watch if isinstance(step, float))
    async with reflecting(cluster, seconds=60):
        pauses = [round(gap - open_for, 3) for gap in gaps(cluster.asked("list"))]
        assert pauses[:6] == [0, 0.2, 0.4, 0.8, 1.6, 3.2]


async def test_410_long_after_another_lists_at_once(cluster: FakeCluster) -> None:
    cluster.watches.extend([[200.0, an_error_line(410, "too old")]] * 3)
    async with reflecting(cluster, seconds=1000):
        assert gaps(cluster.asked("list")) == [200, 200, 200]


async def test_410_after_an_outage_lists_at_once(cluster: FakeCluster) -> None:
    """The back-off of the outage is not waited for once more."""
    cluster.before = raising("watch", *[Unreachable("refused")] * 12)
    cluster.watches.append([an_error_line(410, "too old")])
    async with reflecting(cluster, seconds=600) as store:
        assert cluster.asked("list")[1].at == cluster.asked("watch")[12].at
        assert store.is_current


async def test_a_list_that_is_cut_by_410_is_not_begun_again_at_once_for_ever(cluster: FakeCluster) -> None:
    cluster.pages.extend([Gone("the cursor is too old", code=410)] * 4)
    async with reflecting(cluster, seconds=60) as store:
        assert gaps(cluster.asked("list")) == [0, 0.2, 0.4, 0.8]
        assert store.is_synced


@pytest.mark.parametrize(("resource", "codec"), CODECS)
async def test_another_error_line_resumes_from_the_last_version_after_a_while(
    cluster: FakeCluster, resource: Resource, codec: Codec[Any]
) -> None:
    cluster.pages.append(a_page(version=100))
    cluster.watches.append([a_line("ADDED", pod_json("a", version=140)), 5.0, an_error_line(500, "etcd lost")])
    async with reflecting(cluster, resource, codec, seconds=20) as store:
        assert seen_from(cluster) == ["100", "140"]
        assert gaps(cluster.asked("watch")) == [5.2]
        assert len(cluster.asked("list")) == 1
        assert names(store) == ["a"]


async def test_watches_that_end_as_soon_as_they_begin_come_later_each_time(cluster: FakeCluster) -> None:
    cluster.watches.extend([[]] * 100)
    async with reflecting(cluster, seconds=200):
        assert gaps(cluster.asked("watch"))[:10] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
        assert len(cluster.asked("list")) == 1


async def test_a_watch_that_brings_news_makes_the_next_failure_the_first(cluster: FakeCluster) -> None:
    cluster.watches.extend([[], [], [], [a_bookmark(2000), 5.0, Unreachable("cut")]])
    async with reflecting(cluster, seconds=60):
        assert gaps(cluster.asked("watch")) == [0.2, 0.4, 0.8, 5.2]


async def test_a_watch_that_stays_open_without_news_makes_the_next_failure_the_first(cluster: FakeCluster) -> None:
    cluster.watches.extend([[], [], [], [5.0, Unreachable("cut")]])
    async with reflecting(cluster, seconds=60):
        assert gaps(cluster.asked("watch")) == [0.2, 0.4, 0.8, 5.2]


async def test_a_watch_that_opens_slowly_and_ends_at_once_is_a_failure(cluster: FakeCluster) -> None:
    cluster.before = waiting("watch", 3.0)
    cluster.watches.extend([[]] * 4)
    async with reflecting(cluster, seconds=60):
        assert gaps(cluster.asked("watch")) == [3.2, 3.4, 3.8, 4.6]


async def test_a_list_that_is_answered_makes_the_next_failure_the_first(cluster: FakeCluster) -> None:
    cluster.pages.extend([Unreachable("refused")] * 6)
    cluster.watches.append([Unreachable("cut")])
    async with reflecting(cluster, seconds=60):
        assert gaps(cluster.asked("watch")) == [0.2]


async def test_an_api_server_that_is_back_is_asked_within_three_seconds(cluster: FakeCluster) -> None:
    cluster.before = raising("watch", *[Unreachable("refused")] * 100)
    task = asyncio.create_task(Reflector(cluster, Store[PodView](POD), POD_CODEC).run())
    await asyncio.sleep(600)
    task.cancel()

    assert 2 < max(gaps(cluster.asked("watch"))) <= 3


async def test_a_watch_that_cannot_be_opened_is_tried_again_from_the_same_version(cluster: FakeCluster) -> None:
    cluster.pages.append(a_page(version=100))
    cluster.before = raising("watch", *[Unreachable("refused")] * 3)
    async with reflecting(cluster, seconds=60):
        assert seen_from(cluster) == ["100"] * 4
        assert gaps(cluster.asked("watch")) == [0.2, 0.4, 0.8]


# --- what cannot be read ---


async def test_an_object_that_cannot_be_read_is_left_out_and_the_watch_goes_on(
    cluster: FakeCluster, logs: Logs
) -> None:
    before = unreadable()
    cluster.pages.append(a_page(version=100))
    cluster.watches.append([a_line("ADDED", BROKEN), a_line("ADDED", pod_json("a", version=151)), 5.0])
    async with reflecting(cluster, seconds=1) as store:
        assert names(store) == ["a"]

    assert unreadable() - before == 1
    assert len(cluster.asked("watch")) == 1
    assert "Expected `str`, got `int`" in logs[0]["because"]


async def test_after_an_object_that_cannot_be_read_the_watch_resumes_behind_it(cluster: FakeCluster) -> None:
    cluster.pages.append(a_page(version=100))
    cluster.watches.append([a_line("ADDED", BROKEN), 5.0])
    async with reflecting(cluster, seconds=10) as store:
        assert seen_from(cluster) == ["100", "150"]
        assert store.seen == 150


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(a_line("ADDED", pod_json("b", version=141))[:-20], id="half a line"),
        pytest.param(b"<html>Bad Gateway</html>", id="not JSON"),
        pytest.param(b"{}", id="not an event"),
        pytest.param(b'"gateway timeout"', id="not an object"),
        pytest.param(b'{"type":"ADDED","object":null}', id="no object"),
        pytest.param(b'{"type":"ERROR","object":"overloaded"}', id="not a Status"),
    ],
)
async def test_a_line_that_is_no_event_is_a_cut_connection(cluster: FakeCluster, line: bytes) -> None:
    cluster.pages.append(a_page(version=100))
    cluster.watches.append([a_line("ADDED", pod_json("a", version=140)), 5.0, line])
    cluster.watches.append([a_line("ADDED", pod_json("b", version=141)), 5.0])
    async with reflecting(cluster, seconds=6) as store:
        assert seen_from(cluster)[:2] == ["100", "140"]
        assert names(store) == ["a", "b"]
        assert len(cluster.asked("list")) == 1


def unreadable() -> float:
    return REGISTRY.get_sample_value("trainmaster_unreadable_objects_total", {"resource": "pods"}) or 0.0


# --- what happened while nobody looked ---


async def test_a_second_list_shows_what_was_deleted_meanwhile(cluster: FakeCluster) -> None:
    cluster.pages.extend([a_page(pod_json("a"), pod_json("b"), version=200), a_page(pod_json("b"), version=500)])
    cluster.watches.append([5.0, Gone("too old", code=410)])
    told: list[tuple[PodView | None, PodView | None]] = []
    async with reflecting(cluster, seconds=1) as store:
        store.listen(lambda before, after: told.append((before, after)))
        await asyncio.sleep(10)
        assert names(store) == ["b"]

    assert told == [(a_pod("a"), None)]


# --- what is said about it ---


@pytest.mark.parametrize(
    ("error", "resource", "codec", "hint"),
    [
        pytest.param(NotFound("page not found"), TOY, JOB_CODEC, True, id="CRD missing"),
        pytest.param(NotFound("page not found"), POD, POD_CODEC, False, id="pods are always there"),
        pytest.param(ServerError("boom"), TOY, JOB_CODEC, False, id="another error"),
    ],
)
async def test_404_for_a_kind_of_ours_asks_for_its_definition(
    cluster: FakeCluster, logs: Logs, *, error: Trainmaster, resource: Resource, codec: Codec[Any], hint: bool
) -> None:
    cluster.pages.append(error)
    async with reflecting(cluster, resource, codec, seconds=5):
        pass

    (line,) = logs
    assert (line["resource"], line["because"]) == (str(resource), str(error))
    assert ("trainmaster crds | kubectl apply" in line.get("hint", "")) == hint


async def test_a_kind_whose_definition_is_missing_holds_nobody_up_and_is_told_once(
    cluster: FakeCluster, logs: Logs
) -> None:
    cluster.pages.extend([NotFound("page not found")] * 20)
    reflector = Reflector(cluster, Store[JobView](TOY), JOB_CODEC, backoff=Backoff(0.2, 30.0, jitter=lambda: 0.0))
    task = asyncio.create_task(reflector.run())
    await asyncio.wait({task}, timeout=60)
    task.cancel()

    assert (reflector.settled.is_set(), reflector.synced.is_set()) == (True, False)
    assert len(logs) == 1
    assert max(gaps(cluster.asked("list"))) == ABSENT_SECONDS


async def test_a_list_that_fails_otherwise_is_waited_for(cluster: FakeCluster) -> None:
    cluster.pages.extend([ServerError("boom")] * 20)
    reflector = Reflector(cluster, Store[JobView](TOY), JOB_CODEC)
    task = asyncio.create_task(reflector.run())
    await asyncio.wait({task}, timeout=5)
    task.cancel()

    assert not reflector.settled.is_set()


async def test_the_store_of_a_kind_whose_definition_comes_late_is_filled(cluster: FakeCluster) -> None:
    cluster.pages.extend([NotFound("page not found")] * 5)
    store: Store[JobView]
    async with reflecting(cluster, TOY, JOB_CODEC, seconds=60) as store:
        cluster.put(TOY, toy_json())
        await asyncio.sleep(1)
        assert store.get(Key("ml", "mnist")) is not None


# --- what we can do without ---


@asynccontextmanager
async def reading_nodes(cluster: FakeCluster) -> AsyncIterator[tuple[Reflector[NodeView], Store[NodeView]]]:
    store = Store[NodeView](NODE)
    backoff = Backoff(0.2, 30.0, jitter=lambda: 0.0)
    reflector = Reflector(cluster, store, NODE_CODEC, without="faults of nodes are not noticed", backoff=backoff)
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1)
    yield reflector, store
    task.cancel()


def standing(store: Store[Any]) -> tuple[bool, bool]:
    """Whether it was ever read, and whether what it shows is true now."""
    return store.is_synced, store.is_current


async def test_what_may_not_be_read_and_is_not_needed_holds_nobody_up(cluster: FakeCluster, logs: Logs) -> None:
    cluster.before = raising("list", *[Forbidden("not yours", code=403)] * 3)
    async with reading_nodes(cluster) as (reflector, store):
        assert reflector.settled.is_set()
        assert standing(store) == (False, False)

        await asyncio.sleep(3 * FORBIDDEN_SECONDS)
        assert standing(store) == (True, True)

    assert gaps(cluster.asked("list")) == [FORBIDDEN_SECONDS] * 3
    assert [line["event"] for line in logs] == ["may not be read: it is done without"]


async def test_rights_that_are_taken_away_leave_a_store_that_is_not_current(cluster: FakeCluster) -> None:
    cluster.watches.append([0.5, Forbidden("not yours any more", code=403)])
    async with reading_nodes(cluster) as (_, store):
        assert standing(store) == (True, False)

        await asyncio.sleep(FORBIDDEN_SECONDS)
        assert standing(store) == (True, True)

    assert len(cluster.asked("list")) == 2  # what happened meanwhile was not seen


async def test_a_store_is_not_current_while_its_watch_cannot_be_opened(cluster: FakeCluster) -> None:
    cluster.before = raising("watch", *[Unreachable("cut")] * 3)
    async with reflecting(cluster, seconds=0.1) as store:
        assert standing(store) == (True, False)

        await asyncio.sleep(10)
        assert standing(store) == (True, True)


async def test_a_store_is_behind_from_the_loss_of_its_watch_until_it_is_open_again(cluster: FakeCluster) -> None:
    cluster.watches.append([5.0, Unreachable("cut")])
    store = Store[NodeView](NODE)
    reflector = Reflector(cluster, store, NODE_CODEC, backoff=Backoff(20.0, 20.0, jitter=lambda: 0.0))
    observe_caches([reflector])
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(4)
    assert (reflector.behind, behind_by_metric(NODE)) == (0.0, 0.0)

    await asyncio.sleep(11)
    assert (reflector.behind, behind_by_metric(NODE)) == (10.0, 10.0)

    await asyncio.sleep(11)
    assert (reflector.behind, behind_by_metric(NODE)) == (0.0, 0.0)
    task.cancel()


async def test_the_metric_of_a_resource_is_its_cache_that_is_furthest_behind(cluster: FakeCluster) -> None:
    current = Reflector(FakeCluster(), Store[NodeView](NODE), NODE_CODEC)
    cut = Reflector(cluster, Store[NodeView](NODE), NODE_CODEC, backoff=Backoff(20.0, 20.0, jitter=lambda: 0.0))
    cluster.before = raising("list", Unreachable("cut"))
    observe_caches([cut, current])
    tasks = [asyncio.create_task(each.run()) for each in (cut, current)]
    await asyncio.sleep(7)
    assert behind_by_metric(NODE) == 7.0
    for task in tasks:
        task.cancel()


async def test_a_resource_that_may_not_be_read_and_is_not_needed_is_not_behind(cluster: FakeCluster) -> None:
    cluster.watches.append([0.5, Forbidden("not yours any more", code=403)])
    async with reading_nodes(cluster) as (reflector, store):
        assert standing(store) == (True, False)
        assert reflector.behind == 0.0


def behind_by_metric(resource: Resource) -> float | None:
    return REGISTRY.get_sample_value("trainmaster_cache_behind_seconds", {"resource": str(resource)})


@pytest.mark.parametrize(
    ("failures", "is_told"),
    [pytest.param(3, False, id="a hiccup of a second"), pytest.param(7, True, id="an outage of 25 seconds")],
)
async def test_after_an_outage_those_are_told_who_waited_for_its_end(
    cluster: FakeCluster, failures: int, *, is_told: bool
) -> None:
    cluster.before = raising("watch", *[Unreachable("refused")] * failures)
    told: list[float] = []
    store = Store[PodView](POD)
    store.on_recovery(lambda: told.append(asyncio.get_running_loop().time()))
    reflector = Reflector(cluster, store, POD_CODEC, backoff=Backoff(0.2, 30.0, jitter=lambda: 0.0))
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(100)
    task.cancel()

    assert told == ([cluster.asked("watch")[-1].at] if is_told else [])


# --- large objects ---


class PagedCluster(FakeCluster):
    """Objects of these sizes, in pages. A page that is too large is not given."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.given: list[int] = []
        """The number of objects in each page that was given."""

    async def list(self, *_: Any, limit: int = 0, cursor: str = "", max_bytes: int = 0, **__: Any) -> bytes:
        start = int(cursor or 0)
        page = self.sizes[start : start + limit]
        if sum(page) > max_bytes:
            raise TooLarge("the answer is too long")
        self.given.append(len(page))
        names = range(start, start + len(page))
        pods = [pod_json(f"p-{n}", message="x" * size) for n, size in zip(names, page, strict=True)]
        rest = str(start + limit) if start + limit < len(self.sizes) else ""
        return a_page(*pods, version=900, cursor=rest)


@pytest.mark.parametrize(
    ("sizes", "pages"),
    [
        pytest.param([1000] * 3000, [50, 100, 200, 400, 500, 500, 500, 500, 250], id="small objects"),
        pytest.param([1_000_000] * 12, [3, 3, 3, 3], id="large objects"),
        pytest.param([1000] * 1650 + [1_000_000] * 4, [50, 100, 200, 400, 500, 404], id="four large ones"),
        pytest.param([9_000_000] * 3, [1, 1, 1], id="one is more than a page"),
    ],
)
async def test_pages_grow_while_they_are_small_and_are_never_larger_than_8_mib(
    sizes: list[int], pages: list[int]
) -> None:
    cluster = PagedCluster(sizes)
    store = Store[PodView](POD)
    reflector = Reflector(cluster, store, POD_CODEC.only(lambda _: False))
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    task.cancel()

    assert cluster.given == pages


async def test_large_objects_after_many_small_ones_shrink_the_page(cluster: FakeCluster) -> None:
    cluster = PagedCluster([1000] * 1250 + [1_000_000] * 100)
    async with reflecting(cluster, codec=POD_CODEC.only(lambda _: False)):
        assert max(cluster.given[5:]) <= 8


async def test_an_object_that_is_too_large_for_any_page_is_tried_again_later(cluster: FakeCluster, logs: Logs) -> None:
    cluster = PagedCluster([17 * 1024 * 1024])
    async with reflecting(cluster, seconds=10) as store:
        assert not store.is_synced

    assert "too long" in logs[0]["because"]


async def test_an_object_that_loses_its_owner_leaves_the_store(cluster: FakeCluster) -> None:
    orphan = pod_json("a", version=200)
    del orphan["metadata"]["ownerReferences"]
    cluster.pages.append(a_page(pod_json("a"), pod_json("b"), version=100))
    cluster.watches.append([a_line("MODIFIED", orphan), 5.0])
    async with reflecting(cluster, codec=POD_CODEC.only(owned_by([TOY])), seconds=1) as store:
        assert names(store) == ["b"]
        assert store.seen == 200


# --- etcd was restored from a backup ---


async def test_a_version_that_is_lower_than_ours_lists_again(cluster: FakeCluster, logs: Logs) -> None:
    cluster.pages.extend([a_page(pod_json("a"), version=500), a_page(pod_json("b"), version=300)])
    cluster.watches.append([a_bookmark(600), 240.0])
    cluster.newest = 300
    async with reflecting(cluster, seconds=250) as store:
        assert names(store) == ["b"]
        assert store.seen == 300
        assert seen_from(cluster) == ["500", "300"]

    assert "restored from a backup" in logs[0]["event"]


async def test_the_version_is_compared_when_a_watch_was_cut(cluster: FakeCluster) -> None:
    cluster.pages.extend([a_page(pod_json("a"), version=500), a_page(pod_json("b"), version=300)])
    cluster.watches.append([5.0, Unreachable("cut")])
    cluster.newest = 300
    async with reflecting(cluster, seconds=6) as store:
        assert names(store) == ["b"]


async def test_a_version_that_is_not_lower_resumes_the_watch(cluster: FakeCluster) -> None:
    cluster.pages.append(a_page(version=500))
    cluster.watches.append([240.0])
    cluster.newest = 500
    async with reflecting(cluster, seconds=250):
        assert seen_from(cluster) == ["500", "500"]
        assert len(cluster.asked("list")) == 1


# --- a definition that is deleted ---


async def test_objects_are_gone_when_the_definition_of_their_kind_is_and_back_with_it(
    cluster: FakeCluster, logs: Logs
) -> None:
    cluster.pages.append(a_page(toy_json(), version=100))
    cluster.watches.append([5.0, NotFound("page not found")])
    cluster.pages.extend([NotFound("page not found")] * 8)
    told: list[Any] = []
    async with reflecting(cluster, TOY, JOB_CODEC, seconds=1) as store:
        store.listen(lambda before, after: told.append((before is not None, after is not None)))
        await asyncio.sleep(10)
        assert (names(store), told) == ([], [(True, False)])

        cluster.put(TOY, toy_json())
        await asyncio.sleep(30)
        assert names(store) == ["mnist"]

    assert [line["event"] for line in logs] == [
        "the API server does not have this resource any more: its objects are gone"
    ]


async def test_an_api_server_that_starts_and_does_not_have_a_kind_yet_loses_no_object(cluster: FakeCluster) -> None:
    cluster.pages.append(a_page(toy_json(), version=100))
    cluster.watches.append([5.0, NotFound("page not found")])
    cluster.pages.extend([NotFound("page not found"), a_page(toy_json(), version=100)])
    told: list[Any] = []
    async with reflecting(cluster, TOY, JOB_CODEC, seconds=1) as store:
        store.listen(lambda before, after: told.append((before, after)))
        await asyncio.sleep(10)

    assert told == []


# --- defects ---


async def test_a_defect_is_logged_and_the_resource_is_listed_again(cluster: FakeCluster, logs: Logs) -> None:
    cluster.pages.extend([a_page(version=100), a_page(pod_json("a"), version=300)])
    cluster.before = raising("watch", ZeroDivisionError())
    async with reflecting(cluster, seconds=5) as store:
        assert names(store) == ["a"]

    assert logs[0]["event"] == "cannot read by a defect in trainmaster"
