"""What happened to a job and what happens next, in at most ten lines. A pure function of what was read.

The first line has the cause: of the end, of a restart, or of the wait. The lines after it have the output of the failed
replica, the rule that decided, Events, the next step of the operator, and what to type.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from trainmaster.client.failure import failures_of
from trainmaster.client.job_finder import FoundJob
from trainmaster.client.job_row import Status, phase_of, restarts_of, status_of
from trainmaster.client.next_step import next_step
from trainmaster.client.restart_number import last_restart
from trainmaster.client.run_model import message_of
from trainmaster.client.text import age, printable
from trainmaster.core import condition
from trainmaster.core.errors import BadSpec
from trainmaster.core.observed import Observed
from trainmaster.kinds.lifecycle import LifecycleKind
from trainmaster.lifecycle import failure, reason, restart
from trainmaster.lifecycle.failure import Failure
from trainmaster.lifecycle.model import JobModel, Role
from trainmaster.lifecycle.queue import GROUP
from trainmaster.lifecycle.restart import Restart
from trainmaster.lifecycle.waiting import BLOCKED

MOST_LINES = 10
OUTPUT_LINES = 3
EVENTS = 2
WIDTH = 400
"""Characters of a line: messages of programs and of the API server may be long."""
REFUSAL_WIDTH = 2000
"""Of a line with a refusal of the API server: PodSecurity lists all that has to be changed."""
UNSEEN_SECONDS = 10
"""A job without a status for longer than this is seen by no operator."""

_POLICIES = {
    "Never": "never (restartPolicy Never)",
    "ExitCode": "only after the exit codes of restartingExitCode (restartPolicy ExitCode)",
    "OnNodeFail": "only after a fault of its node",
    "OnNodeFailWithExitCode": "only after a fault of its node, or the exit codes of restartingExitCode",
    "OnFailure": "after failures of its program (restartPolicy OnFailure)",
    "Always": "after every fault (restartPolicy Always)",
}


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An Event of the job or of one of its pods."""

    what: str
    """``pod mnist-worker-0``, or the job."""
    type: str
    reason: str
    message: str
    time: datetime | None = None
    is_of_job: bool = False


def story(
    job: FoundJob,
    observed: Observed,
    events: Sequence[JobEvent],
    now: datetime,
    *,
    output: Sequence[str] = (),
    kubectl: str = "kubectl",
    options: str = "",
    keeps_logs: bool = False,
) -> list[str]:
    """``output`` are the last lines of what ``failure_of`` returns. ``kubectl`` is how kubectl is typed for this
    cluster, and ``options`` are what our own commands need for it. ``keeps_logs``: those of deleted pods are kept."""
    if job.kind.is_foreign(job.view):
        return [f"{job} is managed by another controller (managedBy); trainmaster does not touch it"]
    parts = _Story(job, observed, events, now, output)
    end = [parts.next_step(), parts.advice(kubectl, options, keeps_logs=keeps_logs)]
    lines = [*list(parts.lines())[: MOST_LINES - len(end)], *end]
    shown = [printable(line) for line in lines if line]
    return [shown[0][: REFUSAL_WIDTH if parts.refusal else WIDTH], *(line[:WIDTH] for line in shown[1:])]


def failure_of(job: FoundJob, observed: Observed) -> Failure | None:
    """The first failure: the one that the status has, or that of the pods that are there."""
    stored = status_of(job).failure
    if stored and not stored.is_consequence:
        return stored
    return failure.first([*([stored] if stored else []), *failures_of(job, observed)])


