"""One row of the matrix for each kind: its job, the pod that a fault hits, and how its status is read.

The jobs have three or four pods and may restart. Everything is spelt as users and clients spell it on the wire.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.build import (
    Json,
    a_container,
    a_dijob,
    a_ditask,
    a_nervexjob,
    a_replica,
    a_task,
    a_template,
    an_agconfig,
    an_aitj,
    an_mx_replica,
    an_mxjob,
)
from tests.matrix.cluster import GPU
from tests.matrix.world import World
from trainmaster.core.ids import Key, Resource
from trainmaster.kinds.base import Kind

AITRAININGJOB, MXJOB, MXJOB_MLKUBE = "AITrainingJob", "MXJob", "MxJob"
TASKS = "DIJob with tasks"
COORDINATOR, COLLECTOR, DI = "coordinator", "collector", "DIJob and NerveXJob"
COORDINATOR_OF_ALL, COLLECTOR_OF_ALL = "coordinator, restartScope All", "collector, restartScope All"
"""What the expected outcomes of the table are told by: rows of the same contract share them."""

ALWAYS, NEVER, AFTER_NODE_FAULTS = "always", "never", "after faults of the node, and not of the program"

SIDECAR = "log-shipper"
MXNET = "mxnet"
"""Both kinds that have it refuse a job without it."""
PLAIN = "train"
AGGREGATOR_CONFIG = Resource("nervex.sensetime.com", "v1alpha1", "aggregatorconfigs", "AggregatorConfig")

Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """``victim`` is how the name of the pod begins that a fault hits; ``replicas`` is where the spec says how many of
    its role there are. ``restarts_all`` says whether the whole job restarts for one pod, unless its user says
    otherwise."""

    name: str
    contract: str
    build: Callable[["Options"], Json]
    size: int
    """Pods of the job."""
    victim: str
    main: str
    restarts_all: bool
    result: Callable[[Json], str]
    """Succeeded, Failed, or empty while the job goes on."""
    is_running: Callable[[Json], bool]
    counted: Callable[[Json], int] | None
    """Restarts that are charged to the job's limit; None where a kind has no such limit."""
    suspend: Path
    deadline: Path
    ttl: Path
    template: Path
    """Where the template of the victim is."""
    replicas: Path = ()
    deciding: tuple[str, ...] = ()
    """How the names of those pods begin whose success is the job's; all of them unless told."""
    ended: Mapping[str, Any] = field(default_factory=dict)
    """The status of a job that the operator before us ended."""
    related: tuple[tuple[Resource, Json], ...] = ()
    has_one_service: bool = False
    """One service for all pods."""
    kind: Kind[Any] | None = None
    """Of a job whose kind is not registered."""
    clean: Path = ("cleanPodPolicy",)
    no_restarts: tuple[tuple[Path, Any], ...] = ()
    """By which fields of the spec nothing restarts, in a kind without restart policies."""

    def world(self, options: "Options | None" = None) -> World:
        world = World(self.build(options or Options()), kind=self.kind)
        for resource, body in self.related:
            world.put(resource, body)
        if options and options.injected:
            world.api.injected = [a_container(SIDECAR)]
        return world

    def is_victim(self, body: Json) -> bool:
        return str(body["metadata"]["name"]).startswith(self.victim)

    def victim_of(self, world: World) -> Key:
        """The victim's pod that is there, or the newest of them."""
        return max(key for key, pod in world.pods.items() if self.is_victim(pod))

    def deciding_of(self, world: World) -> list[Key]:
        return [key for key in world.pods if not self.deciding or key.name.startswith(self.deciding)]


@dataclass(frozen=True)
class Options:
    """``sidecar``: every pod has a second container. ``injected``: it gets that at admission, and the first one has
    no special name, unless its kind asks for one. ``gpu``: its first one has a GPU. ``policy``: when pods restart.
    ``spec`` is set on top."""

    sidecar: bool = False
    injected: bool = False
    gpu: bool = False
    policy: str = ALWAYS
    spec: tuple[tuple[Path, Any], ...] = ()


def template_of(main: str, options: Options, **pod_spec: Any) -> Json:
    main = PLAIN if options.injected and main != MXNET else main
    trains = a_container(main, resources={"limits": {GPU: "1"}}) if options.gpu else a_container(main)
    containers = [trains] + ([a_container(SIDECAR)] if options.sidecar else [])
    return a_template(*containers, **pod_spec)


def with_options(job: Json, options: Options) -> Json:
    for path, value in options.spec:
        place = job["spec"]
        for step in path[:-1]:
            place = place[step] if isinstance(step, int) else place.setdefault(step, {})
        place[path[-1]] = value
    return job


def used_of(job: Json) -> int:
    """``status.restarts``, as three kinds have it."""
    return sum(role.get("used", 0) for role in job["status"].get("restarts", {}).values())


def is_true(job: Json, type_: str) -> bool:
    return any((c["type"], c["status"]) == (type_, "True") for c in job.get("status", {}).get("conditions", ()))


