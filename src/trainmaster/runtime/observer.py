"""What the stores show of jobs: the children of each, and which job a change concerns."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from trainmaster.core.ids import Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Plan
from trainmaster.core.view import CandidateView, ChildView, JobView, OwnerView, PodView, ServiceView
from trainmaster.kinds.base import Related
from trainmaster.kinds.resource_kinds import ResourceKinds
from trainmaster.runtime.adopter import Adopter
from trainmaster.runtime.host_ports import HostPorts
from trainmaster.runtime.node_index import NodeIndex
from trainmaster.runtime.store import Store

Owned = PodView | ServiceView | ChildView | CandidateView


class Observer:
    def __init__(
        self,
        kinds: ResourceKinds,
        *,
        pods: Store[PodView],
        services: Store[ServiceView],
        ports: HostPorts,
        related: Mapping[Related, Store[JobView]] | None = None,
        children: Mapping[Resource, Store[ChildView]] | None = None,
        nodes: NodeIndex | None = None,
        adopter: Adopter | None = None,
    ) -> None:
        self._kinds = kinds
        self._pods, self._services, self._ports = pods, services, ports
        self._related, self._children, self._nodes = related or {}, children or {}, nodes
        self._adopter = adopter

    def observe(self, job: JobView, foreign: frozenset[int] = frozenset()) -> Observed:
        """Everything that a job owns; ``foreign`` are ports that other programs have."""
        space, kind = job.key.namespace, self._kinds.of(job.raw)
        children = {resource: _by_name(store.owned(space, job.uid)) for resource, store in self._children.items()}
        pods = self._pods_of(job)
        services = self._services.owned(space, job.uid)
        taken = self._ports.taken(job)
        taken = taken | foreign if foreign else taken
        book = self._nodes
        return Observed.of(
            pods,
            services,
            kind.slots,
            taken,
            self._body_of(kind.related),
            children,
            book.of(pods) if book else None,
            book.outage() if book else "",
            book.neighbours(pods) if book else (),
            self._ports.namespace_ports(job),
        )

    def adoption(self, job: JobView, now: datetime) -> Plan | None:
        """What to do before anything else is planned, so that children of another operator become ours."""
        if self._adopter is None:
            return None
        space = job.key.namespace
        children = (child.uid for store in self._children.values() for child in store.owned(space, job.uid))
        return self._adopter.plan(job, children, now)

    def _body_of(self, related: Related | None) -> bytes | None:
        store = self._related.get(related) if related else None
        found = store.get(related.key) if related and store else None
        return found.raw if found is not None else None

    def uncertain(self, job: JobView) -> tuple[tuple[PodView, int], ...]:
        """Pods of the job that may have ended before their node was lost."""
        return self._nodes.uncertain(self._pods_of(job)) if self._nodes is not None else ()

    def _pods_of(self, job: JobView) -> list[PodView]:
        """Those of its batch Jobs are among them."""
        space = job.key.namespace
        owners = (child.uid for store in self._children.values() for child in store.owned(space, job.uid))
        return [pod for owner in (job.uid, *owners) for pod in self._pods.owned(space, owner)]

    def node_poll(self, observed: Observed) -> float | None:
        """Seconds until nodes must be looked at again."""
        return self._nodes.poll(observed) if self._nodes is not None else None

    # --- which job a change concerns ---

    def listen(self, child_changed: Callable[[Key, bool], None], related_changed: Callable[[], None]) -> None:
        """``child_changed`` gets the key of a job, and whether a pod of it has another phase."""

        is_blind = not self._kinds.looks_at_readiness

        def changed(before: Owned | None, after: Owned | None) -> None:
            if before is not None and after is not None and _is_same(before, after, is_blind):
                return  # a heartbeat, a readiness gate: no plan looks at it
            for view in (before, after):
                if view is not None and (owner := self._job_of(view)):
                    child_changed(Key(view.key.namespace, owner.name), _has_new_phase(before, after))

        self._pods.listen(changed)
        self._services.listen(changed)
        for store in self._children.values():
            store.listen(changed)
        for related in self._related.values():
            related.listen(lambda _before, _after: related_changed())
        if self._nodes is not None:
            self._nodes.listen(lambda pod: changed(None, pod))
        if self._adopter is not None:
            self._adopter.listen(changed)

    def _job_of(self, view: Owned) -> OwnerView | None:
        """The job that owns it, or that owns its owner."""
        owner = view.owner
        if owner is None or owner.is_of(self._kinds.resource):
            return owner
        for resource, store in self._children.items():
            if owner.is_of(resource) and store.is_synced:
                child = store.get(Key(view.key.namespace, owner.name))
                # A child that the store does not have yet enqueues its job when it arrives.
                return child.owner if child and child.owner and child.owner.is_of(self._kinds.resource) else None
        return None


def _by_name(views: Iterable[ChildView]) -> dict[str, ChildView]:
    return {view.key.name: view for view in sorted(views, key=lambda view: view.key.name)}


def _has_new_phase(before: Owned | None, after: Owned | None) -> bool:
    return isinstance(before, PodView) and isinstance(after, PodView) and before.phase != after.phase


def _is_same(before: Owned, after: Owned, is_blind: bool) -> bool:
    """``is_blind``: whether pods are ready makes no difference."""
    if is_blind and isinstance(before, PodView) and isinstance(after, PodView):
        before = msgspec.structs.replace(before, is_ready=after.is_ready, unready=after.unready)
    return msgspec.structs.replace(before, resource_version=after.resource_version) == after
