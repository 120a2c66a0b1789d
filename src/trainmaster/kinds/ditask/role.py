"""The tasks of a job: what they are called, and how many replicas they have."""

from collections.abc import Iterator, Mapping

import msgspec

from trainmaster.core import template
from trainmaster.core.slot import Slot, numbered
from trainmaster.kinds.ditask import labels
from trainmaster.kinds.ditask.types import DITaskJob, DITaskSpec, Task

COLLECTOR = "collector"
TYPED = ("learner", COLLECTOR, "evaluator")
"""A job has at most one task of each of these types."""


def name_of(task: Task) -> str:
    """Empty for a task without a type and a name, which no job may have."""
    return task.name or ("" if task.type == "none" else task.type)


def scaled_task(spec: DITaskSpec) -> str:
    """The task that ``spec.replicas`` is about; empty when there is none."""
    if spec.scaled_task:
        return spec.scaled_task
    return next((name_of(task) for task in spec.tasks if task.type == COLLECTOR), "")


def tasks_of(job: DITaskJob) -> dict[str, Task]:
    """The tasks by name, in their order, each with its name and with the replicas that it has now. What di-server was
    asked for counts until the user changes the spec."""
    found: dict[str, Task] = {}
    for name, task, declared in declared_tasks(job.spec):
        asked = job.status.requested_replicas.get(name)
        replicas = asked.replicas if asked and asked.spec_replicas == declared else declared
        found[name] = msgspec.structs.replace(task, name=name, replicas=_clamped(task, replicas))
    return found


def replicas_of(job: DITaskJob) -> int:
    return sum(task.replicas for task in tasks_of(job).values())


def declared_tasks(spec: DITaskSpec) -> Iterator[tuple[str, Task, int]]:
    """The tasks with their names, and the replicas that the spec asks for."""
    scaled = scaled_task(spec)
    for task in spec.tasks:
        name = name_of(task)
        yield name, task, spec.replicas if spec.replicas and name == scaled else task.replicas


def most_replicas(spec: DITaskSpec) -> dict[str, int]:
    """The most replicas that each task can have by the spec."""
    return {name: max(task.replicas, declared, task.max_replicas or 0) for name, task, declared in declared_tasks(spec)}


def port_of(task: Task) -> int:
    """Where di-server says that the replicas of a task listen."""
    if template.errors(task.template, ""):
        return labels.DEFAULT_PORT
    for container in template.read(task.template).spec.containers:
        for port in container.ports or ():
            if (container.name, port.name) == (labels.CONTAINER, labels.PORT_NAME):
                return port.container_port
    return labels.DEFAULT_PORT


def slots_of(job: str, tasks: Mapping[str, Task]) -> tuple[Slot, ...]:
    return numbered(job, {name: task.replicas for name, task in tasks.items()})


def _clamped(task: Task, replicas: int) -> int:
    most = max(task.max_replicas or replicas, 1)
    return min(max(replicas, task.min_replicas or 1), most)
