"""AITrainingJob: any number of roles, created at once; end policies decide when and how it ends."""

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import msgspec

from trainmaster.api.aitrainingjob import RESOURCE, AITrainingJob, AITrainingJobStatus, Ending
from trainmaster.core.condition import CONTAINER_CREATE_FAILED, SUSPENDED, Conditions, is_true, put_standard
from trainmaster.core.ids import CONFIG_MAP, POD, SERVICE, Key, Resource
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
from trainmaster.core.policies import completion, node, restart
from trainmaster.core.policies.cleanup import CleanPodPolicy, patience, pods_to_clean, removal
from trainmaster.core.policies.completion import Result
from trainmaster.core.policies.gang import group_resource
from trainmaster.core.policies.limit import TIMEOUT, overdue, seconds_left
from trainmaster.core.policies.port import Allotment, allot, is_complete
from trainmaster.core.policies.restart import Fallen
from trainmaster.core.view import JobView, PodView
from trainmaster.kinds.aitrainingjob import labels, placement, validate
from trainmaster.kinds.aitrainingjob.body import (
    Builder,
    declared_ports,
    shared_ports,
    slots_of,
)
from trainmaster.kinds.aitrainingjob.deadline import first_running, kept_limit, limits_of
from trainmaster.kinds.aitrainingjob.elastic import elastic_roles, give_up, scaled_role, selector, size_of, sized
from trainmaster.kinds.aitrainingjob.external import asked_end, clean_of, left_behind, reason_to_stop
from trainmaster.kinds.aitrainingjob.fault import Faults, faults_of
from trainmaster.kinds.aitrainingjob.membership import Step, next_step
from trainmaster.kinds.aitrainingjob.status import (
    CREATING,
    ENDED,
    PENDING,
    RESTARTING,
    RUNNING,
    TERMINATING,
    WAITING,
    count,
    enter,
    message_of,
    phase_of,
    reason_of,
    restarting_message,
)
from trainmaster.kinds.aitrainingjob.verdict import Verdict, calm_of, restarts_of, rules_of, still_done, verdict
from trainmaster.kinds.base import Failure, Kind, changed_status, cleared, named, portless
from trainmaster.kinds.custom import Custom, Main


