"""Versioned objects: all objects of the API, in memory for reads and in SQLite for persistence.

Every change increments one counter, whose value is its resourceVersion. The latest changes are kept as history: watches
read it, and lists at an earlier version are made by undoing later changes. The history is bounded and empty after a
restart; a request for an older version raises ``TooOld``, and the client has to list again.

An object is stored as the JSON of answers, without apiVersion and kind: these depend on the requested version.
"""

import sqlite3
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from trainmaster.core.errors import BadConfig, Trainmaster

HISTORY_COUNT = 10_000
HISTORY_BYTES = 16 * 1024 * 1024

_SCHEMA = """
CREATE TABLE IF NOT EXISTS object (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO counter VALUES (1, 1);
"""
_WRITE = "INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?, ?)"
_REMOVE = "DELETE FROM object WHERE resource = ? AND namespace = ? AND name = ?"
_COUNT = "UPDATE counter SET version = ?"


class StoreFailed(Trainmaster):
    """The disk refused a write; nothing was changed."""


class TooOld(Exception):
    """The history does not contain this version."""


class Place(NamedTuple):
    """The address of an object: ``resource`` is plural.group; the namespace of a cluster-scoped object is empty."""

    resource: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """The sort key of lists, also used for continuation."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Stored(NamedTuple):
    """One object at one version."""

    place: Place
    version: int
    body: bytes

    def decode(self) -> dict[str, Any]:
        """A fresh copy that may be changed."""
        decoded: dict[str, Any] = msgspec.json.decode(self.body)
        return decoded


class Change(NamedTuple):
    """A change at ``version``. ``after`` is None if the object was removed; ``last`` is what a watch shows."""

    version: int
    place: Place
    before: Stored | None
    after: Stored | None
    last: Stored


class _History:
    """The latest changes of one resource. ``floor`` is the newest version whose change was dropped."""

    __slots__ = ("changes", "floor")

    def __init__(self, floor: int) -> None:
        self.changes: deque[Change] = deque()
        self.floor = floor

    def since(self, version: int) -> list[Change]:
        if version < self.floor:
            raise TooOld
        changes = []
        for change in reversed(self.changes):
            if change.version <= version:
                break
            changes.append(change)
        changes.reverse()
        return changes


class Store:
    """SQLite's exclusive lock ensures that one process uses a database at a time, also after a crash."""

    def __init__(
        self, connection: sqlite3.Connection, *, history_count: int = HISTORY_COUNT, history_bytes: int = HISTORY_BYTES
    ) -> None:
        self._connection = connection
        self._objects: dict[str, dict[Place, Stored]] = defaultdict(dict)
        self.version = int(connection.execute("SELECT version FROM counter").fetchone()[0])
        for resource, namespace, name, version, body in connection.execute("SELECT * FROM object"):
            place = Place(resource, namespace, name)
            stored = Stored(place, version, body)
            stored.decode()  # SQLite has no checksums: an error is better found now than during a list
            self._objects[resource][place] = stored
        self._start = self.version
        self._histories: dict[str, _History] = {}
        self._order: deque[str] = deque()
        self._bytes = 0
        self._history_count = history_count
        self._history_bytes = history_bytes
        self._listeners: list[Callable[[Change], None]] = []

    @classmethod
    def open(cls, database: str) -> Self:
        """Raises BadConfig if the database cannot be used."""
        try:
            if database != ":memory:":
                Path(database).touch(mode=0o600)
            connection = sqlite3.connect(database, timeout=0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise BadConfig(f"the database {database} cannot be opened: {_why(error)}") from error
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(_SCHEMA)
            connection.execute("BEGIN IMMEDIATE")  # takes the lock now instead of with the first write
            connection.execute("UPDATE counter SET version = version")
            connection.execute("COMMIT")
            return cls(connection)
        except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
            connection.close()
            raise BadConfig(f"the database {database} cannot be used: {_why(error)}") from error

    def close(self) -> None:
        self._connection.close()

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Calls ``listener`` after every change, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, place: Place) -> Stored | None:
        return self._objects[place.resource].get(place)

    def select(self, resource: str, namespace: str = "") -> list[Stored]:
        """All objects of a resource, in one namespace or in all, sorted as in lists."""
        objects = [
            each for each in self._objects[resource].values() if not namespace or each.place.namespace == namespace
        ]
        objects.sort(key=lambda stored: stored.place.path)
        return objects

    def select_at(self, resource: str, namespace: str, version: int) -> list[Stored]:
        """The objects at an earlier version; raises TooOld."""
        objects = dict(self._objects[resource])
        for change in reversed(self.since(resource, version)):
            if change.before is None:
                objects.pop(change.place, None)
            else:
                objects[change.place] = change.before
        selected = [stored for stored in objects.values() if not namespace or stored.place.namespace == namespace]
        selected.sort(key=lambda stored: stored.place.path)
        return selected

    def resources(self) -> Iterator[str]:
        """Resources that have or had objects."""
        return iter(tuple(self._objects))

    def since(self, resource: str, version: int) -> list[Change]:
        """The changes of a resource after a version; raises TooOld."""
        history = self._histories.get(resource)
        if history is not None:
            return history.since(version)
        if version < self._start:
            raise TooOld
        return []

    def put(self, place: Place, obj: dict[str, Any]) -> Stored:
        """Writes an object and sets its resourceVersion. Raises StoreFailed."""
        version = self.version + 1
        stored = self._encode(place, obj, version)
        self._commit(version, _WRITE, (*place, version, stored.body))
        before = self._objects[place.resource].get(place)
        self._objects[place.resource][place] = stored
        self._notify(Change(version, place, before, stored, stored))
        return stored

    def remove(self, place: Place) -> Stored:
        """Removes an object and returns its last state, at the version of the removal. Raises StoreFailed."""
        before = self._objects[place.resource][place]
        version = self.version + 1
        last = self._encode(place, before.decode(), version)
        self._commit(version, _REMOVE, place)
        del self._objects[place.resource][place]
        self._notify(Change(version, place, before, None, last))
        return last

    def _encode(self, place: Place, obj: dict[str, Any], version: int) -> Stored:
        obj = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(version)}
        return Stored(place, version, msgspec.json.encode(obj))

    def _commit(self, version: int, statement: str, parameters: tuple[Any, ...]) -> None:
        try:
            self._connection.execute("BEGIN")
            self._connection.execute(statement, parameters)
            self._connection.execute(_COUNT, (version,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise StoreFailed(f"the database refused a write: {_why(error)}; nothing was changed") from error
        self.version = version

    def _notify(self, change: Change) -> None:
        resource = change.place.resource
        history = self._histories.get(resource)
        if history is None:
            history = self._histories[resource] = _History(self._start)
        history.changes.append(change)
        self._order.append(resource)
        self._bytes += len(change.last.body)
        while len(self._order) > self._history_count or self._bytes > self._history_bytes:
            self._forget()
        for listener in self._listeners:
            listener(change)

    def _forget(self) -> None:
        history = self._histories[self._order.popleft()]
        oldest = history.changes.popleft()
        history.floor = oldest.version
        self._bytes -= len(oldest.last.body)


def _why(error: Exception) -> str:
    message = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if "locked" in message:
        return "another process uses it; stop that process first"
    if "full" in message:
        return "the disk is full"
    if "readonly" in message or "read-only" in message.lower():
        return "it is read-only"
    is_noise = isinstance(error, msgspec.DecodeError | UnicodeDecodeError)
    if is_noise or "malformed" in message or "not a database" in message:
        return "it is damaged or not a database of trainmaster; move it away to start with an empty one"
    return message
