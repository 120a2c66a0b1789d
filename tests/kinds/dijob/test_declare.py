"""What becomes of a declaration, request by request (docs/decisions/0015)."""

import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import count, islice
from types import FrameType
from typing import Any

import msgspec
import pytest

from tests.build import NOW
from trainmaster.kinds.dijob import declare
from trainmaster.kinds.dijob.declaration import Declared, LastRequest, Member, Role
from trainmaster.kinds.dijob.declare import Asked, Change

LATER = NOW + timedelta(minutes=1)


def numbered() -> Iterator[str]:
    """aaaaa1, aaaaa2 … would be no suffixes; these are."""
    return (f"{number:05}" for number in count(1))


def requested(
    before: Declared, *, incarnation: str = "first", suffixes: Iterator[str] | None = None, **asked: Asked
) -> Change:
    roles: Mapping[str, Role] = {"collectors": "collector", "learners": "learner"}
    return declare.requested(
        before,
        {roles[name]: wanted for name, wanted in asked.items()},
        job="cart",
        incarnation=incarnation,
        suffixes=suffixes or numbered(),
        now=NOW,
    )


def members(declared: Declared) -> dict[str, str]:
    return {name: member.role for name, member in declared.members.items()}


def having(**ages: int) -> Declared:
    """Collectors of these ages in seconds."""
    found = {f"cart-collector-{name}": Member("collector", NOW - timedelta(seconds=age)) for name, age in ages.items()}
    return Declared(found)


# --- asking for more ---------------------------------------------------------------------------


def test_the_first_request_declares_what_is_asked_for() -> None:
    change = requested(Declared(), collectors=Asked(2, cpus="0.5", memory="200Mi"), learners=Asked(1, gpus=1))

    assert change.collectors == ("cart-collector-00001", "cart-collector-00002")
    assert change.learners == ("cart-learner-00003",)
    assert change.declared.members == {
        "cart-collector-00001": Member("collector", NOW, cpus="0.5", memory="200Mi"),
        "cart-collector-00002": Member("collector", NOW, cpus="0.5", memory="200Mi"),
        "cart-learner-00003": Member("learner", NOW, gpus=1),
    }


def test_a_further_request_of_the_same_coordinator_adds() -> None:
    first = requested(Declared(), collectors=Asked(2))

    second = requested(first.declared, collectors=Asked(1))

    assert second.collectors == ("cart-collector-00003",)
    assert len(second.declared.members) == 3


def test_a_restarted_coordinator_finds_its_replicas_instead_of_a_second_set() -> None:
    first = requested(Declared(), collectors=Asked(2, cpus="1"), learners=Asked(1))

    again = requested(first.declared, incarnation="second", collectors=Asked(2, cpus="1000m"), learners=Asked(1))

    assert again.names == first.names
    assert again.declared.members == first.declared.members
    assert again.declared.incarnations == {"collector": "second", "learner": "second"}


@pytest.mark.parametrize(
    ("asked", "kept", "total"),
    [
        pytest.param(Asked(3), 2, 3, id="missing ones are added"),
        pytest.param(Asked(1), 1, 1, id="surplus ones go"),
        pytest.param(Asked(0), 0, 0, id="all go"),
        pytest.param(Asked(2, cpus="2"), 0, 2, id="others are wanted"),
        pytest.param(Asked(2, gpus=1), 0, 2, id="GPUs are wanted"),
    ],
)
def test_a_restarted_coordinator_states_how_many_it_wants(asked: Asked, kept: int, total: int) -> None:
    before = having(old=9, young=5)

    change = requested(before, incarnation="second", collectors=asked)

    assert len(set(change.collectors) & set(before.members)) == kept
    assert len(change.declared.members) == len(change.collectors) == total


def test_a_role_that_a_request_does_not_name_stays_as_it_is() -> None:
    first = requested(Declared(), collectors=Asked(2), learners=Asked(1))

    again = requested(first.declared, incarnation="second", learners=Asked(1))

    assert again.declared.members == first.declared.members
    assert (
        requested(again.declared, incarnation="second", collectors=Asked(2)).declared.members == first.declared.members
    )


def test_somebody_who_is_not_the_coordinator_only_adds_and_states_nothing() -> None:
    added = requested(Declared(), incarnation="", collectors=Asked(1))

    stated = requested(added.declared, collectors=Asked(2))

    assert added.declared.incarnations == {}
    assert len(stated.declared.members) == 2


def test_a_name_that_is_taken_is_not_given_again() -> None:
    same = iter(["bbbbb", "bbbbb", "ccccc"])

    change = requested(Declared(), suffixes=same, collectors=Asked(2))

    assert change.collectors == ("cart-collector-bbbbb", "cart-collector-ccccc")


# --- DDP groups --------------------------------------------------------------------------------


def a_group(*shares: int, **fields: str) -> Change:
    return requested(Declared(), learners=Asked(1, gpus=sum(shares), shares=shares, **fields))


