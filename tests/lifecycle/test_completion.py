"""Tables of the end policies: one letter for every outcome.

`.` runs on, `S` and `F` a policy fired, `s` and `f` closed quietly: all pods have ended and the policy for such an end
is None. Pods: `r` runs, `s` succeeded, `f` failed, in the order of their index. Groups: `r` runs, capitals fired.
"""

import itertools
from typing import get_args

import pytest

from trainmaster.lifecycle.completion import EndPolicy, Result, group_result, job_result

POLICIES: tuple[EndPolicy, ...] = ("Any", "Rank0", "All", "None")

STATES = {
    "r": Result(),
    "S": Result("Succeed"),
    "s": Result("Succeed", is_fired=False),
    "F": Result("Failed", "it broke"),
    "f": Result("Failed", "it broke", is_fired=False),
}


def letter(result: Result) -> str:
    word = {"": ".", "Succeed": "S", "Failed": "F"}[result.phase]
    return word if result.is_fired else word.lower()


def pods_of(letters: str) -> list[Result]:
    phases = {"r": "", "s": "Succeed", "f": "Failed"}
    return [Result(phases[one], f"pod {i}") for i, one in enumerate(letters)]


def groups_of(letters: str) -> dict[str, Result]:
    return {f"role-{i}": STATES[one] for i, one in enumerate(letters)}


def test_the_tables_cover_every_policy() -> None:
    assert set(POLICIES) == set(get_args(EndPolicy))


# --- groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "any_", "rank0", "all_", "none"),
    [
        ("rr", ".", ".", ".", "."),
        ("sr", "S", "S", ".", "."),
        ("rs", "S", ".", ".", "."),
        ("ss", "S", "S", "S", "s"),
        ("fr", ".", ".", ".", "."),
        ("rf", ".", ".", ".", "."),
        ("sf", "S", "S", "f", "f"),
        ("fs", "S", "f", "f", "f"),
        ("ff", "f", "f", "f", "f"),
        ("s", "S", "S", "S", "s"),
        ("rrs", "S", ".", ".", "."),
        ("ssr", "S", "S", ".", "."),
    ],
)
def test_complete_policy_of_a_group_whose_failures_do_not_matter(
    pods: str, any_: str, rank0: str, all_: str, none: str
) -> None:
    found = [letter(group_result(pods_of(pods), complete=policy, fail="None")) for policy in POLICIES]

    assert found == [any_, rank0, all_, none]


@pytest.mark.parametrize(
    ("pods", "any_", "rank0", "all_", "none"),
    [
        ("rr", ".", ".", ".", "."),
        ("fr", "F", "F", ".", "."),
        ("rf", "F", ".", ".", "."),
        ("ff", "F", "F", "F", "f"),
        ("sr", ".", ".", ".", "."),
        ("rs", ".", ".", ".", "."),
        ("ss", "s", "s", "s", "s"),
        ("sf", "F", "F", "F", "f"),
        ("fs", "F", "F", "F", "f"),
        ("f", "F", "F", "F", "f"),
        ("rrf", "F", ".", ".", "."),
        ("ffr", "F", "F", ".", "."),
    ],
)
def test_fail_policy_of_a_group_that_never_completes(pods: str, any_: str, rank0: str, all_: str, none: str) -> None:
    found = [letter(group_result(pods_of(pods), complete="None", fail=policy)) for policy in POLICIES]

    assert found == [any_, rank0, all_, none]


@pytest.mark.parametrize(
    ("pods", "complete", "row"),
    [
        # a mixed end: the columns are failPolicy Any, Rank0, All, None
        ("sf", "Any", "SSSS"),
        ("sf", "Rank0", "SSSS"),
        ("sf", "All", "FFFf"),
        ("sf", "None", "FFFf"),
        ("fs", "Any", "FFSS"),
        ("fs", "Rank0", "FFFf"),
        ("fs", "All", "FFFf"),
        ("fs", "None", "FFFf"),
    ],
)
def test_a_mixed_end_is_decided_by_the_lowest_index_that_fires_and_else_fails(
    pods: str, complete: EndPolicy, row: str
) -> None:
    found = "".join(letter(group_result(pods_of(pods), complete=complete, fail=fail)) for fail in POLICIES)

    assert found == row


