"""What is wrong with a DIJob beyond what its schema can say."""

from trainmaster.api.dijob import DIJob
from trainmaster.core import template
from trainmaster.core.name import child_name_error
from trainmaster.kinds.dijob.body import coordinator_name
from trainmaster.kinds.dijob.declare import COLLECTOR, DDP_LEARNER, SUFFIX_LENGTH


def errors(job: DIJob) -> list[str]:
    found: list[str] = []
    if error := child_name_error(job.metadata.name, _longest_child(job)):
        found.append(f"metadata.name: {error}")
    for role in ("coordinator", "collector", "learner"):
        if (spec := getattr(job.spec, role)) is None:
            continue
        wrong = template.errors(spec.template, f"spec.{role}.template")
        found += wrong or _volume_errors(job, role)
    return found


def _longest_child(job: DIJob) -> str:
    """The longest name of a pod that this job can get. A job that runs already has shown that its names fit."""
    name, random = job.metadata.name, "x" * SUFFIX_LENGTH
    if job.spec.learner is not None and not job.status.phase:
        return f"{name}-{DDP_LEARNER}-{random}"
    if job.spec.collector is not None and not job.status.phase:
        return f"{name}-{COLLECTOR}-{random}"
    return coordinator_name(job)


def _volume_errors(job: DIJob, role: str) -> list[str]:
    """The job's volumes are added to those of every role."""
    taken = {volume.name for volume in template.read(getattr(job.spec, role).template).spec.volumes or ()}
    return [
        f"spec.volumes[{i}].name: {volume.get('name')!r} is also a volume of spec.{role}.template; rename one"
        for i, volume in enumerate(job.spec.volumes)
        if volume.get("name") in taken
    ]
