"""A page of a list whose objects are hard to read does not stop the event loop: the lease is renewed meanwhile."""

import asyncio
import threading

import msgspec
import pytest

from tests.odd import an_object, deep, with_value
from tests.runtime.cluster import FakeCluster
from tests.runtime.kind import TOY
from trainmaster.core.ids import Key
from trainmaster.core.view import JOB_CODEC, JobView, Page
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store


@pytest.mark.parametrize(("count", "is_apart"), [(1, False), (5, True)], ids=["small", "large"])
async def test_a_large_page_that_msgspec_cannot_read_is_read_by_another_thread(
    count: int, is_apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    read = type(JOB_CODEC).page_by_items

    def noted(self: object, body: bytes) -> Page[JobView]:
        threads.append(threading.current_thread() is not threading.main_thread())
        return read(JOB_CODEC, body)

    monkeypatch.setattr(type(JOB_CODEC), "page_by_items", noted)
    items = [with_value(an_object(f"odd-{n}", 500 + n, "spec.template"), deep(9000)) for n in range(count)]
    cluster, store = FakeCluster(), Store[JobView](TOY)
    cluster.pages.append(b'{"items":[%s],"metadata":{"resourceVersion":"900"}}' % b",".join(items))
    reflector = Reflector(cluster, store, JOB_CODEC)
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    task.cancel()

    assert threads == [is_apart]
    assert {key.name for key in store.keys()} == {f"odd-{n}" for n in range(count)}  # noqa: SIM118 a store is no dict
    view = store.get(Key("ml", "odd-0"))
    assert view is not None
    assert "nested too deeply" in view.error
    assert msgspec.json.decode(view.raw)["metadata"]["name"] == "odd-0"
