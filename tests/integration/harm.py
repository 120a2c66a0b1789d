"""Jobs that hung or lost work under the trainingjob-operator (docs/aitrainingjob.md, Different from the
trainingjob-operator), and do not here.

`test_twice` runs each of them to its end, on both API servers. The other rows of that table are elsewhere: policies in
`test_end`, exit codes and limits in `test_restart`, faults in `policy`.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.integration.policy import create_node, lose
from tests.integration.scene import NODE, Job, Scene
from tests.integration.test_end import is_judged
from tests.integration.test_external import ALL_ENDED, annotate
from tests.integration.test_restart import fall
from tests.manifests.build import Manifest, aitrainingjob, container, replica


async def started(scene: Scene, node: str = NODE, **spec: Any) -> Job:
    """A job all of whose pods run on that node."""
    job = await scene.create(aitrainingjob("job", **spec))
    await job.pods_are_there()
    await job.reach("Pending")
    for pod in job.slots:
        await scene.admin.bind(scene.namespace, pod, node)
    await job.reach("Creating")
    await scene.report("Running", *job.slots)
    await job.reach("Running")
    return job


async def ends(job: Job, phase: str) -> None:
    await job.until(lambda: job.phase in ALL_ENDED, "it ends")
    assert job.phase == phase, job.status


async def node_failure_under_all(scene: Scene) -> Job:
    """With failPolicy All a lost node was not noticed, and the job never ended."""
    await create_node(scene, scene.namespace)
    job = await started(scene, scene.namespace, replicaSpecs={"worker": replica(replicas=2, failPolicy="All")})
    await lose(scene, scene.namespace)
    await ends(job, "NodeFail")
    return job


async def role_removed_in_a_restart(scene: Scene) -> Job:
    """The operator dereferenced nil and crashed again and again."""
    fields: Manifest = {"restartPolicy": "Always", "restartScope": "Replica"}
    job = await started(scene, replicaSpecs={"worker": replica(replicas=2, **fields), "server": replica()})
    await scene.end("job-worker-1", 1)
    await job.reach("Terminating", "Restarting")
    await job.reach("Restarting")
    await job.pods_are_there()
    await job.edit({"replicaSpecs": {"worker": None}})
    await job.until(lambda: set(job.children("pods")) == {"job-server-0"}, "only its server is left")
    await job.reach("Running")
    return job


async def success_on_a_lost_node(scene: Scene) -> Job:
    """A pod that had succeeded was lost with its node, and the job restarted or failed."""
    await create_node(scene, scene.namespace)
    fields: Manifest = {"restartPolicy": "Always", "restartScope": "All"}
    job = await scene.create(aitrainingjob("job", replicaSpecs={"worker": replica(replicas=2, **fields)}))
    await job.pods_are_there()
    await job.reach("Pending")
    await scene.admin.bind(scene.namespace, "job-worker-0", NODE)
    await scene.admin.bind(scene.namespace, "job-worker-1", scene.namespace)
    await job.reach("Creating")
    await scene.report("Running", *job.slots)
    await job.reach("Running")
    await scene.end("job-worker-1", 0)
    await job.until(lambda: is_judged(job, 1), "its success was seen")
    await lose(scene, scene.namespace)
    await scene.settled()
    await scene.end("job-worker-0", 0)
    await ends(job, "Succeed")
    assert scene.incarnations("pods")["job-worker-1"] == 1
    return job


async def time_limit_of_roles_in_turns(scene: Scene) -> Job:
    """The time limit was not counted when the roles did not run at the same moment."""
    job = await scene.create(aitrainingjob("job", replicaSpecs={"a": replica(), "b": replica()}, timeLimit=2))
    await job.pods_are_there()
    await job.reach("Pending")
    await scene.report("Running", "job-a-0")
    await ends(job, "Timeout")
    return job


async def exit_code_beside_a_zero(scene: Scene) -> Job:
    """Exit code 0 of a side-car hid the exit code that was listed."""
    pair = replica(container("aitj-a"), container("aitj-b"), restartPolicy="ExitCode", restartScope="Pod")
    job = await started(scene, replicaSpecs={"worker": pair}, restartingExitCode=" 137 ,1")
    await scene.admin.set_pod(scene.namespace, "job-worker-0", phase="Failed", containers=[137, 0])
    await job.until(lambda: job.phases[-2:] == ["Terminating", "Restarting"], "it restarts")
    await job.runs_again()
    return job


async def limits_of_the_innocent(scene: Scene) -> Job:
    """A restart of all pods was charged to every role."""
    worker = replica(replicas=2, restartPolicy="Always", restartScope="All", restartBackoffSeconds=0)
    server = replica(restartPolicy="Always", restartScope="Pod", restartLimit=1, restartBackoffSeconds=0)
    job = await started(scene, replicaSpecs={"worker": worker, "server": server})
    await fall(job, 1)
    await fall(job, 1)
    before = len(job.phases)
    await scene.end("job-server-0", 1)
    await job.until(lambda: job.phases[before:] == ["Terminating", "Restarting"], "it restarts once more")
    await job.runs_again()
    return job


async def services_of_a_job_without_pods(scene: Scene) -> Job:
    """A job that ended while it had no pods left its services behind."""
    job = await started(scene, replicaSpecs={"worker": replica()})
    await job.edit({"suspend": True})
    await job.until(lambda: not job.children("pods") and job.phase == "Pending", "it is stopped")
    await annotate(job, "Failed", "not needed any more")
    await ends(job, "Failed")
    await job.childless()
    return job


async def history_without_end(scene: Scene) -> Job:
    """Every restart made the list of conditions longer."""
    role = replica(restartPolicy="Always", restartScope="Pod", restartBackoffSeconds=0)
    job = await started(scene, replicaSpecs={"worker": {**role, "replicas": 2}})
    for _ in range(12):
        await fall(job, 1)
    assert job.phases.count("Restarting") == 12
    assert len(job.status["conditions"]) < 30
    return job


PLAYS: dict[str, Callable[[Scene], Awaitable[Job]]] = {
    play.__name__.replace("_", "-"): play
    for play in (
        node_failure_under_all,
        role_removed_in_a_restart,
        success_on_a_lost_node,
        time_limit_of_roles_in_turns,
        exit_code_beside_a_zero,
        limits_of_the_innocent,
        services_of_a_job_without_pods,
        history_without_end,
    )
}
