"""Bearer tokens: whose they are, by a TokenReview, and what their users may do, by a SubjectAccessReview.

Results are cached for a short time. Tokens that the API server does not know have a cache of their own, and an address
may have only a few tokens reviewed, so that no number of invented tokens displaces a good one or loads the API server.
"""

import asyncio
from functools import partial
from hashlib import sha256
from typing import Any, Protocol

import msgspec
import structlog

from trainmaster.core.errors import Trainmaster
from trainmaster.core.ids import Key, Resource
from trainmaster.diserver.cache import retry_later
from trainmaster.diserver.flight import Flights
from trainmaster.diserver.rate import Buckets, Recent
from trainmaster.diserver.refusal import Refused, too_many
from trainmaster.settings import Rate

TOKEN_REVIEW = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview")
ACCESS_REVIEW = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")

AUDIENCE = "di-server"
"""A token for this audience is of no use at the API server, also to somebody who reads it on its way."""
REVIEW_SECONDS = 30.0
"""How long the result of a review is cached."""
UNKNOWN_SECONDS = 10.0
"""The same, if the API server does not know the token."""
REVIEWS_KEPT = 1024
WARNING_PAUSE = 60.0
"""Seconds between two warnings of tokens for the API server."""

_POD_NAME = "authentication.kubernetes.io/pod-name"
_POD_UID = "authentication.kubernetes.io/pod-uid"
_SERVICE_ACCOUNT = "system:serviceaccount:"

log = structlog.get_logger(__name__)


class Reviewer(Protocol):
    async def review(self, resource: Resource, body: bytes) -> bytes:
        """Creates a review object, such as a TokenReview, and returns it with its status."""
        ...


class User(msgspec.Struct):
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
    user: User = msgspec.field(default_factory=User)
    audiences: list[str] = []


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class Tokens:
    def __init__(self, reviewer: Reviewer, rate: Rate) -> None:
        self._reviewer = reviewer
        self._reviews: Buckets[str] = Buckets(rate)
        self._users: Recent[str, User] = Recent(REVIEW_SECONDS, REVIEWS_KEPT)
        self._unknown: Recent[str, bool] = Recent(UNKNOWN_SECONDS, REVIEWS_KEPT)
        self._access: Recent[str, bool] = Recent(REVIEW_SECONDS, REVIEWS_KEPT)
        self._flights: Flights[str, User | None] = Flights()
        self._warned = float("-inf")

    async def user(self, token: str, ip: str) -> User:
        """The holder of the token; raises ``Refused`` if there is none."""
        unknown = Refused(401, "the API server does not know this bearer token: it may have expired")
        now, key = _time(), sha256(token.encode()).hexdigest()
        if (user := self._users.get(key, now)) is not None:
            return user
        if self._unknown.get(key, now):
            raise unknown
        if key not in self._flights and not self._reviews.take(ip, now):
            raise too_many(f"{ip} sends too many tokens that are not known")
        if (user := await self._flights.join(key, partial(self._reviewed, token))) is None:
            self._unknown.put(key, True, now)
            raise unknown
        self._users.put(key, user, now)
        return user

    async def may_update(self, user: User, resource: Resource, namespace: str) -> bool:
        attributes = {"group": resource.group, "resource": resource.plural, "verb": "update", "namespace": namespace}
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "resourceAttributes": attributes,
        }
        now, key = _time(), sha256(msgspec.json.encode(spec)).hexdigest()
        if (is_allowed := self._access.get(key, now)) is None:
            is_allowed = (await self._review(ACCESS_REVIEW, spec)).allowed
            self._access.put(key, is_allowed, now)
        return is_allowed

    async def _reviewed(self, token: str) -> User | None:
        """Tokens for the API server are accepted, too: clients have sent them so far."""
        status = await self._review(TOKEN_REVIEW, {"token": token, "audiences": [AUDIENCE]})
        if status.authenticated and AUDIENCE in status.audiences:
            return status.user
        status = await self._review(TOKEN_REVIEW, {"token": token})
        if not status.authenticated:
            return None
        if _time() - self._warned >= WARNING_PAUSE:
            self._warned = _time()
            log.warning(
                "accepted a token for the API server: a program that reads the token on its way can use it there",
                user=status.user.username,
                hint=f"create it with --audience={AUDIENCE}",
            )
        return status.user

    async def _review(self, resource: Resource, spec: dict[str, Any]) -> _ReviewStatus:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, "spec": spec}
        try:
            answer = await self._reviewer.review(resource, msgspec.json.encode(body))
        except Trainmaster as error:
            raise retry_later(error) from error
        return msgspec.json.decode(answer, type=_Review).status


def _time() -> float:
    return asyncio.get_running_loop().time()
