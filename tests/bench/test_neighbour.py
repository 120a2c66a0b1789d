"""What is told of a job beside many jobs of another namespace."""

from bench.neighbour import Neighbour, Taken
from bench.table import Results, budgets, render


def taken(*pods: float) -> list[Taken]:
    return [Taken(seconds, seconds + 1) for seconds in pods]


FOUND = Neighbour(jobs=200, alone=taken(0.5, 0.4, 0.9), beside_raw=taken(0.8, 1.2), beside=taken(1.0, 1.5, 0.7))


def test_the_slowest_job_is_held_against_the_usual_time() -> None:
    says = "a job has its pods within 3 × its usual time beside 200 of another namespace"

    assert budgets(Results(250, neighbour=FOUND)) == [(says, "3.00 ×", "ok")]


def test_the_share_of_the_machine_is_told() -> None:
    ending = render(Results(250, neighbour=FOUND)).splitlines()[-2:]

    assert ending[0] == (
        "(j) s until a job of another namespace has its pods, median and maximum: alone 0.50 and 0.90 (3 jobs); "
        "beside the loader 1.00 and 1.20 (2 jobs); beside ours 1.00 and 1.50 (3 jobs)"
    )
    assert ending[1] == (
        "(j) s until a job of another namespace runs, median and maximum: alone 1.50 and 1.90 (3 jobs); "
        "beside the loader 2.00 and 2.20 (2 jobs); beside ours 2.00 and 2.50 (3 jobs)"
    )
