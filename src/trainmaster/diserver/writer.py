"""Writes declarations: read, decide, store under the version that was read, and again when somebody was faster.

A client that lost an answer asks again. The request is stored with what it did, so its second coming, at whichever
server, gets the same names; when an answer has arrived, that is stored too, and the same request is a new one.
"""

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable
from datetime import datetime
from weakref import WeakValueDictionary

import msgspec
import structlog

from trainmaster.core.errors import Conflict, NotFound, Trainmaster
from trainmaster.core.plan import merge_patch
from trainmaster.diserver import metrics
from trainmaster.diserver.cache import Cache, Known
from trainmaster.diserver.delivery import Delivery
from trainmaster.diserver.refusal import NotNow, Refused
from trainmaster.kinds.dijob.declaration import Declared, LastRequest
from trainmaster.kinds.dijob.declare import Change, recognised
from trainmaster.runtime.cluster import Cluster

TRIES = 10
MARK_TRIES = 3
PAUSE = 0.02
ANSWERED_KEPT = 4096

log = structlog.get_logger(__name__)

Decide = Callable[[Known], Change]


class Stored(msgspec.Struct, frozen=True):
    """A change that is on record, new or from before."""

    known: Known
    collectors: tuple[str, ...]
    learners: tuple[str, ...]
    request: str = ""
    """Its id; empty when nothing had to be stored."""
    is_new: bool = True


class Declarer:
    def __init__(self, cluster: Cluster, cache: Cache, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._cache = cache
        self._now = now
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._answered: deque[str] = deque(maxlen=ANSWERED_KEPT)
        self._on_their_way: dict[str, Delivery] = {}
        """Answers, by the id of their request."""
        self._marking: set[asyncio.Task[None]] = set()

    async def store(self, known: Known, digest: str, incarnation: str, decide: Decide) -> Stored:
        """One change of one job; requests of a job wait for each other."""
        async with self._lock(known):
            known, is_fresh = self._newest(known), False
            for attempt in range(TRIES):
                last = recognised(known.job.status.declared, digest, incarnation, self._now())
                if last is not None and not self._is_answered(last.id):
                    return Stored(known, last.collectors, last.learners, last.id, is_new=attempt > 0)
                change = _decided(decide, known, is_final=is_fresh)
                if change is None:
                    known, is_fresh = self._same(known, await self._cache.fresh_job(known.id)), True
                    continue
                if change.declared == known.job.status.declared:
                    return Stored(known, change.collectors, change.learners)
                last = LastRequest(
                    uuid.uuid4().hex[:12], digest, self._now(), incarnation, change.collectors, change.learners
                )
                try:
                    known = await self._write(known, msgspec.structs.replace(change.declared, last=last))
                    return Stored(known, change.collectors, change.learners, last.id)
                except NotFound:
                    raise Refused(
                        404, f"{known.profile.word}: {known.view.key} not exists in cache: it was deleted"
                    ) from None
                except Conflict:
                    metrics.CONFLICTS.inc()
                except Trainmaster as error:
                    # It may have happened: the next look tells.
                    log.warning("declaration not stored, looking again", job=str(known.view.key), because=str(error))
                await asyncio.sleep(PAUSE * attempt * random.random())  # noqa: S311 not for secrets
                known, is_fresh = self._same(known, await self._cache.fresh_job(known.id)), True
        raise NotNow(f"{known.id} is being changed by others all the time, try again")

    def answered(self, stored: Stored, delivery: Delivery) -> None:
        """The answer was written. When it has arrived, the same request is another one. Nobody waits for this."""
        if not stored.request:
            delivery.close()
            return
        self._on_their_way[stored.request] = delivery
        task = asyncio.ensure_future(self._follow(stored, delivery))
        self._marking.add(task)
        task.add_done_callback(self._marking.discard)

    async def _follow(self, stored: Stored, delivery: Delivery) -> None:
        with delivery:
            has_arrived = await delivery.arrives()
            if has_arrived:
                self._answered.append(stored.request)
            if self._on_their_way.get(stored.request) is delivery:
                del self._on_their_way[stored.request]
        if has_arrived:
            await self._mark(stored)

    def _is_answered(self, request: str) -> bool:
        """A client that has its answer may be back before anybody looked whether it has arrived."""
        delivery = self._on_their_way.get(request)
        return request in self._answered or (delivery is not None and delivery.has_arrived)

    async def close(self, timeout: float) -> None:
        """Until what was answered is marked so."""
        if self._marking:
            await asyncio.wait(self._marking, timeout=timeout)
        for task in self._marking:
            task.cancel()

    async def _mark(self, stored: Stored) -> None:
        known = stored.known
        try:
            async with self._lock(known):
                known = self._newest(known)
                for _ in range(MARK_TRIES):
                    declared = known.job.status.declared
                    if declared.last is None or declared.last.id != stored.request:
                        return  # another request came after it
                    last = msgspec.structs.replace(declared.last, answered=True)
                    try:
                        await self._write(known, msgspec.structs.replace(declared, last=last))
                    except Conflict:
                        known = await self._cache.fresh_job(known.id)
                    else:
                        return
        except (Trainmaster, NotNow, Refused) as error:
            # The same request within half a minute will be taken for a retry.
            log.debug("answer not marked", job=str(known.view.key), because=str(error))

    async def _write(self, known: Known, declared: Declared) -> Known:
        view, job = known.view, known.job
        old, new = (msgspec.to_builtins(each) for each in (job.status.declared, declared))
        patch = {
            "metadata": {"resourceVersion": str(view.resource_version)},
            "status": {"declared": merge_patch(old, new)},
        }
        written = await self._cluster.patch(
            known.profile.resource, view.key, msgspec.json.encode(patch), subresource="status"
        )
        status = msgspec.structs.replace(job.status, declared=declared)
        return self._cache.learn(
            Known(
                msgspec.structs.replace(view, resource_version=written.resource_version),
                msgspec.structs.replace(job, status=status),
            )
        )

    def _lock(self, known: Known) -> asyncio.Lock:
        return self._locks.setdefault(known.view.uid, asyncio.Lock())

    def _newest(self, known: Known) -> Known:
        """Who waited for the lock looks again: another request of this job may have passed."""
        newest = self._cache.job(known.id)
        return known if newest is None or newest.version < known.version else self._same(known, newest)

    @staticmethod
    def _same(before: Known, after: Known) -> Known:
        if before.view.uid != after.view.uid:
            raise Refused(404, f"{before.profile.word}: {before.view.key} was deleted; another job has its name now")
        return after


def _decided(decide: Decide, known: Known, *, is_final: bool) -> Change | None:
    """None when it has to be decided again, on what the API server has now.

    A change is stored under the version that it was decided on; "nothing to do" and "no" are not. Right after a change
    at another server they may come from a watch that is late.
    """
    try:
        change = decide(known)
    except Refused:
        if is_final:
            raise
        return None
    return change if is_final or change.declared != known.job.status.declared else None
