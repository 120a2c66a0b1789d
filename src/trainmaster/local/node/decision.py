"""What to do next with one pod: a function of what is wanted and what is there. No I/O, no clock.

Level-triggered: it does not matter how things came to be so, or whether the node was restarted meanwhile.
"""

import math
from collections.abc import Mapping

import msgspec

from trainmaster.local.node.backoff import RestartBackoff
from trainmaster.local.node.pod import Object, Pod, is_sidecar, seconds_of
from trainmaster.local.node.record import Record

Records = Mapping[str, Record]


class Verdict(msgspec.Struct, frozen=True):
    """The pod failed as a whole, whatever its containers say."""

    reason: str
    message: str


class Decision(msgspec.Struct, frozen=True):
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    back_off: Mapping[str, float] = {}
    """Containers that wait for their restart, and how many seconds the wait is in all."""
    verdict: Verdict | None = None
    is_over: bool = False
    """Nothing runs and nothing will."""
    wake_at: float = math.inf


class _Draft:
    """A decision in the making."""

    def __init__(self, pod: Pod, records: Records, now: float, backoff: RestartBackoff) -> None:
        self.pod = pod
        self.records = records
        self.now = now
        self.backoff = backoff
        self.start: list[str] = []
        self.back_off: dict[str, float] = {}
        self.times: list[float] = []

    def consider(self, name: str) -> None:
        """Start this container, now or when its time has come."""
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
    unfit: Verdict | None = None,
    must_go: bool = False,
) -> Decision:
    """``unfit``: the pod can never run here. ``must_go``: the API does not know it any more."""
    if must_go or pod.is_deleting or pod.is_ended:
        return _ending(records)
    if pod.end_at is not None and now >= pod.end_at:
        unfit = unfit or Verdict("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
    if unfit is not None:
        return msgspec.structs.replace(_ending(records), verdict=unfit)
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
    """The init containers, one after the other; True when the others may run."""
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
    """The containers themselves; True when all have ended for good."""
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
    """Whether a container that ended is to be started again."""
    policy = "Always" if is_sidecar(container) else pod.restart_policy
    failed = record.ended is not None and record.ended.exit_code != 0
    return policy == "Always" or (policy == "OnFailure" and failed)
