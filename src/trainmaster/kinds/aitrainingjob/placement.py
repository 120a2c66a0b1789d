"""What the scheduler is told about an AITrainingJob: how urgent its pods are, and which of them belong together.

`kind` decides which pods there are; here the pods of its plan get their priority class and their gang.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainmaster.api.aitrainingjob import AITrainingJob
from trainmaster.core.condition import Conditions, find, put_standard
from trainmaster.core.ids import POD, Key
from trainmaster.core.observed import Observed
from trainmaster.core.plan import Body, Create, Plan
from trainmaster.core.policies import gang
from trainmaster.core.policies.gang import Gang
from trainmaster.core.template import Owner
from trainmaster.kinds.aitrainingjob import labels
from trainmaster.kinds.aitrainingjob.elastic import enough
from trainmaster.kinds.aitrainingjob.external import reason_to_stop
from trainmaster.kinds.aitrainingjob.status import ENDED
from trainmaster.kinds.base import Failure

HAS_PRIORITY_CLASS = "PriorityClassFound"
"""False: no PriorityClass is called like the job's priority. Its pods have none, as with the ancestors, who knew the
priority as a label alone."""

QUEUE = "scheduling.volcano.sh/queue-name"
"""The annotation by which jobs of any kind choose a queue of Volcano."""


def placed(plan: Plan, job: AITrainingJob, observed: Observed, owner: Owner, scheduler: str) -> Plan:
    """The plan with its pods placed; a plan that only stores the status has none."""
    if plan.status_first:
        return plan
    creates = tuple(_with_class(create, job) for create in plan.creates) if job.spec.priority else plan.creates
    if not scheduler:
        return msgspec.structs.replace(plan, creates=creates)
    group = gang_of(job, scheduler)
    if group is None or job.status.phase in ENDED or reason_to_stop(job):
        deletes = gang.surplus(scheduler, observed, "no pods are to be placed together any more")
        return msgspec.structs.replace(plan, deletes=(*plan.deletes, *deletes), creates=creates)
    if job.status.ending:
        return plan
    missing = gang.missing(group, observed, owner.reference(blocks=True))
    return msgspec.structs.replace(
        plan,
        creates=(*missing, *(_in_gang(create, group) for create in creates)),
        patches=(*plan.patches, *gang.changed(group, observed)),
    )


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
        priority_class=spec.priority if _has_class(job) else "",
    )


def _in_gang(create: Create, group: Gang) -> Create:
    if create.resource != POD:
        return create
    role = create.body["metadata"]["labels"][labels.REPLICA_NAME]
    return msgspec.structs.replace(create, body=gang.member(create.body, group, role))


def _with_class(create: Create, job: AITrainingJob) -> Create:
    """A template that knows its class, or its number, keeps it."""
    if create.resource != POD or not _has_class(job):
        return create
    spec: Body = create.body["spec"]
    if spec.get("priorityClassName") or spec.get("priority") is not None:
        return create
    body = {**create.body, "spec": {**spec, "priorityClassName": job.spec.priority}}
    return msgspec.structs.replace(create, body=body)


def _has_class(job: AITrainingJob) -> bool:
    found = find(job.status.conditions, HAS_PRIORITY_CLASS)
    return bool(job.spec.priority) and (found is None or found.status == "True")


def classless(conditions: Conditions, failures: Sequence[Failure], now: datetime) -> Conditions:
    """What follows from a refusal that says that there is no such class: a job that ran without one goes on so."""
    for failure in failures:
        if not isinstance(failure.action, Create) or failure.action.resource != POD:
            continue
        name = failure.action.body["metadata"]["labels"].get(labels.PRIORITY)
        if name and f"no PriorityClass with name {name} was found" in failure.error:
            says = f"there is no PriorityClass {name}: the pods have the label alone; create it for later jobs"
            return put_standard(conditions, HAS_PRIORITY_CLASS, False, "NotFound", says, now)
    return conditions