# --- AITrainingJob: one parameter server, two trainers ---


def _aitrainingjob(options: Options) -> Json:
    template = template_of("aitj-main", options)
    policy = {"restartPolicy": {NEVER: "Never", AFTER_NODE_FAULTS: "OnNodeFail"}.get(options.policy, "Always")}
    roles = {
        "ps": a_replica(1, template, completePolicy="None", **policy),
        "trainer": a_replica(2, template, **policy),
    }
    return with_options(an_aitj("job", roles=roles, complete="Any"), options)


def _result_of_phase(job: Json) -> str:
    phase = job.get("status", {}).get("phase", "")
    ends = {"Succeed": "Succeeded", "Succeeded": "Succeeded"} | dict.fromkeys(
        ("Failed", "Timeout", "NodeFail", "Preempted"), "Failed"
    )
    return ends.get(phase, "")


# --- MXJob of Kubeflow: a scheduler, a server, two workers ---


def _mxjob(options: Options) -> Json:
    template = template_of(MXNET, options)
    policy = {"restartPolicy": {NEVER: "Never", AFTER_NODE_FAULTS: "ExitCode"}.get(options.policy, "OnFailure")}
    roles = {role: an_mx_replica(n, template, **policy) for role, n in _MX_ROLES.items()}
    job = an_mxjob("job", policy={"cleanPodPolicy": "Running"}, spec={"mxReplicaSpecs": roles})
    return with_options(job, options)


_MX_ROLES = {"Scheduler": 1, "Server": 1, "Worker": 2}


def _mxjob_result(job: Json) -> str:
    return next((end for end in ("Failed", "Succeeded") if is_true(job, end)), "")


# --- MxJob of mlkube: the same roles, each replica a batch Job ---


def _mlkube(group: str) -> Callable[[Options], Json]:
    def build(options: Options) -> Json:
        template = template_of(MXNET, options)
        roles = [{"mxReplicaType": role.upper(), "replicas": n, "template": template} for role, n in _MX_ROLES.items()]
        # an id of the user's, so that the names of the first attempt are known
        spec = {"jobMode": "dist", "RuntimeId": "1kkf", "replicaSpecs": roles}
        metadata = {"name": "job", "namespace": "ml", "uid": "uid-of-job"}
        job = {"apiVersion": f"{group}/v1beta1", "kind": "MxJob", "metadata": metadata, "spec": spec}
        return with_options(job, options)

    return build


def _mlkube_result(job: Json) -> str:
    status = job.get("status", {})
    return str(status.get("state", "")) if status.get("phase") == "Done" else ""


def _mlkube_is_running(job: Json) -> bool:
    return job["status"].get("phase") == "Running" and is_true(job, "Ready")


# --- DIJob and NerveXJob: a coordinator, and two collectors that di-server has declared ---

COLLECTORS = ("job-collector-bbbbb", "job-collector-ccccc")
DECLARED = {"members": {name: {"role": "collector", "at": "2026-01-01T00:00:00Z"} for name in COLLECTORS}}


def _rl(make: Callable[..., Json], mains: Mapping[str, str]) -> Callable[[Options], Json]:
    def build(options: Options) -> Json:
        # Collectors of restartPolicy Always, the default, are restarted in place by their kubelet.
        templates = {role: template_of(main, options, restartPolicy="Never") for role, main in mains.items()}
        spec = {"collector": {"template": templates["collector"]}}
        job = make("job", coordinator=templates["coordinator"], spec=spec, status={"declared": DECLARED})
        return with_options(job, options)

    return build


_DIJOB = _rl(a_dijob, {"coordinator": "di-container", "collector": "di-container"})
_NERVEXJOB = _rl(a_nervexjob, {"coordinator": "coordinator", "collector": "collector"})


def _rl_row(name: str, build: Callable[[Options], Json], contract: str, victim: str, main: str, related: Any) -> Row:
    role, is_all = _role_of(contract), contract in (COORDINATOR_OF_ALL, COLLECTOR_OF_ALL)
    scope = ((("runPolicy", "restartScope"), "All"),) if is_all else ()
    return Row(
        name=name,
        contract=contract,
        build=lambda options: build(replace(options, spec=(*scope, *options.spec))),
        size=4 if related else 3,
        victim=victim,
        main=main,
        restarts_all=is_all,
        result=_result_of_phase,
        is_running=lambda job: job["status"].get("phase") == "Running",
        counted=None,
        suspend=("runPolicy", "suspend"),
        deadline=("runPolicy", "activeDeadlineSeconds"),
        ttl=("runPolicy", "ttlSecondsAfterFinished"),
        template=(role, "template"),
        deciding=("job-coordinator",),
        ended={"phase": "Succeeded", "conditions": [_a_condition("Succeeded")]},
        related=related,
    )


def _a_condition(type_: str, **more: str) -> Json:
    at = "2025-12-31T23:00:00Z"
    return {"type": type_, "status": "True", "lastUpdateTime": at, "lastTransitionTime": at, **more}


# --- DIJob of v2alpha1: a learner and two collectors ---


