"""Jobs that other operators left running on real nodes, then our installation.

What each of these operators leaves in the API was recorded (tests/takeover/objects). Here pods are real: their
programs are exchanged for one of this cluster, and their nodes for those that there are.
"""

from collections.abc import Iterator

import pytest

from testbed.cluster.cluster import Cluster
from testbed.operator import REPOSITORY
from tests.build import Json
from tests.e2e.kinds import IMAGE, LASTS, pod_specs
from tests.e2e.report import Report
from tests.takeover.load import items_of, rank, renewed
from trainmaster.core.template import MANAGED_BY

RUNNING = (
    "di-v0.2.2/parallel/running",
    "di-v1.1.3/tasks/running",
    "kubeflow-1.7/train/running",
    "aitrainingjob-148db3b/ps-trainer/running",
    "mxjob-mlkube-c377703/dist/running",
)
ENDED = (
    "di-v0.2.2/parallel/succeeded",
    "di-v1.1.3/tasks/succeeded",
    "kubeflow-1.7/train/succeeded",
    "aitrainingjob-148db3b/ps-trainer/succeeded",
)
PLURALS = {"Job": "jobs", "Pod": "pods", "Service": "services"}
TIMEOUT = 120.0


class Left:
    """A job and its children in a namespace of their own, stored anew."""

    def __init__(self, cluster: Cluster, path: str) -> None:
        self._control = cluster.control
        self.path = path
        self.namespace = "left-" + "-".join(path.replace(".", "-").split("/")[::2])
        self._nodes = sorted(cluster.nodes)
        self._uids: dict[str, str] = {}
        job, *children = (body for body in items_of(path) if body["kind"] != "Event")
        self._job = self._path(job, job["metadata"]["name"])
        self._control.send("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self._store(job)
        has_jobs = any(body["kind"] == "Job" for body in children)
        for child in sorted(children, key=rank):
            if not (has_jobs and child["kind"] == "Pod"):  # the Job controller creates them
                self._store(child)
        self.before = self.job

    @property
    def job(self) -> Json:
        body: Json = self._control.get(self._job)
        return body

    def objects(self, kind: str) -> dict[str, Json]:
        """Its children of a kind, by uid."""
        version = "/apis/batch/v1" if kind == "Job" else "/api/v1"
        listed = self._control.get(f"{version}/namespaces/{self.namespace}/{PLURALS[kind]}")["items"]
        return {body["metadata"]["uid"]: body for body in listed}

    def runs(self) -> bool:
        """Do all of its pods run that ran when it was recorded?"""
        recorded = [body for body in items_of(self.path) if body["kind"] == "Pod"]
        phases = [pod["status"]["phase"] for pod in self.objects("Pod").values()]
        return phases.count("Running") == [body["status"]["phase"] for body in recorded].count("Running")

    def _path(self, body: Json, name: str = "") -> str:
        version = body["apiVersion"]
        prefix = "/apis" if "/" in version else "/api"
        plural = f"{body['kind'].lower()}s"
        return f"{prefix}/{version}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def _store(self, body: Json) -> None:
        name = body["metadata"]["name"]
        stored = self._control.send("POST", self._path(body), self._local(renewed(body, self._uids)))
        self._uids[body["metadata"]["uid"]] = stored["metadata"]["uid"]
        if body["kind"] in ("Service", "Job") or self._is_real(body):
            return
        stored["status"] = body["status"]
        self._control.send("PUT", f"{self._path(body, name)}/status", stored)

    def _is_real(self, body: Json) -> bool:
        """Is it a pod whose status a kubelet writes?"""
        return bool(body["kind"] == "Pod" and body["status"]["phase"] == "Running")

    def _local(self, body: Json) -> Json:
        for pod in pod_specs(body["spec"] if body["kind"] != "Pod" else body):
            pod["terminationGracePeriodSeconds"] = 1
            for container in pod["containers"]:
                container |= {"image": IMAGE, "imagePullPolicy": "Never", "command": list(LASTS), "resources": {}}
        if body["kind"] == "Pod":
            # A pod that has ended is on no node: a kubelet would start it.
            node = body["spec"].pop("nodeName").replace("-", "")
            body["spec"] |= {"nodeName": node} if self._is_real(body) else {"schedulerName": "none"}
        return body


def is_managed(body: Json) -> bool:
    labels: dict[str, str] = body["metadata"].get("labels", {})
    return MANAGED_BY.items() <= labels.items()


def is_running(job: Json) -> bool:
    status = job["status"]
    said = any((each["type"], each["status"]) == ("Running", "True") for each in status.get("conditions", ()))
    return bool(status.get("observedGeneration")) and (status.get("phase") == "Running" or said)


@pytest.fixture
def left(cluster: Cluster) -> Iterator[dict[str, Left]]:
    """Jobs of five operators, as they left them; none of ours is there."""
    assert not cluster.control.get("/apis/apps/v1/namespaces/trainmaster-system/deployments")["items"]
    cluster.kubectl("apply", "--server-side", f"--filename={REPOSITORY / 'deploy' / 'crds.yaml'}")
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")
    found = {path: Left(cluster, path) for path in (*RUNNING, *ENDED)}
    cluster.wait("their pods run", lambda: all(each.runs() for each in found.values()), TIMEOUT)
    yield found
    cluster.kubectl("delete", "namespace", *(each.namespace for each in found.values()), "--timeout=120s")


def test_jobs_of_other_operators_go_on_with_their_pods(
    left: dict[str, Left], written: Report, request: pytest.FixtureRequest
) -> None:
    before = {path: {kind: job.objects(kind) for kind in PLURALS} for path, job in left.items()}

    cluster: Cluster = request.getfixturevalue("installed")

    def is_taken_over() -> bool:
        return all(is_running(left[path].job) for path in RUNNING) and all(
            map(
                is_managed, (body for path in RUNNING for kind in PLURALS for body in left[path].objects(kind).values())
            )
        )

    took = cluster.wait("every job is taken over", is_taken_over, TIMEOUT)
    for path, job in left.items():
        for kind in PLURALS:
            then, now = (
                sorted(map(name_of, found)) for found in (before[path][kind].values(), job.objects(kind).values())
            )
            assert now == then, f"{path}: other {kind}s"
        restarts = [each["restartCount"] for pod in job.objects("Pod").values() for each in statuses(pod)]
        assert not any(restarts), path
    for path in ENDED:
        # A word that the other operator did not have may be added.
        assert result_of(left[path].before).items() <= result_of(left[path].job).items(), path
    written.fact(
        f"{len(RUNNING)} running jobs of other operators, until all are taken over with the pods they have",
        f"{took:.1f} s",
    )


def name_of(body: Json) -> tuple[str, str]:
    """With its uid."""
    return body["metadata"]["name"], body["metadata"]["uid"]


def statuses(pod: Json) -> list[Json]:
    found: list[Json] = pod["status"].get("containerStatuses", [])
    return found


def result_of(job: Json) -> Json:
    """What an ended job says of its end."""
    status = job["status"]
    ends = [each for each in status.get("conditions", ()) if each["type"] in ("Succeeded", "Succeed", "Failed")]
    said = {word: status[word] for word in ("phase", "completionTime", "completionTimestamp") if word in status}
    return {"conditions": ends, **said}
