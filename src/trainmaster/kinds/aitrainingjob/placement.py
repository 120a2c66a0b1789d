"""Scheduling of an AITrainingJob: the priority of its pods, and its PodGroup."""

from collections.abc import Sequence
from datetime import datetime

from trainmaster.core.condition import Conditions, find, put_standard
from trainmaster.core.ids import POD, Key
from trainmaster.core.plan import Create
from trainmaster.kinds.aitrainingjob import labels, reason
from trainmaster.kinds.aitrainingjob.elastic import enough
from trainmaster.kinds.aitrainingjob.types import AITrainingJob
from trainmaster.kinds.base import Failure
from trainmaster.lifecycle import gang
from trainmaster.lifecycle.gang import Gang

HAS_PRIORITY_CLASS = "PriorityClassFound"
"""False: no PriorityClass is called like the job's priority. Its pods have none, as with the ancestors, who knew the
priority as a label alone."""

QUEUE = "scheduling.volcano.sh/queue-name"
"""The annotation by which jobs of any kind choose a queue of Volcano."""


def gang_of(job: AITrainingJob, scheduler: str) -> Gang | None:
    """All pods of a job, but those of an elastic role that it can begin without."""
    spec, meta = job.spec, job.metadata
    given = (replica.template["spec"].get("schedulerName") or "" for replica in spec.replica_specs.values())
    if not gang.is_wanted(scheduler, (spec.scheduler_name,) if spec.scheduler_name else given):
        return None
    members = [(each.template["spec"], enough(each, is_running=False)) for each in spec.replica_specs.values()]
    return Gang(
        scheduler=scheduler,
        key=Key(meta.namespace, meta.name),
        min_member=sum(number for _, number in members),
        min_resources=gang.needed(members),
        queue=meta.annotations.get(QUEUE, ""),
        priority_class=priority_class(job),
    )


def priority_class(job: AITrainingJob) -> str:
    """The PriorityClass of the pods; empty when there is none of that name."""
    found = find(job.status.conditions, HAS_PRIORITY_CLASS)
    return job.spec.priority if found is None or found.status == "True" else ""


def classless(conditions: Conditions, failures: Sequence[Failure], now: datetime) -> Conditions:
    """What follows from a refusal that says that there is no such class: a job that ran without one goes on so."""
    for failure in failures:
        if not isinstance(failure.action, Create) or failure.action.resource != POD:
            continue
        name = failure.action.body["metadata"]["labels"].get(labels.PRIORITY)
        if name and f"no PriorityClass with name {name} was found" in failure.error:
            says = f"there is no PriorityClass {name}: the pods have the label alone; create it for later jobs"
            return put_standard(conditions, HAS_PRIORITY_CLASS, False, reason.CLASS_NOT_FOUND, says, now)
    return conditions
