"""Identifies callers before the body of a request is read, and limits how many requests each may send.

DI-engine's client sends no token. It is identified by its address: that of a pod, whose owner is the job. A bearer
token belongs to a pod that it is bound to, or to a user.
"""

import asyncio
from typing import NamedTuple

import msgspec

from trainmaster.diserver.cache import Cache
from trainmaster.diserver.finder import Finder
from trainmaster.diserver.job import KnownJob
from trainmaster.diserver.rate import Buckets, Recent
from trainmaster.diserver.refusal import RetryLater, too_many
from trainmaster.diserver.token import Tokens, User
from trainmaster.diserver.view import CallerPod
from trainmaster.settings import ServerLimits

CONFIRMED_SECONDS = 2.0
"""How long a pod counts as confirmed while the watch of pods is cut."""


class Origin(NamedTuple):
    """Where a request comes from, and its token."""

    ip: str
    token: str = ""
    pod: str | None = None
    """The uid of the calling pod, where pods share an address and the machine knows whose process it is."""

    @property
    def place(self) -> str:
        return self.ip if self.pod is None else self.pod


class Caller(msgspec.Struct, frozen=True):
    origin: Origin
    pods: tuple[CallerPod, ...] = ()
    """Pods of jobs: those with this address, or the one that the token is bound to."""
    user: User | None = None
    is_open: bool = False
    """May act on every job: on a machine with one user."""

    @property
    def is_known(self) -> bool:
        return bool(self.pods or self.user or self.is_open)

    @property
    def name(self) -> str:
        """Requests are counted by this name."""
        if self.user is None:
            return self.origin.place
        return self.pods[0].uid if self.pods else self.user.username

    @property
    def ip(self) -> str:
        return self.origin.ip

    def is_of(self, known: KnownJob) -> bool:
        return any(known.owns(pod) for pod in self.pods)


class Callers:
    """With ``is_open`` callers without a token may act on every job, and are not limited."""

    def __init__(self, cache: Cache, finder: Finder, tokens: Tokens, limits: ServerLimits, *, is_open: bool) -> None:
        self._cache = cache
        self._finder = finder
        self._tokens = tokens
        self._is_open = is_open
        self._pods: Buckets[str] = Buckets(limits.pods)
        self._users: Buckets[str] = Buckets(limits.users)
        self._unknown: Buckets[str] = Buckets(limits.unknown)
        self._confirmed: Recent[str, bool] = Recent(CONFIRMED_SECONDS)

    async def identify(self, origin: Origin) -> Caller:
        """Raises ``Refused`` for an unknown token, and if the caller has sent too many requests."""
        await self._finder.be_synced()
        if origin.token:
            user = await self._tokens.user(origin.token, origin.ip)
            caller = Caller(origin, await self._bound_to(user), user)
        else:
            caller = Caller(origin, await self._pods_at(origin.place), is_open=self._is_open)
        self._limit(caller)
        return caller

    def _limit(self, caller: Caller) -> None:
        now = _time()
        if caller.is_open:
            return
        if caller.pods:
            # DI-engine's client exits after a 429.
            if not self._pods.take(caller.name, now):
                raise RetryLater(f"{caller.ip} sends too many requests, try again", is_limit=True)
        elif caller.user is not None:
            if not self._users.take(caller.name, now):
                raise too_many(f"{caller.user.username} sends too many requests")
        elif not self._unknown.take(caller.ip, now):
            if caller.origin.pod is not None or self._cache.has_starting_pods():  # this may be one of them
                raise RetryLater(f"{caller.ip} sends too many requests, try again", is_limit=True)
            raise too_many(f"{caller.ip} sends too many requests, and is not the address of a pod of a job")

    async def _pods_at(self, place: str) -> tuple[CallerPod, ...]:
        pods = self._cache.pods_at(place)
        if self._cache.has_current_pods:
            return pods
        by_job = {(pod.key.namespace, pod.owner and pod.owner.uid): pod for pod in pods}
        return tuple([pod for pod in by_job.values() if await self._is_confirmed(pod, place)])

    async def _is_confirmed(self, pod: CallerPod, place: str) -> bool:
        """Asks the API server: the pod may be gone, and its address given to another one."""
        if self._confirmed.get(pod.uid, _time()):
            return True
        fresh = await self._cache.fresh_pod(pod.key)
        if fresh is None or fresh.uid != pod.uid or place not in fresh.places or fresh.is_ended:
            return False
        self._confirmed.put(pod.uid, True, _time())
        return True

    async def _bound_to(self, user: User) -> tuple[CallerPod, ...]:
        if user.pod is None:
            return ()
        key, uid = user.pod
        pod = self._cache.pod(key) or await self._cache.fresh_pod(key)
        is_same = pod is not None and uid in ("", pod.uid)
        return (pod,) if pod is not None and is_same and self._cache.owner_of(pod) is not None else ()


def _time() -> float:
    return asyncio.get_running_loop().time()
