"""Builders of jobs and of what they own, for every suite: `an_aitj(trainer=2, ps=1)`, `a_pod(job, "trainer", 0)`.

A job is the dict that a user would write. Pods and services are JSON read by the real codecs, so a test sees what the
operator would see. Names and labels are spelt out here as the specs spell them: a builder that took them from
`trainmaster.kinds` could never disagree with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from trainmaster.core.ids import CONFIG_MAP, SERVICE, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Create, Delete, Plan
from trainmaster.core.view import (
    CANDIDATE_CODEC,
    CHILD_CODEC,
    JOB_CODEC,
    NODE_CODEC,
    POD_CODEC,
    SERVICE_CODEC,
    WHOLE_CANDIDATE_CODEC,
    CandidateView,
    ChildView,
    JobView,
    NodeView,
    PodView,
    ServiceView,
)
from trainmaster.kinds.base import Kind, Settings
from trainmaster.kinds.registry import all_resource_kinds
from trainmaster.kinds.resource_kinds import ResourceKinds

Json = dict[str, Any]
Child = PodView | ServiceView | ChildView

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
STAMP = "2026-11-15T12:00:00Z"
"""NOW as it stands on the wire."""

RL = {
    "DIJob": ("diengine.opendilab.org", "dijob-name", "di-operator"),
    "NerveXJob": ("nervex.sensetime.com", "nervexjob-name", "nervex-operator"),
}
"""The kinds around a coordinator: the values of their labels, and the label that names a job."""

SETTINGS = Settings(server_url="di-server.di-system:8080")

# --- jobs --------------------------------------------------------------------------------------


def a_container(name: str, *, ports: Mapping[str, int] | None = None, **fields: Any) -> Json:
    container: Json = {"name": name, "image": "registry.example/train:1", **fields}
    if ports:
        container["ports"] = [{"name": port, "containerPort": number} for port, number in ports.items()]
    return container


def a_template(*containers: Json, labels: Json | None = None, annotations: Json | None = None, **pod_spec: Any) -> Json:
    template: Json = {"spec": {"containers": list(containers), **pod_spec}}
    metadata = {"labels": labels, "annotations": annotations}
    if given := {key: value for key, value in metadata.items() if value is not None}:
        template["metadata"] = given
    return template


def a_replica(replicas: int = 1, template: Json | None = None, **fields: Any) -> Json:
    """One entry of an AITrainingJob's replicaSpecs; ``fields`` are spelt as on the wire."""
    if template is None:
        template = a_template(a_container("aitj-main", ports={"aitj-24446": 24446}))
    return {"replicas": replicas, "template": template, **fields}


def an_aitj(
    name: str = "mnist",
    *,
    namespace: str = "ml",
    clean: str = "",
    complete: str = "",
    fail: str = "",
    spec: Json | None = None,
    status: Json | None = None,
    generation: int = 1,
    labels: Json | None = None,
    roles: Mapping[str, int | Json] | None = None,
    **more_roles: int | Json,
) -> Json:
    """An AITrainingJob; a role is a number of replicas or an entry made by ``a_replica``. One trainer by default.

    ``roles`` takes names that are no Python identifiers.
    """
    policies = {"cleanPodPolicy": clean, "completePolicy": complete, "failPolicy": fail}
    written = {key: value for key, value in policies.items() if value}
    wanted = {**(roles or {}), **more_roles} or {"trainer": 1}
    entries = {role: a_replica(entry) if isinstance(entry, int) else entry for role, entry in wanted.items()}
    return _a_job(
        "elasticdeeplearning.ai/v1",
        "AITrainingJob",
        _metadata(name, namespace, generation, labels),
        {"replicaSpecs": entries, **written, **(spec or {})},
        status,
    )


def a_dijob(
    name: str = "cartpole",
    *,
    namespace: str = "rl",
    clean: str | None = None,
    coordinator: Json | None = None,
    spec: Json | None = None,
    status: Json | None = None,
    generation: int = 1,
    labels: Json | None = None,
) -> Json:
    """A DIJob of v1alpha1; ``coordinator`` is its pod template."""
    written = {} if clean is None else {"cleanPodPolicy": clean}
    template = a_template(a_container("di-container")) if coordinator is None else coordinator
    return _a_job(
        "diengine.opendilab.org/v1alpha1",
        "DIJob",
        _metadata(name, namespace, generation, labels),
        {"coordinator": {"template": template}, **written, **(spec or {})},
        status,
    )


