"""Finds children that another operator created for our jobs. They lack the label that our watches select by.

Watches of their own show them, by the labels of that operator; once a child has our label it leaves these watches. So
a store of candidates is empty in a cluster that has had no other operator, and children that come late are found, too:
a batch Job of the mxnet-operator creates its next pod without our label.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import Key, Resource
from trainmaster.core.plan import Plan
from trainmaster.core.template import Owner
from trainmaster.core.view import CandidateView, JobView
from trainmaster.kinds import adoption
from trainmaster.kinds.adoption import Candidates, Predecessor
from trainmaster.kinds.base import Kind
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.store import Store


class Adopter:
    def __init__(
        self,
        kinds: ResourceKinds,
        candidates: Mapping[tuple[Predecessor | None, Resource], Store[CandidateView]],
        adopted: Mapping[Resource, Store[Any]],
    ) -> None:
        """``adopted`` are the stores that show children with our label."""
        self._kinds = kinds
        self._candidates = candidates
        self._adopted = adopted

    def listen(self, listener: Callable[[CandidateView | None, CandidateView | None], None]) -> None:
        """Called when there is something to adopt, and when it has been."""
        for store in self._candidates.values():
            store.listen(listener)

    def plan(self, job: JobView, children: Iterable[str], now: datetime) -> Plan | None:
        """What to do before anything else is decided about a job; None when it has nothing to adopt. ``children`` are
        the uids of its own children that may own pods."""
        if job.deleting or not any(store.keys() for store in self._candidates.values()):
            return None
        kind = self._kinds.of(job.raw)
        if kind.is_foreign(job):
            return None
        found = self._of(kind, job, children)
        if not any(found.values()):
            return None
        if (status := kind.remembered(job, found, now)) is not None:
            return Plan(status=status, status_first=True)
        owner = Owner(kind.resource, job.key.namespace, job.key.name, job.uid)
        return Plan(patches=adoption.patches(found, owner), requeue_after=0.0).bounded()

    def _of(self, kind: Kind[Any], job: JobView, children: Iterable[str]) -> Candidates:
        unowned = self._unowned(kind, job)
        owners = [job.uid, *children, *(view.uid for views in unowned.values() for view in views)]
        found: dict[Resource, tuple[CandidateView, ...]] = {}
        for (predecessor, resource), store in self._candidates.items():
            if predecessor != kind.predecessor:
                continue
            owned = [view for uid in owners for view in store.owned(job.key.namespace, uid)]
            views = (view for view in (*unowned.get(resource, ()), *owned) if self._is_new(resource, view))
            found[resource] = tuple(sorted(views, key=lambda view: view.key))
        return found

    def _unowned(self, kind: Kind[Any], job: JobView) -> dict[Resource, list[CandidateView]]:
        try:
            wanted = kind.unowned(kind.decode(job))
        except BadSpec:
            return {}  # the next pass reports it
        found: dict[Resource, list[CandidateView]] = {}
        for child in wanted:
            view = self._candidates[kind.predecessor, child.resource].get(Key(job.key.namespace, child.name))
            if view is not None and child.is_met_by(view):
                found.setdefault(child.resource, []).append(view)
        return found

    def _is_new(self, resource: Resource, view: CandidateView) -> bool:
        """False when its adoption is seen already: two watches of one resource are not equally fast."""
        adopted = self._adopted[resource].get(view.key)
        return adopted is None or adopted.uid != view.uid
