"""batch/v1 Jobs: the embedded API and its controller do what kube-apiserver and kube-controller-manager do.

What differs on purpose: an indexed Job, one with policies of its own for failure or success, and one with a selector of
its own are refused; a template never changes, also not while the Job is suspended; a deletion without a policy leaves
the pods, as there, but does not warn.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.plane import ControlPlane
from tests.local.apiserver.client import MERGE, STRATEGIC, Client, until
from tests.local.apiserver.pair import Call, play_both
from trainmaster.core.ids import JOB
from trainmaster.local.apiserver.kubectl.table import as_table
from trainmaster.local.apiserver.objects.catalog import BUILT_IN

Object = dict[str, Any]

CONTROLLERS = ("garbage-collector-controller", "job-controller", "ttl-after-finished-controller")
PATIENCE = 30.0
JOBS = "/apis/batch/v1/namespaces/{ns}/jobs"
PODS = "/api/v1/namespaces/{ns}/pods"
EVENTS_PATH = "/api/v1/namespaces/{ns}/events"
TABLE_FORM = "application/json;as=Table;v=v1;g=meta.k8s.io"


def a_job(name: str = "a", *, meta: Object | None = None, template: Object | None = None, **spec: Any) -> Object:
    """``template`` is its metadata and, under ``spec``, what is different in its spec."""
    given = dict(template or {})
    pod = {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never", **given.pop("spec", {})}
    return {"metadata": {"name": name, **(meta or {})}, "spec": {"template": {**given, "spec": pod}, **spec}}


def dry(**body: Any) -> Call:
    return Call("POST", f"{JOBS}?dryRun=All", a_job(**body))


def changed(patch: Object) -> Call:
    return Call("PATCH", f"{JOBS}/a", patch, MERGE)


LIMITS = {"resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}]}
CALLS: Mapping[str, Sequence[Call]] = {
    "what is filled in": [
        dry(),
        dry(parallelism=3),
        dry(parallelism=0),
        dry(completions=3),
        dry(completions=0, suspend=True, backoffLimit=0, activeDeadlineSeconds=0, ttlSecondsAfterFinished=0),
        dry(meta={"labels": {"x": "y"}}),
        dry(template={"metadata": {"labels": {"x": "y"}, "annotations": {"a": "b"}, "finalizers": ["x.y/z"]}}),
        dry(template={"spec": {"hostNetwork": True, "containers": [{"name": "c", "image": "i:1", **LIMITS}]}}),
        dry(template={"spec": {"restartPolicy": "OnFailure", "priorityClassName": "odd", "volumes": [{"name": "v"}]}}),
        Call("POST", f"{JOBS}?fieldValidation=Strict&dryRun=All", a_job(odd=1)),
        Call("POST", f"{JOBS}?dryRun=All", {**a_job(), "status": {"active": 7}}),
    ],
    "what nobody may create": [
        dry(name=""),
        dry(name="UPPER"),
        dry(template={"spec": {"restartPolicy": "Always"}}),
        dry(template={"spec": {"restartPolicy": None}}),
        dry(template={"spec": {"restartPolicy": "Odd"}}),
        dry(parallelism=-1, completions=-1, backoffLimit=-1, activeDeadlineSeconds=-1, ttlSecondsAfterFinished=-1),
        dry(completionMode="Odd"),
        dry(podReplacementPolicy="Odd"),
        dry(selector={"matchLabels": {"a": "b"}}),
        dry(template={"metadata": {"labels": {"job-name": "other"}}}),
        dry(template={"metadata": {"labels": {"bad key": "x"}}}),
        dry(template={"metadata": {"annotations": {"bad key": "x"}}}),
        dry(template={"spec": {"containers": []}}),
        dry(template={"spec": {"containers": [{"name": "C"}], "nodeName": "UPPER"}}),
        dry(template={"spec": {"activeDeadlineSeconds": 0}}),
        Call("POST", JOBS, {"metadata": {"name": "a"}}),
        Call("POST", JOBS, {"metadata": {"name": "a"}, "spec": {"template": None}}),
    ],
    "what may be changed": [
        Call("POST", JOBS, a_job(suspend=True)),
        Call("POST", JOBS, a_job()),
        changed({"spec": {"parallelism": 2}}),
        changed({"spec": {"parallelism": None}}),
        changed({"spec": {"completions": 2}}),
        changed({"spec": {"completions": None}}),
        changed({"spec": {"backoffLimit": 1, "activeDeadlineSeconds": 100, "ttlSecondsAfterFinished": 3}}),
        changed({"spec": {"backoffLimit": None}}),
        changed({"metadata": {"labels": {"q": "r"}}}),
        changed({"metadata": {"labels": None}}),
        changed({"status": {"active": 5}}),
        Call("PATCH", f"{JOBS}/a", {"metadata": {"annotations": {"x": "y"}}}, STRATEGIC),
        Call("GET", f"{JOBS}/a/status"),
        Call("GET", f"{JOBS}/a/scale"),
        Call("GET", f"{JOBS}?fieldSelector=status.successful=1"),
        Call("GET", f"{JOBS}?fieldSelector=status.successful!=0"),
        Call("GET", f"{JOBS}?fieldSelector=metadata.name=b"),
    ],
    "how it is deleted": [
        *[Call("POST", JOBS, a_job(name, suspend=True)) for name in "abcd"],
        Call("DELETE", f"{JOBS}/a?propagationPolicy=Background"),
        Call("DELETE", f"{JOBS}/b?propagationPolicy=Foreground&dryRun=All"),
        Call("DELETE", f"{JOBS}/c?propagationPolicy=Orphan&dryRun=All"),
        Call("DELETE", f"{JOBS}/a"),
    ],
}


@pytest.mark.parametrize("name", CALLS)
async def test_the_api_answers_as_a_real_one(name: str, api: Client, real: Client, namespace: str) -> None:
    mine, theirs = await play_both(api, real, namespace, CALLS[name])
    for call, ours, expected in zip(CALLS[name], mine, theirs, strict=True):
        assert without_controller(ours) == without_controller(expected), call


def without_controller(answer: Object) -> Object:
    """The embedded API has a controller that begins to work at once; beside the real one there is none."""
    body = dict(answer["body"])
    if body.get("kind") == "Job":
        del body["status"]
        body["metadata"] = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    return {**answer, "body": body}


UNSUPPORTED: Mapping[str, Object] = {
    "spec.completionMode": {"completionMode": "Indexed", "completions": 1},
    "spec.manualSelector": {"manualSelector": True},
    "spec.podReplacementPolicy": {"podReplacementPolicy": "Failed"},
    "spec.managedBy": {"managedBy": "example.com/me"},
    "spec.podFailurePolicy": {"podFailurePolicy": {"rules": []}},
    "spec.successPolicy": {"successPolicy": {"rules": []}},
    "spec.backoffLimitPerIndex": {"backoffLimitPerIndex": 1},
    "spec.maxFailedIndexes": {"maxFailedIndexes": 1},
}


@pytest.mark.parametrize("field", UNSUPPORTED)
async def test_unsupported_fields_are_refused_by_name(field: str, api: Client) -> None:
    answer = await api.request("POST", JOBS.replace("{ns}", "default"), a_job(**UNSUPPORTED[field]))
    (said,) = [each for each in answer.body["details"]["causes"] if each["field"] == field]
    assert answer.code == 422
    assert said["message"] == "Forbidden: not supported by the local cluster: leave it out"


async def test_a_template_stays_as_it_is(api: Client) -> None:
    path = JOBS.replace("{ns}", "default")
    await api.create(path, a_job(suspend=True))
    answer = await api.request(
        "PATCH", f"{path}/a", {"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}, content_type=MERGE
    )
    assert (answer.code, answer.body["details"]["causes"][0]["field"]) == (422, "spec.template")


def held(*types: str) -> Object:
    return {"conditions": [{"type": type_, "status": "True"} for type_ in types]}


ROWS: Sequence[tuple[Object, Object, list[str]]] = (
    ({}, {}, ["Running", "0/1", ""]),
    ({"completions": 4}, {"active": 1, "succeeded": 2, "startTime": "2020-01-01T00:00:00Z"}, ["Running", "2/4"]),
    ({"parallelism": 2}, {"uncountedTerminatedPods": {}}, ["Running", "0/1 of 2", ""]),
    ({"parallelism": 1}, {"uncountedTerminatedPods": {}}, ["Running", "0/1", ""]),
    ({"suspend": True}, held("Suspended"), ["Suspended", "0/1", ""]),
    ({}, {**held("FailureTarget"), "startTime": "2020-01-01T00:00:00Z"}, ["FailureTarget", "0/1"]),
    ({}, held("SuccessCriteriaMet"), ["SuccessCriteriaMet", "0/1", ""]),
    (
        {},
        {
            **held("SuccessCriteriaMet", "Complete"),
            "succeeded": 1,
            "startTime": "2020-01-01T00:00:00Z",
            "completionTime": "2020-01-01T00:01:05Z",
        },
        ["Complete", "1/1", "65s"],
    ),
    ({}, {**held("FailureTarget", "Failed"), "startTime": "2020-01-01T00:00:00Z"}, ["Failed", "0/1"]),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[2]).strip("-"))
async def test_a_job_looks_as_with_a_real_api_server(
    row: tuple[Object, Object, list[str]], real: Client, namespace: str
) -> None:
    spec, status, cells = row
    path = JOBS.replace("{ns}", namespace)
    await real.create(path, a_job(**spec))
    await real.merge(f"{path}/a/status", {"status": status})
    expected = (await real.request("GET", f"{path}/a?includeObject=Object", accept=TABLE_FORM)).body
    (served,) = [each for each in BUILT_IN if each.resource == JOB]
    job = expected["rows"][0]["object"]

    found = as_table(served, [job], is_list=False, include_object="None", metadata={}, now=datetime.now(UTC))

    mine, theirs = found["rows"][0]["cells"], expected["rows"][0]["cells"]
    assert [mine[0], *mine[1:3], *mine[5:]] == [theirs[0], *theirs[1:3], *theirs[5:]]
    assert mine[1 : 1 + len(cells)] == cells
    names = [column["name"] for column in expected["columnDefinitions"]]
    assert [column["name"] for column in found["columnDefinitions"]] == names


# -- the controller ----------------------------------------------------------------------------------------------


class World(NamedTuple):
    """One API with a Job controller, and a namespace in it."""

    client: Client
    namespace: str

    def path(self, template: str) -> str:
        return template.replace("{ns}", self.namespace)

    async def pods(self) -> list[Object]:
        listed = (await self.client.get(self.path(PODS)))["items"]
        return sorted(listed, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    async def look(self) -> Object | None:
        """The Job and its pods without times, names and uids; None when the Job is gone."""
        answer = await self.client.request("GET", self.path(f"{JOBS}/a"))
        pods = sorted([_pod_in_words(pod) for pod in await self.pods()])
        if answer.code == 404:
            return {"job": None, "pods": pods}
        status = answer.body["status"]
        conditions = [
            f"{each['type']}={each['status']} {each['reason']}: {each['message']}"
            for each in status.get("conditions", ())
        ]
        numbers = {key: value for key, value in status.items() if isinstance(value, int)}
        times = sorted(key for key in status if key.endswith("Time"))
        return {"job": numbers, "conditions": conditions, "times": times, "pods": pods}


def _pod_in_words(pod: Object) -> str:
    meta = pod["metadata"]
    words = [pod["status"]["phase"]]
    words += ["leaving"] if "deletionTimestamp" in meta else []
    words += ["tracked"] if "batch.kubernetes.io/job-tracking" in meta.get("finalizers", ()) else []
    words += ["orphan"] if "ownerReferences" not in meta else []
    return " ".join(words)


Action = Callable[[World], Awaitable[None]]


def create(**spec: Any) -> Action:
    async def act(world: World) -> None:
        await world.client.create(world.path(JOBS), a_job(**spec))

    return act


def change(**spec: Any) -> Action:
    async def act(world: World) -> None:
        await world.client.merge(world.path(f"{JOBS}/a"), {"spec": spec})

    return act


def bind() -> Action:
    """Put every pod on a node: from then on it takes its time to go."""

    async def act(world: World) -> None:
        for pod in await world.pods():
            name = pod["metadata"]["name"]
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
            await world.client.create(world.path(f"{PODS}/{name}/binding"), binding)

    return act


def pods_become(status: Object, *, only: int | None = None) -> Action:
    """All pods that have not ended, or the first so many."""

    async def act(world: World) -> None:
        running = [pod for pod in await world.pods() if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        for pod in running[:only]:
            await world.client.merge(world.path(f"{PODS}/{pod['metadata']['name']}/status"), {"status": status})

    return act


def delete_pods(query: str = "") -> Action:
    async def act(world: World) -> None:
        for pod in await world.pods():
            await world.client.delete(world.path(f"{PODS}/{pod['metadata']['name']}{query}"))

    return act


def delete_job(query: str = "") -> Action:
    async def act(world: World) -> None:
        await world.client.delete(world.path(f"{JOBS}/a{query}"))

    return act


def seen(*pods: str, conditions: Sequence[str] = (), times: Sequence[str] = ("startTime",), **numbers: int) -> Object:
    """What is to be seen of a Job; its numbers, and its pods in words."""
    return {
        "job": {"ready": 0, "terminating": 0, **numbers},
        "conditions": list(conditions),
        "times": list(times),
        "pods": sorted(pods),
    }


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
SUCCEEDED = {"phase": "Succeeded"}
FAILED = {"phase": "Failed"}
RESTARTED = {
    "phase": "Running",
    "containerStatuses": [{"name": "c", "restartCount": 2, "state": {"running": {}}}],
}
REACHED = "CompletionsReached: Reached expected number of succeeded pods"
COMPLETE = [f"SuccessCriteriaMet=True {REACHED}", f"Complete=True {REACHED}"]
EXHAUSTED = "BackoffLimitExceeded: Job has reached the specified backoff limit"
LATE = "DeadlineExceeded: Job was active longer than specified deadline"
SUSPENDED = "Suspended=True JobSuspended: Job suspended"
RESUMED = "Suspended=False JobResumed: Job resumed"
DONE = ("completionTime", "startTime")


def failed(why: str) -> list[str]:
    return [f"FailureTarget=True {why}", f"Failed=True {why}"]


GONE: Object = {"job": None, "pods": []}
Step = tuple[Action, Object]
SCENARIOS: Mapping[str, Sequence[Step]] = {
    "a pod that succeeds": [
        (create(), seen("Pending tracked", active=1)),
        (pods_become(READY), seen("Running tracked", active=1, ready=1)),
        (pods_become(SUCCEEDED), seen("Succeeded", succeeded=1, conditions=COMPLETE, times=DONE)),
        (delete_job("?propagationPolicy=Background"), GONE),
    ],
    "a pod that fails, and no more": [
        (create(backoffLimit=0), seen("Pending tracked", active=1)),
        (pods_become(FAILED), seen("Failed", failed=1, conditions=failed(EXHAUSTED))),
    ],
    "a pod that fails is followed by another one": [
        (create(), seen("Pending tracked", active=1)),
        (pods_become(FAILED), seen("Failed", "Pending tracked", active=1, failed=1)),
        (
            pods_become(SUCCEEDED),
            seen("Failed", "Succeeded", failed=1, succeeded=1, conditions=COMPLETE, times=DONE),
        ),
    ],
    "a pod that is deleted is followed by another one": [
        (create(), seen("Pending tracked", active=1)),
        (delete_pods(), seen("Pending tracked", active=1, failed=1)),
    ],
    "a container that was restarted too often": [
        (create(backoffLimit=2, template={"spec": {"restartPolicy": "OnFailure"}}), seen("Pending tracked", active=1)),
        (pods_become(RESTARTED), seen(failed=1, conditions=failed(EXHAUSTED))),
    ],
    "a pod that is refused": [
        (create(template={"spec": {"priorityClassName": "odd"}}), seen()),
    ],
    "a deadline": [
        (create(activeDeadlineSeconds=1), seen(failed=1, conditions=failed(LATE))),
    ],
    "what runs at the deadline goes before the job is over": [
        (create(), seen("Pending tracked", active=1)),
        (bind(), seen("Pending tracked", active=1)),
        (
            change(activeDeadlineSeconds=1),
            seen("Pending leaving", terminating=1, failed=1, conditions=[f"FailureTarget=True {LATE}"]),
        ),
        (delete_pods("?gracePeriodSeconds=0"), seen(failed=1, conditions=failed(LATE))),
    ],
    "suspended from the beginning": [
        (create(suspend=True), seen(conditions=[SUSPENDED], times=[])),
        (change(suspend=False), seen("Pending tracked", active=1, conditions=[RESUMED])),
        (pods_become(SUCCEEDED), seen("Succeeded", succeeded=1, conditions=[RESUMED, *COMPLETE], times=DONE)),
    ],
    "suspended while it runs": [
        (create(), seen("Pending tracked", active=1)),
        (change(suspend=True), seen(conditions=[SUSPENDED], times=[])),
        (change(suspend=False), seen("Pending tracked", active=1, conditions=[RESUMED])),
    ],
    "several completions": [
        (create(completions=3, parallelism=2), seen(*["Pending tracked"] * 2, active=2)),
        (pods_become(SUCCEEDED, only=1), seen("Succeeded", *["Pending tracked"] * 2, active=2, succeeded=1)),
        (pods_become(SUCCEEDED), seen(*["Succeeded"] * 3, succeeded=3, conditions=COMPLETE, times=DONE)),
    ],
    "workers without a number": [
        (create(parallelism=2), seen(*["Pending tracked"] * 2, active=2)),
        (pods_become(SUCCEEDED, only=1), seen("Succeeded", "Pending tracked", active=1, succeeded=1)),
        (pods_become(SUCCEEDED), seen(*["Succeeded"] * 2, succeeded=2, conditions=COMPLETE, times=DONE)),
    ],
    "nothing to do": [
        (create(completions=0), seen(conditions=COMPLETE, times=DONE)),
    ],
    "fewer at a time": [
        (create(parallelism=3, completions=3), seen(*["Pending tracked"] * 3, active=3)),
        (change(parallelism=1), seen("Pending tracked", active=1)),
        (change(parallelism=0), seen()),
        (change(parallelism=2), seen(*["Pending tracked"] * 2, active=2)),
    ],
    "time to live": [
        (create(ttlSecondsAfterFinished=1), seen("Pending tracked", active=1)),
        (pods_become(SUCCEEDED), GONE),
    ],
    "deleted in the foreground": [
        (create(), seen("Pending tracked", active=1)),
        (delete_job("?propagationPolicy=Foreground"), GONE),
    ],
    "deleted alone": [
        (create(), seen("Pending tracked", active=1)),
        (delete_job(), {"job": None, "pods": ["Pending orphan"]}),
    ],
    "deleted with pods that take their time": [
        (create(), seen("Pending tracked", active=1)),
        (bind(), seen("Pending tracked", active=1)),
        (delete_job("?propagationPolicy=Background"), {"job": None, "pods": ["Pending leaving"]}),
        (delete_pods("?gracePeriodSeconds=0"), GONE),
    ],
}


CREATED = "Normal SuccessfulCreate: Created pod: a-SUFFIX"
DELETED = "Normal SuccessfulDelete: Deleted pod: a-SUFFIX"
COMPLETED = "Normal Completed: Job completed"
FORBIDDEN = 'Error creating: pods "a-" is forbidden: no PriorityClass with name odd was found'
EVENTS: Mapping[str, set[str]] = {
    "a pod that succeeds": {CREATED, COMPLETED},
    "a pod that fails, and no more": {CREATED, f"Warning {EXHAUSTED}"},
    "a pod that is refused": {f"Warning FailedCreate: {FORBIDDEN}"},
    "a deadline": {CREATED, DELETED, f"Warning {LATE}"},
    "suspended while it runs": {CREATED, DELETED, "Normal Suspended: Job suspended", "Normal Resumed: Job resumed"},
    "fewer at a time": {CREATED, DELETED},
}


@pytest.fixture(scope="module")
def controlled(binaries: Path) -> Iterator[ControlPlane]:
    """A control plane whose Jobs are looked after."""
    with ControlPlane(binaries=binaries) as plane:
        plane.start_controller_manager(CONTROLLERS)
        yield plane


async def arrives(world: World, expected: Object) -> None:
    """Look again whenever something changed, until it is as expected."""
    found: Object | None = None
    jobs, pods = (world.client.watch(world.path(f"{path}?watch=1")) for path in (JOBS, PODS))
    try:
        async with jobs as job_news, pods as pod_news, asyncio.timeout(PATIENCE):
            while (found := await world.look()) != expected:
                news = [asyncio.ensure_future(each.get()) for each in (job_news, pod_news)]
                await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)
                for each in news:
                    each.cancel()
    except TimeoutError:
        pytest.fail(f"{world.client.url}: expected {expected}, found {found}")


async def are_told(world: World, expected: set[str]) -> None:
    """Wait for exactly these Events of the Job."""
    found: set[str] = set()
    async with asyncio.timeout(PATIENCE), world.client.watch(world.path(f"{EVENTS_PATH}?watch=1")) as news:
        while found != expected:
            event = (await news.get())["object"]
            if event["involvedObject"]["kind"] == "Job":
                message = re.sub(r"a-[a-z0-9]{5}$", "a-SUFFIX", event["message"])
                found.add(f"{event['type']} {event['reason']}: {message}")


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_job_has_the_same_history_as_with_a_real_controller(
    name: str, api: Client, controlled: ControlPlane
) -> None:
    async def play(client: Client) -> None:
        world = World(client, re.sub("[^a-z]+", "-", name))
        await client.create("/api/v1/namespaces", {"metadata": {"name": world.namespace}})
        for action, expected in SCENARIOS[name]:
            await action(world)
            await arrives(world, expected)
        if name in EVENTS:
            await are_told(world, EVENTS[name])

    async with Client(controlled.url, controlled.admin_token, Path(controlled.ca_file)) as real:
        await asyncio.gather(play(api), play(real))


async def test_a_namespace_is_deleted_with_its_jobs_and_their_pods(api: Client) -> None:
    world = World(api, "going")
    await api.create("/api/v1/namespaces", {"metadata": {"name": "going"}})
    await create(parallelism=2, completions=2)(world)
    await arrives(world, seen(*["Pending tracked"] * 2, active=2))
    await api.delete("/api/v1/namespaces/going")

    await until(api, "/api/v1/namespaces", lambda found: "going" not in found)
    assert await world.pods() == []


async def test_a_status_written_by_another_client_is_corrected(api: Client) -> None:
    world = World(api, "default")
    await create()(world)
    await arrives(world, seen("Pending tracked", active=1))
    odd = {"active": 7, "ready": 3, "terminating": 2, "conditions": [{"message": "no type, no time"}]}
    await api.merge(world.path(f"{JOBS}/a/status"), {"status": odd})
    await pods_become(SUCCEEDED)(world)

    found = await until(api, world.path(JOBS), lambda jobs: jobs["a"]["status"].get("succeeded"))
    assert found["a"]["status"].get("active", 0) == 0
