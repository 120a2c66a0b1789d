"""One namespace in which the test plays everybody but the operator: the user, the scheduler, the kubelet.

    job = await scene.create(aitrainingjob("mnist"))
    await job.start()
    await scene.end("mnist-trainer-0", 137)
    await job.reach("Failed")

Nothing here asks the API server again and again: `Chronicle` watches, and every wait is for its next event.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from testbed.admin import Admin, path_of
from testbed.answer import Refused
from testbed.plane import ControlPlane
from tests.build import child_name, replicas_of
from tests.faults.world import BATCH_JOBS, PATIENCE, Object, World, is_deleting
from tests.manifests.build import Manifest, agconfig, aitrainingjob, resource_of
from trainmaster.settings import SYSTEM_NAMESPACE

T = TypeVar("T")

NODE = "n1"
GPU = "nvidia.com/gpu"
AGGREGATORCONFIGS = "nervex.sensetime.com/v1alpha1/aggregatorconfigs"
ENDED = frozenset({"Succeed", "Succeeded", "Failed", "Done"})


def uid_of(body: Object) -> str:
    return str(body["metadata"]["uid"])


def version_of(body: Object) -> int:
    return int(body["metadata"]["resourceVersion"])


class Chronicle(World):
    """The world, and how every job in it came to be what it is."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self._told: dict[tuple[str, str, str], list[Object]] = {}

    def told(self, resource: str, namespace: str, name: str) -> list[Object]:
        """Every version of an object, in order."""
        return self._told.get((resource, namespace, name), [])

    def _take(self, resource: str, kind: str, found: Object) -> None:
        meta = found["metadata"]
        if kind != "DELETED":
            self._told.setdefault((resource, meta["namespace"], meta["name"]), []).append(found)
        super()._take(resource, kind, found)


class Scene:
    """A namespace, and those who act in it."""

    def __init__(self, admin: Admin, world: Chronicle, namespace: str) -> None:
        self.admin = admin
        self.world = world
        self.namespace = namespace
        self.slow_to_end: set[str] = set()
        """Names of the deleted pods that the kubelet leaves in their grace period."""
        self._probes = itertools.count(1)

    # --- the user ---

    async def create(self, manifest: Manifest) -> "Job":
        stored = await self.admin.create(resource_of(manifest), manifest, self.namespace)
        return Job(self, stored)

    async def settled(self) -> None:
        """A job that is made now gets its pod when everything that was due before is at least under way."""
        job = await self.create(aitrainingjob(f"probe-{next(self._probes)}"))
        await job.pods_are_there()

    # --- the scheduler and the kubelet ---

    async def bind(self, *pods: str) -> None:
        await asyncio.gather(*(self.admin.bind(self.namespace, pod, NODE) for pod in pods))

    async def report(self, phase: str, *pods: str) -> None:
        """The pods are in this phase now, on a node."""
        await asyncio.gather(*(self.admin.set_pod(self.namespace, pod, phase=phase) for pod in pods))

    async def end(self, pod: str, code: int) -> None:
        """The containers of a pod have ended with this exit code."""
        containers = [code] * len(self.pods()[pod]["spec"]["containers"])
        phase = "Failed" if code else "Succeeded"
        await self.admin.set_pod(self.namespace, pod, phase=phase, containers=containers)

    async def let_go(self, *pods: str) -> None:
        """What is left of these pods is gone."""
        for pod in pods:
            with suppress(Refused):  # it went by itself
                await self.admin.delete("pods", self.namespace, pod, grace=0)

    @asynccontextmanager
    async def kubelet(self) -> AsyncIterator[None]:
        """Meanwhile pods that are to go, go."""
        working = asyncio.ensure_future(self._finish_deletions())
        try:
            yield
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _finish_deletions(self) -> None:
        done: set[str] = set()

        def leaving() -> list[Object]:
            pods = self.pods().values()
            ending = [pod for pod in pods if is_deleting(pod) and pod["metadata"]["name"] not in self.slow_to_end]
            return [pod for pod in ending if pod["metadata"]["uid"] not in done]

        while True:
            for pod in await self.until(leaving, "a pod is to go"):
                done.add(uid := pod["metadata"]["uid"])
                with suppress(Refused):  # it went by itself, and its successor may have the name already
                    await self.admin.delete("pods", self.namespace, pod["metadata"]["name"], grace=0, uid=uid)

    # --- looking ---

    async def outcome(self, playing: Awaitable[T]) -> T | str:
        """What a play comes to, or why it does not: of many that are played side by side, none must hide the others."""
        try:
            return await asyncio.wait_for(playing, PATIENCE)
        except TimeoutError:
            return f"not over after {PATIENCE:.0f} s; {self.world.describe(self.namespace)}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    async def catch_up(self) -> None:
        """Until the watch of pods shows all that is there now: it may be behind that of jobs."""
        before = self.pods()
        now = {uid_of(pod): pod for pod in await self.admin.list("pods", self.namespace)}
        gone = {uid_of(pod) for pod in before.values()} - now.keys()

        def is_shown(pod: Object) -> bool:
            told = self.world.told("pods", self.namespace, pod["metadata"]["name"])
            return any(uid_of(each) == uid_of(pod) and version_of(each) >= version_of(pod) for each in told)

        await self.until(
            lambda: all(map(is_shown, now.values())) and gone.isdisjoint(map(uid_of, self.pods().values())),
            "the watch has caught up",
        )

    async def until(self, is_met: Callable[[], T], what: str, *, timeout: float = PATIENCE) -> T:
        return await self.world.until(self.namespace, is_met, what, timeout=timeout)

    def pods(self) -> dict[str, Object]:
        return self.world.all("pods", self.namespace)

    def services(self) -> dict[str, Object]:
        return self.world.all("services", self.namespace)

    def incarnations(self, resource: str) -> dict[str, int]:
        """How many objects there have been, by name."""
        return self.world.incarnations(resource, self.namespace)


