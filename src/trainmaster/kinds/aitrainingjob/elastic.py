"""Elastic roles of an AITrainingJob: how many replicas they have, how many are enough, and which can be lost.

``edlPolicy`` says what changes the number. With Never it is fixed. With Manual the user changes it, by an edit or the
scale subresource. With Auto it depends on free capacity: all replicas are created, those that are scheduled take part,
and the job runs as soon as ``minReplicas`` do.
"""

from collections.abc import Sequence

import msgspec

from trainmaster.core.observed import Observed
from trainmaster.core.view import PodView
from trainmaster.kinds.aitrainingjob import labels
from trainmaster.kinds.aitrainingjob.types import AITrainingJob, ReplicaSpec
from trainmaster.lifecycle.completion import Result
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.restart import FailedPod


def elastic_roles(job: AITrainingJob) -> list[str]:
    return sorted([role for role, spec in job.spec.replica_specs.items() if spec.edl_policy != "Never"])


def scaled_role(job: AITrainingJob) -> str | None:
    """The role that the scale subresource is about: the elastic one, where there is no doubt which."""
    roles = elastic_roles(job)
    return roles[0] if len(roles) == 1 else None


def sized(job: AITrainingJob) -> AITrainingJob:
    """The job with its effective replicas in the spec. Later code does not distinguish whether they come from the role,
    ``maxReplicas`` or the scale subresource."""
    roles = elastic_roles(job)
    if not roles:
        return job
    asked = job.spec.elastic_replicas if len(roles) == 1 else None
    specs = job.spec.replica_specs | {role: _sized(job.spec.replica_specs[role], asked) for role in roles}
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, replica_specs=specs))


def _sized(spec: ReplicaSpec, asked: int | None) -> ReplicaSpec:
    wanted = spec.replicas if asked is None else asked
    if asked is None and spec.edl_policy == "Auto" and spec.max_replicas is not None:
        wanted = spec.max_replicas
    least = spec.replicas if spec.min_replicas is None else spec.min_replicas
    return msgspec.structs.replace(spec, replicas=wanted, min_replicas=min(max(least, 1), wanted))


def most(job: AITrainingJob) -> int:
    """The most replicas that all roles together may have. Elastic roles count ``maxReplicas`` and what they are scaled
    to."""
    return sum(_most(spec, job.spec.elastic_replicas or 0) for spec in job.spec.replica_specs.values())


def _most(spec: ReplicaSpec, asked: int) -> int:
    return spec.replicas if spec.edl_policy == "Never" else max(spec.replicas, spec.max_replicas or 0, asked)


def size_bounds(job: AITrainingJob) -> tuple[int, int]:
    """How many replicas of all roles together a sized job runs with, at least and at most."""
    return sum(enough(spec, is_running=True) for spec in job.spec.replica_specs.values()), most(job)


def enough(spec: ReplicaSpec, *, is_running: bool) -> int:
    """So many pods make a role of a sized job run. One that is scaled by hand is complete before it runs for the first
    time; from then on those that were added join it."""
    if spec.edl_policy == "Auto" or (spec.edl_policy == "Manual" and is_running):
        return spec.min_replicas or 0
    return spec.replicas


def selector(job: AITrainingJob, role: str) -> str:
    """Of the pods of a role, as autoscalers want it."""
    chosen = {
        labels.GROUP_NAME: labels.GROUP,
        labels.TRAINING_JOB_NAME: job.metadata.name,
        labels.REPLICA_NAME: role.lower(),
    }
    return ",".join(f"{label}={value}" for label, value in chosen.items())


def size_of(job: AITrainingJob, role: str, observed: Observed) -> int:
    """How many pods a role has, as autoscalers count them."""
    wanted = job.spec.replica_specs[role].replicas
    return sum(index < wanted and not pod.deleting for index, pod in observed.role(role.lower()).items())


# --- what an Auto role can do without ---


def dispensable(job: AITrainingJob, facts: Facts) -> tuple[FailedPod, ...]:
    """Those of the pods that were lost with their node whose role goes on without them: enough others run."""
    failed, found = facts.failed, list[FailedPod]()
    for role in sorted({f.role for f in failed if f.fault.is_node}):
        spec = job.spec.replica_specs[role]
        if spec.edl_policy != "Auto":
            continue
        down = {f.index for f in failed if f.role == role}
        left = [i for (name, i), pod in facts.pods.items() if name == role and i not in down and _takes_part(pod)]
        if len(left) >= enough(spec, is_running=True):
            found += [f for f in failed if f.role == role and f.fault.is_node]
    return tuple(found)


def deciding_results(role: str, spec: ReplicaSpec, results: Sequence[Result], facts: Facts) -> Sequence[Result]:
    """The results that decide how the role ends. In an Auto role, once enough replicas have started, pending ones are
    left out: they must not keep a finished training open."""
    if spec.edl_policy != "Auto":
        return results
    started = {index for (name, index), pod in facts.pods.items() if name == role and _has_started(pod)}
    started.update(facts.succeeded.get(role, ()))
    if len(started) < enough(spec, is_running=True):
        return results
    if "Rank0" in (spec.complete_policy, spec.fail_policy):
        started.add(0)
    return [result for index, result in enumerate(results) if result.phase or index in started]


def _takes_part(pod: PodView) -> bool:
    """True for a running pod; ended pods do not take part."""
    return not pod.deleting and pod.phase == "Running"


def _has_started(pod: PodView) -> bool:
    return not pod.deleting and pod.phase in ("Running", "Succeeded", "Failed")
