"""Scheduling of an AITrainingJob: its PodGroup."""

from trainmaster.core.ids import Key
from trainmaster.kinds.aitrainingjob.elastic import enough
from trainmaster.kinds.aitrainingjob.types import AITrainingJob
from trainmaster.kinds.priority import class_of
from trainmaster.lifecycle import gang
from trainmaster.lifecycle.gang import Gang

QUEUE = "scheduling.volcano.sh/queue-name"
"""The annotation by which jobs of any kind choose a queue of Volcano."""


def gang_of(job: AITrainingJob, scheduler: str) -> Gang | None:
    """All pods of a job, but those of an elastic role that it can begin without."""
    spec, meta = job.spec, job.metadata
    given = (replica.template["spec"].get("schedulerName") or "" for replica in spec.replica_specs.values())
    if not gang.is_wanted(scheduler, (spec.scheduler_name,) if spec.scheduler_name else given):
        return None
    specs = spec.replica_specs
    return Gang(
        scheduler=scheduler,
        key=Key(meta.namespace, meta.name),
        roles={role: (each.template["spec"], enough(each, is_running=False)) for role, each in specs.items()},
        queue=meta.annotations.get(QUEUE, ""),
        priority_class=class_of(spec.priority, job.status.conditions),
    )
