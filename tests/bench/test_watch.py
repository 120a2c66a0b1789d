"""The observer's account of jobs and their pods."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from bench.watch import Life, Scope
from bench.work import FIRST_MX, MX, TRAINING, Sort


class Watched:
    """A life of jobs with two pods each, told line by line."""

    def __init__(self, sort: Sort, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("bench.watch.time", SimpleNamespace(monotonic=lambda: self.now))
        scope = Scope("", "", "", "bench", {"pods": 2 * jobs}, sort.resource, jobs)
        self.life = Life(scope)
        self._label = sort.name_label
        self._take_pod, self._take_job = (source.take for source in self.life.sources)

    def pod(self, name: str, job: str, phase: str) -> None:
        metadata = {"name": name, "labels": {self._label: job}}
        self._take_pod(line({"metadata": metadata, "status": {"phase": phase}}))

    def job(self, name: str, status: dict[str, Any]) -> None:
        self._take_job(line({"metadata": {"name": name}, "status": status}))


def line(found: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": "MODIFIED", "object": found})


def said(capsysbinary: pytest.CaptureFixture[bytes]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(text) for text in capsysbinary.readouterr().out.splitlines()]


def phase(name: str) -> dict[str, Any]:
    return {"phase": name}


def counted(workers: int) -> dict[str, Any]:
    """An MXJob that runs with its scheduler, its server and so many workers."""
    counts = {"Scheduler": 1, "Server": 1, "Worker": workers}
    return {
        "phase": "Running",
        "conditions": [{"type": "Running", "status": "True"}],
        "replicaStatuses": {role: {"active": count} for role, count in counts.items()},
    }


@pytest.mark.parametrize(
    ("sort", "before", "running", "ends"),
    [
        pytest.param(TRAINING, phase("Creating"), phase("Running"), [phase("Succeed")], id="AITrainingJob"),
        pytest.param(MX, counted(1), counted(2), [phase("Succeeded")], id="MXJob"),
        pytest.param(FIRST_MX, phase("Creating"), phase("Running"), [phase("CleanUp"), phase("Done")], id="MxJob"),
    ],
)
def test_a_life_is_told_from_its_pods_and_statuses(
    sort: Sort,
    before: dict[str, Any],
    running: dict[str, Any],
    ends: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    watched = Watched(sort, 1, monkeypatch)
    watched.pod("b", "one", "Pending")
    watched.job("one", before)
    watched.now = 1.0
    watched.pod("a", "one", "Running")
    assert [found["pods"] for found in said(capsysbinary)] == [["a", "b"]]

    watched.now = 2.0
    watched.pod("b", "one", "Running")
    watched.now = 2.5
    watched.pod("b", "one", "Running")
    watched.job("one", before)
    assert said(capsysbinary) == []

    watched.now = 3.0
    watched.job("one", running)
    watched.now = 3.5
    watched.job("one", running | {"observedGeneration": 1})
    assert said(capsysbinary) == [{"said": "running"}]

    for status in ends:
        assert said(capsysbinary) == []
        watched.now += 1
        watched.job("one", status)
    (ended,) = said(capsysbinary)
    life = ended["jobs"]["one"]
    assert (ended["said"], life["last_pod_running"], life["running"]) == ("ended", 2.0, 3.0)
    assert life["status_writes"] == 3 + len(ends)
    assert life["phases"] == list(dict.fromkeys(status["phase"] for status in [before, running, *ends]))


def test_all_jobs_are_waited_for(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    watched = Watched(FIRST_MX, 2, monkeypatch)
    for job, words in {"one": [], "two": ["running"]}.items():
        watched.job(job, phase("Running"))
        assert [found["said"] for found in said(capsysbinary)] == words
    for job, words in {"one": [], "two": ["ended"]}.items():
        watched.job(job, phase("Done"))
        assert [found["said"] for found in said(capsysbinary)] == words

    assert watched.life.counts() == {"pods": 0, "running pods": 0, "running jobs": 2, "ended jobs": 2}
