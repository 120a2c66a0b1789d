"""DIJob v1alpha1: the coordinator's life is the job's life."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.api.dijob import RESOURCE, DIJob, DIJobStatus, Displaced
from trainmaster.core import condition, template
from trainmaster.core.condition import Conditions
from trainmaster.core.ids import POD, SERVICE, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Create, Delete, Event, Plan, deletions, normal, warning
from trainmaster.core.policies.cleanup import CleanPodPolicy, pods_to_clean
from trainmaster.core.policies.port import NOTHING, Allotment, allot, is_complete
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Kind, changed_status, cleared, named, portless
from trainmaster.kinds.dijob import address, crew, declare, labels, validate
from trainmaster.kinds.dijob.body import coordinator_name, coordinator_pod, coordinator_service
from trainmaster.kinds.dijob.crew import Crew, failure_of
from trainmaster.kinds.dijob.status import (
    CREATED,
    ENDED,
    FAILED,
    RUNNING,
    SUCCEEDED,
    counted,
    enter,
    folded,
    is_displaced,
    pod_state,
    reason_of,
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
        coordinator, hands = observed.role(labels.COORDINATOR).get(0), Crew.of(job, observed)
        phase, message = _phase(job, coordinator)
        events = () if phase == job.status.phase else _phase_events(phase, message)
        counters = counted([*([(labels.COORDINATOR, coordinator)] if coordinator else ()), *hands.filled])
        entered = msgspec.structs.replace(
            enter(job.status, phase, message, now),
            observed_generation=job.metadata.generation,
            replica_status=folded(counters) if phase == SUCCEEDED else counters,
        )
        if phase in ENDED:
            # The verdict is stored before anything is cleaned up for it. Whoever is left keeps its port while it runs.
            ended = msgspec.structs.replace(entered, ports=NOTHING.ports)
            conditions = cleared(ended.conditions, all_created=True, now=now)
            return self._store(job, msgspec.structs.replace(ended, conditions=conditions), events)
        declared, failures = crew.replaced(job, hands, now)
        displaced, puts_out = _displaced(job, coordinator, now)
        if failures or puts_out:
            changed = msgspec.structs.replace(entered, declared=declared, displaced=displaced)
            return self._store(job, changed, (*events, *failures, *puts_out))
        return self._keep(job, observed, hands, entered, events, now)

    def _store(self, job: DIJob, new: DIJobStatus, events: tuple[Event, ...]) -> Plan:
        return Plan(status=changed_status(job.status, new), status_first=True, events=events)

    def _keep(
        self,
        job: DIJob,
        observed: Observed,
        hands: Crew,
        entered: DIJobStatus,
        events: tuple[Event, ...],
        now: datetime,
    ) -> Plan:
        """Whoever is missing is created, whoever is nobody's goes."""
        allotted = self._allot(job, observed, hands)
        creates: tuple[Create, ...] = ()
        if allotted.is_stored:
            creates = (
                *self._missing(job, observed, now),
                *crew.missing(job, hands, observed, now, self.owner(job), self.settings),
            )
        conditions = cleared(entered.conditions, all_created=allotted.is_stored and not creates, now=now)
        conditions = _untemplated(portless(conditions, allotted.error, now), crew.untemplated(job), now)
        new = msgspec.structs.replace(entered, ports=allotted.ports, conditions=conditions)
        status = changed_status(job.status, new)
        waits = (allotted.retry_after, crew.next_look(hands, now), _pause_of(job, observed, now))
        return Plan(
            deletes=(*_impostors(job, observed, creates), *crew.leftovers(job, hands, observed)),
            creates=creates,
            status=status,
            # A port is stored before a pod is told it.
            status_first=allotted.is_new,
            is_lazy=_is_about_counters(job.status, new),
            events=events,
            requeue_after=min((wait for wait in waits if wait is not None), default=None),
            ports=allotted.drawn,
        )

    def _allot(self, job: DIJob, observed: Observed, hands: Crew) -> Allotment:
        """Ports of those that share a network. A DDP group keeps the ports of its template: they are in a row."""
        replicas = [(labels.COORDINATOR, coordinator_name(job))]
        replicas += [(m.role, name) for name, m in sorted(hands.members.items()) if m.role != declare.DDP_LEARNER]
        wanted, used = dict[str, tuple[int]](), dict[str, tuple[int, ...]]()
        for role, name in replicas:
            given, slot = address.template_of(job, role), address.slot_of(role, name)
            if given is not None and (self.settings.shared_network or template.is_on_host(given)):
                wanted[slot] = (address.declared_port(job, role),)
                pod = hands.pods.get(name) if role != labels.COORDINATOR else observed.role(role).get(0)
                used[slot] = pod.host_ports if pod else ()
        stored = {
            slot: ports for slot, ports in job.status.ports.items() if slot in wanted or slot == labels.COORDINATOR
        }
        if is_complete(wanted, stored):
            return Allotment(stored)
        taken = observed.taken.union(*(address.template_ports(job, role) for role, _ in replicas))
        return allot(wanted, stored, used=used, taken=taken, uid=job.metadata.uid)

    def _missing(self, job: DIJob, observed: Observed, now: datetime) -> tuple[Create, ...]:
        """The service before the pod: a coordinator that starts has its name."""
        creates: list[Create] = []
        if coordinator_name(job) not in observed.services:
            body = coordinator_service(job, self.owner(job))
            creates.append(Create(SERVICE, body, "the coordinator has no address"))
        if 0 not in observed.role(labels.COORDINATOR) and _pause_of(job, observed, now) is None:
            body = coordinator_pod(job, self.owner(job), self.settings)
            creates.append(Create(POD, body, "the coordinator has no pod"))
        return tuple(creates)


