"""Read your own writes: a job is not planned on a store that is older than our last write for it.

Every write returns the resourceVersion that it made. Versions of one resource are ordered, so "the store
has seen it" is a comparison of integers. Nothing is expected, counted or timed out. After etcd was restored from
a backup, versions go on from a lower one: earlier writes are not waited for, and the store is listed again.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from trainmaster.core.ids import Key, Resource
from trainmaster.runtime.store import Store


class Barrier:
    def __init__(self, stores: Mapping[Resource, Store[Any]]) -> None:
        self._stores = stores
        self._written: dict[str, dict[Resource, int]] = {}
        self._deleted: dict[str, set[tuple[Resource, Key, str]]] = {}
        for resource, store in stores.items():
            store.on_rewind(partial(self._rewound, resource))

    def wrote(self, job_uid: str, resource: Resource, version: int) -> None:
        versions = self._written.setdefault(job_uid, {})
        versions[resource] = max(version, versions.get(resource, 0))

    def deleted(self, job_uid: str, resource: Resource, key: Key, uid: str) -> None:
        """For a delete whose answer carried no version: wait until the store shows it."""
        self._deleted.setdefault(job_uid, set()).add((resource, key, uid))

    def is_open(self, job_uid: str) -> bool:
        """True when the stores show all that was written for this job; what they show is forgotten."""
        written = self._written.get(job_uid, {})
        for resource in [r for r, version in written.items() if self._stores[r].seen >= version]:
            del written[resource]
        waiting = {entry for entry in self._deleted.get(job_uid, ()) if self._shows(*entry)}
        if waiting:
            self._deleted[job_uid] = waiting
        else:
            self._deleted.pop(job_uid, None)
        if written or waiting:
            return False
        self._written.pop(job_uid, None)
        return True

    def forget(self, job_uid: str) -> None:
        self._written.pop(job_uid, None)
        self._deleted.pop(job_uid, None)

    def _rewound(self, resource: Resource) -> None:
        for written in self._written.values():
            written.pop(resource, None)
        for job_uid, deleted in self._deleted.items():
            self._deleted[job_uid] = {entry for entry in deleted if entry[0] != resource}

    def _shows(self, resource: Resource, key: Key, uid: str) -> bool:
        view = self._stores[resource].get(key)
        return view is not None and view.uid == uid and not view.deleting
