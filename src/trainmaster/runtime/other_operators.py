"""Which namespaces have an operator of their own.

An operator of one namespace has its Leases there, under the names that an operator of all namespaces uses for its own.
While such a Lease is held, the operator of all namespaces leaves the jobs of that namespace alone.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from trainmaster.core.view import LeaseView
from trainmaster.runtime.store import Store

MAX_SECONDS = 60.0
"""A Lease counts as held for so long after its last renewal at most, whatever duration it names."""

log = structlog.get_logger(__name__)


class OtherOperators:
    """``leases`` are the Leases of one kind in all namespaces, ``own`` is the namespace of this operator's Lease.
    Leases are judged by our own clock, from when they were last seen to change."""

    def __init__(self, leases: Store[LeaseView], own: str, now: Callable[[], datetime]) -> None:
        self._own = own
        self._now = now
        self._held: dict[str, tuple[str, datetime]] = {}
        """By namespace: the holder of its Lease, and the time when that expires."""
        self._ended: Callable[[str], None] = lambda namespace: None
        leases.listen(self._changed)

    def on_end(self, callback: Callable[[str], None]) -> None:
        """Call it with each namespace whose operator has ended."""
        self._ended = callback

    def seconds_left(self, namespace: str) -> float:
        """For how long the Lease of the namespace is still held; 0 without one."""
        if namespace not in self._held:
            return 0.0
        _, until = self._held[namespace]
        left = (until - self._now()).total_seconds()
        if left <= 0:
            self._end(namespace)
        return max(left, 0.0)

    def _changed(self, before: LeaseView | None, after: LeaseView | None) -> None:
        lease = after or before
        if lease is None or lease.key.namespace == self._own:
            return
        namespace = lease.key.namespace
        if after is None or not after.holder:
            self._end(namespace)
            return
        if namespace not in self._held:
            log.info("leaving jobs to the operator of their namespace", lease=str(lease.key), holder=after.holder)
        seconds = timedelta(seconds=min(after.seconds, MAX_SECONDS))
        self._held[namespace] = (after.holder, self._now() + seconds)

    def _end(self, namespace: str) -> None:
        if held := self._held.pop(namespace, None):
            log.info("driving jobs of a namespace whose operator has ended", namespace=namespace, holder=held[0])
            self._ended(namespace)