def a_task(name: str = "", replicas: int = 1, template: Json | None = None, **fields: Any) -> Json:
    """An entry of spec.tasks. A name that is a type stands for the type."""
    named = {"type": name} if name in ("learner", "collector", "evaluator") else {"name": name} if name else {}
    given = a_template(a_container("di-container")) if template is None else template
    return {**named, "replicas": replicas, "template": given, **fields}


def a_ditask(
    name: str = "cartpole",
    *tasks: Json,
    namespace: str = "rl",
    spec: Json | None = None,
    status: Json | None = None,
    generation: int = 1,
    labels: Json | None = None,
) -> Json:
    """A DIJob of v2alpha1; unless told with one learner and two collectors."""
    return _a_job(
        "diengine.opendilab.org/v2alpha1",
        "DIJob",
        _metadata(name, namespace, generation, labels),
        {"tasks": list(tasks) or [a_task("learner"), a_task("collector", 2)], **(spec or {})},
        status,
    )


def a_nervexjob(
    name: str = "cartpole",
    *,
    namespace: str = "rl",
    coordinator: Json | None = None,
    spec: Json | None = None,
    status: Json | None = None,
    generation: int = 1,
) -> Json:
    """A NerveXJob; ``coordinator`` is its pod template."""
    template = a_template(a_container("coordinator")) if coordinator is None else coordinator
    return _a_job(
        "nervex.sensetime.com/v1alpha1",
        "NerveXJob",
        _metadata(name, namespace, generation, None),
        {"coordinator": {"template": template}, **(spec or {})},
        status,
    )


def an_mx_replica(replicas: int = 1, template: Json | None = None, **fields: Any) -> Json:
    """One entry of an MXJob's mxReplicaSpecs; ``fields`` are spelt as on the wire."""
    given = a_template(a_container("mxnet")) if template is None else template
    return {"replicas": replicas, "template": given, **fields}


def an_mxjob(
    name: str = "mnist",
    *,
    namespace: str = "ml",
    mode: str = "MXTrain",
    policy: Json | None = None,
    spec: Json | None = None,
    status: Json | None = None,
    generation: int = 1,
    **roles: int | Json,
) -> Json:
    """An MXJob; a role is a number of replicas or an entry made by ``an_mx_replica``. One of each by default."""
    wanted = roles or {"Scheduler": 1, "Server": 1, "Worker": 2}
    entries = {role: an_mx_replica(entry) if isinstance(entry, int) else entry for role, entry in wanted.items()}
    return _a_job(
        "kubeflow.org/v1",
        "MXJob",
        _metadata(name, namespace, generation, None),
        {"jobMode": mode, "mxReplicaSpecs": entries, "runPolicy": policy or {}, **(spec or {})},
        status,
    )


def an_agconfig(template: Json | None = None) -> Json:
    """An AggregatorConfig, by default one of NerveXJobs; ``template`` is that of the aggregator."""
    given = a_template(a_container("aggregator", ports={"aggregator": 80})) if template is None else template
    return {
        "apiVersion": "nervex.sensetime.com/v1alpha1",
        "kind": "AggregatorConfig",
        "metadata": _metadata("aggregator-config", "nervex-system", 1, None),
        "spec": {"aggregator": {"template": given}},
    }


def with_aggregator(job: Json, agconfig: Json | None = None) -> Json:
    """The NerveXJob after the port of its aggregator was stored."""
    template = (agconfig or an_agconfig())["spec"]["aggregator"]["template"]
    port = template["spec"]["containers"][0].get("ports", [{"containerPort": 22272}])[0]["containerPort"]
    return {**job, "status": {**job.get("status", {}), "declared": {"aggregator": {"port": port}}}}


def _metadata(name: str, namespace: str, generation: int, labels: Json | None) -> Json:
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-of-{name}",
        "generation": generation,
        "resourceVersion": "100",
        "creationTimestamp": STAMP,
    }
    return metadata | {"labels": labels} if labels else metadata


