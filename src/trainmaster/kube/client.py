"""``KubeCluster``: the ``runtime.cluster.Cluster`` of a real API server.

One call is one or more attempts: ``_with_retries`` decides about retries, ``_answer`` and ``_open`` are one attempt.
``answer`` decodes answers, ``auth`` has the credentials, ``exchange`` sends requests, ``transport`` has the
connections.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from trainmaster.core.errors import ApiError, ServerError, TooManyRequests, Unauthorized, Unreachable
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.core.view import version_of_list
from trainmaster.kube.address import Addresses
from trainmaster.kube.answer import refusal, written
from trainmaster.kube.auth import Auth
from trainmaster.kube.budget import RetryBudget
from trainmaster.kube.call import JSON, MERGE_PATCH, METADATA, METADATA_LIST, Call
from trainmaster.kube.config import Config
from trainmaster.kube.exchange import Answer, Exchange
from trainmaster.kube.log import LogLines
from trainmaster.kube.master import check_master
from trainmaster.kube.transport import CONNECTIONS, drop, explain, open_session, proxy_of, read_body, safe_cause
from trainmaster.kube.watch import WatchLines
from trainmaster.runtime.backoff import REQUEST_TRIES, RETRY_AFTER_CAP
from trainmaster.runtime.cluster import Written
from trainmaster.settings import OPERATOR

Observe = Callable[[str, str, float], None]
Gate = Callable[[], None]

_MANAGED = "?fieldManager=trainmaster"
_STRICT = "&fieldValidation=Strict"
# Seconds that a server may take to end a watch after the watch's timeout.
_WATCH_GRACE = 15.0

T = TypeVar("T")


class KubeCluster:
    """Construct it inside a running event loop, use it as ``async with``, or ``close`` it.

    ``timeout`` limits every call except watches, including all attempts and the renewal of a credential;
    ``watch_idle`` limits the silence of a watch; ``connections`` limits the concurrent calls.
    ``observe(method, code, seconds)`` is called for every request, with code "<error>" if there was no answer.
    ``on_date(date)`` is called with the ``Date`` header of every answer.
    ``gate()`` is called directly before each write, except for leases and events, and may raise.
    """

    def __init__(
        self,
        config: Config,
        *,
        timeout: float = OPERATOR.request_timeout,
        watch_idle: float = 90.0,
        connections: int = CONNECTIONS,
        retry_after_cap: float = RETRY_AFTER_CAP,
        observe: Observe | None = None,
        on_date: Callable[[str], None] | None = None,
        gate: Gate | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._auth = Auth(config, now=now)
        self._session = open_session(config, connections)
        self._exchange = Exchange(self._session, config, self._auth, gate)
        self._proxy_headers = proxy_of(config).headers
        self._addresses = Addresses(config.server)
        self._budget = RetryBudget()
        self._server_name = config.tls.server_name or None
        self._timeout = timeout
        self._watch_idle = watch_idle
        self._retry_after_cap = retry_after_cap
        self._observe = observe or _ignore
        self._on_date = on_date
        self._clock = asyncio.get_running_loop().time

    async def __aenter__(self) -> Self:
        """Obtains credentials, so that a wrong configuration fails at the start."""
        try:
            await self._auth.fresh()
            await check_master(self, self._config)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._auth.close()
        await self._session.close()

    async def get(self, resource: Resource, key: Key) -> bytes:
        url = self._addresses.item(resource, key)
        return await self._with_retries(Call("get", "GET", url, resource, key.namespace, key.name), self._ask)

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        limit: int = 0,
        cursor: str = "",
        max_bytes: int = 0,
    ) -> bytes:
        query = {"labelSelector": selector, "fieldSelector": fields, "limit": str(limit or ""), "continue": cursor}
        url = self._addresses.collection(resource, namespace, _non_empty(query))
        call = Call("list", "GET", url, resource, namespace, max_bytes=max_bytes)
        return await self._with_retries(call, self._ask)

    async def version(self, resource: Resource, *, namespace: str = "", fields: str = "") -> int:
        """Lists one object without spec and status. There is no label selector: with one, the API server would look
        at all objects to find the first."""
        url = self._addresses.collection(resource, namespace, _non_empty({"fieldSelector": fields, "limit": "1"}))
        call = Call("list", "GET", url, resource, namespace, accept=METADATA_LIST)
        body = await self._with_retries(call, self._ask)
        try:
            return version_of_list(body)
        except msgspec.DecodeError as error:
            raise ServerError(f"{call}: the answer is not a list; is this an API server?") from error

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        resource_version: str,
        timeout: float,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout))),
            "labelSelector": selector,
            "fieldSelector": fields,
        }
        url = self._addresses.collection(resource, namespace, _non_empty(query))
        call = Call("watch", "GET", url, resource, namespace)
        limits = aiohttp.ClientTimeout(total=timeout + _WATCH_GRACE, sock_read=self._watch_idle)
        response = await self._with_retries(call, partial(self._open, limits=limits))
        try:
            yield WatchLines(response, what=call, idle=self._watch_idle)
        finally:
            drop(response)

    @asynccontextmanager
    async def log(
        self, pod: Key, container: str, *, follow: bool = False, previous: bool = False, tail: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The log of a container, line by line; with ``tail`` only that many lines at its end, with ``follow`` until
        the container has ended. A container may be silent for hours: TCP keep-alive notices a lost server."""
        query = {
            "container": container,
            "follow": "true" if follow else "",
            "previous": "true" if previous else "",
            "tailLines": "" if tail is None else str(tail),
        }
        url = self._addresses.item(POD, pod, f"/log?{urlencode(_non_empty(query), quote_via=quote)}")
        call = Call("read the log of", "GET", url, POD, pod.namespace, pod.name)
        limits = aiohttp.ClientTimeout(sock_read=None if follow else self._watch_idle)
        response = await self._with_retries(call, partial(self._open, limits=limits))
        try:
            yield LogLines(response, what=call, idle=self._watch_idle)
        finally:
            drop(response)

    async def create(self, resource: Resource, namespace: str, body: bytes) -> Written:
        url = self._addresses.create(resource, namespace)
        return await self._write(Call("create", "POST", url, resource, namespace, "", body, JSON))

    async def review(self, resource: Resource, body: bytes) -> bytes:
        """Creates a review object, such as a TokenReview, and returns it with its status."""
        url = self._addresses.create(resource, "")
        return await self._with_retries(Call("create", "POST", url, resource, "", "", body, JSON), self._ask)

    async def ask(self, resource: Resource, key: Key, subresource: str, body: bytes) -> bytes:
        """Creates a subresource that answers a question, such as a TokenRequest, and returns it with its status."""
        url = self._addresses.item(resource, key, f"/{subresource}")
        call = Call("create", "POST", url, resource, key.namespace, key.name, body, JSON)
        return await self._with_retries(call, self._ask)

    async def replace(self, resource: Resource, key: Key, body: bytes) -> Written:
        url = self._addresses.item(resource, key, _MANAGED)
        return await self._write(Call("replace", "PUT", url, resource, key.namespace, key.name, body, JSON))

    async def patch(
        self, resource: Resource, key: Key, patch: bytes, *, subresource: str = "", strict: bool = False
    ) -> Written:
        path = f"/{subresource}" if subresource else ""
        url = self._addresses.item(resource, key, f"{path}{_MANAGED}{_STRICT if strict else ''}")
        return await self._write(Call("patch", "PATCH", url, resource, key.namespace, key.name, patch, MERGE_PATCH))

    async def delete(self, resource: Resource, key: Key, *, uid: str, grace: int | None = None) -> Written:
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",  # the default of all kinds except batch Jobs, which orphan their pods
        }
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        url = self._addresses.item(resource, key)
        body = msgspec.json.encode(options)
        return await self._write(Call("delete", "DELETE", url, resource, key.namespace, key.name, body, JSON))

    async def _write(self, call: Call) -> Written:
        """Returns uid and version of the stored object. The server is asked to leave out spec and status."""
        answer = await self._with_retries(call._replace(accept=METADATA), self._answer)
        return written(answer.body, call, answer.warnings)

    async def _with_retries(self, call: Call, attempt: Callable[[Call, float], Awaitable[T]]) -> T:
        """Retries where that is safe and within the budget: with another credential after a 401, after the wait that
        the server requested, and reads after a broken connection. A write whose connection broke may have happened:
        the caller must read the object."""
        deadline = self._clock() + self._timeout
        if self._auth.is_stale():
            await self._obtain(call, deadline, self._auth.fresh())
        tries = 1
        rejected = 0
        while True:
            generation = self._auth.generation
            try:
                answer = await attempt(call, deadline)
            except Unauthorized:
                if rejected or not await self._obtain(call, deadline, self._auth.renew(generation)):
                    raise
                rejected = generation
                continue
            except TooManyRequests as busy:
                pause = min(busy.retry_after, self._retry_after_cap)
                if not self._can_retry(tries, deadline - pause):
                    raise
                await asyncio.sleep(pause)
            except Unreachable:
                if call.method != "GET" or not self._can_retry(tries, deadline):
                    raise
            else:
                self._budget.earn()
                return answer
            tries += 1

    async def _obtain(self, call: Call, deadline: float, credential: Awaitable[T]) -> T:
        """A plug-in that exceeds the deadline is not stopped: the next call uses its credential."""
        try:
            async with asyncio.timeout_at(deadline):
                return await credential
        except TimeoutError:
            raise Unreachable(f"{call}: there was no new credential within {self._timeout:g} s") from None

    def _can_retry(self, tries: int, latest: float) -> bool:
        return tries < REQUEST_TRIES and self._clock() < latest and self._budget.take()

    async def _ask(self, call: Call, deadline: float) -> bytes:
        return (await self._answer(call, deadline)).body

    async def _answer(self, call: Call, deadline: float) -> Answer:
        started = time.perf_counter()
        self._check_open(call)
        try:
            async with asyncio.timeout_at(deadline):
                answer = await self._exchange.ask(call)
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(call, started, error) from safe_cause(error)
        self._observe(call.method, str(answer.status), time.perf_counter() - started)
        if self._on_date is not None:
            self._on_date(answer.date)
        if answer.status >= 300:
            raise self._refusal(call, answer.status, answer.body, answer.retry_after)
        return answer

    async def _open(self, call: Call, deadline: float, *, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        started = time.perf_counter()
        self._check_open(call)
        body = b""
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._send(call, limits)
                if response.status != 200:
                    body = await read_body(response)
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(call, started, error) from safe_cause(error)
        self._observe(call.method, str(response.status), time.perf_counter() - started)
        if response.status != 200:
            raise self._refusal(call, response.status, body, response.headers.get("Retry-After", ""))
        return response

    def _check_open(self, call: Call) -> None:
        if self._session.closed:
            raise Unreachable(f"{call}: this client is closed")

    async def _send(self, call: Call, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        return await self._session.request(
            call.method,
            call.url,
            headers=self._auth.headers[call.content_type],
            proxy_headers=self._proxy_headers,
            ssl=self._auth.ssl,
            server_hostname=self._server_name,
            allow_redirects=False,
            timeout=limits,
        )

    def _unreachable(self, call: Call, started: float, error: Exception) -> Unreachable:
        self._observe(call.method, "<error>", time.perf_counter() - started)
        why = self._auth.redact(explain(error, self._timeout).encode()).decode()
        return Unreachable(f"{call}: {why}")

    def _refusal(self, call: Call, status: int, body: bytes, retry_after: str) -> ApiError:
        return refusal(call, status, self._auth.redact(body), retry_after)


def _non_empty(query: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}


def _ignore(method: str, code: str, seconds: float) -> None:
    """The default of ``observe``."""
