"""The same scenarios on the real API server and on the embedded one: what jobs become, and what is told, is the same.

A scenario is played step by step, each step waiting for what the operator makes of it. So the two traces may differ
in times, uids and versions alone.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import PATIENCE, Object
from tests.integration import harm, policy
from tests.integration import test_external as external
from tests.integration import test_restart as restarts
from tests.integration.scene import ENDED, Job, Scene, give_aggregators
from tests.integration.stage import embedded_plane, stage_on
from tests.integration.test_aitrainingjob import trainers, with_ps
from tests.integration.test_dijob import COORDINATOR, started_with
from tests.integration.test_end import ENDS, LEFT, is_judged, workers
from tests.manifests.build import Manifest, aitrainingjob, container, coordinated, dijob, nervexjob, template

Play = Callable[[Scene], Awaitable[Job]]


class Trace(NamedTuple):
    """What a job went through, what it became, what it left behind, and what was told."""

    statuses: list[Object]
    children: dict[str, list[str]]
    incarnations: dict[str, int]
    events: list[tuple[str, ...]]

    @property
    def phases(self) -> list[str]:
        return [phase for phase, _ in groupby(status["phase"] for status in self.statuses)]


# --- scenarios ---


async def come_up(job: Job) -> None:
    """The new pods of a job get a node, then run; the operator says every step before the next one is taken."""
    await job.pods_are_there()
    await job.reach("Pending")
    await job.scene.bind(*[name for name, pod in job.children("pods").items() if "nodeName" not in pod["spec"]])
    await job.reach("Creating")
    await job.scene.report("Running", *job.slots)
    await job.reach("Running")


async def aitrainingjob_ends(scene: Scene, spec: Manifest, exits: dict[str, int]) -> Job:
    job = await scene.create(aitrainingjob("job", **spec))
    await come_up(job)
    for pod, code in exits.items():
        await scene.end(f"job-{pod}", code)
        # One after the other: two ends that are seen at once would leave another trace than two that are not.
        await job.until(lambda: job.phase not in ("", "Pending", "Creating", "Running") or counts(job, exits), "seen")
    await job.until(lambda: job.phase in ENDED or is_judged(job, len(exits)), f"{exits} were looked at")
    return job


def counts(job: Job, exits: dict[str, int]) -> bool:
    ended = sum(1 for pod in exits if pod_phase(job, f"job-{pod}") in ("Succeeded", "Failed"))
    return is_judged(job, ended)


def pod_phase(job: Job, name: str) -> str:
    pod = job.scene.pods().get(name, {})
    phase: str = pod.get("status", {}).get("phase", "")
    return phase


async def aitrainingjob_lives(scene: Scene, manifest: Manifest) -> Job:
    job = await scene.create(manifest)
    await come_up(job)
    await job.live()
    return job


async def aitrainingjob_loses_a_pod(scene: Scene) -> Job:
    job = await scene.create(trainers(2))
    await come_up(job)
    await scene.let_go("job-trainer-1")
    await job.until(lambda: scene.incarnations("pods").get("job-trainer-1") == 2, "it is there again")
    await come_up(job)
    await job.live()
    return job


async def aitrainingjob_grows(scene: Scene) -> Job:
    job = await scene.create(trainers(1))
    await come_up(job)
    await job.edit({"replicaSpecs": {"trainer": {"replicas": 2}}})
    await job.until(lambda: len(job.children("pods")) == 2, "it has 2 pods")
    await come_up(job)
    await job.live()
    return job


async def dijob_ends(scene: Scene, manifest: Manifest, code: int) -> Job:
    job = await scene.create(manifest)
    await job.pods_are_there()
    await job.reach("Created")
    await scene.report("Running", COORDINATOR)
    await job.reach("Running")
    await scene.end(COORDINATOR, code)
    await job.reach(*ENDED)
    return job


async def nervexjob_ends(scene: Scene, manifest: Manifest, code: int, left: set[str]) -> Job:
    job = await scene.create(manifest)
    await job.pods_are_there()
    await job.reach("Created")
    await scene.report("Running", *job.slots)
    await job.reach("Running")
    await scene.end(COORDINATOR, code)
    await job.until(lambda: set(job.children("pods")) == left and not job.children("services"), "it is cleaned up")
    return job


async def nervexjob_loses_its_aggregator(scene: Scene) -> Job:
    job = await scene.create(nervexjob())
    await job.start()
    await scene.end("job-aggregator", 1)
    await job.until(lambda: scene.incarnations("pods").get("job-aggregator") == 2, "it is there again")
    await job.live()
    await job.until(lambda: set(job.children("pods")) == {COORDINATOR}, "its coordinator alone is left")
    return job


async def dijob_ends_beside_a_side_car(scene: Scene) -> Job:
    job = await scene.create(coordinated(template(container(), container("side-car"))))
    await job.reach("Created")
    await job.start()
    await scene.admin.set_pod(scene.namespace, COORDINATOR, phase="Running", containers=[0, None])
    await job.reach("Succeeded")
    return job


async def is_never_accepted(scene: Scene, manifest: Manifest) -> Job:
    job = await scene.create(manifest)
    await job.says("Accepted", "False")
    return job


async def cannot_be_created(scene: Scene, manifest: Manifest) -> Job:
    job = await scene.create(manifest)
    await job.says("PodCreateFailed", "True")
    return job


async def aitrainingjob_restarts(scene: Scene, row: restarts.Row) -> Job:
    job = await scene.create(aitrainingjob("job", **row.spec))
    await come_up(job)
    for code in row.faults:
        await restarts.fall(job, code)
    return job


async def aitrainingjob_is_told(scene: Scene, row: external.Row) -> Job:
    job = await scene.create(aitrainingjob("job", **row.spec))
    await come_up(job)
    await external.tell(job, row)
    return job


VOLUME = {"name": "data", "emptyDir": {}}

SCENARIOS: dict[str, Play] = {
    **{f"ends-{row.id}": partial(aitrainingjob_ends, spec=row.spec, exits=row.exits) for row in ENDS},
    **{
        f"cleans-{row.policy.lower()}": partial(
            aitrainingjob_ends, spec=workers("Any", job={"cleanPodPolicy": row.policy}), exits={"worker-0": 0}
        )
        for row in LEFT
    },
    **{f"restarts-{row.id}": partial(aitrainingjob_restarts, row=row) for row in restarts.ROWS},
    **{f"told-{row.id}": partial(aitrainingjob_is_told, row=row) for row in external.ROWS},
    **{f"policy-{row.id}": partial(policy.play, row=row) for row in policy.ROWS},
    **{f"harm-{name}": play for name, play in harm.PLAYS.items()},
    **{f"end-{row.id}": partial(policy.play_told, row=row) for row in policy.TOLD},
    "lives": partial(aitrainingjob_lives, manifest=with_ps()),
    "loses-a-pod": aitrainingjob_loses_a_pod,
    "grows": aitrainingjob_grows,
    "dijob-succeeds": partial(dijob_ends, manifest=dijob(), code=0),
    "dijob-fails": partial(dijob_ends, manifest=dijob(), code=137),
    **{
        f"dijob-cleans-{policy.lower()}": partial(dijob_ends, manifest=dijob(cleanPodPolicy=policy), code=0)
        for policy in ("All", "Running", "None")
    },
    **{
        f"nervexjob-{policy.lower()}-{code}": partial(
            nervexjob_ends, manifest=nervexjob(cleanPodPolicy=policy), code=code, left=left
        )
        for policy, code, left in (
            ("Running", 0, {COORDINATOR}),
            ("All", 0, set[str]()),
            ("None", 1, {COORDINATOR, "job-aggregator"}),
        )
    },
    "nervexjob-loses-its-aggregator": nervexjob_loses_its_aggregator,
    "dijob-has-a-port": partial(
        dijob_ends, manifest=started_with(ports=[{"name": "di-port", "containerPort": 22270}]), code=0
    ),
    "dijob-has-a-side-car": dijob_ends_beside_a_side_car,
    "dijob-is-never-accepted": partial(
        is_never_accepted, manifest=coordinated(template(volumes=[VOLUME]), volumes=[VOLUME])
    ),
    "dijob-cannot-be-created": partial(
        cannot_be_created, manifest=started_with(resources={"limits": {"cpu": "plenty"}})
    ),
}


# --- playing them ---

LATER_JOBS = 5
"""In a row that add no other Event."""


async def played(scene: Scene, play: Play) -> Job:
    async with scene.kubelet():
        job = await play(scene)
        await scene.settled()
    return job


async def all_events(scene: Scene) -> dict[str, list[Object]]:
    """The Events of jobs, by uid. Namespaces take turns: when the Event of a later job is sent, one Event of each other
    namespace has been sent, or is being sent. Several Events are sent at once, so one may arrive before an earlier one.
    All have arrived when several later jobs in a row add no other Event."""
    found, unchanged = await _events(scene), 0
    for number in itertools.count():
        if unchanged == LATER_JOBS:
            break
        before = len(found)
        later = await scene.create(aitrainingjob(f"later-{number}"))
        await later.pods_are_there()
        is_told = partial(_is_told, later.uid)
        await scene.admin.wait_list("events", scene.namespace, is_told, timeout=PATIENCE)
        found = await _events(scene)
        unchanged = unchanged + 1 if len(found) == before else 0
    by_job: dict[str, list[Object]] = {}
    for event in found:
        by_job.setdefault(_subject(event), []).append(event)
    return by_job


def _is_told(job: str, events: list[Object]) -> bool:
    return any(_subject(event) == job for event in events)


def _subject(event: Object) -> str:
    """Events of other controllers on the same plane need not name a uid."""
    return str(event["involvedObject"].get("uid", ""))


async def _events(scene: Scene) -> list[Object]:
    """Of all namespaces but this one."""
    return [event for event in await scene.admin.list("events") if event["metadata"]["namespace"] != scene.namespace]


def trace_of(job: Job | str, events: dict[str, list[Object]]) -> Trace | str:
    """Read when all has been played. What a job had to do last is done beside the probe that follows it, not before;
    and events are sent when there is nothing more urgent."""
    if isinstance(job, str):
        return job
    pods = job.scene.incarnations("pods")
    return Trace(
        # Counters alone may be stored in between or not: that is no step of the story.
        statuses=[status for status, _ in groupby(told(status) for status in job.statuses if status.get("phase"))],
        children={resource: sorted(job.children(resource)) for resource in ("pods", "services")},
        incarnations={name: times for name, times in pods.items() if name.startswith(f"{job.name}-")},
        events=sorted(
            (event["type"], event["reason"], event["source"]["component"], nameless(job, event["message"]))
            for event in events.get(job.uid, ())
        ),
    )


COUNTERS = ("readyReplicas", "taskStatus", "allocation", "scaledReplicas")


def told(status: Object) -> Object:
    """A status without its times. Counters may be stored with this change or with the next one: they are compared
    at the end, by `Trace.children` and the conditions; so may successes. Who was displaced is known by a uid, and told
    by an Event."""
    kept = {
        key: value
        for key, value in status.items()
        if "replicaStatus" not in key and key not in ("displaced", "ran", "done", *COUNTERS)
    }
    if summary := kept.get("summary"):
        kept["summary"] = {key: value for key, value in summary.items() if key != "ready"}
    found: Object = timeless(kept)
    return found


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(entry) for key, entry in value.items() if not key.lower().endswith(("time", "timestamp"))}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value


def nameless(job: Job, message: str) -> str:
    return message.replace(job.uid, "UID").replace(job.scene.namespace, "NAMESPACE")


async def trace_all(plane: ControlPlane, prefix: str, scenarios: dict[str, Play]) -> dict[str, Trace | str]:
    async with stage_on(plane) as stage:
        found = await stage.play(prefix, {name: partial(played, play=play) for name, play in scenarios.items()})
        events = await all_events(await stage.scene(f"{prefix}-later"))
        return {name: trace_of(job, events) for name, job in found.items()}


@pytest.fixture(scope="module")
def real(plane: ControlPlane, operator: OperatorProcess) -> dict[str, Trace | str]:
    give_aggregators(plane)
    return asyncio.run(trace_all(plane, "twice", SCENARIOS))


@pytest.fixture(scope="module")
def embedded(binaries: Path) -> dict[str, Trace | str]:
    with embedded_plane(binaries) as plane:
        return asyncio.run(trace_all(plane, "twice", SCENARIOS))


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_leaves_the_same_trace_on_both(name: str, real: dict[str, Any], embedded: dict[str, Any]) -> None:
    assert isinstance(real[name], Trace), real[name]
    assert isinstance(embedded[name], Trace), embedded[name]
    assert embedded[name].statuses == real[name].statuses
    assert embedded[name].children == real[name].children
    assert embedded[name].incarnations == real[name].incarnations
    assert embedded[name].events == real[name].events


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in policy.ROWS])
def test_a_fault_is_answered_as_policy_and_scope_say(row: policy.Row, real: dict[str, Any]) -> None:
    found = real[f"policy-{row.id}"]

    assert isinstance(found, Trace), found
    assert found.phases[-len(row.path) :] == row.path
    assert found.statuses[-1].get("RestartCount", {}) == row.counts
    assert found.incarnations == row.incarnations
    assert len(found.statuses[-1].get("restartHistory", ())) == row.restarts


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in policy.TOLD])
def test_an_annotation_ends_a_job_in_every_phase(row: policy.Told, real: dict[str, Any]) -> None:
    found = real[f"end-{row.id}"]

    assert isinstance(found, Trace), found
    assert found.phases[-3:] == row.path
    assert "said" in found.statuses[-1]["conditions"][-1]["message"]
    assert found.children["pods"] == []  # none of them has ended: nobody wants to read anything there
