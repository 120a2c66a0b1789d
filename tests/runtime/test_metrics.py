import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from prometheus_client import REGISTRY

from testbed.operator import REPOSITORY
from trainmaster.core.condition import CONTAINER_CREATE_FAILED, FINISHED, POD_CREATE_FAILED, PODS_WAITING, Condition
from trainmaster.core.ids import Key, Resource
from trainmaster.lifecycle.reason import QUEUED
from trainmaster.runtime.job_summary import StatusSummary, summary_of
from trainmaster.runtime.metrics import ControllerMetrics, JobMetrics, RequestMetrics, observe_caches

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
_FAMILIES = ("workqueue", "controller_runtime", "rest_client", "leader_election", "training_operator", "trainmaster")


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_requests_are_counted_by_method_and_code_and_measured_by_method() -> None:
    metrics = RequestMetrics()
    for code, seconds in (("200", 0.5), ("200", 0.25), ("<error>", 1.0)):
        metrics.observe("TEST", code, seconds)

    assert value("rest_client_requests_total", method="TEST", code="200") == 2
    assert value("rest_client_requests_total", method="TEST", code="<error>") == 1
    assert value("rest_client_request_duration_seconds_count", verb="TEST") == 3
    assert value("rest_client_request_duration_seconds_sum", verb="TEST") == 1.75


JOB = Key("ml", "mnist")
PHASES = frozenset({"Created", "Running", "Restarting", "Succeeded", "Failed"})
RUNS = summary_of({"phase": "Running"})


def job_counts(framework: str) -> dict[str, float]:
    """What is counted of the jobs of one namespace, without what is not."""
    words = ("created", "deleted", "successful", "failed", "restarted")
    names = {word: f"training_operator_jobs_{word}_total" for word in words}
    found = {word: value(name, job_namespace="ml", framework=framework) for word, name in names.items()}
    return {word: count for word, count in found.items() if count}


def phases(kind: str) -> dict[str, float]:
    found = (sample for metric in REGISTRY.collect() if metric.name == "trainmaster_jobs" for sample in metric.samples)
    return {s.labels["phase"]: s.value for s in found if s.labels["kind"] == kind and s.value}


def ended(reason: str) -> StatusSummary:
    return summary_of({"phase": reason, "conditions": [{"type": "Finished", "status": "True", "reason": reason}]})


def restarted(times: int) -> StatusSummary:
    return summary_of({"phase": "Restarting", "restarts": {"Worker": {"count": times, "used": times}}})


ENDED_BEFORE = summary_of({"conditions": [{"type": "Failed", "status": "True"}]})


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [
        pytest.param(StatusSummary(), summary_of({"phase": "Created"}), {"created": 1}, id="its first status"),
        pytest.param(StatusSummary(), ended("Failed"), {"created": 1, "failed": 1}, id="failed at once"),
        pytest.param(RUNS, RUNS, {}, id="another counter"),
        pytest.param(RUNS, ended("Succeeded"), {"successful": 1}, id="succeeded"),
        pytest.param(RUNS, ended("Failed"), {"failed": 1}, id="failed"),
        pytest.param(ended("Failed"), ended("Failed"), {}, id="it was said already"),
        pytest.param(RUNS, restarted(1), {"restarted": 1}, id="its first restart"),
        pytest.param(restarted(1), restarted(3), {"restarted": 2}, id="two more"),
        pytest.param(restarted(3), RUNS, {}, id="counters that begin anew"),
        pytest.param(ENDED_BEFORE, ended("Failed"), {}, id="another operator's verdict"),
    ],
)
def test_what_a_stored_status_says_of_a_job_is_counted_once(
    before: StatusSummary, after: StatusSummary, counted: dict[str, float], request: pytest.FixtureRequest
) -> None:
    framework = request.node.name
    JobMetrics("toy", framework, PHASES, lambda: NOON).stored("ml", before, after)

    assert job_counts(framework) == counted


def test_what_has_not_happened_yet_is_counted_as_nothing() -> None:
    JobMetrics("toy", "fresh", PHASES, lambda: NOON).stored("ml", StatusSummary(), RUNS)

    assert (
        REGISTRY.get_sample_value("training_operator_jobs_failed_total", {"job_namespace": "ml", "framework": "fresh"})
        == 0.0
    )


class Cache(NamedTuple):
    resource: Resource
    behind: float


def test_counters_that_alerts_watch_are_there_before_they_count() -> None:
    """Prometheus sees no increase in the first value of a series."""
    observe_caches([Cache(Resource("example.com", "v1", "fresh", "Fresh"), 0.0)])

    unreadable = REGISTRY.get_sample_value("trainmaster_unreadable_objects_total", {"resource": "fresh.example.com"})
    dropped = REGISTRY.get_sample_value("trainmaster_events_dropped_total", {"because": "defect"})
    assert unreadable == 0.0
    assert dropped is not None  # other tests may have counted


def test_jobs_are_shown_by_their_phase_until_they_are_gone() -> None:
    metrics = JobMetrics("shown", "shown", PHASES, lambda: NOON)
    metrics.shows(JOB, "")
    metrics.shows(Key("ml", "other"), "Running")
    assert phases("shown") == {"New": 1, "Running": 1}

    metrics.shows(JOB, "Running")
    metrics.shows(JOB, "Running")
    assert phases("shown") == {"Running": 2}

    metrics.is_gone(JOB)
    metrics.is_gone(JOB)
    assert phases("shown") == {"Running": 1}
    assert job_counts("shown") == {"deleted": 1}


