"""The one order of decisions for jobs of every kind. Read ``Pass.next`` from top to bottom."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from trainmaster.core.ids import CONFIG_MAP, POD, SERVICE, Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Batch, Body, Create, Delete, Event, Patch, Plan, batch_of, deletions, soonest
from trainmaster.core.slot import Slot
from trainmaster.core.template import Owner, with_output_kept
from trainmaster.core.view import PodView
from trainmaster.lifecycle import environment, failure, gang, queue, restart, summary, waiting
from trainmaster.lifecycle.cleanup import CleanPodPolicy, is_gone, patience, pods_to_clean, removal
from trainmaster.lifecycle.completion import Result
from trainmaster.lifecycle.deadline import Limit, Wait, overdue, seconds_left, seconds_until
from trainmaster.lifecycle.environment import Environment
from trainmaster.lifecycle.facts import Facts, Rules, Waiting, classify
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.gang import Gang
from trainmaster.lifecycle.model import Ending, JobModel, Memory, Place, Places
from trainmaster.lifecycle.port import Allotment, PortError, PortRules, allot, is_complete
from trainmaster.lifecycle.queue import Group, Queue
from trainmaster.lifecycle.restart import Decision, FailedPod
from trainmaster.lifecycle.wait import limits_of, wait_of

Step = Literal["proceed", "restart", "restarted", "shrink", "replace", "suspend", "resume", "ending", "end", "adopt"]
Cause = Literal["outcome", "limit", "request", "deadline"]
"""Why a job ends: by what its pods did, because its restarts are used up, by request, or because it took too long."""


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of the failed pods."""

    failed: tuple[FailedPod, ...] = ()
    wanted: tuple[FailedPod, ...] = ()
    """Those that their restart policy starts again."""
    restarts: tuple[FailedPod, ...] = ()
    """Those of them whose restart is within the limits."""
    spared: tuple[FailedPod, ...] = ()
    """Pods that were lost with their node, and that the job can go on without; not among ``failed``."""

    @property
    def final(self) -> tuple[FailedPod, ...]:
        """Failed pods that are not started again."""
        again = {(f.role, f.index) for f in self.restarts}
        return tuple(f for f in self.failed if (f.role, f.index) not in again)

    @property
    def is_spent(self) -> bool:
        """Nothing but a limit keeps failed pods from being started again."""
        return len(self.restarts) < len(self.failed) == len(self.wanted)


class Extra(msgspec.Struct, frozen=True):
    """Children beside pods and services that only one kind has. While ``is_new``, ``record`` is stored first."""

    creates: tuple[Create, ...] = ()
    patches: tuple[Patch, ...] = ()
    is_new: bool = False
    retry_after: float | None = None
    record: Any = None


class Removal(msgspec.Struct, frozen=True):
    """How children are removed. Until it ``is_done``, nothing is created in their place."""

    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    is_done: bool = True


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass decided, for the kind to say in the words of its status."""

    step: Step
    now: datetime
    model: JobModel
    facts: Facts
    memory: Memory
    """What the status is to remember."""
    result: Result = Result()
    clean: CleanPodPolicy | None = None
    """In the place of the job's own policy, where that would leave something running."""
    failed: tuple[FailedPod, ...] = ()
    """The pods that are restarted."""
    decision: Decision | None = None
    extra: Extra = Extra()
    is_all_created: bool = True
    port_error: PortError | None = None

    @property
    def waiting(self) -> Waiting:
        """What pods wait for, in a job that goes on."""
        return self.facts.waiting if self.step == "proceed" else Waiting()


class Builder(Protocol):
    """Builds the bodies of the children of one job."""

    @property
    def environment(self) -> Environment:
        """The variables that all pods share."""

    def service(self, slot: Slot) -> Body | None: ...
    def pod(self, slot: Slot) -> Body | None:
        """The pod, or what creates it where replicas are not pods. None while something is missing that it needs."""


J = TypeVar("J", contravariant=True)


