"""One line of ``kubectl get pods``: a summary of the states of all containers."""

from typing import Any, NamedTuple

Object = dict[str, Any]

_FINISHED = ("Succeeded", "Failed")


class PodRow(NamedTuple):
    """``restarted_at`` is the end of the last run before a restart; "" if there was no restart."""

    ready: int
    total: int
    reason: str
    restarts: int
    restarted_at: str


def pod_row(pod: Object) -> PodRow:
    """The columns Ready, Status and Restarts."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    sidecars = {each.get("name") for each in spec.get("initContainers", ()) if each.get("restartPolicy") == "Always"}
    total = len(spec.get("containers", ())) + len(sidecars)
    starts = status.get("initContainerStatuses", [])
    init_reason, ready = _initialization(starts, sidecars, len(spec.get("initContainers", ())))
    reason = init_reason or _phase_reason(status)
    counted = starts
    if not init_reason or _condition(status, "Initialized") == "True":
        containers = status.get("containerStatuses", [])
        reason, running = _containers(containers, reason, is_ready=_condition(status, "Ready") == "True")
        ready += running
        counted = [each for each in starts if each.get("name") in sidecars] + containers
    restarts = sum(each.get("restartCount", 0) for each in counted)
    ends = [_terminated(each, "lastState").get("finishedAt") or "" for each in counted]
    return PodRow(ready, total, _deletion(pod, reason), restarts, max(ends, default=""))


def _phase_reason(status: Object) -> str:
    gated = any(
        each.get("type") == "PodScheduled" and each.get("reason") == "SchedulingGated"
        for each in status.get("conditions", ())
    )
    return "SchedulingGated" if gated else str(status.get("reason") or status.get("phase", ""))


def _condition(status: Object, type_: str) -> str:
    return next((str(each.get("status")) for each in status.get("conditions", ()) if each.get("type") == type_), "")


def _terminated(container: Object, state: str) -> Object:
    terminated: Object = (container.get(state) or {}).get("terminated") or {}
    return terminated


def _state(container: Object, word: str) -> Object | None:
    details: Object | None = (container.get("state") or {}).get(word)
    return details


def _end_reason(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _initialization(statuses: list[Object], sidecars: set[Any], count: int) -> tuple[str, int]:
    """The state of the first unfinished init container, "" if all are done; and the number of ready sidecars."""
    ready = 0
    for index, status in enumerate(statuses):
        terminated, waiting = _state(status, "terminated"), _state(status, "waiting")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if status.get("name") in sidecars and status.get("started"):
            ready += bool(status.get("ready"))
            continue
        if terminated is not None:
            return f"Init:{_end_reason(terminated)}", ready
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}", ready
        return f"Init:{index}/{count}", ready
    return "", ready


def _containers(statuses: list[Object], reason: str, *, is_ready: bool) -> tuple[str, int]:
    """The state of the first container that is not running; and the number of running and ready containers."""
    running = 0
    failure = ""
    for status in reversed(statuses):
        terminated, waiting = _state(status, "terminated"), _state(status, "waiting")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = _end_reason(terminated)
            failure = reason if terminated.get("exitCode", 0) != 0 else failure
        elif status.get("ready") and _state(status, "running") is not None:
            running += 1
    if reason == "Completed":
        reason = _after_completion(bool(running), is_ready, failure)
    return reason, running


def _after_completion(is_running: bool, is_ready: bool, failure: str) -> str:
    """One container has completed: the others decide the pod's status."""
    if is_running and is_ready:
        return "Running"
    return failure or ("NotReady" if is_running else "Completed")


def _deletion(pod: Object, reason: str) -> str:
    status = pod.get("status", {})
    if not pod["metadata"].get("deletionTimestamp"):
        return reason
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in _FINISHED else "Terminating"
