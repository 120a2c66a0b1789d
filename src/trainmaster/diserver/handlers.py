"""What di-server does for each request: find the job, see who asks, decide, declare, answer."""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from trainmaster.core.ids import Key
from trainmaster.core.plan import normal
from trainmaster.diserver import answer, metrics
from trainmaster.diserver.cache import Cache, Known
from trainmaster.diserver.caller import Callers, IsVisible, Origin
from trainmaster.diserver.finder import PATIENCE, Finder
from trainmaster.diserver.limits import RequestLimits
from trainmaster.diserver.refusal import NotNow, Refused
from trainmaster.diserver.request import asked_of, coordinator_of, digest_of, number_of, pod_names, wanted_of
from trainmaster.diserver.types import FailedRequest, Replicas, ReplicasRequest
from trainmaster.diserver.writer import Declarer, Stored
from trainmaster.kinds.base import named
from trainmaster.kinds.dijob import address, declare
from trainmaster.kinds.dijob.address import coordinator_name
from trainmaster.kinds.dijob.declaration import Declared
from trainmaster.kinds.dijob.declare import Change
from trainmaster.kinds.dijob.model import trains_in
from trainmaster.kinds.dijob.status import ENDED
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.lifecycle.facts import state_of
from trainmaster.runtime.recorder import Recorder

COMPONENT = "di-server"


class Done(msgspec.Struct, frozen=True):
    """An answer, and what has to follow when it has left."""

    body: bytes
    stored: Stored | None = None


