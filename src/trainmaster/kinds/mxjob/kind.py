"""MXJob: a parameter server's roles, or those of a tuner, which run together and end by one of them."""

from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from trainmaster.api.mxjob import RESOURCE, MXJob, MXJobStatus, ReplicaStatus
from trainmaster.core.condition import FINISHED, SUSPENDED, find, put_standard
from trainmaster.core.ids import POD, SERVICE, Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import (
    BRIEF,
    LAZY,
    Batch,
    Create,
    Delete,
    Event,
    Plan,
    batch_of,
    deletions,
    normal,
    soonest,
    warning,
)
from trainmaster.core.policies import gang, restart
from trainmaster.core.policies.cleanup import CleanPodPolicy, patience, pods_to_clean, removal
from trainmaster.core.policies.limit import Limit, overdue, seconds_left
from trainmaster.core.policies.port import Allotment, allot, is_complete
from trainmaster.core.policies.restart import NONE, Fallen, Restarts
from trainmaster.core.view import PodView
from trainmaster.kinds.base import Kind, changed_status, cleared, named, portless
from trainmaster.kinds.mxjob import labels, validate
from trainmaster.kinds.mxjob.body import Builder, declared_ports, gang_of, shared_ports
from trainmaster.kinds.mxjob.node import nodes_of
from trainmaster.kinds.mxjob.policy import BACKOFF, clean_policy_of, policy_of, rules_of
from trainmaster.kinds.mxjob.role import ROLES, leading, roles_of, slots_of
from trainmaster.kinds.mxjob.status import (
    CREATED,
    ENDED,
    FAILED,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    count,
    created,
    done,
    enter,
    entered_at,
    is_current,
    is_suspended,
    is_whole,
    left_behind,
    pairs,
    pods_of,
    ran,
    reason_of,
    resume,
    without,
)
from trainmaster.kinds.mxjob.verdict import Verdict, calm_of, told, verdict


