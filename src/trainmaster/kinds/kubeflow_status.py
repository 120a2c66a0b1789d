"""A status in Kubeflow's form, for kinds that have no form of their own: counters by role, and phases as conditions.

A condition stands for a phase; the last of the list is the phase of the job. ``Running`` and ``Restarting`` replace
each other, and at the end both are False.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.core.condition import SUSPENDED, Condition, Conditions, find, finished, is_true
from trainmaster.core.plan import Event, normal, warning
from trainmaster.core.wire import Generation, Number, Ports, Wire
from trainmaster.kinds.base import Job
from trainmaster.kinds.status import recorded, replaced, standard_conditions
from trainmaster.lifecycle import reason, waiting
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.decide import Report, Verdict
from trainmaster.lifecycle.facts import joined
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.restart import FailedPod, Restart, Restarts
from trainmaster.lifecycle.summary import Summary

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
ENDED = frozenset({SUCCEEDED, FAILED})
PHASES = {
    CREATED: "The pods exist, and the job does not run yet.",
    RUNNING: "The role that decides runs; after a restart all replicas do.",
    RESTARTING: "A pod failed, and pods restart.",
    SUSPENDED: "``suspend`` is set. The job has no pods.",
    SUCCEEDED: "The job has succeeded.",
    FAILED: "The job has failed.",
}

_GOING_ON = (RUNNING, RESTARTING)


class ReplicaStatus(Wire, frozen=True):
    active: Number = 0
    """Running pods."""
    succeeded: Number = 0
    """Pods that have succeeded."""
    failed: Number = 0
    """Pods that have failed."""


class JobStatus(Wire, frozen=True):
    phase: str = ""
    """Created, Running, Restarting or Suspended; at the end Succeeded or Failed."""
    observed_generation: Generation = 0
    """The generation of the spec that this status is about."""
    conditions: Conditions = ()
    """The conditions that all kinds have, and then each phase that the job has had, the present one last."""
    replica_statuses: dict[str, ReplicaStatus] = {}
    """How many pods of each role are in which state."""
    restarts: dict[str, Restarts] = {}
    """What is counted of the restarts of each role."""
    restart_history: tuple[Restart, ...] = ()
    """The last ten restarts."""
    ran: dict[str, tuple[Number, ...]] = {}
    """The indices of the replicas of each role whose pod was seen running in this attempt."""
    done: dict[str, tuple[Number, ...]] = {}
    """The indices of the replicas of each role that have succeeded in this attempt. They are not created again."""
    ports: Ports = {}
    """The ports of replicas that share a network: by replica, then by the port that its template declares."""
    node_troubles: dict[str, datetime] = {}
    """Nodes with a problem of which the API does not say since when it exists, and when it was first seen. A device
    that a node no longer has is listed as ``node/device``."""
    pod_group: str = ""
    """The pod group of Kueue with the last pods that were seen. When they are gone, the next ones are another group."""
    failure: Failure | None = None
    """Which replica failed first and how, of a job that has failed. It stays when the pods are deleted."""
    clean: CleanPodPolicy | None = None
    """Replaces ``cleanPodPolicy`` of the spec, where that would leave pods running."""
    start_time: datetime | None = None
    """When the job was started, or resumed."""
    completion_time: datetime | None = None
    """When the job ended."""
    summary: Summary = Summary()
    """What kubectl get shows of the job."""


Counters = dict[str, ReplicaStatus]
"""By role."""


class Writer(msgspec.Struct, frozen=True):
    """Writes what a pass decided as a status and Events. Their reasons begin with ``noun``, the name of the kind."""

    noun: str

    def status(self, job: Job, report: Report, counters: Counters, now: datetime, *, runs: bool) -> JobStatus:
        """``counters`` are those of the pods now; ``runs``: with these the job counts as running."""
        old: JobStatus = job.status
        entered = self._entered(old, report, now, runs=runs)
        if report.step == "adopt":
            return entered
        return msgspec.structs.replace(
            recorded(entered, report.memory),
            observed_generation=job.metadata.generation,
            replica_statuses=_stored(old, report, counters),
            clean=report.clean,
            conditions=standard_conditions(entered.conditions, report, now),
        )

    def events(self, old: JobStatus, new: JobStatus, report: Report) -> tuple[Event, ...]:
        message = self._message(report)
        match report.step:
            case "restart":
                return (warning(self.reason(RESTARTING), message),)
            case "suspend":
                return (normal(self.reason(SUSPENDED), message),)
            case "resume":
                return (normal(self.reason(reason.RESUMED), message),)
            case "end":
                make = normal if report.result.phase == SUCCEEDED else warning
                return (make(self.reason(report.result.phase), message),)
            case "proceed" | "replace":
                waits = waiting.events(old.conditions, report.waiting)
                return (*self._started(old, new, report), *replaced(report), *waits)
        return ()

    def reason(self, phase: str) -> str:
        return f"{self.noun}{phase}"

    def succeeded(self, name: str) -> str:
        return f"{self.noun} {name} is successfully completed."

    def failed(self, name: str, verdict: Verdict) -> str:
        if verdict.is_spent:
            why = f"has failed because it has reached the specified backoff limit: {described(verdict.final)}"
        else:
            why = f"is failed because {described(verdict.final)}"
        return f"{self.noun} {name} {why}"

    # --- phases ---

    def _entered(self, old: JobStatus, report: Report, now: datetime, *, runs: bool) -> JobStatus:
        message, created = self._message(report), self._created(report)
        match report.step:
            case "adopt":
                return _adopted(old, report.result.phase, now)
            case "suspend":
                # Kubeflow's clients look for Created, also in a job that starts suspended.
                if not find(old.conditions, CREATED):
                    conditions = self._put(old.conditions, CREATED, created, now)
                    old = msgspec.structs.replace(old, conditions=conditions)
                return self._enter(old, SUSPENDED, message, now)
            case "resume":
                return self._enter(self._resumed(old, message, now), CREATED, created, now)
            case "restart":
                return self._enter(old, RESTARTING, message, now)
            case "replace":
                return old if old.phase else self._enter(old, CREATED, message, now)
            case "end":
                return self._enter(old, report.result.phase, message, now)
        return self._enter(old, *self._going_on(old, report, runs=runs), now)

    def _going_on(self, old: JobStatus, report: Report, *, runs: bool) -> tuple[str, str]:
        """Every job is Created first, however fast its pods start."""
        if old.phase and runs:
            return RUNNING, self._running(report)
        if old.phase == RESTARTING:
            restarting = find(old.conditions, RESTARTING)
            return RESTARTING, restarting.message if restarting else ""
        waits_for = waiting.message(report.waiting) if old.phase else ""
        return CREATED, f"{self._created(report)} {waits_for}".rstrip()

    def _enter(self, status: JobStatus, phase: str, message: str, now: datetime) -> JobStatus:
        conditions = self._put(status.conditions, phase, message, now)
        return msgspec.structs.replace(
            status,
            phase=phase,
            conditions=finished(conditions, phase, ENDED, message, now),
            start_time=status.start_time or (None if phase == SUSPENDED else now),
            completion_time=status.completion_time or (now if phase in ENDED else None),
        )

    def _resumed(self, status: JobStatus, message: str, now: datetime) -> JobStatus:
        """The active deadline begins again: a suspended job was not active."""
        conditions = tuple(
            _changed(c, "False", self.reason(reason.RESUMED), message, now) if c.type == SUSPENDED else c
            for c in status.conditions
        )
        return msgspec.structs.replace(status, conditions=conditions, start_time=now)

    def _put(self, conditions: Conditions, type_: str, message: str, now: datetime) -> Conditions:
        old, reason = find(conditions, type_), self.reason(type_)
        if old and (old.status, old.message) == ("True", message):
            return conditions
        dropped = {type_, *(_GOING_ON if type_ in _GOING_ON else ())}
        kept = tuple(c for c in conditions if c.type not in dropped)
        if type_ in ENDED or type_ == SUSPENDED:
            kept = tuple(
                _changed(c, "False", reason, c.message, now) if c.type in _GOING_ON and c.status == "True" else c
                for c in kept
            )
        since = old.last_transition_time if old and old.status == "True" else now
        new = Condition(type_, "True", reason, message, last_update_time=now, last_transition_time=since)
        return (*kept, new)

    # --- messages ---

    def _message(self, report: Report) -> str:
        name = report.model.name
        match report.step:
            case "restart":
                return f"{self.noun} {name} is restarting because {described(report.failed)}"
            case "suspend":
                return report.model.run.suspend
            case "resume":
                return f"{self.noun} {name} is resumed."
            case "end":
                return report.result.message
        return self._created(report)

    def _created(self, report: Report) -> str:
        return f"{self.noun} {report.model.name} is created."

    def _running(self, report: Report) -> str:
        return f"{self.noun} {report.model.name} is running."

    def _started(self, old: JobStatus, new: JobStatus, report: Report) -> tuple[Event, ...]:
        if find(old.conditions, CREATED) is None:  # a job whose spec was corrected has a phase already
            return (normal(self.reason(CREATED), self._created(report)),)
        if new.phase == RUNNING != old.phase:
            return (normal(self.reason(RUNNING), self._running(report)),)
        return ()


def described(failed: Sequence[FailedPod]) -> str:
    """``2 Worker replica(s) failed: ...``, with the messages of the first of them."""
    roles = {role: sum(f.role == role for f in failed) for role in dict.fromkeys(f.role for f in failed)}
    counted = ", ".join(f"{number} {role}" for role, number in roles.items())
    return f"{counted} replica(s) failed: {joined([f.fault.message for f in failed])}"


def _changed(old: Condition, status: str, reason: str, message: str, now: datetime) -> Condition:
    return msgspec.structs.replace(
        old, status=status, reason=reason, message=message, last_update_time=now, last_transition_time=now
    )


# --- jobs that another operator left ---


def ended_elsewhere(status: JobStatus) -> str:
    """The last phase that another operator stored, which wrote conditions and no phase. A failure is never taken
    back."""
    if status.phase:
        return ""
    return next((phase for phase in (FAILED, SUCCEEDED) if is_true(status.conditions, phase)), "")


def is_suspended(status: JobStatus) -> bool:
    """Also where another operator stored it, which wrote no phase."""
    return status.phase == SUSPENDED or (not status.phase and is_true(status.conditions, SUSPENDED))


def entered_at(status: JobStatus, phase: str) -> datetime | None:
    found = find(status.conditions, phase)
    return found.last_transition_time if found and found.status == "True" else None


def _adopted(old: JobStatus, phase: str, now: datetime) -> JobStatus:
    """The result of another operator does not change. Some of them stored no time of the end."""
    ended = old.completion_time or entered_at(old, phase) or now
    found = find(old.conditions, phase)
    conditions = finished(old.conditions, phase, ENDED, found.message if found else "", ended)
    return msgspec.structs.replace(old, phase=phase, completion_time=ended, conditions=conditions)


# --- counters ---


def count(report: Report) -> Counters:
    """A pod that is being deleted while it runs has failed; a pending one does not count. When the job has succeeded,
    pods that still run count as succeeded."""
    facts = report.facts
    active, failed = dict.fromkeys(report.model.roles, 0), dict.fromkeys(report.model.roles, 0)
    for place, state in facts.states.items():
        if state == "Failed" or (state == "Running" and facts.pods[place].deleting):
            failed[place[0]] += 1
        elif state == "Running":
            active[place[0]] += 1
    counted = {
        role: ReplicaStatus(active[role], len(facts.succeeded.get(role, ())), failed[role])
        for role in report.model.roles
    }
    if report.step == "end" and report.result.phase == SUCCEEDED:
        return {r: ReplicaStatus(0, c.succeeded + c.active, c.failed) for r, c in counted.items()}
    return counted


def are_all_running(report: Report, counters: Counters) -> bool:
    """All replicas run, or have succeeded."""
    counted = ((role.replicas, counters[name]) for name, role in report.model.roles.items())
    return all(of_role.active + of_role.succeeded == replicas for replicas, of_role in counted)


def _stored(old: JobStatus, report: Report, counters: Counters) -> Counters:
    match report.step:
        case "suspend":
            return {role: ReplicaStatus() for role in report.model.roles}
        case "resume":
            return old.replica_statuses
    return counters
