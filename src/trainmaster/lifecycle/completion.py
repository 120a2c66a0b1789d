"""When a replica group and a job have ended, and how: the end policies Any, Rank0, All and None.

A *group* is all pods of one role. A policy **fires** when its words come true. A group whose pods have
all ended while nothing fired is **closed**: it failed if any of them failed, else it succeeded. That fires
too, unless its policy is None: such a result is quiet, and `Any` at job level does not take it for a
signal. When every group has a result and the job still has none, the job closes: nothing can happen any
more, so any failure makes it fail and otherwise it has succeeded.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

EndPolicy = Literal["All", "Rank0", "Any", "None"]

SUCCEED = "Succeed"
FAILED = "Failed"
SUCCESSES = frozenset({SUCCEED, "Succeeded"})
"""The last phases of a job that ended well, as the kinds spell them."""


class Result(msgspec.Struct, frozen=True):
    """How a pod, a group or a job stands. ``phase`` is empty while it runs, ``Succeed``, or a failing phase."""

    phase: str = ""
    message: str = ""
    is_fired: bool = True

    @property
    def is_success(self) -> bool:
        return self.phase in SUCCESSES

    @property
    def is_failure(self) -> bool:
        return bool(self.phase) and not self.is_success


GOES_ON = Result()


def group_result(pods: Sequence[Result], *, complete: EndPolicy, fail: EndPolicy) -> Result:
    """The result of one role from its pods in index order; the lowest index that fires decides."""
    for index, pod in enumerate(pods):
        policy = complete if pod.is_success else fail
        if pod.phase and (policy == "Any" or (policy == "Rank0" and index == 0)):
            return pod
    return _all_ended(pods, complete=complete, fail=fail) if all(pod.phase for pod in pods) else GOES_ON


def _all_ended(pods: Sequence[Result], *, complete: EndPolicy, fail: EndPolicy) -> Result:
    failures = [pod for pod in pods if pod.is_failure]
    if not failures:
        return Result(SUCCEED, "all pods succeeded", is_fired=complete == "All")
    # A mixed result can fire no policy any more. It fails, unless failures were declared not to matter.
    # A failure that the program did not cause determines the phase: users may resubmit the job for it.
    phase = next((pod.phase for pod in failures if pod.phase != FAILED), FAILED)
    return Result(phase, _joined_messages(failures), is_fired=fail != "None")


def job_result(
    groups: Mapping[str, Result], *, rank0: Result, complete: EndPolicy, fail: EndPolicy, name: str
) -> Result:
    """The result of the job. ``rank0`` is the pod 0 of its first role; completion is checked before failure."""
    results = [groups[role] for role in sorted(groups)]
    if _fires(complete, [r.is_success for r in results], [r.is_fired for r in results], rank0.is_success):
        return Result(SUCCEED, f"job {name} completed")
    failures = [r for r in results if r.is_failure]
    if _fires(fail, [r.is_failure for r in results], [r.is_fired for r in results], rank0.is_failure):
        return _failure([rank0] if fail == "Rank0" else failures)
    if all(r.phase for r in results):
        return _failure(failures) if failures else Result(SUCCEED, f"job {name} completed")
    return GOES_ON


def _fires(policy: EndPolicy, matches: Sequence[bool], fired: Sequence[bool], rank0: bool) -> bool:
    match policy:
        case "Any":
            return any(match and is_fired for match, is_fired in zip(matches, fired, strict=True))
        case "All":
            return all(matches)
        case "Rank0":
            return rank0
        case "None":
            return False


def _failure(failures: Sequence[Result]) -> Result:
    return Result(failures[0].phase, _joined_messages(failures))


def _joined_messages(failures: Sequence[Result], limit: int = 3) -> str:
    """The distinct messages of the first failures, and the number of the others."""
    messages = list(dict.fromkeys(f.message for f in failures if f.message))
    rest = len(messages) - limit
    return "; ".join(messages[:limit]) + (f"; and {rest} more" if rest > 0 else "")
