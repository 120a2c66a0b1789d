"""Which rank a replica has, and where its peers find it."""

import pytest

from trainmaster.core.slot import numbered
from trainmaster.core.wire import ObjectMeta
from trainmaster.kinds.ditask.rank import MAX_GAPS, nodes, nodes_size, ranks_of
from trainmaster.kinds.ditask.types import DITaskJob, DITaskSpec, DITaskStatus, Task

DOMAIN = "svc.cluster.local"
JOB = DITaskJob(ObjectMeta("job", "ns"), DITaskSpec(tasks=(Task({}),)))


@pytest.mark.parametrize(
    ("stored", "replicas", "expected"),
    [
        pytest.param({}, {"a": 2, "b": 1}, {"a-0": 0, "a-1": 1, "b-0": 2}, id="in the order of tasks, from 0"),
        pytest.param({"a-0": 0, "b-0": 1}, {"a": 2, "b": 1}, {"a-0": 0, "b-0": 1, "a-1": 2}, id="new ones follow"),
        pytest.param({"a-0": 0, "b-0": 1}, {"a": 2, "b": 2}, {"a-0": 0, "b-0": 1, "a-1": 2, "b-1": 3}, id="several"),
        pytest.param({"a-0": 0, "a-1": 1}, {"a": 1}, {"a-0": 0, "a-1": 1}, id="one that is scaled away keeps its rank"),
        pytest.param(
            {"a-0": 0, "a-1": 1, "b-0": 2}, {"a": 2}, {"a-0": 0, "a-1": 1}, id="one of a removed task does not"
        ),
        pytest.param({"a-0": 5}, {"a": 2}, {"a-0": 5, "a-1": 6}, id="gaps are not filled"),
        pytest.param({"a-1-0": 0}, {"a": 2}, {"a-0": 0, "a-1": 1}, id="the name of a task may have a dash"),
    ],
)
def test_a_replica_has_the_rank_that_is_stored_or_the_next_one(
    stored: dict[str, int], replicas: dict[str, int], expected: dict[str, int]
) -> None:
    assert ranks_of(stored, numbered("job", replicas), replicas, ()) == expected


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        pytest.param("a-0", {"a-0": 0, "a-1": 1, "b-0": 2, "b-1": 3}, id="lower ranks do not dial it"),
        pytest.param("b-0", {"a-0": 0, "b-0": 2, "b-1": 3}, id="a higher one is created without its address"),
    ],
)
def test_a_replica_that_is_scaled_away_keeps_its_rank_until_a_pod_that_would_dial_it_is_created(
    missing: str, expected: dict[str, int]
) -> None:
    stored, replicas = {"a-0": 0, "a-1": 1, "b-0": 2, "b-1": 3}, {"a": 1, "b": 1}
    slots = numbered("job", replicas)

    assert ranks_of(stored, slots, replicas, [slot for slot in slots if slot.place == missing]) == expected


def test_gaps_do_not_add_up_for_ever() -> None:
    """One of two replicas is scaled away, the other restarts, and the first comes back, again and again."""
    both, one = numbered("job", {"a": 1, "b": 1}), numbered("job", {"b": 1})
    ranks = dict[str, int]()

    for _ in range(10_000):
        ranks = ranks_of(ranks, both, {"a", "b"}, ())
        ranks = ranks_of(ranks, one, {"a", "b"}, one)
        ranks = ranks_of(ranks, both, {"a", "b"}, ())
        ranks = ranks_of(ranks, both[:1], {"a", "b"}, both[:1])

    assert MAX_GAPS <= max(ranks.values()) <= MAX_GAPS + 2


def address(place: str) -> str:
    return f"job-{place}.di-job.ns.{DOMAIN}"


def test_addresses_are_in_the_order_of_ranks_and_a_gap_is_localhost() -> None:
    slots = numbered("job", {"a": 2, "b": 1})

    found = nodes(JOB, slots, {"a-0": 0, "b-0": 1, "a-1": 3, "a-2": 2}, DOMAIN).split(",")

    assert found == [address("a-0"), address("b-0"), "localhost", address("a-1")]


def test_the_size_of_the_addresses_is_known_before_there_are_any() -> None:
    replicas = {"a": 12, "b": 3}
    slots = numbered("job", replicas)
    gone = DITaskJob(JOB.metadata, JOB.spec, DITaskStatus(ranks={"a-99": 99}))

    whole = nodes(JOB, slots, ranks_of({}, slots, replicas, ()), DOMAIN)
    later = nodes(gone, slots, ranks_of({"a-99": 99}, slots, replicas, ()), DOMAIN)

    assert len(whole) <= nodes_size(JOB, replicas, DOMAIN) <= len(whole) + 20
    assert len(later) <= nodes_size(gone, replicas, DOMAIN) <= len(later) + 20


def test_a_stored_index_of_any_length_is_no_error() -> None:
    """Python reads no number of more than 4 300 digits."""
    hostile = DITaskJob(JOB.metadata, JOB.spec, DITaskStatus(ranks={"a-0": 0, f"a-{'9' * 5000}": 1}))

    assert nodes_size(hostile, {"a": 1}, DOMAIN) == nodes_size(JOB, {"a": 1}, DOMAIN) + len("localhost,")
