"""What happens to a job: each function does it to the case at hand."""

from collections.abc import Callable
from copy import deepcopy

from tests.build import Json
from tests.laws.memory import Object
from tests.matrix.cluster import GPU
from tests.matrix.kinds import AFTER_NODE_FAULTS, COLLECTORS, NEVER, SIDECAR, Options, Row
from tests.matrix.outcome import Case
from trainmaster.core.errors import ApiError, Forbidden, Invalid, ServerError
from trainmaster.core.ids import JOB, NODE, POD, SERVICE, Key, Resource
from trainmaster.core.template import MANAGED_BY

Act = Callable[[Case], None]

# --- nodes ---


def lose_node(case: Case) -> None:
    case.world.cluster.lose(case.node)


def lose_node_while_the_operator_is_away(case: Case) -> None:
    """The taint manager has deleted the pod by the time anybody looks."""
    case.world.cluster.lose(case.node)
    case.world.loop.virtual += 600
    case.world.api.annotate_pod(case.victim, {"type": "DisruptionTarget", "reason": "DeletionByTaintManager"})
    case.world.delete_pod(case.victim)


def delete_pod_and_lose_node(case: Case) -> None:
    case.world.delete_pod(case.victim)
    case.world.cluster.lose(case.node)


def delete_node(case: Case) -> None:
    case.world.cluster.remove_node(case.node)


def drain(case: Case) -> None:
    case.world.cluster.cordoned.add(case.node)
    case.world.api.annotate_pod(case.victim, {"type": "DisruptionTarget", "reason": "EvictionByEvictionAPI"})
    case.world.delete_pod(case.victim)
    case.world.operate()  # the pod has its grace period to end


def preempt_by_kueue(case: Case) -> None:
    """Kueue needs the quota for another job: it marks all pods and deletes them."""
    for pod in list(case.world.pods):
        case.world.api.annotate_pod(pod, {"type": "TerminationTarget", "reason": "WorkloadEvicted"})
        case.world.delete_pod(pod)
    case.world.operate()


def lose_most_nodes(case: Case) -> None:
    """All but two of eight; the job's pods are on the first three or four of them."""
    names = [f"node-{number}" for number in range(2, 8)]
    for name in names:
        case.world.cluster.lose(name)

    def recover() -> None:
        for name in names:
            case.world.cluster.bring_back(name)

    case.recover = recover


# --- devices ---


def with_gpu(row: Row) -> Options:
    return Options(gpu=True)


def _work(case: Case, number: int, of: int = 8) -> None:
    """So many GPUs of the pod's node work, and its plug-in lists, or listed not long ago, ``of``."""
    status = {"allocatable": {GPU: str(number)}, "capacity": {GPU: str(of)}}
    case.world.api.set_status(NODE, Key("", case.node), status)


def report_unhealthy_gpu(case: Case) -> None:
    """The kubelet says whose GPU it is; the node has more GPUs."""
    _work(case, 7)
    _report_unhealthy(case)


def report_all_gpus_unhealthy(case: Case) -> None:
    """The node looks as one whose plug-in has stopped. The kubelet says of the pod that its GPU is dead."""
    _work(case, 0)
    _report_unhealthy(case)


def _report_unhealthy(case: Case) -> None:
    health = [{"name": GPU, "resources": [{"resourceID": "GPU-0", "health": "Unhealthy"}]}]
    statuses = case.victim_pod["status"]["containerStatuses"]
    changed = [{**statuses[0], "allocatedResourcesStatus": health}, *statuses[1:]]
    case.world.api.set_status(POD, case.victim, {"containerStatuses": changed})


def lose_gpu_beside_another_job(case: Case) -> None:
    """Other jobs have the other seven GPUs of the node, and no kubelet says whose is lost."""
    case.world.put(
        POD,
        {
            "metadata": {
                "name": "other-worker-0",
                "namespace": case.world.key.namespace,
                "uid": "uid-of-other",
                "labels": dict(MANAGED_BY),
            },
            "spec": {
                "nodeName": case.node,
                "containers": [{"name": "mxnet", "resources": {"limits": {GPU: "7"}}}],
            },
            "status": {"phase": "Running"},
        },
    )
    case.world.operate()
    _work(case, 7)


def upgrade_device_plugin(case: Case) -> None:
    """When a plug-in stops, no GPU is allocatable. The capacity stays for five minutes."""
    _work(case, 0)
    case.world.run(240)
    _work(case, 8)


def restart_kubelet(case: Case) -> None:
    """A kubelet that starts has no capacity until the plug-in has registered itself."""
    _work(case, 0, of=0)
    case.world.run(240)
    _work(case, 8)


