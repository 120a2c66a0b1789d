"""What becomes of an MXJob, as a table, played on the real API server and on the embedded one with the same trace.

A row is a job that comes up; then something happens to it. What has to follow is in docs/mxjob.md; where the older
operators contradict each other, docs/decisions/0023 says which one counts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.integration.scene import ENDED, Job, Scene
from tests.integration.stage import embedded_plane
from tests.integration.test_twice import Play, Trace, cannot_be_created, is_never_accepted, trace_all
from tests.manifests.build import MXNET, Manifest, container, mx_replica, mxjob

Act = Callable[[Job], Awaitable[None]]

UP = ["Created", "Running"]
ALL = {"scheduler-0", "server-0", "worker-0", "worker-1"}
TUNING = {role: mx_replica() for role in ("TunerTracker", "TunerServer", "Tuner")}


class Row(NamedTuple):
    """``path`` are the phases of the job; ``says`` is in the message of its last condition; ``left`` are the pods that
    are there at the end, None where that is not the question."""

    id: str
    spec: Manifest
    acts: tuple[Act, ...]
    path: list[str]
    says: str = ""
    left: set[str] | None = None


# --- jobs ---


def trains(policy: str = "Never", *, worker: Manifest | None = None, **spec: Any) -> Manifest:
    """A scheduler, a server and two workers, all under this restart policy."""
    roles = {role: mx_replica(restartPolicy=policy) for role in ("Scheduler", "Server", "Worker")}
    roles["Worker"] |= {"replicas": 2, **(worker or {})}
    return {"mxReplicaSpecs": roles, **spec}


def policy(**fields: Any) -> Manifest:
    return {"runPolicy": fields}


# --- what happens to them ---


async def come_up(job: Job) -> None:
    """All pods run, and the job knows of every one of them."""
    await job.pods_are_there()
    await job.until(lambda: job.phase in ("Created", "Restarting"), "it knows that they are there")
    await run(job)


async def run(job: Job) -> None:
    await job.scene.report("Running", *job.slots)
    await job.reach("Running")
    await job.until(lambda: sum(map(len, job.status.get("ran", {}).values())) == len(job.slots), "all have run")


def ends(*places: str, code: int = 0) -> Act:
    """These pods end, one after the other: two that are seen at once would leave another trace than two that are
    not."""

    async def act(job: Job) -> None:
        for number, place in enumerate(places, start=1):
            await job.scene.end(f"job-{place}", code)
            await job.until(partial(_is_seen, job, number), f"{place} was looked at")

    return act


def _is_seen(job: Job, ended: int) -> bool:
    counters = job.status.get("replicaStatuses", {}).values()
    counted = sum(counter.get("succeeded", 0) + counter.get("failed", 0) for counter in counters)
    return job.phase != "Running" or counted == ended


def fails(place: str, code: int) -> Act:
    return ends(place, code=code)


def loses(place: str) -> Act:
    """Somebody deletes the pod."""

    async def act(job: Job) -> None:
        await job.scene.admin.delete("pods", job.scene.namespace, f"job-{place}")
        await job.until(lambda: job.phase != "Running", f"{place} is missed")

    return act


def evicted(place: str) -> Act:
    async def act(job: Job) -> None:
        name = f"job-{place}"
        await job.scene.admin.set_pod(job.scene.namespace, name, phase="Failed", reason="Evicted", message="no disk")
        await job.until(lambda: job.phase != "Running", "it was looked at")

    return act


def comes_back(*places: str) -> Act:
    """These pods, and no others, come a second time; then all run."""

    async def act(job: Job) -> None:
        names = {f"job-{place}" for place in places}
        await job.until(lambda: _twice(job) >= names, f"{names} are there again")
        await come_up(job)
        assert _twice(job) == names

    return act


def _twice(job: Job) -> set[str]:
    return {name for name, number in job.scene.incarnations("pods").items() if number == 2}


async def grown(job: Job) -> None:
    await job.until(lambda: "job-worker-2" in job.children("pods"), "it has a third worker")
    await run(job)


def cleared_away(place: str) -> Act:
    """Somebody deletes a pod that has ended."""

    async def act(job: Job) -> None:
        await job.scene.admin.delete("pods", job.scene.namespace, f"job-{place}")
        await left_with(ALL - {place})(job)

    return act


def left_with(places: set[str]) -> Act:
    async def act(job: Job) -> None:
        await job.until(lambda: _own(job.children("pods")) == places, f"it has {places}")

    return act


async def regrown(job: Job) -> None:
    await job.until(lambda: _twice(job) == {"job-worker-1"}, "its second worker is there again")
    await run(job)


def edited(**spec: Any) -> Act:
    return lambda job: job.edit(spec)


async def stopped(job: Job) -> None:
    await job.until(lambda: job.phase == "Suspended" and not job.children("pods"), "it is stopped")
    await job.until(lambda: not job.children("services"), "its services are gone")


async def ended(job: Job) -> None:
    await job.reach(*ENDED)


SUSPENDED = (edited(runPolicy={"suspend": True}), stopped, edited(runPolicy={"suspend": False}))

ROWS = [
    # how it ends
    Row("scheduler-succeeds", trains(), (come_up, ends("scheduler-0")), [*UP, "Succeeded"], "successfully completed"),
    Row("worker-succeeds", trains(), (come_up, ends("worker-0")), UP),
    Row("all-but-the-scheduler", trains(), (come_up, ends("server-0", "worker-0", "worker-1")), UP),
    Row("worker-fails", trains(), (come_up, fails("worker-1", 3)), [*UP, "Failed"], "exitcode 3"),
    Row("server-fails", trains(), (come_up, fails("server-0", 1)), [*UP, "Failed"], "1 Server replica(s) failed"),
    Row("scheduler-fails", trains(), (come_up, fails("scheduler-0", 1)), [*UP, "Failed"], "1 Scheduler"),
    Row(
        "all-workers-and-the-scheduler-is-done",
        trains(successPolicy="AllWorkers"),
        (come_up, ends("scheduler-0", "worker-0")),
        UP,
    ),
    Row(
        "all-workers-are-done",
        trains(successPolicy="AllWorkers"),
        (come_up, ends("worker-0", "worker-1")),
        [*UP, "Succeeded"],
    ),
    Row(
        "all-workers-are-done-and-one-was-cleared-away",
        trains(successPolicy="AllWorkers"),
        (come_up, ends("worker-0"), cleared_away("worker-0"), ends("worker-1"), ended),
        [*UP, "Succeeded"],
    ),
    Row(
        "workers-alone",
        {"mxReplicaSpecs": {"Worker": mx_replica(replicas=2)}},
        (come_up, ends("worker-1", "worker-0")),
        [*UP, "Succeeded"],
    ),
    Row("one-of-two-workers", {"mxReplicaSpecs": {"Worker": mx_replica(replicas=2)}}, (come_up, ends("worker-1")), UP),
    Row(
        "lower-case-roles",
        {"mxReplicaSpecs": {role: mx_replica() for role in ("scheduler", "SERVER", "worker")}},
        (come_up, ends("scheduler-0")),
        [*UP, "Succeeded"],
    ),
    Row(
        "tuner-is-done",
        {"jobMode": "MXTune", "mxReplicaSpecs": TUNING, **policy(cleanPodPolicy="Running")},
        (come_up, ends("tuner-0")),
        [*UP, "Succeeded"],
        left={"tuner-0"},
    ),
    Row(
        "tracker-fails",
        {"jobMode": "MXTune", "mxReplicaSpecs": TUNING},
        (come_up, fails("tunertracker-0", 1)),
        [*UP, "Failed"],
        "1 TunerTracker",
    ),
    Row(
        "deadline",
        trains(),
        (come_up, Job.began_an_hour_ago, edited(**policy(activeDeadlineSeconds=60)), ended),
        [*UP, "Failed"],
        "active longer than specified deadline",
        left=set(),
    ),
    # what it leaves behind
    Row(
        "cleans-all",
        trains(**policy(cleanPodPolicy="All")),
        (come_up, ends("scheduler-0")),
        [*UP, "Succeeded"],
        left=set(),
    ),
    Row(
        "cleans-running",
        trains(**policy(cleanPodPolicy="Running")),
        (come_up, ends("worker-0", "scheduler-0")),
        [*UP, "Succeeded"],
        left={"worker-0", "scheduler-0"},
    ),
    Row(
        "cleans-as-older-manifests-say",
        trains(cleanPodPolicy="All"),
        (come_up, fails("worker-0", 2)),
        [*UP, "Failed"],
        left=set(),
    ),
    # what comes again
    Row(
        "on-failure",
        trains("OnFailure"),
        (come_up, fails("worker-1", 1), comes_back(*ALL)),
        [*UP, "Restarting", "Running"],
    ),
    Row(
        "always-takes-all-for-the-scheduler",
        trains("Always"),
        (come_up, fails("scheduler-0", 1), comes_back(*ALL)),
        [*UP, "Restarting", "Running"],
    ),
    Row(
        "exit-code-of-a-signal",
        trains("ExitCode"),
        (come_up, fails("server-0", 137), comes_back(*ALL), ends("scheduler-0")),
        [*UP, "Restarting", "Running", "Succeeded"],
    ),
    Row("exit-code-of-a-program", trains("ExitCode"), (come_up, fails("server-0", 1)), [*UP, "Failed"], "exitcode 1"),
    Row(
        "exit-code-that-is-listed",
        trains("ExitCode", restartingExitCode="1-5"),
        (come_up, fails("worker-0", 3), comes_back(*ALL)),
        [*UP, "Restarting", "Running"],
    ),
    Row(
        "exit-code-that-is-not-listed",
        trains("ExitCode", restartingExitCode="130,137,138,143"),
        (come_up, fails("worker-0", 139)),
        [*UP, "Failed"],
        "exitcode 139",
    ),
    Row(
        "evicted",
        trains("ExitCode"),
        (come_up, evicted("worker-0"), comes_back(*ALL)),
        [*UP, "Restarting", "Running"],
    ),
    Row(
        "worker-alone",
        trains("OnFailure", worker={"restartScope": "Pod"}),
        (come_up, fails("worker-1", 1), comes_back("worker-1")),
        [*UP, "Restarting", "Running"],
    ),
    Row(
        "no-restart-allowed",
        trains("OnFailure", **policy(backoffLimit=0)),
        (come_up, fails("worker-1", 1)),
        [*UP, "Failed"],
        "backoff limit",
        left={"worker-1"},
    ),
    Row(
        "one-restart-allowed",
        trains("OnFailure", **policy(backoffLimit=1)),
        (come_up, fails("worker-1", 1), comes_back(*ALL), fails("server-0", 1)),
        [*UP, "Restarting", "Running", "Failed"],
        "backoff limit",
        left={"server-0"},
    ),
    # what is taken away
    Row(
        "loses-a-server",
        trains("OnFailure"),
        (come_up, loses("server-0"), comes_back(*ALL)),
        [*UP, "Restarting", "Running"],
    ),
    Row(
        "loses-a-server-for-good",
        trains("Never"),
        (come_up, loses("server-0")),
        [*UP, "Failed"],
        "pod job-server-0 is lost",
        left=ALL - {"server-0"},
    ),
    Row(
        "loses-a-worker-alone",
        trains("ExitCode", worker={"restartScope": "Pod"}),
        (come_up, loses("worker-0"), comes_back("worker-0")),
        [*UP, "Restarting", "Running"],
    ),
    # what it is told
    Row(
        "suspended",
        trains(),
        (come_up, *SUSPENDED, comes_back(*ALL)),
        [*UP, "Suspended", "Created", "Running"],
    ),
    Row(
        "created-suspended",
        trains(**policy(suspend=True)),
        (stopped, edited(runPolicy={"suspend": False}), come_up),
        ["Suspended", "Created", "Running"],
    ),
    Row(
        "grows",
        trains(),
        (come_up, edited(mxReplicaSpecs={"Worker": {"replicas": 3}}), grown),
        UP,
        left=ALL | {"worker-2"},
    ),
    Row(
        "shrinks-and-grows-again",
        trains(),
        (
            come_up,
            edited(mxReplicaSpecs={"Worker": {"replicas": 1}}),
            left_with(ALL - {"worker-1"}),
            edited(mxReplicaSpecs={"Worker": {"replicas": 2}}),
            regrown,
        ),
        UP,
        left=ALL,
    ),
]


async def play(scene: Scene, row: Row) -> Job:
    job = await scene.create(mxjob("job", **row.spec))
    for act in row.acts:
        await act(job)
    if row.left is not None:
        await job.until(lambda: _own(job.children("pods")) == row.left, f"{row.left} are left")
    return job


def _own(names: Any) -> set[str]:
    return {name.removeprefix("job-") for name in names}


SCENARIOS: dict[str, Play] = {
    **{row.id: partial(play, row=row) for row in ROWS},
    "is-never-accepted": partial(
        is_never_accepted, manifest=mxjob(mxReplicaSpecs={"Worker": mx_replica(container("main"))})
    ),
    "cannot-be-created": partial(
        cannot_be_created,
        manifest=mxjob(
            mxReplicaSpecs={"Worker": mx_replica(container(MXNET, resources={"limits": {"cpu": "plenty"}}))}
        ),
    ),
}


@pytest.fixture(scope="module")
def real(plane: ControlPlane, operator: OperatorProcess) -> dict[str, Trace | str]:
    return asyncio.run(trace_all(plane, "twice-mxjob", SCENARIOS))


@pytest.fixture(scope="module")
def embedded(binaries: Path) -> dict[str, Trace | str]:
    with embedded_plane(binaries) as plane:
        return asyncio.run(trace_all(plane, "twice-mxjob", SCENARIOS))


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
def test_a_job_goes_its_way(row: Row, real: dict[str, Any]) -> None:
    trace = real[row.id]
    assert isinstance(trace, Trace), trace

    phases = [status["phase"] for status in trace.statuses]
    assert [phase for before, phase in zip(["", *phases], phases, strict=False) if phase != before] == row.path
    last = trace.statuses[-1]
    assert row.says in last["conditions"][-1]["message"]
    assert [c["status"] for c in last["conditions"] if c["type"] == row.path[-1]] == ["True"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_leaves_the_same_trace_on_both(name: str, real: dict[str, Any], embedded: dict[str, Any]) -> None:
    assert isinstance(real[name], Trace), real[name]
    assert isinstance(embedded[name], Trace), embedded[name]
    assert embedded[name].statuses == real[name].statuses
    assert embedded[name].children == real[name].children
    assert embedded[name].events == real[name].events


async def test_a_job_ends_when_its_time_is_over_though_nothing_happens(scene: Scene, operator: OperatorProcess) -> None:
    job = await scene.create(mxjob("job", **trains(**policy(activeDeadlineSeconds=2))))

    await job.until(lambda: job.phase == "Failed", "it has failed")

    assert "active longer than specified deadline" in job.condition("Failed")["message"]


async def test_a_job_is_deleted_when_it_was_kept_long_enough(scene: Scene, operator: OperatorProcess) -> None:
    job = await scene.create(mxjob("job", **trains(**policy(ttlSecondsAfterFinished=1))))
    await come_up(job)
    await scene.end("job-scheduler-0", 0)

    await job.until(lambda: not job.stored, "it is gone")

    assert [status["phase"] for status in job.statuses][-1] == "Succeeded"
