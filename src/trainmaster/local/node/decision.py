"""Decides the next actions for one pod from its spec and the records of its containers. No I/O, no clock.

It is level-triggered: the decision does not depend on history, nor on restarts of the node.
"""

import math
from collections.abc import Mapping

import msgspec

from trainmaster.local.node.backoff import RestartBackoff
from trainmaster.local.node.pod import Object, Pod, is_sidecar, seconds_of
from trainmaster.local.node.record import Record

Records = Mapping[str, Record]


class PodFailure(msgspec.Struct, frozen=True):
    """The pod failed as a whole, independent of its containers."""

    reason: str
    message: str


class Decision(msgspec.Struct, frozen=True):
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    back_off: Mapping[str, float] = {}
    """Containers that wait for their restart, and the seconds of the whole back-off."""
    failure: PodFailure | None = None
    is_over: bool = False
    """No container runs, and none will be started."""
    wake_at: float = math.inf


class _Draft:
    """Collects a decision."""

    def __init__(self, pod: Pod, records: Records, now: float, backoff: RestartBackoff) -> None:
        self.pod = pod
        self.records = records
        self.now = now
        self.backoff = backoff
        self.start: list[str] = []
        self.back_off: dict[str, float] = {}
        self.times: list[float] = []

    def consider(self, name: str) -> None:
        """Starts this container, now or after its back-off."""
        record = self.records[name]
        due = record.retry_at
        if record.ended is not None:
            delay = self.backoff.delay(record.streak)
            due = max(due, seconds_of(record.ended.finished_at) + delay)
            if due > self.now and record.waiting is None:
                self.back_off[name] = delay
        if due > self.now:
            self.times.append(due)
        else:
            self.start.append(name)


def decide(
    pod: Pod,
    records: Records,
    now: float,
    backoff: RestartBackoff,
    *,
    rejection: PodFailure | None = None,
    is_gone: bool = False,
) -> Decision:
    """``rejection``: the pod can never run on this node. ``is_gone``: the pod is no longer in the API."""
    if is_gone or pod.is_deleting or pod.is_ended:
        return _ending(records)
    if pod.end_at is not None and now >= pod.end_at:
        rejection = rejection or PodFailure(
            "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
        )
    if rejection is not None:
        return msgspec.structs.replace(_ending(records), failure=rejection)
    draft = _Draft(pod, records, now, backoff)
    if pod.end_at is not None:
        draft.times.append(pod.end_at)
    is_over = False
    if _initialize(draft):
        is_over = _run(draft)
    elif _init_failed(pod, records):
        is_over = True
    if is_over:
        return _ending(records)
    return Decision(tuple(draft.start), back_off=draft.back_off, wake_at=min(draft.times, default=math.inf))


def _ending(records: Records) -> Decision:
    running = tuple(name for name, record in records.items() if record.is_running)
    return Decision(stop=running, is_over=not running)


def _initialize(draft: _Draft) -> bool:
    """Runs the init containers in order; True if the other containers may start."""
    for container in draft.pod.init_containers:
        name = container["name"]
        record = draft.records[name]
        if is_sidecar(container):
            if not record.is_running:
                draft.consider(name)
            if record.attempt < 0 or (record.is_running and not record.has_started):
                return False
        elif record.is_running:
            return False
        elif record.ended is None or (record.ended.exit_code != 0 and draft.pod.restart_policy != "Never"):
            draft.consider(name)
            return False
        elif record.ended.exit_code != 0:
            return False
    return True


def _init_failed(pod: Pod, records: Records) -> bool:
    return pod.restart_policy == "Never" and any(
        (ended := records[container["name"]].ended) is not None and ended.exit_code != 0
        for container in pod.init_containers
        if not is_sidecar(container)
    )


def _run(draft: _Draft) -> bool:
    """Runs the containers; True if all have ended and none will be restarted."""
    is_over = True
    for container in draft.pod.containers:
        record = draft.records[container["name"]]
        if record.is_running:
            is_over = False
        elif record.ended is None or restarts(draft.pod, container, record):
            draft.consider(container["name"])
            is_over = False
    return is_over


def restarts(pod: Pod, container: Object, record: Record) -> bool:
    """Whether a container that has ended is to be restarted."""
    policy = "Always" if is_sidecar(container) else pod.restart_policy
    failed = record.ended is not None and record.ended.exit_code != 0
    return policy == "Always" or (policy == "OnFailure" and failed)
