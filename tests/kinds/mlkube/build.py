"""Builders of MxJobs and of what they own, for the tests of the kind: `a_mxjob(servers=2)`, `a_job(job, "worker")`.

Names and labels are spelt out as the spec spells them.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from tests.build import NOW, STAMP, Json, a_container, a_template, view_of, view_of_child, view_of_pod, view_of_service
from trainmaster.core.ids import JOB
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Plan
from trainmaster.core.view import ChildView, NodeView, PodView, ServiceView
from trainmaster.kinds.base import Settings
from trainmaster.kinds.mlkube.kind import MxJobKind

Child = PodView | ServiceView | ChildView

ID = "1kkf"
"""The runtime id of jobs that have one."""


def a_spec(type_: str, replicas: int = 1, template: Json | None = None, **fields: Any) -> Json:
    """An entry of replicaSpecs."""
    given = a_template(a_container("mxnet"), restartPolicy="OnFailure") if template is None else template
    return {"mxReplicaType": type_, "replicas": replicas, "template": given, **fields}


def a_mxjob(
    name: str = "digits",
    *,
    mode: str = "dist",
    servers: int = 2,
    workers: int = 3,
    specs: Iterable[Json] | None = None,
    status: Json | None = None,
    **spec: Any,
) -> Json:
    """A job with a scheduler, servers and workers, or with one worker alone."""
    group = [a_spec("SCHEDULER"), a_spec("SERVER", servers), a_spec("WORKER", workers)]
    given = list(specs) if specs is not None else group if mode == "dist" else [a_spec("WORKER")]
    job: Json = {
        "apiVersion": "mxnet.mlkube.io/v1beta1",
        "kind": "MxJob",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-of-{name}",
            "generation": 1,
            "resourceVersion": "100",
            "creationTimestamp": STAMP,
        },
        "spec": {"jobMode": mode, "replicaSpecs": given, **spec},
    }
    return job | {"status": status} if status is not None else job


def a_begun(phase: str = "Creating", state: str = "Unknown", status: Json | None = None, **given: Any) -> Json:
    """A job whose names are on record."""
    stored = {"phase": phase, "state": state, "runtimeId": ID, "observedGeneration": 1, "startTime": STAMP}
    return a_mxjob(status=stored | (status or {}), **given)


def id_of(job: Json) -> str:
    return str(job.get("status", {}).get("runtimeId", ID))


def name_of(job: Json, role: str, index: int = 0) -> str:
    return f"{job['metadata']['name']}-{role}-{id_of(job)}-{index}"


def labels_of(job: Json, role: str, index: int = 0) -> dict[str, str]:
    return {
        "mxnet.mlkube.io": "",
        "mx_job": job["metadata"]["name"],
        "job_type": role.upper(),
        "runtime_id": id_of(job),
        "task_index": str(index),
        "app.kubernetes.io/managed-by": "trainmaster",
    }


def owner_of(job: Json) -> Json:
    return {
        "apiVersion": job["apiVersion"],
        "kind": "MxJob",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def a_job(
    job: Json,
    role: str,
    index: int = 0,
    *,
    succeeded: int = 0,
    conditions: Mapping[str, tuple[str, str]] | None = None,
    suspend: bool = False,
    deleting: bool = False,
    name: str = "",
    limit: int = 6,
    is_adopted: bool = False,
    started: str = "",
) -> ChildView:
    """A batch Job of the MxJob; ``conditions`` are True, each with its reason and message; ``limit`` is how often its
    pods may fail. One that ``is_adopted`` was created by the mxnet-operator. ``started`` is since when its controller
    creates pods for it."""
    name = name or name_of(job, role, index)
    metadata: Json = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-of-job-{name}",
        "resourceVersion": "200",
        "labels": labels_of(job, role, index),
        "ownerReferences": [owner_of(job)],
    }
    if is_adopted:
        del metadata["labels"]["mx_job"]
    told = [
        {"type": type_, "status": "True", "reason": reason, "message": message}
        for type_, (reason, message) in (conditions or {}).items()
    ]
    return view_of_child(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata | ({"deletionTimestamp": STAMP} if deleting else {}),
            "spec": {"suspend": suspend, "backoffLimit": limit},
            "status": ({"succeeded": succeeded, "conditions": told} if succeeded or told else {})
            | ({"startTime": started} if started else {}),
        }
    )


def a_pod(
    job: Json,
    role: str,
    index: int = 0,
    *,
    phase: str = "Running",
    code: int | None = None,
    why: str = "Error",
    waiting: str = "",
    last: int | None = None,
    reason: str = "",
    unschedulable: str = "",
    restart_policy: str = "Never",
    suffix: str = "aaaaa",
    deleting: bool = False,
    forced: bool = False,
    disruption: str = "",
    node: str = "node-1",
    more: Iterable[Json] = (),
) -> PodView:
    """A pod of a replica's batch Job. ``code`` is how its main container ended, ``last`` how it ended before it was
    started again, ``more`` are the states of other containers. ``forced``: it is deleted without a grace period."""
    name = f"{name_of(job, role, index)}-{suffix}"
    state: Json = {"running": {"startedAt": STAMP}}
    if code is not None:
        state = {"terminated": {"exitCode": code, "reason": why if code else "Completed"}}
    elif waiting:
        state = {"waiting": {"reason": waiting}}
    main: Json = {"name": "mxnet", "state": state}
    if last is not None:
        main["lastState"] = {"terminated": {"exitCode": last, "reason": why}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name_of(job, role, index), "controller": True}
    owner["uid"] = f"uid-of-job-{owner['name']}"
    metadata: Json = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-of-{name}",
        "resourceVersion": "300",
        "labels": labels_of(job, role, index),
        "ownerReferences": [owner],
    }
    status: Json = {"phase": phase, "containerStatuses": [main, *more] if phase != "Pending" or waiting else []}
    if unschedulable:
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "message": unschedulable}]
    if disruption:
        status["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": disruption}]
    if deleting or forced:
        metadata |= {"deletionTimestamp": STAMP, "deletionGracePeriodSeconds": 0 if forced else 30}
    return view_of_pod(
        {
            "metadata": metadata,
            "spec": {"nodeName": node, "restartPolicy": restart_policy, "containers": []},
            "status": status | ({"reason": reason} if reason else {}),
        }
    )


def a_service(job: Json, name: str = "") -> ServiceView:
    name = name or name_of(job, "scheduler")
    return view_of_service(
        {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-of-service-{name}",
                "resourceVersion": "200",
                "labels": labels_of(job, "scheduler"),
                "ownerReferences": [owner_of(job)],
            }
        }
    )


def places_of(job: Json) -> list[tuple[str, int]]:
    """Every replica, as (role, index)."""
    order = ("SCHEDULER", "SERVER", "WORKER")
    specs = sorted(job["spec"]["replicaSpecs"], key=lambda spec: order.index(spec["mxReplicaType"]))
    return [(spec["mxReplicaType"].lower(), index) for spec in specs for index in range(spec["replicas"])]


def running(job: Json, *besides: Child, without: Iterable[tuple[str, int]] = ()) -> list[Child]:
    """The job with its service, its Jobs, and a running pod of each of them, but for some, in whose place ``besides``
    stand."""
    group = [place for place in places_of(job) if place not in set(without)]
    jobs = [a_job(job, *place) for place in group]
    pods = [a_pod(job, *place) for place in group]
    service = [a_service(job)] if job["spec"]["jobMode"] == "dist" else []
    return [*service, *jobs, *pods, *besides]


def plan_of(
    job: Json,
    children: Iterable[Child] = (),
    *,
    now: datetime = NOW,
    settings: Settings | None = None,
    taken: Iterable[int] = (),
    nodes: Mapping[str, NodeView] | None = None,
) -> Plan:
    kind = MxJobKind(settings or Settings())
    return kind.plan(view_of(job), observed(children, taken=taken, nodes=nodes), now)


def observed(
    children: Iterable[Child], *, taken: Iterable[int] = (), nodes: Mapping[str, NodeView] | None = None
) -> Observed:
    found = sorted(children, key=lambda child: child.key.name)
    return Observed.of(
        [child for child in found if isinstance(child, PodView)],
        [child for child in found if isinstance(child, ServiceView)],
        MxJobKind.slots,
        frozenset(taken),
        None,
        {JOB: {child.key.name: child for child in found if isinstance(child, ChildView)}},
        nodes,
    )


def status_of(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def condition_of(plan: Plan, type_: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition; empty when there is none."""
    found = [c for c in status_of(plan).get("conditions", ()) if c["type"] == type_]
    return next(((c["status"], c.get("reason", ""), c.get("message", "")) for c in found), ("", "", ""))
