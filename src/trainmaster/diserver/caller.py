"""Authenticates and authorises callers: a pod acts on its own job, an administrator on all jobs.

DI-engine's client sends no token. It is identified by its address: that of a pod, whose owner is the job. A bearer
token is checked with a TokenReview: a token that is bound to a pod may act on the pod's job; for any other user RBAC
decides, by the permission to update jobs.
"""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec

from trainmaster.core.errors import Trainmaster
from trainmaster.core.ids import Key, Resource
from trainmaster.diserver.cache import Cache, KnownJob, retry_later
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.diserver.view import CallerPod

TOKEN_REVIEW = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview")
ACCESS_REVIEW = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")

REVIEW_SECONDS = 30.0
"""How long the result of a review is cached."""
REVIEWS_KEPT = 1024
ADDRESS_TIMEOUT = 2.0
"""Seconds that a request waits for the kubelet to report the address of the calling pod."""

_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_SERVICE_ACCOUNT = "system:serviceaccount:"


class Reviewer(Protocol):
    async def review(self, resource: Resource, body: bytes) -> bytes:
        """Creates a review object, such as a TokenReview, and returns it with its status."""
        ...


class Origin(NamedTuple):
    """Where a request comes from, and its token."""

    ip: str
    token: str = ""
    pod: str | None = None
    """The uid of the calling pod, where pods share an address and the machine knows whose process it is."""

    @property
    def place(self) -> str:
        return self.ip if self.pod is None else self.pod


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}

    @property
    def pod(self) -> tuple[Key, str] | None:
        """The pod that the token is bound to, and its uid."""
        if _POD_NAME not in self.extra or not self.username.startswith(_SERVICE_ACCOUNT):
            return None
        namespace = self.username.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
        return Key(namespace, self.extra[_POD_NAME][0]), (self.extra.get(_POD_UID) or [""])[0]


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


IsVisible = Callable[[KnownJob], bool]


class Callers:
    """With ``is_open`` callers without a token may act on every job: for a machine with one user."""

    def __init__(self, cache: Cache, reviewer: Reviewer, *, is_open: bool) -> None:
        self._cache = cache
        self._reviewer = reviewer
        self._is_open = is_open
        self._reviews: dict[str, tuple[float, _ReviewStatus]] = {}

    async def check(self, origin: Origin, known: KnownJob) -> bool:
        """True if the caller is an administrator; raises ``Refused`` if the caller may not act on this job."""
        if origin.token:
            user = await self._user(origin.token)
            if await self._is_bound_to(user, known):
                return False
            namespace, resource = known.view.key.namespace, known.profile.resource
            if await self._may_update(user, resource, namespace):
                return True
            raise Refused(403, f"{user.username} may not update {resource.plural} in namespace {namespace}")
        if self._is_open or self._calls_from(origin, known):
            return False
        await self._wait_for(origin, known)
        return False

    async def visible(self, origin: Origin, namespace: str) -> IsVisible:
        """Selects the jobs that a list for this caller may contain. An empty namespace means all namespaces."""
        if origin.token:
            user = await self._user(origin.token)
            if (pod := await self._bound_pod(user)) is not None and pod.owner is not None:
                return lambda known: known.owns(pod)
            return await self._updatable(user, namespace)
        if self._is_open:
            return lambda _: True
        if pods := self._callers_at(origin):
            return lambda known: any(known.owns(pod) for pod in pods)
        words = " or ".join(profile.word for profile in self._cache.profiles)
        raise Refused(403, f"no pod of a {words} has the address {origin.ip}; call from inside a job, or with a token")

    # --- by address ---

    def _callers_at(self, origin: Origin) -> list[CallerPod]:
        return [pod for pod in self._cache.pods_at(origin.place) if pod.owner is not None and not pod.is_ended]

    def _calls_from(self, origin: Origin, known: KnownJob) -> bool:
        return any(known.owns(pod) for pod in self._callers_at(origin))

    async def _wait_for(self, origin: Origin, known: KnownJob) -> None:
        """A pod that has just started may call before the kubelet has reported its address."""
        job, ip = known.view.key, origin.ip
        pods = await self._cache.fresh_pods(job.namespace, f"{known.profile.job_name}={job.name}")
        own = [pod for pod in pods if known.owns(pod) and not pod.is_ended]
        if any(origin.place in pod.places for pod in own):
            return  # the watch is late
        if origin.pod is not None:
            raise Refused(403, f"a pod of another job may not act on {known.id}: call from inside it, or with a token")
        if all(pod.ips for pod in own):
            raise Refused(
                403, f"{ip} is not the address of a pod of {known.id}: call from inside the job, or with a token"
            )
        try:
            async with asyncio.timeout(ADDRESS_TIMEOUT):
                while not self._calls_from(origin, known):
                    await self._cache.change()
        except TimeoutError:
            raise RetryLater(f"{ip} is not yet known as an address of {known.id}, try again") from None

    # --- by token ---

    async def _user(self, token: str) -> _User:
        answer = await self._ask(TOKEN_REVIEW, {"token": token}, sha256(token.encode()).hexdigest())
        if not answer.authenticated:
            raise Refused(401, "the API server does not know this bearer token: it may have expired")
        return answer.user

    async def _is_bound_to(self, user: _User, known: KnownJob) -> bool:
        pod = await self._bound_pod(user)
        return pod is not None and known.owns(pod)

    async def _bound_pod(self, user: _User) -> CallerPod | None:
        if user.pod is None:
            return None
        key, uid = user.pod
        pod = self._cache.pod(key) or await self._cache.fresh_pod(key)
        return pod if pod is not None and uid in ("", pod.uid) else None

    async def _updatable(self, user: _User, namespace: str) -> IsVisible:
        """Selects the jobs of the kinds that a user may update in the namespace."""
        profiles = self._cache.profiles
        kinds = {profile for profile in profiles if await self._may_update(user, profile.resource, namespace)}
        if not kinds:
            plurals = " or ".join(profile.resource.plural for profile in profiles)
            raise Refused(403, f"{user.username} may not update {plurals} in {namespace or 'all namespaces'}")
        return lambda known: known.profile in kinds

    async def _may_update(self, user: _User, resource: Resource, namespace: str) -> bool:
        attributes = {"group": resource.group, "resource": resource.plural, "verb": "update", "namespace": namespace}
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": attributes,
        }
        key = sha256(msgspec.json.encode(spec)).hexdigest()
        return (await self._ask(ACCESS_REVIEW, spec, key)).allowed

    async def _ask(self, resource: Resource, spec: dict[str, Any], key: str) -> _ReviewStatus:
        now = asyncio.get_running_loop().time()
        if (kept := self._reviews.get(key)) is not None and now < kept[0]:
            return kept[1]
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, "spec": spec}
        try:
            answer = await self._reviewer.review(resource, msgspec.json.encode(body))
        except Trainmaster as error:
            raise retry_later(error) from error
        status = msgspec.json.decode(answer, type=_Review).status
        while len(self._reviews) >= REVIEWS_KEPT:
            del self._reviews[next(iter(self._reviews))]
        self._reviews[key] = (now + REVIEW_SECONDS, status)
        return status
