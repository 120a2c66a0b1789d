"""The priority of a job as the PriorityClass of its pods, in kinds whose priority was only a label before."""

from collections.abc import Sequence
from datetime import datetime

from trainmaster.core.condition import Conditions, find, put_standard
from trainmaster.core.ids import POD
from trainmaster.core.plan import Body, Create
from trainmaster.kinds.base import Failure
from trainmaster.lifecycle import reason

HAS_PRIORITY_CLASS = "PriorityClassFound"
"""False: there is no PriorityClass with the name of the job's priority. Its pods have only the label."""


def class_of(priority: str, conditions: Conditions) -> str:
    """The PriorityClass of the pods; empty when there is none of that name."""
    found = find(conditions, HAS_PRIORITY_CLASS)
    return priority if found is None or found.status == "True" else ""


def set_class(pod: Body, name: str) -> None:
    """What the template says comes first."""
    if name and not pod.get("priorityClassName") and pod.get("priority") is None:
        pod["priorityClassName"] = name


def classless(conditions: Conditions, failures: Sequence[Failure], label: str, now: datetime) -> Conditions:
    """What follows from a refusal that says that there is no such class: a job that ran without one goes on so. The
    ``label`` of a pod has the priority of its job."""
    for failure in failures:
        if not isinstance(failure.action, Create) or failure.action.resource != POD:
            continue
        name = failure.action.body["metadata"]["labels"].get(label)
        if name and f"no PriorityClass with name {name} was found" in failure.error:
            says = f"there is no PriorityClass {name}: the pods have the label alone; create it for later jobs"
            return put_standard(conditions, HAS_PRIORITY_CLASS, False, reason.CLASS_NOT_FOUND, says, now)
    return conditions