def test_a_group_reports_the_words_of_the_pod_that_fired() -> None:
    pods = [STATES["r"], Result("Failed", "pod 1 broke"), Result("Failed", "pod 2 broke")]

    assert group_result(pods, complete="All", fail="Any") == Result("Failed", "pod 1 broke")


def test_a_group_that_failed_as_a_whole_tells_every_reason_once_in_order() -> None:
    pods = [Result("Failed", "b"), Result("Succeed", "never shown"), Result("Failed", "a"), Result("Failed", "b")]

    assert group_result(pods, complete="All", fail="All") == Result("Failed", "b; a")


def test_a_failure_without_words_leaves_no_gap_in_the_message() -> None:
    failures = [Result("Failed"), Result("Failed", "a"), Result("Failed"), Result("Failed", "b")]
    groups = {str(i): failure for i, failure in enumerate(failures)}

    assert group_result(failures, complete="All", fail="All").message == "a; b"
    assert job_result(groups, rank0=Result(), complete="All", fail="All", name="m").message == "a; b"


@pytest.mark.parametrize("complete", POLICIES)
@pytest.mark.parametrize("fail", POLICIES)
def test_a_group_has_a_result_as_soon_as_all_its_pods_have_ended(complete: EndPolicy, fail: EndPolicy) -> None:
    for letters in itertools.product("sf", repeat=3):
        assert group_result(pods_of("".join(letters)), complete=complete, fail=fail).phase


# --- jobs --------------------------------------------------------------------------------------


def end_of(groups: str, *, complete: EndPolicy, fail: EndPolicy, rank0: str = "r") -> str:
    result = job_result(groups_of(groups), rank0=STATES[rank0], complete=complete, fail=fail, name="mnist")
    return letter(result)


@pytest.mark.parametrize(
    ("groups", "any_", "rank0", "all_", "none"),
    [
        ("rr", ".", ".", ".", "."),
        ("Sr", "S", ".", ".", "."),
        ("rS", "S", ".", ".", "."),
        ("sr", ".", ".", ".", "."),
        ("Fr", ".", ".", ".", "."),
        ("SS", "S", "S", "S", "S"),
        ("Ss", "S", "S", "S", "S"),
        ("ss", "S", "S", "S", "S"),
        ("SF", "S", "F", "F", "F"),
        ("FS", "S", "F", "F", "F"),
        ("sF", "F", "F", "F", "F"),
        ("Sf", "S", "F", "F", "F"),
        ("FF", "F", "F", "F", "F"),
        ("ff", "F", "F", "F", "F"),
    ],
)
def test_complete_policy_of_a_job_that_never_fails_before_all_has_ended(
    groups: str, any_: str, rank0: str, all_: str, none: str
) -> None:
    found = [end_of(groups, complete=policy, fail="None") for policy in POLICIES]

    assert found == [any_, rank0, all_, none]


@pytest.mark.parametrize(
    ("groups", "any_", "rank0", "all_", "none"),
    [
        ("rr", ".", ".", ".", "."),
        ("Fr", "F", ".", ".", "."),
        ("rF", "F", ".", ".", "."),
        ("fr", ".", ".", ".", "."),
        ("Sr", ".", ".", ".", "."),
        ("FF", "F", "F", "F", "F"),
        ("ff", "F", "F", "F", "F"),
        ("SF", "F", "F", "F", "F"),
        ("Sf", "F", "F", "F", "F"),
        ("SS", "S", "S", "S", "S"),
        ("ss", "S", "S", "S", "S"),
    ],
)
def test_fail_policy_of_a_job_that_never_completes_before_all_has_ended(
    groups: str, any_: str, rank0: str, all_: str, none: str
) -> None:
    found = [end_of(groups, complete="None", fail=policy) for policy in POLICIES]

    assert found == [any_, rank0, all_, none]