class AITrainingJobKind(Kind[AITrainingJob]):
    resource = RESOURCE
    slots = labels.SLOTS
    component = "TrainingJobOperator"
    job_type = AITrainingJob
    status_type = AITrainingJobStatus
    initial_phase = PENDING
    ended = ENDED
    custom = Custom(
        main=Main("aitj-*"),
    )
    looks_at_nodes = True

    def errors(self, job: AITrainingJob) -> list[str]:
        # Once the verdict is stored, the spec decides nothing any more: a bad edit must not stop the clean-up.
        return [] if job.status.ending else validate.errors(job)

    def action_event(self, verb: str, resource: Resource, names: Sequence[str], error: str = "") -> Event:
        noun = resource.kind.lower()
        if error:
            return warning(
                f"Failed{verb.capitalize()}{resource.kind}",
                f"Error {verb[:-1]}ing {noun} {named(names)}: {error}",
            )
        return normal(f"Successful{verb.capitalize()}{resource.kind}", f"{verb.capitalize()}d {noun}: {named(names)}")

    @property
    def children(self) -> tuple[Resource, ...]:
        scheduler = self.settings.gang_scheduler
        return (CONFIG_MAP, group_resource(scheduler)) if scheduler else (CONFIG_MAP,)

    def conclude(self, view: JobView, plan: Plan, failures: Sequence[Failure], now: datetime) -> Plan:
        concluded = super().conclude(view, plan, failures, now)
        if concluded.status is None:
            return concluded
        status = self._status(concluded.status)
        conditions = placement.classless(status.conditions, failures, now.replace(microsecond=0))
        if conditions == status.conditions:
            return concluded
        new = msgspec.structs.replace(status, conditions=conditions)
        return msgspec.structs.replace(concluded, status=changed_status(status, new))

    def decide(self, job: AITrainingJob, observed: Observed, now: datetime) -> Plan:
        job = sized(job)
        plan = self._next(job, observed, now)
        return placement.placed(plan, job, observed, self.owner(job), self.settings.gang_scheduler)

    def _next(self, job: AITrainingJob, observed: Observed, now: datetime) -> Plan:
        if job.status.phase in ENDED:
            return self._keep(job, observed, now)
        if job.status.ending:
            return self._terminate(job, job.status.ending, observed, now)
        if left := left_behind(job):
            return self._end(job, left, observed, now, clean_of(left.phase, job, is_asked=False))
        faults = faults_of(job, observed, self.settings, now)
        found = verdict(job, observed, faults, now)
        if found.result.is_success:
            return self._end(job, found.result, observed, now)
        if asked := asked_end(job):
            return self._end(job, asked, observed, now, clean_of(asked.phase, job, is_asked=True))
        if found.result.phase:
            return self._end(job, found.result, observed, now, clean_of(found.result.phase, job, is_asked=False))
        if why := reason_to_stop(job):
            return self._stop(job, why, found, observed, now)
        limits = limits_of(job, observed)
        if over := overdue(limits, now):
            return self._end(job, Result(TIMEOUT, over.message), observed, now, clean_of(TIMEOUT, job, is_asked=False))
        plan = self._advance(job, found, faults, observed, now)
        look = soonest(plan.requeue_after, seconds_left(limits, now), faults.next_look)
        return msgspec.structs.replace(plan, requeue_after=look)

    def _advance(self, job: AITrainingJob, found: Verdict, faults: Faults, observed: Observed, now: datetime) -> Plan:
        if found.fallen:
            return self._restart(job, found.fallen, observed, now)
        if found.lost:
            return self._shrink(job, found.lost, observed, now)
        if job.status.restart_replica_name and not found.outdated:
            return self._restarting(job, observed, now)
        return self._go_on(job, observed, now, found, faults)

    def _stop(self, job: AITrainingJob, why: str, found: Verdict, observed: Observed, now: datetime) -> Plan:
        """No pod runs until the job is told to go on. That it was told to stop is stored before the first one goes;
        those that have ended stay, so that their work is not done again."""
        old = job.status
        alive = [pod for pod in observed.all_pods if not pod.is_ended]
        was_stopped = is_true(old.conditions, SUSPENDED)
        phase, message = (TERMINATING, f"{why}; deleting pods") if alive else (PENDING, why)
        entered = enter(old, phase, message, now)
        new = msgspec.structs.replace(
            entered,
            observed_generation=job.metadata.generation,
            replica_statuses=count(job, observed),
            conditions=put_standard(
                _uncreated(cleared(entered.conditions, all_created=True, now=now), "", now),
                SUSPENDED,
                True,
                "Stopped",
                why,
                now,
            ),
            restart_replica_name="",
            done=found.done,
            creation_errors={},
            first_running_time=None,  # time in which nothing may run is not held against it
            start_running_time=None,
        )
        return Plan(
            deletes=removal(alive, f"the job is {why}", now, self._lost(observed, now)) if was_stopped else (),
            status=changed_status(old, new),
            status_first=not was_stopped,
            events=() if was_stopped else (normal("Suspended", why),),
            requeue_after=soonest(patience(alive, now), self._until_lost(observed, now)),
        )

    def _restart(self, job: AITrainingJob, fallen: Sequence[Fallen], observed: Observed, now: datetime) -> Plan:
        """The count is stored before the first pod is deleted for it."""
        status = job.status
        decision = restart.decide(
            fallen, rules_of(job), restarts_of(job), status.restart_history, calm=calm_of(job, now), now=now
        )
        new = msgspec.structs.replace(
            enter(status, TERMINATING, decision.message, now),
            observed_generation=job.metadata.generation,
            replica_statuses=count(job, observed),
            restart_count={role: r.count for role, r in decision.restarts.items()},
            restart_replica_name=decision.role,
            restarts=decision.restarts,
            restart_history=decision.history,
            done=still_done(job, decision.restarts),
        )
        event = warning(reason_of(TERMINATING), decision.message)
        return Plan(status=changed_status(status, new), status_first=True, events=(event,))

    def _shrink(self, job: AITrainingJob, lost: Sequence[Fallen], observed: Observed, now: datetime) -> Plan:
        """The job goes on with the pods that are left. Whom it gave up is stored before it is deleted."""
        status = job.status
        decision = give_up(
            lost, rules_of(job), restarts_of(job), status.restart_history, calm=calm_of(job, now), now=now
        )
        new = msgspec.structs.replace(
            status,
            observed_generation=job.metadata.generation,
            replica_statuses=count(job, observed),
            restart_count={role: r.count for role, r in decision.restarts.items()},
            restarts=decision.restarts,
            restart_history=decision.history,
        )
        said = "; ".join(f.fault.message for f in lost[:3]) + (f"; and {len(lost) - 3} more" if len(lost) > 3 else "")
        event = warning("Shrunk", f"the job goes on without {len(lost)} of its pods: {said}")
        return Plan(status=changed_status(status, new), status_first=True, events=(event,))

    def _restarting(self, job: AITrainingJob, observed: Observed, now: datetime) -> Plan:
        """The pods of the old attempt are gone; that is told before those of the new one come."""
        status, role = job.status, job.status.restart_replica_name
        spec = job.spec.replica_specs.get(role)
        scope = status.restart_history[-1].scope if status.restart_history else spec.restart_scope if spec else "All"
        message = restarting_message(scope, role)
        new = msgspec.structs.replace(
            enter(status, RESTARTING, message, now),
            observed_generation=job.metadata.generation,
            replica_statuses=count(job, observed),
            restart_replica_name="",
        )
        return Plan(
            status=changed_status(status, new),
            status_first=True,
            events=(normal(reason_of(RESTARTING), message),),
        )

    def _go_on(self, job: AITrainingJob, observed: Observed, now: datetime, found: Verdict, faults: Faults) -> Plan:
        """Pods of an old attempt go before one of the new attempt comes: they must not meet."""
        outdated = found.outdated
        allotted = self._allot(job, observed)
        waits = restart.waits(job.status.restarts, now)
        told, lost = self._tell(job, observed, now), self._lost(observed, now)
        is_clear = allotted.is_stored and not outdated
        batch = batch_of(chain(told.creates, self._missing(job, observed, waits, found.done))) if is_clear else Batch()
        counters, role = count(job, observed), scaled_role(job)
        old = job.status
        phase, message = phase_of(job, counters, observed)
        if old.restart_replica_name:
            phase, message = old.phase, message_of(old)
        elif not old.phase:
            phase, message = PENDING, WAITING  # every job is seen waiting first, however fast its pods come up
        elif phase == CREATING:
            message = faults.said or message
        entered = enter(old, phase, message, now)
        conditions = cleared(entered.conditions, all_created=allotted.is_stored and not batch.creates, now=now)
        conditions = _uncreated(conditions, faults.said, now)
        if is_true(conditions, SUSPENDED):
            conditions = put_standard(conditions, SUSPENDED, False, "Resumed", "", now)
        has_run = any(c.active or c.succeeded or c.failed for c in counters.values())
        new = msgspec.structs.replace(
            entered,
            observed_generation=job.metadata.generation,
            replica_statuses=counters,
            creation_errors=faults.creation_errors,
            node_troubles=faults.node_troubles,
            ports=allotted.ports,
            membership=told.record,
            done=found.done,
            elastic_replicas=size_of(job, role, observed) if role else 0,
            selector=selector(job, role) if role else "",
            first_running_time=first_running(job, has_run, now),
            conditions=portless(conditions, allotted.error, now),
        )
        status = changed_status(old, new)
        return Plan(
            deletes=(
                *removal(outdated, "it is started again", now, lost),
                *removal(_abandoned(observed, outdated, lost), "it was told to go", now, lost),
                *_surplus(job, observed),
            ),
            creates=batch.creates,
            patches=told.patches,
            status=status,
            # A pod is told its port, and nobody else must ever be given it. A generation is given out once.
            status_first=allotted.is_new or told.is_new,
            lazy=_lazy(old, new),
            events=(*_started(job, phase, message), *_failing(job, faults)),
            requeue_after=soonest(
                batch.retry_after, allotted.retry_after, told.retry_after, *waits.values(), patience(outdated, now)
            ),
            ports=allotted.drawn,
        )

    def _allot(self, job: AITrainingJob, observed: Observed) -> Allotment:
        """The ports of the slots that share a network."""
        wanted = shared_ports(job, shared_network=self.settings.shared_network)
        stored = job.status.ports
        if is_complete(wanted, stored):
            return Allotment(stored)
        taken = observed.taken | declared_ports(job)
        return allot(wanted, stored, used=observed.host_ports, taken=taken, uid=job.metadata.uid)

    def _missing(
        self, job: AITrainingJob, observed: Observed, waits: Container[str], done: Mapping[str, Container[int]]
    ) -> Iterator[Create]:
        """Services before pods: a pod that starts finds its peers' names. A replica that has succeeded needs no pod."""
        slots = slots_of(job)
        nameless = [slot for slot in slots if slot.name not in observed.services]
        empty = [
            slot
            for slot in slots
            if slot.role not in waits
            and slot.index not in observed.role(slot.role.lower())
            and slot.index not in done.get(slot.role, ())
        ]
        if not nameless and not empty:
            return
        builder = self._builder(job)
        for slot in nameless:
            yield Create(SERVICE, builder.service(slot), f"{slot.role}-{slot.index} has no address")
        for slot in empty:
            yield Create(POD, builder.pod(slot), f"{slot.role}-{slot.index} has no pod")

    def _tell(self, job: AITrainingJob, observed: Observed, now: datetime) -> Step:
        """What the pods of an elastic job read about each other."""
        return next_step(job, observed, self._builder(job), now) if elastic_roles(job) else Step(job.status.membership)

    def _lost(self, observed: Observed, now: datetime) -> frozenset[str]:
        return node.lost(observed.nodes, self.settings.node_fail_grace_period, now)

    def _until_lost(self, observed: Observed, now: datetime) -> float | None:
        return node.until_lost(observed.nodes, self.settings.node_fail_grace_period, now)

    def _builder(self, job: AITrainingJob) -> Builder:
        return Builder(job, self.owner(job), shared_network=self.settings.shared_network)

    def _end(
        self,
        job: AITrainingJob,
        result: Result,
        observed: Observed,
        now: datetime,
        clean: CleanPodPolicy | None = None,
    ) -> Plan:
        """The verdict is stored before the first pod is deleted for it."""
        if (clean or job.spec.clean_pod_policy) == "None":
            return self._close(job, result.phase, f"{result.message}; kept pods", observed, now)
        message = f"{result.message}; deleting pods"
        new = msgspec.structs.replace(
            _finishing(job, TERMINATING, message, now),
            replica_statuses=count(job, observed),
            restart_replica_name="",
            ending=Ending(phase=result.phase, message=result.message, clean=clean),
        )
        return Plan(
            status=changed_status(job.status, new),
            status_first=True,
            events=(_phase_event(TERMINATING, message),),
        )

    def _terminate(self, job: AITrainingJob, ending: Ending, observed: Observed, now: datetime) -> Plan:
        """Deletes are repeated until nothing is left to delete: one that got lost cannot hang the job."""
        policy = ending.clean or job.spec.clean_pod_policy
        deletes = _clean_up(policy, observed, now, self._lost(observed, now))
        if left := pods_to_clean(observed.all_pods, policy):
            return Plan(deletes=deletes, requeue_after=soonest(patience(left, now), self._until_lost(observed, now)))
        kept = "kept" if policy == "None" else "deleted"
        closed = self._close(job, ending.phase, f"{ending.message}; {kept} pods", observed, now)
        return msgspec.structs.replace(closed, deletes=deletes)

    def _keep(self, job: AITrainingJob, observed: Observed, now: datetime) -> Plan:
        """What the end left behind, until the job itself goes: with its uid, so that nobody else of its name does."""
        deletes = _clean_up(job.spec.clean_pod_policy, observed, now, self._lost(observed, now))
        kept = kept_limit(job)
        noticed = _noticed(job)
        if kept is None or deletes:
            return Plan(deletes=deletes, status=noticed)
        if (left := kept.left(now)) > 0:
            return Plan(status=noticed, requeue_after=left)
        meta = job.metadata
        why = f"it ended {kept.seconds} seconds ago (ttlSecondsAfterFinished)"
        return Plan(deletes=(Delete(RESOURCE, Key(meta.namespace, meta.name), meta.uid, why),))

    def _close(self, job: AITrainingJob, phase: str, message: str, observed: Observed, now: datetime) -> Plan:
        counters = job.status.replica_statuses if job.status.ending else count(job, observed)
        new = msgspec.structs.replace(
            _finishing(job, phase, message, now),
            replica_statuses=counters,
            restart_replica_name="",
            creation_errors={},
            node_troubles={},
            ports={},  # pods that are left keep theirs as long as they run
            ending=None,
        )
        return Plan(status=changed_status(job.status, new), events=(_phase_event(phase, message),))


