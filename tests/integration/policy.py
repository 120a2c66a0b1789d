"""Policy by scope by fault by phase: the rows of an AITrainingJob whose worker 1 meets a fault, and what becomes of it.

A job has two workers and one server. Which faults a policy restarts after, and which pods a scope includes, is in
docs/aitrainingjob.md. Any other fault ends the job, in the phase that says what it was.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.integration.scene import NODE, Job, Scene
from tests.integration.test_external import ALL_ENDED, annotate
from tests.manifests.build import Manifest, aitrainingjob, replica

WORKER = "job-worker-1"

LISTED, OTHER, EVICTED, LOST = "listed", "other", "evicted", "lost"

ANSWERED = {
    "Always": (LISTED, OTHER, EVICTED, LOST),
    "OnFailure": (LISTED, OTHER, EVICTED),
    "ExitCode": (LISTED,),
    "OnNodeFail": (EVICTED, LOST),
    "OnNodeFailWithExitCode": (LISTED, EVICTED, LOST),
    "Never": (),
}
"""The faults that bring a restart about. A pod that its node evicts is both, a failed pod and a fault of its node."""

TAKEN = {"Pod": {"worker-1"}, "Replica": {"worker-0", "worker-1"}, "All": {"server-0", "worker-0", "worker-1"}}


class Row(NamedTuple):
    policy: str
    scope: str
    fault: str
    phase: str = "Running"

    @property
    def id(self) -> str:
        return "-".join(self).lower()

    @property
    def spec(self) -> Manifest:
        fields: Manifest = {"restartPolicy": self.policy, "restartScope": self.scope, "restartBackoffSeconds": 0}
        return {
            "replicaSpecs": {"worker": replica(replicas=2, **fields), "server": replica()},
            "restartingExitCode": "137",
        }

    @property
    def is_answered(self) -> bool:
        return self.fault in ANSWERED[self.policy]

    # --- what must become of it ---

    @property
    def path(self) -> list[str]:
        """The phases from the one in which the fault comes."""
        if self.is_answered:
            return [self.phase, "Terminating", "Restarting", "Running"]
        return [self.phase, "Terminating", "NodeFail" if self.fault == LOST else "Failed"]

    @property
    def restarts(self) -> int:
        """A job that restarts has done so once before the fault comes."""
        return self.is_answered + (self.phase == "Restarting")

    @property
    def counts(self) -> dict[str, int]:
        roles = ("worker", "server") if self.scope == "All" else ("worker",)
        return dict.fromkeys(roles, self.restarts) if self.restarts else {}

    @property
    def incarnations(self) -> dict[str, int]:
        """How often each pod was created."""
        everybody = TAKEN["All"]
        return {f"job-{pod}": 1 + self.restarts * (pod in TAKEN[self.scope]) for pod in everybody}


ROWS = [
    *(Row(policy, scope, fault) for policy, faults in ANSWERED.items() for fault in faults for scope in TAKEN),
    *(
        Row(policy, "All", fault)
        for policy, faults in ANSWERED.items()
        for fault in (LISTED, OTHER, EVICTED, LOST)
        if fault not in faults
    ),
    *(
        Row("Always", scope, fault, phase)
        for phase in ("Pending", "Creating", "Restarting")
        for fault in ANSWERED["Always"]
        for scope in TAKEN
    ),
    *(Row("Never", "Pod", fault, phase) for phase in ("Pending", "Creating") for fault in ANSWERED["Always"]),
]


class Told(NamedTuple):
    """A job that is ended by an annotation, whatever its phase is (docs/aitrainingjob.md, Annotations)."""

    end: str
    phase: str
    clean: str

    @property
    def id(self) -> str:
        return "-".join(self).lower()

    @property
    def spec(self) -> Manifest:
        """Under policies by which nothing that a pod does would end it."""
        return {**Row("Always", "All", OTHER).spec, "cleanPodPolicy": self.clean, "failPolicy": "None"}

    @property
    def path(self) -> list[str]:
        return [self.phase, "Terminating", self.end]


TOLD = [
    Told(end, phase, clean)
    for phase in ("Pending", "Creating", "Restarting")
    for end, clean in (("Preempted", "None"), ("Failed", "All"), ("Failed", "None"), ("NodeFail", "Running"))
]


# --- playing them ---


async def play_told(scene: Scene, row: Told) -> Job:
    job = await scene.create(aitrainingjob("job", **row.spec))
    await PHASES[row.phase](job, NODE)
    await annotate(job, row.end, "said")
    await job.until(lambda: job.phase in ALL_ENDED, "it ends")
    return job


async def play(scene: Scene, row: Row) -> Job:
    node = NODE
    if row.fault == LOST:
        node = scene.namespace
        await create_node(scene, node)
    job = await scene.create(aitrainingjob("job", **row.spec))
    await PHASES[row.phase](job, node)
    before = len(job.phases)
    await befall(job, row.fault, node)
    await job.until(lambda: job.phase in ALL_ENDED or job.phases[before:] == row.path[1:3], "it restarts or ends")
    if job.phase not in ALL_ENDED:
        await job.runs_again()
    return job


async def create_node(scene: Scene, name: str) -> None:
    """A node of which nobody says that it is not ready."""
    await scene.admin.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


async def wait(job: Job, node: str) -> None:
    """Worker 1 has a node, the others have none."""
    await job.pods_are_there()
    await job.reach("Pending")
    await job.scene.admin.bind(job.scene.namespace, WORKER, node)


async def place(job: Job, node: str) -> None:
    await wait(job, node)
    await job.scene.bind(*(pod for pod in job.slots if pod != WORKER))
    await job.reach("Creating")


async def start(job: Job, node: str) -> None:
    await place(job, node)
    await job.scene.report("Running", *job.slots)
    await job.reach("Running")


async def restart(job: Job, node: str) -> None:
    """It has failed once, and its new pods have nodes."""
    await start(job, NODE)
    await job.scene.end(WORKER, 1)
    await job.until(lambda: job.phases[-2:] == ["Terminating", "Restarting"], "it restarts")
    await job.comes_again()
    others = [pod for pod in job.unbound if pod != WORKER]
    await job.scene.admin.bind(job.scene.namespace, WORKER, node)
    await job.scene.bind(*others)


PHASES: dict[str, Callable[[Job, str], Awaitable[None]]] = {
    "Pending": wait,
    "Creating": place,
    "Running": start,
    "Restarting": restart,
}


async def befall(job: Job, fault: str, node: str) -> None:
    scene = job.scene
    match fault:
        case "evicted":
            await scene.admin.set_pod(
                scene.namespace, WORKER, phase="Failed", containers=[None], reason="Evicted", message="no memory left"
            )
        case "lost":
            await lose(scene, node)
        case _:
            await scene.end(WORKER, 137 if fault == LISTED else 1)


async def lose(scene: Scene, node: str) -> None:
    """Somebody knows that a node will not come back."""
    taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
    await scene.admin.patch("nodes", None, node, {"spec": {"taints": taints}})