def test_a_phase_that_the_kind_does_not_have_makes_no_series_of_its_own() -> None:
    """Who may write a status may write any phase."""
    metrics = JobMetrics("odd", "odd", frozenset({"Running"}), lambda: NOON)
    for number in range(100):
        metrics.shows(Key("ml", f"job-{number}"), f"odd-{number}")
    metrics.shows(JOB, "Running")
    assert phases("odd") == {"Other": 100, "Running": 1}

    metrics.shows(Key("ml", "job-0"), "Running")
    metrics.is_gone(Key("ml", "job-1"))
    assert phases("odd") == {"Other": 98, "Running": 2}


def since(type_: str, minutes: float, status: str = "True", reason: str = "") -> Condition:
    return Condition(type_, status, reason, last_transition_time=NOON - timedelta(minutes=minutes))


def longest_waits(kind: str) -> dict[str, float]:
    """In minutes, without those that are 0."""
    found = {
        type_: value("trainmaster_longest_wait_seconds", kind=kind, condition=type_) / 60
        for type_ in (POD_CREATE_FAILED, CONTAINER_CREATE_FAILED, PODS_WAITING)
    }
    return {type_: minutes for type_, minutes in found.items() if minutes}


def test_the_longest_wait_is_that_of_the_job_whose_pods_wait_longest() -> None:
    metrics = JobMetrics("waits", "waits", PHASES, lambda: NOON)
    other = Key("ml", "other")
    metrics.shows(JOB, "Created", (since(PODS_WAITING, 90), since(POD_CREATE_FAILED, 5)))
    metrics.shows(other, "Created", (since(PODS_WAITING, 30),))
    assert longest_waits("waits") == {PODS_WAITING: 90, POD_CREATE_FAILED: 5}

    metrics.shows(JOB, "Running", (since(PODS_WAITING, 1, status="False"),))
    assert longest_waits("waits") == {PODS_WAITING: 30}

    metrics.is_gone(other)
    assert longest_waits("waits") == {}


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param((since(PODS_WAITING, 90, reason=QUEUED),), id="in a queue of Kueue"),
        pytest.param((since(FINISHED, 1), since(CONTAINER_CREATE_FAILED, 90)), id="has ended"),
        pytest.param((Condition(PODS_WAITING, "True"),), id="nobody knows since when"),
    ],
)
def test_the_longest_wait_leaves_out_a_job_that(conditions: tuple[Condition, ...]) -> None:
    metrics = JobMetrics("patient", "patient", PHASES, lambda: NOON)
    metrics.shows(JOB, "Created", conditions)

    assert longest_waits("patient") == {}


def namespaces(framework: str) -> list[str]:
    """Of which something is counted."""
    found = (sample for metric in REGISTRY.collect() for sample in metric.samples)
    return sorted({s.labels["job_namespace"] for s in found if s.labels.get("framework") == framework})


def test_series_of_the_namespace_whose_jobs_went_first_are_removed_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainmaster.runtime.metrics.EMPTY_NAMESPACES", 2)
    metrics = JobMetrics("gone", "gone", frozenset({"Running"}), lambda: NOON)
    kept, *others = [Key(f"ns-{number}", "job") for number in range(5)]
    for job in (kept, *others):
        metrics.shows(job, "Running")
        metrics.stored(job.namespace, StatusSummary(), RUNS)
    assert len(namespaces("gone")) == 5

    for job in others:
        metrics.is_gone(job)

    assert namespaces("gone") == ["ns-0", "ns-3", "ns-4"]


def test_series_of_a_namespace_that_has_jobs_again_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmaster.runtime.metrics.EMPTY_NAMESPACES", 1)
    metrics = JobMetrics("again", "again", frozenset({"Running"}), lambda: NOON)
    first, second = Key("ns-0", "job"), Key("ns-1", "job")
    for job in (first, second):
        metrics.shows(job, "Running")
    metrics.is_gone(first)
    metrics.shows(first, "Running")
    metrics.is_gone(second)

    assert namespaces("again") == ["ns-0", "ns-1"]


def test_the_document_names_no_metric_that_is_not_measured() -> None:
    text = (REPOSITORY / "docs" / "operating.md").read_text()
    section = text.partition("## Health and metrics")[2].partition("\n## ")[0]
    named = set(re.findall(rf"\b(?:{'|'.join(_FAMILIES)})_\w*[a-z]\b", section))
    suffixes = {"counter": ("_total",), "histogram": ("", "_bucket"), "gauge": ("",)}
    measured = {f"{m.name}{suffix}" for m in REGISTRY.collect() for suffix in suffixes.get(m.type, ())}

    assert len(named) >= 8
    assert named <= measured


@pytest.mark.parametrize(("seconds", "counted"), [(0.2, 1), (0.05, 0)])
def test_a_plan_that_takes_long_is_counted(monkeypatch: pytest.MonkeyPatch, seconds: float, counted: int) -> None:
    clock = itertools.count(0.0, seconds)
    monkeypatch.setattr("trainmaster.runtime.metrics.perf_counter", lambda: next(clock))
    name = f"slow-{counted}"

    with ControllerMetrics(name, 1, ()).planning(JOB):
        pass

    assert value("trainmaster_slow_plans_total", kind=name) == counted