def _a_job(api_version: str, kind: str, metadata: Json, spec: Json, status: Json | None) -> Json:
    job = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
    return job | {"status": status} if status is not None else job


def with_status(job: Json, status: Plan | Mapping[str, Any]) -> Json:
    """The job after a status, or that of a plan, was stored."""
    stored = status.status if isinstance(status, Plan) else status
    return job if stored is None else {**job, "status": dict(stored)}


def with_spec(job: Json, **fields: Any) -> Json:
    """The job after its user edited fields of the spec."""
    meta = job["metadata"]
    return {**job, "metadata": {**meta, "generation": meta["generation"] + 1}, "spec": {**job["spec"], **fields}}


# --- what a job owns ---------------------------------------------------------------------------


def is_rl(job: Json) -> bool:
    """It has a coordinator."""
    return job["kind"] in RL and "tasks" not in job["spec"]


def child_name(job: Json, role: str, index: int = 0) -> str:
    """The name of a replica's pod and service."""
    name = job["metadata"]["name"]
    return f"{name}-{role}" if is_rl(job) else f"{name}-{role.lower()}-{index}"


def child_labels(job: Json, role: str, index: int = 0) -> dict[str, str]:
    """The labels by which a child says whose replica it is."""
    name = job["metadata"]["name"]
    if is_rl(job):
        group, label, controller = RL[job["kind"]]
        return {
            "group-name": group,
            label: name,
            "controller-name": controller,
            "replica-type": role,
            "pod-name": child_name(job, role),
        }
    if job["kind"] == "DIJob":
        type_ = next(task.get("type", "none") for task in job["spec"]["tasks"] if role in (*task.values(),))
        return {
            "diengine/job": name,
            "diengine/operator": "di-operator",
            "diengine/pod": child_name(job, role, index),
            "diengine/task-type": type_,
            "diengine/task-name": role,
            "diengine/task-rank": str(index),
        }
    if job["kind"] == "MXJob":
        return {
            "training.kubeflow.org/operator-name": "mxjob-controller",
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/replica-type": role.lower(),
            "training.kubeflow.org/replica-index": str(index),
        }
    return {
        "GroupName": "elasticdeeplearning.ai",
        "TrainingJobName": name,
        "TrainingJobReplicaName": role.lower(),
        "TrainingJobReplicaIndex": str(index),
    }


def owner_reference(job: Json) -> Json:
    reference = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    return reference if is_rl(job) else reference | {"blockOwnerDeletion": True}


ContainerState = int | tuple[int, str] | str | None
"""None runs, a number is its exit code, with another reason than Error if there is one, a word is why it waits."""


def pod_json(
    job: Json,
    role: str,
    index: int = 0,
    *,
    phase: str = "",
    exit_code: int | None = None,
    containers: Mapping[str, ContainerState] | None = None,
    node: str | None = None,
    reason: str = "",
    message: str = "",
    unschedulable: str = "",
    deleting: bool = False,
    restart_policy: str = "Never",
    name: str = "",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    init: Mapping[str, ContainerState] | None = None,
    started: str = STAMP,
    devices: Mapping[str, int] | None = None,
    health: Mapping[str, Sequence[str]] | None = None,
    ready: bool | None = None,
) -> Json:
    """A pod as the API server would show it; ``a_pod`` says what the arguments mean."""
    if not phase:
        phase = "Running" if exit_code is None else "Failed" if exit_code else "Succeeded"
    if node is None:
        node = "" if phase == "Pending" else "node-1"
    if containers is None:
        main = {"DIJob": "di-container", "NerveXJob": role, "MXJob": "mxnet"}.get(job["kind"], "aitj-main")
        containers = {main: exit_code} if phase != "Pending" else {}
    found: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _child_metadata(job, role, index, name=name, uid=uid, deleting=deleting, labels=labels),
        "spec": {"restartPolicy": restart_policy, "containers": []},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(phase == "Running" if ready is None else ready)}],
            "containerStatuses": [_container_status(c, s) for c, s in containers.items()],
        },
    }
    if node:
        found["spec"]["nodeName"] = node
        found["status"]["startTime"] = started
    if init:
        found["status"]["initContainerStatuses"] = [_container_status(c, s) for c, s in init.items()]
    if devices:
        limits = {device: str(number) for device, number in devices.items()}
        found["spec"]["containers"] = [{"name": "aitj-main", "resources": {"limits": limits}}]
    if health:
        found["status"]["containerStatuses"][0]["allocatedResourcesStatus"] = [
            {"name": device, "resources": [{"resourceID": f"GPU-{n}", "health": word} for n, word in enumerate(words)]}
            for device, words in health.items()
        ]
    if unschedulable:
        scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unschedulable}
        found["status"]["conditions"] = [scheduled]
    found["status"] |= {key: text for key, text in (("reason", reason), ("message", message)) if text}
    return found


