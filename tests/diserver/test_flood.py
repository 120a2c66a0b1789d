"""A di-server keeps its memory, and answers its jobs, whatever is sent to it by callers that nobody knows."""

import asyncio
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from testbed.plane import free_port
from tests.diserver.bench import NAMESPACE
from tests.diserver.client import Client
from tests.flood import MEGABYTE, flood, peak_memory, process
from trainmaster.diserver.request import BODY_LIMIT

pytestmark = pytest.mark.long

CONNECTIONS = 900
MOST_MEGABYTES = 200


class Server:
    def __init__(self, pid: int, port: int, client: Client) -> None:
        self.pid = pid
        self.port = port
        self.client = client


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    port = free_port()
    with process([sys.executable, "-m", "tests.diserver.process", str(port)]) as running:
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=connector) as session:
            client = Client(session, f"http://127.0.0.1:{port}", NAMESPACE, "cart-coordinator")
            await client.start({"replicas": 1}, {})
            yield Server(running.pid, port, client)


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        pytest.param(BODY_LIMIT, BODY_LIMIT - 1, id="bodies that are allowed"),
        pytest.param(MEGABYTE, MEGABYTE - 1, id="bodies that are too large"),
    ],
)
async def test_the_memory_of_a_server_is_bounded(server: Server, declared: int, sent: int) -> None:
    flooding = asyncio.ensure_future(
        flood(server.port, "/v1alpha1/replicas", connections=CONNECTIONS, declared=declared, sent=sent)
    )
    polls = 0
    while not flooding.done():
        polls += await server.client.get() is not None
        await asyncio.sleep(0.1)

    print(f"{await flooding} answers to {CONNECTIONS} connections; {peak_memory(server.pid):.0f} MB at most")
    assert polls
    assert peak_memory(server.pid) < MOST_MEGABYTES
