"""DIJob and NerveXJob, both v1alpha1: the coordinator's life is the job's life."""

from collections.abc import Sequence
from datetime import datetime
from itertools import chain
from typing import ClassVar

import msgspec

from trainmaster.core import condition, template
from trainmaster.core.condition import Conditions
from trainmaster.core.errors import BadSpec
from trainmaster.core.ids import SERVICE, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import LAZY, Batch, Delete, Event, Plan, batch_of, deletions, normal, soonest, warning
from trainmaster.core.wire import Template
from trainmaster.kinds.admission_hints import Custom, Main
from trainmaster.kinds.base import Kind, Related, changed_status, cleared, named, portless
from trainmaster.kinds.dijob import address, labels, nervexjob, validate
from trainmaster.kinds.dijob import fixed_pods as standing
from trainmaster.kinds.dijob import replicas as crew
from trainmaster.kinds.dijob.config import aggregator_template
from trainmaster.kinds.dijob.declaration import Member
from trainmaster.kinds.dijob.fixed_pods import FixedPods
from trainmaster.kinds.dijob.profile import AGGREGATOR, COORDINATOR, DI, NERVEX, Profile, type_of
from trainmaster.kinds.dijob.replicas import DeclaredPods
from trainmaster.kinds.dijob.status import (
    CREATED,
    ENDED,
    FAILED,
    RUNNING,
    SUCCEEDED,
    counted,
    enter,
    failure_of,
    folded,
    reason_of,
)
from trainmaster.kinds.dijob.types import DIJob, DIJobStatus
from trainmaster.lifecycle import node
from trainmaster.lifecycle.cleanup import CleanPodPolicy, patience, pods_to_clean, removal
from trainmaster.lifecycle.port import NOTHING, Allotment, allot, is_complete