def _ditask(options: Options) -> Json:
    template = template_of("di-container", options)
    return with_options(a_ditask("job", a_task("learner", 1, template), a_task("collector", 2, template)), options)


# --- the rows ---

AITJ = Row(
    name="aitrainingjob",
    contract=AITRAININGJOB,
    build=_aitrainingjob,
    size=3,
    victim="job-trainer-1",
    main="aitj-main",
    restarts_all=True,
    result=_result_of_phase,
    is_running=lambda job: job["status"].get("phase") == "Running",
    counted=used_of,
    suspend=("suspend",),
    deadline=("timeLimit",),
    ttl=("ttlSecondsAfterFinished",),
    template=("replicaSpecs", "trainer", "template"),
    replicas=("replicaSpecs", "trainer", "replicas"),
    ended={"phase": "Succeed", "conditions": [_a_condition("Succeed")], "RestartReplicaName": ""},
)

KUBEFLOW = Row(
    name="mxjob",
    contract=MXJOB,
    build=_mxjob,
    size=4,
    victim="job-worker-1",
    main=MXNET,
    restarts_all=True,
    result=_mxjob_result,
    is_running=lambda job: is_true(job, "Running"),
    counted=used_of,
    suspend=("runPolicy", "suspend"),
    deadline=("runPolicy", "activeDeadlineSeconds"),
    ttl=("runPolicy", "ttlSecondsAfterFinished"),
    template=("mxReplicaSpecs", "Worker", "template"),
    clean=("runPolicy", "cleanPodPolicy"),
    replicas=("mxReplicaSpecs", "Worker", "replicas"),
    ended={"conditions": [_a_condition("Succeeded")], "completionTime": "2025-12-31T23:00:00Z"},
)

DITASK = Row(
    name="dijob-v2alpha1",
    contract=TASKS,
    build=_ditask,
    size=3,
    victim="job-collector-1",
    main="di-container",
    restarts_all=False,
    result=_result_of_phase,
    is_running=lambda job: job["status"].get("phase") == "Running",
    counted=lambda job: int(job["status"].get("restarts", 0)),
    suspend=("runPolicy", "suspend"),
    deadline=("runPolicy", "activeDeadlineSeconds"),
    ttl=("runPolicy", "ttlSecondsAfterFinished"),
    template=("tasks", 1, "template"),
    no_restarts=((("backoffLimit",), 0),),
    replicas=("tasks", 1, "replicas"),
    ended={"phase": "Succeeded", "conditions": [_a_condition("Succeeded")]},
    has_one_service=True,
)


def _mlkube_row(name: str, group: str) -> Row:
    return Row(
        name=name,
        contract=MXJOB_MLKUBE,
        build=_mlkube(group),
        size=4,
        victim="job-worker-1kkf-1",
        main=MXNET,
        restarts_all=True,
        result=_mlkube_result,
        is_running=_mlkube_is_running,
        counted=used_of,
        suspend=("suspend",),
        deadline=("activeDeadlineSeconds",),
        ttl=("ttlSecondsAfterFinished",),
        template=("replicaSpecs", 2, "template"),
        no_restarts=((("backoffLimit",), 0),),
        replicas=("replicaSpecs", 2, "replicas"),
        ended={"phase": "Done", "state": "Succeeded"},
    )


MLKUBE = (_mlkube_row("mxjob-mxnet.mlkube.io", "mxnet.mlkube.io"), _mlkube_row("mxjob-mlkube.io", "mlkube.io"))

_RELATED = ((AGGREGATOR_CONFIG, an_agconfig()),)


def _rl_rows(*roles: tuple[str, str, str]) -> tuple[Row, ...]:
    """Rows of both kinds; a role is its contract, the name of the victim and a suffix of the row's name."""
    return tuple(
        _rl_row(f"{kind}{suffix}", build, contract, victim, main or _role_of(contract), related)
        for kind, build, main, related in (
            ("dijob", _DIJOB, "di-container", ()),
            ("nervexjob", _NERVEXJOB, "", _RELATED),
        )
        for contract, victim, suffix in roles
    )


def _role_of(contract: str) -> str:
    return COLLECTOR if contract in (COLLECTOR, COLLECTOR_OF_ALL) else COORDINATOR


BY_POD: Sequence[Row] = (
    AITJ,
    KUBEFLOW,
    DITASK,
    *MLKUBE,
    *_rl_rows((COORDINATOR, "job-coordinator", "-coordinator"), (COLLECTOR, COLLECTORS[0], "-collector")),
    *_rl_rows(
        (COORDINATOR_OF_ALL, "job-coordinator", "-coordinator-of-all"),
        (COLLECTOR_OF_ALL, COLLECTORS[0], "-collector-of-all"),
    ),
)
"""For faults of one pod: those around a coordinator have two kinds of pods, with contracts of their own."""

BY_JOB: Sequence[Row] = (AITJ, KUBEFLOW, DITASK, *MLKUBE, *_rl_rows((DI, "job-coordinator", "")))
"""For what happens to a job as a whole."""
