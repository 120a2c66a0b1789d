"""The API server in memory is held against the real one: the same requests get the same answers and the same watch.

The laws are worth as much as this file. `play` runs steps on both; what is compared is what an operator can notice:
which exception, which incarnation and version a write answers, how the object looks afterwards, what a watch tells.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.admin import path_of
from testbed.plane import ControlPlane
from tests.laws.memory import MemoryApi, Object
from trainmaster.core.errors import ApiError, NotFound
from trainmaster.core.ids import POD, SERVICE, Key, Resource
from trainmaster.kinds import crd
from trainmaster.kinds.dijob.types import RESOURCE as JOB
from trainmaster.kube.client import KubeCluster
from trainmaster.kube.kubeconfig import load_config
from trainmaster.runtime.cluster import Cluster, Written

CONTAINERS = [{"name": "main", "image": "none"}]
BODIES: dict[Resource, Object] = {
    POD: {"spec": {"containers": CONTAINERS}},
    SERVICE: {"spec": {"clusterIP": "None"}},
    JOB: {"spec": {"coordinator": {"template": {"spec": {"containers": CONTAINERS}}}}},
}

Whose = Literal["own", "wrong", ""]


class Step(NamedTuple):
    """One request. ``uid`` and ``version`` say what it insists on: what is right, something else, or nothing."""

    verb: Literal["create", "delete", "patch", "bind"]
    resource: Resource
    name: str = "a"
    body: Object = {}
    subresource: str = ""
    uid: Whose = "own"
    version: Whose = ""
    grace: int | None = None


def create(resource: Resource, name: str = "a") -> Step:
    return Step("create", resource, name)


def delete(resource: Resource, name: str = "a", *, uid: Whose = "own", grace: int | None = None) -> Step:
    return Step("delete", resource, name, uid=uid, grace=grace)


def bind(name: str = "a") -> Step:
    return Step("bind", POD, name)


def report(phase: str, name: str = "a") -> Step:
    """A kubelet says in which phase its pod is."""
    return Step("patch", POD, name, {"status": {"phase": phase}}, "status", uid="")


def status(body: Object, name: str = "a", *, uid: Whose = "", version: Whose = "") -> Step:
    return Step("patch", JOB, name, {"status": body}, "status", uid, version)


def edit(body: Object, name: str = "a", *, uid: Whose = "", version: Whose = "") -> Step:
    return Step("patch", JOB, name, body, "", uid, version)


class Seen(NamedTuple):
    """What an operator notices of one step."""

    answer: str
    uid: str
    version: str
    """Of the answer: none, the one that was there before, or a new one."""
    afterwards: Object | None


class Told(NamedTuple):
    """One event of a watch."""

    type: str
    name: str
    shape: Object


class Heard(NamedTuple):
    steps: list[Seen]
    listed: dict[str, list[str]]
    watched: dict[str, list[Told]]


class Side:
    """One of the two servers, with the objects of one play in it."""

    def __init__(self, cluster: Cluster, namespace: str, prefix: str) -> None:
        self.cluster = cluster
        self._namespace = namespace
        self._prefix = prefix
        self._uids: dict[tuple[Resource, str], str] = {}
        self._newest = 0

    async def play(self, steps: Sequence[Step]) -> Heard:
        resources = list(dict.fromkeys(step.resource for step in steps))
        since = {resource: await self._version(resource) for resource in resources}
        seen = [await self._take(step) for step in steps]
        listed = {str(resource): await self._listed(resource) for resource in resources}
        for resource in resources:
            await self._take(create(resource, "end"))
        watched = {str(resource): self._told(await self.events(resource, since[resource])) for resource in resources}
        return Heard(seen, listed, watched)

    async def bind(self, key: Key) -> None:
        raise NotImplementedError

    async def events(self, resource: Resource, since: str) -> list[Object]:
        """All of the watch of a resource until something called ``end`` was added."""
        raise NotImplementedError

    def is_end(self, event: Object) -> bool:
        name: str = event["object"]["metadata"]["name"]
        return name == self._key("end").name

    async def _take(self, step: Step) -> Seen:
        before = await self._get(step)
        try:
            written = await self._ask(step, before)
        except ApiError as refused:
            return Seen(type(refused).__name__, "", "", _shape(await self._get(step)))
        if step.verb == "create" and written is not None:
            self._uids[step.resource, step.name] = written.uid
        after = await self._get(step)
        return Seen("done", self._whose(step, written), self._which(before, written), _shape(after))

    async def _ask(self, step: Step, before: Object | None) -> Written | None:
        key = self._key(step.name)
        match step.verb:
            case "create":
                body = {
                    "apiVersion": step.resource.api_version,
                    "kind": step.resource.kind,
                    "metadata": {"name": key.name},
                    **BODIES[step.resource],
                }
                return await self.cluster.create(step.resource, key.namespace, msgspec.json.encode(body))
            case "delete":
                uid = self._uid(step) if step.uid == "own" else "another"
                return await self.cluster.delete(step.resource, key, uid=uid, grace=step.grace)
            case "bind":
                await self.bind(key)
                return None
            case "patch":
                body = self._with_preconditions(step, before)
                return await self.cluster.patch(
                    step.resource, key, msgspec.json.encode(body), subresource=step.subresource
                )

    def _with_preconditions(self, step: Step, before: Object | None) -> Object:
        metadata = dict(step.body.get("metadata", {}))
        if step.uid:
            metadata["uid"] = self._uid(step) if step.uid == "own" else "another"
        if step.version:
            current = before["metadata"]["resourceVersion"] if before else "1"
            metadata["resourceVersion"] = current if step.version == "own" else "1"
        return {**step.body, "metadata": metadata} if metadata else step.body

    def _uid(self, step: Step) -> str:
        return self._uids.get((step.resource, step.name), "of-nobody")

    def _whose(self, step: Step, written: Written | None) -> str:
        if written is None or not written.uid:
            return "none"
        return "own" if written.uid == self._uid(step) else "another"

    def _which(self, before: Object | None, written: Written | None) -> str:
        if written is None or not written.resource_version:
            return "none"
        if before is not None and int(before["metadata"]["resourceVersion"]) == written.resource_version:
            return "as before"
        is_new, self._newest = written.resource_version > self._newest, written.resource_version
        return "new" if is_new else "an old one"

    async def _get(self, step: Step) -> Object | None:
        try:
            found: Object = msgspec.json.decode(await self.cluster.get(step.resource, self._key(step.name)))
        except NotFound:
            return None
        return found

    async def _version(self, resource: Resource) -> str:
        page = msgspec.json.decode(await self.cluster.list(resource, namespace=self._namespace))
        version: str = page["metadata"]["resourceVersion"]
        return version

    async def _listed(self, resource: Resource) -> list[str]:
        page = msgspec.json.decode(await self.cluster.list(resource, namespace=self._namespace))
        names = [item["metadata"]["name"] for item in page["items"]]
        newest = max((int(item["metadata"]["resourceVersion"]) for item in page["items"]), default=0)
        assert int(page["metadata"]["resourceVersion"]) >= newest
        return [name.removeprefix(self._prefix) for name in names if name.startswith(self._prefix)]

    def _told(self, events: list[Object]) -> list[Told]:
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert versions == sorted(set(versions)), "versions grow"
        return [
            Told(event["type"], name.removeprefix(self._prefix), _shape(event["object"]) or {})
            for event in events
            if (name := event["object"]["metadata"]["name"]).startswith(self._prefix)
        ]

    def _key(self, name: str) -> Key:
        return Key(self._namespace, f"{self._prefix}{name}")


class RealSide(Side):
    def __init__(self, cluster: KubeCluster, namespace: str, prefix: str, plane: ControlPlane) -> None:
        super().__init__(cluster, namespace, prefix)
        self._plane = plane

    async def bind(self, key: Key) -> None:
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/binding"
        body = {"metadata": {"name": key.name}, "target": {"kind": "Node", "name": "node-1"}}
        await asyncio.to_thread(self._plane.request, "POST", path, body)

    async def events(self, resource: Resource, since: str) -> list[Object]:
        found: list[Object] = []
        watch = self.cluster.watch(resource, namespace=self._namespace, resource_version=since, timeout=120)
        async with watch as lines:
            async for line in lines:
                event = msgspec.json.decode(line)
                if event["type"] != "BOOKMARK":
                    found.append(event)
                if event["type"] == "ADDED" and self.is_end(event):
                    break
        return found


class MemorySide(Side):
    def __init__(self, api: MemoryApi, namespace: str, prefix: str) -> None:
        super().__init__(api, namespace, prefix)
        self._api = api

    async def bind(self, key: Key) -> None:
        self._api.bind(key, "node-1")

    async def events(self, resource: Resource, since: str) -> list[Object]:
        return [msgspec.json.decode(change.line()) for change in self._api.streams[resource]]


def _shape(found: Object | None) -> Object | None:
    """The parts of an object that somebody decides by, without what differs from run to run."""
    if found is None:
        return None
    meta, spec, stored = found["metadata"], found.get("spec", {}), found.get("status", {})
    shape = {
        "generation": meta.get("generation"),
        "deleting": "deletionTimestamp" in meta,
        "labels": meta.get("labels", {}),
        "group": spec.get("group"),
        "node": spec.get("nodeName"),
    }
    # A real pod has more in its status than its phase; of a service nothing matters.
    return shape | ({"status": stored} if "coordinator" in spec else {"phase": stored.get("phase")})


class Pair:
    """Both servers; every play has objects of its own on the real one."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self._numbers = itertools.count(1)
        self._runner = asyncio.Runner()
        self._real = self._runner.run(self._connect())

    def play(self, steps: Sequence[Step]) -> tuple[Heard, Heard]:
        """What the real server and the one in memory made of the steps."""
        prefix = f"p{next(self._numbers)}-"
        real = RealSide(self._real, self._namespace, prefix, self._plane)
        memory = MemorySide(MemoryApi(), self._namespace, prefix)
        return self._runner.run(real.play(steps)), self._runner.run(memory.play(steps))

    def close(self) -> None:
        self._runner.run(self._real.close())
        self._runner.close()

    async def _connect(self) -> KubeCluster:
        return KubeCluster(load_config(kubeconfig=str(self._plane.kubeconfig())))


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[Pair]:
    plane.apply(crd.to_yaml())
    namespace = "laws-memory"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    pair = Pair(plane, namespace)
    yield pair
    pair.close()
    # No operator of a later test shall find them.
    plane.request("DELETE", path_of(f"{JOB.api_version}/{JOB.plural}", namespace))


