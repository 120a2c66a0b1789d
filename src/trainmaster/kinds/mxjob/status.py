"""When an MXJob counts as running, and what its status and Events have beside those of other kinds."""

from datetime import datetime

from trainmaster.core.condition import find
from trainmaster.core.plan import Event
from trainmaster.kinds import kubeflow_status, status
from trainmaster.kinds.kubeflow_status import CREATED, RESTARTING, RUNNING, Counters, JobStatus, Writer, are_all_running
from trainmaster.kinds.mxjob.reason import PREFIX
from trainmaster.kinds.mxjob.role import leading, roles_of
from trainmaster.kinds.mxjob.types import MXJob
from trainmaster.kinds.mxjob.validate import overridden
from trainmaster.lifecycle.decide import Report

WRITER = Writer(PREFIX)


def written(job: MXJob, report: Report, now: datetime) -> JobStatus:
    counters = kubeflow_status.count(report)
    runs = report.step == "proceed" and _runs(job, report, counters)
    return WRITER.status(job, report, counters, now, runs=runs)


def _runs(job: MXJob, report: Report, counters: Counters) -> bool:
    """A job that has run is Running until something happens; after a restart, when all replicas run again."""
    phase = job.status.phase
    if phase == RESTARTING:
        return are_all_running(report, counters)
    return phase == RUNNING or counters[leading(job.spec)].active > 0


def events(job: MXJob, report: Report, new: JobStatus, scheduler: str) -> tuple[Event, ...]:
    is_first = report.step in ("proceed", "replace") and find(job.status.conditions, CREATED) is None
    return (*WRITER.events(job.status, new, report), *(overridden(job, scheduler) if is_first else ()))


def delay(job: MXJob, new: JobStatus) -> float:
    """Counters alone may wait. That all have run may not: from then on a pod that is gone has failed."""
    old, roles = job.status, roles_of(job.spec)
    is_first = new.ran != old.ran and all(len(new.ran.get(name, ())) == r.replicas for name, r in roles.items())
    return 0.0 if is_first else status.delay(old, new, ("replica_statuses", "ran", "conditions"))
