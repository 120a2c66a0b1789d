"""di-server's cache of jobs and pods. Watches keep it up to date; where a watch may be late, the API server is read.

DI-engine's client exits after a 404, so an object counts as missing only if the API server does not have it. Writes of
this process are in the cache before the watch shows them.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from trainmaster.core.errors import ApiError, Invalid, NotFound, Trainmaster
from trainmaster.core.ids import POD, Key, Resource
from trainmaster.core.template import MANAGED_BY
from trainmaster.core.view import JOB_CODEC, JobView, OwnerView, owned_by
from trainmaster.diserver.flight import Flights
from trainmaster.diserver.job import JobId, KnownJob, decoded, unreadable
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.diserver.view import CALLER_POD_CODEC, CallerPod, read_pod
from trainmaster.kinds.dijob.profile import PROFILES, Profile
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.reflector import Reflector
from trainmaster.runtime.store import Store

PAGE = 500
_MISSING = (NotFound, Invalid)
"""Invalid: a name that no object can have."""


K = TypeVar("K", bound=KnownJob)


class Cache:
    def __init__(self, cluster: Cluster, *, namespace: str = "", profiles: Sequence[Profile] = PROFILES) -> None:
        self.profiles = tuple(profiles)
        self._cluster = cluster
        self._jobs = {profile: Store[JobView](profile.resource) for profile in profiles}
        self._pods = Store[CallerPod](POD)
        selector = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
        self.reflectors: tuple[Reflector[Any], ...] = (
            *(Reflector(cluster, store, JOB_CODEC, namespace=namespace) for store in self._jobs.values()),
            Reflector(
                cluster,
                self._pods,
                CALLER_POD_CODEC.only(owned_by(profile.resource for profile in profiles)),
                namespace=namespace,
                selector=selector,
            ),
        )
        self._known: dict[JobId, KnownJob] = {}
        self._ahead: dict[JobId, KnownJob] = {}
        """Versions that were read or written before the watch shows them."""
        self._callers: dict[str, dict[Key, CallerPod]] = {}
        self._starting: dict[str, set[Key]] = {}
        """By namespace, the pods of jobs whose address is not known yet."""
        self._changes: WeakValueDictionary[JobId, asyncio.Event] = WeakValueDictionary()
        """Events of jobs that a request waits for."""
        self._lists: Flights[str, list[CallerPod]] = Flights()
        """Lists of pods, by the uid of their job."""
        for profile, store in self._jobs.items():
            store.listen(partial(self._job_changed, profile))
            store.on_rewind(partial(self._rewound, profile))
        self._pods.listen(self._pod_changed)

    @property
    def is_synced(self) -> bool:
        return self._pods.is_synced and all(store.is_synced for store in self._jobs.values())

    async def synced(self) -> None:
        """Waits until all initial lists are complete."""
        for reflector in self.reflectors:
            await reflector.synced.wait()

    async def change(self, job: JobId) -> None:
        """Waits until a watch shows a change of the job or of one of its pods."""
        await self._changes.setdefault(job, asyncio.Event()).wait()

    # --- jobs ---

    def owner_of(self, pod: CallerPod) -> JobId | None:
        """The job that controls the pod; None if the owner is of another kind."""
        owner = pod.owner or OwnerView("", "", "", "")
        profiles = [profile for profile in self.profiles if owner.is_of(profile.resource)]
        return JobId(profiles[0], Key(pod.key.namespace, owner.name)) if profiles else None

    def job(self, job: JobId) -> KnownJob | None:
        """The newest known version of a job; raises ``Refused`` if it cannot be decoded."""
        store = self._jobs[job.profile]
        view = store.get(job.key)
        ahead = self._ahead.get(job)
        if ahead is not None and store.seen < ahead.version:
            return ahead
        if view is None:
            return None
        known = self._known.get(job)
        if known is None or known.view is not view:
            known = self._known[job] = decoded(job, view)
        return known

    def jobs(self, namespace: str) -> Iterator[KnownJob]:
        """All jobs of a namespace, or of all if it is empty. Jobs that cannot be decoded are skipped."""
        for profile, store in self._jobs.items():
            for key in sorted(store.keys()):
                if namespace in ("", key.namespace):
                    try:
                        known = self.job(JobId(profile, key))
                    except Refused:
                        continue
                    if known is not None:
                        yield known

    async def fresh_job(self, job: JobId) -> KnownJob:
        """Reads the job from the API server."""
        profile, key = job
        try:
            body = await self._cluster.get(profile.resource, key)
        except _MISSING:
            raise Refused(404, f"{profile.word}: {key} not exists in cache, nor on the API server") from None
        except Trainmaster as error:
            raise retry_later(error) from error
        try:
            view = JOB_CODEC.object(body)
        except ValueError as error:
            raise unreadable(job, error) from error
        return self.learn(decoded(job, view))

    def learn(self, known: K) -> K:
        """Stores a version that is newer than the watch."""
        if self._jobs[known.profile].seen < known.version:
            self._ahead[known.id] = known
        return known

    # --- pods ---

    def pod(self, key: Key) -> CallerPod | None:
        return self._pods.get(key)

    def pods_of(self, known: KnownJob) -> list[CallerPod]:
        return [pod for pod in self._pods.owned(known.view.key.namespace, known.view.uid) if known.owns(pod)]

    def pods_at(self, place: str) -> tuple[CallerPod, ...]:
        """The pods of jobs with this address that have not ended, several if they share a network; or the pod with this
        uid."""
        return tuple(self._callers.get(place, {}).values())

    async def fresh_pod(self, key: Key) -> CallerPod | None:
        """Reads the pod from the API server; None if it does not exist."""
        try:
            return read_pod(await self._cluster.get(POD, key))
        except _MISSING:
            return None
        except Trainmaster as error:
            raise retry_later(error) from error

    @property
    def has_current_pods(self) -> bool:
        """False while the watch of pods is cut: addresses may belong to other pods by now."""
        return self._pods.is_current

    def has_starting_pods(self, namespace: str = "") -> bool:
        """True if the address of a pod of a job is not known yet, in the namespace or in any."""
        return bool(self._starting.get(namespace) if namespace else self._starting)

    async def live_pods_of(self, known: KnownJob) -> list[CallerPod]:
        """Lists the pods of a job that have not ended at the API server. Requests at the same time share a list."""
        return await self._lists.join(known.view.uid, partial(self._list_pods_of, known))

    async def _list_pods_of(self, known: KnownJob) -> list[CallerPod]:
        job, pods, cursor = known.view.key, list[CallerPod](), ""
        while True:
            try:
                body = await self._cluster.list(
                    POD, namespace=job.namespace, selector=known.selector, limit=PAGE, cursor=cursor
                )
            except Trainmaster as error:
                raise retry_later(error) from error
            page = CALLER_POD_CODEC.page(body)
            pods += [pod for pod in page.views if known.owns(pod) and not pod.is_ended]
            cursor = page.cursor
            if not cursor:
                return pods

    async def find(self, resource: Resource, key: Key) -> bytes | None:
        """Reads any other object; None if it does not exist."""
        try:
            return await self._cluster.get(resource, key)
        except NotFound:
            return None
        except Trainmaster as error:
            raise retry_later(error) from error

    # --- watches ---

    def _job_changed(self, profile: Profile, before: JobView | None, after: JobView | None) -> None:
        job = JobId(profile, (after or before).key)  # type: ignore[union-attr]  # never both None
        ahead = self._ahead.get(job)
        if ahead is not None and self._jobs[profile].seen >= ahead.version:
            del self._ahead[job]
        if after is None:
            self._known.pop(job, None)
        self._notify(job)

    def _rewound(self, profile: Profile) -> None:
        self._ahead = {job: known for job, known in self._ahead.items() if job.profile != profile}

    def _pod_changed(self, before: CallerPod | None, after: CallerPod | None) -> None:
        if before is not None:
            self._forget(before)
        if after is not None and self.owner_of(after) is not None and not after.is_ended:
            for place in after.places:
                self._callers.setdefault(place, {})[after.key] = after
            if not after.ips:
                self._starting.setdefault(after.key.namespace, set()).add(after.key)
        for pod in (before, after):
            if pod is not None and (job := self.owner_of(pod)) is not None:
                self._notify(job)

    def _forget(self, pod: CallerPod) -> None:
        for place in pod.places:
            if (callers := self._callers.get(place)) is not None:
                callers.pop(pod.key, None)
                if not callers:
                    del self._callers[place]
        if (starting := self._starting.get(pod.key.namespace)) is not None:
            starting.discard(pod.key)
            if not starting:
                del self._starting[pod.key.namespace]

    def _notify(self, job: JobId) -> None:
        for known in (self._known.get(job), self._ahead.get(job)):
            if known is not None:
                known.answer = b""  # it may have addresses of pods
        if (changed := self._changes.pop(job, None)) is not None:
            changed.set()


def retry_later(error: Trainmaster) -> RetryLater:
    """The answer to a request for which the API server failed: the client retries. What the API server says may name
    objects and addresses that the caller must not know: it is for the log."""
    message = "a request to the API server failed, try again"
    return RetryLater(message, because=f"{message}: {error.message if isinstance(error, ApiError) else error}")
