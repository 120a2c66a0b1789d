"""What the operator does next with a job, by a plan that is not applied, and what a user can do."""

from collections.abc import Mapping

from trainmaster.core.ids import POD
from trainmaster.core.plan import Plan

_QUIET = {
    "Refused": "nothing until the job is edited",
    "Suspended": "nothing until the job is resumed",
    "Deleting": "the job is gone when its pods have ended",
}


_REFUSED = "the pods are created when the API server accepts them; this is tried again with back-off"


def next_step(plan: Plan, waits: Mapping[str, float], phase: str, *, has_ended: bool, is_refused: bool = False) -> str:
    """``waits`` are the seconds for which roles wait after a restart; ``is_refused``: pods were refused."""
    steps = [_REFUSED] if is_refused and not has_ended else _steps(plan, waits)
    if not steps and plan.requeue_after:
        steps = [f"the operator looks again in {plan.requeue_after:.0f} s, or when a pod changes"]
    if not steps and has_ended:
        steps = ["nothing; the job has ended"]
    return f"next: {'; '.join(steps) or _QUIET.get(phase, 'nothing until a pod changes')}"


def _steps(plan: Plan, waits: Mapping[str, float]) -> list[str]:
    steps = []
    pods = [create for create in plan.creates if create.resource == POD]
    if plan.status_first:
        return ["the operator stores its decision, then acts"]
    if plan.deletes:
        steps.append(f"{_number(len(plan.deletes), 'object')} deleted ({plan.deletes[0].why})")
    if pods:
        steps.append(f"{_number(len(pods), 'pod')} created ({pods[0].why})")
    if waits:
        role, seconds = min(waits.items(), key=lambda item: item[1])
        steps.append(f"pods of {role} are created again in {seconds:.0f} s, after the back-off")
    return steps


def _number(count: int, noun: str) -> str:
    return f"1 {noun} is" if count == 1 else f"{count} {noun}s are"
