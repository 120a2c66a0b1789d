"""What a job waits for until it runs, and how long it may (docs/decisions/0043-limits-on-waiting.md).

A limit on waiting can only be over for a job that still waits. So the pods say what the job waits for, and never the
stored phase, which may be as old as the last operator. The status only remembers since when.
"""

from collections.abc import Iterator
from datetime import datetime

from trainmaster.lifecycle import restart
from trainmaster.lifecycle.deadline import Limit, Stage, Wait
from trainmaster.lifecycle.facts import Facts
from trainmaster.lifecycle.model import JobModel, Place


def wait_of(model: JobModel, facts: Facts, now: datetime) -> Wait | None:
    """What the job waits for, and since when; None if it waits for nothing, or no limit is about it."""
    stage = _stage(model, facts, now) if model.run.wait_limits else None
    if stage is None:
        return None
    known = model.memory.wait
    is_same = known is not None and known.stage == stage and not model.is_suspended
    # A time in the future is that of a clock that was wrong.
    return Wait(stage, min(known.since, now)) if known and is_same else Wait(stage, now)


def limits_of(model: JobModel, wait: Wait | None) -> Iterator[Limit]:
    """The limits on waiting that are running."""
    for limit in model.run.wait_limits:
        if wait and limit.stage == wait.stage:
            yield Limit(wait.since, limit.seconds, limit.message)


def _stage(model: JobModel, facts: Facts, now: datetime) -> Stage | None:
    if _is_held(model, facts, now):
        return None
    started = {place for place, state in facts.states.items() if state not in ("", "Pending")}
    started |= _done(facts)
    if _is_enough(model, started):
        return None
    placed = {place for place, pod in facts.pods.items() if pod.node}
    return "Containers" if _is_enough(model, started | placed) else "Nodes"


def _is_held(model: JobModel, facts: Facts, now: datetime) -> bool:
    """True while pods are missing or pending because the job or its queue holds them back, and not for a node."""
    if model.run.suspend or facts.outdated or _is_queued(model, facts):
        return True
    backs_off = restart.waits(model.memory.restarts, now)
    return bool(backs_off) and any(slot.role in backs_off for slot in facts.missing)


def _is_queued(model: JobModel, facts: Facts) -> bool:
    """True if replicas that the job needs wait in a queue. Others of an elastic role may wait there for ever."""
    gated = {place for place, pod in facts.pods.items() if pod.is_queued}
    return bool(gated) and not _is_enough(model, (facts.pods.keys() - gated) | _done(facts))


def _done(facts: Facts) -> set[Place]:
    return {(role, index) for role, indices in facts.succeeded.items() for index in indices}


def _is_enough(model: JobModel, places: set[Place]) -> bool:
    counts = dict.fromkeys(model.roles, 0)
    for role, _ in places:
        counts[role] += 1
    return all(counts[name] >= role.enough for name, role in model.roles.items())