class Description(Protocol[J]):
    """What a kind says about its jobs. Everything else is decided here."""

    @property
    def resource(self) -> Resource: ...
    @property
    def fault_rules(self) -> Rules: ...
    @property
    def port_rules(self) -> PortRules: ...
    @property
    def blocks_owner_deletion(self) -> bool: ...
    def read(self, job: J, observed: Observed) -> JobModel: ...
    def result(self, job: J, model: JobModel, facts: Facts, verdict: Verdict) -> Result: ...
    def builder(self, job: J, model: JobModel, facts: Facts) -> Builder: ...
    def status(self, job: J, report: Report, now: datetime) -> Any: ...
    def delay(self, job: J, new: Any) -> float: ...
    def events(self, job: J, report: Report, new: Any) -> tuple[Event, ...]: ...

    # kinds.base has these for kinds that have nothing to add
    def replica_pods(self, job: J, model: JobModel, observed: Observed) -> Mapping[str, PodView]: ...
    def clean_up(self, job: J, cause: Cause, result: Result) -> CleanPodPolicy | None: ...
    def spared(self, job: J, facts: Facts) -> tuple[FailedPod, ...]: ...
    def other_children(self, job: J, facts: Facts, now: datetime) -> Extra: ...
    def replica_removal(self, model: JobModel, facts: Facts, policy: CleanPodPolicy | None) -> Removal: ...
    def queue(self, job: J) -> Queue | None: ...
    def noticed(self, job: J) -> dict[str, Any] | None: ...
    def key(self, job: J) -> tuple[Key, str]: ...
    def owner(self, job: J) -> Owner: ...
    def changed(self, job: J, new: Any) -> dict[str, Any] | None: ...


def decide(kind: Description[J], job: J, observed: Observed, now: datetime) -> Plan:
    model = kind.read(job, observed)
    facts = classify(model, kind.replica_pods(job, model, observed), observed, kind.fault_rules, now)
    return Pass(kind, job, model, facts, now).next()


