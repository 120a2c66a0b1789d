"""The verdicts on the budgets that all kinds share."""

import msgspec
import pytest

from bench.machine import OTHERS, Memory
from bench.phase import Compared, Created, Footprint, Lives
from bench.table import Results, budgets, render

KEPT = Lives(
    pods=1000,
    delays=[0.1] * 98 + [1.0, 5.0],
    status_writes=[4, 6],
    phases={"Creating Running Done": 100},
    memory=Memory(80.0, 92.5),
    peak_at_end=95.0,
)
WHOSE = [
    pytest.param("lives", "", id="AITrainingJobs"),
    pytest.param("mx_lives", "MXJobs: ", id="MXJobs"),
    pytest.param("first_mx_lives", "MxJobs: ", id="MxJobs"),
    pytest.param("task_lives", "DIJobs with tasks: ", id="DIJobs with tasks"),
]


def created(seconds: float, others: float = 0.0) -> Created:
    return Created(700, seconds, {"apiserver": 1.0, OTHERS: others})


def results(**measured: Lives | Compared | Footprint) -> Results:
    return msgspec.structs.replace(Results(250), **measured)


def test_what_was_left_out_is_not_judged() -> None:
    assert budgets(Results(250)) == []


@pytest.mark.parametrize(("field", "whose"), WHOSE)
def test_the_lives_of_each_kind_are_held_against_the_same_budgets(field: str, whose: str) -> None:
    assert budgets(results(**{field: KEPT})) == [
        (f"{whose}Running at most 1 s after the job's last pod, p99", "1.000 s", "ok"),
        (f"{whose}at most 6 status writes a job", "6 writes", "ok"),
        (f"{whose}memory with 1000 pods at most 80 MB", "80.0 MB (peak 92.5)", "ok"),
    ]


@pytest.mark.parametrize(("field", "whose"), WHOSE)
@pytest.mark.parametrize(
    ("changed", "over"),
    [
        pytest.param({"delays": [0.1] * 98 + [1.001, 5.0]}, "Running", id="late"),
        pytest.param({"status_writes": [4, 7]}, "at most 6 status writes", id="many writes"),
        pytest.param({"memory": Memory(80.1, 80.1)}, "memory", id="large"),
    ],
)
def test_each_budget_can_be_exceeded(field: str, whose: str, changed: dict[str, object], over: str) -> None:
    lives = msgspec.structs.replace(KEPT, **changed)

    (exceeded,) = [budget.says for budget in budgets(results(**{field: lives})) if budget.verdict == "OVER"]
    assert exceeded.startswith(f"{whose}{over}")


@pytest.mark.parametrize(
    ("field", "kind"), [("mx_jobs", "MXJobs"), ("first_mx_jobs", "MxJobs"), ("task_jobs", "DIJobs with tasks")]
)
@pytest.mark.parametrize(("seconds", "ratio", "verdict"), [(2.6, "1.30 ×", "ok"), (2.7, "1.35 ×", "OVER")])
def test_the_creation_is_held_against_the_loader(
    field: str, kind: str, seconds: float, ratio: str, verdict: str
) -> None:
    compared = Compared([created(1.9), created(2.1)], [created(seconds)], [])

    assert budgets(results(**{field: compared})) == [(f"{kind}: all objects within 1.3 × the ceiling", ratio, verdict)]


@pytest.mark.parametrize(("restarted", "verdict"), [(150.0, "ok"), (150.1, "OVER")])
def test_the_memory_of_many_pods_counts_after_a_restart_too(restarted: float, verdict: str) -> None:
    footprint = Footprint(10000, Memory(140.0, 141.0), Memory(restarted, 151.0))

    (budget,) = budgets(results(footprint=footprint))
    assert (budget.says, budget.verdict) == ("memory with 10000 pods at most 150 MB", verdict)


@pytest.mark.parametrize(
    ("field", "row", "note"),
    [
        ("lives", "(d) job Running after its last pod, p99", "(d) phases: 100 × Creating Running Done; 5.0 status"),
        ("mx_lives", "(i) MXJob Running after its last pod, p99", "(i) MXJobs: phases: 100 × Creating Running Done"),
        ("first_mx_lives", "(i) MxJob Running after its last pod, p99", "(i) MxJobs: phases: 100 × Creating Running"),
    ],
)
def test_the_table_tells_the_lives(field: str, row: str, note: str) -> None:
    lines = render(results(**{field: KEPT})).splitlines()

    assert [line.split()[-1] for line in lines if line.startswith(row)] == ["ok"]
    assert [line for line in lines if line.startswith(note)]


@pytest.mark.parametrize(("others", "is_noisy"), [(0.3, False), (0.5, True)])
def test_a_disturbed_comparison_says_so(others: float, is_noisy: bool) -> None:
    compared = Compared([created(2.0), created(2.0)], [created(2.0, others)], [])

    assert ("NOISY" in render(results(mx_jobs=compared))) is is_noisy


def test_the_share_of_the_jobs_themselves_is_told() -> None:
    compared = Compared([created(2.0), created(2.0)], [created(2.6)], [0.5])

    told = "(i) MXJobs: this includes the creation of the jobs, which alone takes 0.50 s: 0.25 × the ceiling"
    assert told in render(results(mx_jobs=compared)).splitlines()
