"""Versioned objects: everything that the API has, in memory for reading and in SQLite for staying.

Every change gets the next number of one counter, its resourceVersion. The latest changes are kept as history: from it
watches are served, and lists of the past are made by undoing what came after. History is bounded, and a restart begins
with none; who asks for a version before it gets ``TooOld`` and has to list again.

An object is kept as the JSON that is answered, without its apiVersion and kind: those depend on the version that is
asked for.
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
    """The disk refused a write; nothing has changed."""


class TooOld(Exception):
    """The history does not reach back to this version."""


class Place(NamedTuple):
    """Where an object is: ``resource`` is plural.group; the namespace of a cluster's object is empty."""

    resource: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """What lists are sorted and continued by."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Stored(NamedTuple):
    """One object at one version."""

    place: Place
    version: int
    body: bytes

    def decode(self) -> dict[str, Any]:
        """A fresh copy, for whoever wants to change it."""
        decoded: dict[str, Any] = msgspec.json.decode(self.body)
        return decoded


class Change(NamedTuple):
    """What happened at ``version``. ``after`` is None when the object went; ``last`` is what a watch shows of it."""

    version: int
    place: Place
    before: Stored | None
    after: Stored | None
    last: Stored


class _History:
    """The latest changes of one resource. ``floor`` is the newest version of which a change has been forgotten."""

    __slots__ = ("changes", "floor")

    def __init__(self, floor: int) -> None:
        self.changes: deque[Change] = deque()
        self.floor = floor

    def since(self, version: int) -> list[Change]:
        if version < self.floor:
            raise TooOld
        found = []
        for change in reversed(self.changes):
            if change.version <= version:
                break
            found.append(change)
        found.reverse()
        return found


class Store:
    """One process uses a database at a time; SQLite's exclusive lock sees to it, also after a crash."""

    def __init__(
        self, connection: sqlite3.Connection, *, history_count: int = HISTORY_COUNT, history_bytes: int = HISTORY_BYTES
    ) -> None:
        self._connection = connection
        self._objects: dict[str, dict[Place, Stored]] = defaultdict(dict)
        self.version = int(connection.execute("SELECT version FROM counter").fetchone()[0])
        for resource, namespace, name, version, body in connection.execute("SELECT * FROM object"):
            place = Place(resource, namespace, name)
            stored = Stored(place, version, body)
            stored.decode()  # SQLite has no checksums: better now than in the middle of a list
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
        """Raises BadConfig with one sentence when the database cannot be used."""
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
            connection.execute("BEGIN IMMEDIATE")  # takes the lock now and not with the first write
            connection.execute("UPDATE counter SET version = version")
            connection.execute("COMMIT")
            return cls(connection)
        except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
            connection.close()
            raise BadConfig(f"the database {database} cannot be used: {_why(error)}") from error

    def close(self) -> None:
        self._connection.close()

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, until the answer of this is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, place: Place) -> Stored | None:
        return self._objects[place.resource].get(place)

    def select(self, resource: str, namespace: str = "") -> list[Stored]:
        """All of a resource, in a namespace or in all, in the order of lists."""
        found = [
            each for each in self._objects[resource].values() if not namespace or each.place.namespace == namespace
        ]
        found.sort(key=lambda stored: stored.place.path)
        return found

    def select_at(self, resource: str, namespace: str, version: int) -> list[Stored]:
        """As it was at an earlier version; raises TooOld."""
        objects = dict(self._objects[resource])
        for change in reversed(self.since(resource, version)):
            if change.before is None:
                objects.pop(change.place, None)
            else:
                objects[change.place] = change.before
        found = [each for each in objects.values() if not namespace or each.place.namespace == namespace]
        found.sort(key=lambda stored: stored.place.path)
        return found

    def resources(self) -> Iterator[str]:
        """Those of which there ever was an object."""
        return iter(tuple(self._objects))

    def since(self, resource: str, version: int) -> list[Change]:
        """What happened to a resource after a version; raises TooOld."""
        history = self._histories.get(resource)
        if history is not None:
            return history.since(version)
        if version < self._start:
            raise TooOld
        return []

    def put(self, place: Place, obj: dict[str, Any]) -> Stored:
        """Write an object; its resourceVersion is set here. Raises StoreFailed."""
        version = self.version + 1
        stored = self._encode(place, obj, version)
        self._commit(version, _WRITE, (*place, version, stored.body))
        before = self._objects[place.resource].get(place)
        self._objects[place.resource][place] = stored
        self._tell(Change(version, place, before, stored, stored))
        return stored

    def remove(self, place: Place) -> Stored:
        """Remove an object and answer its last state, at the version of its end. Raises StoreFailed."""
        before = self._objects[place.resource][place]
        version = self.version + 1
        last = self._encode(place, before.decode(), version)
        self._commit(version, _REMOVE, place)
        del self._objects[place.resource][place]
        self._tell(Change(version, place, before, None, last))
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

    def _tell(self, change: Change) -> None:
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
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if "locked" in said:
        return "another process uses it; stop that one first"
    if "full" in said:
        return "the disk is full"
    if "readonly" in said or "read-only" in said.lower():
        return "it is read-only"
    is_noise = isinstance(error, msgspec.DecodeError | UnicodeDecodeError)
    if is_noise or "malformed" in said or "not a database" in said:
        return "it is damaged or no database of trainmaster; move it away to start with an empty one"
    return said
