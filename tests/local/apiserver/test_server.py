"""The server as a whole: authentication, start and its errors, persistence, clean-up."""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.certificate import Authority
from tests.local.apiserver.client import Client
from tests.local.apiserver.conftest import TOKEN
from trainmaster.core.errors import BadConfig
from trainmaster.local.apiserver.http.server import ApiOptions, serve_api
from trainmaster.local.apiserver.store.store import Store

MAPS = "/api/v1/namespaces/default/configmaps"


def changed(options: ApiOptions, **more: Any) -> ApiOptions:
    return msgspec.structs.replace(options, **more)


PATHS = ("/healthz", "/readyz", "/version", "/api", "/api/v1/namespaces", "/absent", "/")


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"],
)
async def test_without_the_token_nothing_is_answered(api: Client, authorization: str | None) -> None:
    del api.session.headers["Authorization"]
    headers = {} if authorization is None else {"Authorization": authorization}
    for path in PATHS:
        async with api.session.get(path, headers=headers) as response:
            body = await response.json()
        assert (path, response.status, body["reason"]) == (path, 401, "Unauthorized")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_health_checks_succeed(api: Client, path: str) -> None:
    assert (await api.request("GET", path))[:2] == (200, "ok")


async def test_it_listens_on_loopback_only(api_options: ApiOptions) -> None:
    async with serve_api(api_options) as server:
        with socket.socket() as probe, pytest.raises(OSError, match="refused"):
            probe.connect((_other_address(), server.port))


def _other_address() -> str:
    # Every address of 127/8 is this machine, and only one of them is served.
    return "127.0.0.2"


async def test_a_server_without_a_token_does_not_start(api_options: ApiOptions) -> None:
    with pytest.raises(BadConfig, match="needs a token"):
        async with serve_api(changed(api_options, token="")):
            pass


async def test_a_port_in_use_is_named(api_options: ApiOptions) -> None:
    async with serve_api(api_options) as server:
        with pytest.raises(BadConfig, match=rf"cannot listen on 127\.0\.0\.1:{server.port}"):
            async with serve_api(changed(api_options, port=server.port)):
                pass


async def test_a_second_server_on_one_database_is_refused(api_options: ApiOptions, tmp_path: Path) -> None:
    options = changed(api_options, database=str(tmp_path / "db"))
    async with serve_api(options):
        with pytest.raises(BadConfig, match="another process uses it"):
            async with serve_api(options):
                pass


async def test_the_rules_of_a_definition_are_stored_and_not_evaluated(api: Client) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = definition_with("false")

    stored = await api.create(path, definition)
    await api.create("/apis/example.com/v1/namespaces/default/disks", DISK)

    assert stored["spec"]["versions"] == definition["spec"]["versions"]


DISK = {"apiVersion": "example.com/v1", "kind": "Disk", "metadata": {"name": "a"}}


def definition_with(rule: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": rule}]}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "disks.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "disks", "kind": "Disk"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


async def test_a_certificate_that_is_not_there_is_named(api_options: ApiOptions, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"absent\.crt"):
        async with serve_api(changed(api_options, certificate=tmp_path / "absent.crt")):
            pass


async def test_a_definition_that_cannot_be_served_stops_the_start(api_options: ApiOptions) -> None:
    wrong = {"metadata": {"name": "a.b"}, "spec": {"versions": []}}
    with pytest.raises(BadConfig, match=r"a\.b cannot be served"):
        async with serve_api(changed(api_options, definitions=[wrong])):
            pass


async def test_objects_are_there_after_a_restart(api_options: ApiOptions, authority: Authority, tmp_path: Path) -> None:
    options = changed(api_options, database=str(tmp_path / "db"))
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        made = await client.create(MAPS, {"metadata": {"name": "a"}, "data": {"x": "y"}})
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        assert await client.get(f"{MAPS}/a") == made
        newer = await client.create(MAPS, {"metadata": {"name": "b"}})
    # The start itself changed nothing: namespaces and definitions were there and are the same.
    assert int(newer["metadata"]["resourceVersion"]) == int(made["metadata"]["resourceVersion"]) + 1


async def test_definitions_are_brought_up_to_date_at_the_start(
    api_options: ApiOptions, authority: Authority, tmp_path: Path
) -> None:
    options = changed(api_options, database=str(tmp_path / "db"))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/dijobs.diengine.opendilab.org"
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        await client.merge(path, {"spec": {"names": {"shortNames": ["odd"]}}})
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        found = await client.get(path)
    assert found["spec"]["names"]["shortNames"] == ["dijob"]


async def test_a_full_disk_refuses_writes_and_nothing_else(
    api_options: ApiOptions, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Store] = []
    original = Store.open.__func__  # type: ignore[attr-defined]

    def remember(cls: type[Store], database: str) -> Store:
        opened.append(original(cls, database))
        return opened[0]

    monkeypatch.setattr(Store, "open", classmethod(remember))
    options = changed(api_options, database=str(tmp_path / "db"))
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        await client.create(MAPS, {"metadata": {"name": "a"}})
        connection = opened[0]._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        big = {"metadata": {"name": "b"}, "data": {"x": "y" * 100_000}}
        refused = await client.request("POST", MAPS, big)
        assert (refused.code, refused.body["reason"]) == (503, "ServiceUnavailable")
        assert "the disk is full; nothing was changed" in refused.body["message"]
        assert [item["metadata"]["name"] for item in (await client.get(MAPS))["items"]] == ["a"]
        connection.execute("PRAGMA max_page_count = 100000")
        await client.create(MAPS, big)


async def test_nothing_is_left_running(api_options: ApiOptions, authority: Authority) -> None:
    before = asyncio.all_tasks()
    async with serve_api(api_options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        async with client.watch(f"{MAPS}?watch=1") as events:
            await client.create(MAPS, {"metadata": {"name": "a"}})
            await events.get()
    assert asyncio.all_tasks() == before


async def test_closing_ends_watches_at_once(api_options: ApiOptions, authority: Authority) -> None:
    clock = asyncio.get_running_loop().time
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve_api(api_options))
        async with Client(server.url, TOKEN, authority.ca_file) as client:
            await client.create(MAPS, {"metadata": {"name": "a"}})
            async with client.watch(f"{MAPS}?watch=1") as events:
                assert (await events.get())["type"] == "ADDED"
                started = clock()
                await stack.aclose()
                assert clock() - started < 1.0
                assert await events.get() is None


async def test_a_version_from_before_a_restart_is_too_old(
    api_options: ApiOptions, authority: Authority, tmp_path: Path
) -> None:
    options = changed(api_options, database=str(tmp_path / "db"))
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        for name in "abc":
            await client.create(MAPS, {"metadata": {"name": name}})
        first = await client.get(f"{MAPS}?limit=1")
        await client.create(MAPS, {"metadata": {"name": "d"}})
    old, cursor = first["metadata"]["resourceVersion"], first["metadata"]["continue"]
    async with serve_api(options) as server, Client(server.url, TOKEN, authority.ca_file) as client:
        (event,) = await client.watched(f"{MAPS}?watch=1&resourceVersion={old}&timeoutSeconds=1")
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert event["object"]["message"].startswith(f"too old resource version: {old} (")
        stale = await client.request("GET", f"{MAPS}?continue={cursor}")
        assert (stale.code, stale.body["reason"]) == (410, "Expired")
        # The Status has a continue token for the current version.
        rest = await client.get(f"{MAPS}?continue={stale.body['metadata']['continue']}")
        assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c", "d"]
        exact = await client.request("GET", f"{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")
        assert (exact.code, exact.body["reason"]) == (410, "Expired")
