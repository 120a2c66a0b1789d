"""MxJobs on this machine: the last lines of the mxnet-operator's walk-through, which need a node that has logs."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from testbed import build
from tests.local.cluster import client_of, until_ended
from tests.local.conftest import Start, Up
from tests.local.program import containers_of
from tests.manifests.build import MXNET, container, crew, mlkubejob
from trainmaster.kinds.mlkube.types import RESOURCE

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_local_example_runs_to_its_good_end(start: Start, tmp_path: Path) -> None:
    code, said, _ = start("run", str(EXAMPLES / "mx_job_local.yaml"), "--timeout", "2m").end()

    assert "worker-0 | Epoch[2] Train-accuracy=0.8" in said
    assert "mxjob.mxnet.mlkube.io/example-local-job Succeeded: succeeded in " in said
    assert code == 0
    assert containers_of(tmp_path) == []


def test_jobs_of_one_name_in_two_groups_are_told_apart(start: Start, tmp_path: Path) -> None:
    worker = crew("WORKER", 1, container(MXNET, command=["true"]))
    jobs = [mlkubejob("twin", group=group, replicaSpecs=[worker]) for group in ("mxnet.mlkube.io", "mlkube.io")]
    (tmp_path / "twins.yaml").write_text(yaml.safe_dump_all(jobs))

    code, said, _ = start("run", "twins.yaml", "--timeout", "2m").end()

    assert code == 0
    for group in ("mxnet.mlkube.io", "mlkube.io"):
        states = [line for line in said.splitlines() if line.startswith(f"mxjob.{group}/twin ")]
        assert states[-1].startswith(f"mxjob.{group}/twin Succeeded: succeeded in ")
        assert len(states) == len(set(states)), states


async def test_jobs_and_logs_are_there_for_kubectl(up: Up, state: Path) -> None:
    kubectl = build.folder() / "kubectl"
    if not kubectl.exists() and shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl: make testbed builds one")
    up()

    def said(*words: str) -> str:
        command = [str(kubectl) if kubectl.exists() else "kubectl", f"--kubeconfig={state / 'kubeconfig'}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    created = said("create", "-f", str(EXAMPLES / "mx_job_local.yaml"))
    async with client_of(state) as cluster:
        status = await until_ended(cluster, RESOURCE, "example-local-job")
    (pod,) = said("get", "pods", "-l", "mx_job=example-local-job", "-o", "name").split()

    assert created == "mxjob.mxnet.mlkube.io/example-local-job created\n"
    assert status["state"] == "Succeeded"
    assert "example-local-job" in said("get", "mxj")
    assert f"example-local-job-worker-{status['runtimeId']}-0" in said("get", "job")
    assert said("logs", "-f", pod).splitlines()[-1] == "Epoch[2] Train-accuracy=0.8"