class MXJobKind(Kind[MXJob]):
    resource = RESOURCE
    slots = labels.SLOTS
    component = labels.CONTROLLER
    job_type = MXJob
    status_type = MXJobStatus
    initial_phase = CREATED
    ended = ENDED
    looks_at_nodes = True

    @property
    def framework(self) -> str:
        return "mxnet"

    @property
    def children(self) -> tuple[Resource, ...]:
        scheduler = self.settings.gang_scheduler
        return (gang.group_resource(scheduler),) if scheduler else ()

    def errors(self, job: MXJob) -> list[str]:
        return [] if left_behind(job.status) else validate.errors(job)

    def has_ended(self, status: MXJobStatus) -> bool:
        return status.phase in ENDED or bool(left_behind(status))

    def action_event(self, verb: str, resource: Resource, names: Sequence[str], error: str = "") -> Event:
        noun = resource.kind.lower()
        if error:
            return warning(
                f"Failed{verb.capitalize()}{resource.kind}",
                f"Error {verb[:-1]}ing {noun} {named(names)}: {error}",
            )
        return normal(f"Successful{verb.capitalize()}{resource.kind}", f"{verb.capitalize()}d {noun}: {named(names)}")

    def decide(self, job: MXJob, observed: Observed, now: datetime) -> Plan:
        if job.status.phase in ENDED:
            return self._keep(job, observed, now)
        if phase := left_behind(job.status):
            return _take_over(job, phase, now)
        nodes = nodes_of(observed, self.settings, now)
        found = verdict(job, observed, nodes)
        if found.phase:
            return self._end(job, found.phase, found.message, observed, now, is_stopped=found.is_spent)
        if policy_of(job.spec).suspend:
            return self._stop(job, observed, now)
        if is_suspended(job.status):
            return self._resume(job, now)
        limits = _limits(job)
        if over := overdue(limits, now):
            return self._end(job, FAILED, over.message, observed, now, is_stopped=True)
        if found.fallen:
            plan = self._restart(job, found.fallen, observed, now)
        elif (leaving := _leaving(job, observed)) or found.stranded:
            plan = self._replace(job, found.stranded, leaving, observed, now)
        else:
            plan = self._go_on(job, found, observed, now)
        later = soonest(plan.requeue_after, seconds_left(limits, now), nodes.next_look)
        return msgspec.structs.replace(plan, requeue_after=later)

    # --- while it goes on ---

    def _go_on(self, job: MXJob, found: Verdict, observed: Observed, now: datetime) -> Plan:
        """Pods of an old attempt go before one of the new attempt comes: they must not meet."""
        old = job.status
        allotted = self._allot(job, observed)
        waits = restart.waits(old.restarts, now)
        is_clear = allotted.is_stored and not found.outdated
        batch = batch_of(self._missing(job, observed, waits)) if is_clear else Batch()
        pods = pods_of(job, observed)
        counters = count(job, pods)
        phase, message = _phase(job, counters)
        entered = enter(old, phase, message, now)
        conditions = cleared(entered.conditions, all_created=allotted.is_stored and not batch.creates, now=now)
        new = msgspec.structs.replace(
            entered,
            observed_generation=job.metadata.generation,
            replica_statuses=counters,
            ran=ran(job, pods),
            done=done(job, pods),
            ports=allotted.ports,
            conditions=portless(conditions, allotted.error, now),
        )
        status = changed_status(old, new)
        team = gang_of(job, self.settings.gang_scheduler)
        return Plan(
            deletes=(
                *self._removal(found.outdated, "it is started again", observed, now),
                *self._surplus(job, observed, now),
            ),
            creates=batch.creates,
            patches=gang.changed(team, observed) if team else (),
            status=status,
            status_first=allotted.is_new,  # a pod is told its port, and nobody else must ever be given it
            lazy=_lazy(job, old, new),
            events=_started(job, phase, message, self.settings.gang_scheduler),
            requeue_after=soonest(
                batch.retry_after,
                allotted.retry_after,
                *waits.values(),
                patience((*found.outdated, *_unplaced(job, observed)), now),
            ),
            ports=allotted.drawn,
        )

    def _allot(self, job: MXJob, observed: Observed) -> Allotment:
        """The ports of the slots that share a network."""
        wanted = shared_ports(job, shared_network=self.settings.shared_network)
        stored = job.status.ports
        if is_complete(wanted, stored):
            return Allotment(stored)
        taken = observed.taken | declared_ports(job)
        return allot(wanted, stored, used=observed.host_ports, taken=taken, uid=job.metadata.uid)

    def _missing(self, job: MXJob, observed: Observed, waits: Container[str]) -> Iterator[Create]:
        """The group before its pods, and services before pods: a pod that starts finds its peers' names."""
        slots = slots_of(job)
        team = gang_of(job, self.settings.gang_scheduler)
        owner = self.owner(job)
        if team:
            yield from gang.missing(team, observed, owner.reference(blocks=True))
        nameless = [slot for slot in slots if slot.name not in observed.services]
        filled = pairs(job.status.done)
        gone = [s for s in slots if s.index not in observed.role(s.role.lower())]
        empty = [s for s in gone if s.role not in waits and (s.role, s.index) not in filled]
        if not nameless and not empty:
            return
        builder = Builder(job, owner, team, shared_network=self.settings.shared_network)
        for slot in nameless:
            yield Create(SERVICE, builder.service(slot), f"{slot.place} has no address")
        for slot in empty:
            yield Create(POD, builder.pod(slot), f"{slot.place} has no pod")

    def _surplus(self, job: MXJob, observed: Observed, now: datetime) -> tuple[Delete, ...]:
        """What fills no slot of the spec, highest index first."""
        slots = {slot.name for slot in slots_of(job)}
        services = [s for name, s in sorted(observed.services.items(), reverse=True) if name not in slots]
        scheduler = self.settings.gang_scheduler
        team = gang_of(job, scheduler)
        why = "it is not in the spec any more"
        return (
            *self._removal(_unplaced(job, observed), why, observed, now),
            *deletions(SERVICE, services, why),
            *gang.surplus(scheduler, observed, why, keep=team.key.name if team else ""),
        )

    def _restart(self, job: MXJob, fallen: Sequence[Fallen], observed: Observed, now: datetime) -> Plan:
        """The count is stored before the first pod is deleted for it."""
        old, rules = job.status, rules_of(job)
        decision = restart.decide(fallen, rules, old.restarts, old.restart_history, calm=calm_of(job, now), now=now)
        message = f"MXJob {job.metadata.name} is restarting because {told(fallen)}"
        of_all = any(rules[f.role].scope == "All" for f in fallen)
        pods = pods_of(job, observed)
        new = msgspec.structs.replace(
            enter(old, RESTARTING, message, now),
            observed_generation=job.metadata.generation,
            replica_statuses=count(job, pods),
            restarts=decision.restarts,
            restart_history=decision.history,
            ran={} if of_all else without(ran(job, pods), [(f.role, f.index) for f in fallen]),
            done={} if of_all else done(job, pods),
        )
        event = warning(reason_of(RESTARTING), message)
        return Plan(status=changed_status(old, new), status_first=True, events=(event,))

    def _replace(
        self,
        job: MXJob,
        stranded: Sequence[Fallen],
        leaving: Sequence[tuple[str, int]],
        observed: Observed,
        now: datetime,
    ) -> Plan:
        """Pods are to go that nobody lost: those that wait on a lost node, and those that the spec has no place for.
        It is stored first that they are of the past: however they end, it says nothing about the training."""
        old, pods = job.status, pods_of(job, observed)
        waiting = [(f.role, f.index) for f in stranded]
        restarts = restart.replaced(old.restarts, leaving, 0, now)
        message = _created(job)
        entered = old if old.phase else enter(old, CREATED, message, now)
        new = msgspec.structs.replace(
            entered,
            observed_generation=job.metadata.generation,
            replica_statuses=count(job, pods),
            restarts=restart.replaced(restarts, waiting, BACKOFF, now),
            ran=without(ran(job, pods), waiting),
            done=done(job, pods),
        )
        events = (
            *_started(job, entered.phase, message, self.settings.gang_scheduler),
            *(warning("PodReplaced", f"{f.fault.message}; another pod takes its place") for f in stranded),
        )
        return Plan(status=changed_status(old, new), status_first=True, events=events)

    # --- while it is stopped ---

    def _stop(self, job: MXJob, observed: Observed, now: datetime) -> Plan:
        """That it was told to stop is stored before the first pod goes, and that these pods are of the past: however
        they end now, it says nothing about the training."""
        old, message = job.status, f"MXJob {job.metadata.name} is suspended."
        is_news = old.phase != SUSPENDED
        # Those of a job that has begun, though nobody has seen them yet; and those that came before the first status.
        has_pods = is_news and bool(old.phase or observed.all_pods)
        entered = enter(created(old, _created(job), now), SUSPENDED, message, now)
        new = msgspec.structs.replace(
            entered,
            observed_generation=job.metadata.generation,
            replica_statuses={role: ReplicaStatus() for role in roles_of(job.spec)},
            restarts=_outdated(old.restarts, roles_of(job.spec)) if has_pods else old.restarts,
            ran={},
            done={},
            conditions=cleared(entered.conditions, all_created=True, now=now),
        )
        why = "the job is suspended"
        return Plan(
            deletes=() if is_news else self._all(observed, "All", why, now),
            status=changed_status(old, new),
            status_first=is_news,
            events=(normal(reason_of(SUSPENDED), message),) if is_news else (),
            requeue_after=patience(observed.all_pods, now),
        )

    def _resume(self, job: MXJob, now: datetime) -> Plan:
        message = f"MXJob {job.metadata.name} is resumed."
        entered = enter(resume(job.status, message, now), CREATED, _created(job), now)
        new = msgspec.structs.replace(entered, observed_generation=job.metadata.generation)
        event = normal(reason_of("Resumed"), message)
        return Plan(status=changed_status(job.status, new), status_first=True, events=(event,))

    # --- at its end ---

    def _end(
        self,
        job: MXJob,
        phase: str,
        message: str,
        observed: Observed,
        now: datetime,
        *,
        is_stopped: bool = False,
    ) -> Plan:
        """The verdict is stored before the first pod is deleted for it. With ``is_stopped`` nothing goes on running,
        whatever the policy."""
        old = job.status
        counters = count(job, pods_of(job, observed))
        if phase == SUCCEEDED:  # what still runs has done its part
            counters = {r: ReplicaStatus(0, c.succeeded + c.active, c.failed) for r, c in counters.items()}
        entered = enter(old, phase, message, now)
        new = msgspec.structs.replace(
            entered,
            observed_generation=job.metadata.generation,
            replica_statuses=counters,
            conditions=cleared(entered.conditions, all_created=True, now=now),
            ran={},
            done={},
            ports={},  # pods that are left keep theirs as long as they run
            clean="Running" if is_stopped and clean_policy_of(job.spec) == "None" else None,
        )
        make = normal if phase == SUCCEEDED else warning
        return Plan(status=changed_status(old, new), status_first=True, events=(make(reason_of(phase), message),))

    def _keep(self, job: MXJob, observed: Observed, now: datetime) -> Plan:
        """What the end left behind goes, and at last the job itself: with its uid, so that nobody else of its name
        does."""
        policy = job.status.clean or clean_policy_of(job.spec)
        deletes = self._all(observed, policy, f"the job has ended and cleanPodPolicy is {policy}", now)
        waits = patience(_to_clean(observed, policy), now)
        ttl, ended = policy_of(job.spec).ttl_seconds_after_finished, job.status.completion_time
        if ttl is None or ended is None or deletes:
            return Plan(deletes=deletes, requeue_after=waits)
        if (left := Limit(ended, ttl, "").left(now)) > 0:
            return Plan(requeue_after=soonest(left, waits))
        meta = job.metadata
        why = f"it ended {ttl} seconds ago (ttlSecondsAfterFinished)"
        return Plan(deletes=(Delete(RESOURCE, Key(meta.namespace, meta.name), meta.uid, why),))

    def _all(self, observed: Observed, policy: CleanPodPolicy, why: str, now: datetime) -> tuple[Delete, ...]:
        """The group goes in any case: nothing is left to be placed."""
        services = observed.services.values() if policy != "None" else ()
        return (
            *self._removal(_to_clean(observed, policy), why, observed, now),
            *deletions(SERVICE, services, why),
            *gang.surplus(self.settings.gang_scheduler, observed, why),
        )

    def _removal(self, pods: Iterable[PodView], why: str, observed: Observed, now: datetime) -> tuple[Delete, ...]:
        return removal(pods, why, now, nodes_of(observed, self.settings, now).lost)


