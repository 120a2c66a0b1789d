"""The walk-throughs of the founding documents, command by command, with real programs in real pods."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cluster.cluster import Cluster
from testbed.operator import REPOSITORY
from tests.build import Json
from tests.e2e.report import Report

EXAMPLES = REPOSITORY / "examples"
TRAINING_TIMEOUT = 420.0


def manifest(name: str, namespace: str) -> str:
    """An example in a namespace, with one change: its image is on the nodes, and no registry has it."""

    def local(body: Any) -> Any:
        if isinstance(body, dict):
            if "image" in body:
                body["imagePullPolicy"] = "Never"
            for each in body.values():
                local(each)
        elif isinstance(body, list):
            for each in body:
                local(each)
        return body

    bodies = [local(body) for body in yaml.safe_load_all((EXAMPLES / name).read_text())]
    for body in bodies:
        body["metadata"].setdefault("namespace", namespace)
    return yaml.safe_dump_all(bodies)


class Walk:
    """Somebody types kubectl in a namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        cluster.kubectl("create", "namespace", namespace)

    def kubectl(self, *words: str | Path, stdin: str = "") -> str:
        return self._cluster.kubectl(f"--namespace={self.namespace}", *words, stdin=stdin)

    def create(self, example: str) -> str:
        return self._cluster.kubectl("apply", "--filename=-", stdin=manifest(example, self.namespace))

    def get(self, resource: str, *name: str) -> Json:
        body: Json = json.loads(self.kubectl("get", resource, *name, "--output=json"))
        return body

    def pods(self) -> dict[str, str]:
        return {each["metadata"]["name"]: each["status"]["phase"] for each in self.get("pods")["items"]}

    def wait(self, what: str, pattern: str, count: int, timeout: float = 120) -> list[str]:
        """Wait until so many pods with such a name run; answers their names."""

        def found() -> list[str]:
            return [name for name, phase in self.pods().items() if re.fullmatch(pattern, name) and phase == "Running"]

        self._cluster.wait(what, lambda: len(found()) >= count, timeout)
        return found()

    def wait_end(self, resource: str, name: str) -> str:
        """Wait for the end of a job; answers how it ended."""
        ends = {"Succeed", "Succeeded", "Failed", "NodeFail", "Timeout", "Done"}

        def end() -> str:
            status = self.get(resource, name).get("status", {})
            kubeflow = [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]
            said = [status.get("phase", ""), *kubeflow]
            return next((str(status.get("state", word)) for word in said if word in ends), "")

        self._cluster.wait(f"{resource} {name} ends", lambda: bool(end()), TRAINING_TIMEOUT)
        return end()


@pytest.fixture
def walk(installed: Cluster, request: pytest.FixtureRequest) -> Any:
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    yield Walk(installed, name)
    installed.kubectl("delete", "namespace", name, "--timeout=120s")


@pytest.mark.parametrize(
    ("example", "resource", "job", "has_aggregator"),
    [
        ("dijob-mock.yaml", "dijob", "dijob-example-1", False),
        ("nervexjob-mock.yaml", "nervexjob", "nervexjob-example-1", True),
    ],
)
def test_a_coordinator_gets_its_collectors_and_learners_and_trains_to_the_end(
    walk: Walk, written: Report, example: str, resource: str, job: str, has_aggregator: bool
) -> None:
    started = time.monotonic()
    assert f"{job} created" in walk.create(example)

    walk.wait("the coordinator runs", f"{job}-coordinator", 1)
    if has_aggregator:
        walk.wait("the aggregator runs", f"{job}-aggregator", 1)
    walk.wait("collectors run", rf"{job}-collector-\w{{5}}", 1)
    walk.wait("learners run", rf"{job}-learner-\w{{5}}", 2)

    assert walk.wait_end(resource, job) == "Succeeded"
    log = walk.kubectl("logs", f"{job}-coordinator")
    for line in ("try to connect to", "Successed to connect to", "match limit requests.", "Start..."):
        assert line in log
    assert rf"{job}-collector-" in log
    assert f".{walk.namespace}:80" in log
    written.training(example, f"Succeeded after {time.monotonic() - started:.0f} s")
    # cleanPodPolicy Running: the coordinator stays, as Completed, with its log.
    walk._cluster.wait("only the coordinator is left", lambda: walk.pods() == {f"{job}-coordinator": "Succeeded"}, 90)


def test_mxjobs_of_mlkube_are_created_and_listed_and_train(walk: Walk, written: Report) -> None:
    started = time.monotonic()
    walk.create("mx_job_dist.yaml")
    walk.create("mx_job_local.yaml")

    assert {"example-dist-job", "example-local-job"} <= set(walk.kubectl("get", "mxjobs.mxnet.mlkube.io").split())
    assert walk.wait_end("mxjobs.mxnet.mlkube.io", "example-local-job") == "Succeeded"
    assert walk.wait_end("mxjobs.mxnet.mlkube.io", "example-dist-job") == "Succeeded"
    written.training("mx_job_dist.yaml", f"Succeeded after {time.monotonic() - started:.0f} s")
    jobs = [each["metadata"]["name"] for each in walk.get("jobs")["items"]]
    found = [re.fullmatch(r"example-dist-job-(scheduler|server|worker)-\w{4}-(\d)", name) for name in jobs]
    assert sorted(each.groups() for each in found if each) == [
        ("scheduler", "0"),
        ("server", "0"),
        ("server", "1"),
        ("worker", "0"),
        ("worker", "1"),
        ("worker", "2"),
    ]


def test_an_aitrainingjob_on_the_network_of_its_node_is_submitted_monitored_and_deleted(
    walk: Walk, written: Report
) -> None:
    started = time.monotonic()
    walk.create("aitrainingjob-mnist.yaml")

    assert "paddle-mnist" in walk.kubectl("get", "aitj")
    assert walk.wait_end("aitj", "paddle-mnist") in {"Succeed", "Succeeded"}
    written.training("aitrainingjob-mnist.yaml", f"Succeeded after {time.monotonic() - started:.0f} s")
    assert "paddle-mnist-trainer-0" in walk.kubectl("describe", "aitj", "paddle-mnist")
    walk.kubectl("delete", "aitj", "paddle-mnist")
    walk._cluster.wait("its pods are gone", lambda: not walk.pods(), 60)


@pytest.mark.parametrize(
    ("example", "resource", "job"),
    [
        ("aitrainingjob-digits.yaml", "aitj", "digits"),
        ("mxjob-digits.yaml", "mxjobs.kubeflow.org", "mxjob-digits"),
        ("dijob-cartpole.yaml", "dijob", "cartpole"),
        ("dijob-tasks.yaml", "dijobs.v2alpha1.diengine.opendilab.org", "tasks"),
    ],
)
def test_a_job_trains_to_its_end(walk: Walk, written: Report, example: str, resource: str, job: str) -> None:
    started = time.monotonic()
    walk.create(example)

    assert walk.wait_end(resource, job) in {"Succeed", "Succeeded"}
    written.training(example, f"Succeeded after {time.monotonic() - started:.0f} s")