def _container_status(name: str, state: ContainerState) -> Json:
    return {"name": name, "image": "registry.example/train:1", "state": _container_state(state)}


def _container_state(state: ContainerState) -> Json:
    match state:
        case None:
            return {"running": {"startedAt": STAMP}}
        case str():
            reason, _, said = state.partition(": ")
            return {"waiting": {"reason": reason, "message": said}}
        case (code, reason):
            return {"terminated": {"exitCode": code, "reason": reason}}
    return {"terminated": {"exitCode": state, "reason": "Error" if state else "Completed"}}


def _child_metadata(
    job: Json, role: str, index: int, *, name: str, uid: str, deleting: bool, labels: Mapping[str, str] | None
) -> Json:
    name = name or child_name(job, role, index)
    metadata: Json = {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "uid": uid or f"uid-of-{name}",
        "resourceVersion": "200",
        "labels": {**(child_labels(job, role, index) if labels is None else labels)},
        "ownerReferences": [owner_reference(job)],
    }
    return metadata | {"deletionTimestamp": STAMP} if deleting else metadata


def a_pod(
    job: Json,
    role: str,
    index: int = 0,
    *,
    phase: str = "",
    exit_code: int | None = None,
    containers: Mapping[str, ContainerState] | None = None,
    node: str | None = None,
    reason: str = "",
    message: str = "",
    unschedulable: str = "",
    deleting: bool = False,
    restart_policy: str = "Never",
    name: str = "",
    uid: str = "",
    labels: Mapping[str, str] | None = None,
    init: Mapping[str, ContainerState] | None = None,
    started: str = STAMP,
    devices: Mapping[str, int] | None = None,
    health: Mapping[str, Sequence[str]] | None = None,
    ready: bool | None = None,
) -> PodView:
    """A pod of the job, Running on node-1 unless told.

    ``exit_code`` ends its main container, and the pod if no phase is given. ``containers`` tells of each container:
    None runs, a number is its exit code, a word is why it waits, with a sentence after a colon. A Pending pod is on no
    node unless one is given. ``init`` tells of its init containers; ``devices`` are its limits, and
    ``health`` what its kubelet says of each of them. It is ``ready`` when it runs, unless told.
    """
    return view_of_pod(
        pod_json(
            job,
            role,
            index,
            phase=phase,
            exit_code=exit_code,
            containers=containers,
            node=node,
            reason=reason,
            message=message,
            unschedulable=unschedulable,
            deleting=deleting,
            restart_policy=restart_policy,
            name=name,
            uid=uid,
            labels=labels,
            init=init,
            started=started,
            devices=devices,
            health=health,
            ready=ready,
        )
    )


def a_service(job: Json, role: str, index: int = 0, *, deleting: bool = False, name: str = "") -> ServiceView:
    uid = f"uid-of-service-{name or child_name(job, role, index)}"
    return view_of_service(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _child_metadata(job, role, index, name=name, uid=uid, deleting=deleting, labels=None),
            "spec": {"clusterIP": "None"},
        }
    )


def a_node(
    name: str = "node-1",
    *,
    ready: str = "True",
    since: datetime | None = NOW,
    message: str = "",
    taints: Mapping[str, datetime | None] | None = None,
    conditions: Mapping[str, str] | None = None,
    devices: Mapping[str, int] | None = None,
    capacity: int = 8,
    version: int = 200,
) -> NodeView:
    """A node, ready unless told; ``taints`` have the time at which they came, ``conditions`` what they say."""
    return view_of_node(
        node_json(
            name,
            ready=ready,
            since=since,
            message=message,
            taints=taints,
            conditions=conditions,
            devices=devices,
            capacity=capacity,
            version=version,
        )
    )


