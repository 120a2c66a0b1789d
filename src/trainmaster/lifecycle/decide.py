"""The one order of decisions for jobs of every kind. Read ``Pass.next`` from top to bottom."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from trainmaster.core.ids import POD, SERVICE, Key, Resource
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Batch, Body, Create, Delete, Event, Patch, Plan, batch_of, deletions, soonest
from trainmaster.core.policies import gang, restart
from trainmaster.core.policies.cleanup import CleanPodPolicy, patience, pods_to_clean, removal
from trainmaster.core.policies.completion import Result
from trainmaster.core.policies.limit import overdue, seconds_left
from trainmaster.core.policies.port import Allotment, allot, is_complete
from trainmaster.core.policies.restart import Decision, Fallen
from trainmaster.core.slot import Slot
from trainmaster.core.template import Owner
from trainmaster.core.view import PodView
from trainmaster.lifecycle.facts import Facts, Rules, classify
from trainmaster.lifecycle.model import JobModel, Memory, Place, Places

Step = Literal["proceed", "restart", "replace", "suspend", "resume", "end", "adopt"]


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of the failed pods."""

    failed: tuple[Fallen, ...] = ()
    wanted: tuple[Fallen, ...] = ()
    """Those that their restart policy starts again."""
    restarts: tuple[Fallen, ...] = ()
    """Those of them whose restart is within the limits."""

    @property
    def final(self) -> tuple[Fallen, ...]:
        """Failed pods that are not started again."""
        again = {(f.role, f.index) for f in self.restarts}
        return tuple(f for f in self.failed if (f.role, f.index) not in again)

    @property
    def is_spent(self) -> bool:
        """Nothing but a limit keeps failed pods from being started again."""
        return len(self.restarts) < len(self.failed) == len(self.wanted)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass decided, for the kind to say in the words of its status."""

    step: Step
    model: JobModel
    facts: Facts
    memory: Memory
    """What the status is to remember."""
    message: str = ""
    result: Result = Result()
    clean: CleanPodPolicy | None = None
    """In the place of the job's own policy, where that would leave something running."""
    failed: tuple[Fallen, ...] = ()
    """The pods that are restarted."""
    decision: Decision | None = None
    is_all_created: bool = True
    port_error: str = ""


class Builder(Protocol):
    """Builds the bodies of the children of one job."""

    def service(self, slot: Slot) -> Body: ...
    def pod(self, slot: Slot) -> Body: ...


J = TypeVar("J", contravariant=True)


class Description(Protocol[J]):
    """What a kind says about its jobs. Everything else is decided here."""

    @property
    def resource(self) -> Resource: ...
    @property
    def fault_rules(self) -> Rules: ...
    def read(self, job: J, observed: Observed) -> JobModel: ...
    def key(self, job: J) -> tuple[Key, str]: ...
    def result(self, job: J, model: JobModel, facts: Facts, verdict: Verdict) -> Result: ...
    def status(self, job: J, report: Report, now: datetime) -> Any: ...
    def delay(self, job: J, new: Any) -> float: ...
    def events(self, job: J, report: Report, new: Any) -> tuple[Event, ...]: ...
    def changed(self, job: J, new: Any) -> dict[str, Any] | None: ...
    def owner(self, job: J) -> Owner: ...
    def builder(self, job: J, model: JobModel) -> Builder: ...


def decide(kind: Description[J], job: J, observed: Observed, now: datetime) -> Plan:
    model = kind.read(job, observed)
    facts = classify(model, observed, kind.fault_rules, now)
    return Pass(kind, job, model, facts, now).next()