@pytest.mark.parametrize(
    ("groups", "complete", "fail", "end"),
    [
        pytest.param("SF", "Any", "Any", "S", id="completion is asked before failure"),
        pytest.param("FS", "Any", "Any", "S", id="whatever the order of the roles"),
        pytest.param("SF", "All", "Any", "F", id="but only if it fires"),
        pytest.param("SFr", "All", "All", ".", id="neither all of one nor of the other"),
        pytest.param("Srr", "Any", "Any", "S", id="a trainer is done while the servers serve"),
        pytest.param("srr", "Any", "Any", ".", id="a quiet end of a role is no signal"),
        pytest.param("sSs", "All", "Any", "S", id="a quiet end counts when all are asked for"),
        pytest.param("fF", "Any", "All", "F", id="a quiet failure counts when all are asked for"),
    ],
)
def test_both_policies_of_a_job(groups: str, complete: EndPolicy, fail: EndPolicy, end: str) -> None:
    assert end_of(groups, complete=complete, fail=fail) == end


@pytest.mark.parametrize(
    ("rank0", "complete", "fail", "end"),
    [
        ("S", "Rank0", "Any", "S"),
        ("S", "All", "Rank0", "."),
        ("F", "All", "Rank0", "F"),
        ("F", "Rank0", "None", "."),
        ("F", "Rank0", "Rank0", "F"),
        ("r", "Rank0", "Rank0", "."),
        ("S", "Any", "Any", "."),
        ("F", "Any", "Any", "."),
    ],
)
def test_rank0_of_a_job_is_the_end_of_its_first_pod(rank0: str, complete: EndPolicy, fail: EndPolicy, end: str) -> None:
    assert end_of("rr", complete=complete, fail=fail, rank0=rank0) == end


def test_a_job_that_completes_says_so_by_name() -> None:
    result = job_result(groups_of("S"), rank0=Result(), complete="All", fail="Any", name="mnist")

    assert result == Result("Succeed", "job mnist completed")


def test_a_job_that_closes_well_completes_in_the_same_words() -> None:
    result = job_result(groups_of("s"), rank0=Result(), complete="None", fail="Any", name="mnist")

    assert result == Result("Succeed", "job mnist completed")


def test_a_job_that_fails_tells_every_reason_once_in_the_order_of_the_roles() -> None:
    groups = {"c": Result("Failed", "y"), "a": Result("Failed", "x"), "b": Result("Failed", "y"), "d": Result()}

    assert job_result(groups, rank0=Result(), complete="All", fail="Any", name="m") == Result("Failed", "x; y")


def test_a_job_that_fails_by_its_first_pod_tells_why_that_failed() -> None:
    broken = Result("Failed", "pod 0 broke")

    assert job_result(groups_of("r"), rank0=broken, complete="All", fail="Rank0", name="m") == broken


def test_the_result_does_not_depend_on_the_order_of_the_map() -> None:
    groups = {"a": Result("Failed", "x"), "b": Result("NodeFail", "y"), "c": Result("Succeed", "z")}

    results = {
        job_result(dict(order), rank0=Result(), complete="All", fail="Any", name="m")
        for order in itertools.permutations(groups.items())
    }

    assert results == {Result("Failed", "x; y")}


@pytest.mark.parametrize("complete", POLICIES)
@pytest.mark.parametrize("fail", POLICIES)
def test_a_job_has_a_result_as_soon_as_all_its_groups_have_one(complete: EndPolicy, fail: EndPolicy) -> None:
    for letters in itertools.product("SsFf", repeat=2):
        assert end_of("".join(letters), complete=complete, fail=fail) != "."


@pytest.mark.parametrize(
    ("phase", "success", "failure"),
    [("", False, False), ("Succeed", True, False), ("Failed", False, True), ("NodeFail", False, True)],
)
def test_every_phase_that_is_no_success_is_a_failure(phase: str, success: bool, failure: bool) -> None:
    assert (Result(phase).is_success, Result(phase).is_failure) == (success, failure)
