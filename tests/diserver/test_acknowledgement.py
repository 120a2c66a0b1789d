"""An answer counts as received when the client's machine has acknowledged it; until then a retry gets it again."""

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
"""The receive buffer of the peer; the tests write much more."""


def narrow() -> socket.socket:
    """A socket with a small receive buffer."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    found.setblocking(False)
    return found


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[asyncio.StreamWriter, socket.socket]]:
    """The server's side of a connection, and a peer with a small receive buffer."""
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
    """Resets the connection: unread data is discarded."""
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()


async def test_an_answer_that_the_peer_has_received_is_acknowledged() -> None:
    async with connection() as (writer, _):
        writer.write(b"answer")

        assert await arrives(writer)


async def test_an_answer_that_the_peer_received_before_it_closed_is_acknowledged() -> None:
    async with connection() as (writer, other):
        writer.write(b"answer")
        assert await asyncio.get_running_loop().sock_recv(other, 100) == b"answer"
        other.close()

        assert await arrives(writer)


async def test_an_answer_beyond_the_peers_buffer_is_not_acknowledged() -> None:
    async with connection() as (writer, _):
        writer.write(b"x" * 100 * SMALL)

        assert not await arrives(writer, timeout=0.05)


async def test_acknowledgement_is_waited_for() -> None:
    async with connection() as (writer, other):
        left = 100 * SMALL
        writer.write(b"x" * left)
        waiting = asyncio.ensure_future(arrives(writer, timeout=30))
        assert await asyncio.wait([waiting], timeout=0.05) == (set(), {waiting})
        while left:
            left -= len(await asyncio.get_running_loop().sock_recv(other, left))

        assert await waiting


async def test_an_answer_in_transit_is_not_acknowledged_after_a_broken_connection() -> None:
    async with connection() as (writer, other):
        writer.write(b"x" * 100 * SMALL)
        abort(other)

        assert not await arrives(writer, timeout=0.05)


@pytest.mark.parametrize("has_transport", [True, False])
async def test_nothing_is_acknowledged_on_a_closed_connection(has_transport: bool) -> None:
    async with connection() as (writer, _):
        writer.transport.abort()
        await asyncio.sleep(0)

        with SentAnswer(writer.transport if has_transport else None) as sent:
            assert not await sent.acknowledged()


# --- what comes of it --------------------------------------------------------------------------


def asking_for(number: int) -> Json:
    return {"namespace": NAMESPACE, "coordinator": "cart-coordinator", "collectors": {"replicas": number}}


async def asked(bench: Bench, address: str, body: Json) -> socket.socket:
    """Sends a request from the address of a pod and does not read the answer yet."""
    loop, line = asyncio.get_running_loop(), narrow()
    line.bind((address, 0))
    host, _, port = bench.url.removeprefix("http://").partition(":")
    await loop.sock_connect(line, (host, int(port)))
    data = json.dumps(body).encode()
    head = f"POST /v1alpha1/replicas HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n\r\n"
    await loop.sock_sendall(line, head.encode() + data)
    return line


async def test_a_lost_answer_is_sent_again(bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has written the whole answer. A client that repeats its request has not received it and gets no
    further replicas."""
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


async def test_an_equal_request_after_a_received_answer_is_a_new_one(bench: Bench, client: Client) -> None:
    await client.start({"replicas": 0}, {})
    await bench.answered()

    for _ in range(20):
        assert await client.add(collectors={"replicas": 1}) is not None

    assert len(bench.members()) == 20


async def test_a_client_that_disconnected_early_gets_the_same_answer_on_retry(
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
