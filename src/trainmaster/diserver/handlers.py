"""Handles each request: find the job, authorise the caller, decide, store the declaration, answer."""

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from trainmaster.core.ids import Key
from trainmaster.core.plan import normal
from trainmaster.diserver import answer, metrics
from trainmaster.diserver.access import Access, IsVisible
from trainmaster.diserver.cache import Cache
from trainmaster.diserver.caller import Caller
from trainmaster.diserver.finder import WAIT_TIMEOUT, Finder, Target
from trainmaster.diserver.job import CoordinatorJob, KnownJob, same
from trainmaster.diserver.limits import RequestLimits, check_open
from trainmaster.diserver.refusal import Refused, RetryLater
from trainmaster.diserver.request import asked_of, coordinator_of, digest_of, number_of, pod_names, wanted_of
from trainmaster.diserver.types import FailedRequest, Replicas, ReplicasRequest
from trainmaster.diserver.writer import DeclarationWriter, Stored
from trainmaster.kinds.base import named
from trainmaster.kinds.dijob import address, declare
from trainmaster.kinds.dijob.address import coordinator_name
from trainmaster.kinds.dijob.config import Templates
from trainmaster.kinds.dijob.declaration import Aggregator, Declared
from trainmaster.kinds.dijob.declare import Change
from trainmaster.kinds.dijob.model import training_in
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.lifecycle.facts import state_of
from trainmaster.runtime.recorder import Recorder

COMPONENT = "di-server"


class Done(msgspec.Struct, frozen=True):
    """An answer, and the stored change that is to be marked as answered."""

    body: bytes
    stored: Stored[Any] | None = None


