"""What is wrong with a job beyond what its schema can say."""

from collections.abc import Iterator

from trainmaster.core import template
from trainmaster.core.name import child_name_error
from trainmaster.core.quantity import amount_of
from trainmaster.kinds.dijob.address import coordinator_name
from trainmaster.kinds.dijob.declaration import MAX_MEMBERS
from trainmaster.kinds.dijob.declare import COLLECTOR, DDP_LEARNER, LEARNER, SUFFIX_LENGTH
from trainmaster.kinds.dijob.profile import profile_of
from trainmaster.kinds.dijob.types import DIJob

SHAPE = (
    "a DIJob has a coordinator (v1alpha1) or tasks (v2alpha1), and not both; template, minReplicas, maxReplicas and "
    "engineFields of DI-orchestrator v1.0.0 are not read: write a task with that template"
)
"""A job of neither version, or of both."""

_ENV_SIZE = 170
"""Of the variables that each container gets: at least so long are they in JSON."""


def errors(job: DIJob) -> list[str]:
    found: list[str] = []
    if error := child_name_error(job.metadata.name, _longest_child(job)):
        found.append(f"metadata.name: {error}")
    for role in ("coordinator", "collector", "learner"):
        if (spec := getattr(job.spec, role)) is None:
            continue
        wrong = template.errors(spec.template, f"spec.{role}.template")
        found += wrong or (*_volume_errors(job, role), *_env_errors(job, role))
    found += (f"status.declared.members: {error}" for error in _member_errors(job))
    return found


def _member_errors(job: DIJob) -> Iterator[str]:
    """di-server declares nothing else. But who may write a status need not be di-server."""
    members = job.status.declared.members
    if len(members) > MAX_MEMBERS:
        yield f"there are {len(members)}, and a job may have {MAX_MEMBERS}; remove replicas by di-server"
    if name := next((name for name in members if not _is_replica(job, name)), ""):
        yield f"{name[:100]!r} is not the name of a replica of this job; remove it by di-server"
    heads = dict.fromkeys(member.aggregator for member in members.values() if member.aggregator)
    if head := next((head for head in heads if head not in members), ""):
        yield f"{head!r} is the aggregator of a replica and is not declared; remove the replica by di-server"
    for amount in sorted({amount for member in members.values() for amount in (member.cpus, member.memory) if amount}):
        try:
            amount_of(amount)
        except ValueError as error:
            yield str(error)
            return


def _is_replica(job: DIJob, name: str) -> bool:
    return name.startswith(f"{job.metadata.name}-") and not child_name_error(job.metadata.name, name)


def _longest_child(job: DIJob) -> str:
    """The longest name of a pod that this job can get. A job that runs already has shown that its names fit."""
    names = [coordinator_name(job)]
    learner = LEARNER if profile_of(job).has_own_aggregator else DDP_LEARNER
    for role, spec in ((COLLECTOR, job.spec.collector), (learner, job.spec.learner)):
        if spec is not None and not job.status.phase:
            names.append(f"{job.metadata.name}-{role}-{'x' * SUFFIX_LENGTH}")
    return max(names, key=len)


def _env_errors(job: DIJob, role: str) -> list[str]:
    given = getattr(job.spec, role).template
    return template.size_errors(f"spec.{role}.template", given, _ENV_SIZE * len(template.read(given).spec.containers))


def _volume_errors(job: DIJob, role: str) -> list[str]:
    """The job's volumes are added to those of every role."""
    taken = [volume.name for volume in template.read(getattr(job.spec, role).template).spec.volumes or ()]
    return [
        f"spec.volumes[{i}].name: {volume.get('name')!r} is also a volume of spec.{role}.template; rename one"
        for i, volume in enumerate(job.spec.volumes)
        if volume.get("name") in taken
    ]
