"""Writes declarations: read the job, decide, store with the version that was read, and retry after a conflict.

A client that lost an answer sends the same request again. The last request and its result are stored with the
declaration, so that every server answers the repeated request with the same names. When the client has acknowledged
the answer, that is stored, too: an equal request is a new one from then on.
"""

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
import structlog

from trainmaster.core.definition import outdated
from trainmaster.core.errors import Conflict, NotFound, Trainmaster, UnknownField
from trainmaster.diserver import metrics
from trainmaster.diserver.acknowledgement import SentAnswer
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.job import KnownJob, same
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.kinds.dijob.declaration import LastRequest
from trainmaster.kinds.dijob.declare import recognised
from trainmaster.runtime.cluster import Cluster

TRIES = 10
MARK_TRIES = 3
RETRY_PAUSE = 0.02
ANSWERED_KEPT = 4096

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=KnownJob)


class Change(Protocol):
    """The requests of a job after one more, and the names that the answer is about."""

    @property
    def declared(self) -> Any: ...
    @property
    def collectors(self) -> tuple[str, ...]: ...
    @property
    def learners(self) -> tuple[str, ...]: ...


Decide = Callable[[K], Change]


class Stored(msgspec.Struct, Generic[K], frozen=True):
    """A stored change, of this request or of an earlier equal one."""

    known: K
    collectors: tuple[str, ...]
    learners: tuple[str, ...]
    request: str = ""
    """The request's id; empty if nothing had to be stored."""
    is_new: bool = True


class DeclarationWriter:
    def __init__(self, cluster: Cluster, cache: Cache, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._cache = cache
        self._now = now
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._answered: deque[str] = deque(maxlen=ANSWERED_KEPT)
        self._unacknowledged: dict[str, SentAnswer] = {}
        """Sent answers, by the id of their request."""
        self._marking: set[asyncio.Task[None]] = set()

    async def store(self, known: K, digest: str, incarnation: str, decide: Decide[K]) -> Stored[K]:
        """Stores one change of one job. Requests of the same job are serialised."""
        async with self._lock(known):
            known, is_fresh = self._newest(known), False
            for attempt in range(TRIES):
                last = recognised(known.requests.last, digest, incarnation, self._now())
                if last is not None and not self._is_answered(last.id):
                    return Stored(known, last.collectors, last.learners, last.id, is_new=attempt > 0)
                change = _decided(decide, known, is_final=is_fresh)
                if change is None:
                    known, is_fresh = same(known, await self._cache.fresh_job(known.id)), True
                    continue
                if change.declared == known.requests:
                    return Stored(known, change.collectors, change.learners)
                last = LastRequest(
                    uuid.uuid4().hex[:12], digest, self._now(), incarnation, change.collectors, change.learners
                )
                try:
                    known = await self._write(known, change.declared.with_last(last))
                    return Stored(known, change.collectors, change.learners, last.id)
                except NotFound:
                    raise Refused(
                        404, f"{known.profile.word}: {known.view.key} not exists in cache: it was deleted"
                    ) from None
                except Conflict:
                    metrics.CONFLICTS.inc()
                except UnknownField as error:
                    raise RetryLater(outdated(known.profile.resource, error.fields)) from error
                except Trainmaster as error:
                    # The write may have happened: the next read shows it.
                    log.warning("declaration not stored, retrying", job=str(known.view.key), because=str(error))
                await asyncio.sleep(RETRY_PAUSE * attempt * random.random())  # noqa: S311 not for secrets
                known, is_fresh = same(known, await self._cache.fresh_job(known.id)), True
        raise RetryLater(f"{known.id} is being changed by others all the time, try again")

    def answered(self, stored: Stored[Any], sent: SentAnswer) -> None:
        """Follows a sent answer in the background. Once it is acknowledged, an equal request counts as a new one."""
        if not stored.request:
            sent.close()
            return
        self._unacknowledged[stored.request] = sent
        task = asyncio.ensure_future(self._follow(stored, sent))
        self._marking.add(task)
        task.add_done_callback(self._marking.discard)

    async def _follow(self, stored: Stored[Any], sent: SentAnswer) -> None:
        with sent:
            is_acknowledged = await sent.acknowledged()
            if is_acknowledged:
                self._answered.append(stored.request)
            if self._unacknowledged.get(stored.request) is sent:
                del self._unacknowledged[stored.request]
        if is_acknowledged:
            await self._mark(stored)

    def _is_answered(self, request: str) -> bool:
        """Also checks the socket: a client may send its next request before the background task has polled."""
        sent = self._unacknowledged.get(request)
        return request in self._answered or (sent is not None and sent.is_acknowledged)

    async def close(self, timeout: float) -> None:
        """Waits until acknowledged answers are marked."""
        if self._marking:
            await asyncio.wait(self._marking, timeout=timeout)
        for task in self._marking:
            task.cancel()

    async def _mark(self, stored: Stored[Any]) -> None:
        known: KnownJob = stored.known
        try:
            async with self._lock(known):
                known = self._newest(known)
                for _ in range(MARK_TRIES):
                    requests = known.requests
                    if requests.last is None or requests.last.id != stored.request:
                        return  # a later request has replaced it
                    last = msgspec.structs.replace(requests.last, answered=True)
                    try:
                        await self._write(known, requests.with_last(last))
                    except Conflict:
                        known = await self._cache.fresh_job(known.id)
                    else:
                        return
        except (Trainmaster, RetryLater, Refused) as error:
            # An equal request within half a minute counts as a retry.
            log.debug("answer not marked as acknowledged", job=str(known.view.key), because=str(error))

    async def _write(self, known: K, requests: Any) -> K:
        patch = {"metadata": {"resourceVersion": str(known.version)}, "status": known.patch(requests)}
        written = await self._cluster.patch(
            known.profile.resource, known.view.key, msgspec.json.encode(patch), subresource="status", strict=True
        )
        return self._cache.learn(known.written(requests, written.resource_version))

    def _lock(self, known: KnownJob) -> asyncio.Lock:
        return self._locks.setdefault(known.view.uid, asyncio.Lock())

    def _newest(self, known: K) -> K:
        """Read again after the lock was acquired: another request of this job may have changed it."""
        newest = self._cache.job(known.id)
        return known if newest is None or newest.version < known.version else same(known, newest)


def _decided(decide: Decide[K], known: K, *, is_final: bool) -> Change | None:
    """None if the decision must be repeated on the version that the API server has.

    A change is stored with the version that it was decided on, so it is safe. "Nothing to do" and a refusal are not
    stored: right after a change by another server they may be based on a stale watch.
    """
    try:
        change = decide(known)
    except Refused:
        if is_final:
            raise
        return None
    return change if is_final or change.declared != known.requests else None