class Handlers:
    def __init__(
        self,
        cache: Cache,
        access: Access,
        finder: Finder,
        writer: DeclarationWriter,
        limits: RequestLimits,
        recorder: Recorder,
        now: Callable[[], datetime],
    ) -> None:
        self._cache = cache
        self._access = access
        self._writer = writer
        self._limits = limits
        self._recorder = recorder
        self._finder = finder
        self._now = now

    # --- GET ---

    async def get(self, query: Mapping[str, str], caller: Caller) -> Done:
        namespace = query.get("namespace", "")
        if namespace and (name := query.get("name", "")):
            return await self._get_one(Key(namespace, name), query.get("coordinator", ""), caller)
        if namespace and (name := query.get("coordinator", "")):
            return await self._get_all_of(Key(namespace, name), caller)
        if namespace and (name := query.get("aggregator", "")):
            known = await self._authorised(Key(namespace, name), caller)
            return _got(answer.learners_of(known.job, name, partial(self._is_placed, known.job)))
        is_visible = await self._access.visible(caller, namespace)
        return _got([self._replicas_of(known.job) for known in self._listed(namespace, is_visible)])

    async def _get_all_of(self, coordinator: Key, caller: Caller) -> Done:
        known = await self._authorised(coordinator, caller)
        if coordinator.name != coordinator_name(known.job):  # any pod of the job may be named
            replicas = self._replicas_of(known.job)
            return _got(msgspec.structs.replace(replicas, coordinator=coordinator.name))
        if not known.answer:
            # A replica that was replaced and its successor change places in one answer: DI-engine's client connects to
            # new replicas before it disconnects those that are gone.
            known, _ = await self._with_ports(known, answer.members_of(known.job))
            known.answer = answer.success(answer.GOT, self._replicas_of(known.job))
        return Done(known.answer)

    async def _get_one(self, pod: Key, coordinator: str, caller: Caller) -> Done:
        known = await self._authorised(pod, caller)
        members = known.job.status.declared.members
        head = declare.head_of(members, pod.name) if pod.name in members else pod.name
        if coordinator not in ("", coordinator_name(known.job)):
            raise Refused(404, f"pod: {pod} does not belong to coordinator {coordinator}")
        is_coordinator = pod.name == coordinator_name(known.job)
        return _got(self._replicas_of(known.job, "" if is_coordinator else head))

    def _listed(self, namespace: str, is_visible: IsVisible) -> Iterator[CoordinatorJob]:
        """Jobs with a coordinator, each at its newest version."""
        for known in self._cache.jobs(namespace):
            if not isinstance(known, CoordinatorJob):
                continue
            coordinator = Key(known.view.key.namespace, coordinator_name(known.job))
            if is_visible(known) and self._cache.pod(coordinator) is not None:
                yield known

    # --- POST, DELETE, POST failed ---

    async def create(self, request: ReplicasRequest, caller: Caller) -> Done:
        asked = {role: asked_of(role, wanted) for role, wanted in wanted_of(request).items()}
        known, is_administrator = await self._for_a_change(coordinator_of(request), caller)
        # Only requests of the coordinator itself state its whole demand.
        incarnation = "" if is_administrator else await self._finder.incarnation(known)
        asked, aggregator = await self._limits.prepared(known, asked)

        def decide(known: CoordinatorJob) -> Change:
            check_open(known)
            before = _with_aggregator(known.job, aggregator)
            self._limits.check_number(asked)
            change = declare.requested(
                before,
                asked,
                job=known.view.key.name,
                incarnation=incarnation,
                suffixes=_random_suffixes(),
                now=self._now(),
            )
            self._limits.check_limits(known, change)
            return change

        stored = await self._writer.store(known, digest_of("POST", request), incarnation, decide)
        requested = answer.shown({role: demand.replicas for role, demand in asked.items()})
        self._record(stored, "create", f"{request.coordinator} requested {requested}")
        return await self._done(answer.CREATED, request.coordinator, stored)

    async def delete(self, request: ReplicasRequest, caller: Caller) -> Done:
        counts = {role: number_of(role, wanted) for role, wanted in wanted_of(request).items()}
        known, _ = await self._for_a_change(coordinator_of(request), caller)

        def decide(known: CoordinatorJob) -> Change:
            check_open(known)
            templates = Templates(known.job)
            pods = [pod for pod in self._cache.pods_of(known) if not pod.deleting]
            states = {pod.key.name: state_of(pod, training_in(templates, pod)) for pod in pods}
            return declare.removed(known.job.status.declared, counts, states)

        stored = await self._writer.store(known, digest_of("DELETE", request), "", decide)
        self._record(stored, "delete", f"{request.coordinator} deleted {answer.shown(counts)}")
        return await self._done(answer.DELETED, request.coordinator, stored)

    async def failed(self, request: FailedRequest, caller: Caller) -> Done:
        names = pod_names((*(request.collectors or ()), *(request.learners or ())), request.namespace or "")
        known, _ = await self._for_a_change(coordinator_of(request), caller)

        def decide(known: CoordinatorJob) -> Change:
            check_open(known)
            for name in names:
                self._check_own(known, name)
            return declare.failed(known.job.status.declared, names, suffixes=_random_suffixes(), now=self._now())

        stored = await self._writer.store(known, digest_of("failed", request), "", decide)
        self._record(stored, "replace", f"{request.coordinator} could not reach {named(names)}")
        return await self._done(answer.RECREATED, request.coordinator, stored)

    async def _done(self, message: str, coordinator: str | None, stored: Stored[CoordinatorJob]) -> Done:
        known, waiting = await self._with_ports(stored.known, (*stored.collectors, *stored.learners))
        if waiting:
            raise RetryLater(f"the operator has not given a port to {named(waiting)} yet, try again")
        replicas = answer.named(known.job, coordinator or "", stored.collectors, stored.learners)
        return Done(answer.success(message, replicas), stored)

    def _record(self, stored: Stored[CoordinatorJob], verb: str, because: str) -> None:
        if not stored.is_new:
            metrics.RETRIES.inc()
            return
        names = (*stored.collectors, *stored.learners)
        metrics.DECLARED.labels(verb).inc(len(names))
        if stored.request and names:
            event = normal(f"Replicas{verb.capitalize()}d", f"{because}: {named(names)}")
            self._recorder.record(stored.known.profile.resource, stored.known.view, COMPONENT, event)

    def _is_placed(self, job: DIJob, name: str) -> bool:
        return address.is_placed(job, name, shared_network=self._limits.rules.shared_network)

    def _replicas_of(self, job: DIJob, only: str = "") -> Replicas:
        return answer.replicas_of(job, lambda name: only in ("", name) and self._is_placed(job, name))

    # --- finding the job ---

    async def _authorised(self, pod: Key, caller: Caller) -> CoordinatorJob:
        known, _ = await self._access.job_of(Target(pod), caller)
        return _with_coordinator(known)

    async def _for_a_change(self, pod: Key, caller: Caller) -> tuple[CoordinatorJob, bool]:
        found, is_administrator = await self._access.job_of(Target(pod), caller)
        known = _with_coordinator(found)
        check_open(known)
        return known, is_administrator

    def _check_own(self, known: CoordinatorJob, name: str) -> None:
        """The pod must be a replica of this job, or a deleted one."""
        if name in known.job.status.declared.members:
            return
        pod = self._cache.pod(Key(known.view.key.namespace, name))
        is_foreign = pod is not None and not known.owns(pod)
        if is_foreign or not address.role_of(known.job, name):
            raise Refused(404, f"pod: {name} is no replica of {known.id}; nothing was replaced")

    async def _with_ports(self, known: CoordinatorJob, names: Collection[str]) -> tuple[CoordinatorJob, list[str]]:
        """On a shared network, waits for a while until the operator has allocated ports to the replicas. Returns the
        replicas that still have none."""
        job, deadline = known.id, asyncio.get_running_loop().time() + WAIT_TIMEOUT
        while True:
            waiting = [name for name in names if not self._is_placed(known.job, name)]
            if not waiting:
                return known, []
            try:
                async with asyncio.timeout_at(deadline):
                    await self._cache.change(job)
            except TimeoutError:
                return known, waiting
            known = same(known, self._cache.job(job) or known)


def _got(data: Replicas | list[Replicas]) -> Done:
    return Done(answer.success(answer.GOT, data))


def _with_coordinator(known: KnownJob) -> CoordinatorJob:
    if not isinstance(known, CoordinatorJob):
        key = known.view.key
        path = f"/v2alpha1/job/{key.namespace}.{key.name}/replicas"
        raise Refused(400, f"{known.id} has tasks, and no coordinator: use {path}")
    return known


def _with_aggregator(job: DIJob, found: Aggregator | None) -> Declared:
    """Aggregators that run already keep their port: all aggregators of a job have the same."""
    if found is None:
        return job.status.declared
    if known := address.aggregator_of(job):
        found = msgspec.structs.replace(found, port=known.port)
    return msgspec.structs.replace(job.status.declared, aggregator=found, aggregator_template=None)


def _random_suffixes() -> Iterator[str]:
    while True:
        yield "".join(secrets.choice(declare.ALPHABET) for _ in range(declare.SUFFIX_LENGTH))
