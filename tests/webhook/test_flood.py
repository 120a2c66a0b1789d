"""A webhook keeps its memory, and answers the API server, whatever is sent to it by others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from testbed.operator import COMMAND
from testbed.plane import free_port
from tests.flood import flood, peak_memory, process
from tests.webhook.build import a_review
from tests.webhook.test_server import GOOD, MATERIAL, VALIDATE, trusting
from trainmaster.webhook.certificate import pem_of
from trainmaster.webhook.server import LARGEST

pytestmark = pytest.mark.long

CONNECTIONS = 150
MOST_MEGABYTES = 128


class Webhook:
    def __init__(self, pid: int, port: int, session: aiohttp.ClientSession) -> None:
        self.pid = pid
        self.port = port
        self._session = session

    async def is_allowed(self) -> bool:
        async with self._session.post(VALIDATE, json=a_review(GOOD)) as response:
            answer = await response.json() if response.status == 200 else {"response": {"allowed": False}}
        allowed: bool = answer["response"]["allowed"]
        return allowed


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    (tmp_path / "tls.crt").write_bytes(pem_of([MATERIAL.serving.certificate]))
    (tmp_path / "tls.key").write_bytes(MATERIAL.serving.secret)
    port = free_port()
    options = ["--bind-address", f"127.0.0.1:{port}", "--cert-dir", str(tmp_path)]
    off = ["--metrics-bind-address", "0", "--health-probe-bind-address", "0"]
    with process([COMMAND, "webhook", *options, *off]) as running:
        connector = aiohttp.TCPConnector(ssl=trusting())
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:
            webhook = Webhook(running.pid, port, session)
            for _ in range(100):
                try:
                    assert await webhook.is_allowed()
                    break
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.1)
            yield webhook


async def test_the_memory_of_a_webhook_is_bounded(webhook: Webhook) -> None:
    answers = await flood(
        webhook.port, VALIDATE, connections=CONNECTIONS, declared=LARGEST, sent=LARGEST - 1, tls=trusting()
    )

    print(f"{answers} answers to {CONNECTIONS} connections; {peak_memory(webhook.pid):.0f} MB at most")
    assert await webhook.is_allowed()
    assert peak_memory(webhook.pid) < MOST_MEGABYTES
