"""Restart policies, scopes, limits and back-off (docs/aitrainingjob.md)."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainmaster.lifecycle.fault import Fault
from trainmaster.lifecycle.restart import (
    EXIT_CODES,
    HISTORY,
    NONE,
    Decision,
    FailedPod,
    RestartPolicy,
    Restarts,
    RestartScope,
    Rules,
    admitted,
    after_removal,
    after_suspension,
    decide,
    exit_codes,
    is_wanted,
    replaced,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NO_TIME = timedelta()

FAILED = Fault("Failed", "it failed", has_failed=True, exits=(1,))
LISTED = Fault("Failed", "it was killed", has_failed=True, exits=(137,))
LOST = Fault("NodeFail", "its node is lost", is_node=True)
EVICTED = Fault("Failed", "it was evicted", has_failed=True, is_node=True)


def rules(scope: RestartScope = "Pod", policy: RestartPolicy = "OnFailure", **fields: Any) -> Rules:
    given: dict[str, Any] = {"limit": None, "backoff": 10, "reset": None, **fields}
    return Rules(policy, scope, **given)


def failed_pods(*places: str) -> list[FailedPod]:
    """Pods called like ``a0`` that have failed."""
    return [FailedPod(place[0], int(place[1:]), FAILED) for place in places]


def decided(
    places: list[FailedPod],
    given: dict[str, Rules],
    restarts: dict[str, Restarts] | None = None,
    *,
    calm: timedelta = NO_TIME,
    **more: Any,
) -> Decision:
    return decide(places, given, restarts or {}, more.get("history", ()), calm=calm, now=NOW)


# --- exit codes ---


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("", set()),
        ("137", {137}),
        ("137,128", {137, 128}),
        (" 137 , 128 ", {137, 128}),
        ("137,", {137}),
        ("1-3, 5", {1, 2, 3, 5}),
        ("128 - 130", {128, 129, 130}),
        ("SIGKILL,sigterm", {137, 143}),
        ("0-255", set(range(256))),
    ],
)
def test_a_list_of_exit_codes_is_read_as_people_write_it(text: str, codes: set[int]) -> None:
    assert exit_codes(text) == codes


@given(st.text("0123456789 ,-\tSIGKILsigterm", max_size=20))
@example("137,\n")
@example("SIGKILL,sigterm, 0-255")
def test_what_can_be_read_as_exit_codes_passes_the_api_server(text: str) -> None:
    with suppress(ValueError):
        exit_codes(text)
        assert re.search(EXIT_CODES, text), text


@pytest.mark.parametrize("text", ["x", "1;2", "-1", "1-", "256", "1-300", "0x89", "1.5", "137 128", "1--2", "SIG"])
def test_what_is_no_exit_code_does_not_pass_the_api_server(text: str) -> None:
    assert not re.search(EXIT_CODES, f"137, {text}")


@pytest.mark.parametrize("text", ["x", "1;2", "-1", "1-", "256", "1-300", "3-1", "SIGNAL", "0x89", "1.5"])
def test_what_is_no_exit_code_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        exit_codes(f"137, {text}")


# --- whether a pod restarts: the table of docs/aitrainingjob.md ---


@pytest.mark.parametrize(
    ("policy", "failed", "listed", "lost", "evicted"),
    [
        ("Never", False, False, False, False),
        ("Always", True, True, True, True),
        ("OnFailure", True, True, False, True),
        ("ExitCode", False, True, False, False),
        ("OnNodeFail", False, False, True, True),
        ("OnNodeFailWithExitCode", False, True, True, True),
    ],
)
def test_the_policy_says_which_faults_bring_a_pod_back(
    policy: RestartPolicy, failed: bool, listed: bool, lost: bool, evicted: bool
) -> None:
    found = [is_wanted(policy, fault, frozenset({137})) for fault in (FAILED, LISTED, LOST, EVICTED)]

    assert found == [failed, listed, lost, evicted]


@pytest.mark.parametrize("policy", ["Never", "Always", "OnFailure", "ExitCode", "OnNodeFail", "OnNodeFailWithExitCode"])
@pytest.mark.parametrize("comes_again", [True, False])
def test_what_is_decided_about_a_fault_no_policy_changes(policy: RestartPolicy, comes_again: bool) -> None:
    fault = Fault("Failed", "its image is not to be had", comes_again=comes_again)

    assert is_wanted(policy, fault, frozenset()) == comes_again


@pytest.mark.parametrize(
    ("exits", "is_listed"), [((137,), True), ((137, 143), True), ((137, 1), False), ((), False)], ids=str
)
def test_every_code_must_be_listed(exits: tuple[int, ...], is_listed: bool) -> None:
    fault = Fault("Failed", "", has_failed=True, exits=exits)

    assert is_wanted("ExitCode", fault, frozenset({137, 143})) == is_listed


# --- limits ---


@pytest.mark.parametrize(
    ("scope", "limit", "used", "left"),
    [
        ("Pod", None, 99, ["a0", "a1", "a2"]),
        ("Pod", 3, 0, ["a0", "a1", "a2"]),
        ("Pod", 3, 2, ["a0", "a1", "a2"]),
        ("Pod", 3, 3, []),
        ("Pod", 3, 4, []),
        ("Pod", 0, 0, []),
        ("Replica", 1, 0, ["a0", "a1", "a2"]),
        ("Replica", 1, 1, []),
        ("All", 1, 0, ["a0", "a1", "a2"]),
        ("All", 1, 1, []),
    ],
)
def test_a_role_restarts_as_often_as_its_limit_says(
    scope: RestartScope, limit: int | None, used: int, left: list[str]
) -> None:
    given = {"a": rules(scope, limit=limit)}

    found = admitted(failed_pods("a2", "a0", "a1"), given, {"a": Restarts(count=9, used=used)}, calm=NO_TIME, now=NOW)

    assert [f"{f.role}{f.index}" for f in found] == left


def test_the_limit_of_one_role_is_not_that_of_another() -> None:
    given = {"a": rules(limit=1), "b": rules(limit=1)}

    found = admitted(failed_pods("b0", "a0"), given, {"a": Restarts(used=1)}, calm=NO_TIME, now=NOW)

    assert [f.role for f in found] == ["b"]


@pytest.mark.parametrize(("calm", "is_back"), [(59, False), (60, True)])
def test_a_healthy_time_gives_the_budget_back_where_the_user_says_so(calm: int, is_back: bool) -> None:
    given, spent = {"a": rules(limit=2, reset=60)}, {"a": Restarts(count=2, used=2, streak=2)}
    time = timedelta(seconds=calm)

    found = admitted(failed_pods("a0"), given, spent, calm=time, now=NOW)

    assert bool(found) == is_back
    if found:
        new = decided(list(found), given, spent, calm=time).restarts["a"]
        assert (new.count, new.used, new.streak) == (3, 1, 1)


def test_a_healthy_time_gives_nothing_back_where_nobody_says_so() -> None:
    calm, spent = timedelta(days=9), {"a": Restarts(used=1)}

    assert not admitted(failed_pods("a0"), {"a": rules(limit=1)}, spent, calm=calm, now=NOW)


# --- scopes ---


def test_scope_pod_counts_once_and_dooms_nobody_else() -> None:
    new = decided(failed_pods("a0", "a2"), {"a": rules("Pod"), "b": rules("Pod")}, {"a": Restarts(count=1, used=1)})

    assert new.restarts == {
        "a": Restarts(count=2, used=2, streak=1, attempts={"0": 2, "2": 2}, incident_time=NOW, charged=True)
    }
    assert [new.restarts["a"].attempt_of(i) for i in range(3)] == [2, 0, 2]
    assert [restart.replica for restart in new.history] == ["a-0", "a-2"]


def test_scope_replica_counts_once_and_dooms_the_role() -> None:
    new = decided(failed_pods("a0", "a2"), {"a": rules("Replica"), "b": rules("Replica")})

    assert new.restarts == {"a": Restarts(count=1, used=1, streak=1, attempt=1, incident_time=NOW, charged=True)}


def test_scope_all_dooms_everybody_and_is_paid_for_by_one() -> None:
    given = {"a": rules("Pod"), "b": rules("All"), "c": rules("All")}

    new = decided(failed_pods("a0", "b0", "c0"), given, {"a": Restarts(count=4, used=4, attempts={"1": 4})})

    assert new.role == "b"
    assert new.restarts == {
        "a": Restarts(count=5, used=4, attempt=5, incident_time=NOW),
        "b": Restarts(count=1, used=1, streak=1, attempt=1, incident_time=NOW, charged=True),
        "c": Restarts(count=1, attempt=1, incident_time=NOW),
    }
    assert [restart.replica for restart in new.history] == ["b-0"]


def test_roles_of_different_scopes_restart_at_once() -> None:
    new = decided(failed_pods("a0", "a1", "b0", "b1"), {"a": rules("Replica"), "b": rules("Pod")})

    assert (new.restarts["a"].attempt, new.restarts["b"].attempts) == (1, {"0": 1, "1": 1})
    assert [restart.replica for restart in new.history] == ["a-0", "b-0", "b-1"]


def test_single_attempts_are_forgotten_when_the_whole_role_restarts() -> None:
    new = decided(failed_pods("a0"), {"a": rules("Replica")}, {"a": Restarts(count=2, used=2, attempts={"7": 2})})

    assert new.restarts["a"].attempts == {}
    assert new.restarts["a"].attempt_of(7) == 3


# --- incidents: what fails together is one restart ---


class Job:
    """A job whose pods fail. ``fail`` returns whether all of them are started again."""

    def __init__(self, *, limit: int | None = None, **roles: Rules) -> None:
        self.rules, self.limit = roles, limit
        self.restarts: dict[str, Restarts] = {}
        self.history: tuple[Any, ...] = ()
        self.created: dict[str, int] = {}
        """By pod: the attempt that it was created for."""

    def fail(self, *pods: str, at: float = 0, fault: Fault = FAILED, lost_peer: bool = False) -> bool:
        now = NOW + timedelta(seconds=at)
        failed = [
            FailedPod(name[0], int(name[1:]), fault, attempt=self.created.get(name, 0), has_lost_peer=lost_peer)
            for name in pods
        ]
        again = admitted(failed, self.rules, self.restarts, calm=NO_TIME, now=now, limit=self.limit)
        if again:
            decision = decide(again, self.rules, self.restarts, self.history, calm=NO_TIME, now=now)
            self.restarts, self.history = decision.restarts, decision.history
            for f in again:
                assert self.restarts[f.role].attempt_of(f.index) > f.attempt, "the failed pod is never replaced"
            for name in {*self.created, *pods}:
                of_role = self.restarts.get(name[0], NONE)
                if of_role.attempt_of(int(name[1:])) > self.created.get(name, 0):
                    self.created[name] = of_role.count
        return len(again) == len(failed)

    @property
    def used(self) -> int:
        """Of the limit of the job."""
        return sum(r.used_of_job for r in self.restarts.values())

    def role(self, name: str) -> tuple[int, int]:
        return self.restarts[name].count, self.restarts[name].used


def test_pods_that_fail_within_moments_are_one_restart() -> None:
    job = Job(limit=1, a=rules())

    assert job.fail("a0")
    assert job.fail("a1", "a2", at=0.05)
    assert job.fail("a3", at=10)

    assert (job.role("a"), job.used) == ((1, 1), 1)
    assert [restart.replica for restart in job.history] == ["a-0", "a-1", "a-2", "a-3"]


def test_a_pod_that_fails_later_is_another_restart() -> None:
    job = Job(limit=1, a=rules())

    assert job.fail("a0")
    assert not job.fail("a1", at=10.1)


def test_the_window_does_not_grow_with_each_failure() -> None:
    job = Job(a=rules())
    for index in range(5):
        job.fail(f"a{index}", at=4 * index)

    assert job.role("a") == (2, 2)


def test_a_pod_that_was_restarted_in_an_incident_is_not_part_of_it() -> None:
    job = Job(limit=2, a=rules())

    assert job.fail("a0", "a1")
    assert job.fail("a0", at=0.05)
    assert job.fail("a1", at=0.1), "it was not restarted in the second one"
    assert job.role("a") == (2, 2)
    assert not job.fail("a1", at=0.15)


def test_an_incident_of_two_roles_is_one_restart_of_the_job_and_one_of_each_role() -> None:
    job = Job(limit=1, a=rules(limit=1), b=rules(limit=1))

    assert job.fail("b0")
    assert job.fail("a0", at=0.05)
    assert job.fail("a1", "b1", at=0.1)

    assert (job.role("a"), job.role("b"), job.used) == ((1, 1), (1, 1), 1)
    assert not job.fail("a2", at=60)


def test_the_limit_of_a_job_is_about_all_roles_together() -> None:
    job = Job(limit=2, a=rules(), b=rules())

    assert [job.fail("a0"), job.fail("b0", at=60), job.fail("a0", at=120)] == [True, True, False]


def test_the_limit_of_a_role_is_charged_although_another_role_without_limit_always_fails_first() -> None:
    job = Job(a=rules(), b=rules(limit=3))
    rounds = [job.fail("a0", at=20.0 * n) and job.fail("b0", at=20.0 * n + 1, lost_peer=True) for n in range(4)]

    assert rounds == [True, True, True, False]


@pytest.mark.parametrize("scope", ["Replica", "All"])
def test_a_role_that_restarts_as_a_whole_joins_the_incident_of_another(scope: RestartScope) -> None:
    job = Job(limit=1, a=rules(), b=rules(scope))

    assert job.fail("a0")
    assert job.fail("b0", at=0.05)
    assert not job.fail("b0", at=0.1), "it was restarted in this incident"

    assert (job.restarts["b"].attempt, job.used) == (1, 1)


def test_a_restart_of_all_pods_is_charged_if_one_of_its_causes_is_not_part_of_the_last_incident() -> None:
    job = Job(limit=3, a=rules("All"), b=rules("Replica"))
    job.fail("b0")
    job.fail("b0", "a0", at=5)

    assert job.used == 2


def test_a_role_that_restarts_with_all_others_is_not_charged_for_that() -> None:
    job = Job(a=rules(), b=rules("All"))
    job.fail("a0")
    job.fail("b0", at=60)

    assert [job.restarts[role].charged for role in "ab"] == [False, True]


@pytest.mark.parametrize(("at", "is_one"), [(11, True), (600, True), (601, False)])
def test_a_pod_that_lost_a_peer_is_part_of_the_incident_for_longer(at: int, is_one: bool) -> None:
    """The peer waits for its back-off, and then for its image."""
    job = Job(limit=1, a=rules())

    assert job.fail("a0")
    assert job.fail("a1", at=at, lost_peer=True) == is_one


def test_pods_that_only_lose_their_peers_use_up_the_limit_all_the_same() -> None:
    job = Job(limit=2, a=rules())

    assert [job.fail("a0", "a1", at=n, lost_peer=True) for n in range(3)] == [True, True, False]


FREE = Fault("Failed", "it was evicted", has_failed=True, is_node=True, is_free=True, is_eviction=True)


def test_an_eviction_and_what_its_peers_do_is_free() -> None:
    job = Job(limit=0, a=rules(), b=rules(limit=0))

    assert job.fail("a0", fault=FREE)
    assert job.fail("a1", "b0", at=30, lost_peer=True)
    assert not job.fail("a2", at=31), "it failed by itself"

    assert (job.role("a"), job.role("b")) == ((1, 0), (1, 0))


def test_a_crash_is_charged_also_if_it_comes_just_after_an_eviction() -> None:
    job = Job(limit=1, a=rules())

    assert job.fail("a0", fault=FREE)
    assert job.fail("a1", at=1)
    assert job.fail("a2", at=2)

    assert (job.role("a"), job.used) == ((1, 1), 1)


def test_pods_of_one_incident_wait_for_one_back_off() -> None:
    job = Job(a=rules())
    job.fail("a0")
    job.fail("a1", at=0.05)
    assert (job.restarts["a"].streak, job.restarts["a"].next_time) == (1, None)

    job.fail("a0", at=60)
    job.fail("a1", at=61)
    assert (job.restarts["a"].streak, job.restarts["a"].next_time) == (2, NOW + timedelta(seconds=70))


def test_pods_that_are_evicted_one_after_the_other_wait_for_no_back_off() -> None:
    job = Job(a=rules())
    for index in range(4):
        job.fail(f"a{index}", at=30 * index, fault=FREE)

    assert (job.restarts["a"].streak, job.restarts["a"].next_time) == (0, None)
    assert job.role("a") == (4, 0)


def test_an_eviction_does_not_end_a_back_off() -> None:
    job = Job(a=rules())
    job.fail("a0")
    job.fail("a0", at=11)
    job.fail("a1", at=12, fault=FREE)

    assert job.restarts["a"].next_time == NOW + timedelta(seconds=21)


@pytest.mark.parametrize("ahead", [3600, -3600])
def test_a_clock_that_was_wrong_makes_no_incident_longer(ahead: int) -> None:
    job = Job(limit=1, a=rules())

    assert job.fail("a0", at=ahead)
    assert not job.fail("a1", at=0)


def test_a_budget_that_is_given_back_is_that_of_shared_restarts_too() -> None:
    given, calm = {"a": rules(limit=1, reset=60), "b": rules(limit=1, reset=60)}, timedelta(seconds=60)
    old = {"a": Restarts(count=1, used=1), "b": Restarts(count=1, used=1, shared=1)}

    new = decided(failed_pods("b0"), given, old, calm=calm).restarts

    assert (new["b"].used, new["b"].shared) == (1, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a0", "a1", "a2", "b0", "b1"]), st.floats(0, 15), st.booleans()),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from(["Pod", "Replica", "All"]),
)
def test_no_pod_is_restarted_more_often_than_its_job_is_charged(
    failures: list[tuple[str, float, bool]], scope: RestartScope
) -> None:
    """Whatever fails, however fast: so every crash loop uses up its limit."""
    job, now, times = Job(a=rules("Pod"), b=rules(scope)), 0.0, dict.fromkeys(["a0", "a1", "a2", "b0", "b1"], 0)
    for name, pause, lost_peer in failures:
        now += pause
        assert job.fail(name, at=now, lost_peer=lost_peer)
        times[name] += 1
        assert times[name] <= job.used
    assert job.used <= len(failures)


# --- back-off ---


@pytest.mark.parametrize(
    ("streak", "backoff", "seconds"),
    [(0, 10, None), (1, 10, 10), (2, 10, 20), (3, 10, 40), (6, 10, 300), (1000, 10, 300), (5, 0, None), (1, 600, 300)],
)
def test_restarts_without_calm_wait_longer_each_time(streak: int, backoff: int, seconds: int | None) -> None:
    new = decided(failed_pods("a0"), {"a": rules(backoff=backoff)}, {"a": Restarts(streak=streak)}).restarts["a"]

    assert new.next_time == (None if seconds is None else NOW + timedelta(seconds=seconds))
    assert new.is_waiting(NOW) == (seconds is not None)
    assert not new.is_waiting(NOW + timedelta(seconds=300))


def test_a_calm_time_ends_the_streak_but_not_the_count() -> None:
    old = {"a": Restarts(count=5, used=5, streak=5)}

    new = decided(failed_pods("a0"), {"a": rules()}, old, calm=timedelta(minutes=10)).restarts["a"]

    assert (new.count, new.used, new.streak, new.next_time) == (6, 6, 1, None)


@pytest.mark.parametrize(
    ("streak", "backoff", "seconds"),
    [
        pytest.param(3, 0, None, id="once"),
        pytest.param(0, 10, None, id="the first time"),
        pytest.param(1, 10, 10, id="the second time"),
        pytest.param(2, 10, 20, id="the third time"),
    ],
)
def test_places_whose_pods_go_through_no_fault_have_a_new_attempt_that_nobody_is_charged_for(
    streak: int, backoff: int, seconds: int | None
) -> None:
    old = Restarts(count=4, used=3, streak=streak, attempt=2)

    rules = {"a": Rules("Always", "Pod", None, backoff, None)}

    found = replaced({"a": old, "b": NONE}, [("a", 1), ("a", 7)], rules, NOW)

    assert found == {
        "a": Restarts(
            count=5,
            used=3,
            streak=streak + (1 if backoff else 0),
            attempt=2,
            attempts={"1": 5, "7": 5},
            next_time=NOW + timedelta(seconds=seconds) if seconds else None,
        ),
        "b": NONE,
    }


def test_a_back_off_that_runs_does_not_end_when_a_pod_is_replaced() -> None:
    """A restart of all pods makes roles wait that have not failed themselves."""
    old = Restarts(count=1, attempt=1, next_time=NOW + timedelta(seconds=10))

    found = replaced({"a": old}, [("a", 1)], {"a": rules()}, NOW)

    assert found["a"].next_time == NOW + timedelta(seconds=10)


def test_what_the_user_asks_for_is_a_new_attempt_but_no_restart() -> None:
    old = {"a": Restarts(count=4, used=3, streak=1, attempt=2), "b": NONE}

    suspended = after_suspension(old, ["a"])
    fewer = after_removal(old, [("a", 1), ("a", 7)])

    assert suspended == old | {"a": Restarts(count=5, requested=1, used=3, streak=1, attempt=5)}
    assert fewer == old | {"a": Restarts(count=5, requested=1, used=3, streak=1, attempt=2, attempts={"1": 5, "7": 5})}
    assert [found["a"].restarts for found in (suspended, fewer)] == [4, 4]


def test_a_restart_after_a_suspension_is_counted_as_the_first() -> None:
    new = decided(failed_pods("a0"), {"a": rules()}, after_suspension({}, ["a"]))

    assert new.message == "restart times is 1, it failed"
    assert new.restarts["a"].attempt_of(0) == 2


def test_everybody_waits_for_a_restart_of_all() -> None:
    new = decided(failed_pods("a0"), {"a": rules("All"), "b": rules()}, {"a": Restarts(streak=1)}).restarts

    assert new["b"].next_time == new["a"].next_time == NOW + timedelta(seconds=10)


# --- what is told ---


def test_a_restart_is_told_with_its_count_and_cause() -> None:
    new = decided(failed_pods("a0"), {"a": rules()}, {"a": Restarts(count=2)})

    assert new.message == "restart times is 3, it failed"


def test_many_causes_are_not_all_quoted() -> None:
    new = decided(failed_pods(*(f"a{i}" for i in range(9))), {"a": rules()})

    assert new.message.endswith("; and 6 more")


def test_the_history_is_bounded_and_keeps_the_newest() -> None:
    history: tuple[Any, ...] = ()
    for i in range(HISTORY + 3):
        history = decided(failed_pods(f"a{i}"), {"a": rules()}, history=history).history

    assert [restart.replica for restart in history] == [f"a-{i}" for i in range(3, HISTORY + 3)]


def test_the_history_tells_how_and_where() -> None:
    fault = Fault("Failed", "", node="n1", has_failed=True, exits=(137,), reason="OOMKilled", line="step 9")

    (told,) = decided([FailedPod("A", 0, fault)], {"A": rules()}).history

    assert (told.time, told.replica, told.scope, told.exit_code) == (NOW, "a-0", "Pod", 137)
    assert (told.signal, told.reason, told.node, told.line) == ("SIGKILL", "OOMKilled", "n1", "step 9")


def test_a_back_off_that_a_wrong_clock_stored_is_not_waited_for() -> None:
    assert Restarts(next_time=NOW + timedelta(seconds=300)).is_waiting(NOW)
    assert not Restarts(next_time=NOW + timedelta(hours=3)).is_waiting(NOW)
