"""watch: the changes of a resource from a version on, as lines.

A watch has no queue. It reads the store's history from the last version that it has sent, and is woken up after each
change. So a slow reader costs no memory: when the history no longer has its version, its watch ends and it has to list
again.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import msgspec

from trainmaster.local.apiserver.http import answer
from trainmaster.local.apiserver.http.negotiate import Form
from trainmaster.local.apiserver.http.option import ListOptions
from trainmaster.local.apiserver.http.status import Refusal, expired
from trainmaster.local.apiserver.objects.selector import Selection, selection
from trainmaster.local.apiserver.objects.state import State, Target
from trainmaster.local.apiserver.store.store import Change, Store, Stored, TooOld

BOOKMARK_PERIOD = 60.0
DEFAULT_TIMEOUT = 1800
_LARGEST_BATCH = 500
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


class WatchNotifier:
    """Wakes the watches of a resource after a change, and all watches when the server closes."""

    def __init__(self, store: Store) -> None:
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.is_closed = False
        store.listen(self._notify)

    @contextmanager
    def subscribe(self, resource: str) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self._events[resource].add(event)
        try:
            yield event
        finally:
            self._events[resource].discard(event)

    def close(self) -> None:
        self.is_closed = True
        for events in self._events.values():
            for event in events:
                event.set()

    def __len__(self) -> int:
        return sum(map(len, self._events.values()))

    def _notify(self, change: Change) -> None:
        for event in self._events.get(change.place.resource, ()):
            event.set()


class Watch:
    """One watch: ``lines`` yields batches of lines until the timeout."""

    def __init__(
        self,
        state: State,
        notifier: WatchNotifier,
        target: Target,
        options: ListOptions,
        form: Form,
        include_object: str,
    ) -> None:
        self._state = state
        self._notifier = notifier
        self._served = target.served
        self._namespace = target.namespace
        self._resource = str(target.served.resource)
        self._selection: Selection = selection(target.served, options.labels, options.fields)
        self._options = options
        self._form = form
        self._include_object = include_object
        self._has_columns = False
        self._from = options.version_number

    async def lines(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._options.timeout if self._options.timeout > 0 else DEFAULT_TIMEOUT)
        store = self._state.store
        with self._notifier.subscribe(self._resource) as wakeup:
            cursor = self._from
            if self._wants_initial():
                cursor = store.version
                yield b"".join(self._initial(cursor))
            while not self._notifier.is_closed:
                wakeup.clear()
                try:
                    changes = store.since(self._resource, cursor)
                except TooOld:
                    yield self._error(expired(f"too old resource version: {cursor} ({store.version})"))
                    return
                # Changes of other resources are skipped: the next read begins after them.
                cursor = max(cursor, store.version)
                for start in range(0, len(changes), _LARGEST_BATCH):
                    yield b"".join(self._events(changes[start : start + _LARGEST_BATCH]))
                if await self._pause(wakeup, deadline):
                    continue
                if self._options.bookmarks:
                    yield self._bookmark(cursor)
                if loop.time() >= deadline:
                    return

    async def _pause(self, wakeup: asyncio.Event, deadline: float) -> bool:
        """Waits for a change; False if a bookmark is due or the timeout is reached."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(deadline, loop.time() + BOOKMARK_PERIOD)):
                await wakeup.wait()
        except TimeoutError:
            return False
        return True

    def _wants_initial(self) -> bool:
        if self._options.initial_events is not None:
            return self._options.initial_events
        return self._from == 0

    def _initial(self, version: int) -> Iterator[bytes]:
        for stored in self._state.store.select(self._resource, self._namespace):
            if self._selection.matches(stored):
                yield self._line("ADDED", stored)
        if self._options.initial_events and self._options.bookmarks:
            yield self._bookmark(version, _INITIAL_END)

    def _events(self, changes: list[Change]) -> Iterator[bytes]:
        for change in changes:
            if self._namespace and change.place.namespace != self._namespace:
                continue
            was = change.before is not None and self._selection.matches(change.before)
            is_now = change.after is not None and self._selection.matches(change.after)
            if is_now:
                yield self._line("MODIFIED" if was else "ADDED", change.last)
            elif was and change.before is not None:
                yield self._line("DELETED", change.last if change.after is None else _aged(change.before, change))

    def _line(self, kind: str, stored: Stored) -> bytes:
        body = answer.one(self._served, stored, self._form, self._include_object, self._state.now())
        if self._form.kind == "Table":
            body = self._without_columns(body)
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)

    def _without_columns(self, body: bytes) -> bytes:
        """Column definitions are sent only once: a client keeps those of the first row."""
        if not self._has_columns:
            self._has_columns = True
            return body
        return msgspec.json.encode({**msgspec.json.decode(body), "columnDefinitions": None})

    def _bookmark(self, version: int, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        resource = self._served.resource
        obj: dict[str, object] = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if self._form.kind == "Table":
            obj = _bookmark_table(obj, metadata)
        elif self._form.kind:
            obj = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return msgspec.json.encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def _error(self, refusal: Refusal) -> bytes:
        return msgspec.json.encode({"type": "ERROR", "object": refusal.body}) + b"\n"


def _bookmark_table(obj: dict[str, object], metadata: dict[str, object]) -> dict[str, object]:
    row = {"cells": [], "object": obj}
    meta = {"resourceVersion": metadata["resourceVersion"]}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": None,
        "rows": [row],
    }


def _aged(before: Stored, change: Change) -> Stored:
    """The last state that matched the selector, at the version at which it stopped matching."""
    obj = before.decode()
    obj["metadata"]["resourceVersion"] = str(change.version)
    return Stored(before.place, change.version, msgspec.json.encode(obj))
