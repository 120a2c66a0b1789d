"""The faults are what they say: else the other tests here would prove nothing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from testbed.admin import Admin, eventually, path_of
from testbed.answer import Object, Refused
from testbed.plane import ControlPlane
from testbed.proxy import (
    CUT,
    GAVE_UP,
    Fault,
    FaultProxy,
    answer,
    cut_after,
    cut_before,
    hang,
    watch_cut,
    watch_gone,
    watch_lag,
    watch_silence,
)

MAPS = "configmaps"


@pytest.fixture
async def client(plane: ControlPlane, proxy: FaultProxy) -> AsyncIterator[Admin]:
    """The admin, through the proxy."""
    async with Admin(proxy.url, plane.admin_token) as client:
        yield client


def a_map(name: str) -> Object:
    return {"metadata": {"name": name}}


async def test_a_call_that_no_rule_is_about_passes_and_is_recorded(
    proxy: FaultProxy, client: Admin, admin: Admin, namespace: str
) -> None:
    created = await client.create(MAPS, a_map("a"), namespace)

    assert await admin.get(MAPS, namespace, "a") == created
    (call,) = proxy.writes(namespace, user="admin")
    assert (call.method, call.resource, call.name, call.code, call.outcome) == ("POST", MAPS, "a", 201, "201")
    assert json.loads(call.answered)["metadata"]["uid"] == created["metadata"]["uid"]
    assert call.forwarded is not None
    assert call.ended is not None
    assert call.at <= call.forwarded <= call.ended


@pytest.mark.parametrize(
    ("fault", "is_done"), [pytest.param(cut_before, False, id="before"), pytest.param(cut_after, True, id="after")]
)
async def test_a_cut_loses_the_answer_and_says_whether_the_server_did_it(
    proxy: FaultProxy, client: Admin, admin: Admin, namespace: str, fault: Fault, is_done: bool
) -> None:
    proxy.inject(fault, method="POST", namespace=namespace)

    with pytest.raises(aiohttp.ClientError):
        await client.create(MAPS, a_map("a"), namespace)

    assert (await admin.find(MAPS, namespace, "a") is not None) == is_done
    (call,) = proxy.writes(namespace)
    assert (call.outcome, call.is_done) == (CUT, is_done)


async def test_a_call_that_hangs_ends_when_its_caller_gives_up_and_never_reaches_the_server(
    proxy: FaultProxy, client: Admin, admin: Admin, namespace: str
) -> None:
    proxy.inject(hang, method="POST", namespace=namespace)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.create(MAPS, a_map("a"), namespace)

    assert await admin.find(MAPS, namespace, "a") is None
    (call,) = proxy.writes(namespace)

    async def look() -> None:
        assert (call.outcome, call.forwarded) == (GAVE_UP, None)

    await eventually(look)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (410, "Expired")],
)
async def test_an_answer_of_the_proxy_looks_like_one_of_the_server(
    proxy: FaultProxy, client: Admin, namespace: str, code: int, reason: str
) -> None:
    proxy.inject(answer(code), namespace=namespace)

    with pytest.raises(Refused) as refused:
        await client.create(MAPS, a_map("a"), namespace)

    assert (refused.value.code, refused.value.reason) == (code, reason)
    assert proxy.writes(namespace)[0].forwarded is None


async def test_a_fault_meets_exactly_the_calls_that_it_is_for(proxy: FaultProxy, client: Admin, namespace: str) -> None:
    second = proxy.inject(answer(500), method="POST", namespace=namespace, first=2)
    named = proxy.inject(answer(409), method="POST", namespace=namespace, name="d", count=None)

    codes = []
    for name in ("a", "b", "c", "d", "d"):
        try:
            await client.create(MAPS, a_map(name), namespace)
            codes.append(201)
        except Refused as refused:
            codes.append(refused.code)

    assert codes == [201, 500, 201, 409, 409]
    assert [call.name for call in second.hit] == ["b"]
    assert [call.name for call in named.hit] == ["d", "d"]


async def test_nothing_passes_a_frozen_proxy_until_it_thaws(
    proxy: FaultProxy, client: Admin, admin: Admin, namespace: str
) -> None:
    proxy.freeze()
    creating = asyncio.ensure_future(client.create(MAPS, a_map("a"), namespace))
    await asyncio.sleep(0.3)
    assert await admin.find(MAPS, namespace, "a") is None

    proxy.thaw()

    await creating
    assert await admin.find(MAPS, namespace, "a") is not None


async def test_a_watch_flows_line_by_line_until_it_is_cut(
    proxy: FaultProxy, client: Admin, admin: Admin, namespace: str
) -> None:
    async with _watching(client, namespace) as lines:
        for name in ("a", "b"):
            await admin.create(MAPS, a_map(name), namespace)
            assert (await anext(lines))["object"]["metadata"]["name"] == name
        assert proxy.cut_watches(MAPS) == 1

        with pytest.raises(aiohttp.ClientError):
            await anext(lines)
        assert proxy.cut_watches(MAPS) == 0


async def test_a_watch_breaks_by_itself_when_told_so(proxy: FaultProxy, client: Admin, namespace: str) -> None:
    proxy.inject(watch_cut(after=0.1), watch=True, resource=MAPS)

    async with _watching(client, namespace) as lines:
        with pytest.raises(aiohttp.ClientError):
            await anext(lines)


async def test_a_lagging_watch_tells_everything_in_order_and_late(
    proxy: FaultProxy, client: Admin, admin: Admin, namespace: str
) -> None:
    proxy.inject(watch_lag(0.5), watch=True, resource=MAPS)
    async with _watching(client, namespace) as lines:
        began = time.monotonic()
        for name in ("a", "b", "c"):
            await admin.create(MAPS, a_map(name), namespace)
        told = [(await anext(lines))["object"]["metadata"]["name"] for _ in range(3)]

        assert told == ["a", "b", "c"]
        assert time.monotonic() - began >= 0.5


async def test_a_watch_can_begin_well_and_then_say_410(proxy: FaultProxy, client: Admin, namespace: str) -> None:
    proxy.inject(watch_gone, watch=True, resource=MAPS)

    async with _watching(client, namespace) as lines:
        told = await anext(lines)
        assert (told["type"], told["object"]["code"]) == ("ERROR", 410)


async def test_a_silent_watch_begins_and_says_nothing(
    proxy: FaultProxy, client: Admin, admin: Admin, namespace: str
) -> None:
    proxy.inject(watch_silence, watch=True, resource=MAPS)
    async with _watching(client, namespace) as lines:
        await admin.create(MAPS, a_map("a"), namespace)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(lines)


@asynccontextmanager
async def _watching(client: Admin, namespace: str) -> AsyncIterator[AsyncIterator[Object]]:
    async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[Object]:
        async for line in response.content:
            yield json.loads(line)

    async with client._session.get(path_of(MAPS, namespace), params={"watch": "true"}) as response:
        assert response.status == 200
        yield lines(response)
        response.close()