def node_json(
    name: str = "node-1",
    *,
    ready: str = "True",
    since: datetime | None = NOW,
    message: str = "",
    taints: Mapping[str, datetime | None] | None = None,
    conditions: Mapping[str, str] | None = None,
    devices: Mapping[str, int] | None = None,
    capacity: int = 8,
    version: int = 200,
) -> Json:
    """A node as the API server would show it. ``devices`` are allocatable; it has ``capacity`` of each."""
    told = {"Ready": (ready, message), **{kind: ("True", said) for kind, said in (conditions or {}).items()}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": str(version)},
        "spec": {
            "taints": [{"key": key, "effect": "NoExecute", "timeAdded": added} for key, added in (taints or {}).items()]
        },
        "status": {
            "conditions": [
                {"type": kind, "status": status, "message": said, "lastTransitionTime": since}
                for kind, (status, said) in told.items()
            ],
            "allocatable": {"cpu": "8", **{device: str(number) for device, number in (devices or {}).items()}},
            "capacity": {"cpu": "8", **{device: str(capacity) for device in devices or {}}},
        },
    }


def replicas_of(job: Json) -> list[tuple[str, int]]:
    """Every slot of the job, as (role, index)."""
    if job["kind"] == "DIJob" and not is_rl(job):
        tasks = [(task.get("name") or task["type"], task.get("replicas", 1)) for task in job["spec"]["tasks"]]
        return [(name, index) for name, replicas in tasks for index in range(replicas)]
    if job["kind"] in RL:
        return [("coordinator", 0)] + ([("aggregator", 0)] if job["kind"] == "NerveXJob" else [])
    specs = job["spec"]["mxReplicaSpecs" if job["kind"] == "MXJob" else "replicaSpecs"]
    return [(role, index) for role in sorted(specs) for index in range(specs[role].get("replicas", 1))]


def services_of(job: Json) -> list[Child]:
    """The service of every slot, or the one that stands for all."""
    if job["kind"] == "DIJob" and not is_rl(job):
        return [a_service(job, replicas_of(job)[0][0], name=f"di-{job['metadata']['name']}")]
    return [a_service(job, role, index) for role, index in replicas_of(job)]


def children_of(job: Json, *, phase: str = "Running", node: str | None = None) -> list[Child]:
    """The pod and the service of every slot, all pods in one phase."""
    return [*(a_pod(job, role, index, phase=phase, node=node) for role, index in replicas_of(job)), *services_of(job)]


# --- what the operator sees --------------------------------------------------------------------


def view_of(job: Json) -> JobView:
    view = JOB_CODEC.line(_line(job)).view
    assert view is not None
    return view


def view_of_pod(pod: Json) -> PodView:
    view = POD_CODEC.line(_line(pod)).view
    assert view is not None
    return view


def view_of_service(service: Json) -> ServiceView:
    view = SERVICE_CODEC.line(_line(service)).view
    assert view is not None
    return view


def view_of_node(node: Json) -> NodeView:
    view = NODE_CODEC.line(_line(node)).view
    assert view is not None
    return view


class WholeChild(ChildView, frozen=True):
    """With the object as it is stored, of which a view has only a part."""

    body: Json = {}


def view_of_child(body: Json) -> WholeChild:
    view = CHILD_CODEC.line(_line(body)).view
    assert view is not None
    return WholeChild(**msgspec.structs.asdict(view), body=body)


def view_of_candidate(body: Json, *, whole: bool = False) -> CandidateView:
    view = (WHOLE_CANDIDATE_CODEC if whole else CANDIDATE_CODEC).line(_line(body)).view
    assert view is not None
    return view


def _line(body: Json, type_: str = "ADDED") -> bytes:
    return msgspec.json.encode({"type": type_, "object": body})


def view_of_create(create: Create, *, phase: str = "Pending", node: str = "", resource_version: int = 300) -> Child:
    """The child after its creation, as the watch would show it."""
    meta = {**create.body["metadata"], "resourceVersion": str(resource_version)}
    meta["uid"] = f"uid-of-{create.resource.kind.lower()}-{meta['name']}-{resource_version}"
    body = {**create.body, "metadata": meta}
    if create.resource == SERVICE:
        return view_of_service(body)
    if create.resource == CONFIG_MAP:
        return view_of_child(body)
    # no containers: in a job of thousands of pods their environment is most of the body
    spec = {"restartPolicy": body["spec"].get("restartPolicy", "Always"), "nodeName": node}
    return view_of_pod({**body, "spec": spec, "status": {"phase": phase}})