def _to_clean(observed: Observed, policy: CleanPodPolicy) -> tuple[PodView, ...]:
    """A container that trains is stopped, also where one beside it has ended."""
    return pods_to_clean(observed.all_pods, policy, is_kept=lambda pod: pod.is_ended)


def _leaving(job: MXJob, observed: Observed) -> list[tuple[str, int]]:
    """The places of pods of this attempt that the spec does not ask for any more."""
    specs = roles_of(job.spec)
    return [
        (role, index)
        for role in ROLES
        for index, pod in observed.role(role.lower()).items()
        if (role not in specs or index >= specs[role].replicas) and is_current(job, role, index, pod)
    ]


def _unplaced(job: MXJob, observed: Observed) -> list[PodView]:
    """Pods that fill no slot of the spec, highest index first. One whose labels were edited into another slot is such
    a pod, too: it holds a name that its own slot needs."""
    slots = {slot.name: observed.role(slot.role.lower()).get(slot.index) for slot in slots_of(job)}
    return [pod for pod in reversed(observed.all_pods) if slots.get(pod.key.name) is not pod]


def _take_over(job: MXJob, phase: str, now: datetime) -> Plan:
    """Another operator's verdict stands. One of them wrote no time of the end."""
    old = job.status
    ended = old.completion_time or entered_at(old, phase) or now
    verdict = find(old.conditions, phase)
    said = put_standard(old.conditions, FINISHED, True, phase, verdict.message if verdict else "", ended)
    new = msgspec.structs.replace(old, phase=phase, completion_time=ended, conditions=said)
    return Plan(status=changed_status(job.status, new), status_first=True)


