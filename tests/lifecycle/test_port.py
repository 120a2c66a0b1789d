"""What the allocator promises, without any job."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.lifecycle import port
from trainmaster.lifecycle.port import FIRST, LAST, Allotment, PortError, PortRules, allot, is_complete

TRAINERS = {"trainer-0": (24446,), "trainer-1": (24446,)}
CLUSTER = PortRules(per_job=1000, per_namespace=2000)
MACHINE = PortRules(per_job=1000, per_namespace=2000, is_one_machine=True)
EVERY = frozenset(range(FIRST, LAST + 1))


def allotted(
    wanted: port.Wanted = TRAINERS,
    stored: port.Ports | None = None,
    *,
    used: Mapping[str, Sequence[int]] | None = None,
    taken: frozenset[int] = frozenset(),
    declared: frozenset[int] = frozenset(),
    namespace_ports: int = 0,
    rules: PortRules = CLUSTER,
    uid: str = "a-uid",
) -> Allotment:
    return allot(
        wanted,
        stored or {},
        rules=rules,
        used=used or {},
        taken=taken,
        declared=declared,
        namespace_ports=namespace_ports,
        uid=uid,
    )


def error_of(found: Allotment) -> PortError:
    assert found.error is not None
    return found.error


def numbers(found: Allotment) -> list[int]:
    return [number for given in found.ports.values() for number in given.values()]


def test_every_declared_port_of_every_replica_gets_one_of_its_own() -> None:
    found = allotted({"ps-0": (7000, 7001), "ps-1": (7000, 7001)})

    assert {slot: list(given) for slot, given in found.ports.items()} == {
        "ps-0": ["7000", "7001"],
        "ps-1": ["7000", "7001"],
    }
    assert len(set(numbers(found))) == 4
    assert sorted(found.drawn) == sorted(numbers(found))
    assert found.is_new


def test_ports_for_a_range_follow_each_other_past_what_is_taken() -> None:
    begin = numbers(allotted({"a": (1,)}))[0]

    found = allotted({"a": (range(7000, 7003), 80)}, taken=frozenset({begin + 2, begin + 4}))

    row = range(begin + 5, begin + 8)
    assert found.ports == {"a": {"7000": row[0], "7001": row[1], "7002": row[2], "80": begin + 8}}
    assert sorted(found.drawn) == [*row, begin + 8]


def test_a_range_does_not_go_round_at_the_end() -> None:
    begin = numbers(allotted({"a": (1,)}))[0]
    free = {LAST - 1, LAST, FIRST, FIRST + 1, FIRST + 2}
    taken = frozenset(range(FIRST, LAST + 1)) - free

    assert FIRST + 2 < begin < LAST - 1
    assert numbers(allotted({"a": (range(80, 83),)}, taken=taken)) == [FIRST, FIRST + 1, FIRST + 2]


def test_a_range_that_is_on_record_or_in_use_is_left_as_it_is() -> None:
    """By its first one: an aggregator of before had no second one on record."""
    wanted = {"a": (range(7000, 7002),)}

    assert is_complete(wanted, {"a": {"7000": 20001}})
    assert not is_complete(wanted, {"a": {"7001": 20001}})
    assert allotted(wanted, used={"a": (7000,)}).ports == {"a": {"7000": 7000, "7001": 7001}}


def test_without_a_row_that_is_free_it_is_said_how_long_it_has_to_be() -> None:
    every_other = frozenset(range(FIRST, LAST + 1, 2))

    found = allotted({"a": (range(7000, 7002),)}, taken=every_other, rules=MACHINE)

    assert (found.ports, found.is_new) == ({}, False)
    assert "no row of 2 ports between 20000 and 29999 is free for port 7000 of a" in error_of(found).message


def test_the_range_keeps_clear_of_node_ports_and_of_what_linux_gives_to_clients() -> None:
    assert 1024 <= FIRST < LAST < 30000 < 32768


def test_the_same_job_gets_the_same_ports_and_another_job_looks_elsewhere() -> None:
    assert allotted(uid="a") == allotted(uid="a")
    assert not set(numbers(allotted(uid="a"))) & set(numbers(allotted(uid="b")))


def test_what_is_taken_is_passed_over() -> None:
    first, second = numbers(allotted())

    assert numbers(allotted(taken=frozenset({first}))) == [second, second + 1]


def test_the_search_goes_round() -> None:
    """All but the two ports before the place where this job begins are taken."""
    begin = numbers(allotted())[0]
    size = LAST - FIRST + 1
    left = [FIRST + (begin - FIRST + step) % size for step in (-2, -1)]

    found = allotted(taken=frozenset(range(FIRST, LAST + 1)) - set(left))

    assert numbers(found) == left


def test_what_is_stored_stays_and_a_replica_that_comes_gets_a_new_one() -> None:
    stored = {"trainer-0": {"24446": 20007}}

    found = allotted(stored=stored, taken=frozenset({20007}))

    assert found.ports["trainer-0"] == {"24446": 20007}
    assert found.drawn == (found.ports["trainer-1"]["24446"],)
    assert stored == {"trainer-0": {"24446": 20007}}


def test_a_replica_that_went_keeps_its_port_for_its_return() -> None:
    found = allotted(stored={"trainer-7": {"24446": 20007}})

    assert found.ports["trainer-7"] == {"24446": 20007}


def test_a_declared_port_that_is_new_is_added_to_those_of_the_replica() -> None:
    found = allotted({"trainer-0": (24446, 8000)}, {"trainer-0": {"24446": 20007}})

    assert found.ports["trainer-0"]["24446"] == 20007
    assert len(found.drawn) == 1


def test_a_pod_that_listens_on_its_declared_port_already_keeps_it() -> None:
    found = allotted(used={"trainer-0": (24446,), "trainer-1": (9,)}, taken=frozenset({24446}))

    assert found.ports["trainer-0"] == {"24446": 24446}
    assert found.drawn == (found.ports["trainer-1"]["24446"],)
    assert found.is_new


def test_when_nothing_is_left_on_one_machine_no_replica_gets_a_port_and_it_is_said() -> None:
    one_left = frozenset(range(FIRST, LAST))
    stored = {"trainer-9": {"24446": LAST - 1}}

    found = allotted(stored=stored, taken=one_left, rules=MACHINE)

    assert found == Allotment(stored, is_stored=False, error=found.error)
    assert error_of(found).reason == "NoFreePort"
    assert error_of(found).message.startswith("no port between 20000 and 29999 is free for port 24446 of trainer-1; ")
    assert (found.is_new, found.retry_after) == (False, 30.0)


# --- a cluster: ports are shared with other jobs, and there are quotas ---


def test_when_other_jobs_have_every_port_a_job_shares_ports_and_has_each_of_them_once() -> None:
    stored = {"trainer-9": {"24446": FIRST}}
    every_replica = {f"w-{i}": (80, range(90, 93)) for i in range(200)}

    found = allotted(every_replica, stored, taken=EVERY, declared=frozenset({FIRST + 1}))

    assert found.is_new
    assert len(set(found.drawn)) == len(found.drawn) == 800
    assert not {FIRST, FIRST + 1} & set(found.drawn)


def test_ports_that_no_other_job_has_come_before_those_that_are_shared() -> None:
    found = allotted(taken=EVERY - {FIRST + 7})

    assert FIRST + 7 in found.drawn
    assert len(set(found.drawn)) == 2


def test_two_jobs_share_ports_at_different_places_of_the_range() -> None:
    assert not set(allotted(taken=EVERY, uid="a").drawn) & set(allotted(taken=EVERY, uid="b").drawn)


@pytest.mark.parametrize("rules", [CLUSTER, MACHINE])
@pytest.mark.parametrize(
    ("wanted", "others", "error"),
    [
        pytest.param(1000, 1000, None, id="at-both-limits"),
        pytest.param(1001, 0, "the job needs 1001 host ports, and a job may have 1000 (", id="job"),
        pytest.param(
            1000,
            1001,
            "the job needs 1000 host ports, other jobs of its namespace have 1001, and a namespace may have 2000 (",
            id="namespace",
        ),
    ],
)
def test_a_quota_limits_the_ports_of_a_job_and_of_a_namespace(
    rules: PortRules, wanted: int, others: int, error: str | None
) -> None:
    found = allotted({f"w-{i}": (80,) for i in range(wanted)}, rules=rules, namespace_ports=others)

    assert len(found.drawn) == (0 if error else wanted)
    if error:
        assert error_of(found).reason == "PortQuotaExceeded"
        assert error_of(found).message.startswith(error)
        assert (found.ports, found.is_new, found.retry_after) == ({}, False, 30.0)


def test_a_range_counts_with_all_of_its_ports() -> None:
    assert "needs 1025 host ports" in error_of(allotted({"learner": (range(80, 1105),)})).message


def test_removed_replicas_lose_their_ports_when_the_quota_has_no_room_for_them() -> None:
    stored = {f"old-{i}": {"80": FIRST + i} for i in range(999)}

    kept = allotted({"w-0": (80,)}, stored)
    assert kept.ports.keys() == {*stored, "w-0"}

    assert allotted({"w-0": (80,), "old-0": (80,), "w-1": (80,)}, stored).ports.keys() == {"w-0", "old-0", "w-1"}


@pytest.mark.parametrize(
    ("stored", "complete"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"trainer-0": {"24446": 1}}, False, id="one replica"),
        pytest.param({"trainer-0": {"24446": 1}, "trainer-1": {"80": 2}}, False, id="another port"),
        pytest.param({"trainer-0": {"24446": 1}, "trainer-1": {"24446": 2}}, True, id="all"),
        pytest.param({"trainer-0": {"24446": 1}, "trainer-1": {"24446": 2}, "ps-0": {}}, True, id="more than all"),
    ],
)
def test_ports_are_complete_when_every_declared_one_is_stored(stored: port.Ports, complete: bool) -> None:
    assert is_complete(TRAINERS, stored) is complete


@given(
    replicas=st.integers(1, 50),
    taken=st.frozensets(st.integers(FIRST, FIRST + 200)),
    uid=st.text(max_size=8),
)
def test_no_port_is_drawn_twice_or_taken_or_out_of_range(replicas: int, taken: frozenset[int], uid: str) -> None:
    found = allotted({f"w-{i}": (80,) for i in range(replicas)}, taken=taken, uid=uid)

    assert len(set(found.drawn)) == replicas
    assert not taken & set(found.drawn)
    assert all(FIRST <= number <= LAST for number in found.drawn)