def _impostors(job: DIJob, observed: Observed, creates: Sequence[Create]) -> tuple[Delete, ...]:
    """Of the coordinator's name: our own pod whose labels were edited away, and one that its node has put out."""
    strays = [pod for pod in observed.strays if creates and pod.key.name == coordinator_name(job)]
    gone = [pod for pod in observed.role(labels.COORDINATOR).values() if _is_put_out(job, pod)]
    return (
        *deletions(POD, strays, "it has the coordinator's name but not its labels"),
        *deletions(POD, gone, "its node has put it out; another one comes in its place"),
    )


def _displaced(job: DIJob, coordinator: PodView | None, now: datetime) -> tuple[Displaced | None, tuple[Event, ...]]:
    """A coordinator that its node has refused or put out is on record before it is deleted, and counted once."""
    before = job.status.displaced
    if coordinator is None or coordinator.deleting or not is_displaced(coordinator) or _is_put_out(job, coordinator):
        return before, ()
    times = before.times + 1 if before and now - before.at < declare.CALM else 1
    said = f"{coordinator.key.name} was put out: {failure_of(coordinator)}; another one comes in its place"
    return Displaced(coordinator.uid, now, times), (warning("CoordinatorDisplaced", said),)


def _is_put_out(job: DIJob, pod: PodView) -> bool:
    return job.status.displaced is not None and job.status.displaced.uid == pod.uid


def _pause_of(job: DIJob, observed: Observed, now: datetime) -> float | None:
    """Seconds until a coordinator may come in place of one that was put out; None when nothing is in its way."""
    displaced = job.status.displaced
    if displaced is None or observed.role(labels.COORDINATOR):
        return None
    wait = displaced.at.timestamp() + declare.pause(displaced.times) - now.timestamp()
    return wait if wait > 0 else None


def _untemplated(conditions: Conditions, error: str, now: datetime) -> Conditions:
    if not error:
        return conditions
    return condition.put_standard(conditions, condition.POD_CREATE_FAILED, True, "NoTemplate", error, now)


def _is_about_counters(old: DIJobStatus, new: DIJobStatus) -> bool:
    return old != new and msgspec.structs.replace(new, replica_status=old.replica_status) == old


def _phase(job: DIJob, coordinator: PodView | None) -> tuple[str, str]:
    name = job.metadata.name
    created = f"DIJob {name} created"
    if not job.status.phase:
        return CREATED, created  # every job is seen created first, however fast its coordinator comes up
    if coordinator is not None and is_displaced(coordinator):
        return job.status.phase, created
    match pod_state(coordinator):
        case "Running":
            return RUNNING, f"coordinator and aggregator of DIJob {name} are running"
        case "Failed" if coordinator is not None:
            why = failure_of(coordinator)
            return FAILED, f"DIJob {name} failed because coordinator failed" + (f": {why}" if why else "")
        case "Succeeded":
            return SUCCEEDED, f"DIJob {name} succeeded because coordinator succeeded"
    return job.status.phase, created


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
