"""What a DIJob says in the words of the lifecycle: one fixed pod for each fixed role, and the declared replicas."""

from collections import Counter
from datetime import datetime

import msgspec

from trainmaster.core import template
from trainmaster.core.condition import SUSPENDED, find, is_true
from trainmaster.core.ids import Key
from trainmaster.core.observed import Observed
from trainmaster.core.slot import Slot
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Settings
from trainmaster.kinds.dijob import address, declare, labels
from trainmaster.kinds.dijob.config import Templates
from trainmaster.kinds.dijob.declaration import Member
from trainmaster.kinds.dijob.profile import COORDINATOR, profile_of
from trainmaster.kinds.dijob.run_policy import clean_policy, run_policy
from trainmaster.kinds.dijob.status import ENDED, RUNNING, restarts_all
from trainmaster.kinds.dijob.types import DIJob
from trainmaster.kinds.status import recalled
from trainmaster.lifecycle import gang
from trainmaster.lifecycle.facts import by_role
from trainmaster.lifecycle.gang import Gang
from trainmaster.lifecycle.model import JobModel, Place, Role, RunPolicy
from trainmaster.lifecycle.restart import Rules
from trainmaster.lifecycle.training import Training

BACKOFF = 1
"""Seconds before the second restart in a row of a coordinator; twice as many before each that follows."""

_COORDINATOR = Rules("OnNodeFail", "Pod", limit=None, backoff=BACKOFF, reset=None)
"""The end of the coordinator's program is the end of the job, unless its node ended it."""
_OTHERS = Rules("Always", "Pod", limit=None, backoff=BACKOFF, reset=None, is_always_replaced=True)


def model_of(job: DIJob, settings: Settings, templates: Templates) -> JobModel:
    stored, slots = job.status, slots_of(job)
    is_over = stored.phase in ENDED
    running = find(stored.conditions, RUNNING)
    wanted = {} if is_over else _wanted_ports(job, slots, settings, templates)
    kept = {*wanted, *_fixed(job), *(slot.place for slot in slots if templates.of(slot.role) is None)}
    return JobModel(
        name=job.metadata.name,
        roles=_roles(job, slots, templates),
        known_roles=(),
        slots=slots,
        run=_run_policy(job),
        memory=msgspec.structs.replace(
            recalled(stored),
            ran=by_role(_ran(job, slots)),
            ports={slot: ports for slot, ports in stored.ports.items() if slot in kept},
        ),
        attempt_label=labels.RESTART_COUNT,
        has_ended=is_over,
        is_new=not stored.phase,
        is_suspended=is_true(stored.conditions, SUSPENDED),
        starts_anew=True,
        running_since=running.last_transition_time if running and running.status == "True" else None,
        wanted_ports=wanted,
        declared_ports=frozenset() if is_over else _declared_ports(slots, templates),
        gang_scheduler=settings.gang_scheduler,
        gang=None if is_over else _gang(job, slots, settings.gang_scheduler, templates),
        not_before=_not_before(job, slots),
    )


def slots_of(job: DIJob) -> tuple[Slot, ...]:
    """The fixed pods first, then the declared replicas, aggregators before their learners."""
    order = {role: number for number, role in enumerate(address.ROLES)}
    members = sorted(job.status.declared.members.items(), key=lambda entry: (order[entry[1].role], entry[0]))
    named = [*((role, name) for name, role in address.fixed_names(job).items()), *((m.role, n) for n, m in members)]
    counts: dict[str, int] = {}
    slots: list[Slot] = []
    for role, name in named:
        slots.append(Slot(role, counts.get(role, 0), name, key=address.slot_of(job, role, name)))
        counts[role] = counts.get(role, 0) + 1
    return tuple(slots)


def pods_of(job: DIJob, slots: tuple[Slot, ...], observed: Observed) -> dict[str, PodView]:
    """The pods of the slots, by name. A pod whose labels were edited is found by no service, and fills no slot."""
    found = {pod.key.name: pod for pod in observed.all_pods}
    fixed = _fixed(job)
    return {
        slot.name: pod
        for slot in slots
        if (pod := found.get(slot.name))
        and pod.labels.get(labels.REPLICA_TYPE) == slot.role
        and (slot.key in fixed or pod.labels.get(labels.POD_NAME) == slot.name)
    }