class Job:
    """One incarnation of a job, as the watch shows it."""

    def __init__(self, scene: Scene, stored: Object) -> None:
        self.scene = scene
        self.name: str = stored["metadata"]["name"]
        self.uid: str = stored["metadata"]["uid"]
        self.resource = resource_of(stored)
        self._created = stored

    @property
    def stored(self) -> Object:
        return self.scene.world.find(self.resource, self.scene.namespace, self.name)

    @property
    def status(self) -> Object:
        found: Object = self.stored.get("status", {})
        return found

    @property
    def phase(self) -> str:
        phase: str = self.status.get("phase", "")
        return phase

    def condition(self, type_: str) -> Object:
        """A standard condition; empty when there is none."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == type_), {})

    @property
    def slots(self) -> list[str]:
        """The names of the pods that its spec asks for; its services are called the same. Pods of batch Jobs have
        names that nobody knows before: as long as one is not there, its place stands in for it."""
        job = self.stored or self._created
        if job["kind"] == "MxJob":
            pods = {place_of(pod): name for name, pod in self.children("pods").items() if not is_deleting(pod)}
            return [pods.get(place, place) for place in places_of(job)]
        return [child_name(job, role, index) for role, index in replicas_of(job)]

    def children(self, resource: str) -> dict[str, Object]:
        """Its pods, services or batch Jobs, by name; the pods of its batch Jobs are its own."""
        found = self.scene.world.all(resource, self.scene.namespace)
        batch = self.scene.world.all(BATCH_JOBS, self.scene.namespace).values() if resource == "pods" else ()
        owners = {self.uid, *(job["metadata"]["uid"] for job in batch if owner_of(job) == self.uid)}
        return {name: child for name, child in found.items() if owner_of(child) in owners}

    # --- its history ---

    @property
    def statuses(self) -> list[Object]:
        """Every status that was stored."""
        told = self.scene.world.told(self.resource, self.scene.namespace, self.name)
        found = [version.get("status", {}) for version in told if version["metadata"]["uid"] == self.uid]
        return [status for before, status in itertools.pairwise([{}, *found]) if status != before]

    @property
    def phases(self) -> list[str]:
        """The phases that it went through."""
        return [phase for phase, _ in itertools.groupby(status.get("phase", "") for status in self.statuses)]

    # --- waiting and acting ---

    async def until(self, is_met: Callable[[], T], what: str) -> T:
        return await self.scene.until(is_met, f"{self.name}: {what}")

    async def reach(self, *phases: str) -> None:
        """Wait for one of these phases; an end that nobody asked for is noticed at once."""
        await self.until(lambda: self.phase in {*phases, *ENDED}, f"it is {' or '.join(phases)}")
        assert self.phase in phases, f"{self.name} is {self.phase}: {self.status}"

    async def says(self, type_: str, status: str) -> str:
        """Wait for a condition, and answer its message."""
        await self.until(lambda: self.condition(type_).get("status") == status, f"{type_} is {status}")
        message: str = self.condition(type_).get("message", "")
        return message

    async def pods_are_there(self) -> None:
        """And the services by which they find each other: each of the two watches has its own pace."""
        await self.until(lambda: sorted(self.children("pods")) == sorted(self.slots), f"its pods are {self.slots}")
        if self._created["kind"] != "MxJob":
            addressed = {f"di-{self.name}"} if "tasks" in self._created["spec"] else {*self.slots}
            await self.until(lambda: self.children("services").keys() >= addressed, "they have services")

    @property
    def unbound(self) -> list[str]:
        return [name for name, pod in self.children("pods").items() if "nodeName" not in pod["spec"]]

    async def comes_again(self) -> None:
        """Of a job that says that it restarts: until its pods are those of the new attempt."""
        await self.scene.catch_up()

        def is_there() -> bool:
            pods = self.children("pods")
            return sorted(pods) == sorted(self.slots) and not any(map(is_deleting, pods.values()))

        await self.until(is_there, f"its pods are {self.slots}, of the new attempt")

    async def runs_again(self) -> None:
        await self.comes_again()
        await self.scene.bind(*self.unbound)
        await self.scene.report("Running", *self.slots)
        await self.reach("Running")

    async def childless(self) -> None:
        await self.until(lambda: not self.children("pods") and not self.children("services"), "nothing is left of it")

    async def start(self) -> None:
        """Until all of its pods run, and it says so."""
        await self.pods_are_there()
        await self.scene.report("Running", *self.slots)
        await self.reach("Running")

    async def live(self) -> None:
        """Its whole life: the pods run and succeed, but for those that only end with the job."""
        await self.start()
        async with self.scene.kubelet():
            for name, pod in self.children("pods").items():
                if not self._is_serving(pod):
                    await self.scene.end(name, 0)
            await self.reach(*ENDED)

    async def edit(self, spec: Object) -> None:
        """The user merges a change into the spec, and the watch shows it: what the job's slots are depends on it."""
        stored = await self.scene.admin.patch(self.resource, self.scene.namespace, self.name, {"spec": spec})
        await self.until(lambda: not self.stored or version_of(self.stored) >= version_of(stored), "it is edited")

    async def began_an_hour_ago(self) -> None:
        """By its own account: how long it really took to come here is of no account for what follows."""
        began = ago(hours=1)
        await self.scene.admin.set_status(self.resource, self.scene.namespace, self.name, {"startTime": began})
        await self.until(lambda: self.status["startTime"] == began, "it began an hour ago")

    async def delete(self) -> None:
        await self.scene.admin.delete(self.resource, self.scene.namespace, self.name)
        await self.until(lambda: self.stored.get("metadata", {}).get("uid") != self.uid, "it is deleted")

    def _is_serving(self, pod: Object) -> bool:
        """A parameter server, whose role is never complete, or an aggregator. MXJobs end with their scheduler."""
        if pod["metadata"]["labels"].get("replica-type") == "aggregator":
            return True
        if self._created["kind"] == "MXJob":
            return bool(pod["metadata"]["labels"]["replica-type"] != "scheduler")
        role = pod["metadata"]["labels"].get("TrainingJobReplicaName")
        specs = self._created["spec"].get("replicaSpecs", {})
        return role in specs and specs[role].get("completePolicy") == "None"


