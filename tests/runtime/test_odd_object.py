"""Every codec that a reflector has × odd objects: the reflector goes on, and misses none of the others."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.odd import VALUES, an_object, fields_for, with_value
from tests.runtime.cluster import FakeCluster
from tests.runtime.kind import TOY
from trainmaster.core.ids import CONFIG_MAP, NODE, POD, SERVICE, Key, Resource
from trainmaster.core.view import CHILD_CODEC, JOB_CODEC, NODE_CODEC, POD_CODEC, SERVICE_CODEC, Codec
from trainmaster.diserver.view import CALLER_POD_CODEC
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store

pytestmark = pytest.mark.looptime

CODECS: dict[str, tuple[Resource, Codec[Any]]] = {
    "pods": (POD, POD_CODEC),
    "pods of di-server": (POD, CALLER_POD_CODEC),
    "services": (SERVICE, SERVICE_CODEC),
    "children": (CONFIG_MAP, CHILD_CODEC),
    "jobs": (TOY, JOB_CODEC),
    "nodes": (NODE, NODE_CODEC),
}
SMALL = [value for value in VALUES.values() if len(value) < 100_000]
FIRST, LAST = (msgspec.json.encode(an_object(name, version)) for name, version in (("first", 101), ("last", 901)))


@asynccontextmanager
async def reflecting(cluster: FakeCluster, resource: Resource, codec: Codec[Any]) -> AsyncIterator[Store[Any]]:
    store = Store[Any](resource)
    task = asyncio.create_task(Reflector(cluster, store, codec).run())
    await asyncio.wait({task}, timeout=3)
    if task.done():
        await task  # it never ends by itself: show why it did
    yield store
    task.cancel()


def names(store: Store[Any]) -> set[str]:
    return {key.name for key in store.keys()}  # noqa: SIM118 a store is no dict


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("codec", CODECS)
async def test_no_object_hides_the_others_of_a_list_or_stops_the_watch_after_it(codec: str, value: str) -> None:
    for field in fields_for(value):
        odd = with_value(an_object("odd", 500, field), VALUES[value])
        cluster = FakeCluster()
        cluster.pages.append(b'{"items":[%s,%s,%s],"metadata":{"resourceVersion":"900"}}' % (FIRST, odd, LAST))
        cluster.watches.append([b'{"type":"ADDED","object":%s}' % LAST.replace(b"last", b"new"), 10.0])
        async with reflecting(cluster, *CODECS[codec]) as store:
            assert names(store) >= {"first", "last", "new"}, field
            assert names(store) <= {"first", "last", "new", "odd"}, field
            assert len(cluster.asked("list")) == 1, field


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("codec", CODECS)
async def test_no_object_stops_a_watch_and_its_version_is_known(codec: str, value: str) -> None:
    for field in fields_for(value):
        odd = with_value(an_object("odd", 500, field), VALUES[value])
        cluster = FakeCluster()
        cluster.pages.append(b'{"items":[],"metadata":{"resourceVersion":"100"}}')
        changes = [b'{"type":"%s","object":%s}' % change for change in ((b"ADDED", odd), (b"MODIFIED", odd))]
        cluster.watches.append([*changes, 1.5])
        cluster.watches.append([b'{"type":"ADDED","object":%s}' % LAST, 10.0])
        async with reflecting(cluster, *CODECS[codec]) as store:
            assert names(store) - {"odd"} == {"last"}, field
            assert [call.options["since"] for call in cluster.asked("watch")] == ["100", "500"], field
            assert len(cluster.asked("list")) == 1, field


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("field", ["metadata", "metadata.resourceVersion", "metadata.name"])
async def test_a_watch_goes_on_after_an_object_without_a_readable_name_or_version(codec: str, field: str) -> None:
    for value in SMALL:
        odd = with_value(an_object("odd", 500, field), value)
        cluster = FakeCluster()
        cluster.pages.append(b'{"items":[%s],"metadata":{"resourceVersion":"100"}}' % odd)
        cluster.watches.append([b'{"type":"%s","object":%s}' % (change, odd) for change in (b"ADDED", b"DELETED")])
        cluster.watches[0] = [*cluster.watches[0], b'{"type":"ADDED","object":%s}' % LAST, 10.0]
        async with reflecting(cluster, *CODECS[codec]) as store:
            assert "last" in names(store), value[:50]
            assert len(cluster.asked("watch")) == 1, value[:50]


@pytest.mark.parametrize("codec", CODECS)
async def test_an_object_that_cannot_be_read_any_more_is_gone_when_it_was_deleted(codec: str) -> None:
    odd = with_value(an_object("first", 500, "metadata.labels"), b"7")
    cluster = FakeCluster()
    cluster.pages.append(b'{"items":[%s],"metadata":{"resourceVersion":"100"}}' % FIRST)
    cluster.watches.append([b'{"type":"DELETED","object":%s}' % odd, 10.0])
    async with reflecting(cluster, *CODECS[codec]) as store:
        assert names(store) == set()
        assert store.seen == 500


@pytest.mark.parametrize("levels", ["1500 levels", "9000 levels"])
async def test_a_job_that_is_nested_too_deeply_is_known_and_says_so(levels: str) -> None:
    body = an_object("odd", 500, "spec.template")
    body["metadata"]["deletionTimestamp"] = "2026-11-15T12:00:00Z"
    body["status"] = {"phase": "Running", "ports": {"worker-0": {"a": 20000}}}
    cluster = FakeCluster()
    cluster.pages.append(b'{"items":[%s],"metadata":{"resourceVersion":"900"}}' % with_value(body, VALUES[levels]))
    async with reflecting(cluster, TOY, JOB_CODEC) as store:
        view = store.get(Key("ml", "odd"))

    assert view is not None
    assert (view.uid, view.resource_version, view.deleting, view.ports) == ("uid-of-odd", 500, True, (20000,))
    assert "nested too deeply" in view.error
    assert msgspec.json.decode(view.raw)["status"] == body["status"]


async def test_what_is_left_out_is_named_in_the_log_once(logs: list[MutableMapping[str, Any]]) -> None:
    odd = with_value(an_object("odd", 500, "metadata.labels"), b"7")
    line = b'{"type":"MODIFIED","object":%s}' % odd
    cluster = FakeCluster()
    cluster.pages.append(b'{"items":[%s],"metadata":{"resourceVersion":"100"}}' % odd)
    cluster.watches.append([line, line, 10.0])
    async with reflecting(cluster, POD, POD_CODEC):
        pass

    assert [(entry["event"], entry["object"]) for entry in logs] == [("object left out: it cannot be read", "ml/odd")]
