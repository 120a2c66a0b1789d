"""The patches of ``trainmaster scale``: the number of replicas of one role."""

from collections.abc import Sequence
from typing import Any

import msgspec

from trainmaster.client.job_finder import FoundJob
from trainmaster.core.errors import BadConfig
from trainmaster.kinds.ditask.role import declared_tasks, scaled_task
from trainmaster.kinds.ditask.types import DITaskJob

Patch = dict[str, Any]

_ROLES = ("replicaSpecs", "mxReplicaSpecs")
"""Where kinds have their roles in the spec."""


def scaled(job: FoundJob, replicas: int, role: str) -> tuple[str, Patch]:
    """The role that changes, and the patch that changes it."""
    spec = msgspec.json.decode(job.view.raw).get("spec") or {}
    if isinstance(spec.get("tasks"), list):
        return _scaled_task(job, spec["tasks"], replicas, role)
    field = next((name for name in _ROLES if isinstance(spec.get(name), dict)), "")
    if not field:
        raise BadConfig(f"{job}: the spec of a {job.resource.kind} does not say a number of replicas that can change")
    elastic = [name for name, each in spec[field].items() if each.get("edlPolicy", "Never") != "Never"]
    chosen = _role(job, list(spec[field]), elastic, role)
    if elastic == [chosen]:
        return chosen, {"spec": {"elasticReplicas": replicas}}
    return chosen, {"spec": {field: {chosen: {"replicas": replicas}}}}


def _scaled_task(job: FoundJob, tasks: Sequence[Any], replicas: int, role: str) -> tuple[str, Patch]:
    """A merge patch replaces lists, so that it has all tasks. They must not have changed since they were read."""
    try:
        decoded = msgspec.json.decode(job.view.raw, type=DITaskJob)
    except msgspec.ValidationError as error:
        raise BadConfig(f"{job} cannot be read: {error}; edit its spec") from error
    declared = [(name, count) for name, _, count in declared_tasks(decoded.spec)]
    names = [name for name, _ in declared]
    preferred = scaled_task(decoded.spec)
    chosen = _role(job, names, [preferred] if preferred in names else [], role)
    asked = decoded.status.requested_replicas.get(chosen)
    if asked and (chosen, replicas) in declared and asked.spec_replicas == replicas != asked.replicas:
        raise BadConfig(
            f"{job}: the spec has {replicas} replicas of {chosen} already, and {asked.replicas} were requested through "
            f"di-server, which count until the spec has another number; scale it to another number first"
        )
    if chosen == preferred:
        return chosen, {"spec": {"replicas": replicas}}
    changed = [
        {**task, "replicas": replicas} if name == chosen else task for name, task in zip(names, tasks, strict=True)
    ]
    return chosen, {"metadata": {"resourceVersion": str(job.view.resource_version)}, "spec": {"tasks": changed}}


def _role(job: FoundJob, roles: Sequence[str], preferred: Sequence[str], wanted: str) -> str:
    """The wanted role, in any case; else the one that is preferred, or the only one."""
    for candidates in (preferred, roles) if not wanted else ():
        if len(candidates) == 1:
            return candidates[0]
    if not wanted:
        raise BadConfig(f"{job} has the roles {', '.join(roles)}; choose one with --role")
    for name in roles:
        if name.lower() == wanted.lower():
            return name
    raise BadConfig(f"{job} has no role {wanted}; it has {', '.join(roles)}")