def test_a_learner_of_several_gpus_is_an_aggregator_and_its_ddp_learners() -> None:
    change = a_group(8, 8, 4)

    assert change.learners == ("cart-aggregator-00001",)
    pods = declare.group_of(change.declared.members, "cart-aggregator-00001")
    found = [change.declared.members[name] for name in pods]
    assert [(m.gpus, m.start_rank, m.world_size) for m in found] == [(8, 0, 20), (8, 8, 20), (4, 16, 20)]
    assert [m.master for m in found] == ["", pods[0], pods[0]]


@pytest.mark.parametrize(
    ("shares", "asked", "parts"),
    [
        pytest.param((8, 8, 4), {"cpus": "4"}, [("1600m", ""), ("1600m", ""), ("800m", "")], id="cpus"),
        pytest.param((8, 4), {"memory": "12Gi"}, [("", str(8 * 2**30)), ("", str(4 * 2**30))], id="memory"),
        pytest.param((1, 1, 1), {"cpus": "1", "memory": "10"}, [("334m", "4")] * 3, id="rounded up"),
        pytest.param((8,), {"cpus": "4", "memory": "1Gi"}, [("4", "1Gi")], id="one pod"),
    ],
)
def test_cpus_and_memory_of_a_learner_are_shared_as_its_gpus_are(
    shares: tuple[int, ...], asked: dict[str, str], parts: list[tuple[str, str]]
) -> None:
    members = a_group(*shares, **asked).declared.members

    assert [(members[n].cpus, members[n].memory) for n in declare.group_of(members, "cart-aggregator-00001")] == parts


def test_a_coordinator_that_comes_back_finds_its_group() -> None:
    first = a_group(8, 4, cpus="3", memory="1Gi")

    asked = Asked(1, cpus="3", gpus=12, memory="1024Mi", shares=(8, 4))
    again = requested(first.declared, incarnation="second", learners=asked)

    assert again.declared.members == first.declared.members


@pytest.mark.parametrize(
    ("gpus", "per_node", "shares"),
    [
        (2, 0, (2,)),
        (2, 8, (2,)),
        (8, 8, (8,)),
        (9, 8, (8, 1)),
        (16, 8, (8, 8)),
        (20, 8, (8, 8, 4)),
        (3, 1, (1, 1, 1)),
    ],
)
def test_gpus_are_split_over_pods_of_what_a_node_has(gpus: int, per_node: int, shares: tuple[int, ...]) -> None:
    assert declare.split(gpus, per_node) == shares


@pytest.mark.parametrize(
    ("nodes", "usual"),
    [([], 0), ([0, 0], 0), ([0, 0, 0, 8], 8), ([4, 4, 8], 4), ([4, 8], 8), ([4, 4, 8, 8, 2], 8)],
)
def test_most_nodes_that_have_gpus_decide_and_of_equals_the_larger(nodes: list[int], usual: int) -> None:
    assert declare.usual_gpus(nodes) == usual


# --- asking for fewer --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "gone"),
    [
        (0, []),
        (1, ["failed"]),
        (2, ["failed", "unborn"]),
        (3, ["failed", "unborn", "pending"]),
        (4, ["failed", "unborn", "pending", "young"]),
        (5, ["failed", "unborn", "pending", "young", "old"]),
        (9, ["failed", "unborn", "pending", "young", "old"]),
    ],
)
def test_the_failed_go_first_then_those_that_do_not_run_then_the_newest(number: int, gone: list[str]) -> None:
    before = having(old=90, young=10, failed=80, pending=60, unborn=50)
    states = {"old": "Running", "young": "Running", "failed": "Failed"}

    change = declare.removed(
        before, {"collector": number}, {f"cart-collector-{name}": state for name, state in states.items()}
    )

    assert change.collectors == tuple(f"cart-collector-{name}" for name in gone)
    assert set(change.declared.members) == set(before.members) - set(change.collectors)


def test_an_aggregator_goes_with_its_learners_and_only_then() -> None:
    group = a_group(2, 2)
    both = requested(group.declared, suffixes=iter(["xxxxx"]), learners=Asked(1))
    (plain,) = both.learners
    states = dict.fromkeys(both.declared.members, "Running")

    first = declare.removed(both.declared, {"learner": 1}, states)
    second = declare.removed(first.declared, {"learner": 1}, states)

    assert {*first.learners, *second.learners} == {plain, *group.learners}
    assert second.declared.members == {}


def test_a_group_with_a_failed_learner_counts_as_failed() -> None:
    group = a_group(2, 2)
    both = requested(group.declared, suffixes=iter(["xxxxx"]), learners=Asked(1))
    states = dict.fromkeys(both.declared.members, "Running") | {"cart-ddp-learner-00003": "Failed"}

    assert declare.removed(both.declared, {"learner": 1}, states).learners == group.learners


# --- others in place of the failed -------------------------------------------------------------


def test_a_failed_one_is_replaced_under_a_new_name() -> None:
    before = having(a=5, b=5)

    change = declare.failed(before, ["cart-collector-a"], suffixes=numbered(), now=NOW)

    assert change.collectors == ("cart-collector-00001",)
    assert members(change.declared) == {"cart-collector-b": "collector", "cart-collector-00001": "collector"}
    assert change.declared.members["cart-collector-00001"] == Member("collector", NOW, attempt=1)


