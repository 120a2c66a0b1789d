"""An answer counts as received when the other side's machine has it, and not before: else it is given again."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from testbed.admin import eventually
from tests.build import Json
from tests.diserver.bench import NAMESPACE, Bench
from tests.diserver.client import Client
from tests.runtime.cluster import Call
from trainmaster.diserver import serve
from trainmaster.diserver.acknowledgement import SentAnswer

SMALL = 4096
"""What the other side's machine takes while nobody reads there; much more than that is written."""


def narrow() -> socket.socket:
    """A socket that takes little."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    found.setblocking(False)
    return found


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[asyncio.StreamWriter, socket.socket]]:
    """One side as a server has it, and the other as a plain socket that takes little."""
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, writer: accepted.set_result(writer), "127.0.0.1", 0)
    other = narrow()
    await asyncio.get_running_loop().sock_connect(other, server.sockets[0].getsockname())
    writer: asyncio.StreamWriter = await accepted
    try:
        yield writer, other
    finally:
        other.close()
        writer.transport.abort()
        server.close()


async def arrives(writer: asyncio.StreamWriter, timeout: float = 10.0) -> bool:
    with SentAnswer(writer.transport) as sent:
        return await sent.acknowledged(timeout)


def abort(other: socket.socket) -> None:
    """As when a machine or what is between forgets the connection: no goodbye, and what came unread is thrown away."""
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()


async def test_what_the_other_side_has_has_arrived_read_or_not() -> None:
    async with connection() as (writer, _):
        writer.write(b"answer")

        assert await arrives(writer)


async def test_what_the_other_side_took_before_it_closed_has_arrived() -> None:
    async with connection() as (writer, other):
        writer.write(b"answer")
        assert await asyncio.get_running_loop().sock_recv(other, 100) == b"answer"
        other.close()

        assert await arrives(writer)


async def test_what_the_other_side_has_no_room_for_has_not_arrived() -> None:
    async with connection() as (writer, _):
        writer.write(b"x" * 100 * SMALL)

        assert not await arrives(writer, timeout=0.05)


async def test_it_is_waited_for_until_it_is_read() -> None:
    async with connection() as (writer, other):
        left = 100 * SMALL
        writer.write(b"x" * left)
        waiting = asyncio.ensure_future(arrives(writer, timeout=30))
        assert await asyncio.wait([waiting], timeout=0.05) == (set(), {waiting})
        while left:
            left -= len(await asyncio.get_running_loop().sock_recv(other, left))

        assert await waiting


async def test_what_was_on_its_way_when_the_connection_broke_has_not_arrived() -> None:
    async with connection() as (writer, other):
        writer.write(b"x" * 100 * SMALL)
        abort(other)

        assert not await arrives(writer, timeout=0.05)


@pytest.mark.parametrize("has_transport", [True, False])
async def test_on_a_connection_that_is_gone_nothing_arrives(has_transport: bool) -> None:
    async with connection() as (writer, _):
        writer.transport.abort()
        await asyncio.sleep(0)

        with SentAnswer(writer.transport if has_transport else None) as sent:
            assert not await sent.acknowledged()


# --- what comes of it --------------------------------------------------------------------------


def asking_for(number: int) -> Json:
    return {"namespace": NAMESPACE, "coordinator": "cart-coordinator", "collectors": {"replicas": number}}


async def asked(bench: Bench, address: str, body: Json) -> socket.socket:
    """A request is on its way, from the address of a pod; nobody reads the answer yet."""
    loop, line = asyncio.get_running_loop(), narrow()
    line.bind((address, 0))
    host, _, port = bench.url.removeprefix("http://").partition(":")
    await loop.sock_connect(line, (host, int(port)))
    data = json.dumps(body).encode()
    head = f"POST /v1alpha1/replicas HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n\r\n"
    await loop.sock_sendall(line, head.encode() + data)
    return line


async def test_an_answer_that_got_lost_on_its_way_is_given_again(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has written all of it. A client that asks again in the same words has not heard it, and gets no second
    thousand."""
    monkeypatch.setattr(serve, "FLUSH_SECONDS", 0.1)  # the end of the test does not wait for it either
    await client.start({"replicas": 0}, {})
    await bench.answered()
    line = await asked(bench, bench.pod("cart-collector-aaaaa"), asking_for(1000))
    assert await asyncio.get_running_loop().sock_recv(line, 1) == b"H"  # the rest is on its way
    abort(line)
    before = bench.members()

    success, _, _, found = await client.request("POST", "/v1alpha1/replicas", asking_for(1000))

    assert (success, len(found["collectors"]), len(before)) == (True, 1000, 1000)
    assert bench.members() == before


async def test_whoever_has_read_the_answer_and_asks_in_the_same_words_wants_more(bench: Bench, client: Client) -> None:
    await client.start({"replicas": 0}, {})
    await bench.answered()

    for _ in range(20):
        assert await client.add(collectors={"replicas": 1}) is not None

    assert len(bench.members()) == 20


async def test_who_has_gone_before_the_answer_was_there_gets_it_when_asking_again(
    bench: Bench, client: Client, logs: list[Any]
) -> None:
    await client.start({"replicas": 0}, {})
    await bench.answered()
    stored, gone = asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> None:
        if call.verb == "patch":
            stored.set()
            await gone.wait()

    bench.cluster.after = slow
    line = await asked(bench, bench.pod("cart-collector-aaaaa"), asking_for(2))
    await stored.wait()
    abort(line)
    for _ in range(5):  # the server's end of the line, on this very loop, learns of it
        await asyncio.sleep(0)
    gone.set()

    async def is_told() -> None:
        assert any(line.get("because") == "the client has closed the connection" for line in logs)

    await eventually(is_told)
    before = bench.members()
    success, _, _, found = await client.request("POST", "/v1alpha1/replicas", asking_for(2))

    assert (success, {client.pod_of(url) for url in found["collectors"]}) == (True, set(before))
    assert bench.members() == before
