"""A copy of the behaviour of DI-engine's client of di-server, including its weaknesses.

It sends a JSON body with every request, also with GET, and no Content-Type. It tries a connection five times, one
second apart. It dies of every status from 400 on, and of an answer of another shape than it knows. Only an answer
with ``success: false`` makes it ask again. It computes the name of a failed pod from its URL.
"""

import asyncio
import json
from typing import Any

import aiohttp

TRIES = 5
PAUSE = 1.0
INIT_PAUSE = 2.0
INIT_SECONDS = 120.0


class Died(Exception):
    """The client's process, or the thread that keeps it in step with the server, has ended for good."""


class Client:
    """One coordinator. ``pause`` shortens its waits, and nothing else."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, namespace: str, name: str, *, pause: float = PAUSE
    ) -> None:
        self._session = session
        self.url = url
        self.namespace = namespace
        self.name = name
        self._pause = pause
        self.retries = 0

    async def start(self, collectors: dict[str, Any], learners: dict[str, Any]) -> dict[str, Any]:
        """The first request of a coordinator: repeated while the answer is "try again"."""
        body = self._identity() | {"collectors": collectors, "learners": learners}
        for _ in range(int(INIT_SECONDS / INIT_PAUSE)):
            success, _, _, data = await self.request("POST", "/v1alpha1/replicas", body)
            if success:
                return self.checked(data)
            await asyncio.sleep(self._pause * INIT_PAUSE / PAUSE)
        raise Died("no replicas after 120 seconds")

    async def get(self) -> dict[str, Any] | None:
        """One poll of the thread that follows the server; None if the answer was "try again"."""
        success, _, _, data = await self.request("GET", "/v1alpha1/replicas", {}, params=self._identity())
        return self.checked(data) if success else None

    async def add(self, **wanted: Any) -> dict[str, Any] | None:
        success, _, _, data = await self.request("POST", "/v1alpha1/replicas", self._identity() | wanted)
        return self.checked(data) if success else None

    async def delete(self, **wanted: Any) -> dict[str, Any] | None:
        success, _, _, data = await self.request("DELETE", "/v1alpha1/replicas", self._identity() | wanted)
        return self.checked(data) if success else None

    async def report(self, *, collectors: list[str] | None = None, learners: list[str] | None = None) -> Any:
        """Failed URLs, by the names that it computes from them."""
        lists = {
            "collectors": [self.pod_of(url) for url in collectors or ()],
            "learners": [self.pod_of(url) for url in learners or ()],
        }
        success, _, _, data = await self.request("POST", "/v1alpha1/replicas/failed", self._identity() | lists)
        return self.checked(data) if success else None

    async def request(
        self, method: str, path: str, body: Any, *, params: dict[str, str] | None = None
    ) -> tuple[bool, int, str, Any]:
        for attempt in range(TRIES):
            if attempt:
                self.retries += 1
                await asyncio.sleep(self._pause)
            try:
                return await self._once(method, path, body, params)
            except (aiohttp.ClientConnectionError, ConnectionError) as error:
                last = error
        raise Died(f"no connection after {TRIES} tries: {last!r}")

    async def _once(
        self, method: str, path: str, body: Any, params: dict[str, str] | None
    ) -> tuple[bool, int, str, Any]:
        data = json.dumps(body).encode()
        headers = {"Connection": "close"}
        async with self._session.request(
            method, self.address() + path, data=data, params=params, headers=headers, skip_auto_headers=["Content-Type"]
        ) as response:
            said = await response.read()
            if response.status >= 400:
                raise Died(f"{method} {path}: {response.status} {said.decode()}")
            found = json.loads(said)
        try:
            return found["success"], found["code"], found.get("message", ""), found.get("data")
        except KeyError as error:
            raise Died(f"answer without {error}: {found}") from error

    def address(self) -> str:
        """Where the next connection goes."""
        return self.url

    def checked(self, data: Any) -> dict[str, Any]:
        """It takes URLs apart without looking."""
        try:
            for url in (*data["collectors"], *data["learners"]):
                host, port = url.split(":")
                int(port)
                if self.pod_of(url) != host.rpartition(f".{self.namespace}")[0]:
                    raise Died(f"{url} is not <pod>.<namespace>:<port>")
        except (TypeError, KeyError, ValueError) as error:
            raise Died(f"cannot read {data}: {error!r}") from error
        found: dict[str, Any] = data
        return found

    @staticmethod
    def pod_of(url: str) -> str:
        """The host without its last label."""
        return ".".join(url.split(":")[0].split(".")[:-1])

    def _identity(self) -> dict[str, str]:
        return {"namespace": self.namespace, "coordinator": self.name}
