"""An operator on a cluster that has no definitions: the older operators created theirs at the start."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.operator import COMMAND, _environ
from testbed.plane import ControlPlane, KubectlFailed
from testbed.process import Process, Watchdog
from tests.manifests.build import mxjob

WITHIN = 60.0
NAME = "mxjobs.kubeflow.org"
WORDS = ("-alsologtostderr", "-v=8", "--leader-elect=false", "--enable-scheme=mxjob.kubeflow.org")

Start = Callable[..., Process]


@pytest.fixture(scope="module")
def plane(binaries: Path) -> Iterator[ControlPlane]:
    with ControlPlane(binaries=binaries) as plane:
        yield plane


@pytest.fixture
def start(plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Starts an operator with the variables of the mxnet-operator's guide, and its words unless others are given."""
    watchdog, started = Watchdog(tmp_path), []

    def run(*options: str, user: str = "admin", words: Sequence[str] = WORDS) -> Process:
        guide = {"MY_POD_NAMESPACE": "default", "MY_POD_NAME": "my-pod"}
        if user:
            guide["USE_KUBE_CONFIG"] = str(plane.kubeconfig(user))
        silent = ("--metrics-bind-address=0", "--health-probe-bind-address=0")
        command: list[str | Path] = [COMMAND, "operator", *words, *silent, *options]
        started.append(Process(command, log=tmp_path / "log", environ=_environ(tmp_path) | guide, watchdog=watchdog))
        return started[-1]

    yield run
    for process in started:
        process.kill()
    watchdog.close(keep=True)


def wait_until(holds: Callable[[], Any], log: Path) -> None:
    deadline = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def exists(plane: ControlPlane, *words: str) -> bool:
    try:
        plane.kubectl("get", *words)
    except KubectlFailed:
        return False
    return True


def test_an_operator_says_at_once_which_definition_is_missing(plane: ControlPlane, start: Start) -> None:
    process = start()
    wait_until(lambda: "does not have this resource" in process.log.read_text(), process.log)
    [line] = [line for line in process.log.read_text().splitlines() if "does not have this resource" in line]

    assert json.loads(line)["resource"] == NAME
    assert json.loads(line)["hint"].endswith("or start the operator with --install-crds")
    assert not exists(plane, "crd", NAME)


def test_the_command_of_the_trainingjob_operators_guide_says_which_command_creates_its_definition(
    plane: ControlPlane, start: Start
) -> None:
    """With credentials, which its API server did not need yet."""
    line = f"--master {plane.url.removeprefix('https://')} --v 4 --thread-num 1000 --logtostderr --leader-elect=true"
    process = start(words=[*line.split(), "--enable-creating-failed=true"])
    wait_until(lambda: "aitrainingjobs.elasticdeeplearning.ai" in process.log.read_text(), process.log)
    lines = map(json.loads, process.log.read_text().splitlines())
    hints = [line["hint"] for line in lines if line.get("resource") == "aitrainingjobs.elasticdeeplearning.ai"]

    command = "trainmaster crds | kubectl apply --server-side --force-conflicts -f -"
    assert hints == [f"{command}, or start the operator with --install-crds"]


def test_the_same_command_without_credentials_ends_and_says_what_to_add(plane: ControlPlane, start: Start) -> None:
    process = start(words=["--master", plane.url.removeprefix("https://")], user="")

    assert process.wait(WITHIN) != 0
    assert "add --kubeconfig FILE: credentials come from it" in process.log.read_text()


def test_an_operator_that_may_not_create_definitions_says_who_must(start: Start) -> None:
    process = start("--install-crds", user="operator")

    assert process.wait(WITHIN) == 1
    said = process.log.read_text()
    assert "trainmaster: --install-crds: " in said
    assert "let somebody who may create definitions run: trainmaster crds |" in said


def test_an_operator_installs_its_definitions_and_runs_a_job_of_v1beta1(plane: ControlPlane, start: Start) -> None:
    """As the manifests of the mxnet-operator have it: kubeflow.org/v1beta1."""
    process = start("--install-crds")
    wait_until(lambda: exists(plane, "mxjobs.v1beta1.kubeflow.org"), process.log)
    assert plane.kubectl("get", "crd", "--output=name") == f"customresourcedefinition.apiextensions.k8s.io/{NAME}\n"

    job = {**mxjob("old"), "apiVersion": "kubeflow.org/v1beta1"}
    plane.kubectl("create", "--filename=-", input=json.dumps(job))
    wait_until(lambda: plane.kubectl("get", "pod", "--output=name").count("pod/old-") == 3, process.log)
    version = "--output=jsonpath={.apiVersion}/{.status.conditions[0].type}"
    assert plane.kubectl("get", "mxjobs.v1beta1.kubeflow.org", "old", version) == "kubeflow.org/v1beta1/Created"
    assert plane.kubectl("get", "mxjobs.v1.kubeflow.org", "old", version) == "kubeflow.org/v1/Created"
    process.kill()

    again = start("--install-crds")  # what exists is left alone
    wait_until(lambda: again.log.read_text().count('"ready"') == 2, again.log)
