"""What is wrong with an MxJob beyond what its schema can say."""

from collections.abc import Iterator

import msgspec

from trainmaster.core import template
from trainmaster.core.name import MAX_LABEL, child_name_error
from trainmaster.kinds.mlkube import labels
from trainmaster.kinds.mlkube.body import slots_of
from trainmaster.kinds.mlkube.types import JobTemplatePart, MxJob, ReplicaSpec
from trainmaster.lifecycle.restart import exit_codes

REFUSED = "a batch Job takes OnFailure and Never alone; use one of them"

BEGUN = (
    "jobMode, types, replicas, restartScope and PsRootPort of a job that has begun stay as they are, because "
    "ps-lite counts its members when it starts; delete the job and create it anew"
)


def errors(job: MxJob) -> list[str]:
    found = [*_mode_errors(job), *_exit_code_errors(job), *_name_errors(job)]
    seen: set[str] = set()
    for index, spec in enumerate(job.spec.replica_specs):
        path = f"spec.replicaSpecs[{index}]"
        if spec.mx_replica_type in seen:
            found.append(f"{path}.mxReplicaType: there is another {spec.mx_replica_type}; raise its replicas instead")
        seen.add(spec.mx_replica_type)
        found += _replica_errors(path, spec)
    return found


def edit_errors(old: MxJob, new: MxJob) -> list[str]:
    if not old.status.runtime_id or _members(old) == _members(new):
        return []
    return [f"spec.replicaSpecs: {BEGUN}"]


def _members(job: MxJob) -> tuple[object, ...]:
    """What ps-lite is started with."""
    specs = job.spec.replica_specs
    return (job.spec.job_mode, *((s.mx_replica_type, s.replicas, s.restart_scope, s.ps_root_port) for s in specs))


def _mode_errors(job: MxJob) -> Iterator[str]:
    specs = job.spec.replica_specs
    types = [spec.mx_replica_type for spec in specs]
    if job.spec.job_mode == "dist":
        for role in labels.ROLES:
            if role not in types:
                yield f"spec.replicaSpecs: jobMode dist needs a {role}; add one, or use jobMode local"
    for index, spec in enumerate(specs):
        path = f"spec.replicaSpecs[{index}]"
        if job.spec.job_mode == "local" and spec.mx_replica_type != labels.WORKER:
            yield f"{path}.mxReplicaType: jobMode local has one WORKER and no {spec.mx_replica_type}; use jobMode dist"
        elif spec.replicas != 1 and (job.spec.job_mode == "local" or spec.mx_replica_type == labels.SCHEDULER):
            of = "jobMode local has one WORKER" if job.spec.job_mode == "local" else "there is one SCHEDULER"
            yield f"{path}.replicas: {of}, not {spec.replicas}; set it to 1"


def _exit_code_errors(job: MxJob) -> Iterator[str]:
    try:
        exit_codes(job.spec.restarting_exit_code)
    except ValueError as error:
        yield f"spec.restartingExitCode: {error}"


def _name_errors(job: MxJob) -> Iterator[str]:
    """Of a local job no service is made: only the length of its name matters."""
    longest = max((slot.name for slot in slots_of(job)), key=len)
    if job.spec.job_mode == "local" and len(longest) <= MAX_LABEL:
        return
    if error := child_name_error(job.metadata.name, longest):
        yield f"metadata.name: {error}"


def _replica_errors(path: str, spec: ReplicaSpec) -> Iterator[str]:
    given = spec.template.get("spec")
    if isinstance(given, dict) and given.get("restartPolicy") not in (None, "", "OnFailure", "Never"):
        yield f"{path}.template.spec.restartPolicy: {given['restartPolicy']!r}: {REFUSED}"
        return
    if wrong := template.errors(spec.template, f"{path}.template"):
        yield from wrong
        return
    if not any(c.name == labels.CONTAINER for c in msgspec.convert(spec.template, JobTemplatePart).spec.containers):
        yield f"{path}.template.spec.containers: none is called {labels.CONTAINER}; rename the one that trains"
