"""Who may use di-server of a local cluster: its pods, each for its own job, and the holder of the cluster's token."""

import asyncio
import hmac
import sys
from collections.abc import Collection
from typing import Any

import msgspec
from aiohttp import web

from trainmaster.core.ids import Resource
from trainmaster.diserver.refusal import Refused
from trainmaster.diserver.token import TOKEN_REVIEW
from trainmaster.local.node.connection import calling_pod
from trainmaster.local.state import State

LOOKUPS_AT_ONCE = 4
"""Each reads the process table."""


class LocalCallers:
    """``hosts`` are the names and addresses of di-server, with their ports. Also the reviewer of tokens: there is one,
    and it may do everything."""

    def __init__(self, state: State, hosts: Collection[str]) -> None:
        self._state = state
        self._hosts = frozenset(hosts)
        self._lookups = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def identify(self, request: web.Request) -> str | None:
        """The uid of the calling pod; None if the address or a token has to tell. Raises ``Refused`` for all others."""
        if "Origin" in request.headers or request.host not in self._hosts:
            raise Refused(403, "this request comes from a web page, or is meant for another server")
        if self._has_token(request.headers.get("Authorization", "").removeprefix("Bearer ")):
            return None
        if sys.platform != "linux":
            return None  # there is no /proc: all users of the machine are served, as pods of all jobs
        if pod := await self._calling_pod(request):
            return pod
        raise Refused(
            403,
            "this request comes from no pod of this cluster; call from inside a job, or with the token in "
            f"{self._state.token_file}",
        )

    async def review(self, resource: Resource, body: bytes) -> bytes:
        """Answers a TokenReview or SubjectAccessReview."""
        status: dict[str, Any] = {"allowed": True}
        if resource == TOKEN_REVIEW:
            spec = msgspec.json.decode(body)["spec"]
            status = {
                "authenticated": self._has_token(spec["token"]),
                "user": {"username": "trainmaster"},
                "audiences": spec.get("audiences", []),
            }
        return msgspec.json.encode({"status": status})

    def _has_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._state.token.encode())

    async def _calling_pod(self, request: web.Request) -> str:
        transport = request.transport
        if transport is None:  # the client has closed the connection
            return ""
        client, server = (transport.get_extra_info(name)[:2] for name in ("peername", "sockname"))
        async with self._lookups:
            return await asyncio.to_thread(calling_pod, self._state.node, client, server)
