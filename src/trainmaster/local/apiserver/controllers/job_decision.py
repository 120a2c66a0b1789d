"""What to do next with one Job: a function of the Job, its pods and the time. No I/O.

Kubernetes' rules. A pod is counted once, when it has ended or is on its way out; a finalizer keeps it until then.
Whether the Job has succeeded or failed is said first (SuccessCriteriaMet, FailureTarget), then its pods go, and when
the last one is gone it is over (Complete, Failed).
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from trainmaster.local.apiserver.controllers.job_pod import JobPod, seconds_of

Object = dict[str, Any]

FIRST_DELAY = 10.0
LONGEST_DELAY = 600.0
_MOST_AT_ONCE = 50
"""Pods in one step: other work comes in between."""

_VERDICTS = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}
_MESSAGES = {
    "CompletionsReached": "Reached expected number of succeeded pods",
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "DeadlineExceeded": "Job was active longer than specified deadline",
    "JobSuspended": "Job suspended",
    "JobResumed": "Job resumed",
}


class Streak(NamedTuple):
    """How many pods failed since one succeeded, and when the last one did."""

    failures: int = 0
    at: float = 0.0

    def after(self, pods: Iterable[JobPod], now: float) -> "Streak":
        """When these have ended, too."""
        found = self
        for pod in sorted(pods, key=lambda each: each.finished_at or now):
            found = Streak() if pod.phase == "Succeeded" else Streak(found.failures + 1, pod.finished_at or now)
        return found

    @property
    def over_at(self) -> float:
        """Before this, no new pod."""
        if not self.failures:
            return 0.0
        return self.at + min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self.failures - 1, 32))


class News(NamedTuple):
    """An Event of the Job."""

    reason: str
    message: str
    type: str = "Normal"


class Decision(NamedTuple):
    """Store the status first, then delete and create. ``dismissed`` pods do not count as failed."""

    status: Object
    deleted: tuple[JobPod, ...] = ()
    dismissed: tuple[JobPod, ...] = ()
    created: int = 0
    wake_at: float | None = None
    news: tuple[News, ...] = ()


class Moment(NamedTuple):
    """The time, as a number and as it is written."""

    seconds: float
    text: str


# -- counting --------------------------------------------------------------------------------------------------


def uncounted(job: Object, pods: Sequence[JobPod]) -> list[JobPod]:
    """Pods that have ended, and those that are about to: nobody knows how they will."""
    verdict = condition(job["status"], "FailureTarget")
    return [pod for pod in pods if pod.is_tracked and (pod.has_ended or pod.is_deleting or verdict is not None)]


def noted(status: Object, pods: Iterable[JobPod]) -> Object:
    """The status with these pods among those that will be counted; to be stored before they are let go."""
    before = status.get("uncountedTerminatedPods") or {}
    found = {word: set(before.get(word, ())) for word in ("failed", "succeeded")}
    for pod in pods:
        found["succeeded" if pod.phase == "Succeeded" else "failed"].add(pod.uid)
    return {**status, "uncountedTerminatedPods": {word: sorted(uids) for word, uids in found.items() if uids}}


def counted(status: Object) -> Object:
    """The status with all that were noted counted."""
    waiting = status.get("uncountedTerminatedPods") or {}
    sums = {word: status.get(word, 0) + len(waiting.get(word, ())) for word in ("failed", "succeeded")}
    return {**status, **{word: number for word, number in sums.items() if number}, "uncountedTerminatedPods": {}}


# -- deciding --------------------------------------------------------------------------------------------------


def decide(job: Object, pods: Sequence[JobPod], now: Moment, streak: Streak) -> Decision:
    """For a Job that is not over, when all its pods are counted."""
    status = _with_numbers(job["status"], pods)
    if not job["spec"]["suspend"]:
        status.setdefault("startTime", now.text)
    said = _verdict(status)
    if said is None and (reason := _failure(job, status, pods, now)):
        status = _with_condition(status, "FailureTarget", "True", reason, now)
        return Decision(status, news=(News(reason, _MESSAGES[reason], "Warning"),))
    if said is not None:
        return _end(status, said, pods, now)
    return _go_on(job, status, pods, now, streak)


def _with_numbers(status: Object, pods: Sequence[JobPod]) -> Object:
    active = [pod for pod in pods if pod.is_active]
    found = {key: value for key, value in status.items() if key != "active"}
    found["uncountedTerminatedPods"] = status.get("uncountedTerminatedPods") or {}
    found["ready"] = sum(pod.is_ready for pod in active)
    found["terminating"] = sum(pod.is_deleting and not pod.has_ended for pod in pods)
    return {**found, "active": len(active)} if active else found


def _failure(job: Object, status: Object, pods: Sequence[JobPod], now: Moment) -> str:
    """Why the Job has failed; empty when it has not."""
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


def _verdict(status: Object) -> Object | None:
    return next((found for word in _VERDICTS if (found := condition(status, word))), None)


def _end(status: Object, said: Object, pods: Sequence[JobPod], now: Moment) -> Decision:
    """What still runs goes; then it is over."""
    if active := tuple(pod for pod in pods if pod.is_active):
        return Decision(status, deleted=active)
    if status["terminating"]:
        return Decision(status)
    word = _VERDICTS[said["type"]]
    status = _with_condition(status, word, "True", said["reason"], now)
    if word == "Failed":
        return Decision(status)
    return Decision({**status, "completionTime": now.text}, news=(News("Completed", "Job completed"),))


def _go_on(job: Object, status: Object, pods: Sequence[JobPod], now: Moment, streak: Streak) -> Decision:
    spec = job["spec"]
    active = [pod for pod in pods if pod.is_active]
    wanted = 0 if spec["suspend"] else _wanted(spec, status, len(active))
    if len(active) > wanted:
        surplus = sorted(active, key=lambda pod: pod.rank)[: len(active) - wanted]
        return Decision(status, dismissed=tuple(surplus))
    if not active and _is_complete(spec, status):
        return Decision(_with_condition(status, "SuccessCriteriaMet", "True", "CompletionsReached", now))
    status, news = _with_suspension(status, now, suspend=spec["suspend"])
    times = [] if (due := _deadline(job, status)) is None else [due]
    created = min(wanted - len(active), _MOST_AT_ONCE)
    if created and streak.over_at > now.seconds:
        created = 0
        times.append(streak.over_at)
    return Decision(status, created=created, wake_at=min(times, default=None), news=news)


def _wanted(spec: Object, status: Object, active: int) -> int:
    """How many pods shall run."""
    succeeded = status.get("succeeded", 0)
    if "completions" in spec:
        return int(max(0, min(spec["parallelism"], spec["completions"] - succeeded)))
    # The first success decides: those that run may end, and nobody new comes.
    return min(active, spec["parallelism"]) if succeeded else int(spec["parallelism"])


def _is_complete(spec: Object, status: Object) -> bool:
    succeeded = int(status.get("succeeded", 0))
    return succeeded >= int(spec["completions"]) if "completions" in spec else succeeded > 0


def _with_suspension(status: Object, now: Moment, *, suspend: bool) -> tuple[Object, tuple[News, ...]]:
    is_suspended = condition(status, "Suspended") is not None
    if suspend == is_suspended:
        return status, ()
    reason = "JobSuspended" if suspend else "JobResumed"
    status = _with_condition(status, "Suspended", "True" if suspend else "False", reason, now)
    status.pop("startTime", None)
    if not suspend:
        status["startTime"] = now.text  # its deadline begins anew
    return status, (News(reason.removeprefix("Job"), _MESSAGES[reason]),)


# -- conditions ------------------------------------------------------------------------------------------------


def condition(status: Object, type_: str) -> Object | None:
    """A condition that holds."""
    return next(
        (each for each in status.get("conditions", ()) if each["type"] == type_ and each["status"] == "True"), None
    )


def ended_at(status: Object) -> float | None:
    """Since when the Job is over; None when it is not."""
    found = next((found for word in _VERDICTS.values() if (found := condition(status, word))), None)
    if found is None:
        return None
    return seconds_of(found["lastTransitionTime"]) if found["lastTransitionTime"] else 0.0


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
