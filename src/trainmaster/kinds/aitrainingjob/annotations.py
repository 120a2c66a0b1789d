"""Annotations that end an AITrainingJob, and what suspends it (docs/aitrainingjob.md, Annotations)."""

from trainmaster.core.condition import SUSPENDED, is_true
from trainmaster.kinds.aitrainingjob import labels, placement
from trainmaster.kinds.aitrainingjob.status import TERMINATING
from trainmaster.kinds.aitrainingjob.types import AITrainingJob
from trainmaster.lifecycle.cleanup import CleanPodPolicy
from trainmaster.lifecycle.completion import Result

FAILED, PREEMPTED, NODE_FAIL = "Failed", "Preempted", "NodeFail"

ANNOTATIONS = {
    FAILED: "Ends the job in this phase, unless it has succeeded already. The value becomes the message.",
    PREEMPTED: "The same. With ``requeueOnPreemption`` it suspends the job until the annotation is removed.",
    NODE_FAIL: "The same as Failed, in the phase NodeFail; ``nodefailed`` is another spelling.",
    placement.QUEUE: "The queue of the PodGroup, with the gang scheduler Volcano.",
}
"""Of jobs. The first three may be in lower case, and may have the prefix ``elasticdeeplearning.ai/``."""

_ASKED = (FAILED, PREEMPTED, NODE_FAIL)
"""In the order in which they count, should several be there."""

_LEFT_BEHIND = ("Succeed", FAILED, "Timeout", PREEMPTED, NODE_FAIL)
"""Annotations in which the ancestors kept their verdict while they removed the pods."""


def requested_end(job: AITrainingJob) -> Result | None:
    """The end that an annotation requests; its value is the message."""
    if not job.metadata.annotations:
        return None
    for phase in _ASKED:
        if phase == PREEMPTED and job.spec.requeue_on_preemption:
            continue
        if (value := _annotation(job, phase)) is not None:
            return Result(phase, value or f"the annotation {phase} is set")
    return None


def reason_to_stop(job: AITrainingJob) -> str:
    """Why a job that goes on later has no pods now; empty when it may have them."""
    if job.spec.suspend:
        return "suspended"
    if job.spec.requeue_on_preemption and (value := _annotation(job, PREEMPTED)) is not None:
        return f"preempted: {value or 'no reason was given'}; waits until the annotation is taken away"
    return ""


def left_behind(job: AITrainingJob) -> Result | None:
    """The verdict of another operator, which left the job while it removed the pods. Ours is in the status."""
    status = job.status
    if status.phase != TERMINATING or status.restart_replica_name or is_true(status.conditions, SUSPENDED):
        return None
    found = job.metadata.annotations
    return next((Result(phase, found[phase]) for phase in _LEFT_BEHIND if phase in found), None)


def clean_of(phase: str, job: AITrainingJob, *, is_asked: bool) -> CleanPodPolicy | None:
    """The clean-up policy that replaces the job's own: a job that is stopped from outside leaves no pod running."""
    if phase not in ("Succeed", FAILED):
        return "All"
    return "Running" if is_asked and job.spec.clean == "None" else None


def _annotation(job: AITrainingJob, phase: str) -> str | None:
    """The value under the old key, in lower case, or with the prefix of the group; ``nodefailed`` is NodeFail, too."""
    for key in (phase, phase.lower(), *(("nodefailed",) if phase == NODE_FAIL else ())):
        for spelling in (key, f"{labels.GROUP}/{key}"):
            if spelling in job.metadata.annotations:
                return job.metadata.annotations[spelling]
    return None