def ago(**units: int) -> str:
    """The moment that was this long ago, as objects tell it."""
    return (datetime.now(UTC) - timedelta(**units)).strftime("%Y-%m-%dT%H:%M:%SZ")


def ready(status: str = "True", message: str = "", *, seconds_ago: int = 60) -> Object:
    """A node's condition."""
    since = ago(seconds=seconds_ago)
    return {"type": "Ready", "status": status, "message": message, "reason": "Test", "lastTransitionTime": since}


async def add_node(admin: Admin, name: str) -> None:
    """A node that is well, with room for all that a test puts there; no scheduler takes it for its pods."""
    await admin.create("nodes", {"metadata": {"name": name}, "spec": {"unschedulable": True}})
    room = {"cpu": "8", "pods": "100", GPU: "8"}
    await admin.set_status("nodes", None, name, {"conditions": [ready()], "capacity": room, "allocatable": room})


def give_node(plane: ControlPlane) -> None:
    """The node of all pods of which a test says nothing else."""

    async def give() -> None:
        async with Admin.of(plane) as admin:
            await add_node(admin, NODE)

    asyncio.run(give())


def give_aggregators(plane: ControlPlane) -> None:
    """What NerveXJobs have the template of their aggregator from, where operators look for it by themselves; whatever
    was there before."""
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
    configs = path_of(AGGREGATORCONFIGS, SYSTEM_NAMESPACE)
    for method, path, body in (
        ("POST", path_of("namespaces"), place),
        ("DELETE", f"{configs}/aggregator-config", None),
        ("POST", configs, agconfig(SYSTEM_NAMESPACE)),
    ):
        try:
            plane.request(method, path, body)
        except Refused as refused:
            if refused.code not in (404, 409):
                raise


def places_of(job: Object) -> list[str]:
    """The replicas of an MxJob: ``worker-0``."""
    return [
        f"{spec.get('mxReplicaType', 'WORKER').lower()}-{index}"
        for spec in job["spec"]["replicaSpecs"]
        for index in range(spec.get("replicas", 1))
    ]


def place_of(pod: Object) -> str:
    """Which replica of an MxJob a pod is."""
    labels = pod["metadata"]["labels"]
    return f"{labels['job_type'].lower()}-{labels['task_index']}"


def owner_of(child: Object) -> str:
    """The uid of the controller of an object."""
    owners = child["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")
