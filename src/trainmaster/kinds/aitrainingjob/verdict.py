"""How an AITrainingJob stands: which pods have ended and how, which of them come again, and what the end policies make
of the rest."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from trainmaster.api.aitrainingjob import AITrainingJob
from trainmaster.core.observed import Observed
from trainmaster.core.policies import completion, fault, restart
from trainmaster.core.policies.completion import Result
from trainmaster.core.policies.restart import NONE, Fallen, Restarts, Rules
from trainmaster.core.view import PodView
from trainmaster.kinds.aitrainingjob import elastic, labels
from trainmaster.kinds.aitrainingjob.fault import Faults
from trainmaster.kinds.aitrainingjob.status import running_since


class Verdict(msgspec.Struct, frozen=True):
    """``result`` is how the job ends, if it does. Otherwise the pods of ``fallen`` are started again, and those of
    ``outdated`` have been: they are to go. Without those of ``lost`` the job goes on meanwhile. ``done`` are the
    replicas that have succeeded, by role: a pod that has ended may be deleted while others still run."""

    result: Result
    fallen: tuple[Fallen, ...]
    outdated: tuple[PodView, ...]
    lost: tuple[Fallen, ...] = ()
    done: dict[str, tuple[int, ...]] = {}


def verdict(job: AITrainingJob, observed: Observed, faults: Faults, now: datetime) -> Verdict:
    restarts = restarts_of(job)
    results, fallen, outdated = _stand(job, observed, faults, restarts)
    done = {role: tuple(i for i, result in enumerate(of) if result.is_success) for role, of in results.items()}
    again: tuple[Fallen, ...] = ()
    lost = elastic.dispensable(job, fallen, outdated, observed)
    if fallen := [f for f in fallen if f not in lost]:
        codes = restart.exit_codes(job.spec.restarting_exit_code)
        specs = job.spec.replica_specs
        wanted = [f for f in fallen if restart.is_wanted(specs[f.role].restart_policy, f.fault, codes)]
        again = restart.admitted(wanted, rules_of(job), restarts, calm_of(job, now))
        come = {(f.role, f.index) for f in again}
        asked = {(f.role, f.index) for f in wanted}
        for f in fallen:
            place = (f.role, f.index)
            results[f.role][f.index] = _after(f, job, is_again=place in come, is_wanted=place in asked)
    found = {role: indices for role, indices in done.items() if indices}
    return Verdict(_result(job, results, observed), again, outdated, lost, found)


def still_done(job: AITrainingJob, restarts: Mapping[str, Restarts]) -> dict[str, tuple[int, ...]]:
    """The replicas that have succeeded and are not started again by this restart."""
    before = restarts_of(job)
    kept = {
        role: tuple(
            index
            for index in indices
            if restarts.get(role, NONE).attempt_of(index) == before.get(role, NONE).attempt_of(index)
        )
        for role, indices in job.status.done.items()
    }
    return {role: indices for role, indices in kept.items() if indices}


def rules_of(job: AITrainingJob) -> dict[str, Rules]:
    return {
        name: Rules(
            spec.restart_policy,
            spec.restart_scope,
            spec.restart_limit,
            spec.restart_backoff_seconds,
            spec.restart_reset_seconds,
        )
        for name, spec in job.spec.replica_specs.items()
    }


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


def calm_of(job: AITrainingJob, now: datetime) -> timedelta:
    """For how long the whole job has run without a fault."""
    since = running_since(job.status)
    if since and job.status.restart_history:
        since = max(since, job.status.restart_history[-1].time)  # an elastic job loses pods while it runs
    return now - since if since else timedelta()


def _stand(
    job: AITrainingJob, observed: Observed, faults: Faults, restarts: Mapping[str, Restarts]
) -> tuple[dict[str, list[Result]], list[Fallen], tuple[PodView, ...]]:
    """The pods of every role by index, roles by name. A role without pods has no say."""
    results: dict[str, list[Result]] = {}
    fallen: list[Fallen] = []
    outdated: list[PodView] = []
    for name, spec in sorted(job.spec.replica_specs.items()):
        if not spec.replicas:
            continue
        pods, counted, done = observed.role(name.lower()), restarts.get(name), job.status.done.get(name, ())
        succeeded = Result(completion.SUCCEED)
        results[name] = [succeeded if index in done else completion.RUNNING for index in range(spec.replicas)]
        for index, pod in pods.items():
            if index >= spec.replicas or index in done:
                continue
            if counted and attempt_of(pod) < counted.attempt_of(index):
                outdated.append(pod)
            elif found := faults.of_pods.get(pod.uid):
                fallen.append(Fallen(name, index, found))
            elif pod.deleting or not pod.is_ended:
                continue  # how a pod ends that was told to go says nothing about the training
            elif pod.phase == "Succeeded":
                results[name][index] = succeeded
            else:
                fallen.append(Fallen(name, index, _failure(pod)))
    return results, fallen, tuple(outdated)


def attempt_of(pod: PodView) -> int:
    """The attempt that a pod was created for. A label that was edited into no number says the first."""
    text = pod.labels.get(labels.RESTART_COUNT, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else 0


def _failure(pod: PodView) -> fault.Fault:
    training = labels.training_containers(c.name for c in pod.containers)
    return fault.failure(pod, training.__contains__)


def _after(fallen: Fallen, job: AITrainingJob, *, is_again: bool, is_wanted: bool) -> Result:
    if is_again or fallen.fault.comes_again:
        return completion.RUNNING  # what must come again, and may not, goes on trying
    message = fallen.fault.message
    if is_wanted:
        message += f" (restartLimit {job.spec.replica_specs[fallen.role].restart_limit} is used up)"
    return Result(fallen.fault.phase, message)


def _result(job: AITrainingJob, results: Mapping[str, Sequence[Result]], observed: Observed) -> Result:
    specs = job.spec.replica_specs
    groups = {
        name: completion.group_result(
            elastic.heard(specs[name], pods, observed.role(name.lower())),
            complete=specs[name].complete_policy,
            fail=specs[name].fail_policy,
        )
        for name, pods in results.items()
    }
    return completion.job_result(
        groups,
        rank0=next((pods[0] for pods in results.values()), completion.RUNNING),
        complete=job.spec.complete_policy,
        fail=job.spec.fail_policy,
        name=job.metadata.name,
    )
