"""What is wrong with an MXJob beyond what its schema can say."""

import msgspec

from trainmaster.core import template
from trainmaster.core.name import child_name_error
from trainmaster.core.plan import Event, replicas_error, warning
from trainmaster.core.slot import slot_of
from trainmaster.kinds.mxjob import labels, reason
from trainmaster.kinds.mxjob.body import CLUSTER, tuner_key
from trainmaster.kinds.mxjob.role import (
    FIXED,
    MODES,
    ROLES,
    SINGLE,
    WORKER,
    canonical,
    roles_of,
)
from trainmaster.kinds.mxjob.types import MXJob, MXJobSpec, ReplicaSpec
from trainmaster.kinds.run_policy import Policy
from trainmaster.lifecycle import environment, gang
from trainmaster.lifecycle.environment import MAX_VARIABLE
from trainmaster.lifecycle.restart import exit_codes

_TASK_SIZE = 100
"""More than MX_CONFIG has beside addresses and labels: the names of its parts, the roles once more, and the task."""

_FIELDS = dict(zip(Policy.__struct_fields__, Policy.__struct_encode_fields__, strict=True))


def errors(job: MXJob) -> list[str]:
    found = [*_exit_code_errors(job.spec), *_policy_errors(job.spec)]
    seen: dict[str, str] = {}
    for name, replica in sorted(job.spec.mx_replica_specs.items()):
        path = f"spec.mxReplicaSpecs.{name}"
        role = canonical(name)
        if not role:
            found.append(f"{path}: there is no such role; there are {', '.join(ROLES)}")
            continue
        if (other := seen.setdefault(role, name)) != name:
            found.append(f"{path}: differs from {other!r} only in case; rename one of them")
        found += _replica_errors(path, role, replica)
        if error := child_name_error(job.metadata.name, slot_of(job.metadata.name, role, replica.replicas - 1).name):
            found.append(f"metadata.name: {error}")
    return found + _mode_errors(job.spec, set(seen)) + _size_errors(job)


def overridden(job: MXJob, scheduler: str) -> tuple[Event, ...]:
    """Warnings about template fields that have no effect, in the ancestors' words."""
    found: list[Event] = []
    for role, replica in roles_of(job.spec).items():
        spec = replica.template["spec"]
        if spec.get("restartPolicy"):
            text = f"restartPolicy in the template of {role} is overwritten; set restartPolicy of the replica"
            found.append(warning(reason.TEMPLATE_RESTART_POLICY, text))
        if (other := str(spec.get("schedulerName") or "")) and scheduler and not gang.is_wanted(scheduler, [other]):
            text = f"{role} asks for the scheduler {other}: the pods of this job are not placed together by {scheduler}"
            found.append(warning(reason.TEMPLATE_SCHEDULER_NAME, text))
    return tuple(found)


def _exit_code_errors(spec: MXJobSpec) -> list[str]:
    try:
        exit_codes(spec.restarting_exit_code)
    except ValueError as error:
        return [f"spec.restartingExitCode: {error}"]
    return []


def _policy_errors(spec: MXJobSpec) -> list[str]:
    """A field stands in the run policy, or in the spec as it used to; not in both with two meanings."""
    found = []
    for field, name in _FIELDS.items():
        older, newer = getattr(spec, field), getattr(spec.run_policy, field)
        if older is not None and newer is not None and older != newer:
            found.append(f"spec.{name}: spec.runPolicy.{name} says something else; leave one of them out")
    return found


def _replica_errors(path: str, role: str, replica: ReplicaSpec) -> list[str]:
    if found := template.errors(replica.template, f"{path}.template"):
        return found
    names = [container.name for container in template.read(replica.template).spec.containers]
    if labels.CONTAINER not in names:
        found.append(
            f"{path}.template.spec.containers: none of {', '.join(names)} is called {labels.CONTAINER!r}; "
            "rename the one that trains"
        )
    if role in SINGLE and replica.replicas != 1:
        found.append(f"{path}.replicas: there is one {role} in a job, not {replica.replicas}; set it to 1")
    if role in FIXED and replica.restart_scope == "Pod":
        found.append(f"{path}.restartScope: a {role} cannot join again by itself; leave it out, or set it to All")
    return found


def _mode_errors(spec: MXJobSpec, roles: set[str]) -> list[str]:
    """MXTrain needs all three roles, or workers only."""
    wanted, mode = MODES[spec.job_mode], spec.job_mode
    found = [
        f"spec.mxReplicaSpecs.{role}: {mode} has no role {role}; it has {', '.join(wanted)}"
        for role in ROLES
        if role in roles and role not in wanted
    ]
    if mode == "MXTrain" and roles == {WORKER}:
        return found
    return found + [f"spec.mxReplicaSpecs.{role}: {mode} needs a {role}" for role in wanted if role not in roles]


def _size_errors(job: MXJob) -> list[str]:
    """Every container gets the addresses of all replicas, so that their number is limited."""
    path, specs = "spec.mxReplicaSpecs", job.spec.mx_replica_specs
    total = sum(replica.replicas for replica in specs.values())
    if error := replicas_error(total):
        return [f"{path}: {error}"]
    size = _cluster_size(job)
    if environment.is_too_long("MX_CONFIG", size + _rest_size(job)):
        room = f"one environment variable ({MAX_VARIABLE // 1024} KiB)"
        return [f"{path}: the addresses and labels of {total} replicas do not fit into {room}; lower replicas"]
    found, least = list[str](), _rest_size(job) + environment.size_in_container({CLUSTER: size}, total)
    for name, replica in sorted(specs.items()):
        if not template.errors(replica.template, ""):
            pod = template.read(replica.template).spec
            containers = len(pod.containers) + len(pod.init_containers or ())
            found += template.size_errors(f"{path}.{name}.template", replica.template, least * containers)
    return found


def _cluster_size(job: MXJob) -> int:
    """At most so long the addresses in MX_CONFIG are."""
    entry, name = len('{"url":"","port":65535},'), job.metadata.name
    counts = {canonical(key): replica.replicas for key, replica in job.spec.mx_replica_specs.items()}
    return sum(
        len(f'"{role}":[],') + n * (entry + len(slot_of(name, role, n - 1).name)) for role, n in counts.items() if role
    )


def _rest_size(job: MXJob) -> int:
    """About how long the rest of MX_CONFIG is: the labels of the roles, and the task."""
    keys = (
        tuner_key(replica)
        for replica in job.spec.mx_replica_specs.values()
        if not template.errors(replica.template, "")
    )
    return _TASK_SIZE + sum(len(msgspec.json.encode(key)) for key in keys)