def upgrade_device_plugin_slowly(case: Case) -> None:
    """The new plug-in comes after ten minutes: its image had to be pulled."""
    _work(case, 0)
    case.world.run(300)
    _work(case, 0, of=0)
    case.world.run(300)
    _work(case, 8)


def lose_all_gpus(case: Case) -> None:
    """No kubelet says that the pod's GPU is dead, and the node looks as one whose plug-in has stopped."""
    _work(case, 0)
    case.world.run(1800)


def lose_device_plugin(case: Case) -> None:
    """For good. The scheduler places no pod on such a node."""
    _work(case, 0, of=0)
    case.world.cluster.cordoned.add(case.node)
    case.world.run(900)


# --- ends of the pod ---


def ended_by_node(reason: str, message: str) -> Act:
    def act(case: Case) -> None:
        case.world.api.set_status(POD, case.victim, {"phase": "Failed", "reason": reason, "message": message})

    return act


def evict(case: Case) -> None:
    """By its kubelet, for want of memory: its program is told to end, and does so with code 1."""
    case.world.end_container(case.victim, 1, "Error")
    message = "The node was low on resource: memory."
    case.world.api.set_status(POD, case.victim, {"phase": "Failed", "reason": "Evicted", "message": message})


def container_ends(code: int, reason: str) -> Act:
    def act(case: Case) -> None:
        case.world.end_container(case.victim, code, reason)

    return act


CRASH = ("step 1\n" * 400) + "Traceback:\n\x1b[31mValueError: loss is NaN\x1b[0m\n"
"""As the kubelet reports the output of a program."""


def crash_before_a_peer(case: Case) -> None:
    """A replica of the same role fails because of it, two seconds later; that is reported first."""
    first = case.world.api.stamp()
    case.world.loop.virtual += 2
    for key in case.world.pods:
        if key.name.startswith(f"{case.row.victim[:-1]}0"):
            case.world.end_container(key, 1, "Error", message="connection reset\n")
    case.world.end_container(case.victim, 139, "Error", message=CRASH, at=first)


def restart_in_place(case: Case) -> None:
    """By its kubelet, as with restartPolicy Always: the pod stays."""
    before = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": case.world.api.stamp()}}
    statuses = [
        {**status, "restartCount": 1, "lastState": before} if status["name"] == case.row.main else status
        for status in case.victim_pod["status"]["containerStatuses"]
    ]
    case.world.api.set_status(POD, case.victim, {"containerStatuses": statuses})


def main_container_ends(code: int, reason: str) -> Act:
    """The side-car runs on."""

    def act(case: Case) -> None:
        case.world.end_container(case.victim, code, reason, containers=_training(case.victim_pod))

    return act


def main_containers_succeed(case: Case) -> None:
    for key in case.row.deciding_of(case.world):
        case.world.end_container(key, 0, "Completed", containers=_training(case.world.pods[key]))


def sidecar_ends(case: Case) -> None:
    """It fails while the program trains."""
    case.world.end_container(case.victim, 1, "Error", containers=[SIDECAR])


def _training(pod: Object) -> list[str]:
    return [container["name"] for container in pod["spec"]["containers"] if container["name"] != SIDECAR]


def succeed_and_collect(case: Case) -> None:
    """The pod succeeds while others run; a minute later it is deleted."""
    case.world.end_container(case.victim, 0, "Completed")
    case.world.run(60)
    if case.victim in case.world.pods:
        case.world.api.remove(POD, case.victim)


def succeed(case: Case) -> None:
    for key in case.row.deciding_of(case.world):
        case.world.end_container(key, 0, "Completed")


# --- obstacles at creation ---


def waiting(reason: str, message: str = "") -> Act:
    """A container of the pod waits, in the words of its kubelet."""

    def act(case: Case) -> None:
        state = {"reason": reason, "message": message} if message else {"reason": reason}
        case.world.cluster.waiting = lambda pod: state if case.row.is_victim(pod) else None

        def recover() -> None:
            case.world.cluster.waiting = lambda pod: None

        case.recover = recover

    return act


def unschedulable(case: Case) -> None:
    message = "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."
    case.world.cluster.unschedulable = lambda pod: message if case.row.is_victim(pod) else ""

    def recover() -> None:
        case.world.cluster.unschedulable = lambda pod: ""

    case.recover = recover


