"""What is created: jobs as their users write them, and the pods and services that our own kind plans for them."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import msgspec

from bench.load import Request
from testbed.admin import MERGE, path_of
from trainmaster.core.condition import is_true
from trainmaster.core.ids import CONFIG_MAP, SERVICE, Key, Resource
from trainmaster.core.observed import Observed, SlotLabels
from trainmaster.core.plan import Create
from trainmaster.core.view import ChildView, JobView, ServiceView
from trainmaster.kinds import aitrainingjob, ditask, kubeflow_status, mlkube, mxjob
from trainmaster.kinds.aitrainingjob.types import RESOURCE
from trainmaster.kinds.base import Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds

Object = dict[str, Any]

PODS_PER_JOB = 4
MAX_PASSES = 6
BIG = "big"
"""The name of the job that is alone of its size."""
TRAINING_JOBS = "elasticdeeplearning.ai/v1/aitrainingjobs"
MX_JOBS = "kubeflow.org/v1/mxjobs"
FIRST_MX_JOBS = "mxnet.mlkube.io/v1beta1/mxjobs"
TASK_JOBS = "diengine.opendilab.org/v2alpha1/dijobs"
BATCH_JOBS = "batch/v1/jobs"

_CONTAINER: Object = {
    "name": "aitj-trainer",
    "image": "registry.example/team/trainer:2026.11",
    "command": ["python", "-m", "train", "--config=/etc/train/config.yaml"],
    "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
    "ports": [{"name": "aitj-24446", "containerPort": 24446}],
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
}


def name_of(index: int) -> str:
    return f"job-{index:05}"


class Sort(NamedTuple):
    """A kind of job: how one is made, and how its life is read."""

    resource: str
    body: Callable[[str, str], Object]
    """By namespace and name."""
    container: str
    name_label: str
    """The label of a pod that has the name of its job."""
    runs: Callable[[bytes], bool]
    """By a status: it says that the job runs, and with all its pods."""
    ended: frozenset[str]
    """The phases at the end."""

    @property
    def has_batch_jobs(self) -> bool:
        return BATCH_JOBS in self.children(1)

    def pods(self, jobs: int) -> int:
        """How many pods so many jobs have in the end; each of their batch Jobs has one."""
        made = self.children(jobs)
        return made.get("pods", 0) + made.get(BATCH_JOBS, 0)

    def children(self, jobs: int) -> dict[str, int]:
        """How many objects of each resource so many jobs make necessary."""
        each = Counter(_resource(create) for create in _planned(self.body("bench", name_of(0))))
        return {resource: jobs * number for resource, number in each.items()}


def training_jobs(namespace: str, jobs: int, sort: Sort | None = None) -> Iterator[Request]:
    """Requests that create jobs; AITrainingJobs by default."""
    made = sort or TRAINING
    path = path_of(made.resource, namespace)
    return (Request("POST", path, made.body(namespace, name_of(i))) for i in range(jobs))


def batch_jobs(namespace: str, jobs: int) -> Iterator[Request]:
    """Requests that create Indexed batch Jobs of four pods of the same container."""
    path = path_of(BATCH_JOBS, namespace)
    return (Request("POST", path, _batch_job(namespace, name_of(i))) for i in range(jobs))


def children(namespace: str, jobs: int, sort: Sort | None = None) -> list[Request]:
    """Requests that create what the operator creates for `training_jobs`: the same bodies in the same order."""
    return [
        Request("POST", path_of(_resource(create), namespace) + "?fieldManager=trainmaster", create.body)
        for i in range(jobs)
        for create in _planned((sort or TRAINING).body(namespace, name_of(i)))
    ]


def pod_reports(namespace: str, pods: Iterable[str], status: Object) -> Iterator[Request]:
    """Requests that report the same status for every one of these pods, as its kubelet would."""
    return (Request("PATCH", path_of("pods", namespace, pod, "status"), {"status": status}, MERGE) for pod in pods)


def big_job(namespace: str, pods: int) -> Request:
    """A request that creates one job of so many pods, all of which start again when one fails."""
    return Request("POST", path_of(TRAINING_JOBS, namespace), _big_job(namespace, pods))


def big_children(namespace: str, pods: int) -> list[Request]:
    """Requests that create what the operator creates for it."""
    return [
        Request("POST", path_of(create.resource.plural, namespace) + "?fieldManager=trainmaster", create.body)
        for create in _planned(_big_job(namespace, pods))
    ]


def small_job(namespace: str, name: str, pods: int = 1) -> Request:
    """A request that creates a job of so few pods."""
    job = _training_job(namespace, name)
    job["spec"]["replicaSpecs"]["trainer"]["replicas"] = pods
    return Request("POST", path_of(TRAINING_JOBS, namespace), job)


def running() -> Object:
    state = {"running": {"startedAt": _now()}}
    ready = [{"type": kind, "status": "True", "lastTransitionTime": _now()} for kind in ("PodScheduled", "Ready")]
    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "startTime": _now(),
        "conditions": ready,
        "containerStatuses": [_container_status(state, ready=True)],
    }


def succeeded(container: str) -> Object:
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": _now(), "finishedAt": _now()}
    status = _container_status({"terminated": ended}, ready=False) | {"name": container}
    return {"phase": "Succeeded", "containerStatuses": [status]}


def failed() -> Object:
    ended = {"exitCode": 1, "reason": "Error", "startedAt": _now(), "finishedAt": _now()}
    return {"phase": "Failed", "containerStatuses": [_container_status({"terminated": ended}, ready=False)]}


def _container_status(state: Object, *, ready: bool) -> Object:
    name, image = _CONTAINER["name"], _CONTAINER["image"]
    return {"name": name, "image": image, "imageID": "", "ready": ready, "restartCount": 0, "state": state}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _training_job(namespace: str, name: str) -> Object:
    replica = {"replicas": PODS_PER_JOB, "template": {"spec": {"containers": [_CONTAINER]}}}
    return {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicaSpecs": {"trainer": replica}},
    }


def _big_job(namespace: str, pods: int) -> Object:
    job = _training_job(namespace, BIG)
    job["spec"]["replicaSpecs"]["trainer"] |= {
        "replicas": pods,
        "restartPolicy": "OnFailure",
        "restartScope": "All",
        "restartBackoffSeconds": 0,
    }
    return job


def _mx_job(namespace: str, name: str) -> Object:
    template = {"spec": {"containers": [_CONTAINER | {"name": "mxnet"}]}}
    counts = {"Scheduler": 1, "Server": 1, "Worker": 2}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MXJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "jobMode": "MXTrain",
            "mxReplicaSpecs": {role: {"replicas": count, "template": template} for role, count in counts.items()},
        },
    }


def _first_mx_job(namespace: str, name: str) -> Object:
    template = {"spec": {"containers": [_CONTAINER | {"name": "mxnet"}], "restartPolicy": "OnFailure"}}
    counts = {"SCHEDULER": 1, "SERVER": 2, "WORKER": 3}
    replicas = [{"mxReplicaType": role, "replicas": count, "template": template} for role, count in counts.items()]
    return {
        "apiVersion": "mxnet.mlkube.io/v1beta1",
        "kind": "MxJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"jobMode": "dist", "replicaSpecs": replicas},
    }


def _task_job(namespace: str, name: str) -> Object:
    template = {"spec": {"containers": [_CONTAINER | {"name": "di-container"}]}}
    counts = {"learner": 1, "evaluator": 1, "collector": 2}
    return {
        "apiVersion": "diengine.opendilab.org/v2alpha1",
        "kind": "DIJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"tasks": [{"type": type_, "replicas": n, "template": template} for type_, n in counts.items()]},
    }


class _Phase(msgspec.Struct):
    phase: str = ""


_PHASE = msgspec.json.Decoder(_Phase)
_MX_STATUS = msgspec.json.Decoder(kubeflow_status.JobStatus)


def phase_of(status: bytes) -> str:
    return _PHASE.decode(status).phase


def _is_in_phase_running(status: bytes) -> bool:
    """Those kinds enter it when the last pod runs."""
    return phase_of(status) == "Running"


def _runs_as_a_whole(status: bytes) -> bool:
    """An MXJob is Running as soon as its scheduler is: what has to be reported of the last pod is that it is active."""
    found = _MX_STATUS.decode(status)
    active = sum(counted.active for counted in found.replica_statuses.values())
    return is_true(found.conditions, kubeflow_status.RUNNING) and active == PODS_PER_JOB


TRAINING = Sort(
    TRAINING_JOBS,
    _training_job,
    _CONTAINER["name"],
    aitrainingjob.labels.TRAINING_JOB_NAME,
    _is_in_phase_running,
    aitrainingjob.status.ENDED,
)
MX = Sort(MX_JOBS, _mx_job, mxjob.labels.CONTAINER, mxjob.labels.JOB_NAME, _runs_as_a_whole, kubeflow_status.ENDED)
FIRST_MX = Sort(
    FIRST_MX_JOBS,
    _first_mx_job,
    mlkube.labels.CONTAINER,
    mlkube.labels.JOB_NAME,
    _is_in_phase_running,
    mlkube.status.ENDED,
)
"""Six batch Jobs each, whose pods are somebody else's work."""
TASKS = Sort(
    TASK_JOBS,
    _task_job,
    ditask.labels.CONTAINER,
    ditask.labels.JOB,
    _is_in_phase_running,
    ditask.status.ENDED,
)
SORTS = {sort.resource: sort for sort in (TRAINING, MX, FIRST_MX, TASKS)}