class _Story:
    def __init__(
        self,
        job: FoundJob,
        observed: Observed,
        events: Sequence[JobEvent],
        now: datetime,
        output: Sequence[str],
    ) -> None:
        self.job, self.observed, self.now, self.output = job, observed, now, output
        self.warnings = [
            msgspec.structs.replace(event, message=event.message.removeprefix("Error: "))
            for event in events
            if event.type == "Warning"
        ]
        self.left = _left_to(events)
        self.stored = status_of(job)
        self.plan = job.kind.plan(job.view, observed, now)
        self.status = self._newest_status()
        self.message = message_of(self.status.conditions)
        self.model = self._model()
        self.warnings = [event for event in self.warnings if self._is_own(event)]
        self.phase = phase_of(job, self.status)
        self.waits = restart.waits(self.status.by_role, now)
        self.failed = self._with_output(failure_of(job, observed))
        self.spec = msgspec.json.decode(job.view.raw).get("spec") or {}

    def lines(self) -> Iterator[str]:
        """Empty lines are left out, and an Event that the first line repeats."""
        head = ""
        for line in self._what_happened():
            head = head or line
            if line and (line is head or not line.startswith("event ") or _message(line)[:80] not in head):
                yield line

    def _what_happened(self) -> Iterator[str]:
        succeeded = condition.has_succeeded(self.status.conditions)
        if succeeded is not None:
            yield from self._ended(succeeded=succeeded)
        elif self.phase in ("Deleting", "Refused", "Suspended"):
            yield self._stopped()
        else:
            yield from self._going_on()

    # --- a job that has ended or stopped ---

    def _ended(self, *, succeeded: bool) -> Iterator[str]:
        finished = condition.find(self.status.conditions, condition.FINISHED)
        when = f"{age(finished.last_transition_time, self.now)} ago" if finished else ""
        failed = None if succeeded else self._cause()
        if succeeded:
            yield f"{self.job} has succeeded {when}: {self.message}"
        elif failed:
            yield f"{self.job} has failed {when}: {self._described(failed)}"
            yield from self._output(failed)
            yield self._rule(failed)
            yield self._others(failed)
        else:
            yield f"{self.job} has ended with {self.phase} {when}: {self.message}"
        yield self._restarts()
        yield from self._events()

    def _cause(self) -> Failure | None:
        """The container that ended the job; None if no program did."""
        if self.phase in ("Timeout", "Preempted", "NodeFail"):
            return None
        return self.failed if self.failed and self.failed.exit_code is not None else None

    def _with_output(self, failed: Failure | None) -> Failure | None:
        has_none = failed is not None and not failed.output
        return msgspec.structs.replace(failed, output=tuple(self.output)) if failed and has_none else failed

    def _described(self, failed: Failure) -> str:
        """A failure; only an Event says that the kubelet ended a container because of a probe."""
        probe = re.compile(r"(Liveness|Startup) probe failed")
        events = [e.message for e in self.warnings if e.what == f"pod {failed.pod}" and probe.match(e.message)]
        return f"{failed.sentence}: {events[-1]}" if failed.signal and events else failed.describe()

    def _stopped(self) -> str:
        left = len(self.observed.all_pods)
        match self.phase:
            case "Deleting":
                return f"{self.job} is being deleted; {left} pods are left"
            case "Refused":
                return f"{self.job} cannot be run as it is written: {self.message}"
        return f"{self.job} is suspended; {left} pods are left"

    def _output(self, failed: Failure) -> Iterator[str]:
        """The last lines, without the one that the sentence has."""
        lines = [line for line in self.output if line.strip() and line != failed.line]
        for line in () if failed.is_start_error else lines[-OUTPUT_LINES:]:
            yield f"  | {line}"

    def _others(self, failed: Failure) -> str:
        """Those that had failed when the job ended, or that are seen to have failed since."""
        seen = {each.pod for each in failures_of(self.job, self.observed)} - {failed.pod}
        others = max(failed.others, len(seen))
        return f"{others} more pod{'s' if others > 1 else ''} failed after it" if others else ""

    # --- a job that goes on ---

    def _going_on(self) -> Iterator[str]:
        if queued := self._queued():
            yield f"{self.job} is waiting: {queued}"
            yield self._restarts()
        elif self.waits or self.phase == "Restarting":
            yield f"{self.job} restarts{self._number()}: {self._last_restart()}"
        elif waiting := self._waiting():
            yield f"{self.job} is waiting: {waiting}"
        elif self._is_unseen():
            unseen = f"no operator has seen it in {age(self._created(), self.now)}"
            yield f"{self.job} has no status: {self.left or unseen}"
        else:
            yield f"{self.job} is {self.phase}: {self._running()}"
            yield self._restarts()
        if not self._is_unseen():
            yield self.left
        if self.failed:
            yield f"failed: {self._described(self.failed)}"
            yield from self._output(self.failed)
        yield from self._events()

    def _queued(self) -> str:
        """Of a job that was restarted, too: nothing happens until Kueue admits its pods."""
        found = condition.find(self.status.conditions, condition.PODS_WAITING)
        return found.message if found and (found.status, found.reason) == ("True", reason.QUEUED) else ""

    def _waiting(self) -> str:
        """Why pods do not start: by the conditions, or by the Events of a pending pod where these say more."""
        found = [condition.find(self.status.conditions, type_) for type_ in BLOCKED]
        blocked = [c for c in found if c and c.status == "True"]
        pending = {f"pod {pod.key.name}" for pod in self.observed.all_pods if pod.phase == "Pending"}
        messages = [
            *(c.message for c in blocked if c.reason != reason.CONTAINER_CREATING),
            *(f"{e.what}: {e.reason}: {e.message}" for e in reversed(self.warnings) if e.what in pending),
            *(c.message for c in blocked),
        ]
        return messages[0] if messages else ""

    def _running(self) -> str:
        total = len(self.model.slots) if self.model else 0
        done = sum(map(len, self.model.memory.done.values())) if self.model else 0
        running = sum(pod.phase == "Running" and not pod.deleting for pod in self.observed.all_pods)
        over = f", {done} have succeeded" if done else ""
        return f"{running} of {total} replicas run{over}; {self.message or 'nothing is wrong'}"

    # --- rules, restarts, Events ---

    def _rule(self, end: Failure) -> str:
        """The rule by which a failed pod ended the job."""
        if end.is_start_error:
            return "rule: a container that cannot be started is not started again, under any restartPolicy"
        model = self.model
        role = next((r for r in model.roles.values() if r.name.lower() == end.role.lower()), None) if model else None
        if model is None or role is None:
            return ""
        return f"rule: {self._not_restarted(role, model.run.restart_limit)}{self._fail_policy(role.name)}"

    def _not_restarted(self, role: Role, most: int | None) -> str:
        restarts, rules = self.status.by_role, role.rules
        used = restarts.get(role.name, restart.NONE).used
        if rules.policy != "Never" and rules.limit is not None and used >= rules.limit:
            return f"restartLimit {rules.limit} of {role.name} is used up"
        if rules.policy != "Never" and most is not None and sum(r.used_of_job for r in restarts.values()) >= most:
            return self._spent(most)
        return f"{role.name} restarts {_POLICIES[rules.policy]}"

    def _spent(self, most: int) -> str:
        """A kind whose status has the number of restarts compares that with its limit, and not ``most``."""
        if isinstance(self.status.restarts, int):
            return f"backoffLimit of the job is used up by {self.status.restarts} restarts"
        return f"backoffLimit {most} of the job is used up"

    def _fail_policy(self, role: str) -> str:
        """Of an AITrainingJob, the only kind that has such policies."""
        roles = self.spec.get("replicaSpecs")
        if not isinstance(roles, dict):
            return ""
        of_role, of_job = roles.get(role, {}).get("failPolicy", "Any"), self.spec.get("failPolicy", "Any")
        return f"; failPolicy {of_role} of {role} and {of_job} of the job"

    def _number(self) -> str:
        """Which restart of how many, of the role that caused the last one."""
        last = last_restart(self.status.restart_history, self.status.by_role, self.model)
        return f" ({last.number} of {last.limit})" if last and last.limit else ""

    def _last_restart(self) -> str:
        history = self.status.restart_history
        return self._described_restart(history[-1]) if history else self.message

    def _restarts(self) -> str:
        history = self.status.restart_history
        if not history:
            return ""
        number = restarts_of(self.status) or len(history)
        count = f"{number} restarts" if number > 1 else "1 restart"
        return f"{count} before, the last: {self._described_restart(history[-1])}"

    def _described_restart(self, entry: Restart) -> str:
        return entry.describe(f"{age(entry.time, self.now)} ago")

    def _events(self) -> Iterator[str]:
        """The last Warning Events of pods that say something new."""
        new = [event for event in self.warnings if not event.is_of_job and event.message not in self.message]
        for event in new[-EVENTS:]:
            yield f"event of {event.what} {age(event.time, self.now)} ago: {event.reason}: {event.message}"

    # --- what happens next ---

    def next_step(self) -> str:
        has_ended = condition.is_true(self.status.conditions, condition.FINISHED)
        return next_step(self.plan, self.waits, self.phase, has_ended=has_ended, is_refused=bool(self.refusal))

    @property
    def refusal(self) -> str:
        """Why the API server refuses pods."""
        found = condition.find(self.status.conditions, condition.POD_CREATE_FAILED)
        return found.message if found and found.status == "True" else ""

    def advice(self, kubectl: str, options: str, *, keeps_logs: bool) -> str:
        """What to type; empty for a job that needs nothing."""
        job, key = self.job, self.job.key
        if self.phase == "Refused":
            return f"type: {kubectl} edit {job.resource} {key.name} --namespace {key.namespace}"
        if self.phase == "Suspended":
            return f"type: trainmaster resume {job}{options}"
        if self._is_unseen():
            look = f"{kubectl} get lease --namespace {key.namespace}, and look whether that operator runs"
            return f"type: {look if self.left else 'trainmaster operator --help, and start an operator'}"
        if self.refusal:
            return f"type: {_after_refusal(self.refusal, kubectl, job)}"
        if group := next((g for pod in self.observed.all_pods if pod.is_queued and (g := pod.labels.get(GROUP))), ""):
            return f"type: {kubectl} describe workload {group} --namespace {key.namespace}"
        if pending := [pod.key.name for pod in self.observed.all_pods if pod.phase == "Pending"]:
            return f"type: {kubectl} describe pod {pending[0]} --namespace {key.namespace}"
        if self.observed.all_pods:
            role = f" --role {self.failed.role.lower()}" if self.failed and self.failed.role else ""
            return f"type: trainmaster logs {job}{role} --all{options}"
        return self._advice_without_pods(options, keeps_logs=keeps_logs)

    def _advice_without_pods(self, options: str, *, keeps_logs: bool) -> str:
        match condition.has_succeeded(self.status.conditions):
            case True:
                return ""
            case False:
                if keeps_logs:
                    return (
                        f"its pods are deleted; their logs are kept, type: trainmaster logs {self.job} --all{options}"
                    )
                return "its pods are deleted, and their logs with them; with cleanPodPolicy None they are kept"
        return f"type: trainmaster logs {self.job} --follow{options}"

    # --- what was read ---

    def _newest_status(self) -> Status:
        """The status that the operator would store now: conditions may be stored some seconds later."""
        if self.plan.status is None:
            return self.stored
        try:
            return msgspec.convert(dict(self.plan.status), Status)
        except msgspec.ValidationError:
            return self.stored

    def _model(self) -> JobModel | None:
        kind = self.job.kind
        try:
            return kind.read(kind.decode(self.job.view), self.observed) if isinstance(kind, LifecycleKind) else None
        except BadSpec:
            return None

    def _is_own(self, event: JobEvent) -> bool:
        """A pod that is deleted is known by the name of a slot: the name of another job may begin with this job's."""
        slots = tuple(slot.name for slot in self.model.slots) if self.model else ()
        name = event.what.partition(" ")[2]
        is_present = any(pod.key.name == name for pod in self.observed.all_pods)
        # Replicas that are not pods create pods whose names begin with theirs.
        return event.is_of_job or is_present or name in slots or name.startswith(tuple(f"{slot}-" for slot in slots))

    def _created(self) -> datetime | None:
        return self.job.kind.status_of(self.job.view)[0].creation_timestamp

    def _is_unseen(self) -> bool:
        created = self._created()
        is_old = created is not None and (self.now - created).total_seconds() > UNSEEN_SECONDS
        return is_old and not self.stored.phase


def _after_refusal(refusal: str, kubectl: str, job: FoundJob) -> str:
    where = f"--namespace {job.key.namespace}"
    if "exceeded quota" in refusal:
        return f"{kubectl} describe quota {where}"
    if "violates PodSecurity" in refusal:
        return f"{kubectl} edit {job.resource} {job.key.name} {where}, and set in its pod templates what is asked for"
    return f"{kubectl} describe {job.resource} {job.key.name} {where}"


def _message(line: str) -> str:
    """The message of a line about an Event."""
    return line.partition(": ")[2].partition(": ")[2]


def _left_to(events: Sequence[JobEvent]) -> str:
    """To which operator the job is left; empty if it is not, or not any more."""
    found = [e for e in events if e.is_of_job and e.reason in (reason.LEFT_TO_OPERATOR, reason.TAKEN_BACK)]
    return found[-1].message if found and found[-1].reason == reason.LEFT_TO_OPERATOR else ""
