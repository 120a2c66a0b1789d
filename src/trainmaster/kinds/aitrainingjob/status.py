"""Phases, counters and the condition history of an AITrainingJob."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from trainmaster.api.aitrainingjob import AITrainingJob, AITrainingJobStatus, ReplicaStatus
from trainmaster.core.condition import FINISHED, Condition, Conditions, put_standard
from trainmaster.core.observed import Observed
from trainmaster.core.view import PodView
from trainmaster.kinds.aitrainingjob.elastic import enough

PENDING = "Pending"
CREATING = "Creating"
RUNNING = "Running"
RESTARTING = "Restarting"
TERMINATING = "Terminating"
ENDED = frozenset({"Succeed", "Failed", "Timeout", "Preempted", "NodeFail"})
PHASES = frozenset({PENDING, CREATING, RUNNING, RESTARTING, TERMINATING}) | ENDED

WAITING = "all pods are waiting for scheduling"


def reason_of(phase: str) -> str:
    return f"TrainingJob{phase}"


def count(job: AITrainingJob, observed: Observed) -> dict[str, ReplicaStatus]:
    """The counters of every role, by the pods that fill its slots."""
    counted = {}
    for name, spec in sorted(job.spec.replica_specs.items()):
        pods = observed.role(name.lower())
        is_again = job.status.restart_count.get(name, 0) > 0
        done = job.status.done.get(name, ())
        columns = [_column(pods[i], is_again) for i in range(spec.replicas) if i in pods and i not in done]
        counted[name] = ReplicaStatus(
            pending=columns.count("pending"),
            scheduled=columns.count("scheduled"),
            active=columns.count("active"),
            succeeded=columns.count("succeeded") + sum(index < spec.replicas for index in done),
            restarting=columns.count("restarting"),
            failed=columns.count("failed"),
        )
    return counted


def _column(pod: PodView, is_again: bool) -> str:
    match pod.phase:
        case "Running":
            return "active"
        case "Succeeded":
            return "succeeded"
        case "Failed" | "Unknown":
            return "failed"
    if is_again:
        return "restarting"
    return "scheduled" if pod.node else "pending"


def phase_of(job: AITrainingJob, counters: Mapping[str, ReplicaStatus], observed: Observed) -> tuple[str, str]:
    """The phase of a job that goes on, and the sentence that belongs to it.

    A pod that ended counts as having run: a short role that finishes first does not take the job back.
    """
    specs = job.spec.replica_specs
    needed = {name: enough(spec, is_running=job.status.phase == RUNNING) for name, spec in specs.items()}
    started = {name: c.active + c.succeeded + c.failed for name, c in counters.items()}
    if all(started[name] >= needed[name] for name in specs):
        return RUNNING, _running_message(job, started)
    if job.status.phase == RESTARTING:
        return RESTARTING, message_of(job.status)  # until they all run: whoever restarts never goes back to waiting
    if role := next((name for name, c in counters.items() if c.restarting), ""):
        return RESTARTING, restarting_message("Replica", role)
    if all(started[name] + counters[name].scheduled >= needed[name] for name in specs):
        return CREATING, "creating containers"
    return PENDING, _pending_message(observed)


def _running_message(job: AITrainingJob, started: Mapping[str, int]) -> str:
    short = [
        f"{started[name]} of {spec.replicas} {name.lower()} pods"
        for name, spec in sorted(job.spec.replica_specs.items())
        if started[name] < spec.replicas
    ]
    return f"running with {', '.join(short)}" if short else "all pods are running"


def restarting_message(scope: str, role: str) -> str:
    match scope:
        case "All":
            return "All pods are restarting now"
        case "Replica":
            return f"{role.lower()} pods are restarting now"
    return "pod is restarting now"


def message_of(status: AITrainingJobStatus) -> str:
    """What the job said when it entered its phase."""
    last = _last(status)
    return last.message if last else ""


def entered_at(status: AITrainingJobStatus) -> datetime | None:
    """When the job entered its phase."""
    last = _last(status)
    return last.last_transition_time if last and last.type == status.phase else None


def running_since(status: AITrainingJobStatus) -> datetime | None:
    return entered_at(status) if status.phase == RUNNING else None


def _last(status: AITrainingJobStatus) -> Condition | None:
    return next((c for c in reversed(status.conditions) if c.type in PHASES), None)


def _pending_message(observed: Observed) -> str:
    for pod in observed.all_pods:
        if pod.unschedulable:
            return f"{WAITING}: {pod.key.name}: {pod.unschedulable}"
    return WAITING


def enter(status: AITrainingJobStatus, phase: str, message: str, now: datetime) -> AITrainingJobStatus:
    """The status in ``phase``, with its place in the history."""
    conditions = _recorded(status.conditions, phase, message, now)
    if phase in ENDED:
        conditions = put_standard(conditions, FINISHED, True, phase, message, now)
    return msgspec.structs.replace(
        status,
        phase=phase,
        conditions=conditions,
        start_time=status.start_time or now,
        start_running_time=status.start_running_time or (now if phase == RUNNING else None),
        end_time=status.end_time or (now if phase in ENDED else None),
    )


def _recorded(conditions: Conditions, phase: str, message: str, now: datetime) -> Conditions:
    """The conditions with ``phase`` as the last one, each type once: ``kubectl wait`` looks at the first of its type,
    and the ancestors' clients at the last of all. Entering the same phase again replaces the message."""
    standard = tuple(c for c in conditions if c.type not in PHASES)
    newest = {c.type: c for c in conditions if c.type in PHASES}
    history = tuple(c for c in conditions if newest.get(c.type) is c)
    last = (history[-1].type, history[-1].status, history[-1].reason) if history else None
    if last == (phase, "True", reason_of(phase)):
        return (*standard, *history[:-1], msgspec.structs.replace(history[-1], message=message))
    if history:
        history = (*history[:-1], msgspec.structs.replace(history[-1], status="False"))
    entry = Condition(phase, "True", reason_of(phase), message, last_probe_time=now, last_transition_time=now)
    return (*standard, *(c for c in history if c.type != phase), entry)
