import asyncio

import pytest

from trainmaster.runtime.namespace_limit import NamespaceLimit


class Requests:
    """Starts requests that end when they are told to, and shows which of them are in flight."""

    def __init__(self, limit: NamespaceLimit) -> None:
        self._limit = limit
        self.in_flight: dict[str, asyncio.Event] = {}

    async def start(self, name: str, namespace: str = "ml", *, first: bool = False) -> asyncio.Task[None]:
        task = asyncio.create_task(self._send(name, namespace, first=first))
        await asyncio.sleep(0)
        return task

    async def end(self, name: str) -> None:
        self.in_flight.pop(name).set()
        for _ in range(3):
            await asyncio.sleep(0)

    async def _send(self, name: str, namespace: str, *, first: bool) -> None:
        async with self._limit.request(namespace, first=first):
            ended = self.in_flight[name] = asyncio.Event()
            await ended.wait()


@pytest.fixture
def limit() -> NamespaceLimit:
    return NamespaceLimit(2)


@pytest.fixture
def requests(limit: NamespaceLimit) -> Requests:
    return Requests(limit)


async def test_a_namespace_has_no_more_requests_in_flight_than_the_limit(requests: Requests) -> None:
    for name in "abc":
        await requests.start(name)

    assert list(requests.in_flight) == ["a", "b"]
    await requests.end("a")
    assert list(requests.in_flight) == ["b", "c"]


async def test_a_namespace_at_its_limit_does_not_hold_up_another(requests: Requests) -> None:
    for name in "abc":
        await requests.start(name)
    await requests.start("other", "rl")

    assert list(requests.in_flight) == ["a", "b", "other"]


async def test_the_first_overtake_those_that_wait(requests: Requests) -> None:
    for name in "abc":
        await requests.start(name)
    await requests.start("status", first=True)
    await requests.end("a")

    assert list(requests.in_flight) == ["b", "status"]


@pytest.mark.parametrize("ended", [False, True], ids=["while it waits", "when its turn has just come"])
async def test_a_cancelled_request_leaves_its_place_to_the_next(requests: Requests, ended: bool) -> None:
    for name in "ab":
        await requests.start(name)
    cancelled, _ = await requests.start("c"), await requests.start("d")
    if ended:
        requests.in_flight.pop("a").set()
        await asyncio.sleep(0)
        cancelled.cancel()
    else:
        cancelled.cancel()
        await requests.end("a")
    for _ in range(5):
        await asyncio.sleep(0)

    assert list(requests.in_flight) == ["b", "d"]


async def test_nothing_is_kept_of_namespaces_without_requests(limit: NamespaceLimit, requests: Requests) -> None:
    tasks = [await requests.start(name) for name in "abc"]
    for name in "abc":
        await requests.end(name)
    await asyncio.gather(*tasks)

    assert not limit._in_flight
    assert not limit._waiters
