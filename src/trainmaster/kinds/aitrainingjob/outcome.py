"""What the end policies of an AITrainingJob make of its pods."""

from collections.abc import Mapping, Sequence

import msgspec

from trainmaster.kinds.aitrainingjob import elastic
from trainmaster.kinds.aitrainingjob.types import AITrainingJob
from trainmaster.lifecycle import completion
from trainmaster.lifecycle.completion import Result
from trainmaster.lifecycle.decide import Verdict
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.restart import FailedPod, Restarts


def result_of(job: AITrainingJob, facts: Facts, verdict: Verdict) -> Result:
    """Roles by name, pods by index. A role without replicas has no say."""
    specs = {name: spec for name, spec in sorted(job.spec.replica_specs.items()) if spec.replicas}
    results = {name: [completion.GOES_ON] * spec.replicas for name, spec in specs.items()}
    for role, indices in facts.succeeded.items():
        for index in indices:
            results[role][index] = Result(completion.SUCCEED)
    again = {(f.role, f.index) for f in verdict.restarts}
    for failed in verdict.failed:
        if (failed.role, failed.index) not in again:
            results[failed.role][failed.index] = _final(job, failed, is_wanted=failed in verdict.wanted)
    return _combined(job, results, facts)


def _final(job: AITrainingJob, failed: FailedPod, *, is_wanted: bool) -> Result:
    if failed.fault.comes_again:
        return completion.GOES_ON  # it has to be started again, and its limit is used up: it goes on trying
    message = failed.fault.message
    if is_wanted:
        message += f" (restartLimit {job.spec.replica_specs[failed.role].restart_limit} is used up)"
    return Result(failed.fault.phase, message)


def _combined(job: AITrainingJob, results: Mapping[str, Sequence[Result]], facts: Facts) -> Result:
    specs = job.spec.replica_specs
    groups = {
        name: completion.group_result(
            elastic.deciding_results(name, specs[name], pods, facts),
            complete=specs[name].complete_policy,
            fail=specs[name].fail_policy,
        )
        for name, pods in results.items()
    }
    return completion.job_result(
        groups,
        rank0=next((pods[0] for pods in results.values()), completion.GOES_ON),
        complete=job.spec.complete_policy,
        fail=job.spec.fail_policy,
        name=job.metadata.name,
    )


def restarts_of(job: AITrainingJob) -> Mapping[str, Restarts]:
    """The stored counts. Where another operator left its own, they are taken over: what it had used up stays so, and
    a restart that it was at is finished."""
    status = job.status
    if status.restarts.keys() >= status.restart_count.keys():
        return status.restarts
    foreign = {role: Restarts(count=n, used=n) for role, n in status.restart_count.items()}
    waits_for = job.spec.replica_specs.get(status.restart_replica_name)
    if waits_for and waits_for.restart_scope != "Pod":
        whole = foreign if waits_for.restart_scope == "All" else [status.restart_replica_name]
        foreign |= {role: msgspec.structs.replace(foreign[role], attempt=foreign[role].count) for role in whole}
    return foreign | status.restarts
