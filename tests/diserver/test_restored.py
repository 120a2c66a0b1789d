"""di-server's cache after etcd was restored from a backup."""

import asyncio

import msgspec
import pytest

from tests.build import a_dijob
from tests.runtime.cluster import FakeCluster
from trainmaster.core.ids import Key
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.job import JobId
from trainmaster.kinds.dijob.profile import DI


@pytest.mark.looptime
async def test_a_version_from_before_the_backup_was_restored_is_not_served_for_ever() -> None:
    cluster = FakeCluster((DI.resource, a_dijob()))
    cache = Cache(cluster, profiles=[DI])
    tasks = [asyncio.create_task(reflector.run()) for reflector in cache.reflectors]
    await cache.synced()
    job = JobId(DI, Key("rl", "cartpole"))
    known = cache.job(job)
    assert known is not None
    ahead = msgspec.structs.replace(known.view, resource_version=5000)
    cache.learn(msgspec.structs.replace(known, view=ahead))
    assert (cache.job(job) or known).version == 5000

    cluster.newest = 1
    for task in tasks:
        task.cancel()  # their watches are cut, and the next ones compare the version
    tasks = [asyncio.create_task(reflector.run()) for reflector in cache.reflectors]
    await asyncio.sleep(1)
    for task in tasks:
        task.cancel()

    assert (cache.job(job) or known).version == known.version
