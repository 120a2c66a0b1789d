"""The store: versions, history, the past, and a disk that refuses."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from trainmaster.core.errors import BadConfig
from trainmaster.local.apiserver.store.store import Change, Place, Store, StoreFailed, TooOld


def place(name: str, namespace: str = "n", resource: str = "things") -> Place:
    return Place(resource, namespace, name)


def thing(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}, **more}


def small(store: Store, count: int) -> Store:
    """The same store with a history of this many changes."""
    return Store(store._connection, history_count=count)


def names(found: Any) -> list[str]:
    return [stored.place.name for stored in found]


class Refusing:
    """A connection whose disk is full."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.is_full = False

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, *arguments: Any) -> Any:
        if self.is_full and statement.startswith(("INSERT", "DELETE")):
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(statement, *arguments)


def test_every_change_of_any_resource_has_the_next_version() -> None:
    store = Store.open(":memory:")
    first = store.put(place("a"), thing())
    second = store.put(place("b", resource="others"), thing())
    last = store.remove(place("a"))
    assert [second.version - first.version, last.version - second.version] == [1, 1]
    assert last.decode()["metadata"]["resourceVersion"] == str(store.version)


def test_an_object_is_kept_without_its_api_version() -> None:
    stored = Store.open(":memory:").put(place("a"), thing(spec={"x": 1}))
    assert stored.decode() == {"metadata": {"name": "x", "resourceVersion": str(stored.version)}, "spec": {"x": 1}}


def test_objects_and_the_counter_survive_a_restart(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "db"))
    kept = store.put(place("a"), thing())
    store.put(place("b"), thing())
    store.remove(place("b"))
    version = store.version
    store.close()
    store = Store.open(str(tmp_path / "db"))
    assert (store.version, store.select("things")) == (version, [kept])
    store.close()


def test_a_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    Store.open(str(tmp_path / "db")).close()
    assert (tmp_path / "db").stat().st_mode & 0o077 == 0


def test_a_database_is_locked_by_one_server(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "db"))
    with pytest.raises(BadConfig, match="another process uses it"):
        Store.open(str(tmp_path / "db"))
    store.close()
    Store.open(str(tmp_path / "db")).close()


def test_a_file_that_is_not_a_database_has_a_message(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(BadConfig, match="move it away"):
        Store.open(str(tmp_path / "db"))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="absent/db cannot be opened"):
        Store.open(str(tmp_path / "absent" / "db"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "db"), "Permission denied"),
        (OSError(30, "Read-only file system", "db"), "it is read-only"),
        (sqlite3.OperationalError("database or disk is full"), "the disk is full"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "it is read-only"),
    ],
)
def test_the_error_of_a_database_is_one_sentence(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sqlite3, "connect", refuse)
    with pytest.raises(BadConfig) as refused:
        Store.open(str(tmp_path / "db"))
    assert str(refused.value) == f"the database {tmp_path / 'db'} cannot be opened: {said}"


def test_a_write_that_the_disk_refuses_changes_nothing() -> None:
    connection = Refusing(Store.open(":memory:")._connection)
    store = Store(connection)  # type: ignore[arg-type]
    heard: list[Change] = []
    store.listen(heard.append)
    kept = store.put(place("a"), thing())
    connection.is_full = True
    with pytest.raises(StoreFailed, match="the disk is full"):
        store.put(place("a"), thing(spec={"x": 1}))
    with pytest.raises(StoreFailed):
        store.remove(place("a"))
    assert (store.version, store.get(place("a")), len(heard)) == (kept.version, kept, 1)
    connection.is_full = False
    assert store.put(place("b"), thing()).version == kept.version + 1


def test_a_list_is_sorted_as_etcd_sorts() -> None:
    store = Store.open(":memory:")
    for namespace, name in (("a", "z"), ("a-b", "a"), ("a", "b")):
        store.put(place(name, namespace), thing())
    found = [(stored.place.namespace, stored.place.name) for stored in store.select("things")]
    assert found == [("a-b", "a"), ("a", "b"), ("a", "z")]
    assert names(store.select("things", "a")) == ["b", "z"]


def test_a_list_of_the_past_undoes_later_changes() -> None:
    store = Store.open(":memory:")
    store.put(place("a"), thing(spec=1))
    then = store.put(place("b"), thing()).version
    store.put(place("a"), thing(spec=2))
    store.remove(place("b"))
    store.put(place("c"), thing())
    assert names(store.select("things")) == ["a", "c"]
    past = store.select_at("things", "", then)
    assert names(past) == ["a", "b"]
    assert past[0].decode()["spec"] == 1


def test_history_contains_the_changes_of_one_resource() -> None:
    store = Store.open(":memory:")
    start = store.version
    created = store.put(place("a"), thing())
    store.put(place("x", resource="others"), thing())
    gone = store.remove(place("a"))
    first, second = store.since("things", start)
    assert (first.before, first.after) == (None, created)
    assert (second.before, second.after, second.last) == (created, None, gone)
    assert store.since("things", gone.version) == []


def test_history_is_bounded_and_its_loss_is_noticed_per_resource() -> None:
    store = small(Store.open(":memory:"), 3)
    start = store.version
    store.put(place("quiet", resource="others"), thing())
    quiet = store.version
    for _ in range(5):
        store.put(place("a"), thing())
    with pytest.raises(TooOld):
        store.since("things", start)
    with pytest.raises(TooOld):
        store.since("others", start)
    # The history of the other resource is complete: a watch of it may continue.
    assert store.since("others", quiet) == []
    assert len(store.since("things", store.version - 3)) == 3


def test_history_is_bounded_in_bytes() -> None:
    store = Store(Store.open(":memory:")._connection, history_bytes=1000)
    for _ in range(10):
        store.put(place("a"), thing(spec="x" * 300))
    assert len(store.since("things", store.version - 1)) == 1
    with pytest.raises(TooOld):
        store.since("things", store.version - 9)


def test_the_history_is_empty_after_a_restart(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "db"))
    store.put(place("a"), thing())
    store.close()
    store = Store.open(str(tmp_path / "db"))
    with pytest.raises(TooOld):
        store.since("things", store.version - 1)
    assert store.since("things", store.version) == []
    store.close()


def test_a_removed_listener_is_not_called() -> None:
    store = Store.open(":memory:")
    heard: list[Change] = []
    leave = store.listen(heard.append)
    store.put(place("a"), thing())
    leave()
    store.put(place("a"), thing())
    assert len(heard) == 1