class Handlers:
    def __init__(
        self,
        cache: Cache,
        callers: Callers,
        declarer: Declarer,
        wishes: RequestLimits,
        recorder: Recorder,
        now: Callable[[], datetime],
    ) -> None:
        self._cache = cache
        self._callers = callers
        self._declarer = declarer
        self._wishes = wishes
        self._recorder = recorder
        self._finder = Finder(cache)
        self._now = now

    # --- GET ---

    async def get(self, given: Mapping[str, str], origin: Origin) -> Done:
        await self._finder.be_synced()
        namespace = given.get("namespace", "")
        if namespace and (name := given.get("name", "")):
            return await self._get_one(Key(namespace, name), given.get("coordinator", ""), origin)
        if namespace and (name := given.get("coordinator", "")):
            return await self._get_all_of(Key(namespace, name), origin)
        if namespace and (name := given.get("aggregator", "")):
            known = await self._authorised(Key(namespace, name), origin)
            return _got(answer.learners_behind(known.job, name, partial(self._is_placed, known.job)))
        is_visible = await self._callers.visible(origin, namespace)
        return _got([self._replicas_of(known.job) for known in self._listed(namespace, is_visible)])

    async def _get_all_of(self, coordinator: Key, origin: Origin) -> Done:
        known = await self._authorised(coordinator, origin)
        if coordinator.name != coordinator_name(known.job):  # any pod of a job may ask for it
            found = self._replicas_of(known.job)
            return _got(msgspec.structs.replace(found, coordinator=coordinator.name))
        if not known.answer:
            known.answer = answer.success(answer.GOT, self._replicas_of(known.job))
        return Done(known.answer)

    async def _get_one(self, pod: Key, coordinator: str, origin: Origin) -> Done:
        known = await self._authorised(pod, origin)
        members = known.job.status.declared.members
        head = declare.head_of(members, pod.name) if pod.name in members else pod.name
        if coordinator not in ("", coordinator_name(known.job)):
            raise Refused(404, f"pod: {pod} does not belong to coordinator {coordinator}")
        is_coordinator = pod.name == coordinator_name(known.job)
        return _got(self._replicas_of(known.job, "" if is_coordinator else head))

    def _listed(self, namespace: str, is_visible: IsVisible) -> Iterator[Known]:
        """Jobs that have a coordinator, each at its newest."""
        for known in self._cache.jobs(namespace):
            coordinator = Key(known.view.key.namespace, coordinator_name(known.job))
            if is_visible(known) and self._cache.pod(coordinator) is not None:
                yield known

    # --- POST, DELETE, POST failed ---

    async def create(self, request: ReplicasRequest, origin: Origin) -> Done:
        asked = {role: asked_of(role, wanted) for role, wanted in wanted_of(request).items()}
        known, is_administrator = await self._for_a_change(coordinator_of(request), origin)
        # Somebody else who adds a replica does not state what the coordinator wants.
        incarnation = "" if is_administrator else await self._finder.incarnation(known)
        asked, aggregator_template = await self._wishes.prepared(known, asked)

        def decide(known: Known) -> Change:
            _check_open(known)
            before = _with_template(known.job.status.declared, aggregator_template)
            self._wishes.check_number(asked)
            change = declare.requested(
                before,
                asked,
                job=known.view.key.name,
                incarnation=incarnation,
                suffixes=_random_suffixes(),
                now=self._now(),
            )
            self._wishes.check_limits(known, change)
            return change

        stored = await self._declarer.store(known, digest_of("POST", request), incarnation, decide)
        said = answer.shown({role: each.replicas for role, each in asked.items()})
        self._tell(stored, "create", f"{request.coordinator} asked for {said}")
        return await self._done(answer.CREATED, request.coordinator, stored)

    async def delete(self, request: ReplicasRequest, origin: Origin) -> Done:
        counts = {role: number_of(role, wanted) for role, wanted in wanted_of(request).items()}
        known, _ = await self._for_a_change(coordinator_of(request), origin)

        def decide(known: Known) -> Change:
            _check_open(known)
            takes_part = trains_in(known.profile)
            pods = [pod for pod in self._cache.pods_of(known) if not pod.deleting]
            states = {pod.key.name: state_of(pod, takes_part) for pod in pods}
            return declare.removed(known.job.status.declared, counts, states)

        stored = await self._declarer.store(known, digest_of("DELETE", request), "", decide)
        self._tell(stored, "delete", f"{request.coordinator} gave back {answer.shown(counts)}")
        return await self._done(answer.DELETED, request.coordinator, stored)

    async def failed(self, request: FailedRequest, origin: Origin) -> Done:
        names = pod_names((*(request.collectors or ()), *(request.learners or ())), request.namespace or "")
        known, _ = await self._for_a_change(coordinator_of(request), origin)

        def decide(known: Known) -> Change:
            _check_open(known)
            for name in names:
                self._check_own(known, name)
            return declare.failed(known.job.status.declared, names, suffixes=_random_suffixes(), now=self._now())

        stored = await self._declarer.store(known, digest_of("failed", request), "", decide)
        self._tell(stored, "replace", f"{request.coordinator} could not reach {named(names)}")
        return await self._done(answer.RECREATED, request.coordinator, stored)

    async def _done(self, message: str, coordinator: str | None, stored: Stored) -> Done:
        known = await self._with_ports(stored)
        found = answer.named(known.job, coordinator or "", stored.collectors, stored.learners)
        return Done(answer.success(message, found), stored)

    def _tell(self, stored: Stored, verb: str, because: str) -> None:
        if not stored.is_new:
            metrics.RETRIES.inc()
            return
        names = (*stored.collectors, *stored.learners)
        metrics.DECLARED.labels(verb).inc(len(names))
        if stored.request and names:
            event = normal(f"Replicas{verb.capitalize()}d", f"{because}: {named(names)}")
            self._recorder.record(stored.known.profile.resource, stored.known.view, COMPONENT, event)

    def _is_placed(self, job: DIJob, name: str) -> bool:
        return address.is_placed(job, name, shared_network=self._wishes.rules.shared_network)

    def _replicas_of(self, job: DIJob, only: str = "") -> Replicas:
        return answer.replicas_of(job, lambda name: only in ("", name) and self._is_placed(job, name))

    # --- finding the job ---

    async def _authorised(self, pod: Key, origin: Origin) -> Known:
        known = await self._finder.job_of(pod)
        await self._callers.check(origin, known)
        return known

    async def _for_a_change(self, pod: Key, origin: Origin) -> tuple[Known, bool]:
        known = await self._finder.job_of(pod)
        is_administrator = await self._callers.check(origin, known)
        _check_open(known)
        return known, is_administrator

    def _check_own(self, known: Known, name: str) -> None:
        """Of this job, or of nobody any more."""
        if name in known.job.status.declared.members:
            return
        pod = self._cache.pod(Key(known.view.key.namespace, name))
        is_foreign = pod is not None and not known.owns(pod)
        if is_foreign or not address.role_of(known.job, name):
            raise Refused(404, f"pod: {name} is no replica of {known.id}; nothing was replaced")

    async def _with_ports(self, stored: Stored) -> Known:
        """On a shared network the operator says which port a replica has: a moment after it was declared."""
        known = stored.known
        job, names = known.id, (*stored.collectors, *stored.learners)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            waiting = [name for name in names if not self._is_placed(known.job, name)]
            if not waiting:
                return known
            changed = self._cache.change()
            try:
                async with asyncio.timeout_at(deadline):
                    await changed
            except TimeoutError:
                raise NotNow(f"the operator has not given a port to {named(waiting)} yet, try again") from None
            known = self._cache.job(job) or known


def _got(data: Replicas | list[Replicas]) -> Done:
    return Done(answer.success(answer.GOT, data))


def _check_open(known: Known) -> None:
    phase = known.job.status.phase
    if phase in ENDED:
        raise Refused(409, f"{known.id} has ended ({phase}): its replicas cannot be changed any more")
    if known.view.deleting:
        raise Refused(409, f"{known.id} is being deleted: its replicas cannot be changed any more")


def _with_template(declared: Declared, given: Any) -> Declared:
    return declared if given is None else msgspec.structs.replace(declared, aggregator_template=given)


def _random_suffixes() -> Iterator[str]:
    while True:
        yield "".join(secrets.choice(declare.ALPHABET) for _ in range(declare.SUFFIX_LENGTH))
