"""Which namespaces have an operator of their own.

An operator of one namespace has its Leases there, under the names that an operator of all namespaces uses for its own.
While such a Lease is held, the operator of all namespaces does not reconcile the jobs of that namespace, if its
settings name this namespace: everybody with the role edit can write a Lease.
"""

from collections.abc import Callable, Collection

import msgspec
import structlog

from trainmaster.core.errors import Forbidden, NotFound
from trainmaster.core.ids import LEASE
from trainmaster.core.view import LEASE_CODEC, LeaseView
from trainmaster.runtime.cluster import Cluster
from trainmaster.runtime.store import Store

MAX_SECONDS = 60.0
"""A Lease counts as held for so long after its last renewal at most, whatever duration it names."""
HOLDER_CHARACTERS = 100
"""Of the holder in a message: the writer of the Lease chose its name."""

log = structlog.get_logger(__name__)


class _Held(msgspec.Struct, frozen=True):
    lease: LeaseView
    until: float


class OtherOperators:
    """``leases`` are the Leases of one kind in all namespaces, ``delegated`` the namespaces that may have an operator
    of their own, ``own`` is the namespace of this operator's Lease. A Lease is judged by our own clock, from when it
    was last seen to change."""

    def __init__(
        self,
        cluster: Cluster,
        leases: Store[LeaseView],
        delegated: Collection[str],
        monotonic: Callable[[], float],
        own: str = "",
    ) -> None:
        self._cluster = cluster
        self._delegated = frozenset(delegated)
        self._own = own
        self._monotonic = monotonic
        self._warned: set[str] = set()
        """Namespaces with a Lease that is not believed, and of which the log says so."""
        self._held: dict[str, _Held] = {}
        """By namespace."""
        self._ended: Callable[[str], None] = lambda namespace: None
        leases.listen(self._changed)

    def on_end(self, callback: Callable[[str], None]) -> None:
        """Call it with each namespace whose operator has ended."""
        self._ended = callback

    async def seconds_left(self, namespace: str) -> float:
        """For how long the Lease of the namespace is still held; 0 without one."""
        held = self._held.get(namespace)
        if held and held.until <= self._monotonic():
            await self._read_again(held)
            held = self._held.get(namespace)
        return max(held.until - self._monotonic(), 0.0) if held else 0.0

    def message(self, namespace: str) -> str:
        """Who reconciles the jobs of the namespace, for their Events; empty if it is this operator."""
        held = self._held.get(namespace)
        if held is None:
            return ""
        holder = held.lease.holder[:HOLDER_CHARACTERS]
        return (
            f"the jobs of this namespace are left to its own operator, {holder}, which holds the Lease "
            f"{held.lease.key}; they are reconciled here again when it is released or not renewed"
        )

    async def _read_again(self, held: _Held) -> None:
        """The Lease may have been renewed while its watch was behind."""
        before = held.lease
        try:
            after = LEASE_CODEC.object(await self._cluster.get(LEASE, before.key))
        except (Forbidden, NotFound):
            after = None
        except ValueError as error:
            # Nobody renews it as it is: its holder cannot read it either.
            log.warning("a Lease cannot be read, and counts as not held", lease=str(before.key), because=str(error))
            after = None
        if self._held.get(before.key.namespace) is not held:
            return  # the watch has shown a change meanwhile
        is_renewed = after and after.resource_version != before.resource_version
        self._changed(before, after if is_renewed else None)

    def _changed(self, before: LeaseView | None, after: LeaseView | None) -> None:
        lease = after or before
        if lease is None or lease.key.namespace == self._own:
            return
        namespace = lease.key.namespace
        if namespace not in self._delegated:
            self._warn(lease)
            return
        if after and after.holder:
            if namespace not in self._held:
                log.info(
                    "the namespace has its own operator: its jobs are not reconciled here",
                    lease=str(after.key),
                    holder=after.holder,
                )
            self._held[namespace] = _Held(after, self._monotonic() + min(after.seconds, MAX_SECONDS))
        elif held := self._held.pop(namespace, None):
            log.info(
                "the operator of the namespace has ended: its jobs are reconciled here",
                lease=str(held.lease.key),
                holder=held.lease.holder,
            )
            self._ended(namespace)

    def _warn(self, lease: LeaseView) -> None:
        """Once: whoever writes it can write it again and again."""
        namespace = lease.key.namespace
        if namespace in self._warned or not lease.holder:
            return
        self._warned.add(namespace)
        log.warning(
            "a Lease in a namespace that was not delegated is ignored: the jobs of the namespace are reconciled here",
            lease=str(lease.key),
            holder=lease.holder[:HOLDER_CHARACTERS],
            hint=f"if the namespace has its own operator, start this one with --delegated-namespace={namespace}",
        )
