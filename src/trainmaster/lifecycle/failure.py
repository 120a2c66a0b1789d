"""The failure that ended a job, as its status keeps it: pods and their logs may be deleted with the end of the job.

The cause is the replica that failed first. But when a replica of a distributed job fails, its peers lose their
connections and fail within milliseconds, and kubelets report whole seconds. So of replicas that failed within
``TOGETHER`` of the first, those that are a consequence of another failure, by their signal or their output, come last.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from trainmaster.core.slot import Slot
from trainmaster.core.view import OUT_OF_MEMORY, OUTPUT_BYTES, ContainerView, PodView
from trainmaster.core.wire import ExitCode, Number, Wire
from trainmaster.lifecycle.fault import START_ERRORS, Fault, cause_of, end_of, is_exception, signal_of
from trainmaster.lifecycle.restart import FailedPod

_SENT = frozenset({"SIGHUP", "SIGINT", "SIGKILL", "SIGTERM"})
"""Signals that one process ends another with. A program that crashes has another one."""
TOGETHER = timedelta(seconds=10)
CAUSE_SECONDS = 2.0
"""For so long after a replica has lost its peer, the failure of the peer is waited for: it may be reported later."""
_PEER_LOST = re.compile(
    r"connection (?:\w+ )?(?:reset|refused|closed|aborted|lost)|closed by (?:the )?peer|peer closed|broken ?pipe"
    r"|remote (?:process|peer|rank) .*(?:exited|closed|died)|socket closed",
    re.IGNORECASE,
)
"""Output of a program that has lost another one."""


class Failure(Wire, frozen=True):
    """The replica that failed first: others often fail because of it."""

    replica: str = ""
    """Role and index, such as worker-2."""
    role: str = ""
    """The role of the replica, as the spec spells it."""
    pod: str = ""
    """The name of its pod, which may be deleted by now."""
    container: str = ""
    """The container that failed; empty if the pod failed without one, as with its node."""
    node: str = ""
    """The node of the pod."""
    exit_code: ExitCode | None = None
    """The exit code of the container; 128 and the number of a signal if one ended it."""
    signal: str = ""
    """The signal that ended the container, such as SIGSEGV."""
    reason: str = ""
    """What the kubelet reports: Error, OOMKilled, StartError, or why the pod failed without a container."""
    message: str = ""
    """Why no program ran or ended: the message of the container runtime or of the node."""
    memory_limit: str = ""
    """Of a container that ran out of memory."""
    time: datetime | None = None
    """When the container ended, or when the failure was seen."""
    is_init: bool = False
    """The container is an init container: the program of the replica has not started."""
    output: tuple[str, ...] = ()
    """The last lines of its output: at most ten, and 1 KiB. The kubelet copies them into the pod's status, unless the
    template sets terminationMessagePolicy to File."""
    others: Number = 0
    """How many more replicas had failed when the job ended."""

    @property
    def is_start_error(self) -> bool:
        return self.reason in START_ERRORS

    @property
    def sentence(self) -> str:
        """Which replica, and how it ended."""
        if self.exit_code is None:
            return f"{self.replica}: {self.message or self.reason}"
        where = f", node {self.node}" if self.node else ""
        who = f"init container {self.container} of {self.replica}" if self.is_init else self.replica
        return f"{who} (pod {self.pod}{where}) {self.end}"

    def describe(self) -> str:
        """The sentence, with the line of output that says why."""
        signal = "" if self.reason == OUT_OF_MEMORY else self.signal
        return f"{self.sentence}{cause_of(signal, self.line)}"

    @property
    def line(self) -> str:
        """The line of output that says why: the last exception, else the last line."""
        if self.is_start_error or self.reason == OUT_OF_MEMORY:
            return ""
        exceptions = [line for line in self.output if is_exception(line)]
        return (exceptions or self.output or ("",))[-1]

    @property
    def is_consequence(self) -> bool:
        """Probably of another failure: another process ended it, or it lost its connection to one."""
        is_own = self.exit_code is None or self.reason == OUT_OF_MEMORY
        return not is_own and (self.signal in _SENT or self.has_lost_peer)

    @property
    def has_lost_peer(self) -> bool:
        return any(map(_PEER_LOST.search, self.output))

    def seconds_to_wait(self, now: datetime) -> float:
        """Until its cause should be known; 0 if it needs no other. A clock that is wrong delays nothing."""
        left = CAUSE_SECONDS - (now - self.time).total_seconds() if self.time and self.has_lost_peer else 0.0
        return left if 0 < left <= CAUSE_SECONDS else 0.0

    @property
    def end(self) -> str:
        """How it ended, without its name."""
        if self.reason == OUT_OF_MEMORY:
            limit = f" at its limit of {self.memory_limit}" if self.memory_limit else ""
            return f"ran out of memory (OOMKilled, exit code {self.exit_code}){limit}"
        if self.is_start_error:
            return f"could not start ({self.reason}): {self.message or 'its command is wrong'}"
        return end_of(self.exit_code, self.signal)


def first(failures: Sequence[Failure]) -> Failure | None:
    """The cause of the others. Those without a time come last; of equal ones it is the first in the sequence."""
    begin = min((failed.time for failed in failures if failed.time), default=None)

    def order(failed: Failure) -> tuple[object, ...]:
        is_late = begin is None or failed.time is None or failed.time > begin + TOGETHER
        return is_late, failed.is_consequence, failed.time is None, failed.time

    return min(failures, key=order, default=None)


def of_container(pod: PodView, ended: ContainerView, replica: str, role: str) -> Failure:
    lines, is_start_error = ended.lines, ended.reason in START_ERRORS
    return Failure(
        replica=replica,
        role=role,
        pod=pod.key.name,
        container=ended.name,
        node=pod.node,
        exit_code=ended.exit_code,
        signal="" if is_start_error else signal_of(ended.exit_code),
        reason=ended.reason,
        message=" ".join(lines) if is_start_error else "",
        memory_limit=ended.memory,
        time=ended.finished,
        is_init=ended in pod.init_containers,
        output=() if is_start_error else lines,
    )


def has_lost_peer(fault: Fault) -> bool:
    """True of the failure of a pod that by its own output is a consequence of another failure."""
    if not fault.pod or not fault.ended:
        return False
    record = of_container(fault.pod, fault.ended, "", "")
    return record.is_consequence and record.has_lost_peer


def of_job(job: str, failed: Sequence[FailedPod], slots: Iterable[Slot], now: datetime) -> Failure | None:
    """The first of these pods of a job that fails; of those that ended in the same second, the one whose end was
    reported first."""
    cause = first([record for _, record in _records(job, failed, slots, now)])
    return msgspec.structs.replace(cause, others=len(failed) - 1) if cause else None


def cause_first(job: str, failed: Sequence[FailedPod], slots: Iterable[Slot], now: datetime) -> tuple[FailedPod, ...]:
    """These pods of a job that restarts, beginning with the one that ``of_job`` describes."""
    records = _records(job, failed, slots, now)
    first_record = first([record for _, record in records])
    cause = next((pod for pod, record in records if record is first_record), None)
    return (*(pod for pod in failed if pod is cause), *(pod for pod in failed if pod is not cause))


def _records(
    job: str, failed: Sequence[FailedPod], slots: Iterable[Slot], now: datetime
) -> list[tuple[FailedPod, Failure]]:
    """In the order in which their ends were reported. The version of a pod that failed without a container, as with its
    node, says nothing about that: such pods keep their order."""
    by_place = {(slot.role, slot.index): slot for slot in slots}
    reported = sorted(failed, key=lambda each: _version(each.fault))
    return [(each, _of_fault(each.fault, by_place[each.role, each.index], job, now)) for each in reported]


def _version(fault: Fault) -> int:
    return fault.pod.resource_version if fault.pod and fault.ended else 0


def _of_fault(fault: Fault, slot: Slot, job: str, now: datetime) -> Failure:
    replica, role = slot.name.removeprefix(f"{job}-") if slot.key else slot.place, slot.role
    if fault.pod and fault.ended:
        return of_container(fault.pod, fault.ended, replica, role)
    return Failure(
        replica=replica,
        role=role,
        pod=fault.pod.key.name if fault.pod else "",
        node=fault.node,
        reason=fault.reason,
        message=fault.message[:OUTPUT_BYTES],
        time=now,
    )
