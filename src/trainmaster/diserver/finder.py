"""Finds the job of a request, also while a watch is late or the coordinator is being created."""

import asyncio
from collections.abc import Iterator

from trainmaster.core.ids import Key
from trainmaster.core.name import MAX_LABEL
from trainmaster.diserver.cache import Cache, JobId, KnownJob
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.diserver.view import CallerPod
from trainmaster.kinds.dijob import address
from trainmaster.kinds.dijob.address import coordinator_name
from trainmaster.kinds.dijob.profile import COORDINATOR

WAIT_TIMEOUT = 2.0
"""Seconds that a request waits for a state that is expected soon."""
POLL = 0.1


def is_possible(pod: Key) -> bool:
    """False if no pod can have this name."""
    return 0 < len(pod.namespace) <= MAX_LABEL and 0 < len(pod.name) <= MAX_LABEL


class Finder:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def cached(self, pod: Key) -> KnownJob | None:
        """The job of a pod, if the cache has both of them, and the pod is of this incarnation of the job."""
        view = self._cache.pod(pod)
        job = self._cache.owner_of(view) if view is not None else None
        if view is None or view.owner is None or job is None:
            return None
        try:
            known = self._cache.job(job)
        except Refused:
            return None
        return known if known is not None and known.view.uid == view.owner.uid else None

    async def look_up(self, pod: Key) -> KnownJob:
        """The job of a pod, read from the API server. A pod that does not exist now is matched by its name."""
        if (view := await self._cache.fresh_pod(pod)) is not None:
            return await self._owner_of(view)
        return await self._job_named_by(pod)

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

    async def _job_named_by(self, pod: Key) -> KnownJob:
        missing = Refused(404, f"pod: {pod} not exists in cache, nor on the API server")
        for job in self.jobs_that_may_have(pod):
            try:
                known = self._cache.job(job) or await self._cache.fresh_job(job)
            except Refused:
                continue
            if pod.name in address.fixed_names(known.job) or pod.name in known.job.status.declared.members:
                return known
        raise missing

    def jobs_that_may_have(self, pod: Key) -> Iterator[JobId]:
        prefix = pod.name.rpartition("-")[0]
        for profile in self._cache.profiles:
            fixed = [pod.name.removesuffix(f"-{role}") for role in profile.fixed_roles if pod.name.endswith(f"-{role}")]
            asked_for = [prefix.removesuffix(f"-{role}") for role in address.ROLES if prefix.endswith(f"-{role}")]
            for name in (*fixed, *asked_for):
                yield JobId(profile, Key(pod.namespace, name))

    async def incarnation(self, known: KnownJob) -> str:
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
