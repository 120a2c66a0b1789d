"""The life of one job from its creation until nothing is left of it, with the test as its user and its kubelet.

Each step waits for the phase that the step before leads to: however late or often the operator gets there, the
history in the final status is the same, and can be compared.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp

from testbed.admin import Admin
from testbed.answer import Refused
from tests.faults.world import AITRAININGJOBS, DIJOBS, PATIENCE, PAUSE, Object, World, is_deleting

NAME = "job"
NODE = "n1"

# What an API server says while it starts.
PASSING = (403, 404, 429, 500, 503)

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass(frozen=True, eq=False)
class Subject:
    """One kind of job, and what its life looks like from outside."""

    word: str
    resource: str
    spec: Object
    pods: tuple[str, ...]
    succeeding: tuple[str, ...]
    """The pods that end; the job ends with them."""
    made: str
    """The phase once all pods are there."""
    bound: str
    """The phase once all pods have a node."""
    ended: str

    @property
    def body(self) -> Object:
        group, version, _ = self.resource.split("/")
        kind = {DIJOBS: "DIJob", AITRAININGJOBS: "AITrainingJob"}[self.resource]
        return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": NAME}, "spec": self.spec}


def _template(container: str, port: str) -> Object:
    ports = [{"name": port, "containerPort": 4444}]
    return {"spec": {"containers": [{"name": container, "image": "x", "ports": ports}]}}


DIJOB = Subject(
    word="dijob",
    resource=DIJOBS,
    spec={"cleanPodPolicy": "All", "coordinator": {"template": _template("di-container", "di-port")}},
    pods=("job-coordinator",),
    succeeding=("job-coordinator",),
    made="Created",
    bound="Created",
    ended="Succeeded",
)

# The trainer ends the job; the parameter server runs until it is stopped.
AITRAININGJOB = Subject(
    word="aitrainingjob",
    resource=AITRAININGJOBS,
    spec={
        "completePolicy": "Any",
        "replicaSpecs": {
            "ps": {"completePolicy": "None", "template": _template("aitj-ps", "aitj-port")},
            "trainer": {"template": _template("aitj-trainer", "aitj-port")},
        },
    },
    pods=("job-ps-0", "job-trainer-0"),
    succeeding=("job-trainer-0",),
    made="Pending",
    bound="Creating",
    ended="Succeed",
)

SUBJECTS = (DIJOB, AITRAININGJOB)


class Life:
    """One job in a namespace of its own."""

    def __init__(self, subject: Subject, namespace: str, admin: Admin, world: World) -> None:
        self.subject = subject
        self.namespace = namespace
        self._admin = admin
        self._world = world

    async def live(self) -> None:
        """All of it."""
        await self.create()
        await self.start()
        await self.end()

    async def create(self) -> None:
        """The job, and no more."""
        await self._insist(
            lambda: self._admin.create(self.subject.resource, self.subject.body, self.namespace), done=409
        )

    async def start(self) -> None:
        """Until all pods run and the job says so."""
        await self.until(self.has_all_pods, "all pods are there")
        await self.reach(self.subject.made)
        for name in self.subject.pods:
            await self._insist(partial(self._admin.bind, self.namespace, name, NODE), done=409)
        await self.reach(self.subject.bound)
        await self._report(self.subject.pods, "Running")
        await self.reach("Running")

    async def end(self) -> None:
        """Until the pods have succeeded, the job has ended, and its pods and services are gone."""
        await self._report(self.subject.succeeding, "Succeeded")
        kubelet = asyncio.ensure_future(self._finish_deletions())
        try:
            await self.reach(self.subject.ended)
            await self.until(self.has_ended, "nothing is left of the job")
            await kubelet
        finally:
            kubelet.cancel()
            await asyncio.gather(kubelet, return_exceptions=True)

    async def reach(self, phase: str) -> None:
        await self.until(lambda: self.status.get("phase") == phase, f"the job is {phase}")

    async def until(self, is_met: Callable[[], object], what: str, *, timeout: float = PATIENCE) -> None:
        await self._world.until(self.namespace, is_met, what, timeout=timeout)

    def has_all_pods(self) -> bool:
        return self._world.all("pods", self.namespace).keys() >= set(self.subject.pods)

    def has_made_all_pods(self) -> bool:
        """They may be gone again."""
        return self.incarnations["pods"].keys() >= set(self.subject.pods)

    def has_ended(self) -> bool:
        return self.status.get("phase") == self.subject.ended and not self.leftovers

    def assert_ended_right(self) -> None:
        """In the right phase, with nothing left, and everything was made exactly once."""
        assert self.status["phase"] == self.subject.ended
        assert not self.leftovers
        assert self.incarnations == self.once_each

    @property
    def status(self) -> Object:
        """The job's status as it is now."""
        found: Object = self._world.find(self.subject.resource, self.namespace, NAME).get("status", {})
        return found

    @property
    def first_times(self) -> set[str]:
        """When the job entered its first phase, according to each status that it has had: always the same."""
        statuses = self._world.statuses(self.subject.resource, self.namespace, NAME)
        conditions = [entry for status in statuses for entry in status.get("conditions", ())]
        return {entry["lastTransitionTime"] for entry in conditions if entry["type"] == self.subject.made}

    @property
    def leftovers(self) -> list[str]:
        """Pods and services that are there."""
        return [f"{kind} {name}" for kind in ("pods", "services") for name in self._world.all(kind, self.namespace)]

    @property
    def incarnations(self) -> dict[str, dict[str, int]]:
        """How many pods and services of each name there have been."""
        return {kind: self._world.incarnations(kind, self.namespace) for kind in ("pods", "services")}

    @property
    def once_each(self) -> dict[str, dict[str, int]]:
        """The incarnations of a life in which nothing was forgotten and nothing was made twice."""
        return {kind: dict.fromkeys(sorted(self.subject.pods), 1) for kind in ("pods", "services")}

    async def _report(self, pods: Sequence[str], phase: str) -> None:
        """As little as possible, because hundreds of jobs do: `Admin.set_pod` would read each pod first."""
        for name in pods:
            status = {"phase": phase}
            await self._insist(partial(self._admin.set_status, "pods", self.namespace, name, status))

    async def _finish_deletions(self) -> None:
        """What a kubelet does with a pod that is to go: it lets it go. Until nothing is left."""
        finished: set[str] = set()

        def leaving() -> list[Object]:
            pods = self._world.all("pods", self.namespace).values()
            return [pod for pod in pods if is_deleting(pod) and pod["metadata"]["uid"] not in finished]

        while not self.has_ended():
            await self.until(lambda: leaving() or self.has_ended(), "a pod is to go")
            for pod in leaving():
                finished.add(pod["metadata"]["uid"])
                name = pod["metadata"]["name"]
                await self._insist(partial(self._admin.delete, "pods", self.namespace, name, grace=0), done=404)

    @staticmethod
    async def _insist(request: Callable[[], Awaitable[object]], *, done: int = 0) -> None:
        """Ask until it is done, also past an API server that is away; `done` says that it was done already."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                await request()
            except Refused as refused:
                if refused.code == done:
                    return
                if refused.code not in PASSING or time.monotonic() > deadline:
                    raise
            except (aiohttp.ClientError, OSError):
                if time.monotonic() > deadline:
                    raise
            else:
                return
            await asyncio.sleep(PAUSE)


def timeless(value: Any) -> Any:
    """The same without the times in it."""
    match value:
        case dict():
            return {key: timeless(inner) for key, inner in value.items()}
        case list():
            return [timeless(inner) for inner in value]
        case str() if _TIME.fullmatch(value):
            return "<time>"
    return value
