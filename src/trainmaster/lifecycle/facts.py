"""What is true of the children of a job, found out once in each pass. Decisions read it and filter nothing again."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from trainmaster.core.observed import Observed
from trainmaster.core.plan import soonest
from trainmaster.core.slot import Slot
from trainmaster.core.view import ChildView, ContainerView, PodView, ServiceView
from trainmaster.lifecycle import creation, failure, fault, node, queue, reason, restart
from trainmaster.lifecycle.completion import FAILED
from trainmaster.lifecycle.fault import Fault
from trainmaster.lifecycle.model import JobModel, Place, Places, Replica
from trainmaster.lifecycle.node import NodeProblem
from trainmaster.lifecycle.restart import FailedPod
from trainmaster.lifecycle.training import Training

SLOW = 120
"""Seconds after which a pod whose containers are still being created is reported."""
POD_PATIENCE = 10
"""Seconds that a replica which creates its pod by itself has for that, before its Events are read."""
EVENTS_PERIOD = 30
"""Seconds until its Events are read again."""
MENTIONED = 3
"""Replicas whose errors are listed; the others are only counted."""


class Nodes(msgspec.Struct, frozen=True):
    """The nodes of the job's pods that have failed them."""

    bad: Mapping[str, NodeProblem] = {}
    """No training goes on there."""
    devices: Mapping[str, NodeProblem] = {}
    """By uid, pods with devices that do not work, or may not."""
    lost: frozenset[str] = frozenset()
    """No kubelet answers there: pods are deleted by force."""
    seen: dict[str, datetime] = {}
    """Problems of which the API does not say since when they exist."""
    next_look: float | None = None


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that cannot start."""

    errors: dict[str, datetime] = {}
    """Replicas whose containers cannot be created, and since when."""
    message: str = ""
    """Why containers cannot be created."""
    queued: str = ""
    """Which pods Kueue has not admitted to their queue."""
    unschedulable: str = ""
    """Why a pod gets no node."""
    is_slow: str = ""
    """Which pod has been creating its containers for long, as with a volume that cannot be mounted."""
    outage: str = ""
    """Most nodes are not ready, those of the job among them: nothing is restarted meanwhile."""
    faults: Mapping[str, Fault] = {}
    """Of the pods that have tried for too long, by uid."""
    next_look: float | None = None


class Podless(msgspec.Struct, frozen=True):
    """Replicas that create their pods by themselves and have none. Only their Events say that pods are refused."""

    is_any: bool = False
    overdue: tuple[ChildView, ...] = ()
    """Those that have had none for some time."""
    next_look: float | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    observed: Observed
    pods: dict[Place, PodView]
    """Pods of the present attempt, by the place that they fill."""
    states: dict[Place, str]
    host_ports: dict[str, tuple[int, ...]]
    """By slot, the ports of their machines that its pods have."""
    missing: tuple[Slot, ...]
    """Replicas without a pod."""
    without_service: tuple[Slot, ...]
    outdated: tuple[PodView, ...]
    """Pods of an older attempt. They are deleted before pods of the present one are created."""
    surplus: tuple[PodView, ...]
    """Pods that fill no place of the spec, highest index first."""
    abandoned: tuple[PodView, ...]
    """Other pods that are being deleted, where no kubelet may confirm it."""
    replaced: tuple[PodView, ...]
    """Pods on a lost node that are deleted so that their replica creates another one."""
    surplus_services: tuple[ServiceView, ...]
    leaving: tuple[Place, ...]
    """Places that the spec no longer has, with a pod of the present attempt."""
    failed: tuple[FailedPod, ...]
    stranded: tuple[FailedPod, ...]
    """Pods that have never run and are bound to a lost node."""
    recovering: Mapping[Place, str]
    """Replicas that restart their pod by themselves, with the fault of that pod."""
    succeeded: Places
    ran: Places
    nodes: Nodes
    waiting: Waiting
    podless: Podless

    def state(self, place: Place) -> str:
        """Pending, Running, Succeeded or Failed, by the containers that train; empty without a pod."""
        return self.states.get(place, "")

    @property
    def next_look(self) -> float | None:
        """Seconds until something may be judged otherwise than now."""
        return soonest(self.nodes.next_look, self.waiting.next_look, self.podless.next_look)

    @property
    def is_all_created(self) -> bool:
        return not self.missing and not self.without_service and not self.podless.is_any


class Rules(msgspec.Struct, frozen=True):
    """What the operator was started with, as far as faults are concerned."""

    node: node.Rules
    creation: creation.Times


def replica_pods(model: JobModel, observed: Observed) -> dict[str, PodView]:
    """The pods that fill the slots of a job by the role and index in their labels, by the name of the slot."""
    if model.replicas is not None:
        return {name: replica.pod for name, replica in model.replicas.items() if replica.pod}
    roles = {role: observed.role(role.lower()) for role in model.roles}
    return {slot.name: pod for slot in model.slots if (pod := roles[slot.role].get(slot.index))}


def classify(model: JobModel, pods: Mapping[str, PodView], observed: Observed, rules: Rules, now: datetime) -> Facts:
    """``pods`` are those that fill slots, by the name of the slot."""
    nodes = _nodes(model, observed, rules.node, now)
    waiting = _waiting(model, pods, observed, rules.creation, now)
    found = _Replicas()
    known = _known(model)
    for slot in model.slots:
        _classify(model, slot, pods.get(slot.name), known[slot.role], nodes, waiting, found)
    surplus = _surplus(model, pods, observed)
    addressed = model.slots if model.services is None else model.services
    # A pod that is being deleted is still reached by its name: it may have something to hand over.
    kept = {slot.name for slot in addressed} | {pod.key.name for pod in surplus}
    services = sorted(observed.services.items(), reverse=True)
    return Facts(
        observed=observed,
        pods=found.pods,
        states=found.states,
        host_ports=_host_ports(model, pods),
        missing=tuple(found.missing),
        without_service=tuple(slot for slot in addressed if slot.name not in observed.services),
        outdated=tuple(found.outdated),
        surplus=surplus,
        abandoned=tuple(_abandoned(model, found, observed, nodes)),
        replaced=tuple(found.replaced),
        surplus_services=tuple(service for name, service in services if name not in kept),
        leaving=_leaving(model, observed),
        failed=tuple(_judged(failed, model) for failed in found.failed),
        stranded=tuple(found.stranded),
        recovering=found.recovering,
        succeeded=by_role(found.succeeded),
        ran=by_role(found.ran),
        nodes=nodes,
        waiting=waiting,
        podless=_podless(model, observed, now),
    )


def _podless(model: JobModel, observed: Observed, now: datetime) -> Podless:
    waits = {name: r.podless_since for name, r in (model.replicas or {}).items() if r.podless_since}
    if not waits:
        return Podless()
    left = {name: POD_PATIENCE - (now - since).total_seconds() for name, since in waits.items()}
    overdue = [observed.child(model.replica_resource, name) for name, seconds in left.items() if seconds <= 0]
    return Podless(
        is_any=True,
        overdue=tuple(child for child in overdue if child),
        next_look=soonest(*(seconds if seconds > 0 else EVENTS_PERIOD for seconds in left.values())),
    )


def _host_ports(model: JobModel, pods: Mapping[str, PodView]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for slot in model.slots if model.wanted_ports else ():
        if pod := pods.get(slot.name):
            found[slot.place] = (*found.get(slot.place, ()), *pod.host_ports)
    return found


def _surplus(model: JobModel, pods: Mapping[str, PodView], observed: Observed) -> tuple[PodView, ...]:
    """A pod whose labels were edited into another place is surplus, too: it holds a name that its own place needs."""
    if model.replicas is not None:
        return ()
    return tuple(pod for pod in reversed(observed.all_pods) if pods.get(pod.key.name) is not pod)


def _abandoned(model: JobModel, found: "_Replicas", observed: Observed, nodes: Nodes) -> Iterator[PodView]:
    """Where replicas create pods, pods of replicas that were removed are among them."""
    for pod in found.pods.values() if model.replicas is None else observed.all_pods:
        if pod.deleting and (model.replicas is not None or pod.node in nodes.lost):
            yield pod


class _Replicas(msgspec.Struct):
    pods: dict[Place, PodView] = {}
    states: dict[Place, str] = {}
    missing: list[Slot] = []
    outdated: list[PodView] = []
    failed: list[FailedPod] = []
    stranded: list[FailedPod] = []
    replaced: list[PodView] = []
    recovering: dict[Place, str] = {}
    succeeded: list[Place] = []
    ran: list[Place] = []


class _Known(msgspec.Struct, frozen=True):
    """What is remembered of one role."""

    done: frozenset[int]
    ran: frozenset[int]


def _known(model: JobModel) -> dict[str, _Known]:
    done, ran = model.memory.done, model.memory.ran
    return {role: _Known(frozenset(done.get(role, ())), frozenset(ran.get(role, ()))) for role in model.roles}


def _classify(
    model: JobModel,
    slot: Slot,
    pod: PodView | None,
    known: _Known,
    nodes: Nodes,
    waiting: Waiting,
    found: _Replicas,
) -> None:
    place = (slot.role, slot.index)
    has_run = slot.index in known.ran
    if has_run:
        found.ran.append(place)
    if slot.index in known.done:
        found.succeeded.append(place)
    elif model.replicas is not None:
        _classify_replica(model, slot, model.replicas.get(slot.name, Replica()), nodes, found)
    elif pod is None:
        found.missing.append(slot)
        if has_run and model.roles[slot.role].misses_deleted_pods:
            found.failed.append(FailedPod(*place, lost(f"pod {slot.name}"), slot.label))
    elif not is_current(model, *place, pod):
        found.outdated.append(pod)
    else:
        found.pods[place] = pod
        state = found.states[place] = state_of(pod, model.roles[slot.role].training)
        if state in ("Running", "Succeeded") and not pod.deleting and not has_run:
            found.ran.append(place)
        is_sound = state == "Running" and not pod.deleting and not _restarted(model, slot.role, pod)
        if not is_sound or pod.node in nodes.bad or pod.uid in nodes.devices:
            _classify_pod(model, slot, pod, nodes, waiting, found)


def _classify_pod(model: JobModel, slot: Slot, pod: PodView, nodes: Nodes, waiting: Waiting, found: _Replicas) -> None:
    place = (slot.role, slot.index)
    if found.states[place] == "Succeeded" and not pod.deleting:
        found.succeeded.append(place)
    elif model.replaces_pending_pods and pod.phase == "Pending" and pod.node in nodes.lost and not pod.deleting:
        found.stranded.append(FailedPod(*place, _node_fault(model, pod, nodes.bad[pod.node]), slot.label))
    elif problem := _fault(model, slot.role, pod, found.states[place], nodes, waiting):
        found.failed.append(FailedPod(*place, problem, slot.label))


def _classify_replica(model: JobModel, slot: Slot, replica: Replica, nodes: Nodes, found: _Replicas) -> None:
    """The kind says how the replica is. Whether the node of its pod is lost is found out here."""
    place, pod = (slot.role, slot.index), replica.pod
    if replica.state:
        found.states[place] = replica.state
    else:
        found.missing.append(slot)
    if pod:
        found.pods[place] = pod
    if replica.state == "Succeeded":
        found.succeeded.append(place)
    elif pod and replica.state != "Failed" and (problem := _node_problem(pod, nodes)):
        fault = _node_fault(model, pod, problem)
        if replica.restarts_alone:
            found.states[place], found.recovering[place] = "Pending", fault.message
            if not pod.deleting:
                found.replaced.append(pod)
        else:
            found.failed.append(FailedPod(*place, fault, slot.label))
    elif replica.fault:
        found.failed.append(FailedPod(*place, replica.fault, slot.label))
    elif replica.is_recovering:
        found.recovering[place] = replica.message


def _node_problem(pod: PodView, nodes: Nodes) -> NodeProblem | None:
    """What is wrong with the node of a pod that has not ended, or with its devices there."""
    return None if pod.is_ended else nodes.bad.get(pod.node) or nodes.devices.get(pod.uid)


def state_of(pod: PodView, training: Training) -> str:
    """Pending, Running, Succeeded or Failed. The containers that train decide, whatever side-cars still do, unless
    their kubelet starts them again. A pod that its node ended has a reason, and its exit codes are ignored."""
    for container in pod.containers:
        if container.exit_code is not None:
            break
    else:
        return pod.phase
    if pod.reason or pod.phase == "Pending" or _is_restarted_in_place(pod):
        return pod.phase
    codes = [c.exit_code for c in pod.containers if training.takes_part(pod, c.name)]
    if codes and all(code == 0 for code in codes):
        return "Succeeded"
    if not any(codes) or (pod.restart_policy == "OnFailure" and not pod.is_ended):
        return pod.phase
    return "Failed"


def _is_restarted_in_place(pod: PodView) -> bool:
    return pod.restart_policy == "Always" and not pod.is_ended


def _fault(model: JobModel, role: str, pod: PodView, state: str, nodes: Nodes, waiting: Waiting) -> Fault | None:
    """The fault of a pod. The exit codes of a terminating pod are ignored. The deletion of a running pod is a fault if
    its role misses deleted pods; an eviction always is."""
    is_pending = pod.phase == "Pending"
    if pod.deleting and (is_pending or not (model.roles[role].misses_deleted_pods or pod.disruption)):
        return None
    is_left_alone = is_pending and model.replaces_pending_pods
    if not is_left_alone and (problem := _node_problem(pod, nodes)):
        return _node_fault(model, pod, problem)
    if is_pending:
        return waiting.faults.get(pod.uid)
    if pod.deleting:
        return fault.disruption(pod) if pod.disruption else lost(f"pod {pod.key.name}", pod.node)
    if state != "Failed" and (container := _restarted(model, role, pod)):
        return fault.restarted(pod, container)
    return fault.failure(pod, model.roles[role].training) if state == "Failed" else None


def _judged(failed: FailedPod, model: JobModel) -> FailedPod:
    """The failed pod, with what says of which incident it is part, and whether it is charged."""
    fault, restarts = failed.fault, model.memory.restarts.get(failed.role, restart.NONE)
    said = attempt_of(fault.pod, model.attempt_label) if fault.pod else 0
    return msgspec.structs.replace(
        failed,
        fault=msgspec.structs.replace(fault, is_free=fault.is_free or bool(model.is_free and model.is_free(fault))),
        attempt=max(said if said <= restarts.count else 0, restarts.attempt_of(failed.index)),
        has_lost_peer=failure.has_lost_peer(fault),
    )


def _restarted(model: JobModel, role: str, pod: PodView) -> ContainerView | None:
    """The container that was restarted in place, where its role misses it."""
    if not model.roles[role].misses_restarted_containers:
        return None
    return fault.restarted_container(pod, model.roles[role].training)


def _leaving(model: JobModel, observed: Observed) -> tuple[Place, ...]:
    return tuple(
        (role, index)
        for role in model.known_roles
        for index, pod in observed.role(role.lower()).items()
        if (role not in model.roles or index >= model.roles[role].replicas) and is_current(model, role, index, pod)
    )


def is_current(model: JobModel, role: str, index: int, pod: PodView) -> bool:
    """False for a pod of an older attempt than its place has reached. A label that was edited to more than the stored
    count counts as the first attempt: no pod was created for it."""
    restarts = model.memory.restarts.get(role)
    if restarts is None:
        return True
    attempt = attempt_of(pod, model.attempt_label)
    return (attempt if attempt <= restarts.count else 0) >= restarts.attempt_of(index)


def attempt_of(pod: PodView, label: str) -> int:
    """The attempt that a pod was created for. A label that was edited into no number says the first."""
    text = pod.labels.get(label, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0


def by_role(places: Sequence[Place]) -> Places:
    found: dict[str, list[int]] = {}
    for role, index in places:
        found.setdefault(role, []).append(index)
    return {role: tuple(sorted(indices)) for role, indices in found.items()}


def joined(messages: Sequence[str], limit: int = MENTIONED) -> str:
    rest = len(messages) - limit
    return "; ".join(messages[:limit]) + (f"; and {rest} more" if rest > 0 else "")


# --- nodes ---


def _node_fault(model: JobModel, pod: PodView, trouble: NodeProblem) -> Fault:
    return msgspec.structs.replace(node.fault_of(pod, trouble), has_failed=model.restarts_after_node_loss)


def lost(what: str, node: str = "") -> Fault:
    """It was deleted, by a user or with its node: it is nothing that its program did."""
    where = f" on node {node}" if node else ""
    message = f"{what} is lost: it was deleted{where} while the job ran"
    return Fault(FAILED, message, node=node, has_failed=True, is_node=True, reason=reason.POD_LOST)


def _nodes(model: JobModel, observed: Observed, rules: node.Rules, now: datetime) -> Nodes:
    bad: dict[str, NodeProblem] = {}
    devices: dict[str, NodeProblem] = {}
    # Where nodes cannot be read, nothing is forgotten. What pods say of their devices is known all the same.
    seen = dict(model.memory.node_problems) if observed.nodes is None else {}
    nodes = observed.nodes or {}
    waits: list[float] = []

    def add(found: dict[str, NodeProblem], key: str, name: str, problem: NodeProblem) -> None:
        device = problem.missing_device  # with a grace period of its own, and so with a time of its own
        what, grace = (f"{name}/{device}", rules.device_grace) if device else (name, rules.grace)
        since = min(model.memory.node_problems.get(what, now), now)
        if problem.since is None and not problem.is_final:
            seen[what] = since
        if (left := problem.left(grace, since, now)) > 0:
            waits.append(left)
        else:
            found.setdefault(key, problem)

    for name, view in sorted(nodes.items()):
        for problem in node.problems_of(view, rules):
            if not observed.outage or not problem.is_lost or problem.is_final:
                add(bad, name, name, problem)
    pods = observed.all_pods
    broken = node.device_problems(pods, observed.neighbours, nodes)
    for pod in pods if broken else ():
        for problem in broken.get(pod.uid, ()):
            add(devices, pod.uid, pod.node, problem)
    lost = node.lost(observed.nodes, rules.grace, now, is_outage=bool(observed.outage))
    return Nodes(bad, devices, lost, seen, soonest(*waits))


# --- pods that cannot start ---


def _waiting(
    model: JobModel, pods: Mapping[str, PodView], observed: Observed, times: creation.Times, now: datetime
) -> Waiting:
    stored = model.memory.creation_errors
    pending = [pod for pod in observed.all_pods if pod.phase == "Pending"]
    slow = next((pod for pod in pending if _is_slow(pod, now)), None)
    found = Waiting(
        queued=queue.waiting(pending),
        unschedulable=next(
            (f"{p.key.name}: {p.unschedulable}" for p in pending if p.unschedulable and not p.is_queued), ""
        ),
        is_slow=f"pod {slow.key.name} is ContainerCreating for more than {SLOW // 60} minutes" if slow else "",
        outage=_outage(observed),
        next_look=min((left for pod in pending if (left := _until_slow(pod, now)) and left > 0), default=None),
    )
    if not stored and not any(creation.error_of(pod) for pod in observed.all_pods):
        return found  # as nearly always
    errors: dict[str, datetime] = {}
    faults: dict[str, Fault] = {}
    messages: list[str] = []
    waits: list[float | None] = []
    for slot in model.slots:
        pod = pods.get(slot.name)
        error = creation.error_of(pod) if pod and not pod.deleting else None
        if pod and error:
            messages.append(creation.describe(pod, error))
            if not model.limits_creation:
                continue
            since = errors[slot.place] = stored.get(slot.place, now)
            waits.append(creation.next_look(pod, since, times, now))
            if stuck := creation.fault_of(pod, error, since, times, now):
                faults[pod.uid] = stuck
        elif slot.place in stored and (pod is None or pod.deleting or pod.phase == "Pending"):
            errors[slot.place] = stored[slot.place]  # only a replica that runs has overcome it
    return msgspec.structs.replace(
        found, errors=errors, message=joined(messages), faults=faults, next_look=soonest(found.next_look, *waits)
    )


def _is_slow(pod: PodView, now: datetime) -> bool:
    left = _until_slow(pod, now)
    return left is not None and left <= 0


def _until_slow(pod: PodView, now: datetime) -> float | None:
    """Seconds until it is worth saying that the containers of a pod are not created; None when they are."""
    if pod.phase != "Pending" or pod.deleting or pod.started is None or creation.error_of(pod):
        return None
    return (pod.started - now).total_seconds() + SLOW


def _outage(observed: Observed) -> str:
    is_hit = bool(observed.outage) and any(
        view.ready in ("False", "Unknown") for view in (observed.nodes or {}).values()
    )
    return observed.outage if is_hit else ""