def kind_of(job: Json, settings: Settings = SETTINGS) -> Kind[Any]:
    group = job["apiVersion"].rpartition("/")[0]
    return _kinds(msgspec.json.encode(settings))[group, job["kind"]].of(msgspec.json.encode(job))


@cache
def _kinds(settings: bytes) -> dict[tuple[str, str], ResourceKinds]:
    found = all_resource_kinds(msgspec.json.decode(settings, type=Settings))
    return {(kinds.resource.group, kinds.resource.kind): kinds for kinds in found}


def observed(
    job: Json,
    children: Iterable[Child] = (),
    *,
    taken: Iterable[int] = (),
    namespace_ports: int = 0,
    agconfig: Json | None = None,
    nodes: Iterable[NodeView] | None = None,
) -> Observed:
    """``agconfig`` is the AggregatorConfig that a DIJob or NerveXJob finds, empty for none; a good one unless told.
    Without ``nodes`` none can be read."""
    found = list(children)
    pods = [child for child in found if isinstance(child, PodView)]
    services = [child for child in found if isinstance(child, ServiceView)]
    config_maps = {child.key.name: child for child in found if isinstance(child, ChildView)}
    default = an_agconfig(a_template(a_container("di-container"))) if job["kind"] == "DIJob" else an_agconfig()
    config = default if agconfig is None else agconfig
    related = msgspec.json.encode(config) if config and kind_of(job).related else None
    on = None if nodes is None else {node.name: node for node in nodes}
    others = {CONFIG_MAP: config_maps} if config_maps else {}
    return Observed.of(
        pods, services, kind_of(job).slots, frozenset(taken), related, others, on, namespace_ports=namespace_ports
    )


def plan_of(
    job: Json,
    children: Iterable[Child] = (),
    *,
    now: datetime = NOW,
    settings: Settings = SETTINGS,
    taken: Iterable[int] = (),
    namespace_ports: int = 0,
    agconfig: Json | None = None,
    nodes: Iterable[NodeView] | None = None,
) -> Plan:
    seen = observed(job, children, taken=taken, namespace_ports=namespace_ports, agconfig=agconfig, nodes=nodes)
    return kind_of(job, settings).plan(view_of(job), seen, now)


def names_of(actions: Iterable[Create | Delete], resource: Resource) -> list[str]:
    """The names that these actions create or delete, in their order."""
    return [action.key.name for action in actions if action.resource == resource]


def after(job: Json, children: Iterable[Child], plan: Plan) -> tuple[Json, list[Child]]:
    """The job and what it owns once the plan was applied and nothing else happened: deletes are done at once, a name
    that is taken is not created again."""
    found = list(children)
    if not plan.status_first:
        gone = {delete.uid for delete in plan.deletes}
        found = [child for child in found if child.uid not in gone]
        taken = {(type(child), child.key) for child in found}
        made = [view_of_create(create) for create in plan.creates]
        found += [child for child in made if (type(child), child.key) not in taken]
        found = [_patched(child, plan) for child in found]
    return with_status(job, plan), found


def _patched(child: Child, plan: Plan) -> Child:
    """Of what is patched, all that a patch changes is data."""
    for patch in plan.patches:
        if isinstance(child, WholeChild) and patch.uid == child.uid:
            meta = {**child.body["metadata"], "resourceVersion": str(child.resource_version + 1)}
            return view_of_child({**child.body, **patch.body, "metadata": meta})
    return child


def settled(job: Json, children: Iterable[Child] = (), *, passes: int = 10) -> tuple[Json, list[Child]]:
    """The job and what it owns when nothing is left to do; fails when that is not reached within ``passes``."""
    found = list(children)
    for _ in range(passes):
        plan = plan_of(job, found)
        if plan.is_quiet:
            return job, found
        job, found = after(job, found, plan)
    raise AssertionError(f"not settled after {passes} passes: {plan}")
