"""What the benchmark creates, and how it reads what becomes of it."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from bench import work
from bench.work import FIRST_MX, MX, TRAINING, Sort

SORTS = [pytest.param(TRAINING, id="AITrainingJob"), pytest.param(MX, id="MXJob"), pytest.param(FIRST_MX, id="MxJob")]


def pod_templates(sort: Sort) -> list[dict[str, Any]]:
    """Of the first job: its pods, or what its batch Jobs make them of."""
    bodies = [request.body for request in work.children("bench", 1, sort) if request.body]
    templates = [body["spec"]["template"] for body in bodies if body["kind"] == "Job"]
    return templates + [body for body in bodies if body["kind"] == "Pod"]


def mx_status(*, is_running: bool, active: int) -> dict[str, Any]:
    """A scheduler, a server and two workers, of whom so many are active."""
    counts = {"Scheduler": min(active, 1), "Server": min(max(active - 1, 0), 1), "Worker": max(active - 2, 0)}
    return {
        "conditions": [{"type": "Running", "status": str(is_running)}],
        "replicaStatuses": {role: {"active": count} for role, count in counts.items()},
    }


@pytest.mark.parametrize(
    ("sort", "pods", "batch_jobs"),
    [
        pytest.param(TRAINING, 4, 0, id="AITrainingJob"),
        pytest.param(MX, 4, 0, id="MXJob"),
        pytest.param(FIRST_MX, 6, 6, id="MxJob"),
    ],
)
def test_jobs_are_as_large_as_the_budgets_mean_them(sort: Sort, pods: int, batch_jobs: int) -> None:
    assert sort.pods(3) == 3 * pods
    assert sort.children(3).get(work.BATCH_JOBS, 0) == 3 * batch_jobs
    assert sort.has_batch_jobs == bool(batch_jobs)


def test_the_loader_creates_all_pods_of_the_big_job() -> None:
    kinds = Counter(request.body["kind"] for request in work.big_children("bench", 500) if request.body)

    assert kinds == {"Pod": 500, "Service": 500, "ConfigMap": 1}


@pytest.mark.parametrize("sort", SORTS)
def test_a_pod_names_its_job(sort: Sort) -> None:
    names = [template["metadata"]["labels"][sort.name_label] for template in pod_templates(sort)]

    assert names == [work.name_of(0)] * sort.pods(1)


@pytest.mark.parametrize("sort", SORTS)
def test_the_container_that_succeeds_is_the_one_of_the_pods(sort: Sort) -> None:
    reported = [status["name"] for status in work.succeeded(sort.container)["containerStatuses"]]

    for template in pod_templates(sort):
        assert [container["name"] for container in template["spec"]["containers"]] == reported


def test_every_named_pod_is_reported() -> None:
    requests = list(work.pod_reports("bench", ["b", "a"], {"phase": "Succeeded"}))

    assert [(request.method, request.path) for request in requests] == [
        ("PATCH", "/api/v1/namespaces/bench/pods/b/status"),
        ("PATCH", "/api/v1/namespaces/bench/pods/a/status"),
    ]
    assert {msgspec.json.encode(request.body) for request in requests} == {b'{"status":{"phase":"Succeeded"}}'}


@pytest.mark.parametrize(
    ("sort", "status", "runs"),
    [
        pytest.param(TRAINING, {"phase": "Creating"}, False, id="AITrainingJob before"),
        pytest.param(TRAINING, {"phase": "Running"}, True, id="AITrainingJob"),
        pytest.param(TRAINING, {}, False, id="no status"),
        pytest.param(MX, mx_status(is_running=True, active=3), False, id="MXJob that misses a worker"),
        pytest.param(MX, mx_status(is_running=True, active=4), True, id="MXJob as a whole"),
        pytest.param(MX, mx_status(is_running=False, active=4), False, id="MXJob that does not say so"),
        pytest.param(FIRST_MX, {"phase": "Creating", "state": "Running"}, False, id="MxJob before"),
        pytest.param(FIRST_MX, {"phase": "Running", "state": "Running"}, True, id="MxJob"),
    ],
)
def test_a_job_runs_when_its_status_says_it_of_all_pods(sort: Sort, status: dict[str, Any], runs: bool) -> None:
    assert sort.runs(msgspec.json.encode(status)) is runs
