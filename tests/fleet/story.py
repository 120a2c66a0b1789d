"""What a job of the fleet goes through, and how it must end: the same stories for every kind, as far as its users'
contract has them. Jobs are those of the matrix, which docs/ describes kind by kind."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.build import Json
from tests.matrix.kinds import (
    AITRAININGJOB,
    ALWAYS,
    BY_JOB,
    DI,
    MXJOB,
    MXJOB_MLKUBE,
    NEVER,
    TASKS,
    Options,
    Path,
    Row,
    used_of,
)

End = int | str
"""How a pod ends: by its exit code, or by the reason for which its node ends it."""
KILLED, NODE_SHUTDOWN, CANNOT_START = 137, "Shutdown", "StartError"

SUSPEND, SCALE_UP, SCALE_DOWN, DELETE_POD, DELETE_JOB = "suspend", "scale up", "scale down", "delete a pod", "delete"
"""What users do to a job that runs."""
SUCCEEDED, FAILED = "Succeeded", "Failed"


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What the documents of a kind say, in the words of the fleet. Replicas are written ``worker-1``."""

    label: str
    """The label of a pod that has the name of its job."""
    replicas: tuple[str, ...]
    ending: tuple[str, ...]
    """The roles that end by themselves. The others serve until they are deleted."""
    victim: str
    """The replica that faults hit."""
    clean: str
    """The clean-up policy of the jobs here, unless a story has another one."""
    events: tuple[tuple[str, str], ...]
    """Type and reason of the Events that say that something restarts."""
    limit: Path = ()
    """Where the spec limits restarts."""
    scope: Path = ()
    """Where the spec says that the victim restarts alone."""
    grown: str = ""
    """The replica that is added by scaling up."""
    misses_deleted_pods: bool = False
    """A running pod that a user deletes is a restart."""


