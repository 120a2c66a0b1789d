"""The book of ports: which numbers are taken on networks that pods share, and how many by each namespace.

A port is taken while a job's status names it and while a pod that has not ended holds it. What a plan has just drawn
is taken, too, before the watch shows the status: planning and booking happen in one step of the event loop, so one
process gives no port twice by mistake.
"""

import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from trainmaster.core.view import JobView, PodView
from trainmaster.runtime.store import Store


class _Drawn(msgspec.Struct):
    namespace: str
    ports: set[int] = set()


class HostPorts:
    """``is_free`` is False for ports of other programs on this machine. On a cluster it is always True: the scheduler
    separates pods with the same port."""

    def __init__(self, is_free: Callable[[int], bool] = lambda port: True) -> None:
        self._is_free = is_free
        self._holders: Counter[int] = Counter()
        self._held: frozenset[int] | None = frozenset()
        """The keys of ``_holders``; None when they have to be gathered again."""
        self._of_namespace: Counter[str] = Counter()
        """How many ports the statuses of its jobs name."""
        self._drawn: dict[str, _Drawn] = {}
        """By the uid of the job."""

    def follow(self, *stores: Store[Any]) -> None:
        """Keep the ports of the jobs or pods of these stores."""
        for store in stores:
            store.listen(self._changed)

    def taken(self, job: JobView) -> frozenset[int]:
        """All that others have. What the job drew itself it may draw again: its status was not stored."""
        if self._held is None:
            self._held = frozenset(self._holders)
        if not self._drawn:
            return self._held
        return self._held.union(*(drawn.ports for drawn in self._others(job)))

    def namespace_ports(self, job: JobView) -> int:
        """How many ports other jobs of the namespace have. ``job`` is as the store has it."""
        space = job.key.namespace
        drawn = sum(len(each.ports) for each in self._others(job) if each.namespace == space)
        return self._of_namespace[space] - len(job.ports) + drawn

    def draw(self, job: JobView, ports: Collection[int]) -> None:
        """A plan for this job took these ports. They stay taken until another version of the job is seen: either
        its status names them, or what was planned on the old version can never be stored any more."""
        if ports:
            self._drawn.setdefault(job.uid, _Drawn(job.key.namespace)).ports.update(ports)

    def _others(self, job: JobView) -> Iterable[_Drawn]:
        return (drawn for uid, drawn in self._drawn.items() if uid != job.uid)

    def foreign(self, ports: Iterable[int]) -> frozenset[int]:
        """Those that another program holds on this machine."""
        return frozenset(port for port in ports if not self._is_free(port))

    def _changed(self, before: PodView | JobView | None, after: PodView | JobView | None) -> None:
        if isinstance(before, JobView):
            self._drawn.pop(before.uid, None)
        old, new = _held_by(before), _held_by(after)
        if old == new:
            return
        for job, change in ((before, -len(old)), (after, len(new))):
            if isinstance(job, JobView):
                self._add(job.key.namespace, change)
        self._holders.update(new)
        self._holders.subtract(old)
        for port in old:
            if not self._holders[port]:
                del self._holders[port]
        self._held = None

    def _add(self, namespace: str, number: int) -> None:
        self._of_namespace[namespace] += number
        if not self._of_namespace[namespace]:
            del self._of_namespace[namespace]


def _held_by(view: PodView | JobView | None) -> tuple[int, ...]:
    if view is None:
        return ()
    if isinstance(view, JobView):
        return view.ports
    return () if view.is_ended else view.host_ports


def is_free_here(port: int) -> bool:
    """True when a program of this machine could listen on this port."""
    with socket.socket() as probe:
        # As servers do: connections that ended a moment ago do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
