"""A client that shows everything: codes, headers, bodies as they came."""

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import yarl

MERGE = "application/merge-patch+json"
OPERATIONS = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Answer(NamedTuple):
    code: int
    body: Any
    warnings: tuple[str, ...] = ()


class Client:
    """``async with``; bodies are JSON unless they are bytes."""

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        self.url = url
        self.token = token
        self.ca_file = ca_file
        self._tls = ssl.create_default_context(cafile=str(ca_file))

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        self.session = aiohttp.ClientSession(
            self.url, connector=connector, headers={"Authorization": f"Bearer {self.token}"}
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", accept: str = ""
    ) -> Answer:
        headers = {"Content-Type": content_type} if body is not None else {}
        if accept:
            headers["Accept"] = accept
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        data = None if raw is None else io.BytesIO(raw)  # aiohttp warns of large bytes
        async with self.session.request(method, _encoded(path), data=data, headers=headers) as response:
            text = await response.text()
            warnings = tuple(response.headers.getall("Warning", []))
            try:
                return Answer(response.status, json.loads(text), warnings)
            except ValueError:
                return Answer(response.status, text, warnings)

    async def get(self, path: str) -> Any:
        return await self._good("GET", path)

    async def create(self, path: str, body: Any) -> Any:
        return await self._good("POST", path, body)

    async def merge(self, path: str, body: Any) -> Any:
        return await self._good("PATCH", path, body, content_type=MERGE)

    async def delete(self, path: str, body: Any = None) -> Any:
        return await self._good("DELETE", path, body)

    async def _good(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        answer = await self.request(method, path, body, content_type=content_type)
        assert answer.code < 300, answer
        return answer.body

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[asyncio.Queue[Any]]:
        """Events as they come; None when the server ended the watch."""
        events: asyncio.Queue[Any] = asyncio.Queue()
        async with self.session.get(_encoded(path)) as response:
            assert response.status == 200, await response.text()

            async def read() -> None:
                async for line in response.content:
                    events.put_nowait(json.loads(line))
                events.put_nowait(None)

            task = asyncio.create_task(read())
            try:
                yield events
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                # Over TLS a mere close would say farewell and wait for an answer.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()

    async def watched(self, path: str) -> list[Any]:
        """All events of a watch that the server ends."""
        async with self.watch(path) as events:
            found = []
            while (event := await events.get()) is not None:
                found.append(event)
            return found


def _encoded(path: str) -> yarl.URL:
    return yarl.URL(path, encoded=True)


async def until(client: Client, collection: str, is_met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Follow a collection until its objects, by name, meet a condition; answers them."""
    listed = await client.get(collection)
    objects = {item["metadata"]["name"]: item for item in listed["items"]}
    version = listed["metadata"]["resourceVersion"]
    async with client.watch(f"{collection}?watch=1&resourceVersion={version}") as events, asyncio.timeout(10):
        while not is_met(objects):
            event = await events.get()
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                del objects[name]
            else:
                objects[name] = event["object"]
    return objects
