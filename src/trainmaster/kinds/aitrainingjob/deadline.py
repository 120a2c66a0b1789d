"""Deadlines of an AITrainingJob: how long it may run, and how long it may wait for nodes and containers."""

from trainmaster.kinds.aitrainingjob.types import AITrainingJob
from trainmaster.lifecycle.deadline import Limit, WaitLimit


def limits_of(job: AITrainingJob) -> tuple[Limit, ...]:
    """Running is counted from the moment in which all pods had started. Where that never comes, because the roles run
    one after the other or fail in turns, from the first pod that ran."""
    seconds, status = job.spec.time_limit, job.status
    since = status.start_running_time or status.first_running_time
    if seconds is None or since is None:
        return ()
    return (Limit(since, seconds, f"the job has run for {seconds} seconds (timeLimit)"),)


def wait_limits_of(job: AITrainingJob) -> tuple[WaitLimit, ...]:
    pending, creating = job.spec.pending_time_limit, job.spec.creating_time_limit
    found: list[WaitLimit] = []
    if pending is not None:
        message = f"pods have waited to be scheduled for {pending} seconds (pendingTimeLimit)"
        found.append(WaitLimit("Nodes", pending, message))
    if creating is not None:
        message = f"containers have been created for {creating} seconds (creatingTimeLimit)"
        found.append(WaitLimit("Containers", creating, message))
    return tuple(found)
