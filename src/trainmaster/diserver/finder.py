"""Finds the job of a request, also while a watch is late or the coordinator is being created."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from trainmaster.core.ids import Key
from trainmaster.core.name import MAX_LABEL
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.job import CoordinatorJob, JobId, KnownJob
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.diserver.view import CallerPod
from trainmaster.kinds.dijob import address
from trainmaster.kinds.dijob.address import coordinator_name
from trainmaster.kinds.dijob.profile import COORDINATOR, DI

WAIT_TIMEOUT = 2.0
"""Seconds that a request waits for a state that is expected soon."""
POLL = 0.1


class Target(NamedTuple):
    """What a request names: a pod of a job, or a DIJob itself."""

    key: Key
    is_job: bool = False

    @property
    def is_possible(self) -> bool:
        """False if no pod, and no job that has pods, can have this name."""
        return 0 < len(self.key.namespace) <= MAX_LABEL and 0 < len(self.key.name) <= MAX_LABEL

    def missing(self, why: str) -> Refused:
        return Refused(404, f"{DI.word if self.is_job else 'pod'}: {self.key} not exists in cache{why}")


class Finder:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def cached(self, target: Target) -> KnownJob | None:
        """The job, if the cache has it. Of a pod: if the cache has both of them, and the pod is of this incarnation of
        the job."""
        if target.is_job:
            return self._cached_job(target)
        view = self._cache.pod(target.key)
        job = self._cache.owner_of(view) if view is not None else None
        if view is None or view.owner is None or job is None:
            return None
        try:
            known = self._cache.job(job)
        except Refused:
            return None
        return known if known is not None and known.view.uid == view.owner.uid else None

    def _cached_job(self, target: Target) -> KnownJob | None:
        try:
            return next((self._cache.job(job) for job in self.jobs_that_may_have(target)), None)
        except Refused:
            return None

    async def look_up(self, target: Target) -> KnownJob:
        """The job, read from the API server. A pod that does not exist now is matched by its name."""
        if target.is_job:
            for job in self.jobs_that_may_have(target):
                return await self._cache.fresh_job(job)
            raise target.missing(": this server serves other kinds")
        if (view := await self._cache.fresh_pod(target.key)) is not None:
            return await self._owner_of(view)
        return await self._job_named_by(target)

    async def _owner_of(self, view: CallerPod) -> KnownJob:
        pod, owner, job = view.key, view.owner, self._cache.owner_of(view)
        if owner is None or job is None:
            words = " or ".join(profile.word for profile in self._cache.profiles)
            raise Refused(404, f"module {pod.name} is not owned by any {words}")
        known = self._cache.job(job)
        if known is None or known.view.uid != owner.uid:
            known = await self._cache.fresh_job(job)
        if known.view.uid != owner.uid:
            word = job.profile.word
            raise Refused(404, f"coordinator {pod.name} is owned by stale {word}: another one has its name now")
        return known

    async def _job_named_by(self, target: Target) -> KnownJob:
        pod = target.key
        for job in self.jobs_that_may_have(target):
            try:
                known = self._cache.job(job) or await self._cache.fresh_job(job)
            except Refused:
                continue
            if not isinstance(known, CoordinatorJob):
                continue
            if pod.name in address.fixed_names(known.job) or pod.name in known.job.status.declared.members:
                return known
        raise target.missing(", nor on the API server")

    def jobs_that_may_have(self, target: Target) -> Iterator[JobId]:
        """The job itself; of a pod, the jobs that its name may belong to."""
        pod = target.key
        if target.is_job:
            if DI in self._cache.profiles:
                yield JobId(DI, pod)
            return
        prefix = pod.name.rpartition("-")[0]
        for profile in self._cache.profiles:
            fixed = [pod.name.removesuffix(f"-{role}") for role in profile.fixed_roles if pod.name.endswith(f"-{role}")]
            asked_for = [prefix.removesuffix(f"-{role}") for role in address.ROLES if prefix.endswith(f"-{role}")]
            for name in (*fixed, *asked_for):
                yield JobId(profile, Key(pod.namespace, name))

    async def incarnation(self, known: CoordinatorJob) -> str:
        """The coordinator's incarnation, read from the API server: its first request must not count as a later one."""
        key = Key(known.view.key.namespace, coordinator_name(known.job))
        deadline = asyncio.get_running_loop().time() + WAIT_TIMEOUT
        while True:
            pod = await self._cache.fresh_pod(key)
            main = known.profile.container(COORDINATOR)
            if pod is not None and known.owns(pod) and not pod.deleting and not pod.is_between(main):
                return pod.incarnation(main)
            if asyncio.get_running_loop().time() >= deadline:
                raise RetryLater(f"coordinator {key} does not run at the moment, try again")
            await asyncio.sleep(POLL)

    async def be_synced(self) -> None:
        if self._cache.is_synced:
            return
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                await self._cache.synced()
        except TimeoutError:
            raise RetryLater("di-server has just started and does not know all jobs yet, try again") from None
