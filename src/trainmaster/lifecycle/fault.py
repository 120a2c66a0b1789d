"""What went wrong with a pod, derived from what its kubelet reported.

A fault is judged once: `restart` says whether the pod comes again, `completion` what becomes of the job if not.
"""

import re
from datetime import datetime

import msgspec

from trainmaster.core.view import OUT_OF_MEMORY, ContainerView, PodView
from trainmaster.lifecycle.completion import FAILED
from trainmaster.lifecycle.training import Training

NODE_REASONS = frozenset(
    {
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
"""Why a node ends or refuses a pod whose program did nothing wrong. Beside them there is one for each resource:
``OutOfcpu``, ``OutOfpods`` and so on."""

# fmt: off
_SIGNALS = (
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV",
    "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN",
    "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO", "SIGPWR", "SIGSYS",
)
# fmt: on
SIGNALS = {name: number for number, name in enumerate(_SIGNALS, start=1)}
"""As Linux numbers them, wherever this runs: pods are Linux."""

START_ERRORS = frozenset({"StartError", "ContainerCannotRun"})
"""Why a container could not be started: its command is wrong. Its exit code is 127 or 128, and no program had it."""

SIGNALLED = 128
"""A program that a signal ended exits with this and the number of the signal."""

_NAMES = {SIGNALLED + number: name for name, number in SIGNALS.items()}


def signal_of(exit_code: int | None) -> str:
    """The name of the signal that ended a program with this exit code; empty if none did."""
    return _NAMES.get(exit_code, "") if exit_code else ""


_EXCEPTION = re.compile(r"(?:\[[^\]]*\]:? ?)*[\w.]*(?:[Ee]rror|Exception|KeyboardInterrupt)(?::|$)")
"""The line of a Python traceback that names the exception. PyTorch writes the rank before it."""
_ADVICE = {
    "SIGKILL": ", mostly by the kernel's OOM killer",
    "SIGSEGV": "; with PYTHONFAULTHANDLER=1 in its environment Python prints where",
}
"""What is worth knowing about a signal, whose cause no output has."""


def is_exception(line: str) -> bool:
    return _EXCEPTION.match(line) is not None


def end_of(exit_code: int | None, signal: str) -> str:
    return f"was killed by {signal} ({exit_code})" if signal else f"exited with code {exit_code}"


def cause_of(signal: str, line: str) -> str:
    """What follows the end of a program: the line that says why. A program that a signal ended has not said why, unless
    the line is an exception: then it is only its last line."""
    if not signal or is_exception(line):
        return f": {line}" if line else ""
    last = f"; its last line was: {line}" if line else ""
    return f"{_ADVICE.get(signal, '')}{last}"


class Fault(msgspec.Struct, frozen=True):
    """``phase`` is how a job ends of it. ``exits`` are the exit codes of the containers that failed; the fields
    after them describe the first one."""

    phase: str
    message: str
    node: str = ""
    has_failed: bool = False
    """The pod has ended and failed."""
    is_node: bool = False
    """The node caused the fault."""
    is_free: bool = False
    """No restart limit is charged for it: Kubernetes evicted the pod to free its node, or the kind says so."""
    is_eviction: bool = False
    """Kubernetes evicted the pod to free its node."""
    comes_again: bool | None = None
    """Whether it is started again, whatever the policy of its role says; None leaves it to that."""
    exits: tuple[int, ...] = ()
    reason: str = ""
    line: str = ""
    pod: PodView | None = None
    ended: ContainerView | None = None
    """The container of the pod that failed first; None if the pod failed without one, or its node ended it."""

    @property
    def exit_code(self) -> int | None:
        return self.exits[0] if self.exits else None

    @property
    def signal(self) -> str:
        return signal_of(self.exit_code)


def failure(pod: PodView, training: Training) -> Fault:
    """The fault of a pod that failed."""
    failed = sorted((c for c in pod.containers if c.exit_code and training.takes_part(pod, c.name)), key=_finished)
    before = [c for c in pod.init_containers if c.exit_code]  # reported, but without effect on the restart policy
    ended, is_node = failed or before, is_node_reason(pod.reason)
    exits = [_exit(c, pod.node) for c in ended]
    why = "; ".join([_ended(pod), *exits] if is_node or not exits else exits)
    return Fault(
        phase=FAILED,
        message=f"pod {pod.key.name} failed: {why}",
        node=pod.node,
        has_failed=True,
        is_node=is_node,
        comes_again=False if any(c.reason in START_ERRORS for c in ended) else None,
        exits=tuple(c.exit_code for c in failed if c.exit_code),
        reason=failed[0].reason if failed and not is_node else pod.reason,
        line=failed[0].line if failed else "",
        pod=pod,
        ended=ended[0] if ended and not is_node else None,
    )


def _finished(ended: ContainerView) -> tuple[bool, datetime | None]:
    return ended.finished is None, ended.finished


def _ended(pod: PodView) -> str:
    where = f" (node {pod.node})" if pod.node else ""
    why = ", ".join(part for part in (pod.reason, pod.message) if part) or "no reason was reported"
    return f"{why}{where}"


_EVICTED = {
    "DeletionByTaintManager": "was evicted from node {node} because of a taint",
    "PreemptionByScheduler": "was preempted and evicted from node {node}",
}


def disruption(pod: PodView) -> Fault:
    """The fault of a pod that Kubernetes evicts, as ``kubectl drain`` makes it do, or Kueue for another job. A job that
    Kueue evicted is queued again, whatever its restart policy: its programs did nothing."""
    evicted = _EVICTED.get(pod.disruption, "was evicted from node {node}").format(node=pod.node)
    if pod.is_dequeued:
        evicted = f"was evicted from node {pod.node} by Kueue"
    return Fault(
        phase=FAILED,
        message=f"pod {pod.key.name} {evicted} ({pod.disruption})",
        node=pod.node,
        has_failed=True,
        is_node=True,
        is_free=True,
        is_eviction=True,
        comes_again=True if pod.is_dequeued else None,
        reason=pod.disruption,
        pod=pod,
    )


def restarted_container(pod: PodView, training: Training) -> ContainerView | None:
    """The first container that trains and that its kubelet has restarted."""
    return next((c for c in pod.containers if c.restarts and training.takes_part(pod, c.name)), None)


def restarted(pod: PodView, container: ContainerView) -> Fault:
    """The fault of a pod whose container its kubelet restarted, where the other pods do not take it back."""
    ended = container.last or container
    return Fault(
        phase=FAILED,
        message=f"pod {pod.key.name} lost its connections: {describe_restart(pod, container)}",
        node=pod.node,
        has_failed=True,
        comes_again=True,
        exits=(ended.exit_code,) if ended.exit_code else (),
        reason=ended.reason,
        line=ended.line,
        pod=pod,
        ended=ended if ended.exit_code else None,
    )


def describe_restart(pod: PodView, container: ContainerView) -> str:
    """``exit code 0`` is a restart, too: the process that the other pods knew is gone."""
    ended = container.last or container
    why = f" with reason {ended.reason} exitcode {ended.exit_code}" if ended.exit_code is not None else ""
    return f"container {container.name} on node {pod.node} ended{why} and was restarted in place"


def is_node_reason(reason: str) -> bool:
    """True when a pod ended for something that its program did not do."""
    return reason in NODE_REASONS or reason.lower().startswith("outof")


def _exit(ended: ContainerView, node: str) -> str:
    """The words of the trainingjob-operator, then what it did not say."""
    signal = signal_of(ended.exit_code)
    if ended.reason == OUT_OF_MEMORY:
        more = f" at its memory limit of {ended.memory}" if ended.memory else ""
    else:
        more = f" ({signal})" if signal and ended.reason not in START_ERRORS else ""
        more += f": {ended.lines[-1]}" if ended.lines else ""
    return f"container {ended.name} on node {node} exited with reason {ended.reason} exitcode {ended.exit_code}{more}"
