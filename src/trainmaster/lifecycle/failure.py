"""The failure that ended a job, as its status keeps it: pods and their logs may be deleted with the end of the job."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from trainmaster.core.slot import Slot
from trainmaster.core.view import OUT_OF_MEMORY, OUTPUT_BYTES, ContainerView, PodView
from trainmaster.core.wire import Wire
from trainmaster.lifecycle.fault import START_ERRORS, Fault, signal_of
from trainmaster.lifecycle.restart import FailedPod

_SENT = frozenset({"SIGHUP", "SIGINT", "SIGKILL", "SIGTERM"})
"""Signals that one process ends another with. A program that crashes has another one."""


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
    exit_code: int | None = None
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
    """When the container ended."""
    output: tuple[str, ...] = ()
    """The last lines of its output: at most ten, and 1 KiB. The kubelet copies them into the pod's status, unless the
    template sets terminationMessagePolicy to File."""
    others: int = 0
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
        return f"{self.replica} (pod {self.pod}{where}) {self._end}"

    def describe(self) -> str:
        """The sentence, with the last line of output."""
        has_own_words = self.is_start_error or self.reason == OUT_OF_MEMORY
        return self.sentence if has_own_words or not self.output else f"{self.sentence}: {self.output[-1]}"

    @property
    def _end(self) -> str:
        if self.reason == OUT_OF_MEMORY:
            limit = f" at its limit of {self.memory_limit}" if self.memory_limit else ""
            return f"ran out of memory (OOMKilled, exit code {self.exit_code}){limit}"
        if self.is_start_error:
            return f"could not start ({self.reason}): {self.message or 'its command is wrong'}"
        signal = f" ({self.signal})" if self.signal else ""
        return f"exited with code {self.exit_code}{signal}"


def first(failures: Sequence[Failure]) -> Failure | None:
    """The one that ended first. Those without a time come last."""
    return min(failures, key=lambda f: (f.time is None, f.time, _is_sent(f), f.pod)) if failures else None


def _is_sent(end: Failure | Fault) -> bool:
    """Another process ended it. The kernel, which ends it at its memory limit, is none."""
    return end.signal in _SENT and end.reason != OUT_OF_MEMORY


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
        output=() if is_start_error else lines,
    )


def of_job(job: str, failed: Sequence[FailedPod], slots: Iterable[Slot]) -> Failure | None:
    """The first of these pods of a job that fails. Of pods that ended in the same second, one that a signal of another
    process ended is not the first, and of the rest it is the one whose end was reported first."""
    if not failed:
        return None
    cause = min(failed, key=lambda each: _order(each.fault))
    slot = next(slot for slot in slots if (slot.role, slot.index) == (cause.role, cause.index))
    replica = slot.name.removeprefix(f"{job}-") if slot.key else slot.place
    return msgspec.structs.replace(_of_fault(cause.fault, replica, slot.role), others=len(failed) - 1)


def _order(fault: Fault) -> tuple[object, ...]:
    ended = fault.ended
    time = ended.finished if ended else None
    return (time is None, time, _is_sent(fault), fault.pod.resource_version if fault.pod else 0)


def _of_fault(fault: Fault, replica: str, role: str) -> Failure:
    if fault.pod and fault.ended:
        return of_container(fault.pod, fault.ended, replica, role)
    return Failure(
        replica=replica,
        role=role,
        pod=fault.pod.key.name if fault.pod else "",
        node=fault.node,
        reason=fault.reason,
        message=fault.message[:OUTPUT_BYTES],
    )
