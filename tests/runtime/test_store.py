from collections.abc import MutableMapping
from typing import Any

import pytest
from prometheus_client import REGISTRY

from tests.runtime.kind import TOY, a_pod, a_toy, toy_json
from trainmaster.core.errors import NotSynced
from trainmaster.core.ids import POD, Key
from trainmaster.core.view import JobView, PodView
from trainmaster.runtime.store import Store

OTHER = toy_json("other")
UID, OTHER_UID = "uid-of-mnist", "uid-of-other"

Change = tuple[PodView | None, PodView | None]


def a_store(*pods: PodView, version: int = 100) -> tuple[Store[PodView], list[Change]]:
    """A store that has listed these pods, and what it tells from now on."""
    store = Store[PodView](POD)
    store.replace(pods, version)
    told: list[Change] = []
    store.listen(lambda before, after: told.append((before, after)))
    return store, told


# --- not read yet is not empty ---


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda store: store.get(Key("ml", "a")), id="get"),
        pytest.param(lambda store: store.owned("ml", UID), id="owned"),
        pytest.param(lambda store: store.keys(), id="keys"),
        pytest.param(lambda store: store.put(a_pod()), id="put"),
        pytest.param(lambda store: store.remove(a_pod()), id="remove"),
    ],
)
def test_a_store_that_was_not_listed_completely_raises(ask: Any) -> None:
    store = Store[PodView](POD)

    assert not store.is_synced
    with pytest.raises(NotSynced, match="pods were not listed completely yet"):
        ask(store)


def test_an_empty_list_is_a_complete_one() -> None:
    store, _ = a_store()

    assert store.is_synced
    assert (store.get(Key("ml", "a")), list(store.owned("ml", UID)), list(store.keys())) == (None, [], [])


# --- by key and by owner ---


def test_a_view_is_found_by_key_and_by_the_uid_of_its_owner() -> None:
    store, _ = a_store()
    store.put(pod := a_pod("mnist-worker-0"))

    assert store.get(Key("ml", "mnist-worker-0")) is pod
    assert list(store.owned("ml", UID)) == [pod]
    assert list(store.keys()) == [Key("ml", "mnist-worker-0")]


def test_a_newer_view_takes_the_place_of_the_older() -> None:
    store, _ = a_store(a_pod(version=1, phase="Pending"))
    store.put(newer := a_pod(version=2, phase="Running"))

    assert store.get(newer.key) is newer
    assert list(store.owned("ml", UID)) == [newer]


def test_a_view_that_changes_its_owner_is_found_under_the_new_one_alone() -> None:
    store, _ = a_store(a_pod(version=1))
    store.put(moved := a_pod(version=2, owner=OTHER))

    assert list(store.owned("ml", UID)) == []
    assert list(store.owned("ml", OTHER_UID)) == [moved]


def test_a_removed_view_is_found_nowhere() -> None:
    store, _ = a_store(pod := a_pod(version=1), kept := a_pod("mnist-worker-1"))
    store.remove(a_pod(version=2))

    assert store.get(pod.key) is None
    assert list(store.owned("ml", UID)) == [kept]


def test_an_owner_without_children_leaves_nothing_behind() -> None:
    store, _ = a_store()
    for n in range(100):
        store.put(a_pod(f"p-{n}", owner=toy_json(f"job-{n}")))
        store.remove(a_pod(f"p-{n}", owner=toy_json(f"job-{n}")))

    assert store._owned == {}


def test_a_job_is_nobodys_child() -> None:
    store = Store[JobView](TOY)
    store.replace([a_toy()], 1)
    store.put(a_toy(version=2))
    store.remove(a_toy(version=3))

    assert store._owned == {}


def test_a_complete_list_builds_the_owner_index_anew() -> None:
    store, _ = a_store(a_pod("mnist-worker-0"), a_pod("mnist-worker-1"))
    store.replace([kept := a_pod("mnist-worker-1", version=200)], 300)

    assert list(store.owned("ml", UID)) == [kept]


# --- what listeners hear ---


