"""Watches: what they show, how they end, and that nothing is left of them."""

import asyncio
from typing import Any

import pytest

from tests.local.apiserver.client import Client
from trainmaster.local.apiserver.store import watch

MAPS = "/api/v1/namespaces/default/configmaps"


def config(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def shown(event: Any) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


async def take(events: asyncio.Queue[Any], count: int) -> list[tuple[str, str]]:
    async with asyncio.timeout(10):
        return [shown(await events.get()) for _ in range(count)]


async def test_existing_objects_are_sent_before_changes(api: Client) -> None:
    await api.create(MAPS, config("a"))
    async with api.watch(f"{MAPS}?watch=1") as events:
        assert await take(events, 1) == [("ADDED", "a")]
        await api.create(MAPS, config("b"))
        await api.merge(f"{MAPS}/b", {"data": {"x": "y"}})
        await api.delete(f"{MAPS}/b")
        assert await take(events, 3) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]


async def test_a_watch_from_a_version_misses_nothing(api: Client) -> None:
    version = (await api.create(MAPS, config("a")))["metadata"]["resourceVersion"]
    await api.create(MAPS, config("b"))
    async with api.watch(f"{MAPS}?watch=1&resourceVersion={version}") as events:
        await api.create(MAPS, config("c"))
        assert await take(events, 2) == [("ADDED", "b"), ("ADDED", "c")]


async def test_objects_that_start_or_stop_matching_are_added_or_deleted(api: Client) -> None:
    async with api.watch(f"{MAPS}?watch=1&labelSelector=in=yes") as events:
        await api.create(MAPS, config("a"))
        await api.merge(f"{MAPS}/a", {"metadata": {"labels": {"in": "yes"}}})
        last = await api.merge(f"{MAPS}/a", {"metadata": {"labels": {"in": "no"}}})
        async with asyncio.timeout(10):
            added, deleted = await events.get(), await events.get()
    assert (shown(added), shown(deleted)) == (("ADDED", "a"), ("DELETED", "a"))
    assert deleted["object"]["metadata"]["labels"] == {"in": "yes"}
    assert deleted["object"]["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]


async def test_a_watch_of_one_namespace_sees_no_other(api: Client) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    async with api.watch(f"{MAPS}?watch=1") as events, api.watch("/api/v1/configmaps?watch=1") as everywhere:
        await api.create("/api/v1/namespaces/other/configmaps", config("there"))
        await api.create(MAPS, config("here"))
        assert await take(events, 1) == [("ADDED", "here")]
        assert await take(everywhere, 2) == [("ADDED", "there"), ("ADDED", "here")]


async def test_an_idle_watch_gets_bookmarks_on_request(api: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BOOKMARK_PERIOD", 0.01)
    version = (await api.get(MAPS))["metadata"]["resourceVersion"]
    latest = (await api.create("/api/v1/namespaces", {"metadata": {"name": "x"}}))["metadata"]["resourceVersion"]
    async with api.watch(f"{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}") as events:
        async with asyncio.timeout(10):
            bookmark = await events.get()
    assert bookmark["type"] == "BOOKMARK"
    # Others went on, and this watch has missed nothing of its own until then.
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(latest)
    assert bookmark["object"]["kind"] == "ConfigMap"


async def test_a_list_by_watch_ends_with_a_bookmark(api: Client) -> None:
    await api.create(MAPS, config("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with api.watch(f"{MAPS}?{query}") as events, asyncio.timeout(10):
        assert shown(await events.get()) == ("ADDED", "a")
        bookmark = await events.get()
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_ends_after_its_time(api: Client) -> None:
    assert await api.watched(f"{MAPS}?watch=1&timeoutSeconds=1") == []


async def test_rows_of_a_watched_table_name_their_columns_once(api: Client) -> None:
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    await api.create(MAPS, config("a"))
    await api.create(MAPS, config("b"))
    api.session.headers.update(accept)
    first, second = await api.watched(f"{MAPS}?watch=1&timeoutSeconds=1")
    assert (first["object"]["kind"], len(first["object"]["rows"])) == ("Table", 1)
    assert first["object"]["columnDefinitions"]
    assert second["object"]["columnDefinitions"] is None


async def test_a_client_that_left_leaves_nothing_behind(api: Client) -> None:
    await api.get(MAPS)
    before = len(asyncio.all_tasks())
    async with api.watch(f"{MAPS}?watch=1") as events:
        await api.create(MAPS, config("a"))
        await take(events, 1)
    # The server notices by the connection; whatever it still has to do is done when it answers the next request.
    for _ in range(20):
        await api.get(MAPS)
    assert len(asyncio.all_tasks()) <= before
