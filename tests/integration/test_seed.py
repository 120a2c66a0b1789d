"""What the README of trainingjob-operator tells its readers to type works here: its command line, its kubectl commands,
and the environment variables that it promises (docs/aitrainingjob.md, Environment)."""

from collections.abc import Iterator

import pytest

from testbed.admin import eventually
from testbed.operator import OperatorProcess
from testbed.plane import ControlPlane
from tests.faults.world import PATIENCE
from tests.integration.scene import Job, Scene
from tests.integration.test_restart import fall
from tests.manifests.build import TRAINER, Manifest, aitrainingjob, container, replica

ARGS = ["--thread-num", "1000", "--logtostderr", "--leader-elect=true", "--enable-creating-failed=true"]


@pytest.fixture(scope="module")
def operator(plane: ControlPlane) -> Iterator[OperatorProcess]:
    """``--master ip:port --v 4 --thread-num 1000 --logtostderr --leader-elect=true --enable-creating-failed=true``, and
    the options by which any operator of the test bed is found."""
    address = plane.url.removeprefix("https://")
    with OperatorProcess(plane, server=address, args=ARGS, verbosity=4) as operator:
        yield operator


async def test_the_command_line_of_the_readme_starts_an_operator(scene: Scene, operator: OperatorProcess) -> None:
    job = await scene.create(aitrainingjob("paddle-mnist"))

    await job.live()

    assert job.phase == "Succeed"
    assert '"option":"--logtostderr"' in operator.log
    assert "option has no effect and is ignored" in operator.log


@pytest.fixture
async def told(scene: Scene, operator: OperatorProcess) -> Job:
    """A job that was restarted once and succeeded."""
    spec: Manifest = {
        "replicaSpecs": {"worker": replica(replicas=2, restartPolicy="ExitCode", restartScope="Pod")},
        "restartingExitCode": "137",
    }
    job = await scene.create(aitrainingjob("job", **spec))
    await job.start()
    async with scene.kubelet():
        await fall(job, 137)
    await job.live()
    return job


def test_kubectl_get_shows_the_job_by_its_short_name(told: Job, plane: ControlPlane) -> None:
    head, line = plane.kubectl("get", "aitj", f"--namespace={told.scene.namespace}").splitlines()

    assert head.split() == ["NAME", "PHASE", "AGE", "READY", "RESTARTS"]
    assert line.split()[:2] == ["job", "Succeed"]


STORY = [
    "SuccessfulCreatePod",
    "TrainingJobRunning",
    "TrainingJobTerminating",
    "SuccessfulDeletePod",
    "TrainingJobRestarting",
    "TrainingJobSucceed",
]


async def test_kubectl_describe_tells_the_story(told: Job, plane: ControlPlane) -> None:
    async def described() -> str:
        found = plane.kubectl("describe", "aitj", "job", f"--namespace={told.scene.namespace}")
        assert "job job completed; deleted pods" in found.partition("\nEvents:")[2], found
        return found

    status, _, events = (await eventually(described, timeout=PATIENCE)).partition("\nEvents:")

    told_by_events = [line.split()[1] for line in events.splitlines() if line.strip().startswith(("Normal", "Warning"))]
    told_by_conditions = [line.split()[1] for line in status.splitlines() if line.strip().startswith("Reason:")]
    killed = "restart times is 1, pod job-worker-1 failed: container aitj-trainer on node n1 exited"
    # kubectl sorts by the second in which each was last told, and the job runs twice: only conditions keep their order
    assert set(told_by_events) >= set(STORY)
    # each phase stands once, where the job was in it last
    assert [reason for reason in told_by_conditions if reason in STORY] == [
        "TrainingJobRestarting",
        "TrainingJobRunning",
        "TrainingJobTerminating",
        "TrainingJobSucceed",
    ]
    assert killed in events
    assert "exitcode 137" in events
    assert "Exit Code:  137" in status


# The table of the README, name by name, for the first of two servers with two ports each.
ENVIRONMENT = {
    "TRAININGJOB_REPLICA_NAME": "pserver",
    "TRAININGJOB_REPLICA_TYPE": "pserver",
    "TRAININGJOB_REPLICA_INDEX": "0",
    "PSERVER_INSTANCES": "test-new-tj-pserver-0.{ns},test-new-tj-pserver-1.{ns}",
    "PSERVER_INSTANCES_NUM": "2",
    "PSERVER_PORTS": "4444,5555",
    "PSERVER_PORTS_NUM": "2",
    "PSERVER_HOSTS": (
        "test-new-tj-pserver-0.{ns}:4444,test-new-tj-pserver-0.{ns}:5555,"
        "test-new-tj-pserver-1.{ns}:4444,test-new-tj-pserver-1.{ns}:5555"
    ),
    "PSERVER_HOSTS_NUM": "4",
    "TRAININGJOB_NAME": "test-new-tj",
    "TRAININGJOB_NAMESPACE": "{ns}",
    "TRAININGJOB_SERVICE": "test-new-tj-pserver-0.{ns}",
    "TRAININGJOB_PORTS": "4444,5555",
    "TRAININGJOB_REPLICA_RESTARTCOUNT": "0",
}


async def test_a_pod_finds_every_variable_that_the_readme_promises(scene: Scene, operator: OperatorProcess) -> None:
    ports = [{"name": f"aitj-{port}", "containerPort": port} for port in (4444, 5555)]
    job = await scene.create(
        aitrainingjob("test-new-tj", replicaSpecs={"pserver": replica(container(TRAINER, ports=ports), replicas=2)})
    )
    await job.pods_are_there()

    (found,) = job.children("pods")["test-new-tj-pserver-0"]["spec"]["containers"]
    env = {entry["name"]: entry["value"] for entry in found["env"]}

    promised = {name: value.format(ns=scene.namespace) for name, value in ENVIRONMENT.items()}
    assert {name: env.get(name) for name in promised} == promised