def refused(error: ApiError, kind: Resource = POD) -> Act:
    """The API server does not let the pod in, whoever creates it; or another child of the same name."""

    def act(case: Case) -> None:
        def refuse(resource: Resource, body: Object) -> ApiError | None:
            return error if resource == kind and case.row.is_victim(body) else None

        def recover() -> None:
            case.world.api.refuse = lambda resource, body: None

        case.world.api.refuse = refuse
        case.recover = recover

    return act


QUOTA = Forbidden(
    'pods "job" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=1, used: 8, limited: 8', code=403
)
POD_SECURITY = Forbidden(
    'pods "job" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false', code=403
)
DENIED = Invalid('admission webhook "policy.example.com" denied the request: no team label', code=400)
WEBHOOK = ServerError('Internal error occurred: failed calling webhook "inject.example.com": EOF', code=500)


def occupy_name(case: Case) -> None:
    """An object without owner has the name of the victim's pod; of an MxJob, of its batch Job."""
    resource = JOB if JOB in case.world.kind.children else POD
    key = Key(case.world.key.namespace, case.row.victim)
    body: Json = {
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": "foreign", "generation": 1},
        "spec": {"containers": [{"name": "other"}], "suspend": True},
        "status": {"phase": "Running"},
    }
    case.world.put(resource, body)

    def recover() -> None:
        found = case.world.api.objects[resource][key]
        assert found["metadata"]["uid"] == "foreign", "a foreign object was deleted"
        case.world.api.remove(resource, key)

    case.recover = recover


# --- what users do ---


def delete_pod(case: Case) -> None:
    case.world.delete_pod(case.victim)


def delete_service(case: Case) -> None:
    case.world.api.remove(SERVICE, Key(case.world.key.namespace, min(case.services)))


def suspend(case: Case) -> None:
    case.world.edit(case.row.suspend, True)


def suspend_and_resume(case: Case) -> None:
    suspend(case)
    case.world.run(60)
    case.world.edit(case.row.suspend, False)


def scale(by: int) -> Act:
    """In the spec, or of a DIJob by what di-server declares."""

    def act(case: Case) -> None:
        if case.row.replicas:
            place = case.job["spec"]
            for step in case.row.replicas:
                place = place[step]
            case.world.edit(case.row.replicas, place + by)
            return
        new = {"role": "collector", "at": case.world.api.stamp()}
        members = {"job-collector-ddddd": new} if by > 0 else {COLLECTORS[1]: None}
        case.world.set_status({"declared": {"members": members}})

    return act


def make_spec_invalid(case: Case) -> None:
    place = case.job["spec"]
    for step in case.row.template:
        place = place[step]
    good = deepcopy(place)
    case.world.edit(case.row.template, {"spec": {"containers": []}})

    def recover() -> None:
        case.world.edit(case.row.template, good)

    case.recover = recover


def delete_job_half_way(case: Case) -> None:
    """In the foreground: the job is there until its children are gone, and one of them goes first."""
    body = deepcopy(case.job)
    body["metadata"] |= {"deletionTimestamp": case.world.api.stamp(), "finalizers": ["foregroundDeletion"]}
    case.world.put(case.world.kind.resource, body)
    case.world.delete_pod(case.victim)
    case.world.run(60)
    assert set(case.world.running) < set(case.pods), f"created for a job that is being deleted: {case.world.running}"
    case.world.api.remove(case.world.kind.resource, case.world.key)


def end_before_us(case: Case) -> None:
    case.world.manifest["status"] = dict(case.row.ended)


def wait_for_its_end(case: Case) -> None:
    """Most of its time to live passes."""
    succeed(case)
    case.world.run(200)
    assert not case.world.is_gone, "the job was deleted before its time"
    case.world.run(120)


def nothing(case: Case) -> None:
    """What matters is in the manifest."""


# --- manifests ---

Manifest = Callable[[Row], Options]


def plain(row: Row) -> Options:
    return Options()


def with_sidecar(row: Row) -> Options:
    return Options(sidecar=True)


def with_injected_sidecar(row: Row) -> Options:
    return Options(injected=True)


def never_restarting(row: Row) -> Options:
    return Options(policy=NEVER)


def failing_for_good(row: Row) -> Options:
    """Nothing restarts, and at the end all pods are deleted."""
    return Options(policy=NEVER, spec=((row.clean, "All"), *row.no_restarts))


def restarting_after_node_faults(row: Row) -> Options:
    return Options(policy=AFTER_NODE_FAULTS)


def suspended(row: Row) -> Options:
    return Options(spec=((row.suspend, True),))


def with_deadline(row: Row) -> Options:
    return Options(spec=((row.deadline, 300),))


def with_ttl(row: Row) -> Options:
    return Options(spec=((row.ttl, 300),))