class Pass(Generic[J]):
    """One decision about one job."""

    def __init__(self, kind: Description[J], job: J, model: JobModel, facts: Facts, now: datetime) -> None:
        self.kind, self.job, self.model, self.facts, self.now = kind, job, model, facts, now

    def next(self) -> Plan:
        model, facts = self.model, self.facts
        if model.has_ended:
            return self._clean_up()
        if model.ended_elsewhere:
            return self._store(self._report("adopt", model.memory, result=model.ended_elsewhere))
        verdict = self._verdict()
        result = self.kind.result(self.job, model, facts, verdict)
        if result.phase:
            return self._end(result, is_stopped=verdict.is_spent)
        if model.run.suspend:
            return self._suspend()
        if model.is_suspended:
            return self._resume()
        if over := overdue(model.run.limits, self.now):
            return self._end(Result(model.run.overdue_phase, over.message), is_stopped=True)
        if verdict.restarts:
            plan = self._restart(verdict.restarts)
        elif facts.stranded or self._leaving:
            plan = self._replace()
        else:
            plan = self._proceed()
        look = soonest(plan.requeue_after, seconds_left(model.run.limits, self.now), facts.next_look)
        return msgspec.structs.replace(plan, requeue_after=look)

    # --- what becomes of failed pods ---

    def _verdict(self) -> Verdict:
        failed = self.facts.failed
        if not failed:
            return Verdict()
        rules, run, restarts = self.model.rules(), self.model.run, self.model.memory.restarts
        wanted = tuple(f for f in failed if restart.is_wanted(rules[f.role].policy, f.fault, run.exit_codes))
        again = restart.admitted(wanted, rules, restarts, self._calm, limit=run.restart_limit)
        return Verdict(failed, wanted, again)

    @property
    def _calm(self) -> timedelta:
        """For how long the whole job has run without a fault."""
        since = self.model.running_since
        return self.now - since if since else timedelta()

    # --- a job that goes on ---

    def _proceed(self) -> Plan:
        """Creates what is missing and deletes what is outdated or surplus. Pods of two attempts never meet: the
        outdated are deleted before others are created."""
        facts, memory = self.facts, self.model.memory
        allotted = self._allot()
        waits = restart.waits(memory.restarts, self.now)
        is_clear = allotted.is_stored and not facts.outdated
        batch = batch_of(self._missing(waits)) if is_clear else Batch()
        report = self._report(
            "proceed",
            msgspec.structs.replace(self._seen(), ports=allotted.ports),
            is_all_created=allotted.is_stored and not batch.creates,
            port_error=allotted.error,
        )
        new = self.kind.status(self.job, report, self.now)
        return Plan(
            deletes=(*self._removal(facts.outdated, "it is started again"), *self._surplus()),
            creates=batch.creates,
            patches=self._group_changes(),
            status=self.kind.changed(self.job, new),
            status_first=allotted.is_new,  # a port is stored before a pod is told it
            lazy=self.kind.delay(self.job, new),
            events=self.kind.events(self.job, report, new),
            requeue_after=soonest(
                batch.retry_after,
                allotted.retry_after,
                *waits.values(),
                patience((*facts.outdated, *facts.surplus), self.now),
            ),
            ports=allotted.drawn,
        )

    def _allot(self) -> Allotment:
        """The ports of replicas that share a network with other pods."""
        model, observed = self.model, self.facts.observed
        if is_complete(model.wanted_ports, model.memory.ports):
            return Allotment(model.memory.ports)
        taken = observed.taken | model.declared_ports
        uid = self.kind.key(self.job)[1]
        return allot(model.wanted_ports, model.memory.ports, used=observed.host_ports, taken=taken, uid=uid)

    def _missing(self, waits: Iterable[str]) -> Iterator[Create]:
        """The PodGroup before its pods, and services before pods: a pod that starts resolves the names of its peers."""
        team, facts = self.model.gang, self.facts
        if team:
            yield from gang.missing(team, facts.observed, self.kind.owner(self.job).reference(blocks=True))
        empty = [slot for slot in facts.missing if slot.role not in waits]
        if not facts.without_service and not empty:
            return
        builder = self.kind.builder(self.job, self.model)
        for slot in facts.without_service:
            yield Create(SERVICE, builder.service(slot), f"{slot.place} has no address")
        for slot in empty:
            yield Create(POD, builder.pod(slot), f"{slot.place} has no pod")

    def _surplus(self) -> tuple[Delete, ...]:
        why, team = "it is not in the spec any more", self.model.gang
        return (
            *self._removal(self.facts.surplus, why),
            *deletions(SERVICE, self.facts.surplus_services, why),
            *gang.surplus(self.model.gang_scheduler, self.facts.observed, why, keep=team.key.name if team else ""),
        )

    def _group_changes(self) -> tuple[Patch, ...]:
        return gang.changed(self.model.gang, self.facts.observed) if self.model.gang else ()

    # --- restarts: the count is stored before the first pod is deleted for it ---

    def _restart(self, failed: Sequence[Fallen]) -> Plan:
        memory, rules = self.model.memory, self.model.rules()
        decision = restart.decide(failed, rules, memory.restarts, memory.history, calm=self._calm, now=self.now)
        new = msgspec.structs.replace(
            self._seen(),
            restarts=decision.restarts,
            history=decision.history,
            done=self._not_restarted(self.facts.succeeded, decision),
            ran=self._not_restarted(self.facts.ran, decision),
        )
        return self._store(self._report("restart", new, failed=tuple(failed), decision=decision))

    def _not_restarted(self, places: Places, decision: Decision) -> Places:
        before = self.model.memory.restarts
        kept = {
            role: tuple(
                index
                for index in indices
                if decision.restarts.get(role, restart.NONE).attempt_of(index)
                == before.get(role, restart.NONE).attempt_of(index)
            )
            for role, indices in places.items()
        }
        return {role: indices for role, indices in kept.items() if indices}

    def _replace(self) -> Plan:
        """Pods that are pending on a lost node, or no longer in the spec, are deleted. Their attempt is raised first,
        so that it does not matter how they end; no restart is charged."""
        memory = self.model.memory
        stranded = [(f.role, f.index) for f in self.facts.stranded]
        restarts = restart.replaced(memory.restarts, self._leaving, 0, self.now)
        restarts = restart.replaced(restarts, stranded, self.model.run.backoff, self.now)
        seen = self._seen()
        new = msgspec.structs.replace(seen, restarts=restarts, ran=without(seen.ran, stranded))
        return self._store(self._report("replace", new))

    @property
    def _leaving(self) -> tuple[Place, ...]:
        return self.facts.leaving if self.model.misses_deleted_pods else ()

    # --- suspension ---

    def _suspend(self) -> Plan:
        """That the job is suspended is stored before the first pod is deleted."""
        is_news = not self.model.is_suspended
        has_pods = is_news and bool(not self.model.is_new or self.facts.observed.all_pods)
        memory = self.model.memory
        restarts = restart.all_anew(memory.restarts, self.model.roles) if has_pods else memory.restarts
        report = self._report(
            "suspend",
            msgspec.structs.replace(memory, restarts=restarts, ran={}, done={}),
            message=self.model.run.suspend,
        )
        new = self.kind.status(self.job, report, self.now)
        return Plan(
            deletes=() if is_news else self._deletes("All", "the job is suspended"),
            status=self.kind.changed(self.job, new),
            status_first=is_news,
            events=self.kind.events(self.job, report, new) if is_news else (),
            requeue_after=patience(self.facts.observed.all_pods, self.now),
        )

    def _resume(self) -> Plan:
        return self._store(self._report("resume", self.model.memory))

    # --- the end: the result is stored before the first pod is deleted for it ---

    def _end(self, result: Result, *, is_stopped: bool = False) -> Plan:
        clean = "Running" if is_stopped and self.model.run.clean == "None" else None
        memory = msgspec.structs.replace(self._seen(), done={}, ran={}, ports={})
        return self._store(self._report("end", memory, result=result, clean=clean))

    def _clean_up(self) -> Plan:
        """Deletes what the clean-up policy says, and when its time is over, the job itself."""
        policy, ttl = self.model.run.clean, self.model.run.ttl
        deletes = self._deletes(policy, f"the job has ended and cleanPodPolicy is {policy}")
        waits = patience(self._to_clean(policy), self.now)
        if ttl is None or deletes:
            return Plan(deletes=deletes, requeue_after=waits)
        if (left := ttl.left(self.now)) > 0:
            return Plan(requeue_after=soonest(left, waits))
        key, uid = self.kind.key(self.job)
        # By its uid: a job that was created anew under this name stays.
        why = f"it ended {ttl.seconds} seconds ago (ttlSecondsAfterFinished)"
        return Plan(deletes=(Delete(self.kind.resource, key, uid, why),))

    def _deletes(self, policy: CleanPodPolicy, why: str) -> tuple[Delete, ...]:
        observed = self.facts.observed
        return (
            *self._removal(self._to_clean(policy), why),
            *deletions(SERVICE, observed.services.values() if policy != "None" else (), why),
            # The group is deleted under every policy: nothing is left to be placed.
            *gang.surplus(self.model.gang_scheduler, observed, why),
        )

    def _to_clean(self, policy: CleanPodPolicy) -> tuple[PodView, ...]:
        """A container that trains is stopped, also where one beside it has ended."""
        return pods_to_clean(self.facts.observed.all_pods, policy, is_kept=lambda pod: pod.is_ended)

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
        )

    def _report(self, step: Step, memory: Memory, **fields: Any) -> Report:
        return Report(step=step, model=self.model, facts=self.facts, memory=memory, **fields)

    def _store(self, report: Report) -> Plan:
        """Stores the status; the next pass acts on it."""
        new = self.kind.status(self.job, report, self.now)
        return Plan(
            status=self.kind.changed(self.job, new),
            status_first=True,
            events=self.kind.events(self.job, report, new),
        )

    def _removal(self, pods: Iterable[PodView], why: str) -> tuple[Delete, ...]:
        return removal(pods, why, self.now, self.facts.nodes.lost)


def without(places: Places, gone: Iterable[Place]) -> Places:
    away = frozenset(gone)
    left = {role: tuple(i for i in indices if (role, i) not in away) for role, indices in places.items()}
    return {role: indices for role, indices in left.items() if indices}
