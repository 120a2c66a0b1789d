"""How an MXJob stands: which pods are lost, which of them come again, and whether that is the end.

All facts are collected before any of them counts, so the order in which roles are looked at decides nothing. What can
never come again makes the job fail, whatever else succeeded. Then the success of the deciding role ends it well. Only
then something is started again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from trainmaster.api.mxjob import MXJob
from trainmaster.core.observed import Observed
from trainmaster.core.policies import completion, fault, restart
from trainmaster.core.policies.fault import Fault
from trainmaster.core.policies.node import Trouble
from trainmaster.core.policies.restart import Fallen
from trainmaster.core.view import PodView
from trainmaster.kinds.mxjob import labels
from trainmaster.kinds.mxjob.node import fault_of
from trainmaster.kinds.mxjob.policy import RETRYABLE, policy_of, rules_of
from trainmaster.kinds.mxjob.role import deciding, roles_of, slot_of
from trainmaster.kinds.mxjob.status import FAILED, RUNNING, SUCCEEDED, entered_at, is_current


class Verdict(msgspec.Struct, frozen=True):
    """``phase`` is how the job ends, if it does. Otherwise the pods of ``fallen`` are started again, and those of
    ``outdated`` have been: they are to go."""

    phase: str
    message: str
    fallen: tuple[Fallen, ...]
    outdated: tuple[PodView, ...]
    is_spent: bool = False
    """It fails because it may not try again."""


def verdict(job: MXJob, observed: Observed, bad: Mapping[str, Trouble]) -> Verdict:
    """``bad`` are the nodes that have failed."""
    fallen, outdated, is_done = _stand(job, observed, bad)
    wanted = _wanted(job, fallen)
    again = _affordable(job, wanted)
    if len(again) < len(fallen):
        is_spent = len(wanted) == len(fallen)
        come = {(f.role, f.index) for f in again}
        lost = [f for f in fallen if (f.role, f.index) not in come]
        return Verdict(FAILED, _failure(job, lost, is_spent=is_spent), (), outdated, is_spent)
    if is_done:
        return Verdict(SUCCEEDED, f"MXJob {job.metadata.name} is successfully completed.", (), outdated)
    return Verdict("", "", again, outdated)


def calm_of(job: MXJob, now: datetime) -> timedelta:
    """For how long the whole job has run without a fault."""
    since = entered_at(job.status, RUNNING)
    return now - since if since else timedelta()


def told(fallen: Sequence[Fallen], limit: int = 3) -> str:
    """``2 Worker replica(s) failed: …``, and what the first of them say."""
    roles = {role: sum(f.role == role for f in fallen) for role in dict.fromkeys(f.role for f in fallen)}
    counted = ", ".join(f"{number} {role}" for role, number in roles.items())
    rest = len(fallen) - limit
    said = "; ".join(f.fault.message for f in fallen[:limit]) + (f"; and {rest} more" if rest > 0 else "")
    return f"{counted} replica(s) failed: {said}"


def _stand(
    job: MXJob, observed: Observed, bad: Mapping[str, Trouble]
) -> tuple[tuple[Fallen, ...], tuple[PodView, ...], bool]:
    """The pods with a fault, those that are to go for another one, and whether the deciding role has succeeded."""
    fallen: list[Fallen] = []
    outdated: list[PodView] = []
    successes = 0
    roles, decides = roles_of(job.spec), deciding(job.spec)
    for role, replica in roles.items():
        pods, ran = observed.role(role.lower()), job.status.joined.get(role, 0)
        done = frozenset(job.status.done.get(role, ()))
        for index in range(replica.replicas):
            name = slot_of(job, role, index).name
            pod = pods.get(index)
            if pod is not None and pod.key.name != name:
                pod = None  # its labels were edited: it is another place's
            if index in done:
                successes += role == decides
            elif pod is None:
                if index < ran:
                    fallen.append(Fallen(role, index, _lost(name)))
            elif not is_current(job, role, index, pod) or _never_will(pod, bad):
                outdated.append(pod)
            elif pod.phase == "Succeeded":
                successes += role == decides
            elif found := _fault(pod, bad, is_missed=not ran or index < ran):
                fallen.append(Fallen(role, index, found))
    return tuple(fallen), tuple(outdated), successes == roles[decides].replicas


def _never_will(pod: PodView, bad: Mapping[str, Trouble]) -> bool:
    """It waits to run on a node that has failed: nothing is lost with it."""
    return pod.phase == "Pending" and pod.node in bad


def _fault(pod: PodView, bad: Mapping[str, Trouble], *, is_missed: bool) -> Fault | None:
    """A pod that was told to go before it ran is not missed, nor one that had gone for a smaller job when that grew
    again. On a node that failed nobody ends it."""
    if not pod.is_ended and (trouble := bad.get(pod.node)):
        return fault_of(pod, trouble)
    if pod.deleting:
        return _lost(pod.key.name) if is_missed and pod.phase in ("Running", "Failed") else None
    return fault.failure(pod, _takes_part) if pod.phase == "Failed" else None


def _lost(name: str) -> Fault:
    """Somebody, or the loss of a node, took the pod: it is nothing that its program did."""
    said = f"pod {name} is lost: it was deleted while the job ran"
    return Fault(completion.FAILED, said, has_failed=True, is_node=True, reason="PodLost")


def _takes_part(container: str) -> bool:
    return container == labels.CONTAINER


def _wanted(job: MXJob, fallen: Sequence[Fallen]) -> tuple[Fallen, ...]:
    if not fallen:
        return ()
    codes = restart.exit_codes(job.spec.restarting_exit_code or RETRYABLE)
    rules = rules_of(job.spec)
    return tuple(f for f in fallen if restart.is_wanted(rules[f.role].policy, f.fault, codes))


def _affordable(job: MXJob, wanted: tuple[Fallen, ...]) -> tuple[Fallen, ...]:
    """Those whose restart is within the job's limit; one that is about all pods is one, however many have failed."""
    limit = policy_of(job.spec).backoff_limit
    if limit is None or not wanted:
        return wanted
    left = max(limit - sum(r.used for r in job.status.restarts.values()), 0)
    rules = rules_of(job.spec)
    if any(rules[f.role].scope == "All" for f in wanted):
        return wanted if left else ()
    return wanted[:left]


def _failure(job: MXJob, lost: Sequence[Fallen], *, is_spent: bool) -> str:
    if is_spent:
        return f"MXJob {job.metadata.name} has failed because it has reached the specified backoff limit: {told(lost)}"
    return f"MXJob {job.metadata.name} is failed because {told(lost)}"
