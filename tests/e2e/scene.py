"""One job of each kind, each in a namespace of its own, and what can be seen of them."""

import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from testbed.cluster.cluster import Cluster
from tests.build import Json
from tests.e2e.kinds import KINDS, Kind

STEADY_TIMEOUT = 180.0
POLL = 0.3


class Pod(NamedTuple):
    """A pod that runs, and is ready."""

    name: str
    node: str
    restarts: int


class Scene:
    """The namespaces are `<story>-<kind>`, so every pod in one belongs to its job."""

    def __init__(self, cluster: Cluster, story: str) -> None:
        self.cluster = cluster
        self.story = story

    def namespace(self, kind: Kind) -> str:
        """The namespace of a kind's job."""
        return f"{self.story}-{re.sub('[^a-z]+', '-', kind.row.name.lower()).strip('-')}"

    def create(self, **options: Any) -> None:
        """Create a namespace and a job for each kind."""
        self.create_namespaces()
        self.create_jobs(**options)

    def create_namespaces(self) -> None:
        """Without jobs."""
        names = [{"name": self.namespace(kind)} for kind in KINDS]
        self._create([{"apiVersion": "v1", "kind": "Namespace", "metadata": name} for name in names])

    def create_jobs(self, **options: Any) -> None:
        """A job for each kind, where there are namespaces."""
        self._create([kind.manifest(self.namespace(kind), **options) for kind in KINDS])

    def _create(self, bodies: list[Json]) -> None:
        self.cluster.kubectl("create", "--filename=-", stdin="\n".join(map(json.dumps, bodies)))

    def remove(self) -> None:
        """Delete the namespaces; nobody waits for it."""
        names = [self.namespace(kind) for kind in KINDS]
        self.cluster.kubectl("delete", "namespace", "--ignore-not-found", "--wait=false", *names)

    def job(self, kind: Kind) -> Json:
        """The job of a kind."""
        body: Json = self.cluster.control.get(kind.path(self.namespace(kind)))
        return body

    def pods(self) -> dict[str, dict[str, Pod]]:
        """For each kind, by uid, the pods that run and are ready and are not being deleted."""
        return {
            name: {body["metadata"]["uid"]: _pod(body) for body in bodies if _is_ready(body)}
            for name, bodies in self.bodies().items()
        }

    def bodies(self) -> dict[str, list[Json]]:
        """For each kind, all pods that there are."""
        found: dict[str, list[Json]] = {kind.name: [] for kind in KINDS}
        names = {self.namespace(kind): kind.name for kind in KINDS}
        for body in self.cluster.control.get("/api/v1/pods")["items"]:
            if name := names.get(body["metadata"]["namespace"]):
                found[name].append(body)
        return found

    def created(self) -> dict[str, datetime]:
        """For each kind, when the last of its pods was created."""
        return {
            name: max(datetime.fromisoformat(body["metadata"]["creationTimestamp"]) for body in bodies)
            for name, bodies in self.bodies().items()
        }

    def wait_steady(self) -> dict[str, dict[str, Pod]]:
        """Wait until every job has all of its pods; answers them."""
        took = self.times(lambda kind, pods: len(pods) == kind.size, STEADY_TIMEOUT)
        pods = self.pods()
        missing = [f"{kind.name} has {list(pods[kind.name].values())}" for kind in KINDS if kind.name not in took]
        assert not missing, f"not all pods run after {STEADY_TIMEOUT:.0f} s: {'; '.join(missing)}"
        return pods

    def times(self, is_so: Callable[[Kind, dict[str, Pod]], bool], timeout: float) -> dict[str, float]:
        """For each kind, how many seconds it took until it was so; a kind that took too long is missing."""
        started = time.monotonic()
        took: dict[str, float] = {}
        while len(took) < len(KINDS) and time.monotonic() - started < timeout:
            pods = self.pods()
            for kind in KINDS:
                if kind.name not in took and is_so(kind, pods[kind.name]):
                    took[kind.name] = time.monotonic() - started
            time.sleep(POLL)
        return took


def _pod(body: Json) -> Pod:
    restarts = sum(each["restartCount"] for each in body["status"]["containerStatuses"])
    return Pod(body["metadata"]["name"], body["spec"]["nodeName"], restarts)


def _is_ready(body: Json) -> bool:
    conditions = body["status"].get("conditions", ())
    is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
    return is_ready and "deletionTimestamp" not in body["metadata"]
