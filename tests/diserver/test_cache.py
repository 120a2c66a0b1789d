"""The cache: who is told of a change."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.build import a_dijob
from tests.diserver.bench import NAMESPACE, Bench, Reviews
from tests.runtime.cluster import FakeCluster
from trainmaster.core.ids import Key
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.job import JobId
from trainmaster.kinds.dijob.profile import PROFILES
from trainmaster.kinds.dijob.types import RESOURCE


@pytest.fixture
def bench() -> Bench:
    return Bench(FakeCluster(), Reviews(), "")


@pytest.fixture
async def cache(bench: Bench) -> AsyncIterator[Cache]:
    cache = Cache(bench.cluster, profiles=PROFILES)
    running = [asyncio.ensure_future(reflector.run()) for reflector in cache.reflectors]
    await cache.synced()
    yield cache
    for task in running:
        task.cancel()


def job(name: str) -> JobId:
    profile = next(profile for profile in PROFILES if profile.resource == RESOURCE)
    return JobId(profile, Key(NAMESPACE, name))


async def turns() -> None:
    """The watches have shown everything."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("change", ["job", "pod", "address", "deletion"])
async def test_a_change_wakes_the_requests_of_its_job_alone(bench: Bench, cache: Cache, change: str) -> None:
    for name in ("cart", "other"):
        bench.job(name)
        bench.pod(f"{name}-coordinator", job=name, ip="")
    await turns()
    of_cart, of_other = (asyncio.ensure_future(cache.change(job(name))) for name in ("cart", "other"))
    await turns()

    match change:
        case "job":
            bench.set_status(phase="Succeeded")
        case "pod":
            bench.pod("cart-collector-xxxxx")
        case "address":
            bench.pod("cart-coordinator", ip="127.0.0.55")
        case "deletion":
            bench.take_pod("cart-coordinator")
    await turns()

    assert (of_cart.done(), of_other.done()) == (True, False)
    of_other.cancel()


async def test_a_pod_is_starting_until_its_address_is_known_or_it_ends(bench: Bench, cache: Cache) -> None:
    seen = []
    bench.job()
    for ip, phase in (("", "Running"), ("127.0.0.55", "Running"), ("", "Pending"), ("", "Failed")):
        bench.pod("cart-coordinator", ip=ip, phase=phase)
        await turns()
        seen.append((cache.has_starting_pods(), cache.has_starting_pods(NAMESPACE)))
    bench.cluster.put(RESOURCE, a_dijob("lone", namespace=NAMESPACE))
    bench.pod("lone", ip="", owner={"kind": "Job", "apiVersion": "batch/v1"})
    await turns()

    bench.pod("far", ip="", namespace="elsewhere")
    await turns()

    assert seen == [(True, True), (False, False), (True, True), (False, False)]
    assert (cache.has_starting_pods(), cache.has_starting_pods(NAMESPACE)) == (True, False)
