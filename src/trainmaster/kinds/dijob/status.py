"""Phases, counters, conditions and Events of a DIJob."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from trainmaster.core.condition import (
    POD_CREATE_FAILED,
    SUSPENDED,
    Condition,
    Conditions,
    find,
    finished,
    put_standard,
)
from trainmaster.core.plan import Event, normal, warning
from trainmaster.kinds.dijob import address, declare, in_place, reason
from trainmaster.kinds.dijob.declaration import Aggregator, Declared
from trainmaster.kinds.dijob.profile import profile_of
from trainmaster.kinds.dijob.types import DIJob, DIJobStatus, RoleStatus
from trainmaster.kinds.status import recorded, standard_conditions
from trainmaster.lifecycle import waiting
from trainmaster.lifecycle.decide import Report
from trainmaster.lifecycle.facts import joined
from trainmaster.lifecycle.restart import FailedPod, Restarts

CREATED = "Created"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
ENDED = frozenset({SUCCEEDED, FAILED})
PHASES = {
    CREATED: "The coordinator has not run yet (of a NerveXJob also the aggregator), or the job is suspended.",
    RUNNING: "The coordinator has started (of a NerveXJob the aggregator, too).",
    SUCCEEDED: "The main container of the coordinator has ended with exit code 0.",
    FAILED: "The main container of the coordinator has failed, or the deadline is over.",
}

ROLES = {
    "coordinator": "Coordinator",
    "aggregator": "Aggregator",
    "collector": "Collector",
    "learner": "Learner",
    "ddp-learner": "DDPLearner",
}
"""As ``replicaStatus`` spells them."""
_ALWAYS = ("Coordinator", "Aggregator", "Collector", "Learner")
"""Those that clients have always found there."""


class AggregatorNews(msgspec.Struct, frozen=True):
    """What the AggregatorConfig says of the aggregators of a job, or why none can be created."""

    aggregator: Aggregator | None = None
    error: str = ""


def reason_of(job: DIJob, word: str) -> str:
    return f"{profile_of(job).word}{word}"


# --- what a pass decided, in the words of the status ---


def written(job: DIJob, report: Report, now: datetime) -> DIJobStatus:
    fixed = profile_of(job).fixed_roles
    entered = _entered(job, report, now)
    return msgspec.structs.replace(
        recorded(entered, report.memory),
        observed_generation=job.metadata.generation,
        replicas=len(report.model.slots),
        ready_replicas=0 if entered.phase in ENDED else _ready(report),
        replica_status=count(report),
        restarts=_restarts(job, report),
        ran={role: ran for role, ran in report.memory.ran.items() if role in fixed and restarts_all(job)},
        declared=_declared(job, report, now),
        clean=report.clean,
        conditions=_conditions(job, entered.conditions, report, now),
    )


def restarts_all(job: DIJob) -> bool:
    return job.spec.run_policy.restart_scope == "All"


def _restarts(job: DIJob, report: Report) -> dict[str, Restarts]:
    """Declared replicas that are replaced under another name have no attempt."""
    counted = report.memory.restarts if restarts_all(job) else profile_of(job).fixed_roles
    return job.status.restarts | {role: of_role for role, of_role in report.memory.restarts.items() if role in counted}


def events(job: DIJob, report: Report, new: DIJobStatus) -> tuple[Event, ...]:
    message = _message(job, report)
    match report.step:
        case "restart":
            return _restarted(job, report)
        case "suspend" | "resume":
            return (normal(reason_of(job, "Suspended" if report.step == "suspend" else "Resumed"), message),)
        case "end":
            make = normal if report.result.is_success else warning
            return (make(reason_of(job, report.result.phase), message),)
    # A job whose spec was corrected has a phase, and was not created before.
    created = () if find(job.status.conditions, CREATED) else (normal(reason_of(job, CREATED), message),)
    return (
        *created,
        *_refused(job, report),
        *in_place.events(job.status.declared.members, report),
        *waiting.events(job.status.conditions, report.waiting),
    )


def _refused(job: DIJob, report: Report) -> tuple[Event, ...]:
    """An Event when the AggregatorConfig begins to be missing or cannot be used any more."""
    error, old = _news(report).error, find(job.status.conditions, POD_CREATE_FAILED)
    is_known = old is not None and (old.status, old.message) == ("True", error)
    return (warning(reason.NO_AGGREGATOR_CONFIG, error),) if error and not is_known else ()


def _entered(job: DIJob, report: Report, now: datetime) -> DIJobStatus:
    message = _message(job, report)
    match report.step:
        case "end":
            return enter(job, report.result.phase, message, now)
        case "suspend" | "resume":
            entered = enter(job, CREATED, _created(job), now)
            is_suspended = report.step == "suspend"
            conditions = put_standard(
                entered.conditions, SUSPENDED, is_suspended, _SUSPENSION[report.step], message, now
            )
            conditions = tuple(_ended(c, now) if c.type == RUNNING else c for c in conditions)
            # Time in which nothing may run is not charged to the deadline.
            return msgspec.structs.replace(entered, conditions=conditions, start_time=None if is_suspended else now)
    if job.status.phase and _is_running(job, report):
        return enter(job, RUNNING, _running(job), now)
    # Every job is Created first, however fast its coordinator starts.
    return enter(job, job.status.phase or CREATED, message, now)


def _running(job: DIJob) -> str:
    roles = profile_of(job).fixed_roles
    return f"{' and '.join(roles)} of {_title(job)} {'are' if len(roles) > 1 else 'is'} running"


_SUSPENSION = {"suspend": "Suspended", "resume": "Resumed"}


def _message(job: DIJob, report: Report) -> str:
    match report.step:
        case "suspend":
            return report.model.run.suspend
        case "resume":
            return f"{_title(job)} is resumed"
        case "end":
            return report.result.message
    return _created(job)


def _created(job: DIJob) -> str:
    return f"{_title(job)} created"


def _title(job: DIJob) -> str:
    return f"{profile_of(job).word} {job.metadata.name}"


def _is_running(job: DIJob, report: Report) -> bool:
    """All fixed pods run."""
    return all(_state(report, role, 0) == "Running" for role in profile_of(job).fixed_roles)


def _state(report: Report, role: str, index: int) -> str:
    """The state of a pod; empty for one that is being deleted."""
    pod = report.facts.pods.get((role, index))
    return "" if pod is None or pod.deleting else report.facts.state((role, index))


# --- counters ---


def count(report: Report) -> dict[str, RoleStatus]:
    """Pods by state and role. At the end of a job that succeeded, pods that still run have succeeded, too."""
    numbers: dict[str, dict[str, int]] = {role: {} for role in _ALWAYS}
    for role, index in report.facts.pods:
        of_role = numbers.setdefault(ROLES[role], {})
        if column := _COLUMNS.get(_state(report, role, index)):
            of_role[column] = of_role.get(column, 0) + 1
    counted = {role: RoleStatus(**of_role) for role, of_role in numbers.items()}
    return _folded(counted) if report.step == "end" and report.result.is_success else counted


_COLUMNS = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}


def _folded(counters: Mapping[str, RoleStatus]) -> dict[str, RoleStatus]:
    return {role: RoleStatus(0, each.succeeded + each.active, each.failed) for role, each in counters.items()}


def _ready(report: Report) -> int:
    roles, pods = report.model.roles, report.facts.pods
    return sum(not pod.deleting and roles[role].training.is_ready(pod) for (role, _), pod in pods.items())


# --- declared replicas ---


def _declared(job: DIJob, report: Report, now: datetime) -> Declared:
    declared = job.status.declared
    match report.step:
        case "restart" if not restarts_all(job):
            return _replaced(job, report.failed, now)[0]
        case "restart" | "suspend":
            return _with(declared, {name: {"formed": False} for name, m in declared.members.items() if m.formed})
        case "proceed":
            if aggregator := _news(report).aggregator:
                declared = msgspec.structs.replace(declared, aggregator=aggregator, aggregator_template=None)
            restarts = in_place.new_counts(declared.members, report)
            declared = _with(declared, {name: {"restarts": count} for name, count in restarts.items()})
            ran = (*_complete_groups(declared, report), *_new_ran(job, report))
            return _with(declared, {name: {"formed": True} for name in ran})
    return declared


def _replaced(job: DIJob, failed: tuple[FailedPod, ...], now: datetime) -> tuple[Declared, dict[str, str]]:
    """The declaration with new names for failed replicas, and the new name of each."""
    edit, names = declare.Edit(job.status.declared), dict[str, str]()
    for each in sorted(failed, key=lambda f: f.name):
        if each.name not in edit.members:
            continue  # a fixed pod, or one whose DDP group was replaced for another one
        attempt = str(edit.members[each.name].attempt)
        suffixes = declare.derived_suffixes(job.metadata.uid, each.name, attempt)
        names[each.name] = edit.replace(each.name, suffixes=suffixes, now=now, is_own_fault=not each.fault.is_node)
    return edit.result, names


def _restarted(job: DIJob, report: Report) -> tuple[Event, ...]:
    if restarts_all(job):
        why = _reason_of_restart(job, report.failed[0])
        message = joined([failed.fault.message for failed in report.failed])
        return (warning(why, f"{message}; the coordinator and all replicas restart (restartScope All)"),)
    names = _replaced(job, report.failed, report.now)[1]
    found = []
    for failed in report.failed:
        if failed.name in address.fixed_names(job):
            successor = "another pod"
        elif failed.name in names:
            successor = names[failed.name]
        else:
            continue
        why = _reason_of_restart(job, failed)
        found.append(warning(why, f"{failed.fault.message}; {successor} takes its place"))
    return tuple(found)


def _reason_of_restart(job: DIJob, failed: FailedPod) -> str:
    if failed.role in profile_of(job).fixed_roles:
        return reason.displaced(failed.role)
    return reason.REPLICA_LOST if failed.fault.is_node else reason.REPLICA_FAILED


def _new_ran(job: DIJob, report: Report) -> list[str]:
    """With the restart scope All, declared replicas that run for the first time. DDP groups run as a whole."""
    if not restarts_all(job):
        return []
    members, ran = job.status.declared.members, report.memory.ran
    alone = {name for name, m in members.items() if not m.formed and m.role in (declare.COLLECTOR, declare.LEARNER)}
    return [slot.name for slot in report.model.slots if slot.name in alone and slot.index in ran.get(slot.role, ())]


def _complete_groups(declared: Declared, report: Report) -> list[str]:
    """The aggregators of DDP groups that have all of their pods, and are not known to."""
    if not any(m.role == declare.AGGREGATOR and not m.formed for m in declared.members.values()):
        return []
    there = {pod.key.name for pod in report.facts.pods.values() if not pod.deleting}
    edit = declare.Edit(declared)
    groups = {
        name: edit.group_of(name)
        for name, m in declared.members.items()
        if m.role == declare.AGGREGATOR and not m.formed
    }
    return [head for head, group in groups.items() if len(group) > 1 and there.issuperset(group)]


def _with(declared: Declared, changes: Mapping[str, Mapping[str, Any]]) -> Declared:
    """The declaration with these fields of members changed."""
    if not changes:
        return declared
    changed = {name: msgspec.structs.replace(declared.members[name], **fields) for name, fields in changes.items()}
    return msgspec.structs.replace(declared, members=declared.members | changed)


# --- conditions ---


def enter(job: DIJob, phase: str, message: str, now: datetime) -> DIJobStatus:
    status = job.status
    conditions = _put(status.conditions, phase, reason_of(job, phase), message, now)
    if phase in ENDED:
        conditions = tuple(_ended(c, now) if c.type == RUNNING else c for c in conditions)
    return msgspec.structs.replace(
        status,
        phase=phase,
        conditions=finished(conditions, phase, ENDED, message, now),
        start_time=status.start_time or now,
        completion_time=now if phase in ENDED else None,
    )


def _conditions(job: DIJob, conditions: Conditions, report: Report, now: datetime) -> Conditions:
    if report.step != "proceed":
        return standard_conditions(conditions, report, now)
    config_error = _news(report).error
    without_template = _without_template(job)
    is_all_created = report.is_all_created and not without_template and not config_error
    conditions = standard_conditions(conditions, msgspec.structs.replace(report, is_all_created=is_all_created), now)
    for why, error in ((reason.NO_TEMPLATE, without_template), (reason.NO_AGGREGATOR_CONFIG, config_error)):
        if error:
            conditions = put_standard(conditions, POD_CREATE_FAILED, True, why, error, now)
    return conditions


def _news(report: Report) -> AggregatorNews:
    found = report.extra.record
    return found if isinstance(found, AggregatorNews) else AggregatorNews()


def _without_template(job: DIJob) -> str:
    """What to say when replicas are declared whose template was removed from the spec."""
    roles = {member.role for member in job.status.declared.members.values()} - {declare.AGGREGATOR}
    lost = sorted(role for role in roles if address.spec_template(job, role) is None)
    return f"no template for {', '.join(lost)}: put it back, or take the replicas back by di-server" if lost else ""


def _put(conditions: Conditions, phase: str, reason: str, message: str, now: datetime) -> Conditions:
    """One entry a phase; the newest stands last, an entry that says the same stays untouched."""
    old = find(conditions, phase)
    if old and (old.status, old.reason) == ("True", reason):
        return conditions
    since = old.last_transition_time if old and old.status == "True" else now
    entry = Condition(phase, "True", reason, message, last_update_time=now, last_transition_time=since)
    return (*(c for c in conditions if c.type != phase), entry)


def _ended(running: Condition, now: datetime) -> Condition:
    if running.status == "False":
        return running
    return msgspec.structs.replace(running, status="False", last_update_time=now, last_transition_time=now)