class DIJobKind(Kind[DIJob]):
    profile: ClassVar[Profile] = DI
    resource = DI.resource
    slots = labels.SLOTS
    component = DI.component
    job_type = type_of(DI)
    status_type = DIJobStatus
    initial_phase = CREATED
    ended = ENDED
    looks_at_nodes = True
    custom = Custom(
        defaults={"cleanPodPolicy": "Running"},
        main=Main("di-container", "it gets no port di-port, and side-cars keep its pod alive"),
        together=("collector", "learner"),
        ending=("coordinator",),
    )

    def errors(self, job: DIJob) -> list[str]:
        return validate.errors(job)

    def action_event(self, verb: str, resource: Resource, names: Sequence[str], error: str = "") -> Event:
        noun = resource.kind.lower()
        if error:
            return warning(f"Failed{verb.capitalize()}", f"Failed to {verb} {noun}: {named(names)} error: {error}")
        return normal(f"Successful{verb.capitalize()}", f"{verb.capitalize()} {noun}: {named(names)}")

    def decide(self, job: DIJob, observed: Observed, now: datetime) -> Plan:
        grace = self.settings.node_fail_grace_period
        lost_nodes = node.lost(observed.nodes, grace, now)
        if job.status.phase in ENDED:
            left = (pod for pod in observed.all_pods if pod.deleting)
            look = soonest(patience(left, now), node.until_lost(observed.nodes, grace, now))
            return Plan(deletes=_clean_up(job, observed, now, lost_nodes), requeue_after=look)
        own, hands = FixedPods.of(job, observed, lost_nodes), DeclaredPods.of(job, observed, lost_nodes)
        phase, message = _phase(job, own)
        events = () if phase == job.status.phase else self._phase_events(phase, message)
        counters = counted([*own.pods.items(), *hands.filled], self.profile)
        entered = msgspec.structs.replace(
            enter(job.status, phase, message, now, self.profile),
            observed_generation=job.metadata.generation,
            replica_status=folded(counters) if phase == SUCCEEDED else counters,
        )
        if phase in ENDED:
            # The verdict is stored before anything is cleaned up for it. Whoever is left keeps its port while it runs.
            ended = msgspec.structs.replace(entered, ports=NOTHING.ports)
            conditions = cleared(ended.conditions, all_created=True, now=now)
            return self._store(job, msgspec.structs.replace(ended, conditions=conditions), events)
        declared, failures = crew.replaced(job, hands, now)
        displaced, losses = standing.displaced(own, now)
        if failures or losses:
            changed = msgspec.structs.replace(entered, declared=declared, displaced=displaced)
            return self._store(job, changed, (*events, *failures, *losses))
        found, trouble = self._aggregator_template(job, observed)
        if found is not None:
            # Like a port it is on record before a pod is told of it: whatever becomes of the AggregatorConfig later,
            # the aggregator of this job comes back as the one that its coordinator knows.
            declared = msgspec.structs.replace(declared, aggregator_template=found)
            return self._store(job, msgspec.structs.replace(entered, declared=declared), events)
        return self._keep(job, observed, own, hands, entered, events, trouble, now)

    def _store(self, job: DIJob, new: DIJobStatus, events: tuple[Event, ...]) -> Plan:
        return Plan(status=changed_status(job.status, new), status_first=True, events=events)

    def _keep(
        self,
        job: DIJob,
        observed: Observed,
        own: FixedPods,
        hands: DeclaredPods,
        entered: DIJobStatus,
        events: tuple[Event, ...],
        trouble: str,
        now: datetime,
    ) -> Plan:
        """Whoever is missing is created, whoever is nobody's goes."""
        allotted = self._allot(job, observed, own, hands)
        batch = Batch()
        if allotted.is_stored:
            batch = batch_of(
                chain(
                    standing.missing(own, observed, now, self.owner(job), self.settings),
                    crew.missing(job, hands, observed, now, self.owner(job), self.settings),
                )
            )
        lost = crew.untemplated(job)
        is_whole = allotted.is_stored and not (batch.creates or lost or trouble)
        conditions = portless(cleared(entered.conditions, all_created=is_whole, now=now), allotted.error, now)
        conditions = _untemplated(conditions, "NoTemplate", lost, now)
        conditions = _untemplated(conditions, "NoAggregatorConfig", trouble, now)
        declared = crew.formed(entered.declared, hands)
        new = msgspec.structs.replace(entered, ports=allotted.ports, conditions=conditions, declared=declared)
        status = changed_status(job.status, new)
        until_lost = node.until_lost(observed.nodes, self.settings.node_fail_grace_period, now)
        looks = (crew.next_look(hands, now), standing.next_look(own, now), until_lost)
        return Plan(
            deletes=(
                *standing.impostors(own, observed, batch.creates, now),
                *crew.leftovers(job, hands, observed, now),
            ),
            creates=batch.creates,
            status=status,
            # A port is stored before a pod is told it.
            status_first=allotted.is_new,
            lazy=LAZY if _is_about_counters(job.status, new) else 0.0,
            events=events,
            requeue_after=soonest(batch.retry_after, allotted.retry_after, *looks),
            ports=allotted.drawn,
        )

    def _allot(self, job: DIJob, observed: Observed, own: FixedPods, hands: DeclaredPods) -> Allotment:
        """Ports of those that share a network."""
        pods = {**hands.pods, **{pod.key.name: pod for pod in own.pods.values()}}
        replicas: list[tuple[str, str, Member | None]] = [
            *((role, name, None) for name, role in address.standing_names(job).items()),
            *((member.role, name, member) for name, member in sorted(hands.members.items())),
        ]
        wanted, used = dict[str, tuple[int | range, ...]](), dict[str, tuple[int, ...]]()
        for role, name, member in replicas:
            given, slot = address.template_of(job, role), address.slot_of(job, role, name)
            if given is not None and (self.settings.shared_network or template.is_on_host(given)):
                wanted[slot] = address.declared_ports(job, role, member)
                used[slot] = (*used.get(slot, ()), *(pods[name].host_ports if name in pods else ()))
        stored = {
            slot: ports for slot, ports in job.status.ports.items() if slot in wanted or slot in self.profile.standing
        }
        if is_complete(wanted, stored):
            return Allotment(stored)
        taken = observed.taken.union(*(address.template_ports(job, role) for role, _, _ in replicas))
        return allot(wanted, stored, used=used, taken=taken, uid=job.metadata.uid)

    def _aggregator_template(self, job: DIJob, observed: Observed) -> tuple[Template | None, str]:
        """What an own aggregator is made of, as long as that is not on record; else why there is nothing."""
        if not self.profile.has_own_aggregator or address.template_of(job, AGGREGATOR) is not None:
            return None, ""
        name = f"AggregatorConfig {self.settings.aggregator_config}"
        if observed.related is None:
            return None, f"{name} is missing: create it; the job goes on as soon as it is there"
        try:
            return aggregator_template(observed.related), ""
        except BadSpec as bad:
            return None, f"{name} cannot be used: {'; '.join(bad.errors)}"

    def _phase_events(self, phase: str, message: str) -> tuple[Event, ...]:
        match phase:
            case "Failed":
                return (warning(reason_of(phase, self.profile), message),)
            case "Created" | "Succeeded":
                return (normal(reason_of(phase, self.profile), message),)
        return ()


