"""Authorises callers: a pod acts on its own job, a user on the jobs that RBAC allows to update.

A caller that may not act on a job gets the same answer as for a job that does not exist.
"""

import asyncio
from collections.abc import Callable

from trainmaster.core.ids import Key
from trainmaster.core.name import MAX_LABEL
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.caller import Caller
from trainmaster.diserver.finder import Finder, Target
from trainmaster.diserver.job import JobId, KnownJob
from trainmaster.diserver.rate import Buckets, Recent
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.diserver.token import Tokens
from trainmaster.kinds.dijob.profile import Profile
from trainmaster.settings import Rate

ADDRESS_TIMEOUT = 2.0
"""Seconds that a request waits for the kubelet to report the address of the calling pod."""
REFUSED_SECONDS = 2.0
"""How long a refusal is remembered: DI-engine's client does not ask again after one."""

IsVisible = Callable[[KnownJob], bool]


class Access:
    """``shared_network``: pods of several jobs may have the same address."""

    def __init__(
        self, cache: Cache, finder: Finder, tokens: Tokens, lookups: Rate, *, shared_network: bool = False
    ) -> None:
        self._cache = cache
        self._finder = finder
        self._tokens = tokens
        self._shared_network = shared_network
        self._lookups: Buckets[str] = Buckets(lookups)
        self._refused: Recent[tuple[str, Target], Refused] = Recent(REFUSED_SECONDS)
        """Lookups that found nothing."""
        self._strangers: Recent[tuple[str, JobId], bool] = Recent(REFUSED_SECONDS)
        """Addresses that no pod of the job has."""
        self._words = " or ".join(profile.word for profile in cache.profiles)

    async def job_of(self, target: Target, caller: Caller) -> tuple[KnownJob, bool]:
        """The job that a request is about, and whether the caller is an administrator."""
        if not target.is_possible:
            # The caller is not authorised yet: do not send long names to the API server or cache them.
            cut = Key(target.key.namespace[:MAX_LABEL], target.key.name[:MAX_LABEL])
            raise target._replace(key=cut).missing(": no such name")
        known = self._finder.cached(target)
        if caller.is_open:
            return known or await self._finder.look_up(target), False
        if known is not None and caller.is_of(known):
            return known, False
        if caller.user is None:
            return await self._job_by_address(target, caller), False
        if self._is_own(target, caller):
            known = await self._look_up(target, caller)
            if caller.is_of(known):
                return known, False
        return await self._job_for_user(target, caller), True

    async def visible(self, caller: Caller, namespace: str) -> IsVisible:
        """Selects the jobs that a list for this caller may contain. An empty namespace means all namespaces."""
        if caller.is_open:
            return lambda _: True
        if caller.pods:
            return caller.is_of
        if caller.user is None:
            raise self._unknown(caller)
        if not (kinds := await self._updatable(caller, namespace)):
            raise self._forbidden(caller, namespace)
        return lambda known: known.profile in kinds

    async def _look_up(self, target: Target, caller: Caller) -> KnownJob:
        """Asks the API server for what the cache does not have. Callers that are not known have a limit already."""
        key, now = (caller.name, target), _time()
        if (remembered := self._refused.get(key, now)) is not None:
            raise remembered.again()
        if caller.is_known and not self._lookups.take(caller.name, now):
            raise RetryLater(f"{caller.name} asks for too many objects that do not exist, try again")
        try:
            return await self._finder.look_up(target)
        except Refused as refused:
            self._refused.put(key, refused.again(), now)
            raise

    # --- pods ---

    def _is_own(self, target: Target, caller: Caller) -> bool:
        """True if the target is the caller's job, or a pod that belongs, or by its name may belong, to it."""
        jobs = {self._cache.owner_of(each) for each in caller.pods}
        view = None if target.is_job else self._cache.pod(target.key)
        owners = self._finder.jobs_that_may_have(target) if view is None else (self._cache.owner_of(view),)
        return any(job in jobs for job in owners)

    async def _job_by_address(self, target: Target, caller: Caller) -> KnownJob:
        """A pod that has just started may call before the kubelet has reported its address, and before our watch has
        shown the pod. So the API server is asked before anybody is refused."""
        is_own = self._is_own(target, caller)
        is_shared = self._shared_network or any(each.host_network for each in caller.pods)
        is_shared = is_shared and caller.origin.pod is None
        if caller.pods and not is_own and not is_shared:
            raise _missing(target)
        refusal = _missing(target) if caller.pods else self._unknown(caller)
        try:
            known = self._finder.cached(target) or await self._look_up(target, caller)
        except Refused:
            if is_own:
                raise
            known = None
        is_starting = self._cache.has_starting_pods(target.key.namespace)
        if known is not None:
            if self._strangers.get((caller.ip, known.id), _time()):
                raise refusal
            pods = await self._cache.live_pods_of(known)
            if any(caller.origin.place in each.places for each in pods):
                return known  # the watch is late
            is_starting = is_starting or not all(each.ips for each in pods)
        if is_starting and caller.origin.pod is None:
            return await self._when_reported(caller.ip, known)
        if known is not None:
            self._strangers.put((caller.ip, known.id), True, _time())
        raise refusal

    async def _when_reported(self, ip: str, known: KnownJob | None) -> KnownJob:
        """Waits until the address belongs to a pod of the job. For a job that does not exist the answer is the same."""
        try:
            async with asyncio.timeout(ADDRESS_TIMEOUT):
                while known is None or not _calls_from(self._cache, ip, known):
                    await (asyncio.sleep(ADDRESS_TIMEOUT) if known is None else self._cache.change(known.id))
                return known
        except TimeoutError:
            raise RetryLater(f"{ip} is not yet known as the address of a pod, try again") from None

    # --- users ---

    async def _job_for_user(self, target: Target, caller: Caller) -> KnownJob:
        if not (kinds := await self._updatable(caller, target.key.namespace)):
            raise _missing(target) if caller.pods else self._forbidden(caller, target.key.namespace)
        known = self._finder.cached(target) or await self._look_up(target, caller)
        if known.profile not in kinds:
            raise _missing(target)
        return known

    async def _updatable(self, caller: Caller, namespace: str) -> set[Profile]:
        """The kinds whose jobs the user may update in the namespace."""
        user = caller.user
        profiles = self._cache.profiles
        return {p for p in profiles if user and await self._tokens.may_update(user, p.resource, namespace)}

    # --- answers ---

    def _unknown(self, caller: Caller) -> Refused:
        what = f"{caller.ip} is not the address of a pod of a {self._words}"
        return Refused(403, f"{what}: call from inside the job, or with a token")

    def _forbidden(self, caller: Caller, namespace: str) -> Refused:
        plurals = " or ".join(profile.resource.plural for profile in self._cache.profiles)
        name = caller.user.username if caller.user else caller.ip
        where = f"namespace {namespace}" if namespace else "all namespaces"
        return Refused(403, f"{name} may not update {plurals} in {where}")


def _missing(target: Target) -> Refused:
    return target.missing(", or the caller is a pod of another job" if target.is_job else ", or is of another job")


def _calls_from(cache: Cache, ip: str, known: KnownJob) -> bool:
    return any(known.owns(pod) for pod in cache.pods_at(ip))


def _time() -> float:
    return asyncio.get_running_loop().time()
