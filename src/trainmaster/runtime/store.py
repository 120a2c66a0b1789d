"""The cache: views by key and by owner, fed by one reflector, read by controllers.

A store that has not seen a complete list raises instead of looking empty: an operator that takes
"not read yet" for "nothing there" would create everything a second time.
"""

from collections.abc import Callable, Iterable, KeysView
from typing import Generic

import structlog

from trainmaster.core.errors import NotSynced
from trainmaster.core.ids import Key, Resource
from trainmaster.core.view import JobView, LeaseView, NodeView, V
from trainmaster.runtime import metrics

log = structlog.get_logger(__name__)

Listener = Callable[[V | None, V | None], None]
"""Called with the view before and after a change; never both None."""


class Store(Generic[V]):
    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.seen = 0
        """The newest resourceVersion that this store reflects."""
        self.is_current = True
        """False while its reflector cannot read: what it shows was true some time ago."""
        self._views: dict[Key, V] | None = None
        self._outdated: dict[Key, V] | None = None
        """What it showed before it was rewound."""
        self._owned: dict[tuple[str, str], dict[Key, V]] = {}
        """By namespace and uid of the owner."""
        self._listeners: list[Listener[V]] = []
        self._recoveries: list[Callable[[], None]] = []
        self._rewinds: list[Callable[[], None]] = []
        self._doubts: list[Callable[[], None]] = []

    @property
    def is_synced(self) -> bool:
        return self._views is not None

    def get(self, key: Key) -> V | None:
        return self._synced().get(key)

    def owned(self, namespace: str, uid: str) -> Iterable[V]:
        """The views in this namespace whose controller has this uid. Owner references across namespaces are ignored."""
        self._synced()
        return self._owned.get((namespace, uid), {}).values()

    def keys(self) -> KeysView[Key]:
        return self._synced().keys()

    def listen(self, listener: Listener[V]) -> None:
        self._listeners.append(listener)

    def on_recovery(self, callback: Callable[[], None]) -> None:
        """Call it when the store can be read again after an outage."""
        self._recoveries.append(callback)

    def recover(self) -> None:
        """Its reflector can read again after an outage."""
        for callback in self._recoveries:
            callback()

    def on_rewind(self, callback: Callable[[], None]) -> None:
        """Call it when resourceVersions that were seen or written before mean nothing any more."""
        self._rewinds.append(callback)

    def rewind(self) -> None:
        """etcd was restored from a backup, and versions are counted from there. Shows nothing until the next list."""
        if self._views is not None:
            self._views, self._outdated = None, self._views
        self._owned, self.seen = {}, 0
        for callback in self._rewinds:
            callback()

    def on_doubt(self, callback: Callable[[], None]) -> None:
        """Call it when an object of the store is not as the API server has it."""
        self._doubts.append(callback)

    def doubt(self) -> None:
        """An object is not as the API server has it, in the same version: it was read by an older definition."""
        for callback in self._doubts:
            callback()

    def replace(self, views: Iterable[V], version: int) -> None:
        """Take over a complete list. Listeners are called for what differs, and for all objects after a rewind: a
        version may stand for another content then."""
        is_rewound = self._outdated is not None
        old, new = self._outdated or self._views or {}, {view.key: view for view in views}
        self._views, self._outdated, self._owned, self.seen = new, None, {}, version
        for view in new.values():
            self._index(view)
        for key in old.keys() | new.keys():
            before, after = old.get(key), new.get(key)
            if before != after or is_rewound:  # also in the same version, see doubt()
                self._notify(before, after)

    def put(self, view: V) -> None:
        before = self._synced().get(view.key)
        if before is not None:
            self._unindex(before)
        self._synced()[view.key] = view
        self._index(view)
        self.advance(view.resource_version)
        self._notify(before, view)

    def remove(self, view: V) -> None:
        self.discard(view.key, view.resource_version)

    def discard(self, key: Key, version: int) -> None:
        """It was deleted at ``version``, or at one that is not known (0)."""
        before = self._synced().pop(key, None)
        self.advance(version)
        if before is not None:
            self._unindex(before)
            self._notify(before, None)

    def advance(self, version: int) -> None:
        """Nothing newer than ``version`` is missing: a bookmark, or an event that was just taken in."""
        self.seen = max(self.seen, version)

    def _synced(self) -> dict[Key, V]:
        if self._views is None:
            raise NotSynced(f"{self.resource} were not listed completely yet")
        return self._views

    def _index(self, view: V) -> None:
        if not isinstance(view, JobView | NodeView | LeaseView) and view.owner is not None:
            self._owned.setdefault((view.key.namespace, view.owner.uid), {})[view.key] = view

    def _unindex(self, view: V) -> None:
        if isinstance(view, JobView | NodeView | LeaseView) or view.owner is None:
            return
        place = view.key.namespace, view.owner.uid
        if owned := self._owned.get(place):
            owned.pop(view.key, None)
            if not owned:
                del self._owned[place]

    def _notify(self, before: V | None, after: V | None) -> None:
        for listener in self._listeners:
            try:
                listener(before, after)
            except Exception:  # a defect that one object triggers must not affect the others
                metrics.UNREADABLE.labels(str(self.resource)).inc()
                view = after or before
                log.exception(
                    "change of an object not handled: a defect in trainmaster",
                    resource=str(self.resource),
                    object=str(view.key) if view else "",
                )
