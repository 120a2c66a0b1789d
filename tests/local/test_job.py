"""batch/v1 Jobs on this machine: made, counted and ended as on a cluster, also when that was killed meanwhile."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.local.cluster import POLL, client_of, items_of
from tests.local.conftest import Up
from trainmaster.core.ids import JOB, POD
from trainmaster.kube.client import KubeCluster

KUBECTL_SECONDS = 60.0


def a_job(script: str, *, policy: str, **spec: Any) -> bytes:
    container = {"name": "c", "image": "none", "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [container], "restartPolicy": policy}}
    return json.dumps({"metadata": {"name": "job"}, "spec": {"template": template, **spec}}).encode()


async def until_over(cluster: KubeCluster) -> dict[str, Any]:
    """The status of the only Job, when it has ended."""
    while True:
        (job,) = await items_of(cluster, JOB)
        held = {each["type"] for each in job["status"].get("conditions", ()) if each["status"] == "True"}
        if held & {"Complete", "Failed"}:
            return dict(job["status"])
        await asyncio.sleep(POLL)


async def test_a_container_that_fails_is_started_again_in_its_pod(up: Up, state: Path, tmp_path: Path) -> None:
    up()
    script = f"echo x >> {tmp_path}/runs; [ $(wc -l < {tmp_path}/runs) -ge 2 ]"
    async with client_of(state) as cluster:
        await cluster.create(JOB, "default", a_job(script, policy="OnFailure"))
        status = await until_over(cluster)
        (pod,) = await items_of(cluster, POD)

    assert (status["succeeded"], status.get("failed", 0)) == (1, 0)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


async def test_a_job_that_may_not_fail_says_why_it_has(up: Up, state: Path) -> None:
    up()
    async with client_of(state) as cluster:
        await cluster.create(JOB, "default", a_job("exit 3", policy="Never", backoffLimit=0))
        status = await until_over(cluster)
        (pod,) = await items_of(cluster, POD)

    assert status["conditions"][-1]["reason"] == "BackoffLimitExceeded"
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_a_program_outlives_the_cluster_and_is_counted_once_by_the_next(
    up: Up, state: Path, tmp_path: Path
) -> None:
    program = up()
    script = f"echo x >> {tmp_path}/runs; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    async with client_of(state) as cluster:
        await cluster.create(JOB, "default", a_job(script, policy="Never"))
        while not (tmp_path / "runs").exists():  # noqa: ASYNC110 – a file rings no bell
            await asyncio.sleep(POLL)
    program.kill()
    (tmp_path / "go").touch()
    up()
    async with client_of(state) as cluster:
        status = await until_over(cluster)

    assert (status["succeeded"], status.get("failed", 0)) == (1, 0)
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_a_deadline_ends_a_program(up: Up, state: Path) -> None:
    up()
    async with client_of(state) as cluster:
        await cluster.create(JOB, "default", a_job("exec sleep 600", policy="Never", activeDeadlineSeconds=1))
        status = await until_over(cluster)
        phases = {pod["status"]["phase"] for pod in await items_of(cluster, POD)}

    assert (status["conditions"][-1]["reason"], status["failed"]) == ("DeadlineExceeded", 1)
    assert phases <= {"Failed"}  # on its way out, or gone


def test_kubectl_creates_a_job_waits_for_it_reads_its_log_and_deletes_it(up: Up, state: Path, binaries: Path) -> None:
    up()

    def kubectl(*arguments: str) -> str:
        command = [str(binaries / "kubectl"), f"--kubeconfig={state}/kubeconfig", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=KUBECTL_SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    created = kubectl("create", "job", "hello", "--image=none", "--", "echo", "hi")
    waited = kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=60s")
    row = kubectl("get", "jobs", "--no-headers").split()
    told = kubectl("describe", "job", "hello")
    said = kubectl("logs", "job/hello")
    kubectl("delete", "job", "hello")
    left = kubectl("get", "pods", "--ignore-not-found", "--output=name")

    assert created == "job.batch/hello created\n"
    assert waited == "job.batch/hello condition met\n"
    assert row[:3] == ["hello", "Complete", "1/1"]
    assert "SuccessfulCreate" in told
    assert "Job completed" in told
    assert (said, left) == ("hi\n", "")