class NerveXJobKind(DIJobKind):
    profile = NERVEX
    resource = NERVEX.resource
    component = NERVEX.component
    job_type = type_of(NERVEX)
    custom = msgspec.structs.replace(
        DIJobKind.custom, main=Main("{role}", "it gets no port of that name, and side-cars keep its pod alive")
    )

    @property
    def related(self) -> Related | None:
        return Related(nervexjob.AGGREGATOR_CONFIG, self.settings.aggregator_config)


def _untemplated(conditions: Conditions, reason: str, error: str, now: datetime) -> Conditions:
    if not error:
        return conditions
    return condition.put_standard(conditions, condition.POD_CREATE_FAILED, True, reason, error, now)


def _is_about_counters(old: DIJobStatus, new: DIJobStatus) -> bool:
    return old != new and msgspec.structs.replace(new, replica_status=old.replica_status) == old


def _phase(job: DIJob, own: FixedPods) -> tuple[str, str]:
    said = f"{own.profile.word} {job.metadata.name}"
    coordinator, created = own.coordinator, f"{said} created"
    if not job.status.phase:
        return CREATED, created  # every job is seen created first, however fast its coordinator comes up
    if coordinator is not None and own.is_lost(COORDINATOR):
        return job.status.phase, created
    match own.state(COORDINATOR):
        case "Running" if own.is_running:
            return RUNNING, f"coordinator and aggregator of {said} are running"
        case "Failed" if coordinator is not None:
            why = failure_of(coordinator, own.profile.container(COORDINATOR))
            return FAILED, f"{said} failed because coordinator failed" + (f": {why}" if why else "")
        case "Succeeded":
            return SUCCEEDED, f"{said} succeeded because coordinator succeeded"
    return job.status.phase, created


def _clean_up(job: DIJob, observed: Observed, now: datetime, lost_nodes: frozenset[str]) -> tuple[Delete, ...]:
    """All services under every policy; pods as the policy says."""
    policy = _policy(job)
    why = f"the job has ended and cleanPodPolicy is {policy}"
    pods = removal(pods_to_clean(observed.all_pods, policy), why, now, lost_nodes)
    return (*pods, *deletions(SERVICE, observed.services.values(), why))


def _policy(job: DIJob) -> CleanPodPolicy:
    """``ALL`` is the spelling of the first releases; empty means the default."""
    match job.spec.clean_pod_policy:
        case "All" | "ALL":
            return "All"
        case "None":
            return "None"
    return "Running"