def _uncreated(conditions: Conditions, said: str, now: datetime) -> Conditions:
    """Say that containers cannot be created, or that they can again."""
    if said:
        return put_standard(conditions, CONTAINER_CREATE_FAILED, True, "Retrying", said, now)
    if is_true(conditions, CONTAINER_CREATE_FAILED):
        return put_standard(conditions, CONTAINER_CREATE_FAILED, False, "Created", "", now)
    return conditions


def _failing(job: AITrainingJob, faults: Faults) -> tuple[Event, ...]:
    """Told when a replica is seen to fail for the first time: how often it is tried is for the Events of its pod."""
    is_new = not faults.creation_errors.keys() <= job.status.creation_errors.keys()
    return (warning(CONTAINER_CREATE_FAILED, faults.said),) if is_new and faults.said else ()


def _noticed(job: AITrainingJob) -> dict[str, Any] | None:
    """An edit of a job that has ended changes nothing, but it was seen: who waits for the end looks at that. What other
    operators ended is left as it is."""
    status, generation = job.status, job.metadata.generation
    if not status.observed_generation:
        return None
    return changed_status(status, msgspec.structs.replace(status, observed_generation=generation))


def _lazy(old: AITrainingJobStatus, new: AITrainingJobStatus) -> float:
    """Seconds that the new status may wait: only counters may, and successes for a moment."""
    counted = msgspec.structs.replace(
        old,
        replica_statuses=new.replica_statuses,
        conditions=new.conditions,
        elastic_replicas=new.elastic_replicas,
        done=new.done,
    )
    if old == new or new != counted:
        return 0.0
    return LAZY if new.done == old.done else BRIEF


