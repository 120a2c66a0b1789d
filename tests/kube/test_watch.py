"""Watches of trainmaster.kube.client: lines, silence, cuts, ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.kube.build import Clock, a_config
from tests.kube.conftest import Connect, Run, Serve
from tests.kube.serve import Answer, RawServer, hang, status, stream
from trainmaster.core.errors import Forbidden, Gone, Unreachable
from trainmaster.core.ids import POD
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.config import Material

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def watching(cluster: KubeCluster, timeout: float = 60.0) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    return cluster.watch(POD, resource_version="7", timeout=timeout)


async def lines_of(cluster: KubeCluster, timeout: float = 60.0) -> list[bytes]:
    async with watching(cluster, timeout) as lines:
        return [line async for line in lines]


async def test_request_asks_for_bookmarks_and_a_server_side_timeout(serve: Serve, connect: Connect) -> None:
    server = await serve(stream())
    cluster = await connect(a_config(server.url))

    async with cluster.watch(POD, namespace="ml", selector="a=b", resource_version="7", timeout=240.0) as lines:
        assert [line async for line in lines] == []

    assert server.seen[0].path == (
        "/api/v1/namespaces/ml/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=240"
        "&labelSelector=a%3Db"
    )


async def test_lines_are_unchanged_until_the_server_ends_the_watch(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(b'{"type":"ADDED"}\n{"ty', b'pe":"BOOKMARK"}\n', b'{"type":"ERROR"}\n'))
    cluster = await connect(a_config(server.url))

    assert await lines_of(cluster) == [b'{"type":"ADDED"}', b'{"type":"BOOKMARK"}', b'{"type":"ERROR"}']


async def test_odd_line_separators_inside_strings_split_nothing(serve: Serve, connect: Connect) -> None:
    line = '{"message":"a\u0085b\u2028c\u2029d"}'.encode()
    pieces = [bytes([byte]) for byte in line + b"\n"]
    server = await serve(stream(*pieces, line, b"\n"))
    cluster = await connect(a_config(server.url))

    assert await lines_of(cluster) == [line, line]


async def test_line_may_have_five_megabytes(serve: Serve, connect: Connect) -> None:
    line = b"x" * 5_000_000
    server = await serve(stream(line, b"\n", b"y\n"))
    cluster = await connect(a_config(server.url))

    assert await lines_of(cluster) == [line, b"y"]


async def test_line_without_end_is_given_up(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(*[b"x" * 1_000_000] * 18))
    cluster = await connect(a_config(server.url))

    with pytest.raises(Unreachable, match="watch pods: a line is longer than 16777216 bytes"):
        await lines_of(cluster)


async def test_event_is_seen_during_the_watch(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(b"one\n", then=asyncio.Event().wait))
    cluster = await connect(a_config(server.url))

    async with watching(cluster) as lines:
        assert await anext(lines) == b"one"


async def test_a_silent_watch_ends(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(b"one\n", then=asyncio.Event().wait))
    cluster = await connect(a_config(server.url), watch_idle=0.05)

    assert await lines_of(cluster) == [b"one"]


async def test_silence_within_a_line_is_an_error(serve: Serve, connect: Connect) -> None:
    server = await serve(stream(b"one\ntw", then=asyncio.Event().wait))
    cluster = await connect(a_config(server.url), watch_idle=0.05)

    with pytest.raises(Unreachable, match="watch pods: the connection was cut in the middle of a line"):
        await lines_of(cluster)


async def test_server_that_never_begins_is_noticed(serve: Serve, connect: Connect) -> None:
    server = await serve(hang)
    cluster = await connect(a_config(server.url), timeout=0.05)

    with pytest.raises(Unreachable, match=r"watch pods: no answer within 0\.05 s"):
        await lines_of(cluster)


async def test_watch_that_the_server_does_not_end_is_closed_after_its_timeout(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.kube.client._WATCH_GRACE", 0.0)

    server = await serve(stream(b"one\n", then=asyncio.Event().wait))
    cluster = await connect(a_config(server.url))

    with pytest.raises(Unreachable, match="watch pods: no answer within"):
        await lines_of(cluster, timeout=0.1)


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"4\r\none\n\r\n", id="between lines"),
        pytest.param(b"6\r\none\nha\r\n", id="within a line"),
        pytest.param(b"6\r\none\nha\r\n0\r\n\r\n", id="within a line, politely"),
    ],
)
async def test_cut_connection_gives_whole_lines_only(rest: bytes, run: Run[Any], connect: Connect) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + rest)
        await writer.drain()

    server = await run(RawServer(talk))
    cluster = await connect(a_config(server.url))

    async with watching(cluster) as lines:
        assert await anext(lines) == b"one"
        with pytest.raises(Unreachable, match="watch pods: the connection was cut"):
            await anext(lines)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(status(410, "Expired", "too old resource version: 7 (9)"), Gone, id="410"),
        pytest.param(status(403, "Forbidden", "no"), Forbidden, id="403"),
    ],
)
async def test_refused_watch_raises_before_the_first_line(
    answer: Answer, error: type[Exception], serve: Serve, connect: Connect
) -> None:
    server = await serve(answer)
    cluster = await connect(a_config(server.url))

    with pytest.raises(error, match=r"^watch pods: "):
        await lines_of(cluster)


async def test_busy_server_is_asked_again(serve: Serve, connect: Connect) -> None:
    server = await serve(status(429, Retry_After="0"), stream(b"one\n"))
    cluster = await connect(a_config(server.url))

    assert await lines_of(cluster) == [b"one"]


async def test_rejected_token_is_renewed(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    server = await serve(status(401), stream(b"one\n"))
    cluster = await connect(a_config(server.url, token=Material("token", path=path)), now=Clock())
    path.write_text("two")

    assert await lines_of(cluster) == [b"one"]
    assert server.seen[1].headers["Authorization"] == "Bearer two"


async def test_leaving_closes_the_connection(run: Run[Any], connect: Connect) -> None:
    left = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"4\r\none\n\r\n")
        assert await reader.read() == b""
        left.set()

    server = await run(RawServer(talk))
    cluster = await connect(a_config(server.url))

    async with watching(cluster) as lines:
        await anext(lines)

    await left.wait()


async def test_watch_is_observed_when_it_begins(serve: Serve, connect: Connect) -> None:
    observed: list[tuple[str, str]] = []
    server = await serve(stream(b"one\n"))
    cluster = await connect(a_config(server.url), observe=lambda method, code, seconds: observed.append((method, code)))

    async with watching(cluster):
        assert observed == [("GET", "200")]
