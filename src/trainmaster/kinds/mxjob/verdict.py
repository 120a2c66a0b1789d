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
from trainmaster.core.slot import Slot
from trainmaster.core.view import PodView
from trainmaster.kinds.mxjob import labels
from trainmaster.kinds.mxjob.node import Nodes, fault_of
from trainmaster.kinds.mxjob.policy import RETRYABLE, policy_of, rules_of
from trainmaster.kinds.mxjob.role import deciding, roles_of, slots_of
from trainmaster.kinds.mxjob.status import FAILED, RUNNING, SUCCEEDED, entered_at, is_current, pairs


class Verdict(msgspec.Struct, frozen=True):
    """``phase`` is how the job ends, if it does. Otherwise the pods of ``fallen`` are started again, and those of
    ``outdated`` have been: they are to go. Those of ``stranded`` wait on a lost node: others take their places."""

    phase: str
    message: str
    fallen: tuple[Fallen, ...]
    outdated: tuple[PodView, ...]
    stranded: tuple[Fallen, ...] = ()
    is_spent: bool = False
    """It fails because it may not try again."""


def verdict(job: MXJob, observed: Observed, nodes: Nodes) -> Verdict:
    stand = _stand(job, observed, nodes)
    fallen, outdated = stand.fallen, tuple(stand.outdated)
    wanted = _wanted(job, fallen)
    again = _affordable(job, wanted)
    if len(again) < len(fallen):
        is_spent = len(wanted) == len(fallen)
        come = {(f.role, f.index) for f in again}
        lost = [f for f in fallen if (f.role, f.index) not in come]
        return Verdict(FAILED, _failure(job, lost, is_spent=is_spent), (), outdated, is_spent=is_spent)
    if stand.successes == roles_of(job.spec)[deciding(job.spec)].replicas:
        return Verdict(SUCCEEDED, f"MXJob {job.metadata.name} is successfully completed.", (), outdated)
    return Verdict("", "", again, outdated, tuple(stand.stranded))


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


class _Stand(msgspec.Struct):
    """What the places of a job look like."""

    fallen: list[Fallen] = []
    outdated: list[PodView] = []
    stranded: list[Fallen] = []
    successes: int = 0
    """Of the role that decides."""


def _stand(job: MXJob, observed: Observed, nodes: Nodes) -> _Stand:
    found = _Stand()
    decides = deciding(job.spec)
    done, ran = pairs(job.status.done), pairs(job.status.ran)
    for slot in slots_of(job):
        role, index = slot.role, slot.index
        pod = _pod_in(slot, observed)
        if (role, index) in done:
            found.successes += role == decides
        elif pod is None:
            if (role, index) in ran:
                found.fallen.append(Fallen(role, index, _lost(slot.name)))
        elif not is_current(job, role, index, pod):
            found.outdated.append(pod)
        elif pod.phase == "Succeeded":
            found.successes += role == decides
        elif pod.phase == "Pending":
            if (trouble := nodes.bad.get(pod.node)) and pod.node in nodes.lost:
                found.stranded.append(Fallen(role, index, fault_of(pod, trouble)))
        elif fault := _fault(pod, nodes.bad):
            found.fallen.append(Fallen(role, index, fault))
    return found


def _pod_in(slot: Slot, observed: Observed) -> PodView | None:
    """One whose labels were edited is another place's."""
    pod = observed.role(slot.role.lower()).get(slot.index)
    return pod if pod is not None and pod.key.name == slot.name else None


def _fault(pod: PodView, bad: Mapping[str, Trouble]) -> Fault | None:
    """Of a pod that has run. On a node that failed nobody ends it."""
    if not pod.is_ended and (trouble := bad.get(pod.node)):
        return fault_of(pod, trouble)
    if pod.deleting:
        return _lost(pod.key.name)
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
    rules = rules_of(job)
    return tuple(f for f in fallen if restart.is_wanted(rules[f.role].policy, f.fault, codes))


def _affordable(job: MXJob, wanted: tuple[Fallen, ...]) -> tuple[Fallen, ...]:
    """Those whose restart is within the job's limit; one that is about all pods is one, however many have failed."""
    limit = policy_of(job.spec).backoff_limit
    if limit is None or not wanted:
        return wanted
    left = max(limit - sum(r.used for r in job.status.restarts.values()), 0)
    rules = rules_of(job)
    if any(rules[f.role].scope == "All" for f in wanted):
        return wanted if left else ()
    return wanted[:left]


def _failure(job: MXJob, lost: Sequence[Fallen], *, is_spent: bool) -> str:
    if is_spent:
        return f"MXJob {job.metadata.name} has failed because it has reached the specified backoff limit: {told(lost)}"
    return f"MXJob {job.metadata.name} is failed because {told(lost)}"