def _finishing(job: AITrainingJob, phase: str, message: str, now: datetime) -> AITrainingJobStatus:
    """The status of a job that creates nothing any more: what could not be created does not matter now."""
    entered = enter(job.status, phase, message, now)
    return msgspec.structs.replace(
        entered,
        observed_generation=job.metadata.generation,
        conditions=_uncreated(cleared(entered.conditions, all_created=True, now=now), "", now),
        done={},
    )


def _surplus(job: AITrainingJob, observed: Observed) -> tuple[Delete, ...]:
    """Pods and services that fill no slot of the spec, highest index first."""
    slots = {slot.name: observed.role(slot.role.lower()).get(slot.index) for slot in slots_of(job)}
    # A pod whose labels were edited into another slot goes too: it holds a name that its own slot needs.
    pods = [pod for pod in reversed(observed.all_pods) if slots.get(pod.key.name) is not pod]
    # A pod that was told to go is still reached by its name: it may have something to hand over.
    leaving = {pod.key.name for pod in pods}
    services = [
        s for name, s in sorted(observed.services.items(), reverse=True) if name not in slots and name not in leaving
    ]
    why = "it is not in the spec any more"
    return (*deletions(POD, pods, why), *deletions(SERVICE, services, why))


def _abandoned(observed: Observed, outdated: Sequence[PodView], lost: Container[str]) -> list[PodView]:
    """Pods that somebody told to go while nobody is there any more to make them."""
    others = {pod.uid for pod in outdated}
    return [pod for pod in observed.all_pods if pod.deleting and pod.node in lost and pod.uid not in others]


def _clean_up(
    policy: CleanPodPolicy, observed: Observed, now: datetime, lost: Container[str] = frozenset()
) -> tuple[Delete, ...]:
    services = observed.services.values() if policy != "None" else ()
    why = f"the job has ended and cleanPodPolicy is {policy}"
    return (
        *removal(pods_to_clean(observed.all_pods, policy), why, now, lost),
        *deletions(SERVICE, services, why),
        *(deletions(CONFIG_MAP, observed.children.get(CONFIG_MAP, {}).values(), why) if policy != "None" else ()),
    )


def _started(job: AITrainingJob, phase: str, message: str) -> tuple[Event, ...]:
    if is_true(job.status.conditions, SUSPENDED):
        return (normal("Resumed", "the job goes on"),)
    if phase == RUNNING != job.status.phase:
        return (_phase_event(phase, message),)
    return ()


def _phase_event(phase: str, message: str) -> Event:
    make = normal if phase in (RUNNING, TERMINATING, completion.SUCCEED) else warning
    return make(reason_of(phase), message)
