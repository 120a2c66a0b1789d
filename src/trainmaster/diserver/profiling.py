"""Stores what jobs report of themselves in ``status.profilings``: at once, and then at most every few seconds."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from trainmaster.core.definition import outdated
from trainmaster.core.errors import Conflict, NotFound, Trainmaster, UnknownField
from trainmaster.core.plan import merge_patch
from trainmaster.diserver.cache import Cache, retry_later
from trainmaster.diserver.job import TaskJob, same
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.runtime.cluster import Cluster

PAUSE = 5.0
"""Seconds between two writes for one job: each of them wakes everything that watches jobs."""
TRIES = 5

log = structlog.get_logger(__name__)


class _Status(msgspec.Struct):
    profilings: dict[str, Any] = {}


class _Profiled(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class ProfilingWriter:
    def __init__(self, cluster: Cluster, cache: Cache) -> None:
        self._cluster = cluster
        self._cache = cache
        self._closing = asyncio.Event()
        self._latest: dict[str, bytes] = {}
        """Reports that wait until the pause of their job is over, by the uid of the job. The latest one counts."""
        self._pauses: dict[str, asyncio.Task[None]] = {}

    async def report(self, known: TaskJob, profilings: bytes) -> None:
        """Returns when the report is stored, or will be after the pause."""
        uid = known.view.uid
        if uid in self._pauses:
            self._latest[uid] = profilings
            return
        storing = asyncio.create_task(self._store(known, profilings))
        self._pauses[uid] = asyncio.create_task(self._follow(known, storing))
        await asyncio.shield(storing)

    async def close(self, timeout: float) -> None:
        """Ends all pauses, and waits until the last reports are stored."""
        self._closing.set()
        if pauses := list(self._pauses.values()):
            await asyncio.wait(pauses, timeout=timeout)
            for pause in pauses:
                pause.cancel()

    async def _follow(self, known: TaskJob, storing: asyncio.Task[None]) -> None:
        uid = known.view.uid
        try:
            await asyncio.wait([storing])
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE):
                        await self._closing.wait()
                if not (profilings := self._latest.pop(uid, b"")):
                    return
                await self._store_later(known, profilings)
        finally:
            del self._pauses[uid]

    async def _store_later(self, known: TaskJob, profilings: bytes) -> None:
        """The answer was sent already: an error is for the log."""
        try:
            await self._store(known, profilings)
        except (Trainmaster, Refused, RetryLater) as error:
            log.warning("profilings not stored", job=str(known.view.key), because=str(error))

    async def _store(self, known: TaskJob, profilings: bytes) -> None:
        new = msgspec.json.decode(profilings)
        for _ in range(TRIES):
            # The report replaces the one before: a merge patch has to name the fields to remove.
            known = same(known, await self._cache.fresh_job(known.id))
            old = msgspec.json.decode(known.view.raw, type=_Profiled).status.profilings
            if not (change := merge_patch(old, new)):
                return
            version = {"resourceVersion": str(known.version)}
            patch = msgspec.json.encode({"metadata": version, "status": {"profilings": change}})
            try:
                await self._cluster.patch(
                    known.profile.resource, known.view.key, patch, subresource="status", strict=True
                )
            except Conflict:
                continue
            except NotFound:
                raise Refused(
                    404, f"{known.profile.word}: {known.view.key} not exists in cache: it was deleted"
                ) from None
            except UnknownField as error:
                raise RetryLater(outdated(known.profile.resource, error.fields)) from error
            except Trainmaster as error:
                raise retry_later(error) from error
            else:
                return
        raise RetryLater(f"{known.id} is being changed by others all the time, try again")