ALL = (POD, SERVICE, JOB)
CREATED = {"phase": "Created", "replicaStatus": {"Coordinator": {"active": 1}}}


def _for_all(name: str, *steps: Callable[[Resource], Step]) -> list[Any]:
    """A row for each resource."""
    return [pytest.param([step(resource) for step in steps], id=f"{name}-{resource.plural}") for resource in ALL]


@pytest.mark.parametrize(
    "steps",
    [
        *_for_all("created-twice", create, create),
        *_for_all("deleted", create, delete),
        *_for_all("deleted-twice", create, delete, delete),
        *_for_all("deleted-and-never-there", delete),
        *_for_all("deleted-in-another-incarnation", create, lambda r: delete(r, uid="wrong")),
        *_for_all("deleted-in-an-earlier-incarnation", create, delete, create, lambda r: delete(r, uid="wrong")),
        *_for_all("created-again", create, delete, create, lambda r: create(r, "b"), delete),
        *_for_all("forced-out", create, lambda r: delete(r, grace=0), create),
        pytest.param([create(POD), bind(), delete(POD)], id="bound-pod-goes-gracefully"),
        pytest.param([create(POD), bind(), delete(POD), delete(POD)], id="bound-pod-deleted-twice"),
        pytest.param([create(POD), bind(), delete(POD), create(POD)], id="name-of-a-terminating-pod-is-taken"),
        pytest.param([create(POD), bind(), delete(POD), delete(POD, uid="wrong")], id="terminating-pod-and-wrong-uid"),
        pytest.param([create(POD), bind(), delete(POD), delete(POD, grace=0), create(POD)], id="kubelet-is-done"),
        pytest.param([create(POD), bind(), report("Running"), delete(POD)], id="running-pod-goes-gracefully"),
        pytest.param([create(POD), bind(), report("Succeeded"), delete(POD)], id="succeeded-pod-goes-at-once"),
        pytest.param([create(POD), bind(), report("Failed"), delete(POD)], id="failed-pod-goes-at-once"),
        pytest.param(
            [create(POD), bind(), delete(POD), report("Succeeded"), delete(POD)], id="terminating-pod-that-ends-stays"
        ),
        pytest.param([create(POD), bind(), report("Running"), report("Running")], id="same-phase-again"),
        pytest.param([report("Running")], id="phase-of-a-missing-pod"),
        pytest.param([create(JOB), status(CREATED)], id="status"),
        pytest.param([create(JOB), status(CREATED), status(CREATED)], id="status-that-changes-nothing"),
        pytest.param([create(JOB), status({})], id="status-of-nothing"),
        pytest.param([create(JOB), status(CREATED), status({"phase": None})], id="null-removes-a-key"),
        pytest.param([create(JOB), status({"phase": None})], id="null-for-a-key-that-is-not-there"),
        pytest.param(
            [create(JOB), status(CREATED), status({"replicaStatus": {"Coordinator": {"active": None}}})],
            id="null-removes-a-key-further-down",
        ),
        pytest.param(
            [create(JOB), status(CREATED), status({"replicaStatus": {"Learner": {"failed": 1}}})],
            id="maps-are-merged",
        ),
        pytest.param([status(CREATED)], id="status-of-a-missing-job"),
        pytest.param([status(CREATED, uid="wrong", version="wrong")], id="status-of-a-missing-job-and-stale"),
        pytest.param([create(JOB), status(CREATED, uid="own", version="own")], id="status-on-the-right-version"),
        pytest.param([create(JOB), status(CREATED, uid="own", version="wrong")], id="status-on-a-stale-version"),
        pytest.param([create(JOB), status(CREATED, uid="wrong", version="wrong")], id="status-on-a-stale-all"),
        # Surprising, but so it is: a uid in a patch of the status is not looked at. The version has to do it alone.
        pytest.param([create(JOB), status(CREATED, uid="wrong", version="own")], id="status-with-another-uid"),
        pytest.param([create(JOB), edit({"spec": {"group": "g"}}, uid="wrong")], id="spec-with-another-uid"),
        pytest.param([create(JOB), edit({"spec": {"group": "g"}}, uid="own")], id="spec-with-the-right-uid"),
        pytest.param([create(JOB), edit({"spec": {"group": "g"}}, version="wrong")], id="spec-on-a-stale-version"),
        pytest.param([create(JOB), edit({"spec": {"group": "g"}})], id="spec-makes-a-generation"),
        pytest.param([create(JOB), edit({"spec": {"group": "g"}}), edit({"spec": {"group": "g"}})], id="same-spec"),
        pytest.param([create(JOB), edit({"metadata": {"labels": {"a": "b"}}})], id="labels-make-no-generation"),
        pytest.param([create(JOB), edit({"spec": {"group": "g"}, "status": CREATED})], id="status-in-a-patch-of-spec"),
        pytest.param(
            [create(JOB), Step("patch", JOB, body={"spec": {"group": "g"}, "status": CREATED}, subresource="status")],
            id="spec-in-a-patch-of-status",
        ),
        pytest.param(
            [create(JOB), status(CREATED), create(POD), edit({"spec": {"group": "g"}}), delete(POD), delete(JOB)],
            id="versions-are-of-the-whole-server",
        ),
    ],
)
def test_the_memory_api_answers_like_the_real_one(pair: Pair, steps: list[Step]) -> None:
    real, memory = pair.play(steps)

    assert memory == real


names = st.sampled_from(["a", "b"])
whose = st.sampled_from(["own", "wrong"])
steps = st.one_of(
    st.builds(create, st.sampled_from(ALL), names),
    st.builds(delete, st.sampled_from(ALL), names, uid=whose, grace=st.sampled_from([None, 0])),
    st.builds(report, st.sampled_from(["Running", "Succeeded", "Failed"]), names),
    st.builds(
        status,
        st.fixed_dictionaries({"phase": st.sampled_from(["Created", "Running", None])}),
        names,
        uid=whose,
        version=st.sampled_from(["own", "wrong", ""]),
    ),
    st.builds(edit, st.fixed_dictionaries({"spec": st.fixed_dictionaries({"group": st.sampled_from("xy")})}), names),
)
# A pod is bound once, right after its creation: to bind one that has a node, or none, is a mistake of a scheduler.
bound = st.builds(lambda name: [create(POD, name), bind(name)], names)


@settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(head=st.lists(bound, max_size=1), tail=st.lists(steps, min_size=3, max_size=10))
def test_no_sequence_of_requests_tells_the_two_apart(pair: Pair, head: list[list[Step]], tail: list[Step]) -> None:
    real, memory = pair.play([*itertools.chain(*head), *tail])

    assert memory == real
