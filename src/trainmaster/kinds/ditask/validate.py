"""What is wrong with a job beyond what its schema can say. The rules of ``crd.py`` say the same in CEL."""

import re
from collections.abc import Iterator

from trainmaster.core import template
from trainmaster.core.name import MAX_LABEL, child_name_error
from trainmaster.core.plan import replicas_error
from trainmaster.core.slot import slot_of
from trainmaster.kinds.dijob.validate import SHAPE
from trainmaster.kinds.ditask import labels, rank
from trainmaster.kinds.ditask.role import TYPED, declared_tasks, most_replicas, name_of, scaled_task, tasks_of
from trainmaster.kinds.ditask.types import DITaskJob, DITaskSpec
from trainmaster.lifecycle import environment
from trainmaster.lifecycle.environment import MAX_VARIABLE

NAMELESS = "a task of type none needs a name"
BAD_NAME = (
    "the name of a task consists of lower-case letters, digits and '-', and begins and ends with a letter or digit"
)
DUPLICATE = "there is more than one task of this name; rename one of them"
TYPE_TWICE = "there is at most one task of each of the types learner, collector and evaluator; others have type none"
NO_SCALED_TASK = "replicas is about the task that scaledTask names, else about the collector, and there is none"
TOO_LONG = f"is too long: <job>-<task>-<index> may have {MAX_LABEL} characters"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_OWN_VARIABLES = 400
"""Bytes of the variables that a container has beside the addresses, and more."""


def errors(job: DITaskJob, domain: str) -> list[str]:
    spec = job.spec
    found = [f"spec.coordinator: {SHAPE}"] if spec.coordinator is not None else []
    found += [*_name_errors(spec), *_scale_errors(spec)]
    for i, task in enumerate(spec.tasks):
        found += template.errors(task.template, f"spec.tasks[{i}].template") or _volume_errors(spec, i)
    return found or [*_length_errors(job), *_size_errors(job, domain)]


def _name_errors(spec: DITaskSpec) -> Iterator[str]:
    names = [name_of(task) for task in spec.tasks]
    for i, task in enumerate(spec.tasks):
        path = f"spec.tasks[{i}]"
        if not names[i]:
            yield f"{path}.name: {NAMELESS}"
        elif not _NAME.fullmatch(names[i]):
            yield f"{path}.name: {BAD_NAME}"
        elif names[i] in names[:i]:
            yield f"{path}.name: {names[i]!r}: {DUPLICATE}"
        if task.type in TYPED and task.type in [other.type for other in spec.tasks[:i]]:
            yield f"{path}.type: {task.type!r}: {TYPE_TWICE}"


def _scale_errors(spec: DITaskSpec) -> Iterator[str]:
    scaled = scaled_task(spec)
    if (spec.replicas or spec.scaled_task) and scaled not in map(name_of, spec.tasks):
        yield f"spec.scaledTask: {NO_SCALED_TASK}"
    for i, (name, task, declared) in enumerate(declared_tasks(spec)):
        least, most, path = task.min_replicas or 1, task.max_replicas, f"spec.tasks[{i}]"
        if least > task.replicas:
            yield f"{path}.minReplicas: minReplicas is more than replicas ({task.replicas})"
        if most and most < task.replicas:
            yield f"{path}.maxReplicas: maxReplicas is less than replicas ({task.replicas})"
        if spec.replicas and name == scaled:
            if declared < least:
                yield f"spec.replicas: {declared} is less than minReplicas of the scaled task ({least})"
            if most and declared > most:
                yield f"spec.replicas: {declared} is more than maxReplicas of the scaled task ({most})"


def _volume_errors(spec: DITaskSpec, i: int) -> list[str]:
    """The job's volumes are added to those of every task."""
    taken = [volume.name for volume in template.read(spec.tasks[i].template).spec.volumes or ()]
    return [
        f"spec.volumes[{k}].name: {volume.get('name')!r} is also a volume of spec.tasks[{i}].template; rename one"
        for k, volume in enumerate(spec.volumes)
        if volume.get("name") in taken
    ]


def _length_errors(job: DITaskJob) -> Iterator[str]:
    name, now = job.metadata.name, tasks_of(job)
    if error := child_name_error(name, labels.service_name(name)):
        yield f"metadata.name: {error}"
    for task, most in most_replicas(job.spec).items():
        if len(slot_of(name, task, max(most, now[task].replicas) - 1).name) > MAX_LABEL:
            yield f"metadata.name: {name!r} {TOO_LONG}; shorten it or the name of {task}"


def _size_errors(job: DITaskJob, domain: str) -> list[str]:
    """Every container gets the addresses of all replicas, so that their number is limited. Replicas that were requested
    through di-server count, too."""
    most, requested = most_replicas(job.spec), {name: task.replicas for name, task in tasks_of(job).items()}
    for path, counts in (("spec.tasks", most), ("status.requestedReplicas", requested)):
        total = sum(counts.values())
        if error := replicas_error(total, "replicas or maxReplicas"):
            return [f"{path}: {error}"]
        size = rank.nodes_size(job, counts, domain)
        if environment.is_too_long(rank.NODES, size):
            room = f"one environment variable ({MAX_VARIABLE // 1024} KiB)"
            return [f"{path}: the addresses of {total} replicas in {rank.NODES} do not fit into {room}; lower replicas"]
    total, size = sum(most.values()), rank.nodes_size(job, most, domain)
    # A pod has the addresses of all replicas, and once more those of its own task.
    least = _OWN_VARIABLES + environment.size_in_container({rank.NODES: 2 * size}, total)
    found = list[str]()
    for i, task in enumerate(job.spec.tasks):
        pod = template.read(task.template).spec
        containers = len(pod.containers) + len(pod.init_containers or ())
        found += template.size_errors(f"spec.tasks[{i}].template", task.template, least * containers)
    return found
