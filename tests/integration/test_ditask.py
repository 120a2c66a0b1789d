"""What becomes of a DIJob with tasks, as a table, played on the real API server and on the embedded one with the same
trace.

A row is a job that comes up; then something happens to it. What has to follow is in docs/dijob.md.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.answer import Refused
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane, KubectlFailed
from tests.integration.scene import ENDED, Job, Scene
from tests.integration.stage import embedded_plane
from tests.integration.test_twice import Play, Trace, cannot_be_created, is_never_accepted, trace_all
from tests.manifests.bad import OF_EITHER_VERSION, REJECTED_ROWS, VERSIONS
from tests.manifests.bad import Row as Bad
from tests.manifests.build import Manifest, container, dijob, ditask, task
from tests.manifests.good import ATARI_SAMPLE, SERIAL_SAMPLE

Act = Callable[[Job], Awaitable[None]]

STARTED = ["Pending", "Starting"]
UP = [*STARTED, "Running"]
RESTARTED = [*UP, "Restarting", "Starting", "Running"]
MOVED = [*UP, "Rescheduling", "Starting", "Running"]
ALL = {"learner-0", "collector-0", "collector-1"}
RANKS = {"learner-0": 0, "collector-0": 1, "collector-1": 2}


class Row(NamedTuple):
    """``path`` are the phases of the job; ``says`` is in the message of its last condition; ``counts`` are its restarts
    and reschedules; ``left`` are the pods that are there at the end, None where that is not the question."""

    id: str
    spec: Manifest
    acts: tuple[Act, ...]
    path: list[str]
    says: str = ""
    counts: tuple[int, int] = (0, 0)
    left: set[str] | None = None
    ranks: dict[str, int] | None = None


# --- jobs ---


def trains(collectors: int = 2, *others: Manifest, learner: Manifest | None = None, **spec: Any) -> Manifest:
    """A learner and some collectors."""
    return {"tasks": [task("learner", **(learner or {})), task("collector", replicas=collectors), *others], **spec}


def policy(**fields: Any) -> Manifest:
    return {"runPolicy": fields}


SIDECAR = {"tasks": [task("none", container(), container("side-car"), name="main")]}
GROUP = {"replicas": 2, "restartScope": "All"}

SERIAL: Manifest = SERIAL_SAMPLE["spec"]
ATARI: Manifest = ATARI_SAMPLE["spec"]

SAYS = {
    "Pending": ("Normal", "job created."),
    "Starting": ("Normal", "job is starting since all replicas are created."),
    "Running": ("Normal", "job is running since all replicas are ready."),
    "Restarting": ("Warning", "job is restarting since conditions changed."),
    "Rescheduling": ("Warning", "job is rescheduling since replicas or allocation changed."),
    "Failed": ("Warning", "job is failed since some replicas are failed."),
    "Succeeded": ("Normal", "job is succeeded since all the replicas are succeeded."),
}
"""The Events of DI-orchestrator when a job enters a phase."""


# --- what happens to them ---


async def created(job: Job) -> None:
    await job.pods_are_there()
    await job.until(lambda: job.phase == "Starting", "all of its pods are created")


async def run(job: Job) -> None:
    """The pods that do not run yet become ready."""
    await job.until(lambda: job.phase == "Starting", "all of its pods are created")
    await job.scene.catch_up()
    pods = job.children("pods").items()
    await job.scene.report("Running", *(name for name, pod in pods if pod["status"]["phase"] == "Pending"))
    await job.reach("Running")
    await job.until(lambda: job.status.get("readyReplicas") == job.status.get("replicas"), "all pods are counted")


async def come_up(job: Job) -> None:
    await created(job)
    await run(job)


def ends(*places: str, code: int = 0) -> Act:
    """These pods end, one after the other: two that are seen at once would leave another trace than two that are
    not."""

    async def act(job: Job) -> None:
        before = len(job.phases)
        for number, place in enumerate(places, start=1):
            await job.scene.end(f"job-{place}", code)
            await job.until(partial(_is_seen, job, before, number), f"{place} was looked at")

    return act


def _is_seen(job: Job, before: int, ended: int) -> bool:
    """By the phases that there were: a job can be back in the same phase at the first look."""
    return len(job.phases) > before or sum(map(len, job.status.get("done", {}).values())) == ended


def fails(place: str, code: int = 1) -> Act:
    return ends(place, code=code)


def main_ends(place: str, code: int) -> Act:
    """Its first container ends; the side-car goes on."""

    async def act(job: Job) -> None:
        name = f"job-{place}"
        await job.scene.admin.set_pod(job.scene.namespace, name, phase="Running", containers=[code, None], ready=False)
        await job.until(lambda: job.phase != "Running", "it was looked at")

    return act


def loses(place: str) -> Act:
    """Somebody deletes the pod."""

    async def act(job: Job) -> None:
        await job.scene.admin.delete("pods", job.scene.namespace, f"job-{place}")
        await job.until(lambda: job.phase != "Running", f"{place} is missed")

    return act


def ended_by_node(place: str, reason: str) -> Act:
    async def act(job: Job) -> None:
        name = f"job-{place}"
        await job.scene.admin.set_pod(
            job.scene.namespace,
            name,
            phase="Failed",
            reason=reason,
            message="no room",
            containers=["ContainerCreating"],
        )
        await job.until(lambda: job.phase != "Running", "it was looked at")

    return act


def comes_back(*places: str) -> Act:
    """These pods, and no others, come a second time; then all run."""

    async def act(job: Job) -> None:
        names = {f"job-{place}" for place in places}
        await job.until(lambda: _twice(job) >= names, f"{names} are there again")
        await run(job)
        assert _twice(job) == names

    return act


def _twice(job: Job) -> set[str]:
    return {name for name, number in job.scene.incarnations("pods").items() if number == 2}


def edited(**spec: Any) -> Act:
    return lambda job: job.edit(spec)


def requested(**replicas: tuple[int, int]) -> Act:
    """di-server was asked for replicas of a task, at so many in the spec."""

    async def act(job: Job) -> None:
        asked = {name: {"replicas": n, "specReplicas": m} for name, (n, m) in replicas.items()}
        status = {"requestedReplicas": asked}
        await job.scene.admin.set_status(job.resource, job.scene.namespace, job.name, status)

    return act


def has(*places: str) -> Act:
    """It has these pods and no others; then all run."""

    async def act(job: Job) -> None:
        await job.until(lambda: _own(job.children("pods")) == {*places}, f"it has {places}")
        await run(job)

    return act


def shrinks_to(*places: str) -> Act:
    async def act(job: Job) -> None:
        await job.until(lambda: _own(job.children("pods")) == {*places}, f"it has {places}")
        await job.reach("Running")

    return act


def slowly(place: str) -> Act:
    """The pod uses its grace period."""

    async def act(job: Job) -> None:
        job.scene.slow_to_end.add(f"job-{place}")

    return act


def goes(place: str) -> Act:
    """Its grace period is over when the job runs without it."""

    async def act(job: Job) -> None:
        await job.until(lambda: (job.phase, job.status.get("reschedules")) == ("Running", 1), "it runs without it")
        await job.scene.let_go(f"job-{place}")
        await job.until(lambda: place not in job.status["ranks"], "its rank is forgotten")

    return act


async def loses_its_service(job: Job) -> None:
    await job.scene.admin.delete("services", job.scene.namespace, "di-job")
    await job.until(lambda: job.scene.incarnations("services").get("di-job") == 2, "it has a service again")


def waits(*places: str) -> Act:
    """These pods run, and are not ready."""

    async def act(job: Job) -> None:
        for place in places:
            await job.scene.admin.set_pod(job.scene.namespace, f"job-{place}", phase="Running", ready=False)
        running = {"Running": len(places)}
        await job.until(lambda: running in job.status.get("taskStatus", {}).values(), "they are counted")

    return act


async def stopped(job: Job) -> None:
    await job.until(lambda: not job.children("pods") and job.condition("Suspended").get("status") == "True", "stopped")
    await job.until(lambda: not job.children("services"), "its service is gone")


async def ended(job: Job) -> None:
    await job.reach(*ENDED)


async def serviceless(job: Job) -> None:
    await job.until(lambda: not job.children("services"), "its service is gone")


def finds_taken(place: str) -> Act:
    """A pod of somebody else has the name: the others are created. When it is deleted, the last one is, too."""

    async def act(job: Job) -> None:
        name, admin, namespace = f"job-{place}", job.scene.admin, job.scene.namespace
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container()]}}
        await admin.create("pods", body, namespace)
        await job.edit({"runPolicy": {"suspend": False}})
        await job.says("PodCreateFailed", "True")
        assert job.phase == "Pending"
        await admin.delete("pods", namespace, name, grace=0)

    return act


RESUMED = (edited(runPolicy={"suspend": True}), stopped, edited(runPolicy={"suspend": False}))

ROWS = [
    # how it comes up
    Row("all-pods-ready", trains(), (come_up,), UP, "job is running since all replicas are ready.", ranks=RANKS),
    Row("created", trains(), (created,), STARTED, "job is starting since all replicas are created.", left=ALL),
    Row("not-all-ready", trains(), (created, waits("learner-0")), STARTED),
    Row("two-containers", SIDECAR, (come_up,), UP, left={"main-0"}),
    Row(
        "names-by-type",
        {"tasks": [task("evaluator"), task("none", name="a-b")], "group": "atari"},
        (come_up,),
        UP,
        left={"evaluator-0", "a-b-0"},
        ranks={"evaluator-0": 0, "a-b-0": 1},
    ),
    Row("sample-serial", SERIAL, (come_up, ends("serial-0")), [*UP, "Succeeded"]),
    Row(
        "sample-atari",
        ATARI,
        (come_up, ends("learner-0", "evaluator-0", "collector-0", "collector-1")),
        [*UP, "Succeeded"],
        ranks={"learner-0": 0, "evaluator-0": 1, "collector-0": 2, "collector-1": 3},
    ),
    # how it ends
    Row(
        "all-succeed",
        trains(),
        (come_up, ends("learner-0", "collector-0", "collector-1")),
        [*UP, "Succeeded"],
        "job succeeded since all the replicas are succeeded.",
    ),
    Row("one-succeeds", trains(), (come_up, ends("learner-0")), UP, left=ALL),
    Row("succeeds-before-it-is-ready", SERIAL, (created, ends("serial-0"), ended), [*STARTED, "Succeeded"]),
    Row("side-car-outlives-a-success", SIDECAR, (come_up, main_ends("main-0", 0)), [*UP, "Succeeded"]),
    Row(
        "side-car-outlives-a-failure",
        {**SIDECAR, "backoffLimit": 0},
        (come_up, main_ends("main-0", 3)),
        [*UP, "Failed"],
        "exitcode 3",
    ),
    Row(
        "no-restart-allowed",
        trains(backoffLimit=0),
        (come_up, fails("collector-1")),
        [*UP, "Failed"],
        "job failed since 1 pods failed. and exceed backoff limit",
        left={"collector-1"},
    ),
    Row(
        "one-restart-allowed",
        trains(backoffLimit=1),
        (come_up, fails("collector-1"), comes_back("collector-1"), fails("collector-1")),
        [*RESTARTED, "Failed"],
        "and exceed backoff limit",
        (1, 0),
        left={"collector-1"},
    ),
    Row(
        "deadline",
        trains(),
        (come_up, Job.began_an_hour_ago, edited(**policy(activeDeadlineSeconds=60)), ended),
        [*UP, "Failed"],
        "active longer than its deadline of 60 seconds",
        left=set(),
    ),
    # what it leaves behind
    Row(
        "cleans-all",
        trains(cleanPodPolicy="All", backoffLimit=0),
        (come_up, fails("learner-0"), serviceless),
        [*UP, "Failed"],
        left=set(),
    ),
    Row(
        "cleans-running",
        trains(cleanPodPolicy="Running", backoffLimit=0),
        (come_up, ends("collector-0"), fails("learner-0"), serviceless),
        [*UP, "Failed"],
        left={"learner-0", "collector-0"},
    ),
    Row(
        "cleans-nothing-but-the-service",
        trains(cleanPodPolicy="None", backoffLimit=0),
        (come_up, fails("learner-0"), serviceless),
        [*UP, "Failed"],
        left=ALL,
    ),
    Row(
        "cleans-by-default",
        trains(backoffLimit=0),
        (come_up, fails("collector-0"), serviceless),
        [*UP, "Failed"],
        left={"collector-0"},
    ),
    # failures: restarts
    Row(
        "fails",
        trains(),
        (come_up, fails("collector-1", 7), comes_back("collector-1")),
        RESTARTED,
        counts=(1, 0),
        left=ALL,
        ranks=RANKS,
    ),
    Row(
        "fails-while-it-starts",
        trains(),
        (created, fails("learner-0"), comes_back("learner-0")),
        [*STARTED, "Restarting", "Starting", "Running"],
        counts=(1, 0),
    ),
    Row(
        "fails-without-limit",
        trains(backoffLimit=-1),
        (come_up, fails("collector-0", 137), comes_back("collector-0")),
        RESTARTED,
        counts=(1, 0),
    ),
    Row(
        "sigterm-is-a-failure",
        trains(),
        (come_up, fails("collector-0", 143), comes_back("collector-0")),
        RESTARTED,
        counts=(1, 0),
    ),
    Row(
        "sigterm-in-a-preemptible-job",
        trains(preemptible=True, backoffLimit=0),
        (come_up, fails("collector-0", 143), comes_back("collector-0")),
        MOVED,
        counts=(0, 1),
        ranks=RANKS,
    ),
    Row(
        "failure-in-a-preemptible-job",
        trains(preemptible=True, backoffLimit=0),
        (come_up, fails("collector-0", 1)),
        [*UP, "Failed"],
        left={"collector-0"},
    ),
    Row(
        "task-restarts-as-a-whole",
        trains(learner=GROUP),
        (come_up, fails("learner-1"), comes_back("learner-0", "learner-1")),
        RESTARTED,
        counts=(1, 0),
        ranks={"learner-0": 0, "learner-1": 1, "collector-0": 2, "collector-1": 3},
    ),
    Row(
        "pod-of-another-task-restarts-alone",
        trains(learner=GROUP),
        (come_up, fails("collector-0"), comes_back("collector-0")),
        RESTARTED,
        counts=(1, 0),
    ),
    Row(
        "job-restarts-as-a-whole",
        trains(**policy(restartScope="All")),
        (come_up, fails("collector-0"), comes_back(*ALL)),
        RESTARTED,
        counts=(1, 0),
        ranks=RANKS,
    ),
    # everything else: reschedules
    Row(
        "pod-deleted",
        trains(backoffLimit=0),
        (come_up, loses("collector-0"), comes_back("collector-0")),
        MOVED,
        counts=(0, 1),
        ranks=RANKS,
    ),
    Row(
        "pod-deleted-while-it-starts",
        trains(backoffLimit=0),
        (created, loses("collector-0"), comes_back("collector-0")),
        [*STARTED, "Rescheduling", "Starting", "Running"],
        counts=(0, 1),
        ranks=RANKS,
    ),
    Row(
        "pod-deleted-of-a-task-that-restarts-as-a-whole",
        trains(learner=GROUP, backoffLimit=0),
        (come_up, loses("learner-0"), comes_back("learner-0", "learner-1")),
        MOVED,
        counts=(0, 1),
    ),
    *(
        Row(
            f"ended-by-its-node-{reason.lower()}",
            trains(backoffLimit=0),
            (come_up, ended_by_node("collector-1", reason), comes_back("collector-1")),
            MOVED,
            counts=(0, 1),
            ranks=RANKS,
        )
        for reason in ("Evicted", "OutOfcpu", "Outofmemory", "UnexpectedAdmissionError", "Preempting")
    ),
    Row("service-deleted", trains(), (come_up, loses_its_service), UP, left=ALL),
    # scaling
    Row(
        "grows",
        trains(1),
        (come_up, edited(**trains(2)), has(*ALL)),
        MOVED,
        counts=(0, 1),
        left=ALL,
        ranks=RANKS,
    ),
    Row(
        "grows-in-the-middle",
        {"tasks": [task("collector"), task("learner")]},
        (
            come_up,
            edited(tasks=[task("collector", replicas=2), task("learner")]),
            has("collector-0", "collector-1", "learner-0"),
        ),
        MOVED,
        counts=(0, 1),
        ranks={"collector-0": 0, "learner-0": 1, "collector-1": 2},
    ),
    Row(
        "shrinks",
        trains(3),
        (come_up, edited(**trains(1)), shrinks_to("learner-0", "collector-0")),
        MOVED,
        counts=(0, 1),
        left={"learner-0", "collector-0"},
    ),
    Row(
        "shrinks-and-grows-again",
        trains(),
        (come_up, edited(**trains(1)), shrinks_to("learner-0", "collector-0"), edited(**trains()), has(*ALL)),
        [*MOVED, "Rescheduling", "Starting", "Running"],
        counts=(0, 2),
        ranks=RANKS,
    ),
    Row(
        "grows-again-after-a-pod-of-a-higher-rank-came-back",
        trains(2, task("evaluator")),
        (
            come_up,
            edited(**trains(1, task("evaluator"))),
            shrinks_to("learner-0", "collector-0", "evaluator-0"),
            fails("evaluator-0"),
            comes_back("evaluator-0"),
            edited(**trains(2, task("evaluator"))),
            has(*ALL, "evaluator-0"),
        ),
        [*MOVED, *RESTARTED[-3:], *MOVED[-3:]],
        counts=(1, 2),
        ranks={"learner-0": 0, "collector-0": 1, "evaluator-0": 3, "collector-1": 4},
    ),
    Row(
        "gets-a-task",
        trains(),
        (come_up, edited(**trains(2, task("evaluator"))), has(*ALL, "evaluator-0")),
        MOVED,
        counts=(0, 1),
        ranks=RANKS | {"evaluator-0": 3},
    ),
    Row(
        "loses-a-task",
        trains(2, task("evaluator")),
        (come_up, slowly("evaluator-0"), edited(**trains()), goes("evaluator-0"), shrinks_to(*ALL)),
        MOVED,
        counts=(0, 1),
        left=ALL,
        ranks=RANKS,
    ),
    Row(
        "scaled",
        trains(1),
        (come_up, edited(replicas=2), has(*ALL)),
        MOVED,
        counts=(0, 1),
        ranks=RANKS,
    ),
    Row(
        "scaled-task-is-named",
        trains(1, scaledTask="learner"),
        (come_up, edited(replicas=2), has("learner-0", "learner-1", "collector-0")),
        MOVED,
        counts=(0, 1),
        ranks={"learner-0": 0, "collector-0": 1, "learner-1": 2},
    ),
    Row(
        "requested-by-di-server",
        trains(1),
        (come_up, requested(collector=(2, 1)), has(*ALL)),
        MOVED,
        counts=(0, 1),
        ranks=RANKS,
    ),
    Row(
        "requested-beyond-the-maximum",
        {"tasks": [task("learner"), task("collector", maxReplicas=2)]},
        (come_up, requested(collector=(9, 1)), has(*ALL)),
        MOVED,
        counts=(0, 1),
        ranks=RANKS,
    ),
    Row(
        "requested-and-then-edited",
        trains(1),
        (
            come_up,
            requested(collector=(3, 1)),
            has(*ALL, "collector-2"),
            edited(**trains(2)),
            shrinks_to(*ALL),
        ),
        [*MOVED, "Rescheduling", "Starting", "Running"],
        counts=(0, 2),
    ),
    # what it is told
    Row("suspended", trains(), (come_up, *RESUMED, comes_back(*ALL)), [*UP, *UP], left=ALL, ranks=RANKS),
    Row(
        "pending-until-a-name-is-free",
        trains(**policy(suspend=True)),
        (stopped, finds_taken("collector-1"), come_up),
        UP,
        left=ALL,
        ranks=RANKS,
    ),
    Row(
        "created-suspended",
        trains(**policy(suspend=True)),
        (stopped, edited(runPolicy={"suspend": False}), come_up),
        UP,
        ranks=RANKS,
    ),
]


async def play(scene: Scene, row: Row) -> Job:
    job = await scene.create(ditask("job", **row.spec))
    for act in row.acts:
        await act(job)
    if row.left is not None:
        await job.until(lambda: _own(job.children("pods")) == row.left, f"{row.left} are left")
    is_over = row.path[-1] in ENDED
    assert is_over is ("completionTimestamp" in job.status)
    if is_over:
        assert not job.status.get("readyReplicas")
        assert not job.status.get("taskStatus")
    return job


def _own(names: Any) -> set[str]:
    return {name.removeprefix("job-") for name in names}


SCENARIOS: dict[str, Play] = {
    **{row.id: partial(play, row=row) for row in ROWS},
    "is-never-accepted": partial(is_never_accepted, manifest=ditask("job", task("collector", replicas=3000))),
    "cannot-be-created": partial(
        cannot_be_created, manifest=ditask("job", task("collector", container(resources={"limits": {"cpu": "plenty"}})))
    ),
}


@pytest.fixture(scope="module")
def real(plane: ControlPlane, operator: OperatorProcess) -> dict[str, Trace | str]:
    return asyncio.run(trace_all(plane, "twice-ditask", SCENARIOS))


@pytest.fixture(scope="module")
def embedded(binaries: Path) -> dict[str, Trace | str]:
    with embedded_plane(binaries) as plane:
        return asyncio.run(trace_all(plane, "twice-ditask", SCENARIOS))


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
def test_a_job_goes_its_way(row: Row, real: dict[str, Any]) -> None:
    trace = real[row.id]
    assert isinstance(trace, Trace), trace

    last = trace.statuses[-1]
    assert trace.phases == row.path
    assert row.says in last["conditions"][-1]["message"]
    phases = {c["type"]: c["status"] for c in last["conditions"] if c["reason"] == f"Job{c['type']}"}
    assert [type_ for type_, status in phases.items() if status == "True"] == [row.path[-1]]
    assert (last.get("restarts", 0), last.get("reschedules", 0)) == row.counts
    if row.ranks is not None:
        assert last["ranks"] == row.ranks
    assert_told(row, trace.events)


def assert_told(row: Row, events: list[tuple[str, ...]]) -> None:
    """A job that is created suspended is told that. A deadline is no failure of replicas."""
    told = {reason: (type_, message) for type_, reason, _, message in events}
    for phase in {*(row.path[1:] if row.spec.get("runPolicy", {}).get("suspend") else row.path)}:
        type_, message = told.pop(f"Job{phase}", ("", ""))
        is_of_deadline = "deadline" in row.says and row.says in message
        assert type_ == SAYS[phase][0], phase
        assert message.startswith(SAYS[phase][1]) or is_of_deadline, message
    assert not told.keys() & {f"Job{phase}" for phase in SAYS}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_leaves_the_same_trace_on_both(name: str, real: dict[str, Any], embedded: dict[str, Any]) -> None:
    assert isinstance(real[name], Trace), real[name]
    assert isinstance(embedded[name], Trace), embedded[name]
    assert embedded[name].statuses == real[name].statuses
    assert embedded[name].children == real[name].children
    assert embedded[name].events == real[name].events


# --- what users of DI-orchestrator have ---


@pytest.mark.parametrize("sample", [SERIAL_SAMPLE, ATARI_SAMPLE], ids=lambda sample: sample["metadata"]["name"])
async def test_a_sample_of_di_orchestrator_runs_as_it_is(
    sample: Manifest, plane: ControlPlane, scene: Scene, operator: OperatorProcess
) -> None:
    words = (f"--namespace={scene.namespace}", "create", "-f", "-", "--output=json")
    job = Job(scene, json.loads(await asyncio.to_thread(plane.kubectl, *words, input=json.dumps(sample))))

    await come_up(job)
    for pod in job.slots:
        await scene.end(pod, 0)
    await job.reach("Succeeded")

    assert job.phases == [*UP, "Succeeded"]
    assert job.stored["spec"] == sample["spec"]  # nothing is filled in


# --- scaling by others ---


async def running(scene: Scene, **spec: Any) -> Job:
    job = await scene.create(ditask("job", task("learner"), task("collector", maxReplicas=4), **spec))
    await come_up(job)
    return job


async def test_kubectl_scales_the_collector_and_the_other_pods_stay(
    plane: ControlPlane, scene: Scene, operator: OperatorProcess
) -> None:
    job = await running(scene)
    uids = {name: pod["metadata"]["uid"] for name, pod in job.children("pods").items()}
    words = (f"--namespace={scene.namespace}", "scale", "dijob/job", "--replicas=2")

    assert await asyncio.to_thread(plane.kubectl, *words) == "dijob.diengine.opendilab.org/job scaled\n"

    await has(*ALL)(job)
    assert uids.items() <= {name: pod["metadata"]["uid"] for name, pod in job.children("pods").items()}.items()
    await job.until(lambda: job.status.get("scaledReplicas") == 2, "the pods of the task are counted")
    with pytest.raises(KubectlFailed, match="is more than maxReplicas of the scaled task"):
        await asyncio.to_thread(plane.kubectl, *words[:3], "--replicas=5")


async def test_an_autoscaler_finds_the_collector_and_scales_it(scene: Scene, operator: OperatorProcess) -> None:
    """By its minimum alone: that takes no metrics."""
    job = await running(scene, replicas=1)
    target = {"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "name": "job"}
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "job"},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 2,
            "maxReplicas": 4,
            "metrics": [{"type": "Resource", "resource": resource}],
        },
    }

    await scene.admin.create("autoscaling/v2/horizontalpodautoscalers", autoscaler, scene.namespace)

    await has(*ALL)(job)
    assert job.stored["spec"]["replicas"] == 2


# --- two versions ---


async def test_both_forms_run_under_both_versions(plane: ControlPlane, scene: Scene, operator: OperatorProcess) -> None:
    """The form of a job decides, whatever version it is written in; nothing is written into the other form."""
    first, second = "diengine.opendilab.org/v1alpha1", "diengine.opendilab.org/v2alpha1"
    jobs = [
        await scene.create(
            job | {"apiVersion": version, "metadata": {"name": f"{job['metadata']['name']}-{version[-8:]}"}}
        )
        for job in (dijob("crew"), ditask("tasks"))
        for version in (first, second)
    ]

    for job in jobs:
        await job.pods_are_there()
        await job.until(lambda: job.phase in ("Created", "Starting"), "it has begun")  # noqa: B023 awaited here

    assert [job.phase for job in jobs] == ["Created", "Created", "Starting", "Starting"]
    assert [sorted(job.stored["spec"]) for job in jobs] == [["coordinator"]] * 2 + [["tasks"]] * 2
    table = await asyncio.to_thread(plane.kubectl, f"--namespace={scene.namespace}", "get", "dijob")
    lines = [line.split() for line in table.splitlines()]
    assert lines[0] == [
        "NAME",
        "PHASE",
        "READYREPLICAS",
        "REPLICAS",
        "RESTARTS",
        "RESCHEDULES",
        "AGE",
    ]
    assert lines[-1][:-1] == ["tasks-v2alpha1", "Starting", "0", "2", "0", "0"]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in OF_EITHER_VERSION if row in REJECTED_ROWS])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_bad_job_is_refused_under_both_versions(row: Bad, version: str, scene: Scene) -> None:
    with pytest.raises(Refused) as refused:
        await scene.create(row.manifest | {"apiVersion": version})

    assert row.says in refused.value.message