def test_listeners_hear_of_what_is_put_and_removed() -> None:
    store, told = a_store()
    first, second = a_pod(version=1), a_pod(version=2)
    store.put(first)
    store.put(second)
    store.remove(a_pod(version=3))

    assert told == [(None, first), (first, second), (second, None)]


def test_removing_what_was_never_there_is_silent() -> None:
    store, told = a_store()
    store.remove(a_pod(version=700))

    assert told == []
    assert store.seen == 700


def test_a_complete_list_tells_the_differences_alone() -> None:
    same, changed, gone = a_pod("same"), a_pod("changed", version=1), a_pod("gone")
    store, told = a_store(same, changed, gone)
    newer, fresh = a_pod("changed", version=2), a_pod("fresh")
    store.replace([same, newer, fresh], 200)

    assert sorted(told, key=_name) == [(changed, newer), (None, fresh), (gone, None)]


def _name(change: Change) -> str:
    return next(view.key.name for view in change if view is not None)


def test_a_complete_list_shows_that_a_name_has_a_new_incarnation() -> None:
    first, second = a_pod(uid="first", version=1), a_pod(uid="second", version=5)
    store, told = a_store(first)
    store.replace([second], 200)

    assert told == [(first, second)]


def test_when_a_listener_hears_of_a_change_the_store_shows_it() -> None:
    store = Store[PodView](POD)
    store.replace([], 1)
    shown: list[Any] = []
    store.listen(lambda _, after: shown.append((store.seen, len(list(store.owned("ml", UID))))))
    store.put(a_pod(version=7))
    store.remove(a_pod(version=8))

    assert shown == [(7, 1), (8, 0)]


# --- how far it has seen ---


def test_seen_advances_with_every_change_and_never_goes_back() -> None:
    store, _ = a_store(version=100)
    assert store.seen == 100
    store.put(a_pod(version=110))
    assert store.seen == 110
    store.remove(a_pod(version=120))
    assert store.seen == 120
    store.advance(130)
    assert store.seen == 130
    store.advance(90)
    store.put(a_pod(version=95))
    assert store.seen == 130
    store.replace([], 140)
    assert store.seen == 140


# --- listeners that fail ---


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda store: store.replace([a_pod("a"), a_pod("b")], 200), id="list"),
        pytest.param(lambda store: [store.put(a_pod("a")), store.put(a_pod("b"))], id="watch"),
    ],
)
def test_a_listener_that_fails_for_one_object_hides_it_from_nobody(
    change: Any, logs: list[MutableMapping[str, Any]]
) -> None:
    def fail(before: PodView | None, after: PodView | None) -> None:
        if after is not None and after.key.name == "a":
            raise RecursionError("too deep")
        heard.append(after)

    heard: list[PodView | None] = []
    store = Store[PodView](POD)
    store.replace([], 100)
    store.listen(fail)
    store.listen(lambda before, after: told.append(after))
    told: list[PodView | None] = []
    before = REGISTRY.get_sample_value("trainmaster_unreadable_objects_total", {"resource": "pods"}) or 0.0

    change(store)

    assert heard == [a_pod("b")]
    assert sorted(view.key.name for view in told if view) == ["a", "b"]
    assert REGISTRY.get_sample_value("trainmaster_unreadable_objects_total", {"resource": "pods"}) == before + 1
    assert [(line["resource"], line["object"]) for line in logs] == [("pods", "ml/a")]


# --- etcd was restored from a backup ---


def test_a_store_that_was_rewound_shows_nothing_until_it_is_listed() -> None:
    store, told = a_store(a_pod("a"), version=200)
    store.rewind()

    with pytest.raises(NotSynced):
        store.get(Key("ml", "a"))
    assert told == []

    store.replace([a_pod("a", version=50)], 60)
    assert (store.seen, list(store.keys())) == (60, [Key("ml", "a")])


def test_after_a_rewind_listeners_are_called_for_all_objects_also_of_the_same_version() -> None:
    kept, lost, new = a_pod("kept", version=50), a_pod("lost", version=90), a_pod("new", version=50)
    store, told = a_store(kept, lost)
    store.rewind()
    store.rewind()  # a list that failed in between
    store.replace([kept, new], 60)

    assert sorted(told, key=str) == sorted([(kept, kept), (lost, None), (None, new)], key=str)
