"""Leader election by a Lease, with hard deadlines.

A leader may act until ``renew_deadline`` after the moment it *sent* its last successful renewal, and the
lease lasts longer than that: it has stopped acting before another replica can start. Every call runs under
what is left of that time, and each request under a third of the deadline: when one answer gets lost, there is time to
ask again. Others judge the lease by their own clock, from when they last saw it change.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec
import structlog

from trainmaster.core.errors import (
    AlreadyExists,
    BadConfig,
    Conflict,
    Forbidden,
    NotFound,
    NotLeading,
    Trainmaster,
    Unreachable,
)
from trainmaster.core.ids import LEASE, Key, Resource
from trainmaster.runtime import metrics
from trainmaster.runtime.cluster import Cluster
from trainmaster.settings import ElectionTimes

log = structlog.get_logger(__name__)

T = TypeVar("T")

_CHOOSE = "choose another namespace with --leader-elect-resource-namespace"


def lease_name(resource: Resource) -> str:
    """The Lease of the process that reconciles the jobs of a resource. All installations use the same name, so that
    two of them never drive the same jobs."""
    return str(resource)


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(NamedTuple):
    """The whole object, and the part of it that is ours to judge."""

    body: dict[str, Any]
    spec: _LeaseSpec


class Elector:
    def __init__(
        self,
        cluster: Cluster,
        key: Key,
        identity: str,
        times: ElectionTimes,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._key = key
        self._identity = identity
        self._times = times
        self._now = now
        self._monotonic = monotonic
        self._until = float("-inf")
        self.has_led = False
        self._seen: tuple[_LeaseSpec, float] | None = None
        self._waits_for = ""
        self._gauge = metrics.LEADING.labels(key.name)
        self._gauge.set(0)

    @property
    def is_leading(self) -> bool:
        return self._monotonic() < self._until

    def check(self) -> None:
        """Raises NotLeading if another replica may lead by now."""
        if not self.is_leading:
            raise NotLeading(f"lease {self._key} is not held by {self._identity}; nothing is written")

    async def acquire(self) -> None:
        """Returns when this process leads, however long that takes."""
        while not await self._attempt(self._times.renew_deadline):  # noqa: ASYNC110 it waits for another process
            await asyncio.sleep(self._pause())
        self.has_led = True
        self._gauge.set(1)
        log.info("leading", lease=str(self._key), identity=self._identity)

    def _pause(self) -> float:
        """Seconds until the lease is read again: when it expires, if that is earlier than the retry period."""
        if self._seen is None:
            return self._times.retry
        spec, at = self._seen
        left = at + (spec.lease_duration_seconds or self._times.lease) - self._monotonic()
        return min(left, self._times.retry) if left > 0 else self._times.retry

    async def hold(self) -> None:
        """Renews until that fails for too long, then raises NotLeading: the process must end."""
        pause = self._times.retry
        while True:
            await asyncio.sleep(min(pause, max(self._left(), 0.0)))
            started = self._monotonic()
            is_renewed = self._left() > 0 and await self._attempt(self._left())
            # A failure that took its time has been waited for already.
            took = 0.0 if is_renewed else self._monotonic() - started
            pause = max(self._times.retry - took, 0.0)
            if self._left() <= 0:
                self._gauge.set(0)
                raise NotLeading(f"lease {self._key} could not be renewed within {self._times.renew_deadline:g} s")

    async def release(self) -> None:
        """Give the lease back, so that the next one need not wait for its end. Best effort; asks the API server
        who holds it, because a write whose response was not awaited may have made it ours."""
        self._until = float("-inf")
        self._gauge.set(0)
        try:
            async with asyncio.timeout(self._times.retry):
                lease = await self._read()
                if lease is not None and lease.spec.holder_identity == self._identity:
                    free = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
                    await self._replace(lease, free)
        except (Trainmaster, TimeoutError) as error:
            log.warning("lease not given back; it ends by itself", because=str(error) or "no answer in time")

    def _left(self) -> float:
        return self._until - self._monotonic()

    async def _attempt(self, timeout: float) -> bool:
        """Acquire or renew once. The clock starts before the request is sent."""
        started = self._monotonic()
        try:
            async with asyncio.timeout(timeout):
                if not await self._write():
                    return False
        except BadConfig:
            raise
        except (Trainmaster, TimeoutError) as error:
            log.warning("lease not renewed", lease=str(self._key), because=_explain(error))
            return False
        self._until = started + self._times.renew_deadline
        return self.is_leading

    async def _write(self) -> bool:
        lease = await self._read()
        if lease is None:
            return await self._create()
        ours = lease.spec.holder_identity == self._identity
        if not ours and not self._has_ended(lease.spec):
            self._until = float("-inf")  # another replica holds the lease: stop leading at once
            self._report_holder(lease.spec.holder_identity or "")
            return False
        stamp = _micro(self._now())
        spec = msgspec.structs.replace(
            lease.spec,
            holder_identity=self._identity,
            lease_duration_seconds=math.ceil(self._times.lease),
            renew_time=stamp,
        )
        if not ours:
            transitions = (lease.spec.lease_transitions or 0) + 1
            spec = msgspec.structs.replace(spec, lease_transitions=transitions, acquire_time=stamp)
        try:
            await self._replace(lease, spec)
        except Conflict:
            return False  # another replica was faster
        return True

    async def _replace(self, lease: _Lease, spec: _LeaseSpec) -> None:
        """What others wrote on the lease, labels or newer fields, stays."""
        body = {**lease.body, "spec": {**lease.body["spec"], **msgspec.to_builtins(spec)}}
        await self._ask(self._cluster.replace(LEASE, self._key, msgspec.json.encode(body)))

    async def _create(self) -> bool:
        stamp = _micro(self._now())
        spec = _LeaseSpec(self._identity, math.ceil(self._times.lease), stamp, stamp, 0)
        body = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": self._key._asdict(),
            "spec": msgspec.to_builtins(spec),
        }
        try:
            await self._ask(self._cluster.create(LEASE, self._key.namespace, msgspec.json.encode(body)))
        except AlreadyExists:
            return False
        except NotFound:
            missing = f"lease {self._key}: the namespace {self._key.namespace} does not exist"
            raise BadConfig(f"{missing}; create it, or {_CHOOSE}") from None
        return True

    def _report_holder(self, holder: str) -> None:
        if holder != self._waits_for:
            self._waits_for = holder
            log.info("waiting for the lease", lease=str(self._key), holder=holder, identity=self._identity)

    async def _read(self) -> _Lease | None:
        try:
            body = msgspec.json.decode(await self._ask(self._cluster.get(LEASE, self._key)), type=dict[str, Any])
            spec = body.setdefault("spec", {})
            return _Lease(body, msgspec.convert(spec, _LeaseSpec))
        except NotFound:
            return None
        except msgspec.DecodeError as error:
            raise Unreachable(f"the answer is no lease: {error}") from error

    async def _ask(self, request: Awaitable[T]) -> T:
        async with asyncio.timeout(self._times.renew_deadline / 3):
            return await request

    def _has_ended(self, spec: _LeaseSpec) -> bool:
        """Free, or not renewed for its whole duration while we were looking."""
        if not spec.holder_identity:
            return True
        now = self._monotonic()
        if self._seen is None or self._seen[0] != spec:
            self._seen = (spec, now)
        return now >= self._seen[1] + (spec.lease_duration_seconds or self._times.lease)


def _explain(error: Exception) -> str:
    if isinstance(error, Forbidden):
        return f"{error}; grant it as deploy/rbac.yaml does, or {_CHOOSE}"
    return str(error) or "no answer in time"


def _micro(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