def test_what_is_gone_already_is_passed_over() -> None:
    before = having(a=5)

    assert declare.failed(before, ["cart-collector-gone"], suffixes=numbered(), now=NOW) == Change(before)


@pytest.mark.parametrize("culprit", ["cart-aggregator-00001", "cart-ddp-learner-00002", "cart-ddp-learner-00003"])
def test_a_ddp_group_is_replaced_as_a_whole(culprit: str) -> None:
    before = a_group(4, 4, cpus="2").declared
    suffixes = (f"{number:05}" for number in count(11))

    change = declare.failed(before, [culprit, culprit], suffixes=suffixes, now=LATER)

    (head,) = change.learners
    after = change.declared.members
    assert not set(after) & set(before.members)
    pods = declare.group_of(after, head)
    assert [(after[name].gpus, after[name].start_rank, after[name].attempt) for name in pods] == [(4, 0, 1), (4, 4, 1)]
    assert [after[name].master for name in pods] == ["", pods[0]]


@pytest.mark.parametrize(
    ("attempt", "lived", "own_fault", "expected"),
    [
        pytest.param(0, 5, True, 1, id="first failure"),
        pytest.param(3, 5, True, 4, id="further failure"),
        pytest.param(3, 601, True, 1, id="it lived long"),
        pytest.param(0, 5, False, 1, id="the cluster's fault still takes a moment"),
        pytest.param(3, 5, False, 3, id="the cluster's fault does not count"),
    ],
)
def test_failures_are_counted(attempt: int, lived: int, own_fault: bool, expected: int) -> None:
    old = Member("collector", NOW - timedelta(seconds=lived), attempt=attempt)
    before = Declared({"cart-collector-a": old})

    edit = declare.Edit(before)
    new = edit.replace("cart-collector-a", suffixes=numbered(), now=NOW, is_own_fault=own_fault)

    assert (edit.result.members[new].attempt, edit.result.members[new].at) == (expected, NOW)


@pytest.mark.parametrize(("attempt", "pause"), [(0, 0), (1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (10**6, 60)])
def test_the_pause_doubles_up_to_a_minute(attempt: int, pause: float) -> None:
    assert declare.pause(attempt) == pause


def test_derived_suffixes_are_suffixes_and_depend_on_the_seed_alone() -> None:
    first, second = (list(islice(declare.derived_suffixes("uid", "name", "1"), 3)) for _ in range(2))

    assert first == second
    assert len(set(first)) == 3
    assert all(len(suffix) == 5 and set(suffix) <= set(declare.ALPHABET) for suffix in first)
    assert next(declare.derived_suffixes("uid", "name", "2")) not in first


# --- retries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "digest", "incarnation", "seconds", "is_recognised"),
    [
        pytest.param({}, "d", "i", 1, True, id="the same again"),
        pytest.param({}, "other", "i", 1, False, id="another request"),
        pytest.param({}, "d", "other", 1, False, id="another incarnation"),
        pytest.param({"answered": True}, "d", "i", 1, False, id="it has its answer"),
        pytest.param({}, "d", "i", 31, False, id="too late"),
        pytest.param({}, "d", "i", -1, True, id="the other server's clock is ahead"),
    ],
)
def test_the_same_request_without_an_answer_is_a_retry(
    changes: dict[str, bool], digest: str, incarnation: str, seconds: int, is_recognised: bool
) -> None:
    last = msgspec.structs.replace(LastRequest("id", "d", NOW, "i", ("a",)), **changes)

    found = declare.recognised(last, digest, incarnation, NOW + timedelta(seconds=seconds))

    assert found == (last if is_recognised else None)


# --- bounded work ------------------------------------------------------------------------------


def steps_of(work: Callable[[], object]) -> int:
    """The number of instructions that Python executes for it: unlike its time, the same on every machine."""
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def a_crowd(number: int) -> Declared:
    """So many collectors, and half as many learners in groups of one aggregator and two pods."""
    asked: dict[Role, Asked] = {"collector": Asked(number), "learner": Asked(number // 6, gpus=3, shares=(2, 1))}
    return declare.requested(Declared(), asked, job="j", incarnation="", suffixes=numbered(), now=NOW).declared


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda crowd: a_crowd(len(crowd.members)), id="requested"),
        pytest.param(lambda crowd: declare.removed(crowd, {"collector": 999, "learner": 999}, {}), id="removed"),
        pytest.param(
            lambda crowd: declare.failed(crowd, crowd.members, suffixes=declare.derived_suffixes("x"), now=NOW),
            id="failed",
        ),
        pytest.param(
            lambda crowd: declare.requested(
                crowd,
                {"collector": Asked(0), "learner": Asked(0)},
                job="j",
                incarnation="b",
                suffixes=numbered(),
                now=NOW,
            ),
            id="restated",
        ),
    ],
)
def test_the_work_for_a_request_grows_as_the_number_of_replicas_and_no_faster(
    work: Callable[[Declared], object],
) -> None:
    small, large = a_crowd(60), a_crowd(240)

    assert steps_of(lambda: work(large)) < 6 * steps_of(lambda: work(small))
