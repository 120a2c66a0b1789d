from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build import a_pod, a_service, an_aitj
from trainmaster.core.ids import POD, SERVICE, Key
from trainmaster.core.plan import (
    MAX_ACTIONS,
    MAX_BYTES,
    Batch,
    Create,
    Delete,
    Event,
    Plan,
    batch_of,
    deletions,
    merge_patch,
    normal,
    warning,
)

JOB = an_aitj(trainer=3)


def a_create(name: str) -> Create:
    return Create(POD, {"metadata": {"namespace": "ml", "name": name}}, "because")


def a_delete(name: str) -> Delete:
    return Delete(POD, Key("ml", name), "uid", "because")


def creates_of(count: int) -> tuple[Create, ...]:
    return tuple(a_create(f"p-{i}") for i in range(count))


def deletes_of(count: int) -> tuple[Delete, ...]:
    return tuple(a_delete(f"p-{i}") for i in range(count))


def test_a_create_has_the_key_of_its_body() -> None:
    assert a_create("mnist-trainer-0").key == Key("ml", "mnist-trainer-0")


def test_deletions_have_the_uid_and_skip_terminating_objects() -> None:
    staying, going = a_pod(JOB, "trainer", 0, uid="first"), a_pod(JOB, "trainer", 1, deleting=True)

    assert deletions(POD, [staying, going], "enough") == (Delete(POD, Key("ml", "mnist-trainer-0"), "first", "enough"),)


def test_services_are_deleted_as_services() -> None:
    services = [a_service(JOB, "trainer", 0), a_service(JOB, "trainer", 1, deleting=True)]

    assert deletions(SERVICE, services, "enough") == (
        Delete(SERVICE, Key("ml", "mnist-trainer-0"), "uid-of-service-mnist-trainer-0", "enough"),
    )


def test_an_event_is_normal_or_a_warning() -> None:
    assert normal("Started", "x") == Event("Normal", "Started", "x")
    assert warning("Failed", "x") == Event("Warning", "Failed", "x")


def test_by_default_a_plan_acts_and_stores_at_once() -> None:
    assert (Plan().status_first, Plan().lazy, Plan().requeue_after) == (False, 0.0, None)


@pytest.mark.parametrize(
    ("plan", "quiet"),
    [
        pytest.param(Plan(), True, id="nothing"),
        pytest.param(Plan(requeue_after=3.0), True, id="a timer is no action"),
        pytest.param(Plan(deletes=(a_delete("p"),)), False, id="a delete"),
        pytest.param(Plan(creates=(a_create("p"),)), False, id="a create"),
        pytest.param(Plan(status={}), False, id="a status, even an empty one"),
    ],
)
def test_a_plan_is_quiet_when_it_changes_nothing(plan: Plan, quiet: bool) -> None:
    assert plan.is_quiet is quiet


@pytest.mark.parametrize(
    ("deletes", "creates", "kept_deletes", "kept_creates"),
    [
        pytest.param(3, 3, 3, 3, id="under the limit"),
        pytest.param(4, 6, 4, 6, id="exactly the limit"),
        pytest.param(4, 7, 4, 6, id="one create too many"),
        pytest.param(11, 0, 10, 0, id="one delete too many"),
        pytest.param(10, 5, 10, 0, id="deletes fill the pass"),
        pytest.param(0, 25, 0, 10, id="creates alone"),
        pytest.param(20, 20, 10, 0, id="both too many"),
    ],
)
def test_a_bounded_plan_keeps_deletes_before_creates_in_their_order(
    deletes: int, creates: int, kept_deletes: int, kept_creates: int
) -> None:
    plan = Plan(deletes=deletes_of(deletes), creates=creates_of(creates), status={"phase": "Running"})

    bounded = plan.bounded(10)

    assert bounded.deletes == plan.deletes[:kept_deletes]
    assert bounded.creates == plan.creates[:kept_creates]
    assert bounded.status == {"phase": "Running"}


def test_by_default_one_pass_has_at_most_500_actions() -> None:
    assert MAX_ACTIONS == 500
    assert len(Plan(creates=creates_of(501)).bounded().creates) == 500


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(creates=creates_of(MAX_ACTIONS + 1)), id="creates"),
        pytest.param(Plan(deletes=deletes_of(MAX_ACTIONS + 1), requeue_after=30.0), id="deletes"),
    ],
)
def test_after_a_plan_that_was_cut_the_next_pass_follows_at_once(plan: Plan) -> None:
    assert plan.bounded().requeue_after == 0.0


