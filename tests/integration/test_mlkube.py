"""MxJobs on the real API server and on the embedded one, each with its Job controller: what becomes of them, and that
it is the same.

A row is played step by step, each step waiting for what is made of it. So the two traces may differ in times, uids,
versions and the names that Job controllers make up.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.answer import Refused
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import BATCH_JOBS, Object, is_deleting
from tests.integration.scene import Job, Scene, add_node, place_of
from tests.integration.stage import embedded_plane, stage_on
from tests.integration.test_twice import all_events, nameless, told
from tests.manifests.build import Manifest, container, crew, mlkubejob
from trainmaster.client.async_client import AsyncClient

Step = Callable[[Job], Awaitable[None]]
Left = dict[str, str]

DIST = [crew("SCHEDULER"), crew("SERVER", 2), crew("WORKER", 2)]
WORKERS = ("worker-0", "worker-1")
SERVERS = ("server-0", "server-1")
ALL = ("scheduler-0", *SERVERS, *WORKERS)


# --- steps -----------------------------------------------------------------------------------------


def pod_at(job: Job, place: str, *, besides: str = "") -> str:
    """The pod that fills a place, and has not ended; empty when there is none."""
    found = [
        name
        for name, pod in job.children("pods").items()
        if place_of(pod) == place and pod["status"].get("phase") in ("Pending", "Running") and not is_deleting(pod)
    ]
    return next((name for name in found if name != besides), "")


def batch_at(job: Job, place: str) -> Object:
    found = job.children(BATCH_JOBS).values()
    return next((batch for batch in found if place_of(batch) == place), {})


def word_of(batch: Object) -> str:
    """How a batch Job stands."""
    true = [c["type"] for c in batch.get("status", {}).get("conditions", ()) if c["status"] == "True"]
    # One that is suspended while its last pods go stays at its target.
    words = {"Complete": "Complete", "Failed": "Failed", "FailureTarget": "Failed", "Suspended": "Suspended"}
    return next((word for type_, word in words.items() if type_ in true), "Active")


def is_complete(job: Job, place: str) -> bool:
    """Or so complete that it was cleaned up."""
    return word_of(batch_at(job, place)) == "Complete" or not batch_at(job, place)


async def run(job: Job) -> None:
    await job.start()
    await job.says("Ready", "True")


async def end(job: Job, *places: str, code: int = 0) -> None:
    """The programs of these replicas end, and their Jobs with them, unless they failed."""
    for place in places:
        await job.scene.end(await job.until(partial(pod_at, job, place), f"{place} has a pod"), code)
    for place in places if not code else ():
        await job.until(partial(is_complete, job, place), f"{place} is complete")


async def fall(job: Job, place: str, code: int = 137, reason: str = "") -> None:
    """A pod dies of something that need not happen again; another one comes and runs."""
    old = pod_at(job, place)
    containers = len(job.scene.pods()[old]["spec"]["containers"])
    scene = job.scene
    await scene.admin.set_pod(
        scene.namespace, old, phase="Failed", containers=[code] * containers, reason=reason or None
    )
    await job.says("Recovering", "True")
    await come_back(job, place, besides=old)
    await job.says("Recovering", "False")


async def fall_together(job: Job, how: Step) -> None:
    """A replica of a crew is lost: all of them come again, with other pods."""
    old = {each: pod_at(job, each) for each in ALL}
    await how(job)
    await job.says("Recovering", "True")
    for each in ALL:
        new = await job.until(partial(pod_at, job, each, besides=old[each]), f"{each} has another pod")
        await job.scene.report("Running", new)
    await job.says("Ready", "True")
    await job.says("Recovering", "False")


async def die(job: Job, place: str, code: int) -> None:
    await job.scene.end(pod_at(job, place), code)


async def take_pod(job: Job, place: str) -> None:
    await job.scene.admin.delete("pods", job.scene.namespace, pod_at(job, place), grace=0)


async def take_batch_job(job: Job, place: str) -> None:
    name = batch_at(job, place)["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{job.scene.namespace}/jobs/{name}?propagationPolicy=Background"
    await job.scene.admin.request("DELETE", path)


async def suspend(job: Job, place: str) -> None:
    name = batch_at(job, place)["metadata"]["name"]
    await job.scene.admin.patch(BATCH_JOBS, job.scene.namespace, name, {"spec": {"suspend": True}})


async def tidy_up(job: Job, place: str) -> None:
    """Somebody takes the Job of a replica that has succeeded."""
    role, _, index = place.rpartition("-")
    await job.until(lambda: int(index) in job.status.get("done", {}).get(role.upper(), ()), f"{place} is done")
    await take_batch_job(job, place)
    await job.until(lambda: not batch_at(job, place), f"the Job of {place} is gone")


async def come_back(job: Job, place: str, besides: str) -> None:
    new = await job.until(partial(pod_at, job, place, besides=besides), f"{place} has another pod")
    await job.scene.report("Running", new)
    await job.says("Ready", "True")


async def crash(job: Job, place: str, code: int, reason: str = "Error") -> None:
    """A container dies, and its kubelet waits before it starts it again in the same pod."""
    ended = {"exitCode": code, "reason": reason, "startedAt": None, "finishedAt": None}
    await set_main(job, place, {"waiting": {"reason": "CrashLoopBackOff"}}, ended)


async def crash_and_run(job: Job, place: str, code: int) -> None:
    await crash(job, place, code)
    await job.says("Recovering", "True")
    ended = {"exitCode": code, "reason": "Error", "startedAt": None, "finishedAt": None}
    await set_main(job, place, {"running": {"startedAt": None}}, ended)
    await job.says("Recovering", "False")


async def set_main(job: Job, place: str, state: Object, last: Object) -> None:
    main = {
        "name": "mxnet",
        "image": "busybox",
        "imageID": "",
        "ready": "running" in state,
        "restartCount": 1,
        "state": state,
        "lastState": {"terminated": last},
    }
    scene = job.scene
    await scene.admin.set_status("pods", scene.namespace, pod_at(job, place), {"containerStatuses": [main]})


async def die_for_lack_of_memory(job: Job, place: str) -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "startedAt": None, "finishedAt": None}
    main = {"name": "mxnet", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Failed", "containerStatuses": [main | {"state": {"terminated": ended}}]}
    await job.scene.admin.set_status("pods", job.scene.namespace, pod_at(job, place), status)


async def end_main(job: Job, place: str, code: int) -> None:
    """The main container ends, the side-car beside it does not."""
    scene = job.scene
    await scene.admin.set_pod(scene.namespace, pod_at(job, place), phase="Running", containers=[code, None])


async def lose_pod(job: Job, place: str) -> None:
    old = pod_at(job, place)
    await take_pod(job, place)
    await job.says("Ready", "False")
    await come_back(job, place, besides=old)


async def lose_batch_job(job: Job, place: str) -> None:
    old, meta = pod_at(job, place), batch_at(job, place)["metadata"]
    await take_batch_job(job, place)
    await job.until(lambda: batch_at(job, place).get("metadata", {}).get("uid", "") not in ("", meta["uid"]), "again")
    await job.says("Ready", "False")
    await come_back(job, place, besides=old)


async def edit(job: Job, **spec: Any) -> None:
    await job.edit(spec)


async def lose_service(job: Job) -> None:
    (name,) = await job.until(lambda: job.children("services"), "it has a service")
    before = job.scene.incarnations("services")[name]
    await job.scene.admin.delete("services", job.scene.namespace, name)
    await job.until(lambda: job.scene.incarnations("services").get(name, 0) == before + 1, "the service is there again")


# --- rows ------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """``ends`` is the state in which the job is done; ``says`` is in its reason, or in the condition that stands in
    ``ends`` of a job that never comes to its end. ``left`` are the batch Jobs at the end, where that matters."""

    id: str
    manifest: Manifest
    steps: tuple[Step, ...]
    ends: str = "Succeeded"
    says: str = ""
    left: Left | None = None


def local(*, restart: str = "Never", **spec: Any) -> Manifest:
    return mlkubejob(replicaSpecs=[crew("WORKER", restart=restart)], RuntimeId="id", **spec)


def dist(**spec: Any) -> Manifest:
    return mlkubejob(**{"jobMode": "dist", "replicaSpecs": DIST, "RuntimeId": "id", **spec})


def at(step: Callable[..., Awaitable[None]], *places: Any, **given: Any) -> Step:
    def played(job: Job) -> Awaitable[None]:
        return step(job, *places, **given)

    return played


ENDED = (at(end, *SERVERS, *WORKERS, "scheduler-0"),)
ENDING = (run, *ENDED)
FAILING = (run, at(end, "worker-1", code=1))
STOPPED = dict.fromkeys(ALL, "Suspended")
SIDE_CAR = mlkubejob(replicaSpecs=[crew("WORKER", 1, container("mxnet"), container("side-car"))], RuntimeId="id")
PLENTY = container("mxnet", resources={"limits": {"cpu": "plenty"}})

ROWS = (
    # one worker
    Row("local-succeeds", local(), (run, at(end, "worker-0")), left={"worker-0": "Complete"}),
    Row("local-fails", local(), (run, at(end, "worker-0", code=1)), "Failed", "exit code 1 is not retried"),
    Row("local-cannot-start", local(), (run, at(end, "worker-0", code=127)), "Failed", "exit code 127 is not retried"),
    Row("local-is-killed", local(), (run, at(fall, "worker-0"), at(end, "worker-0"))),
    Row("local-is-killed-twice", local(), (run, at(fall, "worker-0"), at(fall, "worker-0", 143), at(end, "worker-0"))),
    Row(
        "local-spends-its-tries",
        local(backoffLimit=0),
        (run, at(end, "worker-0", code=137)),
        "Failed",
        "BackoffLimitExceeded",
        {"worker-0": "Failed"},
    ),
    Row("local-has-no-memory", local(), (run, at(die_for_lack_of_memory, "worker-0")), "Failed", "OOMKilled"),
    Row("local-is-evicted", local(), (run, at(fall, "worker-0", 1, "Evicted"), at(end, "worker-0"))),
    Row(
        "local-code-is-listed",
        local(restartingExitCode="1,3-5"),
        (run, at(fall, "worker-0", 4), at(end, "worker-0")),
    ),
    Row("local-loses-its-pod", local(), (run, at(lose_pod, "worker-0"), at(end, "worker-0"))),
    Row("local-loses-its-job", local(), (run, at(lose_batch_job, "worker-0"), at(end, "worker-0"))),
    Row("local-without-a-policy", local(restart=""), (run, at(end, "worker-0"))),
    Row("local-side-car-stays", SIDE_CAR, (run, at(end_main, "worker-0", 0)), left={"worker-0": "Suspended"}),
    Row("local-side-car-hides", SIDE_CAR, (run, at(end_main, "worker-0", 137)), "Failed", "side-cars keep the pod"),
    # a pod that its kubelet starts again
    Row(
        "in-place-fails",
        local(restart="OnFailure"),
        (run, at(crash, "worker-0", 1)),
        "Failed",
        "exit code 1 is not retried",
        {"worker-0": "Suspended"},
    ),
    Row(
        "in-place-is-killed",
        local(restart="OnFailure"),
        (run, at(crash_and_run, "worker-0", 137), at(end, "worker-0")),
    ),
    Row(
        "in-place-has-no-memory",
        local(restart="OnFailure"),
        (run, at(crash, "worker-0", 137, "OOMKilled")),
        "Failed",
        "it needs more memory",
    ),
    # a whole crew
    Row("dist-succeeds", dist(), ENDING, left=dict.fromkeys(ALL, "Complete")),
    Row("dist-scheduler-first", dist(), (run, at(end, "scheduler-0", *WORKERS, *SERVERS))),
    Row(
        "dist-servers-stay",
        dist(),
        (run, at(end, *WORKERS, "scheduler-0")),
        left=dict.fromkeys(("scheduler-0", *WORKERS), "Complete") | dict.fromkeys(SERVERS, "Suspended"),
    ),
    Row("dist-worker-fails", dist(), FAILING, "Failed", "worker-1: pod", STOPPED | {"worker-1": "Failed"}),
    Row(
        "dist-server-fails",
        dist(),
        (run, at(end, "server-0", code=2)),
        "Failed",
        "server-0: pod",
        STOPPED | {"server-0": "Failed"},
    ),
    Row(
        "dist-scheduler-fails",
        dist(),
        (run, at(end, "scheduler-0", code=1)),
        "Failed",
        "scheduler-0: pod",
        STOPPED | {"scheduler-0": "Failed"},
    ),
    Row(
        "dist-success-hides-no-failure",
        dist(),
        (run, at(end, "scheduler-0", "worker-0"), at(end, "worker-1", code=1)),
        "Failed",
        "worker-1: pod",
        {
            "scheduler-0": "Complete",
            "worker-0": "Complete",
            "worker-1": "Failed",
            **dict.fromkeys(SERVERS, "Suspended"),
        },
    ),
    Row("crew-worker-is-killed", dist(), (run, at(fall_together, at(die, "worker-1", 137)), *ENDED)),
    Row("crew-server-is-killed", dist(), (run, at(fall_together, at(die, "server-0", 143)), *ENDED)),
    Row("crew-loses-its-scheduler", dist(), (run, at(fall_together, at(take_pod, "scheduler-0")), *ENDED)),
    Row("crew-loses-a-job", dist(), (run, at(fall_together, at(take_batch_job, "worker-0")), *ENDED)),
    Row("crew-job-is-suspended", dist(), (run, at(fall_together, at(suspend, "worker-1")), *ENDED)),
    Row(
        "crew-is-tidied-up-too-early",
        dist(),
        (run, at(end, "worker-0"), at(tidy_up, "worker-0"), at(end, *SERVERS, "worker-1", "scheduler-0")),
        left=dict.fromkeys((*SERVERS, "worker-1", "scheduler-0"), "Complete"),
    ),
    Row(
        "crew-falls-twice",
        dist(backoffLimit=2),
        (
            run,
            at(fall_together, at(die, "worker-1", 137)),
            at(fall_together, at(die, "worker-0", 137)),
            *ENDED,
        ),
    ),
    Row(
        "crew-spends-its-tries",
        dist(backoffLimit=1),
        (run, at(fall_together, at(die, "worker-1", 137)), at(die, "server-1", 137)),
        "Failed",
        "(backoffLimit 1 is used up)",
    ),
    Row(
        "crew-worker-comes-alone",
        dist(replicaSpecs=[*DIST[:2], DIST[2] | {"restartScope": "Pod"}]),
        (run, at(fall, "worker-1"), *ENDED),
    ),
    Row("dist-loses-its-service", dist(), (run, lose_service, *ENDED)),
    Row(
        "dist-on-the-host",
        dist(
            replicaSpecs=[
                crew("SCHEDULER") | {"template": {"spec": {"hostNetwork": True, "containers": [container("mxnet")]}}},
                crew("SERVER", 2),
                crew("WORKER", 2),
            ]
        ),
        ENDING,
    ),
    # clean-up
    Row("cleans-all-after-success", dist(cleanPodPolicy="All"), ENDING, left={}),
    Row("cleans-all-after-failure", dist(cleanPodPolicy="All"), FAILING, "Failed", "worker-1: pod", {}),
    Row("cleans-none-after-success", dist(cleanPodPolicy="None"), ENDING, left=dict.fromkeys(ALL, "Complete")),
    Row(
        "cleans-none-after-failure",
        dist(cleanPodPolicy="None"),
        FAILING,
        "Failed",
        "worker-1: pod",
        dict.fromkeys(ALL, "Active") | {"worker-1": "Failed"},
    ),
    # limits
    Row(
        "is-too-slow",
        dist(),
        (run, Job.began_an_hour_ago, at(edit, activeDeadlineSeconds=60)),
        "Failed",
        "has not ended within 60 seconds",
        STOPPED,
    ),
    Row("goes-by-itself", local(ttlSecondsAfterFinished=1), (run, at(end, "worker-0")), "gone"),
    # what cannot be
    Row("is-never-accepted", local(restartingExitCode="9-1"), (), "Accepted", "is an empty range", {}),
    Row(
        "cannot-be-created",
        mlkubejob(replicaSpecs=[crew("WORKER", 1, PLENTY)], RuntimeId="id"),
        (),
        "PodCreateFailed",
        "quantities must match",
        {},
    ),
    # the group that such jobs had first
    Row("first-group", mlkubejob(group="mlkube.io", RuntimeId="id"), (run, at(end, "worker-0"))),
)


# --- playing them ----------------------------------------------------------------------------------


class Trace(NamedTuple):
    """What a job went through, what it left behind, and what was told."""

    statuses: list[Object]
    left: Left
    services: list[str]
    events: list[tuple[str, ...]]


async def play(scene: Scene, row: Row) -> Job:
    job = await scene.create(row.manifest)
    async with scene.kubelet():
        for step in row.steps:
            await step(job)
        if row.ends in ("Accepted", "PodCreateFailed"):
            await job.says(row.ends, "False" if row.ends == "Accepted" else "True")
        elif row.ends == "gone":
            await job.until(lambda: not job.stored, "it is gone")
        else:
            await job.until(lambda: job.phase == "Done" and is_at_rest(job), "it is done")
        await scene.settled()
    return job


def is_at_rest(job: Job) -> bool:
    """Whoever was told to stop has stopped."""
    batches = job.children(BATCH_JOBS).values()
    return all(word_of(batch) != "Active" for batch in batches if batch["spec"].get("suspend"))


def made_up(text: str) -> str:
    """Without the ending that a Job controller makes up for the name of a pod, and without ids of our own. A pod that
    was deleted may be gone before its Job has failed: then its name and its node are not known."""
    text = re.sub(r"pod job-([a-z]+-)\w+-(\d+)-\w+ is lost: it was deleted on node \w+", LOST, text)
    return re.sub(r"\b(job-[a-z]+)-\w+-(\d+)(-[a-z0-9]{5})?\b", r"\1-ID-\2", text)


LOST = r"the pod of \1\2 is lost: it was deleted"


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        unknown = ("runtimeId", "node") if value.get("reason") == "PodLost" else ("runtimeId",)
        return {key: plain(entry) for key, entry in value.items() if key not in unknown}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return made_up(value) if isinstance(value, str) else value


def is_about_pace(event: Object) -> bool:
    """Jobs are stopped and deleted one after the other, as fast as the Job controller lets us; what a pass had done
    before it met a conflict is not told."""
    return event["reason"] in ("SuccessfulUpdate", "SuccessfulDelete")


def traced(job: Job, events: list[Object]) -> Trace:
    said = [
        (event["type"], event["reason"], event["source"]["component"], made_up(nameless(job, event["message"])))
        for event in events
        if not is_about_pace(event)
    ]
    # Ports are drawn by the uid, and those of the two planes differ; who is done is told as fast as they end.
    kept = [{k: v for k, v in s.items() if k not in ("ports", "done")} for s in job.statuses if s.get("phase")]
    statuses = [plain(told(status)) for status in kept]
    return Trace(
        statuses=[status for status, _ in groupby(statuses)],
        # Nobody collects garbage on one of the planes: of a job that is gone its Jobs are not looked at.
        left={place_of(batch): word_of(batch) for batch in job.children(BATCH_JOBS).values() if job.stored},
        services=sorted(plain(list(job.children("services")))),
        events=sorted(said),
    )


async def trace_all(plane: ControlPlane) -> dict[str, Trace | str]:
    async with stage_on(plane) as stage:
        jobs = await stage.play("mlkube", {row.id: partial(play, row=row) for row in ROWS})
        events = await all_events(await stage.scene("mlkube-later"))
        return {id_: job if isinstance(job, str) else traced(job, events.get(job.uid, [])) for id_, job in jobs.items()}


@pytest.fixture(scope="module")
def real(plane: ControlPlane, operator: OperatorProcess) -> dict[str, Trace | str]:
    return asyncio.run(trace_all(plane))


@pytest.fixture(scope="module")
def embedded(binaries: Path) -> dict[str, Trace | str]:
    with embedded_plane(binaries) as plane:
        return asyncio.run(trace_all(plane))


each_row = pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])


@each_row
def test_a_job_ends_as_its_row_says(row: Row, real: dict[str, Any]) -> None:
    found = real[row.id]

    assert isinstance(found, Trace), found
    last = found.statuses[-1]
    if row.ends in ("Accepted", "PodCreateFailed"):
        (message,) = [c["message"] for c in last["conditions"] if c["type"] == row.ends]
        assert row.says in message
    else:
        state = "Succeeded" if row.ends == "gone" else row.ends
        phases = [phase for phase, _ in groupby(status["phase"] for status in found.statuses)]
        judged = [] if row.manifest["spec"].get("cleanPodPolicy") == "None" else ["CleanUp"]
        ran = ["Running"] if run in row.steps else []
        assert phases == ["Creating", *ran, *judged, "Done"]
        assert last["state"] == state
        assert row.says in last.get("reason", "")
    assert row.left is None or found.left == row.left


@each_row
def test_a_job_leaves_the_same_trace_on_both(row: Row, real: dict[str, Any], embedded: dict[str, Any]) -> None:
    assert isinstance(real[row.id], Trace), real[row.id]
    assert isinstance(embedded[row.id], Trace), embedded[row.id]
    assert embedded[row.id].statuses == real[row.id].statuses
    assert embedded[row.id].left == real[row.id].left
    assert embedded[row.id].services == real[row.id].services
    assert embedded[row.id].events == real[row.id].events


@pytest.mark.usefixtures("operator")
async def test_a_job_ends_when_its_time_is_over_though_nothing_happens(scene: Scene) -> None:
    job = await scene.create(dist(activeDeadlineSeconds=2))

    await job.until(lambda: job.phase == "Done", "it is done")

    assert job.status["state"] == "Failed"
    assert job.status["reason"] == "the job has not ended within 2 seconds (activeDeadlineSeconds)"


@pytest.mark.usefixtures("operator")
async def test_a_crew_that_a_lost_node_holds_a_pod_of_comes_again(scene: Scene) -> None:
    """Nobody says that the pod is gone: as long as that is so, its Job is about to fail and does not."""
    job = await scene.create(dist())
    await run(job)

    await scene.admin.delete("pods", scene.namespace, pod_at(job, "worker-1"))

    assert re.search(r"pod job-worker-id-1-\w+ is lost: it was deleted on node", await job.says("Recovering", "True"))


async def run_on_a_node_that_is_lost(scene: Scene, manifest: Manifest, place: str) -> Job:
    """All replicas run, one of them on a node of its own, which is deleted then."""
    node = scene.namespace
    await add_node(scene.admin, node)
    job = await scene.create(manifest)
    await job.pods_are_there()
    await scene.admin.bind(scene.namespace, pod_at(job, place), node)
    await run(job)
    await scene.admin.delete("nodes", None, node)
    return job


@pytest.mark.usefixtures("operator")
async def test_the_pod_of_a_local_job_on_a_lost_node_is_force_deleted_and_its_job_creates_another_one(
    scene: Scene,
) -> None:
    job = await run_on_a_node_that_is_lost(scene, local(), "worker-0")
    (old,) = job.children("pods")

    await job.until(lambda: old not in job.children("pods"), "its pod is gone")
    await come_back(job, "worker-0", besides=old)

    # It is over as soon as the old pod is gone: only the history of the status has it for certain.
    conditions = [c for status in job.statuses for c in status["conditions"]]
    messages = [c.get("message", "") for c in conditions if c["type"] == "Recovering"]
    assert any(f"pod {old} failed: Node {scene.namespace} is failed and offline" in message for message in messages)
    assert "restarts" not in job.status


@pytest.mark.usefixtures("operator")
async def test_all_replicas_restart_when_a_node_is_lost_and_no_kubelet_is_waited_for(scene: Scene) -> None:
    job = await run_on_a_node_that_is_lost(scene, dist(), "worker-1")
    lost, others = pod_at(job, "worker-1"), [pod_at(job, place) for place in ALL if place != "worker-1"]

    message = await job.says("Recovering", "True")
    await job.until(lambda: lost not in job.children("pods"), "the pod on the lost node is gone")
    assert set(others) <= set(job.children("pods"))  # their kubelet has not stopped them yet
    async with scene.kubelet():
        await job.until(lambda: len(job.children(BATCH_JOBS)) == len(ALL) and pod_at(job, "worker-1"), "all are new")

    assert f"pod {lost} failed: Node {scene.namespace} is failed and offline" in message
    assert job.status["restarts"]["WORKER"]["used"] == 1


@pytest.mark.usefixtures("operator")
async def test_a_job_that_is_suspended_has_no_jobs_and_starts_all_again_when_it_is_resumed(scene: Scene) -> None:
    job = await scene.create(dist())
    await run(job)
    before = set(job.children("pods"))

    async with scene.kubelet():
        await job.edit({"suspend": True})
        await job.says("Suspended", "True")
        await job.until(lambda: not job.children(BATCH_JOBS) and not job.children("services"), "its children are gone")
        await job.edit({"suspend": False})
        await job.until(lambda: len(job.children(BATCH_JOBS)) == len(ALL), "its Jobs are there again")
        await run(job)

    assert before.isdisjoint(job.children("pods"))
    assert job.phase == "Running"
    assert "restartHistory" not in job.status


@pytest.mark.usefixtures("operator")
async def test_a_quota_that_refuses_the_pods_of_a_job_is_said_and_used_up_as_soon_as_it_grows(
    scene: Scene, plane: ControlPlane
) -> None:
    """No quota controller runs here: the test writes what it would have counted."""
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}}
    await scene.admin.create("resourcequotas", quota, scene.namespace)
    await scene.admin.set_status("resourcequotas", scene.namespace, "small", allowance(2, used=0))
    job = await scene.create(dist())

    said = await job.says("PodCreateFailed", "True")

    assert re.match(rf"pod {scene.namespace}/job-\w+-id-\d: exceeded quota: small, requested: pods=1", said)
    assert job.status["summary"]["message"] == said
    first, *_, last = await _why(plane, scene.namespace)
    assert said in first
    assert last.endswith(f" describe quota --namespace {scene.namespace}")

    await scene.admin.set_status("resourcequotas", scene.namespace, "small", allowance(9, used=2))
    await run(job)
    await job.says("PodCreateFailed", "False")


def allowance(pods: int, *, used: int) -> Object:
    return {"hard": {"pods": str(pods)}, "used": {"pods": str(used)}}


async def _why(plane: ControlPlane, namespace: str) -> list[str]:
    async with AsyncClient(kubeconfig=plane.kubeconfig("admin"), namespace=namespace) as client:
        return (await (await client.job("job")).why()).splitlines()


@pytest.mark.usefixtures("operator")
async def test_the_crew_of_a_job_that_has_begun_cannot_change(scene: Scene) -> None:
    """ps-lite counts its members when it starts: who comes later is never let in."""
    job = await scene.create(dist())
    await job.until(lambda: job.status.get("runtimeId"), "it has begun")

    scheduler, servers, workers = DIST
    for changed in (
        [scheduler, servers, crew("WORKER", 3)],
        [scheduler, servers, workers | {"restartScope": "Pod"}],
        [scheduler | {"PsRootPort": 9092}, servers, workers],
    ):
        with pytest.raises(Refused, match=r"spec\.replicaSpecs: Invalid value.*ps-lite counts its members"):
            await job.edit({"replicaSpecs": changed})
    await job.edit({"replicaSpecs": [scheduler | {"PsRootPort": 9091}, servers, workers | {"restartScope": "All"}]})
    await job.edit({"ttlSecondsAfterFinished": 60})