def _limits(job: MXJob) -> tuple[Limit, ...]:
    seconds, since = policy_of(job.spec).active_deadline_seconds, job.status.start_time
    if seconds is None or since is None:
        return ()
    name = job.metadata.name
    return (Limit(since, seconds, f"MXJob {name} has failed because it was active longer than specified deadline"),)


def _phase(job: MXJob, counters: dict[str, ReplicaStatus]) -> tuple[str, str]:
    """Whoever has run is running until something happens; after a restart, when everybody is back."""
    name, phase = job.metadata.name, job.status.phase
    are_back = all(is_whole(replica, counters[role]) for role, replica in roles_of(job.spec).items())
    runs = are_back if phase == RESTARTING else phase == RUNNING or counters[leading(job.spec)].active > 0
    if phase and runs:
        return RUNNING, f"MXJob {name} is running."
    if phase == RESTARTING:
        restarting = find(job.status.conditions, RESTARTING)
        return RESTARTING, restarting.message if restarting else ""
    return CREATED, _created(job)  # every job is seen so first, however fast its pods come up


def _created(job: MXJob) -> str:
    return f"MXJob {job.metadata.name} is created."


def _lazy(job: MXJob, old: MXJobStatus, new: MXJobStatus) -> float:
    """Counters alone may wait. That all have run may not: from then on a pod that is gone is missed."""
    is_first = new.ran != old.ran and all(len(new.ran.get(r, ())) == s.replicas for r, s in roles_of(job.spec).items())
    counted = msgspec.structs.replace(
        old, replica_statuses=new.replica_statuses, ran=new.ran, done=new.done, conditions=new.conditions
    )
    if old == new or new != counted or is_first:
        return 0.0
    return LAZY if new.done == old.done else BRIEF


def _outdated(restarts: dict[str, Restarts], roles: Iterable[str]) -> dict[str, Restarts]:
    """A new attempt of every role that nobody is charged for."""
    found = {}
    for role in roles:
        old = restarts.get(role, NONE)
        found[role] = msgspec.structs.replace(old, count=old.count + 1, attempt=old.count + 1, attempts={})
    return restarts | found


def _started(job: MXJob, phase: str, message: str, scheduler: str) -> tuple[Event, ...]:
    if not job.status.phase:
        return (normal(reason_of(CREATED), message), *validate.overridden(job, scheduler))
    if phase == RUNNING != job.status.phase:
        return (normal(reason_of(RUNNING), message),)
    return ()
