"""What is told of a job that restarts as a whole, and of the small ones beside it."""

import msgspec
import pytest

from bench.restart import Restart
from bench.table import Results, budgets, render
from bench.watch import Scope, Turnover
from trainmaster.kinds.aitrainingjob.labels import TRAINING_JOB_NAME

RESTART = Restart(
    pods=500,
    raw=[9.0, 11.0],
    operator=15.0,
    idle=[0.01] * 99 + [0.5],
    beside_raw=[0.1] * 60 + [0.4] * 40,
    beside=[0.02] * 100,
)


def test_a_restart_is_held_against_the_ceiling_and_against_quiet_times() -> None:
    assert budgets(Results(250, restart=RESTART)) == [
        ("restart of 500 pods within 1.5 × the ceiling", "1.50 ×", "ok"),
        ("other jobs get their pods meanwhile within 2 × their usual time, p99", "2.00 × (20 ms, not 10 ms)", "ok"),
    ]


def test_the_share_of_the_machine_is_told_beside_ours() -> None:
    assert render(Results(250, restart=RESTART)).splitlines()[-1] == (
        "(h) ms until another job has its pod, p50 and p99: alone 10 and 10 (100 jobs); "
        "beside the loader's restart 100 and 400 (100 jobs); beside ours 20 and 20 (100 jobs)"
    )


def line(kind: str, name: str, job: str, phase: str = "") -> bytes:
    meta = {"name": name, "labels": {TRAINING_JOB_NAME: job}}
    return msgspec.json.encode({"type": kind, "object": {"metadata": meta, "status": {"phase": phase}}})


def test_every_turn_of_the_big_job_is_said_with_its_number(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pods, jobs = Turnover(Scope("", "", "", "", {"pods": 2}, big="big")).sources
    for _ in range(2):
        for kind, phase in (("ADDED", "Pending"), ("MODIFIED", "Running"), ("DELETED", "Running")):
            for name in ("big-0", "big-1"):
                pods.take(line(kind, name, "big", phase))
    jobs.take(line("ADDED", "small", ""))
    pods.take(line("ADDED", "small-0", "small"))

    said = [msgspec.json.decode(each) for each in capfdbinary.readouterr().out.splitlines()]
    words = [each["said"] for each in said]
    assert words == ["created 1", "running 1", "gone 1", "created 2", "running 2", "gone 2", "small"]
    assert said[-1]["took"] >= 0.0
