"""The raw loader: as many requests as 32 connections take, and nothing else. `work` says which."""

import asyncio
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec
import uvloop
from yarl import URL

CONNECTIONS = 32
JSON = "application/json"


class Request(NamedTuple):
    """One request as data; the body is encoded when it is sent, as a client has to."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    content_type: str = JSON


class LoadFailed(Exception):
    """The API server refused a request of the load."""


class Loader:
    """Sends requests as one user. Synchronous outside, so that Ctrl-C ends the benchmark anywhere."""

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Accept": JSON}
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def __enter__(self) -> Self:
        self._session = self._runner.run(self._open())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._session.close())
        self._runner.close()

    def send(self, requests: Iterable[Request]) -> None:
        """Send all of them; raises LoadFailed after the first that was refused."""
        self._runner.run(self._send(iter(requests)))

    def ask(self, request: Request) -> dict[str, Any]:
        """Send one request and answer the object of its answer."""
        return self._runner.run(self._ask(request))

    async def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self._tls),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(),
        )

    async def _send(self, requests: Iterator[Request]) -> None:
        # One iterator for all: the next free connection takes the next request.
        async def work() -> None:
            for request in requests:
                await self._one(request)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(CONNECTIONS):
                    group.create_task(work())
        except* LoadFailed as failed:
            raise failed.exceptions[0] from None

    async def _ask(self, request: Request) -> dict[str, Any]:
        return msgspec.json.decode(await self._one(request), type=dict[str, Any])

    async def _one(self, request: Request) -> bytes:
        data = msgspec.json.encode(request.body) if request.body is not None else None
        url = URL(self._url + request.path, encoded=True)
        headers = {"Content-Type": request.content_type}
        async with self._session.request(request.method, url, data=data, headers=headers) as response:
            body = await response.read()
        if response.status >= 300:
            said = body[:500].decode(errors="replace")
            raise LoadFailed(f"{request.method} {request.path}: {response.status} {said}")
        return body
