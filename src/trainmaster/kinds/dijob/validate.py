"""What is wrong with a DIJob beyond what its schema can say."""

from trainmaster.api.dijob import DIJob
from trainmaster.core import template
from trainmaster.core.name import child_name_error
from trainmaster.kinds.dijob.body import coordinator_name


def errors(job: DIJob) -> list[str]:
    found: list[str] = []
    if error := child_name_error(job.metadata.name, coordinator_name(job)):
        found.append(f"metadata.name: {error}")
    for role in ("coordinator", "collector", "learner"):
        if (spec := getattr(job.spec, role)) is None:
            continue
        wrong = template.errors(spec.template, f"spec.{role}.template")
        found += wrong or _volume_errors(job, role)
    return found


def _volume_errors(job: DIJob, role: str) -> list[str]:
    """The job's volumes are added to those of every role."""
    taken = {volume.name for volume in template.read(getattr(job.spec, role).template).spec.volumes or ()}
    return [
        f"spec.volumes[{i}].name: {volume.get('name')!r} is also a volume of spec.{role}.template; rename one"
        for i, volume in enumerate(job.spec.volumes)
        if volume.get("name") in taken
    ]
