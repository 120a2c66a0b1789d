"""Deadlines of an AITrainingJob: how long it may run, and how long it may wait for nodes and containers."""

from trainmaster.core.observed import Observed
from trainmaster.kinds.aitrainingjob.elastic import enough
from trainmaster.kinds.aitrainingjob.status import CREATING, PENDING, RESTARTING, entered_at
from trainmaster.kinds.aitrainingjob.types import AITrainingJob, ReplicaSpec
from trainmaster.lifecycle.deadline import Limit


def limits_of(job: AITrainingJob, observed: Observed) -> tuple[Limit, ...]:
    """Running is counted from the moment in which all pods had started. Where that never comes, because the roles run
    one after the other or fail in turns, from the first pod that ran."""
    spec, status = job.spec, job.status
    found: list[Limit] = []
    if spec.time_limit is not None and (since := status.start_running_time or status.first_running_time):
        found.append(Limit(since, spec.time_limit, f"the job has run for {spec.time_limit} seconds (timeLimit)"))
    if spec.pending_time_limit is None and spec.creating_time_limit is None:
        return tuple(found)
    if (waits := _waits(job, observed)) and (since := entered_at(status)):
        field, seconds, what = waits
        found.append(Limit(since, seconds, f"{what} for {seconds} seconds ({field})"))
    return tuple(found)


def _waits(job: AITrainingJob, observed: Observed) -> tuple[str, int, str] | None:
    """A job that restarts waits for nodes, too, and then for containers."""
    phase, spec = job.status.phase, job.spec
    if phase == RESTARTING:
        phase = CREATING if all(_have_nodes(observed, *role) for role in spec.replica_specs.items()) else PENDING
    if phase == PENDING and spec.pending_time_limit is not None:
        return "pendingTimeLimit", spec.pending_time_limit, "pods have waited to be scheduled"
    if phase == CREATING and spec.creating_time_limit is not None:
        return "creatingTimeLimit", spec.creating_time_limit, "containers have been created"
    return None


def _have_nodes(observed: Observed, role: str, spec: ReplicaSpec) -> bool:
    placed = [index for index, pod in observed.role(role.lower()).items() if index < spec.replicas and pod.node]
    return len(placed) >= enough(spec, is_running=False)
