from trainmaster.runtime.turns import Turns


def turns_of(*items: str) -> Turns[str]:
    """Items as ``namespace/name``."""
    turns: Turns[str] = Turns()
    for item in items:
        turns.add(item.partition("/")[0], item)
    return turns


def taken(turns: Turns[str]) -> list[str]:
    return [item for item in iter(turns.take, None) if item]


def test_namespaces_take_turns_and_items_of_a_namespace_keep_their_order() -> None:
    assert taken(turns_of("a/1", "a/2", "a/3", "b/1", "c/1", "b/2")) == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]


def test_an_item_waits_once() -> None:
    turns = turns_of("a/1", "a/1")

    assert len(turns) == 1
    assert taken(turns) == ["a/1"]


def test_a_discarded_item_does_not_wait() -> None:
    turns = turns_of("a/1", "a/2")
    turns.discard("a", "a/1")
    turns.discard("a", "a/1")
    turns.discard("b", "b/1")

    assert len(turns) == 1
    assert taken(turns) == ["a/2"]


def test_a_skipped_namespace_keeps_its_items() -> None:
    turns = turns_of("a/1", "b/1")

    assert turns.take(skip={"a"}) == "b/1"
    assert not turns.has_turn(skip={"a"})
    assert turns.take() == "a/1"
    assert not turns.has_turn()