def test_a_plan_that_was_not_cut_keeps_its_timer() -> None:
    assert Plan(creates=creates_of(MAX_ACTIONS), requeue_after=30.0).bounded().requeue_after == 30.0


# --- what one pass creates ---------------------------------------------------------------------


class Builds:
    """Builds creates one by one, each with a body of ``size`` bytes or a little more, and counts them."""

    def __init__(self, number: int, size: int = 0) -> None:
        self.built = 0
        self._number, self._size = number, size

    def __iter__(self) -> Iterator[Create]:
        for index in range(self._number):
            self.built += 1
            create = a_create(f"p-{index}")
            yield Create(POD, {**create.body, "spec": "x" * self._size}, "because")


def test_a_batch_builds_no_more_bodies_than_one_pass_may_create() -> None:
    builds = Builds(10_000)

    batch = batch_of(builds)

    assert [create.key.name for create in batch.creates] == [f"p-{index}" for index in range(MAX_ACTIONS)]
    assert builds.built == MAX_ACTIONS


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        pytest.param(MAX_BYTES // 8, 8, id="an eighth of the limit each"),
        pytest.param(MAX_BYTES // 2, 2, id="half the limit each"),
        pytest.param(MAX_BYTES * 2, 1, id="one above the limit is still created"),
    ],
)
def test_a_batch_ends_when_its_bodies_reach_the_limit_of_bytes(size: int, taken: int) -> None:
    builds = Builds(100, size)

    batch = batch_of(builds)

    assert (len(batch.creates), builds.built) == (taken, taken)


@pytest.mark.parametrize(
    ("builds", "retry_after"),
    [
        pytest.param(Builds(0), None, id="nothing is missing"),
        pytest.param(Builds(MAX_ACTIONS - 1), None, id="all fits"),
        pytest.param(Builds(MAX_ACTIONS + 1), 0.0, id="too many"),
        pytest.param(Builds(9, MAX_BYTES // 4), 0.0, id="too large"),
    ],
)
def test_after_a_batch_that_is_full_the_next_pass_follows_at_once(builds: Builds, retry_after: float | None) -> None:
    assert batch_of(builds).retry_after == retry_after


def test_a_batch_of_nothing_is_empty() -> None:
    assert batch_of(()) == Batch()


# --- merge patches, RFC 7386 -------------------------------------------------------------------


def applied(target: Any, patch: Any) -> Any:
    """MergePatch of RFC 7386 section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = applied(result.get(name), value)
    return result


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="a value changes"),
        pytest.param({"a": "b"}, {"a": "b", "b": "c"}, {"b": "c"}, id="a key comes"),
        pytest.param({"a": "b"}, {}, {"a": None}, id="a key goes"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="a list becomes a value"),
        pytest.param({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}, id="a value becomes a list"),
        pytest.param({"a": {"b": "c", "d": 1}}, {"a": {"b": "d"}}, {"a": {"b": "d", "d": None}}, id="inside an object"),
        pytest.param({"a": {"b": "c"}}, {"a": {}}, {"a": {"b": None}}, id="an object is emptied"),
        pytest.param({}, {"a": {}}, {"a": {}}, id="an empty object comes"),
        pytest.param({"a": [{"b": 1}, {"c": 1}]}, {"a": [{"b": 1}]}, {"a": [{"b": 1}]}, id="lists are replaced whole"),
        pytest.param({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}, id="an object becomes a list"),
        pytest.param({"a": [1]}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a list becomes an object"),
        pytest.param({"a": None}, {"a": 1}, {"a": 1}, id="a null becomes a value"),
        pytest.param({"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 1}}}, {}, id="nothing changes"),
    ],
)
def test_a_merge_patch_contains_only_changes(old: Any, new: Any, patch: Any) -> None:
    assert merge_patch(old, new) == patch
    assert applied(old, patch) == new


_names = st.sampled_from("abcd")
_leaves = st.integers() | st.text(max_size=3) | st.booleans()
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=6,
)
_objects = st.dictionaries(_names, _values, max_size=4)


@settings(max_examples=60, deadline=None, database=None)
@given(old=_objects, new=_objects)
def test_a_merge_patch_turns_the_old_into_the_new(old: Any, new: Any) -> None:
    patch = merge_patch(old, new)

    assert applied(old, patch) == new
    assert bool(patch) == (old != new)