def _batch_job(namespace: str, name: str) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "completionMode": "Indexed",
            "completions": PODS_PER_JOB,
            "parallelism": PODS_PER_JOB,
            "template": {"spec": {"containers": [_CONTAINER], "restartPolicy": "Never"}},
        },
    }


def _planned(job: Object) -> tuple[Create, ...]:
    """What is created for a job that is new, in several passes: a pass has at most 500 creations, and a large
    job gets a ConfigMap before its pods. The uid is made up, and as long as a real one."""
    key = Key(job["metadata"]["namespace"], job["metadata"]["name"])
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, str(key)))
    job["metadata"] |= {"uid": uid, "generation": 1}
    kind = _kinds(job["apiVersion"], job["kind"]).of(msgspec.json.encode(job))
    created: dict[tuple[Resource, Key], Create] = {}
    for _ in range(MAX_PASSES):
        view = JobView(key, uid, 1, deleting=False, raw=msgspec.json.encode(job))
        # Not `plan`, which leaves for the next pass what is too much for one.
        plan = kind.decide(kind.decode(view), _observed(created, kind.slots), datetime.now(UTC))
        known = len(created)
        created |= {(create.resource, create.key): create for create in plan.creates}
        if known and known == len(created):
            return tuple(created.values())
        job["status"] = dict(plan.status or job.get("status", {}))
    raise ValueError(f"{job['kind']} {key}: not all is created after {MAX_PASSES} passes")


def _observed(created: Iterable[tuple[Resource, Key]], slots: SlotLabels) -> Observed:
    """All but pods and batch Jobs: without them, a job stays new."""
    services = [ServiceView(key, "uid", 1, None, deleting=False) for resource, key in created if resource == SERVICE]
    maps = {
        key.name: ChildView(key, "uid", 1, None, False, b"{}") for resource, key in created if resource == CONFIG_MAP
    }
    return Observed.of((), services, slots, children={CONFIG_MAP: maps})


def _resource(create: Create) -> str:
    """As the admin client names it."""
    resource = create.resource
    return f"{resource.api_version}/{resource.plural}" if resource.group else resource.plural


@cache
def _kinds(api_version: str, name: str) -> ResourceKinds:
    named = (api_version, name)
    served = all_resource_kinds(Settings())
    return next(k for k in served if any((each.api_version, each.kind) == named for each in k.resources))
