"""``spec.runPolicy`` and ``spec.cleanPodPolicy`` of a DIJob of either version, in words that all kinds share."""

from datetime import datetime

from trainmaster.kinds.dijob import types
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.deadline import limit_of
from trainmaster.lifecycle.model import RunPolicy


def run_policy(
    policy: types.RunPolicy, title: str, clean: CleanPodPolicy, *, started: datetime | None, ended: datetime | None
) -> RunPolicy:
    """``title`` is what messages call the job: its kind and its name."""
    seconds = policy.active_deadline_seconds
    late = f"{title} failed because it was active longer than its deadline of {seconds} seconds (activeDeadlineSeconds)"
    deadline = limit_of(started, seconds, late)
    return RunPolicy(
        clean=clean,
        suspend=f"{title} is suspended" if policy.suspend else "",
        limits=(deadline,) if deadline else (),
        ttl=limit_of(ended, policy.ttl_seconds_after_finished),
        cleans_services=True,
    )


def clean_policy(word: str) -> CleanPodPolicy:
    """``ALL`` is the spelling of the first releases; empty means the default."""
    match word:
        case "All" | "ALL":
            return "All"
        case "None":
            return "None"
    return "Running"


def clean_after(word: str, cause: str) -> CleanPodPolicy | None:
    """A job that is stopped leaves nothing running, whatever its policy."""
    return "Running" if cause == "deadline" and clean_policy(word) == "None" else None
