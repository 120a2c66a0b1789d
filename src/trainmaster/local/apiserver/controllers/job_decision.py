"""Decides the next actions for one Job from the Job, its pods and the time. No I/O.

Kubernetes' rules: a pod is counted once, when it has ended or is being deleted; a finalizer keeps it until then. The
Job first gets an interim condition (SuccessCriteriaMet, FailureTarget), then its pods are deleted, and after the last
one it gets the final condition (Complete, Failed).
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from trainmaster.local.apiserver.controllers.job_pod import JobPod, seconds_of

Object = dict[str, Any]

FIRST_DELAY = 10.0
LONGEST_DELAY = 600.0
_MOST_AT_ONCE = 50
"""Pods created in one pass, so that other work is not delayed."""

_FINAL_CONDITIONS = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
_MESSAGES = {
    "CompletionsReached": "Reached expected number of succeeded pods",
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "DeadlineExceeded": "Job was active longer than specified deadline",
    "JobSuspended": "Job suspended",
    "JobResumed": "Job resumed",
}


class Streak(NamedTuple):
    """The number of pods that failed since the last success, and the time of the last failure."""

    failures: int = 0
    at: float = 0.0

    def after(self, pods: Iterable[JobPod], now: float) -> "Streak":
        """The streak after these pods have ended, too."""
        streak = self
        for pod in sorted(pods, key=lambda pod: pod.finished_at or now):
            streak = Streak() if pod.phase == "Succeeded" else Streak(streak.failures + 1, pod.finished_at or now)
        return streak

    @property
    def over_at(self) -> float:
        """No pod is created before this time."""
        if not self.failures:
            return 0.0
        return self.at + min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self.failures - 1, 32))


class JobEvent(NamedTuple):
    """An Event on the Job."""

    reason: str
    message: str
    type: str = "Normal"


class Decision(NamedTuple):
    """Store the status first, then delete and create. ``surplus`` pods do not count as failed."""

    status: Object
    deleted: tuple[JobPod, ...] = ()
    surplus: tuple[JobPod, ...] = ()
    created: int = 0
    wake_at: float | None = None
    events: tuple[JobEvent, ...] = ()


class Moment(NamedTuple):
    """The time, in seconds and as an API timestamp."""

    seconds: float
    text: str


# -- counting --------------------------------------------------------------------------------------------------


def uncounted(job: Object, pods: Sequence[JobPod]) -> list[JobPod]:
    """Pods to count: those that have ended or are being deleted, and after FailureTarget all."""
    failure = condition(job["status"], "FailureTarget")
    return [pod for pod in pods if pod.is_tracked and (pod.has_ended or pod.is_deleting or failure is not None)]


def noted(status: Object, pods: Iterable[JobPod]) -> Object:
    """The status with these pods among the uncounted ones; stored before their finalizers are removed."""
    before = status.get("uncountedTerminatedPods") or {}
    uids_by_result = {word: set(before.get(word, ())) for word in ("failed", "succeeded")}
    for pod in pods:
        uids_by_result["succeeded" if pod.phase == "Succeeded" else "failed"].add(pod.uid)
    return {**status, "uncountedTerminatedPods": {word: sorted(uids) for word, uids in uids_by_result.items() if uids}}


def counted(status: Object) -> Object:
    """The status after all noted pods are counted."""
    waiting = status.get("uncountedTerminatedPods") or {}
    sums = {word: status.get(word, 0) + len(waiting.get(word, ())) for word in ("failed", "succeeded")}
    return {**status, **{word: number for word, number in sums.items() if number}, "uncountedTerminatedPods": {}}


# -- deciding --------------------------------------------------------------------------------------------------


def decide(job: Object, pods: Sequence[JobPod], now: Moment, streak: Streak) -> Decision:
    """For a Job that is not finished and whose pods are all counted."""
    status = _with_numbers(job["status"], pods)
    if not job["spec"]["suspend"]:
        status.setdefault("startTime", now.text)
    interim = _interim_condition(status)
    if interim is None and (reason := _failure(job, status, pods, now)):
        status = _with_condition(status, "FailureTarget", "True", reason, now)
        return Decision(status, events=(JobEvent(reason, _MESSAGES[reason], "Warning"),))
    if interim is not None:
        return _end(status, interim, pods, now)
    return _go_on(job, status, pods, now, streak)


def _with_numbers(status: Object, pods: Sequence[JobPod]) -> Object:
    active = [pod for pod in pods if pod.is_active]
    numbers = {key: value for key, value in status.items() if key != "active"}
    numbers["uncountedTerminatedPods"] = status.get("uncountedTerminatedPods") or {}
    numbers["ready"] = sum(pod.is_ready for pod in active)
    numbers["terminating"] = sum(pod.is_deleting and not pod.has_ended for pod in pods)
    return {**numbers, "active": len(active)} if active else numbers


def _failure(job: Object, status: Object, pods: Sequence[JobPod], now: Moment) -> str:
    """Why the Job has failed; empty if it has not."""
    spec = job["spec"]
    limit = spec["backoffLimit"]
    if status.get("failed", 0) > limit:
        return "BackoffLimitExceeded"
    if spec["template"]["spec"]["restartPolicy"] == "OnFailure":
        restarts = sum(pod.restarts for pod in pods if pod.phase in ("Running", "Pending"))
        if restarts > 0 and restarts >= limit:
            return "BackoffLimitExceeded"
    due = _deadline(job, status)
    return "DeadlineExceeded" if due is not None and now.seconds >= due else ""


def _deadline(job: Object, status: Object) -> float | None:
    seconds, start = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
    if seconds is None or start is None or job["spec"]["suspend"]:
        return None
    return seconds_of(start) + float(seconds)


def _interim_condition(status: Object) -> Object | None:
    return next((interim for word in _FINAL_CONDITIONS if (interim := condition(status, word))), None)


def _end(status: Object, interim: Object, pods: Sequence[JobPod], now: Moment) -> Decision:
    """Deletes active pods; when all are gone, sets the final condition."""
    if active := tuple(pod for pod in pods if pod.is_active):
        return Decision(status, deleted=active)
    if status["terminating"]:
        return Decision(status)
    word = _FINAL_CONDITIONS[interim["type"]]
    status = _with_condition(status, word, "True", interim["reason"], now)
    if word == "Failed":
        return Decision(status)
    return Decision({**status, "completionTime": now.text}, events=(JobEvent("Completed", "Job completed"),))


def _go_on(job: Object, status: Object, pods: Sequence[JobPod], now: Moment, streak: Streak) -> Decision:
    spec = job["spec"]
    active = [pod for pod in pods if pod.is_active]
    wanted = 0 if spec["suspend"] else _wanted(spec, status, len(active))
    if len(active) > wanted:
        surplus = sorted(active, key=lambda pod: pod.rank)[: len(active) - wanted]
        return Decision(status, surplus=tuple(surplus))
    if not active and _is_complete(spec, status):
        return Decision(_with_condition(status, "SuccessCriteriaMet", "True", "CompletionsReached", now))
    status, events = _with_suspension(status, now, suspend=spec["suspend"])
    times = [] if (due := _deadline(job, status)) is None else [due]
    created = min(wanted - len(active), _MOST_AT_ONCE)
    if created and streak.over_at > now.seconds:
        created = 0
        times.append(streak.over_at)
    return Decision(status, created=created, wake_at=min(times, default=None), events=events)


def _wanted(spec: Object, status: Object, active: int) -> int:
    """The number of pods that should run."""
    succeeded = status.get("succeeded", 0)
    if "completions" in spec:
        return int(max(0, min(spec["parallelism"], spec["completions"] - succeeded)))
    # After the first success running pods may end, and no pods are created.
    return min(active, spec["parallelism"]) if succeeded else int(spec["parallelism"])


def _is_complete(spec: Object, status: Object) -> bool:
    succeeded = int(status.get("succeeded", 0))
    return succeeded >= int(spec["completions"]) if "completions" in spec else succeeded > 0


def _with_suspension(status: Object, now: Moment, *, suspend: bool) -> tuple[Object, tuple[JobEvent, ...]]:
    is_suspended = condition(status, "Suspended") is not None
    if suspend == is_suspended:
        return status, ()
    reason = "JobSuspended" if suspend else "JobResumed"
    status = _with_condition(status, "Suspended", "True" if suspend else "False", reason, now)
    status.pop("startTime", None)
    if not suspend:
        status["startTime"] = now.text  # the deadline counts from here
    return status, (JobEvent(reason.removeprefix("Job"), _MESSAGES[reason]),)


# -- conditions ------------------------------------------------------------------------------------------------


def condition(status: Object, type_: str) -> Object | None:
    """The condition if it is True."""
    return next(
        (each for each in status.get("conditions", ()) if each["type"] == type_ and each["status"] == "True"), None
    )


def ended_at(status: Object) -> float | None:
    """When the Job finished; None if it has not."""
    final = next((final for word in _FINAL_CONDITIONS.values() if (final := condition(status, word))), None)
    if final is None:
        return None
    return seconds_of(final["lastTransitionTime"]) if final["lastTransitionTime"] else 0.0


def _with_condition(status: Object, type_: str, held: str, reason: str, now: Moment) -> Object:
    entry = {
        "type": type_,
        "status": held,
        "lastProbeTime": now.text,
        "lastTransitionTime": now.text,
        "reason": reason,
        "message": _MESSAGES[reason],
    }
    others = [each for each in status.get("conditions", ()) if each["type"] != type_]
    return {**status, "conditions": [*others, entry]}