def _fixed(job: DIJob) -> tuple[str, ...]:
    return profile_of(job).fixed_roles


def _roles(job: DIJob, slots: tuple[Slot, ...], templates: Templates) -> dict[str, Role]:
    """A DDP group cannot go on without a pod that was deleted; every other pod is created again under its name. With
    the restart scope All no pod connects again to one that was restarted."""
    groups = {role for role, _ in _ran(job, slots)}
    is_all = restarts_all(job)
    counts = Counter(slot.role for slot in slots)
    return {
        role: Role(
            role,
            count,
            _rules(role, is_all=is_all),
            misses_deleted_pods=is_all or role in groups,
            misses_restarted_containers=is_all,
            ends_job=role == COORDINATOR,
            training=_training(templates, role),
            # The others are requested by the coordinator when it runs.
            initial_replicas=int(role in _fixed(job)),
        )
        for role, count in counts.items()
    }


def _rules(role: str, *, is_all: bool) -> Rules:
    rules = _COORDINATOR if role == COORDINATOR else _OTHERS
    return msgspec.structs.replace(rules, scope="All") if is_all else rules


def _run_policy(job: DIJob) -> RunPolicy:
    stored, title = job.status, f"{profile_of(job).word} {job.metadata.name}"
    clean = stored.clean or clean_policy(job.spec.clean_pod_policy)
    return run_policy(job.spec.run_policy, title, clean, started=stored.start_time, ended=stored.completion_time)


def training_in(templates: Templates, pod: PodView) -> Training:
    return _training(templates, pod.labels.get(labels.REPLICA_TYPE, ""))


def _training(templates: Templates, role: str) -> Training:
    return Training.of(profile_of(templates.job).container(role), templates.of(role))


def _ran(job: DIJob, slots: tuple[Slot, ...]) -> list[Place]:
    """The places of DDP groups that have had all of their pods; with the restart scope All, of every pod that ran."""
    members, is_all = job.status.declared.members, restarts_all(job)
    heads = {name for name, m in members.items() if m.formed and (is_all or m.role == declare.AGGREGATOR)}
    fixed = [(role, index) for role, indices in job.status.ran.items() for index in indices]
    return fixed + [
        (slot.role, slot.index)
        for slot in (slots if heads else ())
        if slot.name in members and declare.head_of(members, slot.name) in heads
    ]


def _not_before(job: DIJob, slots: tuple[Slot, ...]) -> dict[Place, tuple[datetime, float]]:
    members = job.status.declared.members
    return {
        (slot.role, slot.index): _due(members[slot.name])
        for slot in slots
        if slot.name in members and members[slot.name].attempt
    }


def _due(member: Member) -> tuple[datetime, float]:
    return member.at, declare.pause(member.attempt)


# --- ports of replicas that share a network ---


def _wanted_ports(
    job: DIJob, slots: tuple[Slot, ...], settings: Settings, templates: Templates
) -> dict[str, tuple[int | range, ...]]:
    """By slot; the first learner of a DDP group has the ports of all of them."""
    members = job.status.declared.members
    found: dict[str, tuple[int | range, ...]] = {}
    for slot in slots:
        given = templates.of(slot.role)
        if given is not None and (settings.shared_network or template.is_on_host(given)):
            found.setdefault(slot.place, address.declared_ports(job, slot.role, members.get(slot.name)))
    return found


def _declared_ports(slots: tuple[Slot, ...], templates: Templates) -> frozenset[int]:
    roles = dict.fromkeys(slot.role for slot in slots)
    return frozenset[int]().union(*(address.template_ports(templates.of(role)) for role in roles))


# --- gang scheduling ---


def _gang(job: DIJob, slots: tuple[Slot, ...], scheduler: str, templates: Templates) -> Gang | None:
    """The pods that the job has now: the coordinator runs before it asks for others."""
    if not scheduler:
        return None
    by_role = {slot.role: templates.of(slot.role) for slot in slots}
    counts = {role: sum(slot.role == role for slot in slots) for role in by_role}
    roles = {role: (given["spec"], counts[role]) for role, given in by_role.items() if given is not None}
    key = Key(job.metadata.namespace, job.metadata.name)
    return gang.gang_of(key, scheduler, roles, job.spec.run_policy.scheduling_policy)
