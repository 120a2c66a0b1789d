"""One job of each kind, each in a namespace of its own, and what can be seen of them."""

import json
import re
import time
from collections.abc import Callable
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
        bodies = []
        for kind in KINDS:
            name = self.namespace(kind)
            bodies.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            bodies.append(kind.manifest(name, **options))
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
        listed = self.cluster.control.get("/api/v1/pods")["items"]
        found: dict[str, dict[str, Pod]] = {kind.name: {} for kind in KINDS}
        names = {self.namespace(kind): kind.name for kind in KINDS}
        for body in listed:
            name = names.get(body["metadata"]["namespace"])
            if name is not None and _is_ready(body):
                restarts = sum(each["restartCount"] for each in body["status"]["containerStatuses"])
                pod = Pod(body["metadata"]["name"], body["spec"]["nodeName"], restarts)
                found[name][body["metadata"]["uid"]] = pod
        return found

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


def _is_ready(body: Json) -> bool:
    conditions = body["status"].get("conditions", ())
    is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
    return is_ready and "deletionTimestamp" not in body["metadata"]
