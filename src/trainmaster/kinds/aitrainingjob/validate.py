"""What is wrong with an AITrainingJob beyond what its schema can say."""

import re

from trainmaster.core import template
from trainmaster.core.name import child_name_error
from trainmaster.core.plan import replicas_error
from trainmaster.kinds.aitrainingjob.body import (
    FRAMEWORK_ENV_SIZE,
    OWN_ENV_SIZE,
    child_name,
    env_sizes,
    framework_in,
    framework_sizes,
    membership_size,
    replicas_of,
    roles_without_port,
)
from trainmaster.kinds.aitrainingjob.elastic import elastic_roles, most, sized
from trainmaster.kinds.aitrainingjob.framework import FRAMEWORKS, framework_of
from trainmaster.kinds.aitrainingjob.types import AITrainingJob, ReplicaSpec
from trainmaster.lifecycle import environment
from trainmaster.lifecycle.environment import MAX_CONFIG_MAP, MAX_VARIABLE
from trainmaster.lifecycle.restart import exit_codes

_REPLICA_NAME = re.compile(r"[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?")


def errors(job: AITrainingJob) -> list[str]:
    found = _exit_code_errors(job) + _scale_errors(job)
    full = sized(job)
    seen: dict[str, str] = {}
    for name, spec in sorted(job.spec.replica_specs.items()):
        path = f"spec.replicaSpecs.{name}"
        if not _REPLICA_NAME.fullmatch(name):
            found.append(f"{path}: a replica name consists of letters, digits and '-' and starts with a letter")
            continue
        if (other := seen.setdefault(name.lower(), name)) != name:
            found.append(f"{path}: differs from {other!r} only in case; rename one of them")
        wrong = _replica_errors(path, spec)
        found += wrong or _size_errors(path, full, name)
        last = max(full.spec.replica_specs[name].replicas - 1, 0)
        if error := child_name_error(job.metadata.name, child_name(job, name, last)):
            found.append(f"metadata.name: {error}")
    if error := replicas_error(most(job), "replicas or maxReplicas"):
        found.append(f"spec.replicaSpecs: {error}")
    if not any(spec.replicas for spec in job.spec.replica_specs.values()):
        found.append("spec.replicaSpecs: no replica has a pod; set replicas of at least one to 1 or more")
    found = found or _env_errors(full)
    if not found and elastic_roles(job) and membership_size(full) > MAX_CONFIG_MAP:
        room = f"one ConfigMap ({MAX_CONFIG_MAP // 1024} KiB)"
        found.append(f"spec.replicaSpecs: the members of an elastic job must fit into {room}; lower replicas")
    return found


def _exit_code_errors(job: AITrainingJob) -> list[str]:
    try:
        exit_codes(job.spec.restarting_exit_code)
    except ValueError as error:
        return [f"spec.restartingExitCode: {error}"]
    return []


def _scale_errors(job: AITrainingJob) -> list[str]:
    asked, roles = job.spec.elastic_replicas, elastic_roles(job)
    if asked is None:
        return []
    path = "spec.elasticReplicas"
    if len(roles) != 1:
        what = f"scales the one replica whose edlPolicy is Auto or Manual, and there are {len(roles)}"
        return [f"{path}: {what}: set the replicas of each by itself"]
    spec = job.spec.replica_specs[roles[0]]
    if spec.min_replicas is not None and asked < spec.min_replicas:
        return [f"{path}: {asked} is less than minReplicas of {roles[0]} ({spec.min_replicas})"]
    if spec.max_replicas is not None and asked > spec.max_replicas:
        return [f"{path}: {asked} is more than maxReplicas of {roles[0]} ({spec.max_replicas})"]
    return []


def _replica_errors(path: str, spec: ReplicaSpec) -> list[str]:
    found = template.errors(spec.template, f"{path}.template")
    low, high = spec.min_replicas, spec.max_replicas
    if low is not None and low > spec.replicas:
        found.append(f"{path}.minReplicas: {low} is more than replicas ({spec.replicas})")
    if high is not None and high < spec.replicas:
        found.append(f"{path}.maxReplicas: {high} is less than replicas ({spec.replicas})")
    return found


def _env_errors(job: AITrainingJob) -> list[str]:
    """Every container gets the addresses of all replicas."""
    of_framework = framework_sizes(job)
    sizes = {name: size for role in job.spec.replica_specs for name, size in env_sizes(job, role).items()}
    sizes |= of_framework
    total, replicas, found = sum(sizes.values()), replicas_of(job), list[str]()
    if any(environment.is_too_long(variable, size) for variable, size in of_framework.items()):
        room = f"one environment variable ({MAX_VARIABLE // 1024} KiB)"
        what = f"the addresses of {replicas} replicas do not fit into {room}"
        return [f"spec.frameworkType: {what}; lower replicas, or remove the field"]
    if total > MAX_CONFIG_MAP:
        room = f"one ConfigMap holds {MAX_CONFIG_MAP // 1024} KiB"
        how = "lower replicas, publish fewer ports, or shorten the names"
        return [f"spec.replicaSpecs: the addresses of {replicas} replicas need {total // 1024} KiB, and {room}; {how}"]
    own = OWN_ENV_SIZE + (FRAMEWORK_ENV_SIZE if framework_in(job) else 0)
    size = own + environment.size_in_container(sizes, replicas)
    for name, spec in sorted(job.spec.replica_specs.items()):
        pod = template.read(spec.template).spec
        containers = len(pod.containers) + len(pod.init_containers or ())
        found += template.size_errors(f"spec.replicaSpecs.{name}.template", spec.template, size * containers)
    return found


def _size_errors(path: str, job: AITrainingJob, name: str) -> list[str]:
    if not any(environment.is_too_long(variable, size) for variable, size in env_sizes(job, name).items()):
        return []
    room = f"one environment variable ({MAX_VARIABLE // 1024} KiB)"
    replicas = job.spec.replica_specs[name].replicas
    return [f"{path}.replicas: {replicas} addresses do not fit into {room}; lower replicas or publish fewer ports"]


# --- what admission warns of ---


def warnings(job: AITrainingJob) -> list[str]:
    """Why ``frameworkType`` sets no variables, or wrong ones."""
    word, full = job.spec.framework_type, sized(job)
    if not word:
        return []
    framework = framework_of(word)
    if not framework:
        return [f"spec.frameworkType: sets no variables, since {word!r} is not one of {', '.join(FRAMEWORKS)}"]
    missing = roles_without_port(full, framework)
    if missing:
        named = ", ".join(missing)
        return [f"spec.frameworkType: sets no variables, since no replica of {named} publishes a port; declare one"]
    unknown = sorted(role for role in job.spec.replica_specs if framework.roles and role.lower() not in framework.roles)
    known = ", ".join(framework.roles)
    return [f"spec.replicaSpecs.{role}: {word} knows no such role, only {known}; rename it" for role in unknown]