_RL = Contract(
    label="dijob-name",
    replicas=("coordinator", "collector-bbbbb", "collector-ccccc"),
    ending=("coordinator",),
    victim="coordinator",
    clean="Running",
    events=(("Warning", "CoordinatorDisplaced"),),
    grown="collector-ddddd",
)
CONTRACTS: Mapping[str, Contract] = {
    "aitrainingjob": Contract(
        label="TrainingJobName",
        replicas=("ps-0", "trainer-0", "trainer-1"),
        ending=("trainer",),
        victim="trainer-1",
        clean="All",
        events=(("Warning", "TrainingJobTerminating"),),
        limit=("replicaSpecs", "trainer", "restartLimit"),
        scope=("replicaSpecs", "trainer", "restartScope"),
        grown="trainer-2",
    ),
    "mxjob": Contract(
        label="training.kubeflow.org/job-name",
        replicas=("scheduler-0", "server-0", "worker-0", "worker-1"),
        ending=("scheduler",),
        victim="worker-1",
        clean="Running",
        events=(("Warning", "MXJobRestarting"), ("Normal", "MXJobRestarting")),
        limit=("runPolicy", "backoffLimit"),
        scope=("mxReplicaSpecs", "Worker", "restartScope"),
        grown="worker-2",
        misses_deleted_pods=True,
    ),
    "dijob-v2alpha1": Contract(
        label="diengine/job",
        replicas=("learner-0", "collector-0", "collector-1"),
        ending=("learner", "collector"),
        victim="collector-1",
        clean="Running",
        events=(("Warning", "JobRestarting"),),
        limit=("backoffLimit",),
        grown="collector-2",
    ),
    **{
        f"mxjob-{group}": Contract(
            label="mx_job",
            replicas=("scheduler-0", "server-0", "worker-0", "worker-1"),
            ending=("scheduler", "server", "worker"),
            victim="worker-1",
            clean="Running",
            events=(("Warning", "Recovering"),),
            limit=("backoffLimit",),
            misses_deleted_pods=True,
        )
        for group in ("mxnet.mlkube.io", "mlkube.io")
    },
    "dijob": _RL,
    "nervexjob": Contract(
        label="nervexjob-name",
        replicas=(*_RL.replicas, "aggregator"),
        ending=_RL.ending,
        victim=_RL.victim,
        clean=_RL.clean,
        events=(*_RL.events, ("Warning", "AggregatorDisplaced")),
        grown=_RL.grown,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Story:
    name: str
    row: Row
    spec: tuple[tuple[Path, object], ...] = ()
    """Fields of the spec."""
    policy: str = ALWAYS
    ends: Mapping[str, Sequence[End]] = field(default_factory=dict)
    """How the first pods of replicas end. What follows them ends well, or serves."""
    act: str = ""
    result: str = SUCCEEDED
    """Empty for a job that its user deletes."""
    used: int = 0
    """Restarts that are charged, if no two faults of different replicas are one incident."""
    moved: int = 0
    """Of a DIJob with tasks, ``status.reschedules``."""
    replaced: Mapping[str, int] = field(default_factory=dict)
    """Pods that come under other names, by role."""
    left: frozenset[str] = frozenset()
    """The replicas whose pods are there at the end."""
    is_kept: bool = True
    """The job is there at the end."""

    @property
    def contract(self) -> Contract:
        return CONTRACTS[self.row.name]

    @property
    def faults(self) -> int:
        return sum(map(len, self.ends.values()))

    @property
    def clean(self) -> str:
        return str(dict(self.spec).get(self.row.clean, self.contract.clean))

    def manifest(self, name: str) -> Json:
        body = self.row.build(Options(policy=self.policy, spec=self.spec))
        found = {key: body[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": name}}
        if members := body.get("status", {}).get("declared", {}).get("members"):
            named = {member.replace("job-", f"{name}-", 1): value for member, value in members.items()}
            found["status"] = {"declared": {"members": named}}
        return found

    def charged(self, job: Json) -> int:
        """The restarts that a job says that it was charged for."""
        return (self.row.counted or used_of)(job) if "status" in job else 0

    def ends_by_itself(self, replica: str) -> bool:
        return self.result == SUCCEEDED and replica.startswith(self.contract.ending)


def stories() -> Iterator[Story]:
    """Kind by kind."""
    for row in BY_JOB:
        yield from stories_of(row)


def stories_of(row: Row) -> Iterator[Story]:
    yield from _ends_well(row)
    yield from _faults(row)
    yield from _users(row)


def _ends_well(row: Row) -> Iterator[Story]:
    contract = CONTRACTS[row.name]
    ended = frozenset(r for r in contract.replicas if r.startswith(contract.ending))
    left = {"All": frozenset[str](), "Running": ended, "None": frozenset(contract.replicas)}
    yield Story(name="succeeds", row=row, left=left[contract.clean])
    for policy, expected in left.items():
        yield Story(name=f"cleans-up-{policy.lower()}", row=row, spec=((row.clean, policy),), left=expected)
    yield Story(name="expires", row=row, spec=((row.ttl, 2),), is_kept=False)
    yield Story(name="takes-too-long", row=row, spec=((row.deadline, 6),), result=FAILED)


def _faults(row: Row) -> Iterator[Story]:
    contract = CONTRACTS[row.name]
    victim, well = contract.victim, next(_ends_well(row)).left
    failed = frozenset() if contract.clean == "All" else frozenset({victim})
    is_task = row.contract == TASKS
    yield Story(
        name="ended-by-its-node",
        row=row,
        ends={victim: [NODE_SHUTDOWN]},
        used=0 if is_task else 1,
        moved=int(is_task),
        left=well,
    )
    yield Story(name="cannot-start", row=row, ends={victim: [CANNOT_START]}, result=FAILED, left=failed)
    if row.contract == DI:
        yield Story(name="fails", row=row, ends={victim: [KILLED]}, result=FAILED, left=failed)
        yield Story(
            name="collector-fails", row=row, ends={"collector-bbbbb": [1]}, replaced={"collector": 3}, left=well
        )
        if row.name == "nervexjob":
            yield Story(name="aggregator-fails", row=row, ends={"aggregator": [1, 137]}, used=2, left=well)
        return
    once, twice = {victim: [KILLED]}, {victim: [KILLED, KILLED]}
    yield Story(name="fails-once", row=row, ends=once, used=1, left=well)
    yield Story(name="fails-twice", row=row, ends=twice, used=2, left=well)
    limited = ((contract.limit, 1),)
    yield Story(name="uses-up-its-limit", row=row, ends=twice, spec=limited, used=1, result=FAILED, left=failed)
    none = row.no_restarts
    yield Story(name="never-restarts", row=row, ends=once, spec=none, policy=NEVER, result=FAILED, left=failed)
    if contract.scope:
        alone, peer = ((contract.scope, "Pod"),), victim.replace("-1", "-0")
        yield Story(name="fails-alone", row=row, ends=once, spec=alone, used=1, left=well)
        both = {victim: [KILLED], peer: [KILLED]}
        yield Story(name="two-fail-alone", row=row, ends=both, spec=alone, used=2, left=well)


def _users(row: Row) -> Iterator[Story]:
    contract = CONTRACTS[row.name]
    well, is_task = next(_ends_well(row)).left, row.contract == TASKS
    yield Story(name="suspended-and-resumed", row=row, act=SUSPEND, left=well)
    yield Story(
        name="pod-deleted",
        row=row,
        act=DELETE_POD,
        used=int(contract.misses_deleted_pods),
        moved=int(is_task),
        left=well,
    )
    yield Story(name="job-deleted", row=row, act=DELETE_JOB, result="", is_kept=False)
    if contract.grown:
        is_counted = well and contract.grown.startswith(contract.ending)
        more = well | {contract.grown} if is_counted else well
        yield Story(name="scaled-up", row=row, act=SCALE_UP, moved=int(is_task), left=more)
        fewer = well - {contract.victim} if row.contract != DI else well
        yield Story(name="scaled-down", row=row, act=SCALE_DOWN, moved=int(is_task), left=fewer)


assert {row.name for row in BY_JOB} == CONTRACTS.keys()
assert {row.contract for row in BY_JOB} == {AITRAININGJOB, MXJOB, MXJOB_MLKUBE, TASKS, DI}
