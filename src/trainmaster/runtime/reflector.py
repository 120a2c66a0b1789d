"""Keeps one store like the API server: a paged list, then a watch, for ever.

A watch that ends is resumed where it ended. Only 410 Gone lists again, and does so at once. After etcd was restored
from a backup there is no 410: a watch from a version that does not exist yet is silent. So the version of the API
server is compared before each watch. No single object stops a list or a watch: one that cannot be read is left out,
counted and named in the log. A resource that the API server does not have (its CRD is not installed) is polled every
few seconds and blocks nothing. Nor does an optional one that we may not read.

The size of a page is bounded in bytes, because its objects are as large as their authors like.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Generic

import msgspec
import structlog

from trainmaster.core.definition import UPDATE_COMMAND
from trainmaster.core.errors import ApiError, Forbidden, Gone, NotFound, TooLarge, Trainmaster, Unreachable
from trainmaster.core.ids import Key, Resource
from trainmaster.core.view import Codec, Page, Unreadable, V, WatchLine
from trainmaster.runtime import metrics
from trainmaster.runtime.backoff import WATCH, Backoff
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.store import Store

FIRST_PAGE = 50
LARGEST_PAGE = 500
"""Objects in the first page of a list, and the most in one. Pages grow while they are small."""
PAGE_BYTES = 8 * 1024 * 1024
"""The longest page that is read. A longer one is asked for again with fewer objects."""
OBJECT_BYTES = 16 * 1024 * 1024
"""The longest page of one object. etcd stores objects of 1.5 MB; escaped as JSON, they may have six times as much."""
SLOW_PAGE = 128 * 1024
"""A longer page that has to be read item by item is read by another thread: it may take seconds, and the event loop
renews the lease."""
WATCH_SECONDS = 240.0
"""The server ends a watch after this time, so that load spreads over API servers again."""
FORBIDDEN_SECONDS = 60.0
"""Between two looks whether a resource that we can do without may be read by now."""
ABSENT_SECONDS = 5.0
"""The longest between two looks for a resource that the API server does not have."""
ABSENT_LOOKS = 3
"""After so many 404 in a row the objects of a resource are gone. An API server that starts may answer one or two."""
SHORTEST_WATCH = 1.0
"""A watch that ends sooner counts as a failure: reconnecting at once would be a hot loop."""

GONE_SECONDS = 60.0
"""A 410 that comes within this time after another one is backed off."""
OUTAGE_SECONDS = 5.0
"""When reads succeed again after this long, the end of the outage is signalled."""

log = structlog.get_logger(__name__)


class Reflector(Generic[V]):
    """``without`` is for a resource that need not be readable: what is then missing, for the log."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store[V],
        codec: Codec[V],
        *,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        without: str = "",
        backoff: Backoff | None = None,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._codec = codec
        self._namespace = namespace
        self._selector = selector
        self._fields = fields
        self._without = without
        self._backoff = backoff or Backoff(*WATCH)
        self._page = FIRST_PAGE
        self._failures = 0
        self._absences = 0
        self._gones = 0
        self._gone_at = -math.inf
        self._lost_at: float | None = None
        """Since when the store is not current."""
        self._is_forbidden = False
        self._clock = _time
        self._version = ""
        self._end_watch: Callable[[], None] | None = None
        self._left_out: set[Key | None] = set()
        """Objects that cannot be read, and of which the log says so."""
        self.synced = asyncio.Event()
        self.settled = asyncio.Event()
        """Set as soon as it is known what there is: a complete list, or no such resource."""
        store.on_doubt(self.list_again)

    @property
    def resource(self) -> Resource:
        return self._store.resource

    @property
    def behind(self) -> float:
        """Seconds since the store was last current. A store that the operator does without is never behind."""
        return 0.0 if self._lost_at is None or self._is_forbidden else self._clock() - self._lost_at

    def list_again(self) -> None:
        """Ends the watch, and lists. While there is no watch, a list follows anyway, or is being read."""
        if self._end_watch is not None:
            self._end_watch()

    async def run(self) -> None:
        self._clock = asyncio.get_running_loop().time  # `behind` may be read outside of a loop
        while True:
            try:
                if self._version:
                    await self._check_version()
                if not self._version:
                    await self._list()
                await self._watch()
            except TimeoutError:
                self._version = ""
            except Gone as error:
                self._version = ""
                await self._expire(error)
            except NotFound as error:
                self._version = ""
                await (self._miss(error) if self._store.resource.group else self._fail(error))
            except Forbidden as error:
                await (self._do_without(error) if self._without else self._fail(error))
            except Trainmaster as error:
                await self._fail(error)
            except Exception:  # a defect that one object triggers must not end the process
                log.exception("cannot read by a defect in trainmaster", resource=str(self._store.resource))
                self._version = ""
                await self._fail(Unreachable("a defect in trainmaster, see the log"))

    async def _check_version(self) -> None:
        newest = await self._cluster.version(self._store.resource, namespace=self._namespace, fields=self._fields)
        if newest < int(self._version):
            log.warning(
                "the API server is at an older version than was seen: etcd was restored from a backup; listing again",
                resource=str(self._store.resource),
                version=newest,
                seen=self._version,
            )
            self._version = ""
            self._store.rewind()

    async def _list(self) -> None:
        views: list[V] = []
        left_out: set[Key | None] = set()
        cursor = ""
        while True:
            page = await self._read(await self._fetch(cursor))
            views += page.views
            for unreadable in page.unreadable:
                self._leave_out(unreadable)
                left_out.add(unreadable.key)
            cursor = page.cursor
            if not cursor:
                break
        self._left_out = left_out
        self._failures = self._absences = 0
        self._become_current()
        self._store.replace(views, int(page.resource_version))
        self._version = page.resource_version
        self.synced.set()
        self.settled.set()
        metrics.LISTS.labels(str(self._store.resource)).inc()

    async def _fetch(self, cursor: str) -> bytes:
        """One page. Its number of objects adapts to their size."""
        while True:
            try:
                body = await self._cluster.list(
                    self._store.resource,
                    namespace=self._namespace,
                    selector=self._selector,
                    fields=self._fields,
                    limit=self._page,
                    cursor=cursor,
                    max_bytes=PAGE_BYTES if self._page > 1 else OBJECT_BYTES,
                )
            except TooLarge:
                if self._page == 1:
                    raise
                self._page = max(1, self._page // 4)
                continue
            if len(body) < PAGE_BYTES // 4:
                self._page = min(2 * self._page, LARGEST_PAGE)
            return body

    async def _read(self, body: bytes) -> Page[V]:
        try:
            if page := self._codec.quick_page(body):
                return page
            if len(body) > SLOW_PAGE:
                return await asyncio.to_thread(self._codec.page_by_items, body)
            return self._codec.page_by_items(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unreachable(f"a list of {self._store.resource} cannot be read: {error}") from error

    async def _watch(self) -> None:
        watch = self._cluster.watch(
            self._store.resource,
            namespace=self._namespace,
            selector=self._selector,
            fields=self._fields,
            resource_version=self._version,
            timeout=WATCH_SECONDS,
        )
        async with asyncio.timeout(None) as limit, watch as lines:
            self._end_watch = lambda: limit.reschedule(_time())
            opened = _time()
            self._become_current()
            try:
                async for line in lines:
                    self._take(line)
                    self._failures = 0
            finally:
                self._end_watch = None
                is_short = _time() - opened < SHORTEST_WATCH
                if not is_short:
                    self._failures = 0
        if is_short:
            raise Unreachable(f"watch of {self._store.resource} ended as soon as it began")

    def _take(self, line: bytes) -> None:
        event = self._event(line)
        if event.type == "ERROR":
            raise _watch_error(event.code, event.message)
        if event.view is None:
            self._advance(event.resource_version)
            if event.unreadable is not None:
                self._take_unreadable(event.type, event.unreadable)
            return
        if event.type == "DELETED":
            self._store.remove(event.view)
        else:
            self._store.put(event.view)
        self._version = event.resource_version
        self._left_out.discard(event.view.key)

    def _event(self, line: bytes) -> WatchLine[V]:
        try:
            return self._codec.line(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unreachable(f"watch of {self._store.resource} has a line that is no event: {error}") from error

    def _take_unreadable(self, change: str, unreadable: Unreadable) -> None:
        if change == "DELETED" and unreadable.key is not None:
            self._left_out.discard(unreadable.key)
            self._store.discard(unreadable.key, 0)
        else:
            self._leave_out(unreadable)

    def _leave_out(self, unreadable: Unreadable) -> None:
        """Counted each time, logged once: each change of the object comes here again."""
        metrics.UNREADABLE.labels(str(self._store.resource)).inc()
        if unreadable.key in self._left_out:
            return
        self._left_out.add(unreadable.key)
        log.warning(
            "object left out: it cannot be read",
            resource=str(self._store.resource),
            object=str(unreadable.key or "of an unknown name"),
            because=unreadable.error,
        )

    def _advance(self, version: str) -> None:
        if version:
            self._version = version
            self._store.advance(int(version))

    async def _miss(self, error: NotFound) -> None:
        """Logged once: a cluster may have only some of the operator's kinds."""
        self._absences += 1
        if self.synced.is_set() and self._absences == ABSENT_LOOKS:
            log.warning(
                "the API server does not have this resource any more: its objects are gone",
                resource=str(self._store.resource),
                because=str(error),
            )
            self._store.replace((), self._store.seen)
        if not self.settled.is_set():
            log.warning(
                "the API server does not have this resource: nothing is done with it until its CRD is installed",
                resource=str(self._store.resource),
                because=str(error),
                hint=f"{UPDATE_COMMAND}, or start the operator with --install-crds",
            )
            self.settled.set()
        self._failures += 1
        # A server that is starting has its CRDs a moment later.
        await asyncio.sleep(min(self._backoff.delay(self._failures), ABSENT_SECONDS))

    async def _do_without(self, error: Forbidden) -> None:
        """Logged once. When access is granted later, the resource is listed again: events were missed meanwhile."""
        if not self.settled.is_set() or self._store.is_current:
            log.warning(
                "may not be read: it is done without",
                resource=str(self._store.resource),
                because=str(error),
                hint=f"grant list and watch; without them {self._without}",
            )
        self._version = ""
        self._is_forbidden = True
        self._lose()
        self.settled.set()
        await asyncio.sleep(FORBIDDEN_SECONDS)

    async def _expire(self, error: Gone) -> None:
        """Returns at once the first time: after an outage most versions are too old, and jobs wait to be seen."""
        now = _time()
        self._gones = self._gones + 1 if now - self._gone_at < GONE_SECONDS else 0
        self._gone_at = now
        self._lose()
        if self._gones:
            await self._wait(error, self._gones)

    async def _fail(self, error: Trainmaster) -> None:
        self._lose()
        self._failures += 1
        await self._wait(error, self._failures)

    def _lose(self) -> None:
        self._store.is_current = False
        if self._lost_at is None:
            self._lost_at = _time()

    def _become_current(self) -> None:
        self._store.is_current, self._is_forbidden = True, False
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is not None and _time() - lost_at >= OUTAGE_SECONDS:
            self._store.recover()

    async def _wait(self, error: Trainmaster, failures: int) -> None:
        delay = self._backoff.delay(failures)
        log.warning(
            "cannot read, trying again",
            resource=str(self._store.resource),
            because=str(error),
            seconds=round(delay, 1),
        )
        await asyncio.sleep(delay)


def _time() -> float:
    return asyncio.get_running_loop().time()


def _watch_error(code: int, message: str) -> ApiError:
    if code == 410:
        return Gone(message, code=code)
    return ApiError(f"watch ended by the server: {message}", code=code)