class Pass(Generic[J]):
    """One decision about one job."""

    def __init__(self, kind: Description[J], job: J, model: JobModel, facts: Facts, now: datetime) -> None:
        self.kind, self.job, self.model, self.facts, self.now = kind, job, model, facts, now

    def next(self) -> Plan:
        model = self.model
        if model.has_ended:
            return self._clean_up()
        if model.ending:
            return self._finish(model.ending)
        if model.ended_elsewhere:
            return self._store(self._report("adopt", model.memory, result=model.ended_elsewhere))
        verdict = self._verdict()
        result = self.kind.result(self.job, model, self.facts, verdict)
        if result.is_success:
            return self._end(result, "outcome")
        if model.requested_end:
            return self._end(model.requested_end, "request")
        if result.is_failure:
            return self._fail(result, verdict)
        if model.run.suspend:
            return self._suspend()
        if model.is_suspended and model.starts_anew:
            return self._resume()
        if over := overdue(self._limits, self.now):
            return self._end(Result(model.run.overdue_phase, self._late(over)), "deadline")
        return self._go_on(verdict)

    @cached_property
    def _wait(self) -> Wait | None:
        return wait_of(self.model, self.facts, self.now)

    @property
    def _limits(self) -> tuple[Limit, ...]:
        """Deadlines, and limits on waiting of a job that still waits."""
        return (*self.model.run.limits, *limits_of(self.model, self._wait))

    def _late(self, over: Limit) -> str:
        """What took too long, and what pods are waiting for."""
        blocked = waiting.message(self.facts.waiting)
        return f"{over.message}: {blocked}" if blocked else over.message

    def _go_on(self, verdict: Verdict) -> Plan:
        if verdict.restarts:
            plan = self._restart(verdict.restarts)
        elif verdict.spared:
            plan = self._shrink(verdict.spared)
        elif self.facts.stranded or self._leaving:
            plan = self._replace()
        elif self.model.restarting and not self.facts.outdated:
            plan = self._store(self._report("restarted", self._seen()))
        else:
            plan = self._proceed()
        look = soonest(plan.requeue_after, seconds_left(self._limits, self.now), self.facts.next_look)
        return msgspec.structs.replace(plan, requeue_after=look)

    # --- what becomes of failed pods ---

    def _verdict(self) -> Verdict:
        if not self.facts.failed:
            return Verdict()
        spared = self.kind.spared(self.job, self.facts)
        failed = tuple(f for f in self.facts.failed if f not in spared)
        rules, run, restarts = self.model.rules(), self.model.run, self.model.memory.restarts
        wanted = tuple(
            f
            for f in failed
            if rules[f.role].is_always_replaced or restart.is_wanted(rules[f.role].policy, f.fault, run.exit_codes)
        )
        again = restart.admitted(wanted, rules, restarts, calm=self._calm, now=self.now, limit=run.restart_limit)
        return Verdict(failed, wanted, again, spared)

    @property
    def _calm(self) -> timedelta:
        """For how long the whole job has run without a fault."""
        since, history = self.model.running_since, self.model.memory.history
        last = max(since, history[-1].time) if since and history else since
        return self.now - last if last else timedelta()

    # --- a job that goes on ---

    def _proceed(self) -> Plan:
        """Creates what is missing and deletes what is outdated or surplus. Pods of two attempts never meet: the
        outdated are deleted before others are created."""
        facts, allotted = self.facts, self._allot()
        extra = self.kind.other_children(self.job, facts, self.now)
        waits, delays = restart.waits(self.model.memory.restarts, self.now), self._delays()
        removed = self.kind.replica_removal(self.model, facts, None)
        is_stored = allotted.is_stored and self.model.is_recorded
        is_clear = is_stored and removed.is_done and not facts.outdated
        creates = chain(self._environment(), self._group(), extra.creates, self._missing(waits, delays))
        batch = batch_of(creates) if is_clear else Batch()
        report = self._report(
            "proceed",
            msgspec.structs.replace(self._seen(), ports=allotted.ports),
            is_all_created=is_stored and removed.is_done and facts.is_all_created,
            port_error=allotted.error,
            extra=extra,
        )
        new = self._status(report)
        leaving = (*facts.outdated, *facts.surplus, *facts.abandoned)
        return Plan(
            deletes=(
                *self._removal(facts.outdated, "it is started again"),
                *self._removal(facts.abandoned, "it was deleted"),
                *self._removal(facts.replaced, "another pod takes its place"),
                *removed.deletes,
                *self._surplus(),
            ),
            creates=batch.creates,
            patches=(*extra.patches, *removed.patches, *self._group_changes()),
            status=self.kind.changed(self.job, new),
            # Names, ranks and ports are stored before a pod gets them.
            status_first=allotted.is_new or extra.is_new or not self.model.is_recorded,
            lazy=self.kind.delay(self.job, new),
            events=self.kind.events(self.job, report, new),
            requeue_after=soonest(
                batch.retry_after,
                allotted.retry_after,
                extra.retry_after,
                *waits.values(),
                *delays.values(),
                patience(leaving, self.now),
            ),
            ports=allotted.drawn,
            podless=facts.podless.overdue,
        )

    def _allot(self) -> Allotment:
        """The ports of replicas that share a network with other pods."""
        model, observed = self.model, self.facts.observed
        if is_complete(model.wanted_ports, model.memory.ports):
            return Allotment(model.memory.ports)
        return allot(
            model.wanted_ports,
            model.memory.ports,
            rules=self.kind.port_rules,
            used=self.facts.host_ports,
            taken=observed.taken,
            declared=model.declared_ports,
            namespace_ports=observed.namespace_ports,
            uid=self.kind.key(self.job)[1],
        )

    @cached_property
    def _builder(self) -> Builder:
        return self.kind.builder(self.job, self.model, self.facts)

    @cached_property
    def _environments(self) -> set[str]:
        """The environments that pods need, those that will be created included."""
        needed = environment.needed_by(self.facts.observed.all_pods)
        new = self._builder.environment.digest if self.facts.missing and self.model.is_recorded else ""
        return needed | {new} if new else needed

    def _environment(self) -> Iterator[Create]:
        """It is created before its pods, and again when it was deleted: containers wait for it until it is there."""
        missing = environment.missing(self.model.name, self._environments, self.facts.observed)
        if missing and self._builder.environment.digest in missing:
            yield environment.creation(self._builder.environment, self.kind.owner(self.job))

    def _group(self) -> tuple[Create, ...]:
        """The PodGroup is created before its pods: a scheduler puts a pod without its group aside."""
        owner = self.kind.owner(self.job).reference(blocks=self.kind.blocks_owner_deletion)
        return gang.missing(self._gang, self.facts.observed, owner) if self._gang else ()

    @cached_property
    def _gang(self) -> Gang | None:
        return gang.sized(self.model.gang, self.facts.succeeded) if self.model.gang else None

    def _delays(self) -> dict[Place, float]:
        """Seconds until replicas may be created that are not created before a given time."""
        times = self.model.not_before
        missing = ((slot.role, slot.index) for slot in self.facts.missing) if times else ()
        left = {place: seconds_until(*times[place], self.now) for place in missing if place in times}
        return {place: seconds for place, seconds in left.items() if restart.is_pause(seconds)}

    def _missing(self, waits: Container[str], delays: Container[Place]) -> Iterator[Create]:
        """Services before pods: a pod that starts resolves the names of its peers."""
        facts = self.facts
        services = [slot for slot in facts.without_service if (slot.role, slot.index) not in delays]
        pods = [slot for slot in facts.missing if slot.role not in waits and (slot.role, slot.index) not in delays]
        resource = self.model.replica_resource
        noun = "pod" if resource == POD else resource.kind
        for slot in services:
            if service := self._builder.service(slot):
                yield Create(SERVICE, service, f"{slot.label} has no address")
        for slot in pods:
            if pod := self._builder.pod(slot):
                yield Create(resource, with_output_kept(self._queued(pod, slot)), f"{slot.label} has no {noun}")

    def _queued(self, pod: Body, slot: Slot) -> Body:
        return queue.queued(pod, self._queue, self._groups.get(slot.name), slot.role) if self._queue else pod

    @cached_property
    def _queue(self) -> Queue | None:
        return self.kind.queue(self.job)

    @cached_property
    def _groups(self) -> dict[str, Group]:
        """The pod groups of missing replicas, in a job with a queue."""
        if self._queue is None:
            return {}
        facts, uid = self.facts, self.kind.key(self.job)[1]
        settled = {(role, index) for role, indices in facts.succeeded.items() for index in indices} | facts.pods.keys()
        return queue.groups(self._queue, uid, self.model, facts.observed, facts.missing, settled)

    @property
    def _pod_group(self) -> str:
        """The last pod group of a job with a queue."""
        stored = self.model.memory.pod_group
        return queue.last_seen(self.facts.observed.all_pods, stored) if self._queue else stored

    def _surplus(self) -> tuple[Delete, ...]:
        why, team = "it is not part of the job any more", self.model.gang
        return (
            *self._removal(self.facts.surplus, why),
            *deletions(SERVICE, self.facts.surplus_services, why),
            *environment.surplus(self.model.name, self._environments, self.facts.observed, "no pod needs it any more"),
            *self._group_surplus(why, keep=team.key.name if team else ""),
        )

    def _group_changes(self) -> tuple[Patch, ...]:
        return gang.changed(self._gang, self.facts.observed) if self._gang else ()

    def _group_surplus(self, why: str, keep: str = "") -> tuple[Delete, ...]:
        return gang.surplus(self.model.gang_scheduler, self.facts.observed, why, keep=keep)

    # --- restarts: the count is stored before the first pod is deleted for it ---

    def _restart(self, failed: Sequence[FailedPod]) -> Plan:
        memory, rules = self.model.memory, self.model.rules()
        failed = failure.cause_first(self.model.name, failed, self.model.slots, self.now)
        decision = restart.decide(failed, rules, memory.restarts, memory.history, calm=self._calm, now=self.now)
        new = msgspec.structs.replace(
            self._seen(),
            restarts=decision.restarts,
            history=decision.history,
            done=self._not_restarted(self.facts.succeeded, decision),
            ran=self._not_restarted(self.facts.ran, decision),
            wait=None,
        )
        return self._store(self._report("restart", new, failed=tuple(failed), decision=decision))

    def _not_restarted(self, places: Places, decision: Decision) -> Places:
        old, new, none = self.model.memory.restarts, decision.restarts, restart.NONE
        kept = {
            role: tuple(i for i in indices if new.get(role, none).attempt_of(i) == old.get(role, none).attempt_of(i))
            for role, indices in places.items()
        }
        return {role: indices for role, indices in kept.items() if indices}

    def _shrink(self, lost: Sequence[FailedPod]) -> Plan:
        """The job goes on with the pods that are left."""
        memory, rules = self.model.memory, self.model.rules()
        decision = restart.uncharged(lost, rules, memory.restarts, memory.history, calm=self._calm, now=self.now)
        new = msgspec.structs.replace(self._seen(), restarts=decision.restarts, history=decision.history)
        return self._store(self._report("shrink", new, failed=tuple(lost), decision=decision))

    def _replace(self) -> Plan:
        """Pods that are pending on a lost node, or no longer in the spec, are deleted. Their attempt is raised first,
        so that it does not matter how they end; no restart is charged."""
        seen, rules = self._seen(), self.model.rules()
        stranded = [(f.role, f.index) for f in self.facts.stranded]
        restarts = restart.after_removal(seen.restarts, self._leaving)
        restarts = restart.replaced(restarts, stranded, rules, self.now)
        new = msgspec.structs.replace(seen, restarts=restarts, ran=_without(seen.ran, stranded))
        return self._store(self._report("replace", new))

    @property
    def _leaving(self) -> tuple[Place, ...]:
        return self.facts.leaving if self.model.misses_deleted_pods else ()

    # --- suspension: it is stored before the first pod is deleted for it ---

    def _suspend(self) -> Plan:
        model, pods, is_news = self.model, self.facts.observed.all_pods, not self.model.is_suspended
        leaving = pods if model.starts_anew else tuple(pod for pod in pods if not pod.is_ended)
        memory = msgspec.structs.replace(self._seen(), creation_errors={})
        if model.starts_anew:
            has_pods = is_news and bool(pods or not model.is_new)
            restarts = restart.after_suspension(memory.restarts, model.roles) if has_pods else memory.restarts
            memory = msgspec.structs.replace(memory, restarts=restarts, ran={}, done={})
        report = self._report("suspend", memory)
        new = self._status(report)
        removed = Removal() if is_news else self._stop(leaving)
        return Plan(
            deletes=removed.deletes,
            patches=removed.patches,
            status=self.kind.changed(self.job, new),
            status_first=is_news,
            events=self.kind.events(self.job, report, new) if is_news else (),
            requeue_after=soonest(patience(leaving, self.now), self.facts.nodes.next_look),
        )

    def _stop(self, leaving: Iterable[PodView]) -> Removal:
        """Nothing runs while a job is suspended. Services stay where its pods are kept."""
        why, replicas = "the job is suspended", self.kind.replica_removal(self.model, self.facts, None)
        if self.model.starts_anew:
            deletes = self._deletes("All", why)
        else:
            deletes = (*self._removal(leaving, why), *self._group_surplus(why))
        return Removal((*deletes, *replicas.deletes), (*replicas.patches, *self._closed(leaving)))

    def _resume(self) -> Plan:
        return self._store(self._report("resume", self.model.memory))

    # --- the end: the result is stored before the first pod is deleted for it ---

    def _fail(self, result: Result, verdict: Verdict) -> Plan:
        """The first failure is stored with the result: nothing but the status has it when the pods are deleted."""
        roles = self.model.roles
        causes = tuple(f for f in verdict.failed if roles[f.role].ends_job) or verdict.failed
        first = failure.of_job(self.model.name, causes, self.model.slots, self.now)
        has_peers = "Running" in self.facts.states.values()
        if first and has_peers and (wait := first.seconds_to_wait(self.now)):
            return Plan(requeue_after=wait)
        if first and first.others:
            result = msgspec.structs.replace(result, message=f"{result.message}; the first failure: {first.describe()}")
        return self._end(result, "limit" if verdict.is_spent else "outcome", first)

    def _end(self, result: Result, cause: Cause, first: Failure | None = None) -> Plan:
        clean = self.kind.clean_up(self.job, cause, result)
        memory = msgspec.structs.replace(self._seen(), wait=None, failure=first)
        if self.model.ends_in_steps and (clean or self.model.run.clean) != "None":
            return self._store(self._report("ending", memory, result=result, clean=clean))
        return self._store(self._report("end", _at_end(memory), result=result, clean=clean))

    def _finish(self, ending: Ending) -> Plan:
        """Deletes are repeated until nothing is left to delete: one that got lost does not hang the job."""
        policy, linger = ending.clean or self.model.run.clean, self.model.run.linger
        if linger and (left := linger.left(self.now)) > 0:
            return Plan(requeue_after=left)
        removed = self._clean(policy)
        if not removed.is_done:
            waits = soonest(patience(self._to_clean(policy), self.now), self.facts.nodes.next_look)
            return Plan(deletes=removed.deletes, patches=removed.patches, requeue_after=waits)
        plan = self._store(self._report("end", _at_end(self._seen()), result=ending.result, clean=ending.clean))
        return msgspec.structs.replace(plan, deletes=removed.deletes, patches=removed.patches, status_first=False)

    def _clean_up(self) -> Plan:
        """Deletes what the clean-up policy says, and when its time is over, the job itself."""
        policy, ttl = self.model.run.clean, self.model.run.ttl
        removed = self._clean(policy)
        waits = soonest(patience(self._to_clean(policy), self.now), self.facts.nodes.next_look)
        noticed = self.kind.noticed(self.job)
        if ttl is None or removed.deletes or removed.patches:
            return Plan(deletes=removed.deletes, patches=removed.patches, status=noticed, requeue_after=waits)
        if (left := ttl.left(self.now)) > 0:
            return Plan(status=noticed, requeue_after=soonest(left, waits))
        key, uid = self.kind.key(self.job)
        # By its uid: a job that was created anew under this name stays.
        why = f"it ended {ttl.seconds} seconds ago (ttlSecondsAfterFinished)"
        return Plan(deletes=(Delete(self.kind.resource, key, uid, why),))

    def _clean(self, policy: CleanPodPolicy) -> Removal:
        deletes = self._deletes(policy, f"the job has ended and cleanPodPolicy is {policy}")
        replicas = self.kind.replica_removal(self.model, self.facts, policy)
        # Where replicas create pods, they remove their pods, too: the end does not wait for these.
        leaving = self._to_clean(policy)
        is_done = replicas.is_done if self.model.replicas is not None else all(map(is_gone, leaving))
        return Removal((*deletes, *replicas.deletes), (*replicas.patches, *self._closed(leaving)), is_done)

    def _closed(self, leaving: Iterable[PodView]) -> tuple[Patch, ...]:
        """Ends the pod groups of pods that stay when the others are deleted: Kueue gives back their quota."""
        gone = {pod.uid for pod in leaving}
        return queue.closed(pod for pod in self.facts.observed.all_pods if pod.uid not in gone)

    def _deletes(self, policy: CleanPodPolicy, why: str) -> tuple[Delete, ...]:
        observed = self.facts.observed
        leaving = self._to_clean(policy)
        pods = self._removal(leaving, why)
        group = self._group_surplus(why)  # under every policy: nothing is left to be placed
        if policy == "None" and not self.model.run.cleans_services:
            return (*pods, *group)
        staying = observed.all_pods if self.model.run.keeps_services else ()
        kept = {pod.key.name for pod in staying} - {pod.key.name for pod in leaving}
        services = deletions(SERVICE, (s for name, s in observed.services.items() if name not in kept), why)
        # A pod that ends may still refresh its volumes, and its kubelet would report that they are gone.
        read = () if leaving else observed.children.get(CONFIG_MAP, {}).values()
        return (*pods, *services, *deletions(CONFIG_MAP, read, why), *group)

    def _to_clean(self, policy: CleanPodPolicy) -> tuple[PodView, ...]:
        if self.model.replicas is not None:
            return () if policy == "None" else self.facts.abandoned
        return pods_to_clean(self.facts.observed.all_pods, policy, is_kept=self.model.run.is_kept)

    # --- parts ---

    def _seen(self) -> Memory:
        """What the status remembered, with what this pass has seen."""
        facts = self.facts
        return msgspec.structs.replace(
            self.model.memory,
            done=facts.succeeded,
            ran=facts.ran,
            creation_errors=facts.waiting.errors,
            node_problems=facts.nodes.seen,
            pod_group=self._pod_group,
            wait=self._wait,
        )

    def _report(self, step: Step, memory: Memory, **fields: Any) -> Report:
        return Report(step=step, now=self.now, model=self.model, facts=self.facts, memory=memory, **fields)

    def _status(self, report: Report) -> Any:
        new = self.kind.status(self.job, report, self.now)
        is_stopped = report.step in ("suspend", "end", "adopt")
        counted = summary.counted(new.summary, report.model, report.facts, report.memory, is_stopped=is_stopped)
        return msgspec.structs.replace(new, summary=counted)

    def _store(self, report: Report) -> Plan:
        """Stores the status; the next pass acts on it."""
        new = self._status(report)
        events = self.kind.events(self.job, report, new)
        return Plan(
            status=self.kind.changed(self.job, new),
            status_first=True,
            events=events,
            counts_failure=bool(self.facts.failed),
        )

    def _removal(self, pods: Iterable[PodView], why: str) -> tuple[Delete, ...]:
        return removal(pods, why, self.now, self.facts.nodes.lost)


def _at_end(memory: Memory) -> Memory:
    """Pods that are left keep their ports as long as they run."""
    return msgspec.structs.replace(
        memory, done={}, ran={}, ports={}, creation_errors={}, node_problems={}, pod_group=""
    )


def _without(places: Places, gone: Iterable[Place]) -> Places:
    away = frozenset(gone)
    left = {role: tuple(i for i in indices if (role, i) not in away) for role, indices in places.items()}
    return {role: indices for role, indices in left.items() if indices}
