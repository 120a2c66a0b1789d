"""Builds a pod's status from the records of its containers, as a kubelet does. No I/O, no clock."""

from collections.abc import Sequence

from trainmaster.local.node.decision import Decision, Records
from trainmaster.local.node.pod import LOOPBACK, Object, Pod, is_sidecar, moment_of
from trainmaster.local.node.record import Ended, Record

OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def status_of(pod: Pod, records: Records, decision: Decision, now: float, *, address: str = LOOPBACK) -> Object:
    """The whole new status; fields and conditions of other writers are kept."""
    phase, reason, message = _phase(pod, records, decision)
    status = {key: value for key, value in pod.status.items() if key not in ("reason", "message")}
    status |= {
        "phase": phase,
        "hostIP": LOOPBACK,
        "hostIPs": [{"ip": LOOPBACK}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": pod.status.get("startTime") or moment_of(now),
        "containerStatuses": [_container(pod, each, records, decision) for each in pod.containers],
        "conditions": _conditions(pod, records, phase, now),
    }
    if pod.init_containers:
        status["initContainerStatuses"] = [_container(pod, each, records, decision) for each in pod.init_containers]
    if reason:
        status |= {"reason": reason, "message": message}
    return status


# --- the phase ---------------------------------------------------------------------------------


def _phase(pod: Pod, records: Records, decision: Decision) -> tuple[str, str, str]:
    if pod.is_ended:
        return pod.phase, pod.status.get("reason", ""), pod.status.get("message", "")
    if decision.failure is not None and decision.is_over:
        return "Failed", decision.failure.reason, decision.failure.message
    return _phase_of_containers(pod, records, decision), "", ""


def _phase_of_containers(pod: Pod, records: Records, decision: Decision) -> str:
    mains = [records[container["name"]] for container in pod.containers]
    if not decision.is_over:
        begun = all(record.attempt >= 0 for record in mains)
        return "Running" if begun and _is_initialized(pod, records) else "Pending"
    ends = [record.ended for record in mains]
    if all(end is not None and end.exit_code == 0 for end in ends):
        return "Succeeded"
    if pod.is_deleting and not any(record.attempt >= 0 for record in records.values()):
        return pod.phase or "Pending"  # deleted before any container started
    return "Failed"


def _is_initialized(pod: Pod, records: Records) -> bool:
    return not _uninitialized(pod, records)


def _uninitialized(pod: Pod, records: Records) -> list[str]:
    return [each["name"] for each in pod.init_containers if not _is_through(each, records[each["name"]])]


def _is_through(container: Object, record: Record) -> bool:
    if is_sidecar(container):
        return record.attempt >= 0 and (record.has_started or not record.is_running)
    return record.ended is not None and record.ended.exit_code == 0


# --- containers --------------------------------------------------------------------------------


def _container(pod: Pod, container: Object, records: Records, decision: Decision) -> Object:
    record = records[container["name"]]
    if pod.is_ended and record.attempt < 0 and (reported := _reported(pod, record.name)) is not None:
        return reported  # the container never started here; the pod's failure has the reason
    state = _state(pod, container, record, decision)
    last = record.previous if "terminated" in state or record.ended is None else record.ended
    is_through = not is_sidecar(container) and container in pod.init_containers and "terminated" in state
    return {
        "name": record.name,
        "image": container.get("image", ""),
        "imageID": "",
        "containerID": f"process://{pod.uid}/{record.name}/{record.attempt}" if record.attempt >= 0 else "",
        "ready": record.is_ready or (is_through and state["terminated"]["exitCode"] == 0),
        "started": record.is_running and record.has_started,
        "restartCount": max(record.attempt, 0),
        "state": state,
        "lastState": {"terminated": _terminated(last)} if last is not None else {},
    }


def _reported(pod: Pod, name: str) -> Object | None:
    """The status of a container in the API."""
    known = (*(pod.status.get("initContainerStatuses") or ()), *(pod.status.get("containerStatuses") or ()))
    return next((each for each in known if each["name"] == name), None)


def _state(pod: Pod, container: Object, record: Record, decision: Decision) -> Object:
    if record.is_running:
        return {"running": {"startedAt": record.started_at[:19] + "Z"}}
    if record.waiting is not None:
        return _waiting(record.waiting.reason, record.waiting.message)
    if decision.failure is not None and record.attempt < 0:
        reason = "CreateContainerConfigError" if not container.get("command") else "PodInitializing"
        return _waiting(reason, decision.failure.message)
    if record.name in decision.back_off and decision.back_off[record.name] > 0:
        where = f"{pod.key.name}_{pod.key.namespace}({pod.uid})"
        seconds = _duration(decision.back_off[record.name])
        return _waiting("CrashLoopBackOff", f"back-off {seconds} restarting failed container={record.name} pod={where}")
    if record.ended is not None:
        return {"terminated": _terminated(record.ended)}
    return {"waiting": {"reason": "PodInitializing" if pod.init_containers else "ContainerCreating"}}


def _waiting(reason: str, message: str) -> Object:
    return {"waiting": {"reason": reason, "message": message}}


def _terminated(ended: Ended) -> Object:
    state: Object = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "startedAt": ended.started_at[:19] + "Z",
        "finishedAt": ended.finished_at[:19] + "Z",
    }
    return state | ({"message": ended.message} if ended.message else {})


def _duration(seconds: float) -> str:
    """In Go's format: 10s, 2m40s."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"


# --- conditions --------------------------------------------------------------------------------


def _conditions(pod: Pod, records: Records, phase: str, now: float) -> list[Object]:
    uninitialized = _uninitialized(pod, records)
    unready = _unready(pod, records)
    begun = any(record.attempt >= 0 for record in records.values())
    initialized = _incomplete("ContainersNotInitialized", "incomplete", uninitialized)
    ready = _incomplete("ContainersNotReady", "unready", unready)
    if phase == "Succeeded":
        initialized = {"status": "True", "reason": "PodCompleted"}
        ready = {"status": "False", "reason": "PodCompleted"}
    elif phase == "Failed":
        ready = {"status": "False", "reason": "PodFailed"}
    wanted: dict[str, Object] = {
        "PodReadyToStartContainers": {"status": "True" if begun and phase in ("Pending", "Running") else "False"},
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": {"status": "True"},
    }
    old = {condition["type"]: condition for condition in pod.status.get("conditions") or ()}
    own = [_condition(kind, wanted[kind], old.get(kind), now) for kind in OWN_CONDITIONS]
    return own + [condition for kind, condition in old.items() if kind not in OWN_CONDITIONS]


def _unready(pod: Pod, records: Records) -> list[str]:
    sidecars = [container for container in pod.init_containers if is_sidecar(container)]
    return [each["name"] for each in (*sidecars, *pod.containers) if not records[each["name"]].is_ready]


def _incomplete(reason: str, word: str, names: Sequence[str]) -> Object:
    if not names:
        return {"status": "True"}
    return {"status": "False", "reason": reason, "message": f"containers with {word} status: [{' '.join(names)}]"}


def _condition(kind: str, wanted: Object, old: Object | None, now: float) -> Object:
    """A condition keeps the time of its last transition, and fields of other writers."""
    if old is not None and old.get("status") == wanted["status"]:
        kept = {key: value for key, value in old.items() if key not in ("reason", "message")}
        return kept | wanted
    return {"type": kind, "lastProbeTime": None, "lastTransitionTime": moment_of(now)} | wanted
