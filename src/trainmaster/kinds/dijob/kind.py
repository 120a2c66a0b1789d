"""DIJob v1alpha1: the coordinator's life is the job's life."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.api.dijob import RESOURCE, DIJob, DIJobStatus, RoleStatus
from trainmaster.core.ids import POD, SERVICE, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Create, Delete, Event, Plan, deletions, normal, warning
from trainmaster.core.policies.cleanup import CleanPodPolicy, pods_to_clean
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Kind, changed_status, cleared, named
from trainmaster.kinds.dijob import labels, validate
from trainmaster.kinds.dijob.body import coordinator_name, coordinator_pod, coordinator_service
from trainmaster.kinds.dijob.status import (
    CREATED,
    ENDED,
    FAILED,
    ROLES,
    RUNNING,
    SUCCEEDED,
    enter,
    pod_state,
    reason_of,
    role_status,
)


class DIJobKind(Kind[DIJob]):
    resource = RESOURCE
    slots = labels.SLOTS
    component = "di-orchestrator"
    job_type = DIJob
    status_type = DIJobStatus
    initial_phase = CREATED
    ended = ENDED

    def errors(self, job: DIJob) -> list[str]:
        return validate.errors(job)

    def action_event(self, verb: str, resource: Resource, names: Sequence[str], error: str = "") -> Event:
        noun = resource.kind.lower()
        if error:
            return warning(f"Failed{verb.capitalize()}", f"Failed to {verb} {noun}: {named(names)} error: {error}")
        return normal(f"Successful{verb.capitalize()}", f"{verb.capitalize()} {noun}: {named(names)}")

    def decide(self, job: DIJob, observed: Observed, now: datetime) -> Plan:
        if job.status.phase in ENDED:
            return Plan(deletes=_clean_up(job, observed))
        coordinator = observed.role(labels.COORDINATOR).get(0)
        phase, message = _phase(job, coordinator)
        creates = self._missing(job, observed) if phase not in ENDED else ()
        entered = enter(job.status, phase, message, now)
        new = msgspec.structs.replace(
            entered,
            observed_generation=job.metadata.generation,
            replica_status={role: RoleStatus() for role in ROLES} | {"Coordinator": role_status(coordinator)},
            conditions=cleared(entered.conditions, all_created=not creates, now=now),
        )
        return Plan(
            deletes=_impostors(job, observed) if creates else (),
            creates=creates,
            status=changed_status(job.status, new),
            # The verdict is stored before anything is cleaned up for it.
            status_first=phase in ENDED,
            events=() if phase == job.status.phase else _phase_events(phase, message),
        )

    def _missing(self, job: DIJob, observed: Observed) -> tuple[Create, ...]:
        """The service before the pod: a coordinator that starts has its name."""
        creates: list[Create] = []
        if coordinator_name(job) not in observed.services:
            body = coordinator_service(job, self.owner(job))
            creates.append(Create(SERVICE, body, "the coordinator has no address"))
        if 0 not in observed.role(labels.COORDINATOR):
            body = coordinator_pod(job, self.owner(job), self.settings.server_url)
            creates.append(Create(POD, body, "the coordinator has no pod"))
        return tuple(creates)


def _impostors(job: DIJob, observed: Observed) -> tuple[Delete, ...]:
    """Our own pod of the coordinator's name whose labels were edited away: it holds the name."""
    pods = [pod for pod in observed.strays if pod.key.name == coordinator_name(job)]
    return deletions(POD, pods, "it has the coordinator's name but not its labels")


def _phase(job: DIJob, coordinator: PodView | None) -> tuple[str, str]:
    name = job.metadata.name
    created = f"DIJob {name} created"
    if not job.status.phase:
        return CREATED, created  # every job is seen created first, however fast its coordinator comes up
    match pod_state(coordinator):
        case "Running":
            return RUNNING, f"coordinator and aggregator of DIJob {name} are running"
        case "Failed":
            why = _failure(coordinator)
            return FAILED, f"DIJob {name} failed because coordinator failed" + (f": {why}" if why else "")
        case "Succeeded":
            return SUCCEEDED, f"DIJob {name} succeeded because coordinator succeeded"
    return job.status.phase, created


def _failure(coordinator: PodView | None) -> str:
    if coordinator is None:
        return ""
    main = coordinator.container(labels.CONTAINER)
    if main is not None and main.exit_code:
        return f"container {main.name} on node {coordinator.node} exited with code {main.exit_code} ({main.reason})"
    return ", ".join(part for part in (coordinator.reason, coordinator.message) if part)


def _phase_events(phase: str, message: str) -> tuple[Event, ...]:
    match phase:
        case "Failed":
            return (warning(reason_of(phase), message),)
        case "Created" | "Succeeded":
            return (normal(reason_of(phase), message),)
    return ()


def _clean_up(job: DIJob, observed: Observed) -> tuple[Delete, ...]:
    """All services under every policy; pods as the policy says."""
    policy = _policy(job)
    why = f"the job has ended and cleanPodPolicy is {policy}"
    pods = deletions(POD, pods_to_clean(observed.all_pods, policy), why)
    return (*pods, *deletions(SERVICE, observed.services.values(), why))


def _policy(job: DIJob) -> CleanPodPolicy:
    """``ALL`` is the spelling of the first releases; empty means the default."""
    match job.spec.clean_pod_policy:
        case "All" | "ALL":
            return "All"
        case "None":
            return "None"
    return "Running"
